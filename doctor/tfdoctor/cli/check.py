"""`tfdoctor check`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tfdoctor.cli.options import FailOn, Json, Quiet, Severe, Timeout, command, option, verbose_option
from tfdoctor.compat import Compat
from tfdoctor.environment.activation import inherited, kind_of
from tfdoctor.environment.ways import environment_of, ways
from tfdoctor.errors import ExitCode, UsageError
from tfdoctor.examine.survey import survey
from tfdoctor.facts import Unknown, value_of
from tfdoctor.facts.python import ASKED
from tfdoctor.findings import Severity
from tfdoctor.render.progress import progress
from tfdoctor.render.report import render_report, report_json
from tfdoctor.render.terminal import ERR, OUT
from tfdoctor.report.diagnose import diagnose
from tfdoctor.system import LiveSystem, RecordedSystem
from tfdoctor.system.signals import stopping
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from tfdoctor.facts import Facts
    from tfdoctor.findings import Observation, Report
    from tfdoctor.report.against import Comparison
    from tfdoctor.system import System


@command
def check(
    python: Annotated[
        str | None,
        option(
            "The Python (or its environment's folder) to examine. Default: the active environment's, "
            "else python3 on PATH.",
            metavar="PATH",
        ),
    ] = None,
    deep: Annotated[
        bool,
        option("Also run TensorFlow in a child process and compare (some seconds).", "--deep"),
    ] = False,
    facts: Annotated[
        Path | None,
        option("Judge a recorded machine (what `capture` wrote) instead of this one.", metavar="BUNDLE"),
    ] = None,
    against: Annotated[
        Path | None,
        option(
            "Say what differs from a recorded machine: when it still worked, or another one.",
            metavar="BUNDLE",
        ),
    ] = None,
    timeout: Timeout = 10.0,
    fail_on: Severe = FailOn.error,
    as_json: Json = False,
    verbose: Annotated[bool, verbose_option("Show the evidence and every check.")] = False,
    quiet: Quiet = False,
) -> int:
    """Look, judge, print. Returns the exit status.

    Looks at the driver, the Python environment and the loader, and predicts what TensorFlow will do,
    without importing it. Changes nothing, sends nothing.

    Exit status: 0 nothing found, 1 found (--fail-on), 3 where the Python or its TensorFlow could not be looked at
    and nothing else was found, so that nothing is known. With --fail-on never it is 0 in all three cases.
    """
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
            from tfdoctor.examine.observe import DEEP_TIMEOUT, observe

            limit = max(timeout, DEEP_TIMEOUT)
            with progress(quiet=quiet or not ERR.watched, moving=False) as told:
                told.stage("Running TensorFlow in a child process; this takes some seconds …")
                observed = observe(system, compat, interpreter.executable, tensorflow, timeout=limit)
    report = diagnose(seen, compat, observed)
    comparison: Comparison | None = None
    if then is not None:
        from tfdoctor.report.against import compare

        was = survey(then, compat, requested_python=then.python, timeout=timeout)
        comparison = compare(diagnose(was, compat), redacted or report)
    if as_json:
        from tfdoctor.render.against import comparison_json
        from tfdoctor.render.json import write_json

        answer = report_json(report)
        if comparison is not None:
            answer |= comparison_json(comparison, str(against))
        write_json(answer)
    else:
        fix = fixing(report, system) if facts is None else None
        OUT.write(render_report(report, verbose=verbose, quiet=quiet, fix=fix, **OUT.looks))
        if comparison is not None and not quiet:
            from tfdoctor.render.against import render_comparison

            OUT.write(render_comparison(comparison, str(against), verbose=verbose, **OUT.looks))
    return exit_status(report, fail_on.value)


def _alike(system: System, compat: Compat, python: str | None, timeout: float) -> tuple[Facts, Report]:
    """(what is seen, the judgement of it redacted as `capture` does it): only that can be compared with a bundle."""
    from tfdoctor.cli.capture import look

    captured = look(system, compat, python=python, timeout=timeout, local=True)
    return captured.facts, captured.report


def fixing(report: Report, system: System) -> str | None:
    """The command that fixes something of this; None where it would find nothing to do."""
    python = value_of(report.facts.python)
    choice = report.facts.choice
    if python is None or (choice is not None and any(one.variable != ASKED for one in choice.lost)):
        return None  # nothing to be fixed, or a Python that nobody meant
    environment = environment_of(report, kind_of(python.prefix), inherited(system, python.prefix))
    if environment is None or not ways(report, environment):
        return None
    asked = python.requested.startswith(("$", "python3 on", "python on"))
    return "tfdoctor fix" if asked else f"tfdoctor fix --python {shlex.quote(clean_line(python.executable))}"


def exit_status(report: Report, fail_on: str) -> ExitCode:
    """1 where a finding is at or above `fail_on`; 3 where there is none, and nothing could be known either."""
    if fail_on == "never":
        return ExitCode.OK
    least = Severity[fail_on.upper()]
    if any(finding.severity >= least for finding in report.findings):
        return ExitCode.FOUND
    return ExitCode.IMPOSSIBLE if _nothing_known(report) else ExitCode.OK


def _nothing_known(report: Report) -> bool:
    """Whether the Python or its TensorFlow could not be looked at: then no finding says nothing.

    That there is no TensorFlow is known; so is a verdict that lacks a smaller thing, which a finding names.
    """
    looked_at = (report.facts.python, report.facts.tensorflow)
    return report.observed is None and any(isinstance(fact, Unknown) for fact in looked_at)
