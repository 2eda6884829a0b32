"""The HTML page of `diagnose`: the log with the decisive lines marked, the cause and the remedy."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tfdoctor.logs.excerpt import Excerpt, list_evidence_lines
from tfdoctor.render.html.check import make_finding_values, make_status_values
from tfdoctor.render.html.document import render_page
from tfdoctor.render.log_markdown import learn_line_prefixes, redact_line_prefix, redact_report
from tfdoctor.render.log_screen import choose_log_status, describe_log, format_device, format_process

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.core.privacy.redactor import Redactor
    from tfdoctor.logs.report import LogReport

__all__ = ["make_logs_html"]

MIN_FOLDED_LINES = 8
"""The smallest number of consecutive noise lines that are folded."""


def make_logs_html(logs: Sequence[tuple[LogReport, Excerpt]], redactor: Redactor) -> bytes:
    """Return the redacted HTML page of one or several logs.

    `logs` contains, for each log, its report and the excerpt that the page shows.
    """
    log_values = []
    for index, (report, excerpt) in enumerate(logs):
        redacted_report, redacted_excerpt = _redact_log(report, excerpt, redactor)
        log_values.append(_make_log_values(redacted_report, redacted_excerpt, index))
    return render_page(
        "log",
        logs=log_values,
        title=log_values[0]["title"] if len(log_values) == 1 else f"{len(log_values)} logs",
    )


def _redact_log(report: LogReport, excerpt: Excerpt, redactor: Redactor) -> tuple[LogReport, Excerpt]:
    """Return the report and the excerpt, redacted."""
    lines = [text for part in excerpt.parts for _, text in part.lines]
    learn_line_prefixes(lines, redactor)
    redacted_by_text = redactor.redact_texts([report.headline, report.name, *lines])
    parts = tuple(
        replace(
            part,
            lines=tuple(
                (number, redact_line_prefix(redacted_by_text[text], redactor)) for number, text in part.lines
            ),
        )
        for part in excerpt.parts
    )
    # The root is one of the findings, so it is replaced by the redacted finding with the same index.
    root_index = next(
        (index for index, item in enumerate(report.findings) if item is report.root_finding), None
    )
    redacted_report = redact_report(report, redactor)
    root = None if root_index is None else redacted_report.findings[root_index]
    named_report = replace(
        redacted_report,
        root_finding=root,
        headline=redacted_by_text[report.headline],
        name=redacted_by_text[report.name],
    )
    return named_report, Excerpt(parts, excerpt.omitted_after)


def _make_log_values(report: LogReport, excerpt: Excerpt, index: int) -> dict[str, Any]:
    """Return a log as values for the template. `index` is its position on the page."""
    root = report.root_finding
    deciding_lines = list_evidence_lines(report)
    return {
        "name": report.name,
        "anchor": "" if index == 0 else f"{index + 1}-",
        "title": report.headline or report.summary,
        "status": make_status_values(choose_log_status(report)),
        "root": None if root is None else make_finding_values(root),
        "notes": [make_finding_values(item) for item in report.findings if item is not root],
        "devices": [format_device(item) for item in report.registered_devices],
        "processes": [(sign, text) for sign, _, text in map(format_process, report.processes)],
        "more_processes": report.extra_process_count,
        "read": describe_log(report),
        "parts": [
            {
                "missing": part.omitted_before,
                "fold": part.is_noise and len(part.lines) >= MIN_FOLDED_LINES,
                "lines": [(number, text, number in deciding_lines) for number, text in part.lines],
            }
            for part in excerpt.parts
        ],
        "after": excerpt.omitted_after,
    }
