"""The report in a terminal: readable without colour, in 40 columns, in a pipe and in any locale."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from tfdoctor import __version__
from tfdoctor.facts import value_of
from tfdoctor.findings import OutcomeKind, Severity, Status
from tfdoctor.render import terminal
from tfdoctor.render.terminal import hanging
from tfdoctor.text import clean, clean_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from tfdoctor.findings import Finding, Remedy, Report

MARKS = {Status.GOOD: "✓", Status.WARNING: "!", Status.BAD: "✗", Status.UNKNOWN: "–"}
STYLES = {Status.GOOD: "green", Status.WARNING: "yellow", Status.BAD: "bold red", Status.UNKNOWN: "dim"}
SEVERITY_STATUS = {
    Severity.ERROR: Status.BAD,
    Severity.WARNING: Status.WARNING,
    Severity.INFO: Status.UNKNOWN,
}


def print_report(
    report: Report, *, verbose: bool = False, quiet: bool = False, mend: str | None = None
) -> None:
    """Write the report to standard output. `mend`: the command that mends something of it."""
    columns, coloured = terminal.width(), terminal.colour()
    terminal.write(
        render_report(report, verbose=verbose, quiet=quiet, width=columns, colour=coloured, mend=mend)
    )


def render_report(
    report: Report,
    *,
    verbose: bool = False,
    quiet: bool = False,
    width: int = 80,
    colour: bool = False,
    mend: str | None = None,
) -> str:
    """The report as text, `width` columns wide. Commands are never wrapped: they are there to be copied."""
    out = terminal.page(width, coloured=colour)
    if quiet:
        _verdict(out, report)
    else:
        _heading(out, report)
        _areas(out, report)
        _verdict(out, report)
        if report.root is not None:
            explained(out, report.root, verbose=verbose)
        _others(out, report, verbose=verbose)
        if verbose:
            _reasons(out, report)
        if verbose or report.verdict.gpu_usable:  # "could not be made" under a good word needs its reason
            _rules(out, report)
        _compared(out, report)
        _last(out, report)
        if mend is not None:
            out.print(
                Text("Mend: ", style="dim") + Text(f"{mend}  (shows what it does, and asks)", style="cyan")
            )
    return terminal.text_of(out)


def _heading(out: Console, report: Report) -> None:
    python, choice = value_of(report.facts.python), report.facts.choice
    where = f"{python.executable} (Python {python.version})" if python is not None else "no Python answered"
    if python is None and choice is not None:
        where = f"{choice.path} (no answer)"
    if choice is not None and choice.why:
        where = f"{where}, {choice.why}"
    for lost in choice.lost if choice is not None else ():
        where += f"; {lost.variable} ({lost.prefix}) cannot be used"
    out.print(Text(clean_line(f"tfdoctor {__version__} · {where}"), style="dim"))
    out.print()


def _areas(out: Console, report: Report) -> None:
    wide = max(len(area.name) for area in report.areas)
    for area in report.areas:
        mark = Text(f"{MARKS[area.status]} ", style=STYLES[area.status])
        hanging(out, mark + Text(area.name.ljust(wide + 2), style="bold"), clean_line(area.text))
    out.print()


def _verdict(out: Console, report: Report) -> None:
    usable = report.verdict.gpu_usable
    status = {True: Status.GOOD, False: Status.BAD, None: Status.WARNING}[usable]
    code = f" [{report.root.code}]" if report.root is not None else ""
    mark = Text(f"{MARKS[status]} ", style=STYLES[status])
    hanging(out, mark, clean_line(report.verdict.summary) + code, style="bold")


def explained(out: Console, finding: Finding, *, verbose: bool) -> None:
    """Why, what to do, and where it was seen."""
    out.print()
    hanging(out, Text("  Why   ", style="dim"), clean_line(finding.explanation, limit=2000))
    _remedies(out, finding.remedies)
    if verbose:
        _evidence(out, finding)


def _remedies(out: Console, remedies: Sequence[Remedy]) -> None:
    for number, remedy in enumerate(remedies):
        out.print()
        label = "  Do    " if number == 0 else "  Or    "
        text = clean_line(remedy.text, limit=1000)
        if text.startswith("Or "):
            text = text[3:4].upper() + text[4:]
        hanging(out, Text(label, style="dim"), text)
        for command in remedy.commands:
            for line in clean(command).splitlines():
                out.print(
                    Text(f"          {line}", style="cyan"), no_wrap=True, overflow="ignore", crop=False
                )


def _evidence(out: Console, finding: Finding) -> None:
    if not finding.evidence:
        return
    out.print()
    for evidence in finding.evidence:
        where = f"{evidence.source}:{evidence.line}" if evidence.line else evidence.source
        hanging(
            out,
            Text("  Seen  ", style="dim"),
            f"{clean_line(where)}: {clean_line(evidence.text)}",
            style="dim",
        )


def _others(out: Console, report: Report, *, verbose: bool) -> None:
    follows = report.consequences
    rest = [f for f in report.findings if f is not report.root and f not in follows]
    if not verbose:
        rest = [f for f in rest if f.severity > Severity.INFO]
    for title, findings in (("Follows from it, or is mended with it:", follows), ("Also found:", rest)):
        if not findings:
            continue
        out.print()
        out.print(Text(title, style="bold"))
        for finding in findings:
            status = SEVERITY_STATUS[finding.severity]
            mark = Text(f"{MARKS[status]} {finding.code}  ", style=STYLES[status])
            hanging(out, mark, clean_line(finding.title))
            if verbose:
                explained(out, finding, verbose=True)
                out.print()


def _reasons(out: Console, report: Report) -> None:
    out.print()
    out.print(Text("How it was judged, in the order in which TensorFlow goes:", style="bold"))
    for reason in report.prediction.reasons:
        hanging(out, Text("  "), clean_line(reason, limit=1000))


def _rules(out: Console, report: Report) -> None:
    unmade = [o for o in report.outcomes if o.kind in (OutcomeKind.COULD_NOT_CHECK, OutcomeKind.CRASHED)]
    if not unmade:
        return
    out.print()
    out.print(Text("Checks that could not be made:", style="bold"))
    for outcome in unmade:
        crashed = "crashed (a defect of tfdoctor): " if outcome.kind is OutcomeKind.CRASHED else ""
        hanging(
            out,
            Text(f"{MARKS[Status.UNKNOWN]} {outcome.code}  ", style="dim"),
            crashed + clean_line(outcome.why),
        )


def _compared(out: Console, report: Report) -> None:
    observed, prediction = report.observed, report.prediction
    if observed is None:
        return
    out.print()
    out.print(Text(f"Predicted, and what TensorFlow did in {observed.seconds:.1f} s:", style="bold"))
    rows = (
        ("imports", prediction.import_ok, observed.import_ok),
        ("registers a GPU", prediction.gpu_registered, observed.gpu_registered),
        ("GPUs", prediction.gpu_count, observed.gpu_count),
        (
            "missing",
            ", ".join(prediction.missing_libraries) or "nothing",
            ", ".join(observed.missing_libraries) or "nothing",
        ),
    )
    for name, said, was in rows:
        same = Status.GOOD if said == was else Status.WARNING
        text = _word(said) if said == was else f"predicted {_word(said)}, was {_word(was)}"
        hanging(out, Text(f"{MARKS[same]} ", style=STYLES[same]) + Text(f"{name:17}"), text)
    for line in observed.computed:
        status = Status.BAD if "failed" in line else Status.GOOD
        hanging(
            out, Text(f"{MARKS[status]} ", style=STYLES[status]) + Text(f"{'a product':17}"), clean_line(line)
        )
    if observed.error:
        hanging(out, Text("  "), clean_line(observed.error))


def _word(value: object) -> str:
    return (
        {True: "yes", False: "no", None: "not known"}[value]
        if isinstance(value, bool) or value is None
        else str(value)
    )


def _last(out: Console, report: Report) -> None:
    counts = report.counts()
    out.print()
    parts = [
        f"{counts['found']} found something",
        f"{counts['clean']} clean",
        f"{counts['not_applicable']} not applicable",
    ]
    if counts["could_not_check"]:
        parts.append(f"{counts['could_not_check']} could not be made (see -v)")
    if counts["crashed"]:
        parts.append(f"{counts['crashed']} crashed")
    out.print(Text(f"{sum(counts.values())} checks: {', '.join(parts)}.", style="dim"))
    out.print(Text("Next: ", style="dim") + Text(_next(report), style="cyan"))


def _next(report: Report) -> str:
    if report.root is not None:
        return f"tfdoctor explain {report.root.code}"
    if report.observed is None and report.verdict.gpu_usable:
        return "tfdoctor check --deep"
    return "tfdoctor check -v" if report.verdict.gpu_usable is None else "tfdoctor explain"
