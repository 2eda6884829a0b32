"""What a log lets us say to do: the way to a working GPU, in every era, with what the log names."""

from __future__ import annotations

import shlex

import pytest

from tfdoctor.cli.machine import host_for
from tfdoctor.compat import Compat
from tfdoctor.findings import Cause
from tfdoctor.fit import Host
from tfdoctor.logs.report import LogReport, diagnose_log
from tfdoctor.plan import Method, Request, recommend

COMPAT = Compat.load()
MINORS = sorted({row.minor for row in COMPAT.releases if row.gpu and not row.is_prerelease})
SKIPPED = "Cannot dlopen some GPU libraries. Please make sure the missing libraries mentioned above\n"
SKIPPED += "Skipping registering GPU devices...\n"


def summarize_answer(text: str) -> LogReport:
    return diagnose_log([text.encode()], COMPAT)


def commands(report: LogReport) -> list[str]:
    assert report.root is not None
    return [command for remedy in report.root.remedies for command in remedy.commands]


def make_release_log(minor: str, cuda: str = "") -> LogReport:
    """A log of this release in which its CUDA runtime and cuDNN are missing."""
    release = next(row for row in reversed(COMPAT.releases) if row.minor == minor and row.gpu)
    names = [name for name in release.required_libraries if "cudart" in name or "cudnn" in name]
    path = f"; LD_LIBRARY_PATH: /usr/local/cuda-{cuda}/lib64" if cuda else ""
    failed = [
        f"Could not load dynamic library '{one}'; dlerror: {one}: cannot open shared object file: No such file or "
        f"directory{path}"
        for one in names
    ]
    return summarize_answer("\n".join([f"TensorFlow version: {release.version}", *failed, SKIPPED]))


@pytest.mark.few(3)
@pytest.mark.parametrize("minor", MINORS)
def test_in_every_era_the_commands_lead_to_a_gpu(minor: str) -> None:
    """What is offered can be had: the planner, asked for the same, has a way."""
    found = commands(make_release_log(minor))
    assert "tfdoctor check" in found
    asked = [shlex.split(one) for one in found if one.startswith(("tfdoctor install", "tfdoctor build"))]
    for words in asked:
        method = Method.PIP if words[1] == "install" else Method.CONTAINER
        wanted = words[words.index("--tf") + 1]
        assert wanted.startswith(minor)
        assert recommend(COMPAT, Request(tensorflow=wanted, method=method), Host()).conflict is None, words
    if recommend(COMPAT, Request(tensorflow=minor, method=Method.CONTAINER), Host()).conflict is None:
        assert any(words[1] == "build" for words in asked)


def test_the_two_cudnns_that_a_log_names_are_told() -> None:
    report = summarize_answer("Loaded runtime CuDNN library: 9.1.0 but source was compiled with: 9.3.0.\n")
    assert report.root is not None
    assert "cuDNN 9.1.0 was loaded; TensorFlow was built with 9.3.0." in report.root.explanation


@pytest.mark.parametrize(
    ("text", "release"),
    [
        (f"TensorFlow version: 2.16.1\n{SKIPPED}", "2.16.1"),
        (f"TensorFlow version: 2.20.0\n{SKIPPED}", "2.20.0"),
    ],
)
def test_libraries_that_are_not_named(text: str, release: str) -> None:
    report = summarize_answer(text)
    assert report.cause is Cause.LIBS_UNLISTED
    found = commands(report)
    assert found[0] == "tfdoctor check"
    assert f"tfdoctor install --tf {release}" in found
    assert any(command.startswith("tfdoctor run ") for command in found)
    assert report.root is not None
    assert "plain `pip install tensorflow`" in report.root.explanation
    assert "did not use the GPU" in report.headline


def test_another_cuda_is_named_with_the_one_that_is_wanted() -> None:
    report = make_release_log("2.3", "10.0")
    assert report.cause is Cause.LIBS_WRONG_VERSION
    assert "CUDA 10.0 is installed, but it needs CUDA 10.1" in report.headline
    assert report.root is not None
    assert "CUDA 10.0 is on LD_LIBRARY_PATH, but CUDA 10.1 is needed." in report.root.explanation


def test_the_card_that_a_log_names_is_in_the_command() -> None:
    card = "pciBusID: 0000:01:00.0 name: GeForce RTX 2070 computeCapability: 7.5\n"
    missing = (
        "Could not load dynamic library 'libcudart.so.10.1'; dlerror: libcudart.so.10.1: cannot open shared "
    )
    report = summarize_answer(f"{card}{missing}object file: No such file or directory\n{SKIPPED}")
    assert "tfdoctor recommend --gpu 'GeForce RTX 2070'" in commands(report)


def test_a_card_nobody_knows_is_not_asked_for() -> None:
    card = "pciBusID: 0000:01:00.0 name: $(reboot) computeCapability: 7.5\n"
    assert not any("reboot" in command for command in commands(summarize_answer(f"{card}{SKIPPED}")))


# --- what the log names is in the commands ---

FOUND = (
    "I tensorflow/core/common_runtime/gpu/gpu_device.cc:1640] Found device 0 with properties:\n"
    "name: {card} major: {cc}\n"
)
LOST = (
    "I tensorflow/stream_executor/platform/default/dso_loader.cc:53] Could not dlopen library 'libcudart.so.10.0'; "
    "dlerror: libcudart.so.10.0: cannot open shared object file: No such file or directory; LD_LIBRARY_PATH: {path}\n"
    "W tensorflow/core/common_runtime/gpu/gpu_device.cc:1663] Cannot dlopen some GPU libraries. Skipping registering "
    "GPU devices...\n"
)
DRIVER = "I tensorflow/stream_executor/cuda/cuda_diagnostics.cc:204] kernel reported version is: {version}\n"


def commands_of(text: str) -> list[str]:
    return commands(summarize_answer(text))


@pytest.mark.parametrize(
    ("card", "cc", "driver", "wanted"),
    [
        ("Tesla M60", "5 minor: 2", "", "tfdoctor build --tf 1.14 --gpu 'Tesla M60'"),
        (
            "Tesla M60",
            "5 minor: 2",
            "440.100.0",
            "tfdoctor build --tf 1.14 --gpu 'Tesla M60' --driver 440.100",
        ),
        # CUDA 10.0 ends before this card, and this driver before CUDA 10.0: the planner is asked what there is
        ("GeForce RTX 3090", "8 minor: 6", "", "tfdoctor recommend --gpu 'GeForce RTX 3090' --tf 1.14"),
        (
            "Tesla M60",
            "5 minor: 2",
            "384.183.0",
            "tfdoctor recommend --gpu 'Tesla M60' --driver 384.183 --tf 1.14",
        ),
        ("A card of nobody", "5 minor: 2", "", "tfdoctor build --tf 1.14"),
    ],
)
def test_the_card_and_the_driver_of_a_log_are_in_its_commands_of(
    card: str, cc: str, driver: str, wanted: str
) -> None:
    text = FOUND.format(card=card, cc=cc) + (DRIVER.format(version=driver) if driver else "")
    given = commands_of(text + LOST.format(path="/opt/x"))
    assert wanted in given
    assert ("tfdoctor build" in wanted) == any("tfdoctor build" in one for one in given)
    if "--gpu" in wanted and "build" in wanted:
        host = host_for(COMPAT, gpus=[card], driver=driver or None, facts=None)
        assert recommend(COMPAT, Request("1.14", method=Method.CONTAINER), host).conflict is None


@pytest.mark.parametrize(
    ("path", "there"),
    [
        ("/usr/local/cuda-10.1/lib64:/opt/x", "/usr/local/cuda-10.0/lib64"),
        ("/opt/x:/srv/cuda-9.0/targets/x86_64-linux/lib/", "/srv/cuda-10.0/targets/x86_64-linux/lib"),
        ("/usr/local/cuda/lib64", None),
        ("/usr/local/cuda-10.0/lib64", None),
        ("/opt/cuda-10.1 of $(touch x)/lib64", None),
    ],
)
def test_the_wanted_cuda_is_sought_beside_the_one_that_was_searched(path: str, there: str | None) -> None:
    given = commands_of(LOST.format(path=path))
    sought = [one for one in given if one.startswith("CUDA=")]
    assert sought == ([f"CUDA={there}"] if there else [])
    if there:
        assert f"ls {there}" in given
        assert 'export LD_LIBRARY_PATH="$CUDA${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"' in given


def test_an_old_driver_leads_to_releases_that_run_on_it() -> None:
    given = commands_of(
        FOUND.format(card="Tesla M60", cc="5 minor: 2")
        + DRIVER.format(version="384.183.0")
        + "Status: CUDA driver version is insufficient for CUDA runtime version\n"
    )
    assert "tfdoctor recommend --gpu 'Tesla M60' --driver 384.183" in given


def test_the_profilers_folder_is_that_of_the_cuda_in_the_log() -> None:
    lost = (
        "W tensorflow/stream_executor/platform/default/dso_loader.cc:59] Could not load dynamic library "
        "'libcupti.so.10.1'; dlerror: libcupti.so.10.1: cannot open shared object file: No such file or directory; "
        "LD_LIBRARY_PATH: /usr/local/cuda-10.1/lib64\n"
        "E tensorflow/core/profiler/internal/gpu/cupti_tracer.cc:1408] function cupti_interface_->Subscribe( "
        "&subscriber_, (CUpti_CallbackFunc)ApiCallback, this)failed with error CUPTI could not be loaded or symbol "
        "could not be found.\n"
    )
    assert "CUPTI=/usr/local/cuda-10.1/extras/CUPTI/lib64" in commands_of(lost)
    assert "CUPTI=/usr/local/cuda/extras/CUPTI/lib64" in commands_of(
        lost.replace("/usr/local/cuda-10.1/lib64", "/x")
    )


def test_a_stubs_folder_goes_from_the_path_that_the_log_tells() -> None:
    lost = (
        LOST.format(path="/usr/local/cuda/lib64/stubs:/opt/x").replace("libcudart.so.10.0", "libcuda.so.1")
        + 'libcuda reported version is: Invalid argument: form for driver version; got "1"\n'
        + "failed call to cuInit: CUDA_ERROR_STUB_LIBRARY: CUDA driver is a stub library\n"
    )
    assert "export LD_LIBRARY_PATH=/opt/x" in commands_of(lost)
