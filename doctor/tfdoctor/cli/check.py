"""`tfdoctor check`."""

from __future__ import annotations

import contextlib
import shlex
import signal
import sys
import threading
from typing import TYPE_CHECKING, Protocol

from tfdoctor.compat import Compat
from tfdoctor.diagnose import diagnose
from tfdoctor.errors import ExitCode, UsageError
from tfdoctor.facts import value_of
from tfdoctor.facts_python import ASKED
from tfdoctor.findings import Severity
from tfdoctor.redact import clean_line
from tfdoctor.repair.activation import inherited, kind_of
from tfdoctor.repair.plan import environment_of, ways
from tfdoctor.survey import survey
from tfdoctor.system import LiveSystem, RecordedSystem

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import FrameType

    from tfdoctor.findings import Observation, Report
    from tfdoctor.system import System


def check(
    *,
    python: str | None,
    deep: bool,
    facts: Path | None,
    timeout: float,
    fail_on: str,
    as_json: bool,
    verbose: bool,
    quiet: bool,
) -> int:
    """Look, judge, print. Returns the exit status."""
    if deep and facts is not None:
        raise UsageError("--deep runs TensorFlow here; it cannot be run on a recorded machine (--facts).")
    system: System = LiveSystem()
    if facts is not None:
        recorded = RecordedSystem(facts)
        system, python = recorded, python or recorded.python
    compat = Compat.load()
    observed: Observation | None = None
    with stopping(system):
        seen = survey(system, compat, requested_python=python, timeout=timeout)
        interpreter, tensorflow = value_of(seen.python), value_of(seen.tensorflow)
        if deep and interpreter is not None and tensorflow is not None:
            from tfdoctor.observe import DEEP_TIMEOUT, observe

            _progress("Running TensorFlow in a child process; this takes some seconds …", quiet=quiet)
            limit = max(timeout, DEEP_TIMEOUT)
            observed = observe(system, compat, interpreter.executable, tensorflow, timeout=limit)
    report = diagnose(seen, compat, observed)
    if as_json:
        from tfdoctor.render.json import report_json, write_json

        write_json(report_json(report))
    else:
        from tfdoctor.render.console import print_report

        print_report(
            report, verbose=verbose, quiet=quiet, mend=mending(report, system) if facts is None else None
        )
    return exit_status(report, fail_on)


def mending(report: Report, system: System) -> str | None:
    """The command that mends something of this; None where fix would find nothing to do."""
    python = value_of(report.facts.python)
    choice = report.facts.choice
    if python is None or (choice is not None and any(one.variable != ASKED for one in choice.lost)):
        return None  # nothing to be mended, or a Python that nobody meant
    environment = environment_of(report, kind_of(python.prefix), inherited(system, python.prefix))
    if environment is None or not ways(report, environment):
        return None
    asked = python.requested.startswith(("$", "python3 on", "python on"))
    return "tfdoctor fix" if asked else f"tfdoctor fix --python {shlex.quote(clean_line(python.executable))}"


class Stoppable(Protocol):
    """What runs things that can be ended."""

    def stop(self) -> None:
        """End all of them."""
        ...


@contextlib.contextmanager
def stopping(system: Stoppable) -> Iterator[None]:
    """Ctrl-C ends everything that `system` runs, and then the block, whatever code it meets.

    CPython drops a KeyboardInterrupt that is raised within one of its own callbacks: without this such a Ctrl-C
    would be lost, and the probes run on to their deadlines.
    """
    seen: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        system.stop()
        signal.default_int_handler(number, frame)

    ours = threading.current_thread() is threading.main_thread()
    if (
        not ours or signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    ):  # somebody else's, or ignored on purpose
        yield
        return
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if seen:
        raise KeyboardInterrupt


def _progress(text: str, *, quiet: bool) -> None:
    """Tell a person at a terminal why nothing happens; nobody else."""
    if sys.stderr.isatty() and not quiet:
        sys.stderr.write(f"{text}\n")


def exit_status(report: Report, fail_on: str) -> ExitCode:
    """1 where a finding is at or above `fail_on`."""
    if fail_on == "never":
        return ExitCode.OK
    least = Severity[fail_on.upper()]
    return ExitCode.FOUND if any(finding.severity >= least for finding in report.findings) else ExitCode.OK
