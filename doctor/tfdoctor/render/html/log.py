"""What `diagnose` says, as a page: the log with the lines that decided, and beside it the cause and what to type."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tfdoctor.findings import Cause, Severity, Status
from tfdoctor.logs.excerpt import Excerpt, list_deciding_lines
from tfdoctor.render.finding import MARKS
from tfdoctor.render.html.check import finding_values
from tfdoctor.render.html.document import document
from tfdoctor.render.log_markdown import redact_report
from tfdoctor.render.log_screen import describe_log, device_text, process_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.logs.report import LogReport
    from tfdoctor.privacy.redactor import Redactor

__all__ = ["logs_html"]

FOLDED = 8
"""Lines of noise from which on they are folded."""


def logs_html(logs: Sequence[tuple[LogReport, Excerpt]], redactor: Redactor) -> bytes:
    """Return the page of one log or of several, redacted: of each its report and what is shown of it."""
    shown = [
        _log(*_redact_both(report, excerpt, redactor), place) for place, (report, excerpt) in enumerate(logs)
    ]
    return document("log", logs=shown, title=shown[0]["title"] if len(shown) == 1 else f"{len(shown)} logs")


def _redact_both(report: LogReport, excerpt: Excerpt, redactor: Redactor) -> tuple[LogReport, Excerpt]:
    """Return both without anything that tells who and where somebody is."""
    made = redactor.texts(
        [report.headline, report.name, *(text for part in excerpt.parts for _, text in part.lines)]
    )
    parts = tuple(
        replace(part, lines=tuple((number, made[text]) for number, text in part.lines))
        for part in excerpt.parts
    )
    place = next((at for at, one in enumerate(report.findings) if one is report.root), None)
    published = redact_report(report, redactor)
    root = None if place is None else published.findings[place]
    named = replace(published, root=root, headline=made[report.headline], name=made[report.name])
    return named, Excerpt(parts, excerpt.after)


def _log(report: LogReport, excerpt: Excerpt, place: int) -> dict[str, Any]:
    root = report.root
    status = Status.BAD
    if report.cause is Cause.HEALTHY:
        status = Status.GOOD
    elif root is None or root.severity < Severity.ERROR:
        status = Status.WARNING
    hits = list_deciding_lines(report)
    return {
        "name": report.name,
        "anchor": "" if place == 0 else f"{place + 1}-",
        "title": report.headline or report.summary,
        "status": {"status": status.value, "sign": MARKS[status]},
        "root": None if root is None else finding_values(root),
        "notes": [finding_values(one) for one in report.findings if one is not root],
        "devices": [device_text(one) for one in report.devices],
        "processes": [(sign, text) for sign, _, text in map(process_row, report.processes)],
        "more_processes": report.more_processes,
        "read": describe_log(report),
        "parts": [
            {
                "missing": part.missing,
                "fold": part.noise and len(part.lines) >= FOLDED,
                "lines": [(number, text, number in hits) for number, text in part.lines],
            }
            for part in excerpt.parts
        ],
        "after": excerpt.after,
    }
