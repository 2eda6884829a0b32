"""What `check` says, as a page: the verdict, what to type, the chain from the card to TensorFlow with its broken joint,
the loader's search, all findings and all facts. It is given what was redacted already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfdoctor.facts import value_of
from tfdoctor.findings import OutcomeKind, Severity, Status
from tfdoctor.render.finding import MARKS, SEVERITY_STATUS, capitalize_remedy
from tfdoctor.render.html.document import document
from tfdoctor.render.json import plain
from tfdoctor.report.dependency_chain import make_chain
from tfdoctor.report.library_search import Fate, list_search_folders, list_searches
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfdoctor.findings import Finding, Report
    from tfdoctor.report.library_search import Search

__all__ = ["finding_values", "report_html"]

MAX_FACTS = 1500
"""Rows of facts: a mail has to take the page."""
LONGEST_FACT = 500
"""Characters of one."""
WORDS = {Status.GOOD: "fine", Status.WARNING: "warning", Status.BAD: "broken", Status.UNKNOWN: "not known"}
"""A status in a word, for who does not see its colour."""
FATES = {
    Fate.OPENED: Status.GOOD,
    Fate.UNUSABLE: Status.BAD,
    Fate.HIDDEN: Status.WARNING,
    Fate.NOT_CONSIDERED: Status.WARNING,
    Fate.OTHER_VERSION: Status.UNKNOWN,
}


def report_html(
    report: Report, *, typed: str, fix: str | None = None, differences: Sequence[str] = ()
) -> bytes:
    """Return the page. report: of the redacted machine; typed: the command that gave it.

    Fix: what fixes the main finding, as it is typed; differences: where the redacted machine is judged otherwise.
    """
    usable = report.verdict.gpu_usable
    status = {True: Status.GOOD, False: Status.BAD, None: Status.WARNING}[usable]
    python, choice = value_of(report.facts.python), report.facts.choice
    where = f"{python.executable} (Python {python.version})" if python is not None else "no Python answered"
    if python is None and choice is not None:
        where = f"{choice.path} (no answer)"
    rows = list(_rows(plain(report.facts)))
    main = report.main
    return document(
        "check",
        title=clean_line(report.verdict.headline or report.verdict.summary),
        where=where,
        typed=typed,
        status=_status(status),
        verdict=report.verdict,
        main=None if main is None else finding_values(main),
        root=report.root is main and main is not None,
        fix=None if fix is None else fix,
        chain=[
            {
                "name": joint.name,
                **_status(joint.status),
                "text": joint.text,
                "broken": joint.broken,
                "findings": [finding_values(one) for one in joint.findings],
            }
            for joint in make_chain(report)
        ],
        findings=[finding_values(one) for one in report.findings],
        searches=[_search(one) for one in list_searches(report.facts)],
        places=list_search_folders(report.facts),
        reasons=report.prediction.reasons,
        observed=report.observed,
        counts={kind.value: report.counts()[kind.value] for kind in OutcomeKind},
        unmade=[
            (
                one.code,
                ("crashed (a defect of tfdoctor): " if one.kind is OutcomeKind.CRASHED else "") + one.why,
            )
            for one in report.outcomes
            if one.kind in (OutcomeKind.COULD_NOT_CHECK, OutcomeKind.CRASHED)
        ],
        facts=rows[:MAX_FACTS],
        more_facts=max(0, len(rows) - MAX_FACTS),
        differences=tuple(differences),
    )


def _status(status: Status) -> dict[str, str]:
    return {"status": status.value, "sign": MARKS[status], "word": WORDS[status]}


def finding_values(finding: Finding) -> dict[str, Any]:
    """Return a finding as the templates take it."""
    word = {Severity.ERROR: "problem", Severity.WARNING: "warning", Severity.INFO: "note"}
    return {
        "code": finding.code,
        **_status(SEVERITY_STATUS[finding.severity]),
        "word": word[finding.severity],
        "title": finding.title,
        "why": finding.explanation,
        "remedies": [
            {
                "text": capitalize_remedy(one.full_text),
                "commands": list(one.commands),
                "root": one.changes_system,
            }
            for one in finding.remedies
        ],
        "evidence": [
            {
                "where": f"{one.source}:{one.line}" if one.line else one.source,
                "line": one.line,
                "text": one.text,
            }
            for one in finding.evidence
        ],
    }


def _search(search: Search) -> dict[str, Any]:
    return {
        "soname": search.soname,
        **_status(Status.GOOD if search.found else Status.BAD),
        "text": search.text,
        "open": not search.found or any(one.fate is not Fate.OPENED for one in search.files),
        "files": [
            {"path": one.path, **_status(FATES[one.fate]), "fate": one.fate.value, "note": one.note}
            for one in search.files
        ],
    }


def _rows(value: Any, path: str = "", source: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield facts as (name, value, where it was seen): one row a value; what is empty is left out."""
    if isinstance(value, dict):
        if "source" in value and set(value) & {"known", "absent", "unknown"}:
            source = str(value["source"] or "")
            if "known" in value:
                yield from _rows(value["known"], path, source)
            elif "absent" in value:
                yield path, f"not there {value['absent'] or ''}".strip(), source
            else:
                yield path, f"not known: {value['unknown']}", source
            return
        for name, inner in value.items():
            yield from _rows(inner, f"{path}.{name}" if path else str(name), source)
    elif isinstance(value, list):
        if all(isinstance(one, (str, int, float)) for one in value):
            if value:
                yield path, _cut(", ".join(map(str, value))), source
            return
        for number, inner in enumerate(value):
            yield from _rows(inner, f"{path}[{number}]", source)
    elif value is not None and value != "":
        said = {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
        yield path, _cut(said), source


def _cut(text: str) -> str:
    return clean_line(text, limit=LONGEST_FACT)
