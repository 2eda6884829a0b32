"""`diagnose --format github`: Markdown to paste into an issue, without names, addresses and tokens."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from tfdoctor import __version__
from tfdoctor.privacy.redactor import Redactor
from tfdoctor.text import clean, clean_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfdoctor.findings import Finding
    from tfdoctor.logs.report import LogReport

SHOWN = 40
"""Processes in the table; all are in the JSON."""
_SPECIAL = str.maketrans({char: f"\\{char}" for char in "\\*_{}[]<>#|~@"})


_NAMED = re.compile(r"(?=\D*[\d./_-])([A-Za-z][\w.-]{2,80})(?:/([\w.-]{2,80}))?")
"""A process that is called as a pod, a container or a machine is; not `rank 1`, and not `trainer`."""


def log_markdown(report: LogReport, redactor: Redactor | None = None) -> str:
    """One log's report, redacted. `redactor`: one that knows more than what the report itself tells."""
    return _markdown(redacted(report, redactor or Redactor()))


def redacted(report: LogReport, redactor: Redactor) -> LogReport:
    """The report without anything that tells who and where somebody is."""
    texts: list[str] = []

    def collect(text: str) -> str:
        texts.append(text)
        return text

    _changed(report, collect)
    for process in report.processes:
        named = _NAMED.fullmatch(process.label)
        for name in named.groups() if named is not None else ():
            redactor.learn(name or "", "container_name")
    return _changed(report, redactor.texts(texts).__getitem__)


def _changed(report: LogReport, change: Callable[[str], str]) -> LogReport:
    """The report with every text of it changed that Markdown shows; each is made safe to show before."""

    def line(text: str) -> str:
        return change(clean_line(text, limit=3000))

    def block(text: str) -> str:
        return change(clean(text))

    return replace(
        report,
        summary=line(report.summary),
        tensorflow_version=report.tensorflow_version and line(report.tensorflow_version),
        missing_libraries=tuple(line(name) for name in report.missing_libraries),
        devices=tuple(replace(device, name=line(device.name)) for device in report.devices),
        processes=tuple(
            replace(process, label=line(process.label), summary=line(process.summary))
            for process in report.processes
        ),
        findings=tuple(
            replace(
                finding,
                title=line(finding.title),
                explanation=line(finding.explanation),
                evidence=tuple(replace(one, text=block(one.text)) for one in finding.evidence),
                remedies=tuple(
                    replace(one, text=line(one.text), commands=tuple(map(block, one.commands)))
                    for one in finding.remedies
                ),
            )
            for finding in report.findings
        ),
    )


def _markdown(report: LogReport) -> str:
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
    return clean_line(text, limit=3000).translate(_SPECIAL)


def _code(text: str) -> str:
    return f"`{clean_line(text).replace('`', '')}`"


def _fenced(text: str) -> str:
    return clean(text).replace("```", "'''").replace("\n", " ")
