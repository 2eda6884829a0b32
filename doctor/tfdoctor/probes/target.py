"""Query the examined Python. This slow probe can be started before other modules are imported."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from tfdoctor.core.facts.python import PYTHON_OPTION
from tfdoctor.probes.interpreter_selection import choose_python
from tfdoctor.system.payloads import run_payload, start_payload

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdoctor.core.facts.python import PythonChoice
    from tfdoctor.system import CommandResult, LiveSystem, System

DEFAULT_TIMEOUT_S = 10.0
"""The time limit in seconds for all probes together on an idle machine."""
MAX_EXTENDED_TIMEOUT_S = 60.0
"""The longest time limit in seconds to which a busy machine extends one."""
FIRST_TRY_FRACTION = 0.5
"""The fraction of its time limit that the first query gets; the rest is for a second query."""


def extend_timeout(system: System, timeout: float) -> float:
    """Return a time limit in seconds for a busy machine: longer by the number of runnable threads per processor.

    It is at most MAX_EXTENDED_TIMEOUT_S. A limit below DEFAULT_TIMEOUT_S was chosen by the user and is kept.
    """
    if timeout < DEFAULT_TIMEOUT_S:
        return timeout
    try:
        match = re.match(r"(\d+\.\d+) \S+ \S+ (\d+)/", system.read_text("/proc/loadavg"))
    except OSError:
        match = None  # no /proc, or a recording without this file
    if match is None:
        return timeout
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads_per_processor = max(float(match[1]), int(match[2])) / processors
    return max(timeout, min(timeout * threads_per_processor, MAX_EXTENDED_TIMEOUT_S))


def compute_probe_timeout(timeout: float) -> float:
    """Return the time limit in seconds of one probe, if all probes together may take `timeout`."""
    return max(0.5, timeout * 0.8)


def start_query(system: LiveSystem, requested: str | None, *, timeout: float) -> None:
    """Start the child process for which `query_python` waits.

    `timeout` is the time limit in seconds of all probes together. Raise UsageError if there is no Python to run.
    """
    choice = choose_python(system, requested)
    timeout = extend_timeout(system, timeout)
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
