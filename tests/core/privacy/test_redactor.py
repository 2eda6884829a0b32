"""The redactor: what it replaces, what it keeps, and that redacting twice changes nothing."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tfdoctor.core.privacy.redactor import Redactor
from tfdoctor.system import bundle

HOMES = "/home/"
GPU = "GPU-1f2e3d4c-5b6a-4788-9000-00a0000000b7"


@pytest.mark.parametrize(
    "text",
    [
        "NVIDIA-SMI 525.60.13    Driver Version: 525.60.13    CUDA Version: 12.0",
        "nvidia-cudnn-cu12 9.1.0.70",
        "nvidia-curand-cu12==10.3.6.82",
        "nvidia_cublas_cu12-12.5.3.2.dist-info",
        "libcudnn8 8.9.7.29-1+cuda12.2",
        '{"name": "cudnn", "version": "8.9.2.26"}',
        "/usr/lib/libcudart.so.10.1.243.0",
        "Linux version 5.15.167.4-microsoft-standard-WSL2",
        "00000000:01:00.0 0000:0a:00.0 10de:2684",
        "127.0.0.1 0.0.0.0 255.255.255.255 ::1",
        "std::vector tensorflow::Status 10:00:00",
        "version `GLIBCXX_3.4.32' not found (required by /usr/lib/libfoo.so.1)",
        "memcpy@@GLIBC_2.14 x@libcudart.so.12",
        "nvidia 61440000 12 nvidia_uvm,nvidia_modeset, Live 0x0000000000000000",
        "/home/user/lib /home/user-2/lib https://developer.nvidia.com/cudnn",
        "Board ID                          : N/A",
        "token: none, max_tokens=4096, tokenizers 0.15.0",
        "/usr/local/cuda-12.4/lib64 /opt/conda/lib/python3.11/site-packages",
        "root ubuntu nvidia",
        "PWD=/srv/work OLDPWD=/ bypass=abcdef --xla_disable_hlo_passes=fusion compass: north, one pass over it",
        "kernel reported version is: 470.103.1 kernel version seems to match DSO: 470.103.1",
        "job worker -> {0 -> localhost:2222} on this host (host-1): hostname: host-1",
        "Grappler pass: second, author=someone path=/x https://keras.io/api",
    ],
)
def test_ordinary_text_is_not_redacted(text: str) -> None:
    assert Redactor(users=["root", "ubuntu", "nvidia"], hosts=["localhost"]).text(text) == text


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (HOMES + "alicia/x", "alicia"),
        ("/data" + HOMES + "al/x", "/al/"),
        (r"C:\Users\Al Icia\AppData", "Icia"),
        ("inet 10.1.2.3/24 brd 10.1.2.255", "10.1"),
        ("peer_10.1.2.3.log", "10.1"),
        ("connect 2a01:4f8:c17:b8f::2:8080 fe80::1%eth0", "2a01"),
        ("ether 52:54:00:12:34:56", "52:54"),
        ("mail al.icia@host.example", "icia"),
        ("(buildd@lcy02-amd64-080)", "lcy02"),
        ("https://al:hunter22@host.example/simple", "hunter22"),
        ("--index-url https://host.example/simple", "host.example"),
        ("MY_API_KEY=abc123def", "abc123def"),
        ('"password": "abc123def"', "abc123def"),
        ("tool --auth-token abc123def x", "abc123def"),
        ("Authorization: Bearer abc.DEF-123", "abc.DEF"),
        ("ghp_0123456789abcdefghijABCDEFGHIJ012345", "ghp_"),
        ("<serial>1324021098765</serial>", "1324021098765"),
        ("    Serial Number                         : 1324021098765", "1324021098765"),
        ("Device Serial Number 48-b0-2d-ff-ff-12-34-56", "48-b0"),
        (GPU, GPU[4:]),
        ("/docker/" + "ab12" * 16, "ab12"),
        ("ip-10-1-2-3.ec2.internal", "10-1-2-3"),
        ("node7.cluster.local:8470", "node7"),
        ("Nov 21 10:00:00 tower kernel: x", "tower"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nAAAA", "MIIEow"),
        ("|    0   N/A  N/A      1234      C   /opt/a/secret_train      100MiB |", "secret_train"),
        ("pid=1, name=secret_train, Ch 8", "secret_train"),
        ("TF_XLA_FLAGS=--pw=hunter22", "hunter22"),
        ("TF_XLA_FLAGS=--tf_xla_auto_jit=2 --db-pass hunter22 x", "hunter22"),
        ("TF_CPP_VMODULE=dso_loader=1,pass=hunter22,gpu=2", "hunter22"),
        ("MYSQL_PWD=hunter22 pg_pass: hunter22", "hunter22"),
        ("Server=x;Uid=y;Pwd=hunter22;", "hunter22"),
        ('{"pw": "hunter22"}', "hunter22"),
        ("AccountKey=hunter22==;EndpointSuffix=x", "hunter22"),
        ("https://alic:hunter22" + " […]", "hunter22"),
        (
            "kernel driver does not appear to be running on this host (node17.corp.example.com): /proc/x",
            "node17",
        ),
        ("kernel driver does not appear to be running on this host (n7): /proc/x", "n7"),
        ("retrieving CUDA diagnostic information for host: node17", "node17"),
        ("cuda_diagnostics.cc:168] hostname: n7", "n7"),
        ("node17:1234:1301 [0] NCCL INFO Bootstrap : Using eth0", "node17"),
        ("[node17:04711] *** Process received signal ***", "node17"),
        ("srun: error: node17: task 3: Killed", "node17"),
        ("slurmstepd: error: *** STEP 12.0 ON node17 CANCELLED AT", "node17"),
        ("Initialize GrpcChannelCache for job worker -> {0 -> node17:2222, 1 -> node18:2222}", "node1"),
        ("https://hooks.slack.com/services/T000/B000/abcdefABCDEF", "abcdefABCDEF"),
        ("sk_live_0123456789abcdef", "0123456789abcdef"),
        (HOMES + "a" * 200 + "/src", "aaaa"),
        ("--token=" + "a" * 12_000 + " x", "aaaa"),
    ],
)
def test_secret_is_redacted(text: str, secret: str) -> None:
    redacted = Redactor().text(text)
    assert secret not in redacted
    assert Redactor().text(redacted) == redacted


def test_equal_values_get_equal_replacements() -> None:
    redactor = Redactor(users=["alicia"])
    text = f"{GPU} {GPU.upper()} MIG-{GPU}/1/0 GPU-77665544-3322-4110-8fee-ddccbbaa9988 {HOMES}alicia {HOMES}bertram"
    first, upper_case, mig, other, home, second = redactor.text(text).split()
    assert first.lower() == upper_case.lower()
    assert mig == f"MIG-{first}/1/0"
    assert other != first
    assert (home, second) == ("/home/user", "/home/user-2")
    assert redactor("/scratch/alicia/x") == "/scratch/user/x"
    assert redactor("GPU-1f2e3d4c") == first[:12]


def test_value_learned_from_one_text_is_redacted_in_others() -> None:
    redactor = Redactor()
    redactor.learn("tower-seven\n", "hostname")
    redactor.learn("https://al:hunter22@wheels.example/")
    assert redactor("cache of tower-seven, hunter22, wheels.example") == "cache of host-1, secret-1, host-2"


def test_known_version_is_no_address() -> None:
    redactor = Redactor()
    redactor.learn("nvidia-cudnn-cu12==9.1.0.70")
    assert redactor("cuDNN is 9.1.0.70, the host 9.1.0.71") == "cuDNN is 9.1.0.70, the host ip-1"


FRAGMENTS = st.sampled_from(
    [HOMES + "alicia/", "10.1.2.3", "fe80::1:2", "token=", "https://", "al:pw1234@", "host.example", GPU, "ab12" * 16,
     " ", "\n", "user", "user-2", "ip-1", "secret-1", "GPU-0000", "version ", "name=", "pid=1, ", "Serial Number: ",
     "52:54:00:", "12:34:56", "-", ".", "<serial>", "</serial>", "Users\\", "C:\\", "eyJhbGciOi.eyJzdWIi.abc",
     "bearer abc12345", "pw=", "pass=", "--pwd ", "hunter22", "on this host (", "hostname: ", "n7", ")", " […]",
     "node17:", "1234:1301 [0] NCCL ", "-> ", ":2222,"]
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.one_of(st.text(max_size=200), st.lists(FRAGMENTS, max_size=14).map("".join)))
@example("token=https://al:pw1234@host.example" + HOMES + "alicia/")
@example("TOKEN=VERSION 1.0.0.0")
@example("SERIALNUM:VERSION 1.0.0.0")
@example("eyJ00000.VERSION 1.0.0.0")
@example("A0://0VERSION 1.0.0.0")
def test_redaction_is_idempotent(text: str) -> None:
    once = Redactor().text(text)
    assert Redactor().text(once) == once


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "1.",
        "ab:",
        "-",
        "/home/",
        "x@",
        "token",
        "-----BEGIN A KEY-----",
        "://",
        "0",
        "|  0  1  C  x",
        " ",
    ],
)
def test_redaction_is_fast_on_hostile_text(piece: str) -> None:
    start = time.process_time()
    Redactor().text(piece * (30_000 // len(piece)))
    assert time.process_time() - start < 4


SECRETS = st.text("abcdefghjkmnopqrstuvwxyzABCDEFGH23456789", min_size=8, max_size=40).map("Zq7".__add__)
SPELLINGS = [
    "pw={0}",
    "--pw={0}",
    "--pass {0}",
    "TF_XLA_FLAGS=--pw={0}",
    "TF_CPP_VMODULE=a=1,pass={0}",
    "password: {0}",
    "api_key={0}",
    '{{"secret": "{0}"}}',
    "https://{0}:x77x@host.example/",
    "https://someone:{0}@host.example/",
    "curl -H 'Authorization: Bearer {0}'",
    HOMES + "{0}/tf",
    "on this host ({0}.corp.example): /proc/driver/nvidia/version does not exist",
    "cuda_diagnostics.cc:168] hostname: {0}",
    "?sig={0}&x=1",
]


@settings(max_examples=60, deadline=None)
@given(SECRETS, st.sampled_from(SPELLINGS), st.text(max_size=60), st.text(max_size=60))
def test_planted_secret_is_in_no_redacted_text(secret: str, spelling: str, before: str, after: str) -> None:
    """A secret that is recognized in one text is replaced in all."""
    texts = [f"{before} {spelling.format(secret)} {after}", f"cache of {secret} in /srv/{secret}/x"]
    redactor = Redactor()
    redacted = redactor.redact_texts(texts)
    assert not any(secret in text for text in redacted.values())
    redacted_twice = Redactor().redact_texts(redacted.values())
    assert list(redacted_twice.values()) == list(redacted_twice)


def test_host_before_each_line_is_replaced() -> None:
    line = "2024-05-03 10:11:13.1: W tensorflow/core/common_runtime/gpu/gpu_device.cc:1960] text"
    assert Redactor().text(f"gpu17x: {line}\nstderr: {line}") == f"host-1: {line}\nstderr: {line}"


@pytest.mark.parametrize(
    "value", ["{'cluster': {'worker': ['gpu17x:2222']}}", "{cluster:{worker:[gpu17x:2222]}}"]
)
def test_invalid_tf_config_is_replaced_as_a_whole(value: str) -> None:
    assert Redactor().redact_keyed("TF_CONFIG", value) == "secret-1"


@pytest.mark.parametrize("size", [20, 25, 47])
def test_truncated_loader_cache_is_redacted(size: int) -> None:
    content = b"glibc-ld.so.cache1.1" + b"\0" * (size - 20)
    assert bundle._redact_content("/etc/ld.so.cache", content, Redactor()) == b""
