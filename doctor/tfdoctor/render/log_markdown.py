"""`diagnose --format github`: Markdown to paste into an issue, without names, addresses and tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor import __version__
from tfdoctor.redact import clean, clean_line, redact

if TYPE_CHECKING:
    from tfdoctor.findings import Finding
    from tfdoctor.logs.report import LogReport

SHOWN = 40
"""Processes in the table; all are in the JSON."""
_SPECIAL = str.maketrans({char: f"\\{char}" for char in "\\*_{}[]<>#|~@"})


def log_markdown(report: LogReport) -> str:
    """One log's report, redacted."""
    version = report.tensorflow_version or report.era or "not known"
    registered = {True: "yes", False: "no", None: "the log does not say"}[report.gpu_registered]
    lines = [
        f"**{_words(report.summary)}**",
        "",
        "| | |",
        "|---|---|",
        f"| cause | `{report.cause.value}` |",
        f"| TensorFlow | {_words(version)} |",
        f"| GPU registered | {registered} |",
    ]
    if report.missing_libraries:
        lines.append(f"| missing | {', '.join(_code(name) for name in report.missing_libraries)} |")
    for device in report.devices:
        capability = f" ({device.compute_capability})" if device.compute_capability else ""
        lines.append(f"| GPU {device.index} | {_words(device.name.replace('`', ''))}{capability} |")
    if report.processes:
        lines += ["", "| process | | |", "|---|---|---|"]
        for process in report.processes[:SHOWN]:
            cause = f"`{process.cause.value}`" if process.cause is not None else "not judged"
            lines.append(f"| {_words(process.label)} | {cause} | {_words(process.summary)} |")
        rest = len(report.processes) - SHOWN + report.more_processes
        if rest > 0:
            lines.append(f"| and {rest} more | | |")
    for finding in report.findings:
        lines += ["", *_finding(finding)]
    lines += ["", f"<sub>tfdoctor {__version__} diagnose, {report.lines} lines</sub>", ""]
    return "\n".join(lines)


def _finding(finding: Finding) -> list[str]:
    lines = [f"### {finding.code} {_words(finding.title)}", "", _words(finding.explanation)]
    if finding.evidence:
        lines += ["", "```text"]
        lines += [f"{e.line or ''}: {_fenced(e.text)}" for e in finding.evidence]
        lines.append("```")
    for remedy in finding.remedies:
        lines += ["", f"- {_words(remedy.text)}"]
        if remedy.commands:
            lines += ["  ```sh", *(f"  {_fenced(command)}" for command in remedy.commands), "  ```"]
    return lines


def _words(text: str) -> str:
    return redact(clean_line(text, limit=3000)).translate(_SPECIAL)


def _code(text: str) -> str:
    return f"`{redact(clean_line(text)).replace('`', '')}`"


def _fenced(text: str) -> str:
    return redact(clean(text)).replace("```", "'''").replace("\n", " ")
