"""Probe the GPUs and their driver, through the kernel, the driver's libraries, and nvidia-smi.

A child process (payload/driver.py) loads the libraries. It has the environment variables of the examined Python,
because TensorFlow will have the same search paths. It runs in tfdoctor's own Python, so that an examined Python that
hangs is not mistaken for a driver that hangs.
"""

from __future__ import annotations

import dataclasses
import json
import re
from typing import TYPE_CHECKING, Any

from tfdoctor.core import versions
from tfdoctor.core.facts import (
    Absent,
    CudaDevice,
    CudaDriver,
    DeviceNodes,
    Fact,
    KernelModule,
    Known,
    Nvml,
    NvmlDevice,
    PciGpu,
    SmiFacts,
    SmiFailure,
    SmiGpu,
    Unknown,
)
from tfdoctor.core.text import clean, clean_line
from tfdoctor.probes.files import list_names, load_text
from tfdoctor.probes.parsers.lsmod import parse_modules
from tfdoctor.probes.parsers.proc_version import parse_proc_version
from tfdoctor.probes.parsers.smi_failure import parse_smi_failure
from tfdoctor.probes.processes import identify_processes
from tfdoctor.system.payloads import run_payload
from tfdoctor.system.result import Failure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdoctor.core.facts import MachineFacts
    from tfdoctor.system import CommandResult, System

NVIDIA_VENDOR_ID = "0x10de"
"""NVIDIA's PCI vendor ID."""
DISPLAY_CLASSES = ("0x0300", "0x0302")
"""PCI classes of VGA and 3D controllers."""
RELEVANT_MODULES = (
    "nvidia",
    "nvidia_uvm",
    "nvidia_modeset",
    "nvidia_drm",
    "nouveau",
    "vfio_pci",
    "bbswitch",
    "nova_core",
)
"""Kernel modules of NVIDIA's driver, and others that can hold the GPU instead."""
CUDA_ERRORS = {
    0: "CUDA_SUCCESS",
    2: "CUDA_ERROR_OUT_OF_MEMORY",
    3: "CUDA_ERROR_NOT_INITIALIZED",
    34: "CUDA_ERROR_STUB_LIBRARY",
    35: "CUDA_ERROR_INSUFFICIENT_DRIVER",
    36: "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER",
    46: "CUDA_ERROR_DEVICE_UNAVAILABLE",
    100: "CUDA_ERROR_NO_DEVICE",
    101: "CUDA_ERROR_INVALID_DEVICE",
    214: "CUDA_ERROR_ECC_UNCORRECTABLE",
    303: "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED",
    304: "CUDA_ERROR_OPERATING_SYSTEM",
    800: "CUDA_ERROR_NOT_PERMITTED",
    802: "CUDA_ERROR_SYSTEM_NOT_READY",
    803: "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
    804: "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
    805: "CUDA_ERROR_MPS_CONNECTION_FAILED",
    806: "CUDA_ERROR_MPS_RPC_FAILURE",
    807: "CUDA_ERROR_MPS_SERVER_NOT_READY",
    808: "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED",
    809: "CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED",
    999: "CUDA_ERROR_UNKNOWN",
}
"""Common result codes of cuInit, with their names in cuda.h."""
DRIVER_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/lib/wsl/lib",
    "/usr/local/nvidia/lib64",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/run/opengl-driver/lib",
    "/usr/local/cuda/compat",
    "/usr/local/cuda/lib64/stubs",
)
"""Folders that may contain a libcuda."""


# ---------------------------------------------------------------- reports of the kernel


def probe_pci(system: System) -> Fact[tuple[PciGpu, ...]]:
    """Return the NVIDIA GPUs on the PCI bus, from sysfs (as `lspci` does)."""
    base = "/sys/bus/pci/devices"
    try:
        addresses = system.listdir(base)
    except OSError as error:
        return Unknown(f"{base}: {error.strerror or error}", base)
    gpus = []
    for address in addresses:
        folder = f"{base}/{address}"
        is_nvidia = _load_line(system, f"{folder}/vendor") == NVIDIA_VENDOR_ID
        if not is_nvidia or not _load_line(system, f"{folder}/class").startswith(DISPLAY_CLASSES):
            continue
        driver = system.realpath(f"{folder}/driver")
        gpus.append(
            PciGpu(
                address=clean_line(address),
                device_id=_load_line(system, f"{folder}/device").removeprefix("0x"),
                driver=driver.rpartition("/")[2] if "/drivers/" in driver else None,
            )
        )
    return Known(tuple(gpus), base) if gpus else Absent(base, "no NVIDIA display controller on the PCI bus")


def probe_kernel_module(system: System) -> Fact[KernelModule]:
    """Return NVIDIA's loaded kernel module, from /proc/driver/nvidia/version."""
    path = "/proc/driver/nvidia/version"
    try:
        text = system.read_text(path)
    except FileNotFoundError:
        return Absent(path, "NVIDIA's kernel module is not loaded")
    except OSError as error:
        return Unknown(f"{path}: {error.strerror or error}", path)
    parsed = parse_proc_version(text)
    if parsed.driver_version is None:
        return Unknown(f"{path} says no version: {clean_line(text, limit=120)}", path)
    return Known(KernelModule(parsed.driver_version, bool(parsed.open_kernel_module)), path)


def probe_modules(system: System) -> Fact[tuple[str, ...]]:
    """Return the names of the loaded kernel modules that are in RELEVANT_MODULES."""
    path = "/proc/modules"
    try:
        text = system.read_text(path)
    except OSError as error:
        return Unknown(f"{path}: {error.strerror or error}", path)
    loaded = {module.module for module in parse_modules(text)}
    return Known(tuple(name for name in RELEVANT_MODULES if name in loaded), path)


def probe_device_nodes(system: System) -> Fact[DeviceNodes]:
    """Return the paths of NVIDIA's device nodes."""
    try:
        names = system.listdir("/dev")
    except OSError as error:
        return Unknown(f"/dev: {error.strerror or error}", "/dev")
    nodes = tuple(
        f"/dev/{name}"
        for name in names
        if re.match(r"nvidia(\d+|ctl|-uvm|-modeset|-caps)?\Z|dxg\Z|nvhost", name)
    )
    return Known(DeviceNodes(nodes), "/dev") if nodes else Absent("/dev", "no NVIDIA device node")


def probe_driver_files(system: System) -> tuple[str, ...]:
    """Return the paths of libcuda.so* in the usual folders, even if the loader does not search these."""
    paths: list[str] = []
    for folder in DRIVER_FOLDERS:
        paths += [f"{folder}/{name}" for name in list_names(system, folder) if name.startswith("libcuda.so")]
    return tuple(paths)


def _load_line(system: System, path: str) -> str:
    """Return the text of a small file without surrounding space, or "" if it cannot be read."""
    return (load_text(system, path, 256) or "").strip()


# ---------------------------------------------------------------- nvidia-smi


def probe_smi(
    system: System, *, timeout: float, machine: MachineFacts | None = None
) -> Fact[SmiFacts | SmiFailure]:
    """Return the report of nvidia-smi, from its XML output or else from its table, or why it failed.

    In a container or under WSL, according to `machine`, the process IDs belong to another system. `timeout` is the time
    limit in seconds for each command.
    """
    command = system.which("nvidia-smi")
    if command is None and system.exists("/usr/lib/wsl/lib/nvidia-smi"):
        command = "/usr/lib/wsl/lib/nvidia-smi"
    if command is None:
        return Absent("nvidia-smi", "no nvidia-smi on PATH")
    result = system.run([command, "-q", "-x"], timeout=timeout, key="nvidia-smi -q -x")
    if result.ok and "<nvidia_smi_log" in result.stdout:
        from tfdoctor.probes.parsers.smi_xml import parse_smi_xml  # importing the XML parser is slow

        xml = parse_smi_xml(result.stdout)
        if xml.driver_version is not None or xml.gpus:
            smi = _add_health(system, _make_smi_facts_from_xml(xml), result.stdout, machine)
            return Known(smi, "nvidia-smi -q -x")
    if result.failure is Failure.TIMEOUT:
        return Known(
            SmiFailure("timeout", f"nvidia-smi {result.describe_outcome()}", None), "nvidia-smi -q -x"
        )
    if result.ok:
        result = system.run([command], timeout=timeout, key="nvidia-smi")
        from tfdoctor.probes.parsers.smi_table import parse_smi_table

        table = parse_smi_table(result.stdout)
        if result.ok and (table.driver_version is not None or table.gpus):
            return Known(_make_smi_facts_from_table(table), "nvidia-smi")
    return Known(_make_smi_failure(result), result.command if not result.argv else "nvidia-smi")


def _make_smi_failure(result: CommandResult) -> SmiFailure:
    """Return the kind and the message of an nvidia-smi failure."""
    text = f"{result.stdout}\n{result.stderr}".strip()
    failure = parse_smi_failure(text, exit_status=result.returncode)
    if result.failure is Failure.TIMEOUT:
        kind = "timeout"
    elif failure.kind is not None:
        kind = failure.kind
    else:
        kind = "garbage" if result.ok else "other"
    return SmiFailure(
        kind,
        clean(text, limit=600) or f"nvidia-smi {result.describe_outcome()} and printed nothing",
        result.returncode,
    )


def _make_smi_facts_from_xml(xml: Any) -> SmiFacts:
    """Return the facts in the parsed XML output of nvidia-smi, without health and processes."""
    return SmiFacts(
        driver_version=xml.driver_version,
        cuda_version=xml.cuda_version,
        gpus=tuple(
            SmiGpu(
                index=gpu.position,
                name=gpu.name,
                uuid=gpu.uuid,
                pci_bus_id=normalize_bus_id(gpu.bus_id),
                memory_total_mib=gpu.memory_total_mib,
                memory_used_mib=gpu.memory_used_mib,
                compute_mode=gpu.compute_mode,
                mig=gpu.mig,
                mig_instances=gpu.n_mig_devices,
                lists_processes=gpu.n_processes is not None,
            )
            for gpu in xml.gpus
        ),
    )


def _add_health(system: System, smi: SmiFacts, report: str, machine: MachineFacts | None) -> SmiFacts:
    """Return the facts with the health and the processes of each GPU.

    In a container and under WSL the process IDs belong to another system, so the processes are not looked up.
    """
    from tfdoctor.probes.parsers.smi_health import parse_smi_health

    has_foreign_pids = machine is not None and bool(machine.container or machine.wsl)
    gpu_details = parse_smi_health(report)
    return dataclasses.replace(
        smi,
        gpus=tuple(
            dataclasses.replace(
                gpu,
                health=health,
                processes=identify_processes(system, processes, has_foreign_pids=has_foreign_pids),
            )
            for gpu, (health, processes) in zip(smi.gpus, gpu_details, strict=False)
        )
        + smi.gpus[len(gpu_details) :],  # GPUs without details
    )


def _make_smi_facts_from_table(table: Any) -> SmiFacts:
    """Return the facts in the parsed table of nvidia-smi, which shows less than its XML output."""
    return SmiFacts(
        driver_version=table.driver_version,
        cuda_version=table.cuda_version,
        gpus=tuple(
            SmiGpu(
                index=gpu.index,
                name=gpu.name,
                uuid=None,
                pci_bus_id=normalize_bus_id(gpu.bus_id),
                memory_total_mib=gpu.memory_total_mib,
                memory_used_mib=gpu.memory_used_mib,
                compute_mode=None,
                mig=gpu.mig,
                mig_instances=sum(device.gpu == gpu.index for device in table.mig_devices),
            )
            for gpu in table.gpus
        ),
    )


def normalize_bus_id(text: str | None) -> str | None:
    """Return a PCI bus ID in the form "0000:0a:00.0", or None if the text is not a bus ID."""
    match = re.match(r"(?:([0-9A-Fa-f]{4,8}):)?([0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\Z", text or "")
    if match is None:
        return None
    return f"{(match[1] or '0000')[-4:]}:{match[2]}".lower()


# ---------------------------------------------------------------- the driver's libraries


def probe_libraries(
    system: System,
    python: str,
    *,
    timeout: float,
    libcuda: str = "libcuda.so.1",
    libnvml: str = "libnvidia-ml.so.1",
    variables: Mapping[str, str | None] | None = None,
    variant: str = "",
) -> tuple[Fact[CudaDriver], Fact[Nvml]]:
    """Query libcuda and NVML in a child process.

    The child process runs tfdoctor's own Python, or `python` if `system` has none. `variables` are set in it before the
    libraries are opened; the value None removes a variable. If `libnvml` is "-", NVML is not queried. `variant`
    distinguishes the recordings of several queries. `timeout` is in seconds.
    """
    own_python = system.own_python
    answer, result = run_payload(
        system,
        own_python or python,
        "driver",
        (libcuda, libnvml, *([json.dumps(dict(variables))] if variables else [])),
        timeout=timeout,
        variant=variant,
        # Ignore PYTHONPATH and sitecustomize, which are meant for the examined Python.
        flags=("-I", "-S") if own_python else (),
    )
    source = f"{libcuda}, loaded by a child process"
    return _make_cuda_fact(answer, result, source), _make_nvml_fact(answer, result, libnvml)


def _describe_child_end(result: CommandResult) -> str:
    """Return how the child process ended, with its error message."""
    return clean_line(
        f"{result.describe_outcome()}: {result.stderr.strip()}"
        if result.stderr.strip()
        else result.describe_outcome()
    )


def _make_cuda_fact(answer: Mapping[str, Any], result: CommandResult, source: str) -> Fact[CudaDriver]:
    """Return the fact about libcuda from the child's answer."""
    raw = answer.get("cuda")
    if not isinstance(raw, dict):
        if result.failure is Failure.TIMEOUT:
            return Unknown(f"the driver did not answer within {result.seconds:.0f} s", source)
        if result.returncode is not None and result.returncode < 0:
            crash_reason = f"signal {-result.returncode}"
            crashed_driver = CudaDriver(
                loaded=True,
                load_error="",
                path=None,
                init=None,
                init_name="",
                version=None,
                count=None,
                devices=(),
                crashed=crash_reason,
            )
            return Known(crashed_driver, source)
        return Unknown(f"the child process {_describe_child_end(result)}", source)
    init_code = _get_int(raw, "init")
    version = _get_int(raw, "version")
    return Known(
        CudaDriver(
            loaded=raw.get("loaded") is True,
            load_error=clean_line(str(raw.get("error", ""))),
            path=_get_str(raw, "path"),
            init=init_code,
            init_name=CUDA_ERRORS.get(init_code, _get_str(raw, "init_name") or f"error {init_code}")
            if init_code is not None
            else "",
            version=versions.cuda_from_int(version) if version is not None and version >= 1000 else None,
            count=_get_int(raw, "count"),
            devices=tuple(
                _make_device(device) for device in raw.get("devices", ()) if isinstance(device, dict)
            ),
            closed_nodes=tuple(clean_line(str(node)) for node in raw.get("closed_nodes") or ()),
            refused_nodes=tuple(clean_line(str(node)) for node in raw.get("refused_nodes") or ()),
            stand_in=raw.get("stand_in") is True,
            software=raw.get("software") is True,
        ),
        source,
    )


def _make_device(raw: Mapping[str, Any]) -> CudaDevice:
    return CudaDevice(
        ordinal=_get_int(raw, "ordinal") or 0,
        name=_get_str(raw, "name"),
        uuid=_get_str(raw, "uuid"),
        pci_bus_id=normalize_bus_id(_get_str(raw, "pci_bus_id")),
        compute_capability=_get_str(raw, "compute_capability"),
        memory_mib=_get_int(raw, "memory_mib"),
        multiprocessors=_get_int(raw, "multiprocessors"),
        clock_mhz=(_get_int(raw, "clock_khz") or 0) // 1000 or None,
        attribute_error=_get_int(raw, "attribute_error"),
    )


def _make_nvml_fact(answer: Mapping[str, Any], result: CommandResult, library: str) -> Fact[Nvml]:
    """Return the fact about NVML from the child's answer."""
    raw = answer.get("nvml")
    if not isinstance(raw, dict):
        return Unknown(f"the child process {_describe_child_end(result)} before it asked {library}", library)
    return Known(
        Nvml(
            loaded=raw.get("loaded") is True,
            load_error=clean_line(str(raw.get("error", ""))),
            path=_get_str(raw, "path"),
            init=_get_int(raw, "init"),
            init_error=_get_str(raw, "init_error") or "",
            driver_version=_get_str(raw, "driver_version"),
            count=_get_int(raw, "count"),
            devices=tuple(
                NvmlDevice(
                    index=_get_int(device, "index") or 0,
                    name=_get_str(device, "name"),
                    uuid=_get_str(device, "uuid"),
                    pci_bus_id=normalize_bus_id(_get_str(device, "pci_bus_id")),
                    memory_total_mib=_get_int(device, "memory_total_mib"),
                    memory_used_mib=_get_int(device, "memory_used_mib"),
                )
                for device in raw.get("devices", ())
                if isinstance(device, dict)
            ),
        ),
        library,
    )


def _get_int(raw: Mapping[str, Any], key: str) -> int | None:
    value = raw.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _get_str(raw: Mapping[str, Any], key: str) -> str | None:
    value = raw.get(key)
    return clean_line(value) if isinstance(value, str) and value else None
