"""The output of `check` in a notebook: one screen of HTML without scripts.

It is readable in light and dark themes. All external text in it is escaped.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from tfdoctor import __version__
from tfdoctor.core.facts import value_of
from tfdoctor.core.findings import Status
from tfdoctor.core.text import clean_line
from tfdoctor.render.finding import MARKS, STATUS_BY_SEVERITY, STATUS_BY_USABLE, capitalize_remedy
from tfdoctor.render.paragraphs import shorten_text
from tfdoctor.render.screen import UNDO_NOTE, find_main_offer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfdoctor.core.findings import Finding, Report
    from tfdoctor.environments.models import FixOffer

__all__ = ["make_report_html"]

COLOURS = {
    Status.GOOD: "#2b9348",
    Status.WARNING: "#b7791f",
    Status.BAD: "#e5484d",
    Status.UNKNOWN: "inherit",
}
"""The colour of each status, readable on white and on black."""
CODE_STYLE = (
    "margin:.3em 0;padding:.4em .6em;background:rgba(127,127,127,.15);white-space:pre-wrap;color:inherit"
)
"""The style of commands."""
CELL_STYLE = "text-align:left;padding:.1em .8em .1em 0;border:0;background:none;color:inherit"
"""The style of table cells."""
MAX_LINES = 3
MAX_COLUMNS = 100
"""The number of lines, and their width in columns, to which the explanation is shortened."""


def make_report_html(report: Report, *, offer: FixOffer | None = None, notes: Sequence[str] = ()) -> str:
    """Return the verdict, its reason, the remedy and the areas as HTML, followed by the notes."""
    return "".join(('<div style="line-height:1.4">', *_render_parts(report, offer, notes), "</div>"))


def _render_parts(report: Report, fix: FixOffer | None, notes: Sequence[str]) -> Iterator[str]:
    """Yield the HTML elements of the report."""
    main_finding, status = report.main_finding, STATUS_BY_USABLE[report.verdict.gpu_usable]
    code = f" [{report.root_finding.code}]" if report.root_finding is not None else ""
    yield f"<p>{_render_mark(status)} <b>{_escape_text(report.verdict.headline)}</b>{code}</p>"
    if main_finding is not None:
        if main_finding is not report.root_finding:
            mark = _render_mark(STATUS_BY_SEVERITY[main_finding.severity])
            yield f"<p>{mark} {_escape_text(main_finding.title)} [{main_finding.code}]</p>"
        explanation = clean_line(main_finding.explanation, limit=3000)
        yield f"<p>{_escape_text(shorten_text(explanation, MAX_COLUMNS, MAX_LINES))}</p>"
        yield from _render_remedy(main_finding, find_main_offer(report, fix))
    yield '<table style="border-collapse:collapse">'
    for area in report.areas:
        other_findings = [finding for finding in area.findings if finding is not main_finding]
        suffix = f": {other_findings[0].title} [{other_findings[0].code}]" if other_findings else ""
        if (
            area.findings and not other_findings and not area.explains_status
        ):  # only the main finding, shown above
            suffix = f": {area.findings[0].short_title}"
        yield (
            f'<tr style="background:none"><td style="{CELL_STYLE}">{_render_mark(area.status)}</td>'
            f'<td style="{CELL_STYLE}"><b>{_escape_text(area.name)}</b></td>'
            f'<td style="{CELL_STYLE}">{_escape_text(f"{area.text}{suffix}")}</td></tr>'
        )
    yield "</table>"
    for note in notes:
        yield f"<p>{_render_mark(Status.WARNING)} {_escape_text(note)}</p>"
    yield f'<p style="opacity:.75">{_escape_text(_format_footer(report, main_finding))}</p>'


def _render_remedy(main_finding: Finding, fix: FixOffer | None) -> Iterator[str]:
    """Yield the HTML of the remedy: the `fix` command if that fixes the finding, else the first remedy."""
    if fix is not None:
        yield f"<p>Fix it, in a terminal: {_escape_text(UNDO_NOTE)}</p>{_render_commands([fix.command])}"
    elif main_finding.remedies:
        first_remedy = main_finding.remedies[0]
        yield f"<p>{_escape_text(capitalize_remedy(first_remedy.full_text))}</p>"
        if first_remedy.commands:
            yield _render_commands(first_remedy.commands)


def _format_footer(report: Report, main_finding: Finding | None) -> str:
    counts, python = report.count_outcomes(), value_of(report.facts.python)
    not_run_count = counts["could_not_check"] + counts["crashed"]
    parts = [f"tfdoctor {__version__}"]
    parts += [f"{python.executable} (Python {python.version})"] if python is not None else []
    parts += [f"{sum(counts.values())} checks, {counts['clean']} passed"]
    parts += [f"{not_run_count} could not run"] if not_run_count else []
    parts += (
        [f"more: %tfdoctor explain {main_finding.code}, %tfdoctor check -v"]
        if main_finding is not None
        else []
    )
    return " · ".join(parts)


def _render_mark(status: Status) -> str:
    return f'<b style="color:{COLOURS[status]}">{MARKS[status]}</b>'


def _render_commands(commands: Sequence[str]) -> str:
    lines = "\n".join(html.escape(clean_line(command, limit=4000)) for command in commands)
    return f'<pre style="{CODE_STYLE}">{lines}</pre>'


def _escape_text(text: str) -> str:
    return html.escape(clean_line(text, limit=3000))
