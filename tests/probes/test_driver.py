"""The driver's files, nvidia-smi, and the answers of the child process that asks libcuda and NVML."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tfdoctor.core.facts import (
    Absent,
    DeviceNodes,
    KernelModule,
    MachineFacts,
    PciGpu,
    SmiFacts,
    SmiFailure,
    Unknown,
    value_of,
)
from tfdoctor.probes import driver
from tfdoctor.system import CommandResult, Failure, RecordedSystem

MACHINE = MachineFacts("Linux", "x86_64", "6.1", None, "debian", (), "12", frozenset(), None, None, False)
DENIED = [13, "Permission denied"]


def make_system(**host: Any) -> RecordedSystem:
    """Return a recorded machine with these tables of host.json."""
    return RecordedSystem({"host.json": json.dumps({"schema_version": 1, **host}).encode()})


def make_pci_files(address: str, vendor: str, kind: str, device: str | None = "0x2330") -> dict[str, str]:
    base = f"/sys/bus/pci/devices/{address}"
    files = {f"{base}/vendor": f"{vendor}\n", f"{base}/class": f"{kind}\n"}
    return files if device is None else {**files, f"{base}/device": f"{device}\n"}


def test_gpus_on_the_pci_bus() -> None:
    files = {
        **make_pci_files("0000:01:00.0", "0x10de", "0x030000"),
        **make_pci_files("0000:02:00.0", "0x10de", "0x030200", None),
        **make_pci_files("0000:02:00.1", "0x10de", "0x040300"),
        **make_pci_files("0000:03:00.0", "0x1002", "0x030000"),
        "/sys/bus/pci/devices/0000:04:00.0/vendor": "0x10de\n",
    }
    links = {"/sys/bus/pci/devices/0000:01:00.0/driver": "/sys/bus/pci/drivers/nvidia"}
    fact = driver.probe_pci(make_system(files=files, links=links))
    assert value_of(fact) == (PciGpu("0000:01:00.0", "2330", "nvidia"), PciGpu("0000:02:00.0", "", None))
    other = make_pci_files("0000:03:00.0", "0x1002", "0x030000")
    assert isinstance(driver.probe_pci(make_system(files=other)), Absent)
    unlisted = make_system(errors={"/sys/bus/pci/devices": ["list", *DENIED]})
    assert driver.probe_pci(unlisted) == Unknown(
        "/sys/bus/pci/devices: Permission denied", "/sys/bus/pci/devices"
    )


def test_kernel_module_and_nodes() -> None:
    path = "/proc/driver/nvidia/version"
    text = "NVRM version: NVIDIA UNIX {}  550.54.14  Thu Feb 22 01:44:30 UTC 2024\n"
    for kind, is_open in (("x86_64 Kernel Module", False), ("Open Kernel Module for x86_64", True)):
        fact = driver.probe_kernel_module(make_system(files={path: text.format(kind)}))
        assert value_of(fact) == KernelModule("550.54.14", is_open)
    assert isinstance(driver.probe_kernel_module(make_system()), Absent)
    assert isinstance(driver.probe_kernel_module(make_system(files={path: "?"})), Unknown)
    denied = driver.probe_kernel_module(make_system(errors={path: ["read", *DENIED]}))
    assert denied == Unknown(f"{path}: Permission denied", path)
    names = ("snd", "nvidia_uvm", "nvidia")
    modules = "".join(f"{name} 16384 0 - Live 0x0000000000000000\n" for name in names)
    fact = driver.probe_modules(make_system(files={"/proc/modules": modules}))
    assert set(value_of(fact) or ()) == {"nvidia", "nvidia_uvm"}
    assert isinstance(driver.probe_modules(make_system()), Unknown)
    names = [
        "nvidia0",
        "nvidia12",
        "nvidiactl",
        "nvidia-uvm",
        "nvidia-uvm-tools",
        "dxg",
        "dxgx",
        "nvhost-ctrl",
        "null",
    ]
    nodes = value_of(driver.probe_device_nodes(make_system(directories={"/dev": names})))
    assert nodes == DeviceNodes(
        tuple(
            f"/dev/{name}"
            for name in sorted(["nvidia0", "nvidia12", "nvidiactl", "nvidia-uvm", "dxg", "nvhost-ctrl"])
        )
    )
    assert isinstance(driver.probe_device_nodes(make_system(directories={"/dev": ["null"]})), Absent)
    assert isinstance(driver.probe_device_nodes(make_system()), Unknown)


def test_driver_files_of_readable_folders() -> None:
    system = make_system(
        directories={"/usr/lib64": ["libcuda.so.1", "libcudart.so.12"], "/usr/lib/wsl/lib": ["libcuda.so"]},
        errors={"/usr/lib": ["list", *DENIED]},
    )
    assert driver.probe_driver_files(system) == ("/usr/lib64/libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("00000000:0A:00.0", "0000:0a:00.0"),
        ("12345678:0A:00.0", "5678:0a:00.0"),
        ("0a:00.7", "0000:0a:00.7"),
        ("0a:00.8", None),
        ("0000:0a:00.0 ", None),
        ("", None),
        (None, None),
    ],
)
def test_bus_id_is_normalized(text: str | None, expected: str | None) -> None:
    assert driver.normalize_bus_id(text) == expected


# ---------------------------------------------------------------- nvidia-smi

XML = """<?xml version="1.0" ?><nvidia_smi_log><driver_version>550.54</driver_version><cuda_version>12.4</cuda_version>
<gpu id="00000000:01:00.0"><product_name>NVIDIA A</product_name><uuid>GPU-1</uuid>
<fb_memory_usage><total>100 MiB</total><used>7 MiB</used></fb_memory_usage><compute_mode>Default</compute_mode>
<mig_mode><current_mig>Enabled</current_mig></mig_mode><persistence_mode>Enabled</persistence_mode>
<processes><process_info><pid>7</pid><type>C</type><process_name>python</process_name><used_memory>5 MiB</used_memory>
</process_info></processes></gpu></nvidia_smi_log>"""
TABLE = """| NVIDIA-SMI 550.54       Driver Version: 550.54       CUDA Version: 12.4     |
|   0  NVIDIA A            On  |   00000000:01:00.0 Off |                   On |
| N/A   43C    P0    66W / 300W |     7MiB /    100MiB |     N/A      Default |
|                               |                      |              Enabled |
+-------------------------------+----------------------+----------------------+
| MIG devices:                                                                |
|  0    7   0   0  |              13MiB /  9728MiB    | 14      0 |  1   0     |
+-----------------------------------------------------------------------------+
"""
STATUS = "Name:\tpython\nState:\tZ\nUid:\t5\n"


def probe_smi(
    xml: dict[str, Any], table: dict[str, Any] | None = None, machine: MachineFacts = MACHINE, **host: Any
) -> Any:
    commands = {"nvidia-smi -q -x": xml, **({"nvidia-smi": table} if table is not None else {})}
    host.setdefault("which", {"nvidia-smi": "/bin/nvidia-smi"})
    return driver.probe_smi(make_system(commands=commands, **host), timeout=1, machine=machine)


@pytest.mark.parametrize(
    ("container", "wsl", "state"), [(None, None, "zombie"), ("docker", None, None), (None, 2, None)]
)
def test_xml_report_has_health_and_processes(
    container: str | None, wsl: int | None, state: str | None
) -> None:
    from dataclasses import replace

    files = {"/proc/1/status": STATUS, "/proc/7/status": STATUS}
    fact = probe_smi({"stdout": XML}, machine=replace(MACHINE, container=container, wsl=wsl), files=files)
    assert fact.source == "nvidia-smi -q -x"
    smi = fact.value
    assert (smi.driver_version, smi.cuda_version) == ("550.54", "12.4")
    (gpu,) = smi.gpus
    assert (gpu.name, gpu.uuid, gpu.pci_bus_id, gpu.memory_total_mib, gpu.memory_used_mib) == (
        "NVIDIA A", "GPU-1", "0000:01:00.0", 100, 7,
    )  # fmt: skip
    assert (gpu.mig, gpu.compute_mode, gpu.lists_processes) == (True, "Default", True)
    assert gpu.health.persistence is True
    assert [(process.pid, process.state) for process in gpu.processes] == [(7, state)]


def test_table_is_read_if_there_is_no_xml() -> None:
    fact = probe_smi({"stdout": "<nvidia_smi_log></nvidia_smi_log>"}, {"stdout": TABLE})
    assert fact.source == "nvidia-smi"
    (gpu,) = fact.value.gpus
    assert (gpu.name, gpu.pci_bus_id, gpu.memory_total_mib, gpu.memory_used_mib) == (
        "NVIDIA A",
        "0000:01:00.0",
        100,
        7,
    )
    assert (gpu.mig, gpu.mig_instances, gpu.uuid, gpu.health) == (True, 1, None, None)


def test_smi_of_wsl_is_found_outside_path() -> None:
    fact = probe_smi({"stdout": XML}, which={}, exists={"/usr/lib/wsl/lib/nvidia-smi": True})
    assert isinstance(fact.value, SmiFacts)
    assert isinstance(probe_smi({"stdout": XML}, which={}), Absent)


@pytest.mark.parametrize(
    ("xml", "table", "kind", "text"),
    [
        ({"failure": Failure.TIMEOUT.value}, {"stdout": TABLE}, "timeout", "nvidia-smi"),
        ({"returncode": 9}, {"stdout": TABLE}, None, "printed nothing"),
        (
            {
                "returncode": 12,
                "stdout": "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.\n",
            },
            {"stdout": TABLE},
            "libnvidia_ml_missing",
            "couldn't find",
        ),
        ({"stdout": "hello"}, {"stdout": "hello again"}, "garbage", "hello again"),
        ({"stdout": "hello"}, {"stdout": TABLE, "returncode": 3}, None, "NVIDIA-SMI"),
        ({"stdout": "hello"}, {"failure": Failure.TIMEOUT.value}, "timeout", "printed nothing"),
        ({"returncode": 3, "stderr": "new message\n"}, None, "other", "new message"),
    ],
)
def test_failure_of_smi_is_kept(
    xml: dict[str, Any], table: dict[str, Any] | None, kind: str | None, text: str
) -> None:
    fact = probe_smi(xml, table)
    assert isinstance(fact.value, SmiFailure)
    assert kind is None or fact.value.kind == kind
    assert text in fact.value.text


# ---------------------------------------------------------------- libcuda and NVML

OK = CommandResult(("x",), 0)


def make_cuda(**raw: Any) -> Any:
    return value_of(driver._make_cuda_fact({"cuda": raw}, OK, "source"))


def test_answer_about_libcuda() -> None:
    device = {
        "ordinal": 1, "name": "A", "uuid": "U", "pci_bus_id": "00000000:01:00.0", "compute_capability": "9.0",
        "memory_mib": 5, "multiprocessors": 7, "clock_khz": 1_980_999, "attribute_error": 3,
    }  # fmt: skip
    cuda = make_cuda(
        loaded=True, path="/lib", init=0, version=12080, count=2, devices=[device, {}, 5], closed_nodes=["/dev/a"],
        stand_in=True, software=1,
    )  # fmt: skip
    assert (cuda.loaded, cuda.path, cuda.init, cuda.init_name, cuda.version, cuda.count) == (
        True, "/lib", 0, "CUDA_SUCCESS", "12.8", 2,
    )  # fmt: skip
    assert (cuda.closed_nodes, cuda.refused_nodes, cuda.stand_in, cuda.software) == (
        ("/dev/a",),
        (),
        True,
        False,
    )
    first, second = cuda.devices
    assert (first.ordinal, first.pci_bus_id, first.clock_mhz, first.attribute_error) == (
        1,
        "0000:01:00.0",
        1980,
        3,
    )
    assert (first.memory_mib, first.multiprocessors, first.compute_capability) == (5, 7, "9.0")
    assert (second.ordinal, second.name, second.clock_mhz, second.pci_bus_id) == (0, None, None, None)


@pytest.mark.parametrize(
    ("raw", "field", "expected"),
    [
        ({"init": 999}, "init_name", "CUDA_ERROR_UNKNOWN"),
        ({"init": 700, "init_name": "CUDA_NEW"}, "init_name", "CUDA_NEW"),
        ({"init": 700}, "init_name", "error 700"),
        ({}, "init_name", ""),
        ({"init": True}, "init", None),
        ({"version": 999}, "version", None),
        ({"version": 1000}, "version", "1.0"),
        ({"count": "1"}, "count", None),
        ({"path": ""}, "path", None),
        ({"loaded": 1}, "loaded", False),
        ({"error": "a\nb"}, "load_error", "a b"),
        ({"software": True}, "software", True),
        ({"stand_in": 1}, "stand_in", False),
        ({"refused_nodes": ["/dev/b"]}, "refused_nodes", ("/dev/b",)),
        ({"devices": [{"clock_khz": 999}]}, "devices", None),
    ],
)
def test_field_of_libcuda(raw: dict[str, Any], field: str, expected: Any) -> None:
    cuda = make_cuda(**raw)
    if field == "devices":
        assert cuda.devices[0].clock_mhz is None
    else:
        assert getattr(cuda, field) == expected


def test_child_without_an_answer() -> None:
    timeout = driver._make_cuda_fact({}, CommandResult((), None, failure=Failure.TIMEOUT, seconds=4.6), "s")
    assert timeout == Unknown("the driver did not answer within 5 s", "s")
    crashed = value_of(driver._make_cuda_fact({}, CommandResult((), -11), "s"))
    assert crashed is not None
    assert (crashed.crashed, crashed.loaded, crashed.init) == ("signal 11", True, None)
    failed = driver._make_cuda_fact({"cuda": []}, CommandResult((), 1, stderr="why\n"), "s")
    assert failed == Unknown("the child process exited with status 1: why", "s")
    silent = driver._make_cuda_fact({}, CommandResult((), 0), "s")
    assert isinstance(silent, Unknown)
    assert not silent.why.endswith(": ")
    nvml = driver._make_nvml_fact({}, CommandResult((), 1), "nvml")
    assert nvml == Unknown("the child process exited with status 1 before it asked nvml", "nvml")


def test_answer_about_nvml() -> None:
    raw = {
        "loaded": True, "error": "", "path": "/lib", "init": 0, "driver_version": "550", "count": 1,
        "devices": [{"index": 3, "name": "A", "pci_bus_id": "01:00.0", "memory_total_mib": 9, "memory_used_mib": 1}, 7, {}],
    }  # fmt: skip
    nvml = value_of(driver._make_nvml_fact({"nvml": raw}, OK, "nvml"))
    assert nvml is not None
    assert (nvml.loaded, nvml.init, nvml.init_error, nvml.driver_version, nvml.count) == (
        True,
        0,
        "",
        "550",
        1,
    )
    assert [(device.index, device.pci_bus_id, device.memory_total_mib) for device in nvml.devices] == [
        (3, "0000:01:00.0", 9),
        (0, None, None),
    ]
    empty = value_of(driver._make_nvml_fact({"nvml": {"loaded": "yes", "init_error": "E"}}, OK, "nvml"))
    assert empty is not None
    assert (empty.loaded, empty.init_error, empty.path) == (False, "E", None)


@pytest.mark.parametrize(("own", "expected"), [("/own", ("/own", ("-I", "-S"))), (None, ("/python", ()))])
def test_child_process_of_the_query(monkeypatch: pytest.MonkeyPatch, own: str | None, expected: Any) -> None:
    calls: list[Any] = []

    class System(RecordedSystem):
        own_python = own  # type: ignore[assignment]

    def run_payload(_: Any, python: str, name: str, arguments: Any, **options: Any) -> Any:
        calls.append((python, name, arguments, options["flags"]))
        return {}, OK

    monkeypatch.setattr(driver, "run_payload", run_payload)
    system = System({"host.json": b'{"schema_version": 1}'})
    driver.probe_libraries(system, "/python", timeout=1)
    driver.probe_libraries(system, "/python", timeout=1, variables={"A": None})
    names = ("libcuda.so.1", "libnvidia-ml.so.1")
    assert calls == [
        (expected[0], "driver", names, expected[1]),
        (expected[0], "driver", (*names, '{"A": null}'), expected[1]),
    ]
