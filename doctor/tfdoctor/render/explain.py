"""The output of `tfdoctor explain`, as text and as JSON (docs/schemas/explain.schema.json)."""

from __future__ import annotations

import dataclasses
import shlex
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.padding import Padding
from rich.table import Table

import tfdoctor
from tfdoctor.core.links import format_rule_url
from tfdoctor.core.text import clean_line, upper_first
from tfdoctor.diagnosis.explain import choose_next_command
from tfdoctor.render.json import make_document_head
from tfdoctor.render.paragraphs import SCREEN_LINES, Page, format_commands, shorten_text
from tfdoctor.render.screen import print_more_commands
from tfdoctor.render.tables import ProseText, get_text, make_console

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rich.console import RenderableType
    from rich.text import Text as RichText

    from tfdoctor.core.causes.steps import Remedy
    from tfdoctor.diagnosis.explain import CauseEntry, Explanation, RuleEntry
    from tfdoctor.rules.retired import RetiredRule

MIN_TABLE_COLUMNS = 60
"""Below this width in columns, a list is printed as paragraphs instead of a table."""
MAX_PROSE_COLUMNS = 100
"""The largest width of prose, in columns."""
MAX_SECTION_COLUMNS, MAX_SECTION_LINES = 78, 5
"""The size to which `_shorten` cuts the text of a section."""


def make_explanation_json(explanation: Explanation) -> dict[str, Any]:
    """Return the document that `explain --json` prints. Its structure is the same for every query."""
    return {
        **make_document_head("explain"),
        "query": explanation.query,
        "rules": [_make_rule_json(rule) for rule in explanation.rules],
        "causes": [
            {"cause": entry.cause.value, "meaning": entry.meaning, "rules": list(entry.rule_codes)}
            for entry in explanation.causes
        ],
        "related": [rule.code for rule in explanation.related_rules],
        "answer": {
            "text": explanation.meaning,
            "remedies": [
                {"text": remedy.text, "commands": list(remedy.commands)}
                for remedy in explanation.message_remedies
            ],
        }
        if explanation.meaning or explanation.message_remedies
        else None,
    }


def _make_rule_json(rule: RuleEntry) -> dict[str, Any]:
    url = format_rule_url(rule.code, tfdoctor.__version__)
    return {
        "code": rule.code,
        "name": rule.name,
        "title": rule.title,
        "causes": [cause.value for cause in rule.causes],
        "summary": rule.summary,
        "sections": [{"heading": section.heading, "text": section.text} for section in rule.sections],
        **({} if url is None else {"url": url}),
    }


def render_explanation(
    explanation: Explanation, *, complete: bool = True, width: int = 80, colour: bool = False
) -> str:
    """Return the explanation as text, at most `width` columns wide.

    Unless `complete` is set, an explanation that answers a query is shortened to one screen.
    """
    text, footer = _render(explanation, width, colour=colour), Page(width, coloured=colour)
    if command := choose_next_command(explanation):
        print_more_commands(footer, "Next", [(command, "")])
    url = _find_url(explanation)
    if url is not None:
        print_more_commands(footer, "On the web", [(url, "")])
    if (
        complete
        or explanation.query is None
        or _count_lines(text) + bool(footer.height) + footer.height
        <= SCREEN_LINES  # an empty line before the footer
    ):
        return f"{text}\n{footer.text}" if footer.height else text
    print_more_commands(
        footer, "More", [(f"tfdoctor explain {shlex.quote(clean_line(explanation.query))} -v", "")]
    )
    for shorten in SHORTENERS:
        shortened = _render(shorten(explanation), width, colour=colour)
        if _count_lines(shortened) <= SCREEN_LINES - 1 - footer.height:
            break
    return f"{shortened}\n{footer.text}"


def _find_url(explanation: Explanation) -> str | None:
    """Return the address of the page about the code that the query names, or None if there is none."""
    if explanation.query is None or len(explanation.rules) != 1:
        return None
    return format_rule_url(explanation.rules[0].code, tfdoctor.__version__)


def _render(explanation: Explanation, width: int, *, colour: bool) -> str:
    """Return an explanation as text: the list of all rules and causes, or the details for a query."""
    out = make_console(min(width, MAX_PROSE_COLUMNS), coloured=colour)
    lines = (
        _render_list(explanation, out.width)
        if explanation.query is None
        else _render_details(explanation, out.width)
    )
    out.print(Group(*lines), crop=False)  # a command is never cut
    return get_text(out)


def _count_lines(text: str) -> int:
    return len(text.splitlines())


def _drop_related(explanation: Explanation) -> Explanation:
    return dataclasses.replace(explanation, related_rules=())


def _drop_detection(explanation: Explanation) -> Explanation:
    """Return the explanation without related rules and without the sections on how a rule detects its problem."""
    rules = [_keep_sections(rule, lambda heading: heading != "How it is seen") for rule in explanation.rules]
    return dataclasses.replace(_drop_related(explanation), rules=tuple(rules))


def _drop_causes(explanation: Explanation) -> Explanation:
    """Return what `_drop_detection` returns, also without causes if there are rules."""
    return dataclasses.replace(
        _drop_detection(explanation), causes=() if explanation.rules else explanation.causes
    )


def _shorten(explanation: Explanation) -> Explanation:
    """Return the explanation with only its first rule, and only the first lines of each section."""
    explanation = _drop_causes(explanation)
    rules = [
        dataclasses.replace(
            rule,
            sections=tuple(
                dataclasses.replace(
                    section,
                    text=shorten_text(
                        " ".join(section.text.partition("\n\n")[0].split()),
                        MAX_SECTION_COLUMNS,
                        MAX_SECTION_LINES,
                    ),
                )
                for section in rule.sections
            ),
        )
        for rule in explanation.rules
    ]
    return dataclasses.replace(explanation, rules=tuple(rules[:1]))


def _keep_sections(rule: RuleEntry, is_kept: Callable[[str], bool]) -> RuleEntry:
    return dataclasses.replace(
        rule, sections=tuple(section for section in rule.sections if is_kept(section.heading))
    )


SHORTENERS = (_drop_related, _drop_detection, _drop_causes, _shorten)
"""The functions that shorten an explanation. Each of them removes more than the one before it."""


def _render_list(explanation: Explanation, width: int) -> Iterable[RenderableType]:
    yield ProseText("Rules", style="bold")
    yield ProseText("")
    if width < MIN_TABLE_COLUMNS:
        for rule in explanation.rules:
            yield ProseText.assemble((rule.code, "bold"), " ", rule.name)
            yield Padding(ProseText(rule.title), (0, 0, 0, 2))
    else:
        yield _make_table(
            [
                (ProseText(rule.code, style="bold"), ProseText(rule.name), ProseText(rule.title))
                for rule in explanation.rules
            ]
        )
    yield ProseText("")
    yield ProseText("Causes", style="bold")
    yield ProseText("")
    for entry in explanation.causes:
        yield _format_cause_line(entry)
        yield Padding(ProseText(entry.meaning), (0, 0, 0, 2))
    yield ProseText("")
    yield ProseText("For more, type `tfdoctor explain CODE`, or the words of a message instead of the code.")


def _render_details(explanation: Explanation, width: int) -> Iterable[RenderableType]:
    if explanation.meaning:
        yield ProseText(explanation.meaning)
        yield ProseText("")
    if explanation.message_remedies:
        yield ProseText(
            "What to do" if not explanation.rules else "What to do about this message", style="bold"
        )
        yield from _render_remedies(explanation.message_remedies, width)
        yield ProseText("")
    if explanation.retired_rule is not None:
        yield from _render_retired(explanation.retired_rule, explanation.rules)
    for rule in explanation.rules:
        yield ProseText.assemble((f"{rule.code} {rule.name}", "bold"))
        yield ProseText(rule.title)
        for section in rule.sections:
            yield ProseText("")
            yield ProseText(section.heading, style="bold")
            yield from _render_prose(section.text)
        yield ProseText("")
    if not explanation.rules and len(explanation.causes) == 1:
        entry = explanation.causes[0]
        yield ProseText.assemble((f"{entry.cause.data.finding_code} {entry.cause.value}", "bold"))
        yield ProseText(entry.cause.data.finding_title)
        yield ProseText("")
        yield ProseText("What it means", style="bold")
        yield ProseText(entry.meaning)
        if not entry.rule_codes:
            yield ProseText("Only `diagnose` reports this, from a log.")
        yield ProseText("")
        yield ProseText("What to do", style="bold")
        yield from _render_remedies(entry.remedies, width)
    elif not explanation.causes and any(rule.has_all_causes for rule in explanation.rules):
        yield ProseText("Causes", style="bold")
        yield ProseText("Any: the data names it.")
    elif explanation.causes:
        yield ProseText("Cause" if len(explanation.causes) == 1 else "Causes", style="bold")
        for entry in explanation.causes:
            yield ProseText(entry.cause.value)
            yield Padding(ProseText(entry.meaning), (0, 0, 0, 2))
    if explanation.related_rules:
        yield ProseText("")
        is_single = len(explanation.causes) == 1
        heading = "Rules" if not explanation.rules else "Other rules"
        yield ProseText(
            f"{heading} that can name {'this cause' if is_single else 'one of these causes'}", style="bold"
        )
        if width < MIN_TABLE_COLUMNS:
            for rule in explanation.related_rules:
                yield ProseText(f"{rule.code} {rule.name}")
        else:
            yield _make_table(
                [
                    (ProseText(rule.code), ProseText(rule.name), ProseText(rule.title))
                    for rule in explanation.related_rules
                ]
            )


def _render_remedies(remedies: Sequence[Remedy], width: int) -> Iterable[RenderableType]:
    for remedy in remedies:
        yield ProseText(upper_first(remedy.text.removeprefix("Or ")))
        for line in format_commands(remedy.commands, 4, width):
            yield ProseText(line, style="bold", no_wrap=True, overflow="ignore")
    if not remedies:
        yield ProseText("Nothing.")


def _render_retired(retired: RetiredRule, replacements: Sequence[RuleEntry]) -> Iterable[RenderableType]:
    """Yield the entry for a retired rule, which names the rules that replace it."""
    yield ProseText.assemble(
        (f"{retired.code} {retired.name}", "bold"), f" was retired in {retired.removed_in}"
    )
    yield ProseText(retired.title)
    yield ProseText("")
    codes = " and ".join(rule.code for rule in replacements)
    replacement_note = f" {codes} {'tell' if len(replacements) > 1 else 'tells'} it now."
    yield ProseText(retired.reason + (replacement_note if replacements else " Nothing reports it now."))
    yield ProseText("")


def _format_cause_line(entry: CauseEntry) -> RichText:
    codes = f" ({', '.join(entry.rule_codes)})" if entry.rule_codes else ""
    return ProseText.assemble((entry.cause.value, "bold"), codes)


def _make_table(rows: Iterable[tuple[RichText, RichText, RichText]]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    for row in rows:
        table.add_row(*row)
    return table


def _render_prose(text: str) -> Iterable[RenderableType]:
    """Yield the paragraphs of a text. Rich wraps them to the width of the terminal.

    List entries and indented lines, which are commands, stay on lines of their own.
    """
    for number, paragraph in enumerate(text.split("\n\n")):
        if number:
            yield ProseText("")
        for line in _join_lines(paragraph):
            indent = len(line) - len(line.lstrip())
            bullet_width = 2 if line.lstrip().startswith(("* ", "- ")) else 0
            if bullet_width:
                grid = Table.grid()
                grid.add_column(width=bullet_width, no_wrap=True)
                grid.add_column(ratio=1)
                grid.add_row(ProseText("*"), ProseText(line.lstrip()[2:]))
                yield Padding(grid, (0, 0, 0, indent))
            else:
                yield Padding(ProseText(line.lstrip()), (0, 0, 0, indent))


def _join_lines(paragraph: str) -> list[str]:
    """Return the lines of a paragraph, each joined with the lines that continue it."""
    lines: list[str] = []
    for line in paragraph.splitlines():
        is_list_entry = line.lstrip().startswith(("* ", "- "))
        is_command = line.startswith("    ")
        follows_command = bool(lines) and lines[-1].startswith("    ")
        is_continuation = bool(lines) and not is_list_entry and not is_command and not follows_command
        if is_continuation:
            lines[-1] += " " + line.strip()
        else:
            lines.append(line.rstrip())
    return lines
