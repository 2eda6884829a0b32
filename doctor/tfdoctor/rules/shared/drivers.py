"""Helpers for the rules about GPUs and their driver. They read the facts and do no I/O."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.facts import (
    Absent,
    CudaDevice,
    CudaDriver,
    Known,
    Resolution,
    SmiFailure,
    Unknown,
    value_of,
)
from tfdoctor.core.findings import Cause, Evidence, Remedy
from tfdoctor.core.records import dataclass
from tfdoctor.prediction.driver import find_missing_driver_cause, predict_driver_stage
from tfdoctor.remedies.pip import format_check_command
from tfdoctor.remedies.user_permissions import get_sudo_prefix
from tfdoctor.rules.base import CouldNotCheck, NotApplicable, make_fact_evidence

if TYPE_CHECKING:
    from tfdoctor.compat import Gpu
    from tfdoctor.compat.releases import Release
    from tfdoctor.core.facts import PciGpu
    from tfdoctor.rules.base import RuleContext

HANG_PHRASE = "did not answer within"
"""The phrase with which probes/driver.py reports that the child process that queries the driver hung."""


@dataclass(frozen=True, slots=True)
class DriverState:
    """How far TensorFlow gets with the driver, and why no further."""

    cause: Cause | None
    """Why TensorFlow gets no GPU from the driver; None if the driver shows a GPU or nothing is known."""
    reason: str
    """The explanation of `cause`, as a sentence; "" if `cause` is None."""
    resolution: Resolution | None
    """How the loader resolves libcuda.so.1; None if no TensorFlow is installed."""
    driver_result: CudaDriver | None
    """The results of querying libcuda; None if they are not known."""

    @property
    def is_working(self) -> bool:
        """Whether cuInit succeeds and the driver shows a GPU."""
        return (
            self.driver_result is not None and self.driver_result.init == 0 and bool(self.driver_result.count)
        )


def determine_driver_state(context: RuleContext) -> DriverState:
    """Return how far TensorFlow gets with the driver, and why no further.

    The stages are those of the prediction, but TensorFlow need not be installed.
    """
    facts = context.facts
    driver_result = value_of(facts.driver.cuda)
    resolution = context.loader.find_resolution("libcuda.so.1") if context.loader is not None else None
    unresolved = resolution if resolution is not None and not resolution.ok else None
    if (
        resolution is None
        and driver_result is not None
        and not driver_result.loaded
        and not driver_result.crashed
    ):
        unresolved = Resolution("libcuda.so.1", None, "", driver_result.load_error or "cannot be opened")
    if unresolved is not None:
        missing_cause = find_missing_driver_cause(facts, unresolved)
        return DriverState(missing_cause, unresolved.error, unresolved, driver_result)
    stage_result = predict_driver_stage(facts, driver_result) if driver_result is not None else None
    # a tuple explains why the driver shows no device; otherwise the result is the number of devices
    cause, reason = stage_result if isinstance(stage_result, tuple) else (None, "")
    return DriverState(cause, reason, resolution, driver_result)


def can_use_cpu(context: RuleContext) -> bool:
    """Return whether TensorFlow works without a GPU: its import does, as predicted and, if it was tried, as observed."""
    observed = context.observation
    return context.prediction.import_ok is True and (observed is None or observed.import_ok)


def has_no_gpu(context: RuleContext) -> bool:
    """Return whether this machine has no NVIDIA GPU: none on the PCI bus, no kernel module, and no driver.

    In a container, a GPU of its host can still be one that the container was not given. WSL does not show the PCI bus.
    """
    facts = context.facts
    if facts.machine.wsl or determine_driver_state(context).cause is not Cause.NO_DRIVER:
        return False
    is_hidden = bool(facts.machine.container) and not value_of(facts.driver.pci)
    return (isinstance(facts.driver.pci, Absent) or is_hidden) and not value_of(facts.driver.modules)


def find_hang_reason(context: RuleContext) -> str:
    """Return the reason to consider the driver hung; "" if there is none."""
    fact = context.facts.driver.cuda
    return fact.why if isinstance(fact, Unknown) and HANG_PHRASE in fact.why else ""


# ---------------------------------------------------------------- GPUs


def find_gpu_entry(context: RuleContext, pci_gpu: PciGpu) -> Gpu | None:
    """Return the GPU table's entry for the PCI ID of a GPU; None if there is none."""
    return context.compat.find_gpu_by_pci_id(pci_gpu.device_id) if pci_gpu.device_id else None


def format_pci_gpu(context: RuleContext, pci_gpu: PciGpu) -> str:
    """Return the label of a GPU on the PCI bus, such as "GeForce RTX 3090 (0000:01:00.0)"."""
    gpu = find_gpu_entry(context, pci_gpu)
    return f"{gpu.name if gpu is not None else f'NVIDIA card 10de:{pci_gpu.device_id}'} ({pci_gpu.address})"


def format_device(device: CudaDevice) -> str:
    """Return the label of a CUDA device, such as "GPU 0, NVIDIA GeForce RTX 3090 (0000:01:00.0)"."""
    bus_id = f" ({device.pci_bus_id})" if device.pci_bus_id else ""
    name = device.name or "unnamed"
    return f"GPU {device.ordinal}, {name}{bus_id}" if device.ordinal >= 0 else f"{name}{bus_id}"


def list_shown_devices(context: RuleContext) -> tuple[CudaDevice, ...]:
    """Return the GPUs that the driver shows, or those that variables hide if it shows none."""
    driver = context.facts.driver
    for fact in (driver.cuda, driver.cuda_unhidden):
        cuda = value_of(fact) if fact is not None else None
        if cuda is not None and cuda.devices:
            return cuda.devices
    return ()


def list_known_devices(context: RuleContext) -> tuple[CudaDevice, ...]:
    """Return the GPUs that the driver shows, else those on the PCI bus that are in the GPU table.

    The latter have the `ordinal` -1, because the driver has not numbered them.
    """
    devices = list_shown_devices(context)
    if devices:
        return devices
    return tuple(
        CudaDevice(
            ordinal=-1,
            name=gpu.name,
            uuid=None,
            pci_bus_id=pci_gpu.address,
            compute_capability=gpu.capability,
            memory_mib=None,
            multiprocessors=None,
        )
        for pci_gpu in value_of(context.facts.driver.pci) or ()
        if (gpu := find_gpu_entry(context, pci_gpu)) is not None
    )


def list_devices_with_capability(context: RuleContext) -> list[CudaDevice]:
    """Return the GPUs whose compute capability is known."""
    return [device for device in list_known_devices(context) if device.compute_capability]


def require_known_capability(context: RuleContext) -> NotApplicable | CouldNotCheck | None:
    """Require a GPU whose compute capability is known."""
    if list_devices_with_capability(context):
        return None
    if isinstance(context.facts.driver.cuda, Unknown):
        return CouldNotCheck("the compute capability is not known: the driver did not answer")
    return NotApplicable("no card whose compute capability is known")


def list_pci_evidence(context: RuleContext) -> list[Evidence]:
    """Return evidence of the GPUs on the PCI bus, or of their absence; an empty list if unknown."""
    fact = context.facts.driver.pci
    if isinstance(fact, Known):
        return [
            Evidence(fact.source, f"{format_pci_gpu(context, gpu)}, kernel driver: {gpu.driver or 'none'}")
            for gpu in fact.value
        ]
    return [make_fact_evidence(fact, fact.why)] if isinstance(fact, Absent) else []


def list_smi_evidence(context: RuleContext) -> list[Evidence]:
    """Return the output of a failing nvidia-smi as evidence; an empty list if it works."""
    fact = context.facts.driver.smi
    failure = value_of(fact)
    if isinstance(failure, SmiFailure):
        return [Evidence(getattr(fact, "source", "nvidia-smi"), failure.text)]
    return []


def list_module_evidence(context: RuleContext) -> list[Evidence]:
    """Return evidence of the loaded kernel module, or of its absence; an empty list if unknown."""
    fact = context.facts.driver.kernel_module
    if isinstance(fact, Known):
        return [
            make_fact_evidence(
                fact, f"kernel module {fact.value.version}{' (open)' if fact.value.open_kernel else ''}"
            )
        ]
    return [make_fact_evidence(fact, fact.why)] if isinstance(fact, Absent) else []


# ---------------------------------------------------------------- versions


def find_code_kind(context: RuleContext, capability: str) -> str:
    """Return the kind of code that this build has for a compute capability, as `Compat.find_code` does.

    Return "unknown" if the kind is not known. If build_info.py lists other architectures than the published
    wheel has, the build is not that wheel, and the list in build_info.py counts.
    """
    build = context.build
    if build is None:
        return "unknown"
    architectures = list_build_capabilities(context)
    published = _find_published_release(context)
    if published is not None:
        return context.compat.find_code(published, capability)
    if architectures is None:
        return "unknown"
    cubin_capabilities, ptx_capabilities = architectures
    gpu_capability = versions.parse_capability(capability)
    if any(
        versions.can_run_cubin(gpu_capability, versions.parse_capability(text)) for text in cubin_capabilities
    ):
        return "native"
    has_older_ptx = any(versions.parse_capability(text) <= gpu_capability for text in ptx_capabilities)
    return "jit" if has_older_ptx else "none"


def find_ptx_requirement(context: RuleContext, capability: str) -> tuple[str, str] | None:
    """Return the CUDA version that compiling this build's PTX for a GPU needs, and the affected kernels.

    Return None if nothing has to be compiled. See `Compat.find_ptx_requirement`. A build other than the
    published wheel is assumed to have PTX of its own CUDA version for all kernels.
    """
    build = context.build
    if build is None:
        return None
    published = _find_published_release(context)
    if published is not None:
        return context.compat.find_ptx_requirement(published, capability)
    if build.cuda is not None and find_code_kind(context, capability) in ("jit", "arch-specific"):
        return build.cuda, "all"
    return None


def _find_published_release(context: RuleContext) -> Release | None:
    """Return the release whose published wheel this build is.

    Return None if it is not known, or if the build's list of architectures differs from that of the wheel.
    """
    build, architectures = context.build, list_build_capabilities(context)
    release = build.release if build is not None and build.is_exact_release else None
    return (
        release
        if release is not None and (architectures is None or set(architectures[0]) == set(release.cubin))
        else None
    )


def list_build_capabilities(context: RuleContext) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Return the compute capabilities with machine code and those with PTX, as build_info.py lists them.

    Return None if there is no list. "sm_60" means machine code alone, "compute_90" machine code and PTX.
    """
    text = context.tensorflow.build_info.get("cuda_compute_capabilities", "") if context.tensorflow else ""
    # the last digit is the minor version; names with a suffix (sm_90a) do not match
    matches = re.findall(r"(sm|compute)_(\d{1,2})(\d)\b", text)
    if not matches:
        return None
    cubin_capabilities = tuple(f"{major}.{minor}" for _, major, minor in matches)
    return cubin_capabilities, tuple(
        f"{major}.{minor}" for kind, major, minor in matches if kind == "compute"
    )


def find_newest_code_capability(context: RuleContext) -> str | None:
    """Return the highest compute capability for which this build has machine code; None if unknown."""
    architectures = list_build_capabilities(context)
    build = context.build
    cubin_capabilities = architectures[0] if architectures is not None else ()
    if not cubin_capabilities and build is not None and build.is_exact_release and build.release is not None:
        cubin_capabilities = build.release.cubin
    return max(cubin_capabilities, key=versions.parse_capability) if cubin_capabilities else None


# ---------------------------------------------------------------- device nodes


def list_node_problems(context: RuleContext) -> list[str]:
    """Return the problems with /dev/nvidia*, one clause each.

    Return an empty list if the kernel module is not loaded, if the driver shows a GPU, or if another problem
    explains the driver's error.
    """
    facts = context.facts
    module, driver_result = facts.driver.kernel_module, value_of(facts.driver.cuda)
    if not isinstance(module, Known) or driver_result is None:
        return []
    if not driver_result.loaded or driver_result.count:
        return []
    # success, a stub library, a driver that is too old (35, 36), no Fabric Manager, mismatched versions (803, 804)
    if driver_result.init in (0, 34, 35, 36, 802, 803, 804):
        return []
    errors = [f"{node} may not be opened by this user" for node in driver_result.closed_nodes]
    errors += [
        f"the kernel denies access to {node} although its file permissions allow it"
        for node in driver_result.refused_nodes
    ]
    nodes = facts.driver.nodes
    if isinstance(nodes, Unknown):
        return errors
    names = nodes.value.names if isinstance(nodes, Known) else ()
    modules = value_of(facts.driver.modules) or ()
    required_nodes = ["/dev/nvidiactl"]
    if "nvidia_uvm" in modules:
        required_nodes.append("/dev/nvidia-uvm")
    errors += [f"{node} is not there" for node in required_nodes if node not in names]
    if not any(name.startswith("/dev/nvidia") and name[-1].isdigit() for name in names):
        errors.append("there is no /dev/nvidia0 or any other card's node")
    return errors


# ---------------------------------------------------------------- remedies


def make_kernel_log_remedy(context: RuleContext) -> Remedy:
    """Return the remedy to read the kernel log, in which the driver reports its errors."""
    return Remedy(
        "Read what the kernel module says: its lines begin with NVRM, and an Xid number names the fault.",
        (f"{get_sudo_prefix(context.target)}dmesg | grep -i -E 'nvrm|nvidia|xid' | tail -n 40",),
    )


def make_load_module_remedy(context: RuleContext, module: str = "nvidia") -> Remedy:
    """Return the remedy to load a kernel module with modprobe."""
    sudo = get_sudo_prefix(context.target)
    return Remedy(
        f"Load the kernel module {module.replace('-', '_')}.",
        (f"{sudo}modprobe {module}", format_check_command(context.target)),
        changes_system=True,
    )


def make_reboot_remedy(context: RuleContext, text: str = "Restart the machine.") -> Remedy:
    """Return the remedy to restart the machine."""
    return Remedy(text, (f"{get_sudo_prefix(context.target)}reboot",), changes_system=True)
