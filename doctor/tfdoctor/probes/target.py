"""A query of the examined Python, which takes longest and can begin before other modules are loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfdoctor.facts.python import PYTHON_OPTION
from tfdoctor.probes.interpreter_selection import choose
from tfdoctor.system.payloads import begin_payload, run_payload

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdoctor.facts.python import Choice
    from tfdoctor.system import CommandResult, LiveSystem, System

FIRST_TRY_FRACTION = 0.5
"""The fraction of its time limit that the first try gets."""


def compute_timeout(timeout: float) -> float:
    """Return the time limit in seconds of one probe, if all probes together may take `timeout`."""
    return max(0.5, timeout * 0.8)


def start_query(system: LiveSystem, requested: str | None, *, timeout: float) -> None:
    """Start the process that `ask` waits for.

    `timeout` is for all probes. Raise UsageError as `choose` does.
    """
    chosen = choose(system, requested)
    if not is_base_missing(chosen):
        begin_payload(system, chosen.path, "target", timeout=compute_timeout(timeout) * FIRST_TRY_FRACTION)


def is_base_missing(chosen: Choice) -> bool:
    """Return whether the requested Python leads to one that does not exist, so that nothing can be run."""
    return any(lost.variable == PYTHON_OPTION for lost in chosen.lost)


def query_python(system: System, python: str, *, timeout: float) -> tuple[Mapping[str, Any], CommandResult]:
    """Return the answer of the Python, and how its process ended.

    `timeout` is that of the probe, in seconds.
    """
    return run_payload(system, python, "target", timeout=timeout * FIRST_TRY_FRACTION)
