"""Hosts in TF_CONFIG, in ClusterSpec and in the variables of launchers are replaced whatever the form of the address."""

from __future__ import annotations

import json

import pytest

from tfdoctor.core.privacy.redactor import Redactor
from tfdoctor.system.identity import make_redactor

HOST = "gpu17zq"
ADDRESSES = (
    HOST,
    f"{HOST}:1",
    f"{HOST}:123456",
    f"{HOST}:0x1F",
    f"{HOST}:port",
    f"a:2222,{HOST}:2222",
    f"grpc://{HOST}",
    f" {HOST} ",
    f"[{HOST}]",
    f"{HOST}.",
    f"{HOST}/x",
)
SHAPES = (
    {"cluster": {"worker": ["{0}", "x:2222"]}},
    {"cluster": {"worker": {"0": [["{0}"]]}}},
    {"cluster": "{0}"},
    {"cluster": {"{0}": ["a:1"]}},
    {"eval_session_master": "{0}"},
    {"cluster": {}, "master": "{0}"},
)


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_hosts_in_cluster_are_replaced(shape: object, address: str) -> None:
    text = json.dumps(shape).replace("{0}", address)
    value = json.loads(text)
    redactor = Redactor()
    redactor.learn(text, "TF_CONFIG")
    outputs = [
        redactor.redact_keyed("TF_CONFIG", text),
        Redactor().redact_keyed("TF_CONFIG", text[:-2]),
        Redactor().redact_keyed("TF_CONFIG", text.replace('"', "'")),
        *map(
            Redactor().text,
            (
                f"INFO: TF_CONFIG={text}",
                f"export TF_CONFIG='{text}'",
                f"TF_CONFIG: {text[:-2]}",
                f"ENV TF_CONFIG={json.dumps(text)}",
                f'os.environ["TF_CONFIG"] = json.dumps({value!r})',
                f"tf.train.ClusterSpec({value!r})",
            ),
        ),
    ]
    assert [output for output in outputs if HOST in output] == []
    assert json.loads(outputs[0]).keys() == value.keys()


@pytest.mark.parametrize(
    "text",
    [
        "SLURM_NODELIST={0},gpu18",
        "SLURM_JOB_NODELIST='gpu[1-2],{0}'",
        "'MASTER_ADDR': '{0}'",
        "NCCL_COMM_ID={0}:1",
        "NCCL_COMM_ID: {0}:123456",
        "KUBERNETES_SERVICE_HOST={0}",
        "OMPI_MCA_orte_hnp_uri=123.0;tcp://10.0.0.1:44,{0}",
        "RAY_ADDRESS={0}:6379",
        "DASK_SCHEDULER_ADDRESS=tcp://{0}:8786",
        "DASK_DISTRIBUTED__SCHEDULER_ADDRESS={0}",
        r"LD_LIBRARY_PATH=/usr/lib:\\{0}\home\x\lib",
        r"LD_LIBRARY_PATH=/usr/lib:\\{0}\data\lib",
        "http_proxy={0}:3128",
        "no_proxy=localhost,{0}",
        "host={0} user=x",
        "(train pid=3, node={0}) x",
        "{0}:/export /mnt nfs rw",
        "'_master': '{0}', '_cluster_spec': ClusterSpec({{'worker': ['{0}']}})",
        "job worker -> {{0 -> {0}:1}}",
        'tasks {{ key: 0 value: "{0}" }}',
        '"worker": ["{0}"',
    ],
)
def test_hosts_in_other_notations_are_replaced(text: str) -> None:
    redacted = Redactor().text(text.format(HOST))
    assert HOST not in redacted
    assert Redactor().text(redacted) == redacted


@pytest.mark.parametrize(
    ("name", "value", "hosts"),
    [
        ("SLURM_JOB_NODELIST", "dgx[17-18,020]zq,loginzq", ["dgx17zq", "dgx18zq", "dgx020zq", "loginzq"]),
        ("RAY_ADDRESS", "rayzq1:6379", ["rayzq1"]),
        ("DASK_SCHEDULER_ADDRESS", "tcp://daskzq1:8786", ["daskzq1"]),
        ("https_proxy", "http://u:p@proxyzq1:3128", ["proxyzq1"]),
        ("LSB_MCPU_HOSTS", "lsfzq1 4 lsfzq2 4", ["lsfzq1", "lsfzq2"]),
        ("MASTER_ADDR", "mainzq", ["mainzq"]),
    ],
)
def test_hosts_in_variables_of_launchers_are_replaced(name: str, value: str, hosts: list[str]) -> None:
    redactor = make_redactor({name: value}, include_local_names=False)
    assert all(host not in redactor.text(f"running on {host} now") for host in hosts)


@pytest.mark.parametrize(
    ("name", "kept", "replaced"),
    [
        ("TF_CPP_MIN_LOG_LEVEL", " 3", "hunter2Zq7"),
        ("TF_GPU_ALLOCATOR", "cuda_malloc_async", "hunter2Zq7"),
        ("CUDA_VISIBLE_DEVICES", "0, '1'; NoDevFiles", "Hunter2Passw0rd"),
        ("NVIDIA_VISIBLE_DEVICES", "all", "alice-gpu17"),
        ("NVIDIA_DRIVER_CAPABILITIES", "compute,utility", "0,secretname"),
        ("TF_CPP_VMODULE", "gpu_device=2,bfc_allocator=1", "hunter2Zq7"),
        ("TF_FORCE_GPU_ALLOW_GROWTH", "True", "hunter2Zq7"),
        ("KERAS_BACKEND", "torch", "hunter2Zq7"),
    ],
)
def test_values_of_another_form_are_replaced(name: str, kept: str, replaced: str) -> None:
    redactor = Redactor()
    assert redactor.redact_keyed(name, kept) == kept
    assert redactor.redact_keyed(name, replaced) == "secret-1"
