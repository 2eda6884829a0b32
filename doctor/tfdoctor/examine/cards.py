"""Repeated queries of the GPUs, for commands that watch them while something computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.facts import SmiFacts, value_of
from tfdoctor.probes.driver import normalize_bus_id, probe_smi
from tfdoctor.probes.kernel import query_links

if TYPE_CHECKING:
    from tfdoctor.facts import Facts, SmiGpu
    from tfdoctor.system import System

__all__ = ["find_tensorflow_names", "read_cards", "read_interconnects", "read_peer_access"]

UNSUPPORTED_STATES = ("NS", "CNS", "GNS", "TNS", "DR")
"""nvidia-smi's words for "not supported" (by the chipset, the GPU or the topology) and "disabled"."""


def read_cards(system: System, *, timeout: float = 10.0) -> dict[str, SmiGpu]:
    """Return the GPUs by PCI bus ID, as nvidia-smi reports them now; empty if it does not answer."""
    smi = value_of(probe_smi(system, timeout=timeout))
    if not isinstance(smi, SmiFacts):
        return {}
    return {bus: card for card in smi.gpus if (bus := normalize_bus_id(card.pci_bus_id))}


def find_tensorflow_names(facts: Facts) -> dict[str, str]:
    """Return TensorFlow's names ("GPU:0") of the devices that the driver offers, by PCI bus ID."""
    cuda = value_of(facts.driver.cuda)
    devices = cuda.devices if cuda is not None else ()
    return {
        bus: f"GPU:{device.ordinal}" for device in devices if (bus := normalize_bus_id(device.pci_bus_id))
    }


def read_interconnects(system: System, facts: Facts, *, timeout: float = 10.0) -> dict[tuple[str, str], str]:
    """Return the links of TensorFlow's devices by pair, as `nvidia-smi topo -m` prints them.

    A pair is ("GPU:0", "GPU:1").
    """
    if len(find_tensorflow_names(facts)) < 2:
        return {}
    return _rename_pairs(
        value_of(facts.kernel.links) or value_of(query_links(system, timeout=timeout)), facts
    )


def read_peer_access(system: System, facts: Facts, *, timeout: float = 10.0) -> dict[tuple[str, str], bool]:
    """Return whether the devices of each pair can read each other's memory.

    A pair is ("GPU:0", "GPU:1"); pairs that nvidia-smi does not know are omitted.
    """
    if len(find_tensorflow_names(facts)) < 2:
        return {}
    states = _rename_pairs(value_of(query_links(system, timeout=timeout, options=("-p2p", "r"))), facts)
    return {pair: state == "OK" for pair, state in states.items() if state in ("OK", *UNSUPPORTED_STATES)}


def _rename_pairs(links: dict[str, str] | None, facts: Facts) -> dict[tuple[str, str], str]:
    """Convert pairs of nvidia-smi's numbers into pairs of TensorFlow's names."""
    names = find_tensorflow_names(facts)
    smi = value_of(facts.driver.smi)
    gpus = smi.gpus if isinstance(smi, SmiFacts) else ()
    name_by_smi = {
        f"GPU{card.index}": names[bus]
        for card in gpus
        if (bus := normalize_bus_id(card.pci_bus_id)) in names and bus is not None
    }
    links_by_name = {}
    for pair, link in (links or {}).items():
        left, _, right = pair.partition("-")
        if left in name_by_smi and right in name_by_smi:
            links_by_name[name_by_smi[left], name_by_smi[right]] = link
    return links_by_name
