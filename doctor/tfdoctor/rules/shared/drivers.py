"""What rules about cards and their driver share: pure questions to the facts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfdoctor import advice, fit, versions
from tfdoctor.facts import (
    Absent,
    CudaDevice,
    CudaDriver,
    Known,
    Resolution,
    SmiFailure,
    Unknown,
    value_of,
)
from tfdoctor.findings import Evidence, Remedy
from tfdoctor.predict import driver_gate, driver_missing_cause
from tfdoctor.records import dataclass
from tfdoctor.rules.base import CouldNotCheck, NotApplicable, seen

if TYPE_CHECKING:
    from tfdoctor.compat import Gpu
    from tfdoctor.compat.releases import Release
    from tfdoctor.facts import PciGpu
    from tfdoctor.findings import Cause
    from tfdoctor.rules.base import Context

NO_ANSWER = "did not answer within"
"""How probes/driver.py says that the child which asks the driver hung."""


@dataclass(frozen=True, slots=True)
class DriverState:
    """What stands between TensorFlow and a card."""

    cause: Cause | None
    """None: the driver shows a device, or it could not be known."""
    why: str
    resolution: Resolution | None
    """libcuda.so.1 as the loader answers; None where there is no TensorFlow to follow it for."""
    answer: CudaDriver | None

    @property
    def works(self) -> bool:
        return self.answer is not None and self.answer.init == 0 and bool(self.answer.count)


def state(context: Context) -> DriverState:
    """The driver as TensorFlow meets it: the same gates as the prediction, also where TensorFlow is "
    "missing."""
    facts = context.facts
    answer = value_of(facts.driver.cuda)
    resolution = context.loader.resolution("libcuda.so.1") if context.loader is not None else None
    failed = resolution if resolution is not None and not resolution.ok else None
    if resolution is None and answer is not None and not answer.loaded and not answer.crashed:
        failed = Resolution("libcuda.so.1", None, "", answer.load_error or "cannot be opened")
    if failed is not None:
        return DriverState(driver_missing_cause(facts, failed), failed.error, failed, answer)
    if answer is None:
        return DriverState(None, "", resolution, None)
    gate = driver_gate(facts, answer)
    if isinstance(gate, tuple):
        return DriverState(gate[0], gate[1], resolution, answer)
    return DriverState(None, "", resolution, answer)


def hangs(context: Context) -> str:
    """Why it is known that the driver hangs; empty where it does not."""
    fact = context.facts.driver.cuda
    return fact.why if isinstance(fact, Unknown) and NO_ANSWER in fact.why else ""


# ---------------------------------------------------------------- cards


def gpu_of(context: Context, card: PciGpu) -> Gpu | None:
    """What the table says of a card's PCI id."""
    return context.compat.gpu_by_pci_id(card.device_id) if card.device_id else None


def card_label(context: Context, card: PciGpu) -> str:
    """ "GeForce RTX 3090 (0000:01:00.0)"."""
    gpu = gpu_of(context, card)
    return f"{gpu.name if gpu is not None else f'NVIDIA card 10de:{card.device_id}'} ({card.address})"


def device_label(device: CudaDevice) -> str:
    """ "GPU 0, NVIDIA GeForce RTX 3090 (0000:01:00.0)"."""
    where = f" ({device.pci_bus_id})" if device.pci_bus_id else ""
    name = device.name or "unnamed"
    return f"GPU {device.ordinal}, {name}{where}" if device.ordinal >= 0 else f"{name}{where}"


def shown_devices(context: Context) -> tuple[CudaDevice, ...]:
    """The devices that the driver shows here; where all are hidden, those behind it."""
    driver = context.facts.driver
    for fact in (driver.cuda, driver.cuda_unhidden):
        answer = value_of(fact) if fact is not None else None
        if answer is not None and answer.devices:
            return answer.devices
    return ()


def known_devices(context: Context) -> tuple[CudaDevice, ...]:
    """`shown_devices`, else the cards on the PCI bus with what the table knows of them (`ordinal` -1)."""
    shown = shown_devices(context)
    if shown:
        return shown
    return tuple(
        CudaDevice(-1, gpu.name, None, card.address, gpu.capability, None, None)
        for card in value_of(context.facts.driver.pci) or ()
        if (gpu := gpu_of(context, card)) is not None
    )


def pci_evidence(context: Context) -> list[Evidence]:
    """The PCI bus's cards, or that there are none."""
    fact = context.facts.driver.pci
    if isinstance(fact, Known):
        return [
            Evidence(fact.source, f"{card_label(context, card)}, kernel driver: {card.driver or 'none'}")
            for card in fact.value
        ]
    return [seen(fact, fact.why)] if isinstance(fact, Absent) else []


def smi_evidence(context: Context) -> list[Evidence]:
    """What nvidia-smi said instead of an answer."""
    fact = context.facts.driver.smi
    failed = value_of(fact)
    if isinstance(failed, SmiFailure):
        return [Evidence(getattr(fact, "source", "nvidia-smi"), failed.text)]
    return []


def module_evidence(context: Context) -> list[Evidence]:
    """The kernel module's version, or that it is not loaded."""
    fact = context.facts.driver.kernel_module
    if isinstance(fact, Known):
        return [
            seen(fact, f"kernel module {fact.value.version}{' (open)' if fact.value.open_kernel else ''}")
        ]
    return [seen(fact, fact.why)] if isinstance(fact, Absent) else []


# ---------------------------------------------------------------- versions


def driver_version(context: Context) -> tuple[str, str] | None:
    """(the driver's version, where it was seen): the kernel module's, NVML's, else nvidia-smi's."""
    return fit.driver_version(context.facts)


def code_for(context: Context, capability: str) -> str:
    """What this build has for a compute capability, in `Compat.code_for`'s words; "unknown": nobody looked.

    A build that names other architectures in its build_info.py than the published wheel has is another build:
    then its own list counts.
    """
    build = context.build
    if build is None:
        return "unknown"
    own = own_architectures(context)
    published = _published(context)
    if published is not None:
        return context.compat.code_for(published, capability)
    if own is None:
        return "unknown"
    wanted = versions.parse_capability(capability)
    if any(versions.runs_machine_code(wanted, versions.parse_capability(text)) for text in own[0]):
        return "native"
    return "jit" if any(versions.parse_capability(text) <= wanted for text in own[1]) else "none"


def to_compile(context: Context, capability: str) -> tuple[str, str] | None:
    """What of this build the driver has to compile for a card: (the CUDA that it must speak, how many kernels).

    See Compat.to_compile. A build that is not the published wheel is taken to have PTX of its own CUDA.
    """
    build = context.build
    if build is None:
        return None
    published = _published(context)
    if published is not None:
        return context.compat.to_compile(published, capability)
    if build.cuda is not None and code_for(context, capability) in ("jit", "arch-specific"):
        return build.cuda, "all"
    return None


def _published(context: Context) -> Release | None:
    """The release whose wheel this build is, as far as its own list of architectures tells."""
    build, own = context.build, own_architectures(context)
    release = build.release if build is not None and build.exact else None
    return release if release is not None and (own is None or set(own[0]) == set(release.cubin)) else None


def own_architectures(context: Context) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """(machine code, PTX) as build_info.py lists them: "sm_60" is the former alone, "compute_90" both."""
    text = context.tensorflow.build_info.get("cuda_compute_capabilities", "") if context.tensorflow else ""
    found = re.findall(r"(sm|compute)_(\d{1,2})(\d)\b", text)
    if not found:
        return None
    code = [f"{major}.{minor}" for _, major, minor in found]
    return tuple(code), tuple(f"{major}.{minor}" for kind, major, minor in found if kind == "compute")


def newest_code(context: Context) -> str | None:
    """The highest compute capability that this build has machine code for."""
    own = own_architectures(context)
    build = context.build
    code = own[0] if own is not None else ()
    if not code and build is not None and build.exact and build.release is not None:
        code = build.release.cubin
    return max(code, key=versions.parse_capability) if code else None


# ---------------------------------------------------------------- device nodes


def node_trouble(context: Context) -> list[str]:
    """What is wrong with /dev/nvidia*, a sentence each, where the module is loaded and no device is shown."""
    facts = context.facts
    module, answer = facts.driver.kernel_module, value_of(facts.driver.cuda)
    if not isinstance(module, Known) or answer is None or not answer.loaded or answer.count:
        return []
    if answer.init in (0, 34, 35, 36, 802, 803, 804):
        return []
    trouble = [f"{node} may not be opened by this user" for node in answer.closed_nodes]
    trouble += [
        f"{node} is refused by the kernel, although its mode lets this user in"
        for node in answer.refused_nodes
    ]
    nodes = facts.driver.nodes
    if isinstance(nodes, Unknown):
        return trouble
    names = nodes.value.names if isinstance(nodes, Known) else ()
    modules = value_of(facts.driver.modules) or ()
    wanted = ["/dev/nvidiactl"]
    if "nvidia_uvm" in modules:
        wanted.append("/dev/nvidia-uvm")
    trouble += [f"{node} is not there" for node in wanted if node not in names]
    if not any(name.startswith("/dev/nvidia") and name[-1].isdigit() for name in names):
        trouble.append("there is no /dev/nvidia0 or any other card's node")
    return trouble


# ---------------------------------------------------------------- remedies


def kernel_log(context: Context) -> Remedy:
    """Where the driver itself says what is wrong."""
    return Remedy(
        "Read what the kernel module says: its lines begin with NVRM, and an Xid number names the fault.",
        (f"{advice.sudo(context.target)}dmesg | grep -i -E 'nvrm|nvidia|xid' | tail -n 40",),
    )


def load_module(context: Context, module: str = "nvidia") -> Remedy:
    """modprobe, and that it comes back with the next start."""
    root = advice.sudo(context.target)
    return Remedy(
        f"Load the kernel module {module.replace('-', '_')}.",
        (f"{root}modprobe {module}", advice.check_again(context.target)),
        changes_system=True,
    )


def reboot(context: Context, text: str = "Restart the machine.") -> Remedy:
    """A restart, from where it can be done."""
    return Remedy(text, (f"{advice.sudo(context.target)}reboot",), changes_system=True)


def capable_devices(context: Context) -> list[CudaDevice]:
    """The cards whose compute capability is known."""
    return [device for device in known_devices(context) if device.compute_capability]


def capability_known(context: Context) -> NotApplicable | CouldNotCheck | None:
    """A card whose compute capability is known."""
    if capable_devices(context):
        return None
    if isinstance(context.facts.driver.cuda, Unknown):
        return CouldNotCheck("the compute capability is not known: the driver did not answer")
    return NotApplicable("no card whose compute capability is known")
