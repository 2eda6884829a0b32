"""A finding with its explanation, remedies and evidence, as text and as JSON."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import tfdoctor
from tfdoctor.core.findings import Evidence, OutcomeKind, Severity, Status
from tfdoctor.core.links import format_rule_url
from tfdoctor.core.text import clean_line, upper_first
from tfdoctor.render.paragraphs import Page, Text, print_commands, print_hanging

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tfdoctor.core.findings import Finding, Remedy, Report

__all__ = [
    "STATUS_BY_SEVERITY",
    "STATUS_BY_USABLE",
    "choose_status",
    "format_mark",
    "format_outcomes",
    "list_failed_checks",
    "make_finding_json",
    "merge_library_evidence",
    "print_evidence",
    "print_explanation",
    "print_log_evidence",
    "print_meaning",
    "print_remedy",
]

MARKS = {Status.GOOD: "✓", Status.WARNING: "!", Status.BAD: "✗", Status.UNKNOWN: "–"}
STYLES = {Status.GOOD: "green", Status.WARNING: "yellow", Status.BAD: "bold red", Status.UNKNOWN: ""}
"""The style of the mark of each status."""
STATUS_BY_SEVERITY = {
    Severity.ERROR: Status.BAD,
    Severity.WARNING: Status.WARNING,
    Severity.INFO: Status.UNKNOWN,
}
"""The status with whose mark and colour a finding is printed, by its severity."""
STATUS_BY_USABLE = {True: Status.GOOD, False: Status.BAD, None: Status.WARNING}
"""The status of a verdict, by whether TensorFlow can use the GPU. None means that this is unknown."""

_LIBRARY_FAILURE = re.compile(r"(?P<name>lib[\w.+-]{1,80}): (?P<reason>.{1,400})")
"""A message of dlerror() about a library."""


def choose_status(findings: Iterable[Any]) -> Status:
    """Return the status of the most severe finding, or GOOD if there is none."""
    worst_severity = max((finding.severity for finding in findings), default=None)
    return Status.GOOD if worst_severity is None else STATUS_BY_SEVERITY[worst_severity]


def list_failed_checks(report: Report) -> list[tuple[str, str]]:
    """Return (code, reason) for each check that could not be run."""
    crash_notes = {
        OutcomeKind.COULD_NOT_CHECK: "",
        OutcomeKind.CRASHED: "crashed (a defect of tfdoctor): ",
    }
    return [
        (outcome.code, crash_notes[outcome.kind] + clean_line(outcome.reason))
        for outcome in report.outcomes
        if outcome.kind in crash_notes
    ]


def format_outcomes(report: Report) -> str:
    """Return how many checks there were, by outcome, as a sentence."""
    counts = report.count_outcomes()
    severity_by_code: dict[str, Severity] = {}
    for finding in report.findings:
        severity_by_code[finding.code] = max(
            finding.severity, severity_by_code.get(finding.code, finding.severity)
        )
    severities = list(severity_by_code.values())
    named_counts = {
        "failed": severities.count(Severity.ERROR),
        "warned": severities.count(Severity.WARNING),
        "noted something": severities.count(Severity.INFO),
        "passed": counts["clean"],
        "could not run": counts["could_not_check"] + counts["crashed"],
        "not applicable": counts["not_applicable"],
    }
    parts = [f"{count} {name}" for name, count in named_counts.items() if count]
    return f"{sum(counts.values())} checks: {', '.join(parts)}."


def print_explanation(out: Page, finding: Finding) -> None:
    """Print the explanation, the remedies and the evidence of a finding."""
    out.print()
    print_meaning(out, finding)
    for index, remedy in enumerate(finding.remedies):
        out.print()
        print_remedy(out, remedy, first=index == 0)
    if finding.evidence:
        out.print()
        for evidence in merge_library_evidence(finding.evidence):
            print_evidence(out, evidence)


def merge_library_evidence(evidence: Sequence[Evidence]) -> list[Evidence]:
    """Return the evidence with one entry for all libraries that failed for the same reason."""
    names_by_reason: dict[tuple[str, str], list[str]] = {}
    others = []
    for entry in evidence:
        match = _LIBRARY_FAILURE.fullmatch(entry.text)
        if match is None or entry.line:
            others.append(entry)
        else:
            names_by_reason.setdefault((entry.source, match["reason"]), []).append(match["name"])
    merged = [
        Evidence(source, f"{', '.join(names)}: {reason}")
        for (source, reason), names in names_by_reason.items()
    ]
    return [*merged, *others]


def print_meaning(out: Page, finding: Finding) -> None:
    """Print the explanation of a finding after the label "Why"."""
    print_hanging(out, Text("  Why   "), clean_line(finding.explanation, limit=3000))


def print_remedy(out: Page, remedy: Remedy, *, first: bool) -> None:
    """Print a remedy and its commands. The label is "Do" for the first remedy and "Or" for the others."""
    print_hanging(out, Text("  Do    " if first else "  Or    "), capitalize_remedy(remedy.full_text))
    print_commands(out, remedy.commands)


def capitalize_remedy(text: str) -> str:
    """Return the text of a remedy as a separate sentence, without a leading "Or "."""
    text = clean_line(text, limit=1000)
    return upper_first(text[3:]) if text.startswith("Or ") else text


def print_evidence(out: Page, evidence: Evidence) -> None:
    """Print the source and the text of evidence after the label "Seen"."""
    location = f"{evidence.source}:{evidence.line}" if evidence.line else evidence.source
    text = f"{clean_line(location)}: {clean_line(evidence.text)}"
    print_hanging(out, Text("  Seen  "), text)


def print_log_evidence(out: Page, finding: Finding) -> None:
    """Print the lines of a log that prove a finding."""
    for evidence in finding.evidence:
        text = f"line {evidence.line}: {clean_line(evidence.text, limit=4000)}"
        print_hanging(out, Text("  Seen  "), text)


def format_mark(status: Status, label: str = "") -> Text:
    """Return the mark of a status in its colour, followed by the label."""
    return Text(f"{MARKS[status]} {label}", style=STYLES[status])


def make_finding_json(finding: Finding) -> dict[str, Any]:
    """Return a finding as the JSON schemas define it."""
    url = format_rule_url(finding.code, tfdoctor.__version__)
    return {
        "code": finding.code,
        "cause": finding.cause.value,
        "severity": finding.severity.word,
        "title": finding.title,
        "explanation": finding.explanation,
        "evidence": [
            {"source": evidence.source, "line": evidence.line, "text": evidence.text}
            for evidence in finding.evidence
        ],
        "remedies": [
            {
                "text": remedy.full_text,
                "commands": list(remedy.commands),
                "changes_system": remedy.changes_system,
            }
            for remedy in finding.remedies
        ],
        **({} if url is None else {"url": url}),
    }
