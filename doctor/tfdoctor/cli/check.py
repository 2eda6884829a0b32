"""`tfdoctor check`. The examined Python is asked first of all; the rest is loaded while it looks."""

from __future__ import annotations

import importlib
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tfdoctor.cli.options import (
    FailOn,
    Force,
    Html,
    Json,
    Quiet,
    Severe,
    Simulate,
    Timeout,
    Yes,
    argument,
    command,
    option,
    verbose_option,
)
from tfdoctor.errors import Error, ExitCode, UsageError
from tfdoctor.examine import begin, evaluate_facts, examine, live_machine, run_tensorflow
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from tfdoctor.cli.capture import Captured
    from tfdoctor.compat import Compat
    from tfdoctor.environment.models import Offer
    from tfdoctor.findings import Report
    from tfdoctor.report.diff import Comparison
    from tfdoctor.system import RecordedSystem, System


@command
def check(
    folder: Annotated[str | None, argument("The same as --python FOLDER.", metavar="[FOLDER]")] = None,
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
    simulate: Simulate = None,
    driver: Annotated[
        str | None, option("With --simulate: behind this driver. Default: the newest.", metavar="V")
    ] = None,
    facts: Annotated[
        Path | None,
        option("Judge a recorded machine (what `capture` wrote) instead of this one.", metavar="BUNDLE"),
    ] = None,
    against: Annotated[
        Path | None,
        option(
            "Report what differs from a recorded machine: this one when it still worked, or another one.",
            metavar="BUNDLE",
        ),
    ] = None,
    then_fix: Annotated[
        bool, option("Then do what `tfdoctor fix` does: show the changes, ask, make them.", "--fix")
    ] = False,
    yes: Yes = False,
    timeout: Timeout = 10.0,
    fail_on: Severe = FailOn.error,
    html: Html = None,
    force: Force = False,
    as_json: Json = False,
    verbose: Annotated[bool, verbose_option("Show the evidence and every check.")] = False,
    quiet: Quiet = False,
) -> int:
    """Look, judge, print. Returns the exit status.

    Looks at the driver, the Python environment and the loader, and predicts what TensorFlow will do,
    without importing it. Changes nothing without --fix, and sends nothing.

    Exit status: 0 nothing found, 1 found (--fail-on), 3 if it could not be determined whether TensorFlow will use a
    GPU and nothing else was found. With --fail-on never it is 0 in all three cases. With --fix, exit status and JSON
    are those of `tfdoctor fix`.
    """
    _agree(deep=deep, facts=facts, against=against, then_fix=then_fix, yes=yes, fail_on=fail_on)
    if html is not None:
        from tfdoctor.system.writing import check_file

        if then_fix:
            raise UsageError("--html cannot be combined with --fix.", hint="Run it again after the fix.")
        check_file(html, force=force, option="--html", reads=[facts, against])
    if simulate or driver is not None:
        alone = not (folder or facts or against or then_fix or html) and fail_on is FailOn.error
        return _check_simulated(
            simulate or [],
            driver,
            python,
            timeout,
            deep=deep,
            alone=alone,
            as_json=as_json,
            verbose=verbose,
            quiet=quiet,
        )
    if folder is not None:
        python = _describe_folder(folder, python, facts)
    asked = python
    if then_fix and as_json:
        return _fix(asked, timeout, yes=yes, as_json=True, verbose=verbose, quiet=quiet)
    live = live_machine(python if facts is None else None)
    system: System = live
    then: RecordedSystem | None = None
    if facts is not None or against is not None:
        from tfdoctor.system import RecordedSystem

        if facts is not None:
            recorded = RecordedSystem(facts)
            system, python = recorded, python or recorded.python
        then = RecordedSystem(against) if against is not None else None
    if facts is None:
        begin(live, python, timeout=timeout)
    try:
        alike = (then is not None and facts is None) or html is not None
        local = facts is None
        report, captured, compat = _examine_machine(
            system, python, timeout, deep=deep, alike=alike, local=local, quiet=quiet
        )
        comparison = None
        if then is not None:
            published = captured.report if captured is not None and local else report
            comparison = _compare_reports(then, published, compat, timeout)
        fix = None
        if facts is None and (html is not None or not (quiet or as_json)):
            from tfdoctor.environment.fix_availability import offer

            fix = offer(report, system)
        typed = _format_own_command(python=asked, facts=facts)
        if html is not None and captured is not None:
            _write_page(html, report, captured, compat, fix=fix, typed=typed, force=force, quiet=quiet)
        if as_json:
            _write_json(report, comparison, against)
        else:
            _write(report, comparison, against, verbose=verbose, quiet=quiet, fix=fix, typed=typed)
    except BaseException:  # what was begun may not have been asked for yet
        system.stop()
        raise
    if then_fix:
        from tfdoctor.render.terminal import OUT

        OUT.write("\n")
        return _fix(asked, timeout, yes=yes, as_json=False, verbose=verbose, quiet=quiet)
    return exit_status(report, fail_on.value)


def _check_simulated(
    names: list[str],
    driver: str | None,
    python: str | None,
    timeout: float,
    *,
    deep: bool,
    alone: bool,
    as_json: bool,
    verbose: bool,
    quiet: bool,
) -> int:
    """`check --deep --simulate CARD`: look, and run TensorFlow, beside a stand-in. Raises UsageError, CompilerError."""
    if not deep or not alone:
        raise UsageError(
            "--simulate shows TensorFlow a stand-in: it goes with --deep, --python and how things are shown, no more.",
            hint='tfdoctor check --deep --simulate "RTX 4090"',
        )
    from tfdoctor.cli.simulation_options import (
        label,
        live_with_stand_in,
        parse_simulation,
        show_simulation_note,
    )
    from tfdoctor.compat import Compat
    from tfdoctor.render.json import write_json
    from tfdoctor.render.report import report_json
    from tfdoctor.render.verify import simulation_json
    from tfdoctor.simulate.facts import AsSimulated
    from tfdoctor.verify.session import PROVES

    compat = Compat.load()
    asked = parse_simulation(compat, names, driver=driver)
    if asked is None:
        raise UsageError("--driver belongs to --simulate: a real driver is what it is.")
    system, as_if = live_with_stand_in(python, asked), AsSimulated()
    report = examine(system, compat, python=python, timeout=timeout, deep=True, as_if=as_if)
    if as_if.other is not None:
        msg = f"nothing could be simulated: the loader finds {clean_line(as_if.other)} before the stand-in."
        raise Error(msg, hint="Take its folder off LD_LIBRARY_PATH.")
    if as_json:
        answer = report_json(report)
        answer["verdict"]["gpu_usable"] = False if report.verdict.gpu_usable is False else None
        seen = report.observed
        shown = {"import": seen is not None and seen.import_ok, "visible": bool(seen and seen.gpu_registered)}
        proves = [PROVES[name] for name, true in shown.items() if true]
        write_json({**answer, "simulated": simulation_json(asked.simulation(proves))})
    else:
        label(asked, quiet=quiet)
        _write(report, None, None, verbose=verbose, quiet=quiet, fix=None, typed="tfdoctor check")
        show_simulation_note(quiet=quiet)
    return exit_status(report, FailOn.error.value)


def _agree(
    *, deep: bool, facts: Path | None, against: Path | None, then_fix: bool, yes: bool, fail_on: FailOn
) -> None:
    """Raises UsageError where options contradict each other."""
    if deep and facts is not None:
        raise UsageError("--deep runs TensorFlow here; a recorded machine (--facts) cannot run it.")
    if then_fix and not (facts is None and against is None):
        raise UsageError("--fix changes this machine: it cannot be combined with --facts or --against.")
    if then_fix and fail_on is not FailOn.error:
        raise UsageError(
            "--fail-on cannot be combined with --fix, whose exit status is that of `tfdoctor fix`."
        )
    if yes and not then_fix:
        raise UsageError("--yes needs --fix.")


def _describe_folder(folder: str, python: str | None, facts: Path | None) -> str:
    """Return what `check FOLDER` means: `--python FOLDER`.

    Raises UsageError if it is something else; no file is run.
    """
    if python is not None or facts is not None:
        raise UsageError(
            "check FOLDER is check --python FOLDER: it cannot be combined with --python or --facts."
        )
    from tfdoctor.system.archive import HOST

    typed = shlex.quote(clean_line(folder))
    if (Path(folder) / HOST).is_file():
        msg = f"{typed} is a recorded machine."
        raise UsageError(msg, hint=f"tfdoctor check --facts {typed}")
    if Path(folder).is_file():
        msg = f"{typed} is not an environment's folder."
        raise UsageError(
            msg,
            hint=f"A log: tfdoctor diagnose {typed}. A Python: --python {typed}. A recorded machine: --facts {typed}.",
        )
    if not os.path.lexists(folder):
        msg = f"{typed} does not exist."
        raise UsageError(
            msg, hint=f"Expected an environment's folder; for a Python on PATH: --python {typed}."
        )
    return folder


def _fix(python: str | None, timeout: float, *, yes: bool, as_json: bool, verbose: bool, quiet: bool) -> int:
    from tfdoctor.cli.fix import fix

    return fix(python=python, yes=yes, timeout=timeout, as_json=as_json, verbose=verbose, quiet=quiet)


def _examine_machine(
    system: System, python: str | None, timeout: float, *, deep: bool, alike: bool, local: bool, quiet: bool
) -> tuple[Report, Captured | None, Compat]:
    """Return (the judgement, the machine redacted where that is needed (`alike`), the tables). local: it is this
    machine.
    """
    from tfdoctor.compat import Compat

    def tell(text: str) -> None:
        from tfdoctor.render.progress import progress
        from tfdoctor.render.terminal import ERR

        with progress(quiet=quiet or not ERR.watched, moving=False) as told:
            told.stage(text)

    compat = Compat.load()
    if not alike:
        report = examine(
            system,
            compat,
            python=python,
            timeout=timeout,
            deep=deep,
            tell=tell,
            meanwhile=lambda: _load(compat),
        )
        return report, None, compat
    from tfdoctor.cli.capture import look

    # Redacted as `capture` does it: only that can be compared with a bundle, and only that is published.
    captured = look(system, compat, python=python, timeout=timeout, local=local)
    report = captured.machine
    if deep:
        observed = run_tensorflow(system, compat, report.facts, timeout=timeout, tell=tell)
        report = evaluate_facts(report.facts, compat, observed)
    return report, captured, compat


def _load(compat: Compat) -> None:
    """What judges and tells is loaded while the probes look. Nothing that a probe may import: see `survey`."""
    compat.prepare()
    for name in ("report.diagnose", "render.report", "environment.fix_availability"):
        importlib.import_module(f"tfdoctor.{name}")


def _compare_reports(then: RecordedSystem, report: Report, compat: Compat, timeout: float) -> Comparison:
    from tfdoctor.report.diff import compare

    return compare(examine(then, compat, python=then.python, timeout=timeout), report)


def _write_page(
    target: Path,
    report: Report,
    captured: Captured,
    compat: Compat,
    *,
    fix: Offer | None,
    typed: str,
    force: bool,
    quiet: bool,
) -> None:
    """The page of the redacted machine. Raises UsageError, Error."""
    from dataclasses import replace

    from tfdoctor.cli.html_file import write_page
    from tfdoctor.render.html.check import report_html

    text = captured.redactor.text
    shown = captured.report
    if report.observed is not None:
        seen = report.observed
        seen = replace(
            seen,
            error=text(seen.error),
            devices=tuple(map(text, seen.devices)),
            computed=tuple(map(text, seen.computed)),
        )
        shown = evaluate_facts(shown.facts, compat, seen)
    main = report.main
    offered = fix if fix is not None and any(one is main for one in fix.findings) else None
    page = report_html(
        shown,
        typed=text(typed),
        fix=None if offered is None else text(offered.command),
        differences=captured.differences,
    )
    write_page(target, page, force=force, quiet=quiet)


def _write_json(report: Report, comparison: Comparison | None, against: Path | None) -> None:
    from tfdoctor.render.diff import comparison_json
    from tfdoctor.render.json import write_json
    from tfdoctor.render.report import report_json

    answer = report_json(report)
    if comparison is not None:
        answer |= comparison_json(comparison, str(against))
    write_json(answer)


def _write(
    report: Report,
    comparison: Comparison | None,
    against: Path | None,
    *,
    verbose: bool,
    quiet: bool,
    fix: Offer | None,
    typed: str,
) -> None:
    from tfdoctor.render.report import render_report
    from tfdoctor.render.terminal import OUT

    shown = render_report(report, verbose=verbose, quiet=quiet, fix=fix, typed=typed, **OUT.looks)
    OUT.write(shown)
    if comparison is not None and not quiet:
        from tfdoctor.render.diff import render_comparison

        OUT.write(render_comparison(comparison, str(against), verbose=verbose, **OUT.looks))


def _format_own_command(**options: object) -> str:
    """Return this command as it was typed, without how it is to be shown."""
    named = (f" --{name} {shlex.quote(clean_line(str(value)))}" for name, value in options.items() if value)
    return "tfdoctor check" + "".join(named)


def exit_status(report: Report, fail_on: str) -> ExitCode:
    """Return 1 where a finding is at or above `fail_on`.

    3 where there is none, and the answer could not be known either.
    """
    from tfdoctor.findings import Severity

    if fail_on == "never":
        return ExitCode.OK
    least = Severity[fail_on.upper()]
    if any(finding.severity >= least for finding in report.findings):
        return ExitCode.FOUND
    return ExitCode.IMPOSSIBLE if _has_unknown(report) else ExitCode.OK


def _has_unknown(report: Report) -> bool:
    """Return whether something on the way could not be judged: then no finding says nothing.

    That there is no TensorFlow is known; so is a verdict that lacks a smaller thing, which a finding names.
    """
    from tfdoctor.facts import Absent

    return report.verdict.gpu_usable is None and not isinstance(report.facts.tensorflow, Absent)
