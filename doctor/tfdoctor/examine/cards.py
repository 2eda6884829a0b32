"""The cards again and again, for those who watch them while something computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.facts import SmiFacts, value_of
from tfdoctor.probes.driver import normal_bus_id, probe_smi
from tfdoctor.probes.kernel import ask_links

if TYPE_CHECKING:
    from tfdoctor.facts import Facts, SmiGpu
    from tfdoctor.system import System

__all__ = ["read_cards", "read_interconnects", "read_peer_access", "tensorflow_names"]

APART = ("NS", "CNS", "GNS", "TNS", "DR")
"""Not supported, by the chipset, the card or the topology; disabled."""


def read_cards(system: System, *, timeout: float = 10.0) -> dict[str, SmiGpu]:
    """Return PCI bus id → GPU, as nvidia-smi shows it now; empty if it does not answer."""
    smi = value_of(probe_smi(system, timeout=timeout))
    if not isinstance(smi, SmiFacts):
        return {}
    return {bus: card for card in smi.gpus if (bus := normal_bus_id(card.pci_bus_id))}


def tensorflow_names(facts: Facts) -> dict[str, str]:
    """Return PCI bus id → "GPU:0", of the devices that the driver shows to TensorFlow."""
    cuda = value_of(facts.driver.cuda)
    devices = cuda.devices if cuda is not None else ()
    return {bus: f"GPU:{one.ordinal}" for one in devices if (bus := normal_bus_id(one.pci_bus_id))}


def read_interconnects(system: System, facts: Facts, *, timeout: float = 10.0) -> dict[tuple[str, str], str]:
    """Return ("GPU:0", "GPU:1") → the link that `nvidia-smi topo -m` prints for these devices of TensorFlow."""
    if len(tensorflow_names(facts)) < 2:
        return {}
    return _rename_pairs(value_of(facts.kernel.links) or value_of(ask_links(system, timeout=timeout)), facts)


def read_peer_access(system: System, facts: Facts, *, timeout: float = 10.0) -> dict[tuple[str, str], bool]:
    """Return ("GPU:0", "GPU:1") → whether one can read the other's memory; only what nvidia-smi knows."""
    if len(tensorflow_names(facts)) < 2:
        return {}
    told = _rename_pairs(value_of(ask_links(system, timeout=timeout, words=("-p2p", "r"))), facts)
    return {pair: said == "OK" for pair, said in told.items() if said in ("OK", *APART)}


def _rename_pairs(links: dict[str, str] | None, facts: Facts) -> dict[tuple[str, str], str]:
    """Convert pairs of nvidia-smi's numbers into TensorFlow's names."""
    names = tensorflow_names(facts)
    smi = value_of(facts.driver.smi)
    gpus = smi.gpus if isinstance(smi, SmiFacts) else ()
    of_smi = {
        f"GPU{card.index}": names[bus]
        for card in gpus
        if (bus := normal_bus_id(card.pci_bus_id)) in names and bus is not None
    }
    found = {}
    for pair, said in (links or {}).items():
        one, _, other = pair.partition("-")
        if one in of_smi and other in of_smi:
            found[of_smi[one], of_smi[other]] = said
    return found
