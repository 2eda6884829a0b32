"""Query the examined Python. This slow probe can be started before other modules are imported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfdoctor.core.facts.python import PYTHON_OPTION
from tfdoctor.probes.interpreter_selection import choose_python
from tfdoctor.system.payloads import run_payload, start_payload

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdoctor.core.facts.python import PythonChoice
    from tfdoctor.system import CommandResult, LiveSystem, System

FIRST_TRY_FRACTION = 0.5
"""The fraction of its time limit that the first query gets; the rest is for a second query."""


def compute_probe_timeout(timeout: float) -> float:
    """Return the time limit in seconds of one probe, if all probes together may take `timeout`."""
    return max(0.5, timeout * 0.8)


def start_query(system: LiveSystem, requested: str | None, *, timeout: float) -> None:
    """Start the child process for which `query_python` waits.

    `timeout` is the time limit in seconds of all probes together. Raise UsageError if there is no Python to run.
    """
    choice = choose_python(system, requested)
    if not is_base_missing(choice):
        start_payload(
            system, choice.path, "target", timeout=compute_probe_timeout(timeout) * FIRST_TRY_FRACTION
        )


def is_base_missing(choice: PythonChoice) -> bool:
    """Return whether the requested Python cannot run, because the Python that it links to does not exist."""
    return any(environment.variable == PYTHON_OPTION for environment in choice.lost)


def query_python(system: System, python: str, *, timeout: float) -> tuple[Mapping[str, Any], CommandResult]:
    """Run the query in a child process, and return its answer and the result of the command.

    `timeout` is the time limit of the probe in seconds.
    """
    return run_payload(system, python, "target", timeout=timeout * FIRST_TRY_FRACTION)
