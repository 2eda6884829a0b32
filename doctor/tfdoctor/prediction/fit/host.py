"""Build a `Host`, which a release must fit, from the facts about a machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.facts import Absent, Known, SmiFacts, Unknown, value_of
from tfdoctor.core.facts.containers import DockerEngine
from tfdoctor.prediction.fit.drivers import find_driver_version
from tfdoctor.prediction.fit.models import Host, HostGpu

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.compat import Compat
    from tfdoctor.core.facts import Facts

__all__ = ["build_host", "find_data_center_gpus"]


def build_host(facts: Facts, compat: Compat) -> Host:
    """Build the host from the facts about a machine. Values that are not known are None or empty."""
    python = value_of(facts.python)
    machine = facts.machine
    driver_version, _ = find_driver_version(facts) or (None, "")
    gpus = _list_gpus(facts, compat)
    return Host(
        cards=gpus,
        driver=driver_version,
        system=machine.system,
        machine=machine.machine,
        glibc=python.glibc if python is not None else None,
        python=versions.major_minor(python.version) if python is not None else None,
        cpu_flags=machine.cpu_flags,
        is_wsl=bool(machine.wsl),
        has_engine=_has_engine(facts),
        has_driver_gpus=_has_gpus_from_driver(facts),
        has_no_gpu=not gpus and _has_no_gpu(facts),
        has_data_center_gpus=find_data_center_gpus(compat, gpus),
    )


def find_data_center_gpus(compat: Compat, gpus: Sequence[HostGpu]) -> bool | None:
    """Return whether all GPUs are data-centre GPUs by their names; None if a name is not known."""
    if not gpus or any(gpu.name == f"compute capability {gpu.capability}" for gpu in gpus):
        return None
    return all(compat.cards.is_data_center(gpu.name) for gpu in gpus)


def _has_gpus_from_driver(facts: Facts) -> bool:
    """Return whether the driver itself reports GPUs, including those that CUDA_VISIBLE_DEVICES hides."""
    driver_results = [
        value_of(fact) for fact in (facts.driver.cuda, facts.driver.cuda_unhidden) if fact is not None
    ]
    return any(driver_result is not None and driver_result.devices for driver_result in driver_results)


def _has_no_gpu(facts: Facts) -> bool:
    """Return whether it is certain that the machine has no NVIDIA GPU.

    The PCI bus must have been examined, and neither the driver nor nvidia-smi may report a GPU. Under WSL, on a
    Jetson and on other systems than Linux, this is never certain.
    """
    if facts.machine.wsl or facts.machine.jetson or facts.machine.system != "Linux":
        return False
    for fact in (facts.driver.cuda, facts.driver.cuda_unhidden):
        driver_result = value_of(fact) if fact is not None else None
        if driver_result is not None and driver_result.count:
            return False
    smi = value_of(facts.driver.smi)
    if isinstance(smi, SmiFacts) and smi.gpus:
        return False
    return isinstance(facts.driver.pci, Absent)


def _list_gpus(facts: Facts, compat: Compat) -> tuple[HostGpu, ...]:
    """Return the GPUs that the driver reports, including those that CUDA_VISIBLE_DEVICES hides.

    If the driver reports no GPUs, return the known GPUs on the PCI bus. If there are none either, return the GPUs that
    nvidia-smi lists and whose name determines the compute capability.
    """
    for fact in (facts.driver.cuda, facts.driver.cuda_unhidden):
        driver_result = value_of(fact) if fact is not None else None
        if driver_result is not None and driver_result.devices:
            return tuple(
                HostGpu(device.name or f"GPU {device.ordinal}", device.compute_capability)
                for device in driver_result.devices
                if device.compute_capability
            )
    gpus = []
    for pci_gpu in value_of(facts.driver.pci) or ():
        gpu = compat.find_gpu_by_pci_id(pci_gpu.device_id) if pci_gpu.device_id else None
        if gpu is not None:
            gpus.append(HostGpu(gpu.name, gpu.capability))
    if gpus:
        return tuple(gpus)
    smi = value_of(facts.driver.smi)
    if isinstance(smi, SmiFacts):
        for smi_gpu in smi.gpus:
            match = compat.find_gpus_by_name(smi_gpu.name) if smi_gpu.name else None
            if match is not None and not match.is_ambiguous:
                gpus.append(HostGpu(smi_gpu.name or "", match.capabilities[0]))
    return tuple(gpus)


def _has_engine(facts: Facts) -> bool | None:
    """Return whether Docker's engine responds or Podman is installed; None if that is not known."""
    containers = value_of(facts.containers)
    if containers is None:
        return None
    docker = containers.docker
    if isinstance(docker, Known) and isinstance(docker.value, DockerEngine):
        return True
    if containers.find_tool("podman") is not None:
        return True
    return None if isinstance(containers.docker, Unknown) else False
