"""The host that a plan is for: the one that options describe, a recorded one, or this one."""

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
"""Seconds for the inspection of this host."""


def host_for(compat: Compat, *, gpus: Sequence[str], driver: str | None, facts: Path | None) -> Host:
    """Return the host with the named GPUs, a recorded host, or this host. Raise UsageError."""
    if gpus and facts is not None:
        raise UsageError("--gpu names cards, --facts a recorded machine that has its own; give one of them.")
    driver = check_driver(driver)
    if gpus:
        cards = tuple(find_named_card(compat, name) for name in gpus)
        return Host(
            cards=cards, driver=driver, machine="aarch64" if _needs_arm64(compat, cards) else "x86_64"
        )
    host = build_host(_collect_host_facts(compat, facts), compat)
    return dataclasses.replace(host, driver=driver, shown=False) if driver is not None else host


def _needs_arm64(compat: Compat, cards: Sequence[Card]) -> bool:
    """Return whether one of the GPUs exists only in hosts with a 64-bit ARM processor, whatever its name means."""
    return any(
        all(compat.arm64.find_kind(card.name, text) is not None for text in (card.capability, *card.others))
        for card in cards
    )


def _collect_host_facts(compat: Compat, facts: Path | None) -> Facts:
    """Collect the facts of this host, or of a recorded one."""
    from tfdoctor.examine import collect_facts
    from tfdoctor.system import LiveSystem, RecordedSystem

    system = LiveSystem() if facts is None else RecordedSystem(facts)
    return collect_facts(system, compat, timeout=PROBE_TIMEOUT_S)
