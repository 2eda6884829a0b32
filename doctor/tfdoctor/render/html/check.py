"""The HTML page of `check`.

The page shows the verdict, the remedy, the chain from the GPU to TensorFlow, the library search, all findings and
all facts. The report must already be redacted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfdoctor.core.findings import Severity, Status
from tfdoctor.core.text import clean_line
from tfdoctor.diagnosis.dependency_chain import make_chain
from tfdoctor.diagnosis.library_search import FileOutcome, list_library_searches, list_search_folders
from tfdoctor.render.finding import (
    MARKS,
    STATUS_BY_SEVERITY,
    STATUS_BY_USABLE,
    capitalize_remedy,
    format_outcomes,
    list_failed_checks,
)
from tfdoctor.render.html.document import render_page
from tfdoctor.render.json import to_json
from tfdoctor.render.screen import describe_python

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfdoctor.core.findings import Finding, Report
    from tfdoctor.diagnosis.library_search import LibrarySearch

__all__ = ["make_finding_values", "make_report_html", "make_status_values"]

MAX_FACTS = 1500
"""The largest number of facts on the page, so that the page is small enough for an e-mail."""
MAX_FACT_CHARS = 500
"""The largest length of a fact, in characters."""
STATUS_TEXTS = {
    Status.GOOD: "fine",
    Status.WARNING: "warning",
    Status.BAD: "broken",
    Status.UNKNOWN: "not known",
}
"""The word for each status, for readers who cannot tell the colours apart."""
STATUS_BY_OUTCOME = {
    FileOutcome.OPENED: Status.GOOD,
    FileOutcome.UNUSABLE: Status.BAD,
    FileOutcome.HIDDEN: Status.WARNING,
    FileOutcome.NOT_CONSIDERED: Status.WARNING,
    FileOutcome.OTHER_VERSION: Status.UNKNOWN,
}
"""The status whose mark and colour a file has, by its outcome in the library search."""


def make_report_html(
    report: Report, *, check_command: str, fix_command: str | None = None, differences: Sequence[str] = ()
) -> bytes:
    """Return the HTML page of a redacted report.

    `check_command` is the command that made the report. `fix_command` is the command that fixes the main finding, or None.
    `differences` are the results that redaction changed.
    """
    fact_rows = list(_iter_facts(to_json(report.facts)))
    main_finding = report.main_finding
    return render_page(
        "check",
        title=clean_line(report.verdict.headline or report.verdict.summary),
        where=describe_python(report),
        typed=check_command,
        status=make_status_values(STATUS_BY_USABLE[report.verdict.gpu_usable]),
        verdict=report.verdict,
        main=None if main_finding is None else make_finding_values(main_finding),
        root=report.root_finding is main_finding and main_finding is not None,
        fix=fix_command,
        chain=[
            {
                "name": link.name,
                **make_status_values(link.status),
                "text": link.text,
                "broken": link.is_broken,
                "findings": [make_finding_values(item) for item in link.findings],
            }
            for link in make_chain(report)
        ],
        findings=[make_finding_values(item) for item in report.findings],
        searches=[_make_search_values(item) for item in list_library_searches(report.facts)],
        places=list_search_folders(report.facts),
        reasons=report.prediction.reasons,
        observed=report.observed,
        outcomes=format_outcomes(report),
        unmade=list_failed_checks(report),
        facts=fact_rows[:MAX_FACTS],
        more_facts=max(0, len(fact_rows) - MAX_FACTS),
        differences=tuple(differences),
    )


def make_status_values(status: Status) -> dict[str, str]:
    """Return a status as values for a template."""
    return {"status": status.value, "sign": MARKS[status], "word": STATUS_TEXTS[status]}


def make_finding_values(finding: Finding) -> dict[str, Any]:
    """Return a finding as values for a template."""
    severity_words = {Severity.ERROR: "problem", Severity.WARNING: "warning", Severity.INFO: "note"}
    return {
        "code": finding.code,
        **make_status_values(STATUS_BY_SEVERITY[finding.severity]),
        "word": severity_words[finding.severity],
        "title": finding.title,
        "why": finding.explanation,
        "remedies": [
            {
                "text": capitalize_remedy(item.full_text),
                "commands": list(item.commands),
                "root": item.changes_system,
            }
            for item in finding.remedies
        ],
        "evidence": [
            {
                "where": f"{item.source}:{item.line}" if item.line else item.source,
                "line": item.line,
                "text": item.text,
            }
            for item in finding.evidence
        ],
    }


def _make_search_values(search: LibrarySearch) -> dict[str, Any]:
    return {
        "soname": search.soname,
        **make_status_values(Status.GOOD if search.is_resolved else Status.BAD),
        "text": search.description,
        "open": not search.is_resolved
        or any(file.outcome is not FileOutcome.OPENED for file in search.files),
        "files": [
            {
                "path": file.path,
                **make_status_values(STATUS_BY_OUTCOME[file.outcome]),
                "fate": file.outcome.value,
                "note": file.note,
            }
            for file in search.files
        ],
    }


def _iter_facts(value: Any, path: str = "", source: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield (name, value, source) for each fact that is not empty.

    `value` is the JSON of the facts, and `path` is the prefix of the names.
    """
    if isinstance(value, dict):
        if "source" in value and set(value) & {"known", "absent", "unknown"}:
            source = str(value["source"] or "")
            if "known" in value:
                yield from _iter_facts(value["known"], path, source)
            elif "absent" in value:
                yield path, f"not there {value['absent'] or ''}".strip(), source
            else:
                yield path, f"not known: {value['unknown']}", source
            return
        for name, child in value.items():
            yield from _iter_facts(child, f"{path}.{name}" if path else str(name), source)
    elif isinstance(value, list):
        if all(isinstance(item, (str, int, float)) for item in value):
            if value:
                yield path, _shorten(", ".join(map(str, value))), source
            return
        for index, child in enumerate(value):
            yield from _iter_facts(child, f"{path}[{index}]", source)
    elif value is not None and value != "":
        text = {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
        yield path, _shorten(text), source


def _shorten(text: str) -> str:
    return clean_line(text, limit=MAX_FACT_CHARS)
