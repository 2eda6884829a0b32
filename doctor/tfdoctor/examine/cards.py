"""The cards again and again, for those who watch them while something computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.facts import SmiFacts, value_of
from tfdoctor.probes.driver import normal_bus_id, probe_smi

if TYPE_CHECKING:
    from tfdoctor.facts import Facts, SmiGpu
    from tfdoctor.system import System

__all__ = ["cards_now", "tensorflow_names"]


def cards_now(system: System, *, timeout: float = 10.0) -> dict[str, SmiGpu]:
    """PCI bus id → the card, as nvidia-smi shows it at this moment; none where it does not answer."""
    smi = value_of(probe_smi(system, timeout=timeout))
    if not isinstance(smi, SmiFacts):
        return {}
    return {bus: card for card in smi.gpus if (bus := normal_bus_id(card.pci_bus_id))}


def tensorflow_names(facts: Facts) -> dict[str, str]:
    """PCI bus id → "GPU:0", of the devices that the driver shows to TensorFlow."""
    cuda = value_of(facts.driver.cuda)
    devices = cuda.devices if cuda is not None else ()
    return {bus: f"GPU:{one.ordinal}" for one in devices if (bus := normal_bus_id(one.pci_bus_id))}
