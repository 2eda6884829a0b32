"""The report in a terminal, readable without colour, in 40 columns, in a pipe and in any locale; and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfdoctor import __version__
from tfdoctor.facts import value_of
from tfdoctor.findings import OutcomeKind, Severity, Status
from tfdoctor.render.finding import SEVERITY_STATUS, explained, finding_json, mark
from tfdoctor.render.json import SCHEMA_VERSION, plain
from tfdoctor.render.page import Page, Text, hanging
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    import enum

    from tfdoctor.findings import Observation, Prediction, Report

__all__ = ["render_report", "report_json"]


def render_report(
    report: Report,
    *,
    verbose: bool = False,
    quiet: bool = False,
    width: int = 80,
    colour: bool = False,
    fix: str | None = None,
) -> str:
    """The report as text, `width` columns wide. Commands are never wrapped: they are there to be copied."""
    out = Page(width, coloured=colour)
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
        if verbose or report.verdict.gpu_usable:  # "could not be run" under a good word needs its reason
            _rules(out, report)
        _compared(out, report)
        _last(out, report, verbose=verbose)
        if fix is not None:
            out.print(
                Text("Fix:  ", style="dim") + Text(f"{fix}  (shows what it does, and asks)", style="cyan")
            )
    return out.text


def _heading(out: Page, report: Report) -> None:
    python, choice = value_of(report.facts.python), report.facts.choice
    where = f"{python.executable} (Python {python.version})" if python is not None else "no Python answered"
    if python is None and choice is not None:
        where = f"{choice.path} (no answer)"
    if choice is not None and choice.why:
        where = f"{where}, {choice.why}"
    if choice is not None and choice.on_path:
        where += f" ({choice.how}), while the shell finds another Python: {choice.on_path}"
    for lost in choice.lost if choice is not None else ():
        where += f"; {lost.variable} ({lost.prefix}) cannot be used"
    out.print(Text(clean_line(f"tfdoctor {__version__} · {where}"), style="dim"))
    out.print()


def _areas(out: Page, report: Report) -> None:
    wide = max(len(area.name) for area in report.areas)
    for area in report.areas:
        hanging(out, mark(area.status) + Text(area.name.ljust(wide + 2), style="bold"), clean_line(area.text))
    out.print()


def _verdict(out: Page, report: Report) -> None:
    usable = report.verdict.gpu_usable
    status = {True: Status.GOOD, False: Status.BAD, None: Status.WARNING}[usable]
    code = f" [{report.root.code}]" if report.root is not None else ""
    hanging(out, mark(status), clean_line(report.verdict.summary) + code, style="bold")


def _others(out: Page, report: Report, *, verbose: bool) -> None:
    follows = report.consequences
    rest = [f for f in report.findings if f is not report.root and f not in follows]
    if not verbose:
        rest = [f for f in rest if f.severity > Severity.INFO]
    for title, findings in (("Follows from it, or is fixed with it:", follows), ("Also found:", rest)):
        if not findings:
            continue
        out.print()
        out.print(Text(title, style="bold"))
        for finding in findings:
            status = SEVERITY_STATUS[finding.severity]
            hanging(out, mark(status, f"{finding.code}  "), clean_line(finding.title))
            if verbose:
                explained(out, finding, verbose=True)
                out.print()


def _reasons(out: Page, report: Report) -> None:
    out.print()
    out.print(Text("How it was judged, in the order in which TensorFlow goes:", style="bold"))
    for reason in report.prediction.reasons:
        hanging(out, Text("  "), clean_line(reason, limit=1000))


def _rules(out: Page, report: Report) -> None:
    unmade = [o for o in report.outcomes if o.kind in (OutcomeKind.COULD_NOT_CHECK, OutcomeKind.CRASHED)]
    if not unmade:
        return
    out.print()
    out.print(Text("Checks that could not be run:", style="bold"))
    for outcome in unmade:
        crashed = "crashed (a defect of tfdoctor): " if outcome.kind is OutcomeKind.CRASHED else ""
        hanging(
            out,
            mark(Status.UNKNOWN, f"{outcome.code}  "),
            crashed + clean_line(outcome.why),
        )


def _compared(out: Page, report: Report) -> None:
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
        text = _said(said) if said == was else f"predicted {_said(said)}, was {_said(was)}"
        hanging(out, mark(same) + Text(f"{name:17}"), text)
    for line in observed.computed:
        status = Status.BAD if "failed" in line else Status.GOOD
        hanging(out, mark(status) + Text(f"{'a product':17}"), clean_line(line))
    if observed.error:
        hanging(out, Text("  "), clean_line(observed.error))


def _said(value: object) -> str:
    return (
        {True: "yes", False: "no", None: "not known"}[value]
        if isinstance(value, bool) or value is None
        else str(value)
    )


def _last(out: Page, report: Report, *, verbose: bool) -> None:
    counts = report.counts()
    out.print()
    parts = [
        f"{counts['found']} found something",
        f"{counts['clean']} clean",
        f"{counts['not_applicable']} not applicable",
    ]
    if counts["could_not_check"]:
        parts.append(f"{counts['could_not_check']} could not be run{'' if verbose else ' (see -v)'}")
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


# ---------------------------------------------------------------- JSON


def report_json(report: Report) -> dict[str, Any]:
    """`check --json`."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "tfdoctor", "version": __version__},
        "verdict": {
            "gpu_usable": report.verdict.gpu_usable,
            "cause": _word(report.verdict.cause),
            "summary": report.verdict.summary,
        },
        "prediction": _prediction(report.prediction),
        "observed": _observation(report.observed) if report.observed is not None else None,
        "facts": plain(report.facts),
        "outcomes": report.counts(),
        "rules": [
            {"code": outcome.code, "outcome": outcome.kind.value, "why": outcome.why}
            for outcome in report.outcomes
        ],
        "findings": [finding_json(finding) for finding in report.findings],
    }


def _word(value: enum.Enum | None) -> str | None:
    return None if value is None else str(value.value)


def _prediction(prediction: Prediction) -> dict[str, Any]:
    return {
        "gpu_registered": prediction.gpu_registered,
        "gpu_count": prediction.gpu_count,
        "missing_libraries": list(prediction.missing_libraries),
        "cause": _word(prediction.cause),
        "import_ok": prediction.import_ok,
        "reasons": list(prediction.reasons),
    }


def _observation(observed: Observation) -> dict[str, Any]:
    return {
        "import_ok": observed.import_ok,
        "gpu_registered": observed.gpu_registered,
        "gpu_count": observed.gpu_count,
        "missing_libraries": list(observed.missing_libraries),
        "seconds": observed.seconds,
        "devices": list(observed.devices),
        "computed": list(observed.computed),
        "error": observed.error,
    }
