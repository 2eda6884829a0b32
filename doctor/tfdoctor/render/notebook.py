"""`check` in a notebook: one screen as HTML. No script, no style sheet; the colours go with light and dark themes.

Whatever a machine says is escaped.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from tfdoctor import __version__
from tfdoctor.facts import value_of
from tfdoctor.findings import Status
from tfdoctor.render.finding import MARKS, SEVERITY_STATUS, capitalize_remedy
from tfdoctor.render.paragraphs import few
from tfdoctor.render.screen import UNDOABLE
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfdoctor.environment.models import Offer
    from tfdoctor.findings import Finding, Report

__all__ = ["report_html"]

COLOURS = {
    Status.GOOD: "#2b9348",
    Status.WARNING: "#b7791f",
    Status.BAD: "#e5484d",
    Status.UNKNOWN: "inherit",
}
"""Legible on white and on black."""
CODE = "margin:.3em 0;padding:.4em .6em;background:rgba(127,127,127,.15);white-space:pre-wrap;color:inherit"
CELL = "text-align:left;padding:.1em .8em .1em 0;border:0;background:none;color:inherit"
LINES = 3
COLUMNS = 100


def report_html(report: Report, *, fix: Offer | None = None, notes: Sequence[str] = ()) -> str:
    """Return the verdict, why, what is typed, and what was seen. notes: sentences to be said besides."""
    return "".join(('<div style="line-height:1.4">', *_parts(report, fix, notes), "</div>"))


def _parts(report: Report, fix: Offer | None, notes: Sequence[str]) -> Iterator[str]:
    usable, main = report.verdict.gpu_usable, report.main
    status = {True: Status.GOOD, False: Status.BAD, None: Status.WARNING}[usable]
    code = f" [{report.root.code}]" if report.root is not None else ""
    yield f"<p>{_mark(status)} <b>{_text(report.verdict.headline)}</b>{code}</p>"
    if main is not None:
        if main is not report.root:
            yield f"<p>{_mark(SEVERITY_STATUS[main.severity])} {_text(main.title)} [{main.code}]</p>"
        yield f"<p>{_text(few(clean_line(main.explanation, limit=3000), COLUMNS, LINES))}</p>"
        yield from _todo(main, fix)
    yield '<table style="border-collapse:collapse">'
    for area in report.areas:
        beside = [one for one in area.findings if one is not main]
        found = f": {beside[0].title} [{beside[0].code}]" if beside else ""
        if area.findings and not beside and not area.reason:
            found = f": {area.findings[0].row}"
        yield (
            f'<tr style="background:none"><td style="{CELL}">{_mark(area.status)}</td>'
            f'<td style="{CELL}"><b>{_text(area.name)}</b></td>'
            f'<td style="{CELL}">{_text(f"{area.text}{found}")}</td></tr>'
        )
    yield "</table>"
    for note in notes:
        yield f"<p>{_mark(Status.WARNING)} {_text(note)}</p>"
    yield f'<p style="opacity:.75">{_text(_footer(report, main))}</p>'


def _todo(main: Finding, fix: Offer | None) -> Iterator[str]:
    """As the screen in a terminal: what `fix` can do, else the first remedy."""
    if fix is not None and any(one is main for one in fix.findings):
        yield f"<p>Fix it, in a terminal: {_text(UNDOABLE)}</p>{_code([fix.command])}"
    elif main.remedies:
        first = main.remedies[0]
        yield f"<p>{_text(capitalize_remedy(first.full_text))}</p>"
        if first.commands:
            yield _code(first.commands)


def _footer(report: Report, main: Finding | None) -> str:
    counts, python = report.counts(), value_of(report.facts.python)
    unmade = counts["could_not_check"] + counts["crashed"]
    said = [f"tfdoctor {__version__}"]
    said += [f"{python.executable} (Python {python.version})"] if python is not None else []
    said += [f"{sum(counts.values())} checks, {counts['found']} found something"]
    said += [f"{unmade} could not be run"] if unmade else []
    said += [f"more: %tfdoctor explain {main.code}, %tfdoctor check -v"] if main is not None else []
    return " · ".join(said)


def _mark(status: Status) -> str:
    return f'<b style="color:{COLOURS[status]}">{MARKS[status]}</b>'


def _code(commands: Sequence[str]) -> str:
    lines = "\n".join(html.escape(clean_line(one, limit=4000)) for one in commands)
    return f'<pre style="{CODE}">{lines}</pre>'


def _text(text: str) -> str:
    return html.escape(clean_line(text, limit=3000))
