"""The properties of a machine that decide whether a release fits it, taken from its facts. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.facts import Absent, Known, SmiFacts, Unknown, value_of
from tfdoctor.facts.containers import DockerEngine
from tfdoctor.fit.drivers import find_driver_version
from tfdoctor.fit.models import Card, Host

if TYPE_CHECKING:
    from tfdoctor.compat import Compat
    from tfdoctor.facts import Facts

__all__ = ["build_host"]


def build_host(facts: Facts, compat: Compat) -> Host:
    """Build the planner's host from the facts of an examined machine; unknown values stay unknown."""
    python = value_of(facts.python)
    machine = facts.machine
    driver_version = find_driver_version(facts)
    cards = _list_cards(facts, compat)
    return Host(
        cards=cards,
        driver=driver_version[0] if driver_version is not None else None,
        system=machine.system,
        machine=machine.machine,
        glibc=python.glibc if python is not None else None,
        python=versions.major_minor(python.version) if python is not None else None,
        cpu_flags=machine.cpu_flags,
        wsl=bool(machine.wsl),
        engine=_has_engine(facts),
        shown=_are_cards_from_driver(facts),
        no_card=not cards and _has_no_card(facts),
    )


def _are_cards_from_driver(facts: Facts) -> bool:
    """Return whether the driver reports the cards."""
    answers = [value_of(fact) for fact in (facts.driver.cuda, facts.driver.cuda_unhidden) if fact is not None]
    return any(answer is not None and answer.devices for answer in answers)


def _has_no_card(facts: Facts) -> bool:
    """Return whether the probes examined the PCI bus and found no GPU; an empty bus in WSL proves nothing."""
    if facts.machine.wsl or facts.machine.jetson or facts.machine.system != "Linux":
        return False
    for fact in (facts.driver.cuda, facts.driver.cuda_unhidden):
        answer = value_of(fact) if fact is not None else None
        if answer is not None and answer.count:
            return False
    smi = value_of(facts.driver.smi)
    if isinstance(smi, SmiFacts) and smi.gpus:
        return False
    return isinstance(facts.driver.pci, Absent)


def _list_cards(facts: Facts, compat: Compat) -> tuple[Card, ...]:
    """Return the GPUs that the driver reports, hidden ones included.

    If it reports none, those of the PCI bus that the table knows; else those that nvidia-smi names.
    """
    for fact in (facts.driver.cuda, facts.driver.cuda_unhidden):
        answer = value_of(fact) if fact is not None else None
        if answer is not None and answer.devices:
            return tuple(
                Card(device.name or f"GPU {device.ordinal}", device.compute_capability)
                for device in answer.devices
                if device.compute_capability
            )
    cards = []
    for pci in value_of(facts.driver.pci) or ():
        gpu = compat.gpu_by_pci_id(pci.device_id) if pci.device_id else None
        if gpu is not None:
            cards.append(Card(gpu.name, gpu.capability))
    if cards:
        return tuple(cards)
    smi = value_of(facts.driver.smi)
    if isinstance(smi, SmiFacts):
        for smi_gpu in smi.gpus:
            match = compat.gpus_named(smi_gpu.name) if smi_gpu.name else None
            if match is not None and not match.ambiguous:
                cards.append(Card(smi_gpu.name or "", match.capabilities[0]))
    return tuple(cards)


def _has_engine(facts: Facts) -> bool | None:
    """Return whether a container engine is available; None if that is not known."""
    containers = value_of(facts.containers)
    if containers is None:
        return None
    docker = containers.docker
    if isinstance(docker, Known) and isinstance(docker.value, DockerEngine):
        return True
    if containers.tool("podman") is not None:
        return True
    return None if isinstance(containers.docker, Unknown) else False
