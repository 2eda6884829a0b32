"""Which machine a plan is for: the one that options describe, a recorded one, or this one."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from tfdoctor.errors import UsageError
from tfdoctor.fit import Host, build_host
from tfdoctor.plan.arguments import check_driver, find_named_card

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tfdoctor.compat import Compat
    from tfdoctor.facts import Facts
    from tfdoctor.fit import Card

__all__ = ["host_for"]

PROBE_TIMEOUT_S = 10.0
"""Seconds that looking at this machine may take."""


def host_for(compat: Compat, *, gpus: Sequence[str], driver: str | None, facts: Path | None) -> Host:
    """Return the machine that is meant: the cards that are named, a recorded machine, or this one.

    Raises UsageError.
    """
    if gpus and facts is not None:
        raise UsageError("--gpu names cards, --facts a recorded machine that has its own; give one of them.")
    driver = check_driver(driver)
    if gpus:
        cards = tuple(find_named_card(compat, name) for name in gpus)
        return Host(cards=cards, driver=driver, machine="aarch64" if _on_arm64(compat, cards) else "x86_64")
    host = build_host(_survey(compat, facts), compat)
    return dataclasses.replace(host, driver=driver, shown=False) if driver is not None else host


def _on_arm64(compat: Compat, cards: Sequence[Card]) -> bool:
    """Return whether one of the cards is only in machines with a 64-bit ARM processor, whatever its name can mean."""
    return any(
        all(compat.arm64.kind_of(card.name, text) is not None for text in (card.capability, *card.others))
        for card in cards
    )


def _survey(compat: Compat, facts: Path | None) -> Facts:
    from tfdoctor.examine import collect_facts
    from tfdoctor.system import LiveSystem, RecordedSystem

    system = LiveSystem() if facts is None else RecordedSystem(facts)
    return collect_facts(system, compat, timeout=PROBE_TIMEOUT_S)
