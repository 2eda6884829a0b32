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

    from tfdoctor.against import Comparison
    from tfdoctor.facts import Facts
    from tfdoctor.findings import Observation, Report
    from tfdoctor.system import System


def check(
    *,
    python: str | None,
    deep: bool,
    facts: Path | None,
    against: Path | None,
    timeout: float,
    fail_on: str,
    as_json: bool,
    verbose: bool,
    quiet: bool,
) -> int:
    """Look, judge, print. Returns the exit status. `against`: a recorded machine to compare with."""
    if deep and facts is not None:
        raise UsageError("--deep runs TensorFlow here; it cannot be run on a recorded machine (--facts).")
    system: System = LiveSystem()
    if facts is not None:
        recorded = RecordedSystem(facts)
        system, python = recorded, python or recorded.python
    then = RecordedSystem(against) if against is not None else None
    compat = Compat.load()
    observed: Observation | None = None
    redacted: Report | None = None
    with stopping(system):
        if then is not None and facts is None:
            seen, redacted = _alike(system, compat, python, timeout)
        else:
            seen = survey(system, compat, requested_python=python, timeout=timeout)
        interpreter, tensorflow = value_of(seen.python), value_of(seen.tensorflow)
        if deep and interpreter is not None and tensorflow is not None:
            from tfdoctor.observe import DEEP_TIMEOUT, observe

            _progress("Running TensorFlow in a child process; this takes some seconds …", quiet=quiet)
            limit = max(timeout, DEEP_TIMEOUT)
            observed = observe(system, compat, interpreter.executable, tensorflow, timeout=limit)
    report = diagnose(seen, compat, observed)
    comparison: Comparison | None = None
    if then is not None:
        from tfdoctor.against import compare

        was = survey(then, compat, requested_python=then.python, timeout=timeout)
        comparison = compare(diagnose(was, compat), redacted or report)
    if as_json:
        from tfdoctor.render.json import comparison_json, report_json, write_json

        answer = report_json(report)
        if comparison is not None:
            answer |= comparison_json(comparison, str(against))
        write_json(answer)
    else:
        from tfdoctor.render.console import print_report

        print_report(
            report, verbose=verbose, quiet=quiet, mend=mending(report, system) if facts is None else None
        )
        if comparison is not None and not quiet:
            from tfdoctor.render.against_console import print_comparison

            print_comparison(comparison, str(against), verbose=verbose)
    return exit_status(report, fail_on)


def _alike(system: System, compat: Compat, python: str | None, timeout: float) -> tuple[Facts, Report]:
    """(what is seen, the judgement of it redacted as `capture` does it): only that can be compared with a bundle."""
    from tfdoctor.cli.capture import look

    captured = look(system, compat, python=python, timeout=timeout, local=True)
    return captured.facts, captured.report


def mending(report: Report, system: System) -> str | None:
    """The command that mends something of this; None where fix would find nothing to do."""
    python = value_of(report.facts.python)
    if python is None:
        return None
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
