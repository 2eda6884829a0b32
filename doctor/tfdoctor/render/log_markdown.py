"""The output of `diagnose --format markdown`: redacted Markdown to paste into an issue."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tfdoctor import __version__
from tfdoctor.core.privacy.redactor import Redactor
from tfdoctor.core.text import clean, clean_line
from tfdoctor.logs.message_start import find_message_start
from tfdoctor.render.markdown import (
    escape_prose,
    fence_lines,
    format_code_span,
    format_table_header,
    format_table_row,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tfdoctor.core.findings import Finding
    from tfdoctor.logs.report import LogReport

MAX_TEXT_CHARS = 3000
"""The largest length of a text, in characters."""
MAX_PROCESSES = 40
"""The largest number of processes in the table. The JSON contains all of them."""


def make_log_markdown(report: LogReport, redactor: Redactor | None = None) -> str:
    """Return the report of one log as redacted Markdown.

    `redactor` may already know names to replace; None means a new redactor.
    """
    return _format_report(redact_report(report, redactor or Redactor()))


def redact_report(report: LogReport, redactor: Redactor) -> LogReport:
    """Return the report with every text redacted."""
    texts: list[str] = []

    def collect(text: str) -> str:
        texts.append(text)
        return text

    # Collect all texts first, because the redactor has to see them together.
    _change_report(report, collect)
    for process in report.processes:
        redactor.learn_prefix(process.label)
    lines = [evidence.text for finding in report.findings for evidence in finding.evidence]
    learn_line_prefixes(lines, redactor)
    redacted = _change_report(report, redactor.redact_texts(texts).__getitem__)
    return replace(
        redacted,
        processes=tuple(
            replace(process, label=redactor.redact_prefix(process.label)) for process in redacted.processes
        ),
        findings=tuple(
            replace(
                finding,
                evidence=tuple(
                    replace(item, text=redact_line_prefix(item.text, redactor)) for item in finding.evidence
                ),
            )
            for finding in redacted.findings
        ),
    )


def learn_line_prefixes(lines: Iterable[str], redactor: Redactor) -> None:
    """Let the redactor learn the names before the messages of a log."""
    for line in lines:
        redactor.learn_prefix(line[: find_message_start(line)])


def redact_line_prefix(line: str, redactor: Redactor) -> str:
    """Return a redacted line of a log with the text before its message replaced."""
    start = find_message_start(line)
    return f"{redactor.redact_prefix(line[:start])}{line[start:]}" if start else line


def _change_report(report: LogReport, change: Callable[[str], str]) -> LogReport:
    """Return the report with each text that the Markdown contains cleaned and replaced by the result of `change`."""

    def change_line(text: str) -> str:
        return change(clean_line(text, limit=MAX_TEXT_CHARS))

    def change_block(text: str) -> str:
        return change(clean(text))

    return replace(
        report,
        summary=change_line(report.summary),
        tensorflow_version=report.tensorflow_version and change_line(report.tensorflow_version),
        missing_sonames=tuple(change_line(name) for name in report.missing_sonames),
        registered_devices=tuple(
            replace(device, name=change_line(device.name)) for device in report.registered_devices
        ),
        processes=tuple(
            replace(process, label=change_line(process.label), summary=change_line(process.summary))
            for process in report.processes
        ),
        findings=tuple(
            replace(
                finding,
                title=change_line(finding.title),
                explanation=change_line(finding.explanation),
                evidence=tuple(replace(item, text=change_block(item.text)) for item in finding.evidence),
                remedies=tuple(
                    replace(
                        item, text=change_line(item.text), commands=tuple(map(change_block, item.commands))
                    )
                    for item in finding.remedies
                ),
            )
            for finding in report.findings
        ),
    )


def _format_report(report: LogReport) -> str:
    version = report.tensorflow_version or report.era or "not known"
    registered_text = {True: "yes", False: "no", None: "the log does not say"}[report.gpu_registered]
    rows = [
        ("cause", format_code_span(report.cause.value)),
        ("TensorFlow", escape_prose(version)),
        ("GPU registered", registered_text),
    ]
    if report.missing_sonames:
        rows.append(("missing", ", ".join(format_code_span(name) for name in report.missing_sonames)))
    for device in report.registered_devices:
        capability = f" ({device.compute_capability})" if device.compute_capability else ""
        rows.append((f"GPU {device.index}", f"{escape_prose(device.name)}{capability}"))
    lines = [
        f"**{escape_prose(report.summary, MAX_TEXT_CHARS)}**",
        "",
        *format_table_header(("", "")),
        *map(format_table_row, rows),
    ]
    if report.processes:
        lines += ["", *format_table_header(("process", "", ""))]
        for process in report.processes[:MAX_PROCESSES]:
            cause = format_code_span(process.cause.value) if process.cause is not None else "not judged"
            lines.append(
                format_table_row(
                    (escape_prose(process.label), cause, escape_prose(process.summary, MAX_TEXT_CHARS))
                )
            )
        hidden_process_count = len(report.processes) - MAX_PROCESSES + report.extra_process_count
        if hidden_process_count > 0:
            lines.append(format_table_row((f"and {hidden_process_count} more", "", "")))
    for finding in report.findings:
        lines += ["", *_format_finding(finding)]
    lines += ["", f"<sub>tfdoctor {__version__} diagnose, {report.line_count} lines</sub>", ""]
    return "\n".join(lines)


def _format_finding(finding: Finding) -> list[str]:
    title, explanation = (
        escape_prose(finding.title, MAX_TEXT_CHARS),
        escape_prose(finding.explanation, MAX_TEXT_CHARS),
    )
    lines = [f"### {finding.code} {title}", "", explanation]
    if finding.evidence:
        lines += [
            "",
            *fence_lines(
                f"{evidence.line or ''}: {clean(evidence.text)}".replace("\n", " ")
                for evidence in finding.evidence
            ),
        ]
    for remedy in finding.remedies:
        lines += ["", f"- {escape_prose(remedy.text, MAX_TEXT_CHARS)}"]
        if remedy.commands:
            lines += [f"  {line}" for line in fence_lines(remedy.commands, "sh")]
    return lines
