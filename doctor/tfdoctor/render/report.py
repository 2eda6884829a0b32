"""The report of `check`, as text and as JSON.

The text is readable without colour, in 40 columns, in a pipe and in any locale.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tfdoctor import __version__
from tfdoctor.core.findings import Status
from tfdoctor.core.text import clean_line
from tfdoctor.render.finding import (
    STATUS_BY_SEVERITY,
    format_mark,
    format_outcomes,
    list_failed_checks,
    make_finding_json,
    print_explanation,
)
from tfdoctor.render.json import make_document_head, to_json
from tfdoctor.render.paragraphs import Page, Text, print_hanging
from tfdoctor.render.screen import (
    NAME_COLUMNS,
    UNDO_NOTE,
    list_observations,
    print_heading,
    print_verdict,
    render_screen,
)

if TYPE_CHECKING:
    import enum

    from tfdoctor.core.findings import Observation, Prediction, Report
    from tfdoctor.environments.models import FixOffer

__all__ = ["make_report_json", "render_report"]


def render_report(
    report: Report,
    *,
    verbose: bool = False,
    quiet: bool = False,
    width: int = 80,
    colour: bool = False,
    offer: FixOffer | None = None,
    check_command: str = "tfdoctor check",
) -> str:
    """Return the report as text, at most `width` columns wide.

    The text is shortened to one screen, but `verbose` prints everything and `quiet` only the verdict. `offer` is the
    offer to fix the environment, and `check_command` the command that made the report. Commands can be copied: they are
    not wrapped, but on one screen they may be continued with backslashes.
    """
    if not (verbose or quiet):
        return render_screen(report, offer=offer, check_command=check_command, width=width, colour=colour)
    out = Page(width, coloured=colour)
    if quiet:
        print_verdict(out, report)
        return out.text
    print_heading(out, report)
    print_verdict(out, report)
    main_finding = report.main_finding
    if main_finding is not None:
        if main_finding is not report.root_finding:
            print_hanging(
                out,
                format_mark(STATUS_BY_SEVERITY[main_finding.severity]),
                f"{clean_line(main_finding.title)} [{main_finding.code}]",
            )
        print_explanation(out, main_finding)
    out.print()
    _print_areas(out, report)
    _print_other_findings(out, report)
    _print_reasons(out, report)
    _print_failed_checks(out, report)
    _print_comparison(out, report)
    _print_summary(out, report, offer)
    return out.text


def _print_areas(out: Page, report: Report) -> None:
    """Print a line for each area, with the titles of its findings."""
    for area in report.areas:
        text = clean_line(area.text)
        root_titles = [
            finding.short_title
            for finding in area.findings
            if finding is report.root_finding and finding.short_title and not area.explains_status
        ]
        titles = root_titles + [
            f"{finding.title} [{finding.code}]"
            for finding in area.findings
            if finding is not report.root_finding
        ]
        text = "; ".join([text, *map(clean_line, titles)])
        print_hanging(out, format_mark(area.status) + Text(area.name.ljust(NAME_COLUMNS), style="bold"), text)


def _print_other_findings(out: Page, report: Report) -> None:
    """Print the findings that follow from the root cause, and then all others."""
    consequences = report.consequences
    other_findings = [
        finding
        for finding in report.findings
        if finding is not report.main_finding and finding not in consequences
    ]
    for title, findings in (
        ("Follows from it, or is fixed with it:", consequences),
        ("Also found:", other_findings),
    ):
        if not findings:
            continue
        out.print()
        out.print(Text(title, style="bold"))
        for finding in findings:
            status = STATUS_BY_SEVERITY[finding.severity]
            print_hanging(out, format_mark(status, f"{finding.code}  "), clean_line(finding.title))
            print_explanation(out, finding)
            out.print()


def _print_reasons(out: Page, report: Report) -> None:
    out.print()
    out.print(Text("How TensorFlow will decide:", style="bold"))
    for reason in report.prediction.reasons:
        print_hanging(out, Text("  "), clean_line(reason, limit=1000))


def _print_failed_checks(out: Page, report: Report) -> None:
    failed_checks = list_failed_checks(report)
    if not failed_checks:
        return
    out.print()
    out.print(Text("Checks that could not run:", style="bold"))
    for code, reason in failed_checks:
        print_hanging(out, format_mark(Status.UNKNOWN, f"{code}  "), reason)


def _print_comparison(out: Page, report: Report) -> None:
    """Print the behaviour of TensorFlow and its differences from the prediction, if TensorFlow was run."""
    observed = report.observed
    if observed is None:
        return
    out.print()
    out.print(Text(f"Predicted, and what TensorFlow did in {observed.seconds:.1f} s:", style="bold"))
    for name, predicted, actual in list_observations(report.prediction, observed):
        row_status = Status.GOOD if predicted == actual else Status.WARNING
        text = actual if predicted == actual else f"predicted {predicted}, was {actual}"
        print_hanging(out, format_mark(row_status) + Text(f"{name:17}"), text)
    for line in observed.computed:
        status = Status.BAD if "failed" in line else Status.GOOD
        print_hanging(out, format_mark(status) + Text(f"{'computes':17}"), clean_line(line))
    if observed.error:
        print_hanging(out, Text("  "), clean_line(observed.error))


def _print_summary(out: Page, report: Report, fix: FixOffer | None) -> None:
    """Print the number of checks by outcome, and the next commands."""
    out.print()
    out.print(Text(format_outcomes(report)))
    if report.main_finding is not None:
        out.print(Text("Read more: ") + Text(f"tfdoctor explain {report.main_finding.code}"))
    elif report.observed is None and report.verdict.gpu_usable:
        out.print(Text("Run a real computation: ") + Text("tfdoctor check --deep"))
    if fix is not None:
        out.print(Text("Fix it:    ") + Text(clean_line(fix.command), style="bold"), wrap=False)
        print_hanging(out, Text("           "), UNDO_NOTE)


# ---------------------------------------------------------------- JSON


def make_report_json(report: Report) -> dict[str, Any]:
    """Return the document that `check --json` prints."""
    return {
        **make_document_head("check"),
        "tool": {"name": "tfdoctor", "version": __version__},
        "verdict": {
            "gpu_usable": report.verdict.gpu_usable,
            "cause": _get_value(report.verdict.cause),
            "summary": report.verdict.summary,
        },
        "prediction": _make_prediction_json(report.prediction),
        "observed": _make_observation_json(report.observed) if report.observed is not None else None,
        "facts": to_json(report.facts),
        "values": _make_values_json(report),
        "at": round(time.time(), 3),
        "outcomes": report.count_outcomes(),
        "rules": [
            {"code": outcome.code, "outcome": outcome.kind.value, "why": outcome.reason}
            for outcome in report.outcomes
        ],
        "findings": [make_finding_json(finding) for finding in report.findings],
        **(
            {"ignored": list(map(make_finding_json, report.ignored_findings))}
            if report.ignored_findings
            else {}
        ),
    }


def _make_values_json(report: Report) -> list[dict[str, Any]]:
    """Return the JSON of the values that `fleet` and `check --against` compare."""
    from tfdoctor.diagnosis.diff.flatten import make_snapshot

    return [
        {
            "area": entry.area,
            "name": entry.name,
            "value": entry.value,
            **({"unknown": clean_line(entry.unknown_reason)} if entry.unknown_reason else {}),
            **({"little": True} if entry.is_minor else {}),
        }
        for entry in make_snapshot(report.facts).values()
    ]


def _get_value(value: enum.Enum | None) -> str | None:
    return None if value is None else str(value.value)


def _make_prediction_json(prediction: Prediction) -> dict[str, Any]:
    return {
        "gpu_registered": prediction.gpu_registered,
        "gpu_count": prediction.gpu_count,
        "missing_libraries": list(prediction.missing_libraries),
        "cause": _get_value(prediction.cause),
        "import_ok": prediction.import_ok,
        "reasons": list(prediction.reasons),
    }


def _make_observation_json(observed: Observation) -> dict[str, Any]:
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
