"""List every GPU that a log names, whether TensorFlow registered it or not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tfdoctor.logs.version_inference import RegisteredDevice, list_devices

if TYPE_CHECKING:
    from tfdoctor.compat import Compat
    from tfdoctor.logs.events import Event, Log

__all__ = ["list_cards"]

_DESCRIPTION_LINES = 4
"""The largest number of lines from "Found device 0" to the card's name and address."""


def list_cards(log: Log, compat: Compat) -> tuple[RegisteredDevice, ...]:
    """Return the GPUs by index. What the registration of a GPU says takes precedence."""
    cards: dict[int, RegisteredDevice] = {}
    for event in log.list_events("device-properties"):
        if event.get("xla"):
            index = int(event.get("xindex"))
            cards.setdefault(
                index, RegisteredDevice(index, event.get("xla").strip(), event.get("xcc"), None, None)
            )
            continue
        found = _find_before(log.list_events("device-found"), event.line)
        if found is None:
            continue
        index = int(found.get("index"))
        capability = event.get("cc") or f"{event.get('major')}.{event.get('minor')}"
        address = event.get("pci") or _find_address(log, found.line)
        cards[index] = RegisteredDevice(index, event.get("name").strip(), capability, None, address)
    for event in log.list_events("device-ignored"):
        index = int(event.get("index"))
        known = cards.get(index, RegisteredDevice(index, event.get("name").strip(), None, None, None))
        cards[index] = replace(
            known,
            compute_capability=event.get("cc") or known.compute_capability,
            pci_bus_id=event.get("pci") or known.pci_bus_id,
        )
    for device in list_devices(log, compat):
        cards[device.index] = device
    return tuple(cards[index] for index in sorted(cards))


def _find_before(events: list[Event], line: int) -> Event | None:
    """Return the last event before a line, if it is near."""
    return next((event for event in reversed(events) if 0 <= line - event.line <= _DESCRIPTION_LINES), None)


def _find_address(log: Log, line: int) -> str | None:
    """Return the PCI address that follows a line, or None if there is none."""
    addresses = log.list_events("device-address")
    return next(
        (event.get("pci") for event in addresses if 0 < event.line - line <= _DESCRIPTION_LINES), None
    )
