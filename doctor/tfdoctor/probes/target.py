"""Asking the examined Python what it is and has: that takes longest, and can begin before the rest is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfdoctor.facts.python import ASKED
from tfdoctor.probes.interpreter_selection import choose
from tfdoctor.system.payloads import begin_payload, run_payload

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdoctor.facts.python import Choice
    from tfdoctor.system import CommandResult, LiveSystem, System

FIRST = 0.5
"""The part of its time that the first try has."""


def limit_of(timeout: float) -> float:
    """Return seconds that a probe may take where all of looking may take `timeout`."""
    return max(0.5, timeout * 0.8)


def begin(system: LiveSystem, requested: str | None, *, timeout: float) -> None:
    """Start what `ask` waits for. `timeout` bounds all of looking. Raises UsageError as `choose` does."""
    chosen = choose(system, requested)
    if not base_gone(chosen):
        begin_payload(system, chosen.path, "target", timeout=limit_of(timeout) * FIRST)


def base_gone(chosen: Choice) -> bool:
    """Return whether the Python that was named leads to one that is gone: there is nothing to be run."""
    return any(lost.variable == ASKED for lost in chosen.lost)


def ask(system: System, python: str, *, timeout: float) -> tuple[Mapping[str, Any], CommandResult]:
    """Return what it answers, and how it ended. `timeout` is that of the probe, in seconds."""
    return run_payload(system, python, "target", timeout=timeout * FIRST)
