"""`tfdoctor explain` on the terminal and as JSON (docs/schemas/explain.schema.json)."""

from __future__ import annotations

import dataclasses
import shlex
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tfdoctor.explain import next_command
from tfdoctor.render.json import SCHEMA_VERSION
from tfdoctor.render.paragraphs import SCREEN_LINES, Page, few, lines_of
from tfdoctor.render.screen import more
from tfdoctor.render.tables import page, text_of
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rich.console import RenderableType

    from tfdoctor.causes.steps import Remedy
    from tfdoctor.explain import CauseEntry, Explanation, RuleEntry
    from tfdoctor.rules.retired import RetiredRule

NARROW = 60
"""Columns below which a list is printed as one paragraph an entry instead of a table."""
WIDEST = 100
"""Columns beyond which prose is not stretched."""


def explanation_json(found: Explanation) -> dict[str, Any]:
    """`explain --json`: one shape, whatever was asked for."""
    return {
        "schema_version": SCHEMA_VERSION,
        "query": found.query,
        "rules": [_rule_json(rule) for rule in found.rules],
        "causes": [
            {"cause": entry.cause.value, "meaning": entry.meaning, "rules": list(entry.codes)}
            for entry in found.causes
        ],
        "related": [rule.code for rule in found.related],
    }


def _rule_json(rule: RuleEntry) -> dict[str, Any]:
    return {
        "code": rule.code,
        "name": rule.name,
        "title": rule.title,
        "causes": [cause.value for cause in rule.causes],
        "summary": rule.summary,
        "sections": [{"heading": s.heading, "text": s.text} for s in rule.sections],
    }


def render_explanation(
    found: Explanation, *, whole: bool = True, width: int = 80, colour: bool = False
) -> str:
    """Return the explanation as text, at most `width` columns wide; on one screen, or the `whole` of it."""
    text, last = _set(found, width, colour=colour), Page(width, coloured=colour)
    if here := next_command(found):
        more(last, "What to type here", [(here, "")])
    if whole or found.query is None or _height(text) + bool(here) + last.height <= SCREEN_LINES:
        return f"{text}\n{last.text}" if here else text
    more(last, "More", [(f"tfdoctor explain {shlex.quote(clean_line(found.query))} -v", "")])
    for less in LESS:
        rest = _set(less(found), width, colour=colour)
        if _height(rest) <= SCREEN_LINES - 1 - last.height:
            break
    return f"{rest}\n{last.text}"


def _set(found: Explanation, width: int, *, colour: bool) -> str:
    out = page(min(width, WIDEST), coloured=colour)
    lines = _list(found, out.width) if found.query is None else _details(found, out.width)
    out.print(Group(*lines), crop=False)  # a command is never cut
    return text_of(out)


def _height(text: str) -> int:
    return len(text.splitlines())


def _drop_related(found: Explanation) -> Explanation:
    return dataclasses.replace(found, related=())


def _drop_how(found: Explanation) -> Explanation:
    rules = [_keep_sections(rule, lambda heading: heading != "How it is seen") for rule in found.rules]
    return dataclasses.replace(_drop_related(found), rules=tuple(rules))


def _drop_causes(found: Explanation) -> Explanation:
    return dataclasses.replace(_drop_how(found), causes=() if found.rules else found.causes)


def _shorten(found: Explanation) -> Explanation:
    """Of each part as much as a few lines hold."""
    found = _drop_causes(found)
    rules = [
        dataclasses.replace(
            rule,
            sections=tuple(
                dataclasses.replace(one, text=few(" ".join(one.text.partition("\n\n")[0].split()), 78, 5))
                for one in rule.sections
            ),
        )
        for rule in found.rules
    ]
    return dataclasses.replace(found, rules=tuple(rules[:1]))


def _keep_sections(rule: RuleEntry, wanted: Callable[[str], bool]) -> RuleEntry:
    return dataclasses.replace(rule, sections=tuple(one for one in rule.sections if wanted(one.heading)))


LESS = (_drop_related, _drop_how, _drop_causes, _shorten)
"""What is left out where the whole has no room on one screen, more with each."""


def _list(found: Explanation, width: int) -> Iterable[RenderableType]:
    yield Text("Rules", style="bold")
    yield Text("")
    if width < NARROW:
        for rule in found.rules:
            yield Text.assemble((rule.code, "bold"), " ", rule.name)
            yield Padding(Text(rule.title), (0, 0, 0, 2))
    else:
        yield _columns(
            [(Text(rule.code, style="bold"), Text(rule.name), Text(rule.title)) for rule in found.rules]
        )
    yield Text("")
    yield Text("Causes", style="bold")
    yield Text("")
    for entry in found.causes:
        yield _cause_line(entry)
        yield Padding(Text(entry.meaning), (0, 0, 0, 2))
    yield Text("")
    yield Text("For more, type `tfdoctor explain CODE`, or the words of a message instead of the code.")


def _details(found: Explanation, width: int) -> Iterable[RenderableType]:
    if found.says:
        yield Text(found.says)
        yield Text("")
    if found.retired is not None:
        yield from _render_retired(found.retired, found.rules)
    for rule in found.rules:
        yield Text.assemble((f"{rule.code} {rule.name}", "bold"))
        yield Text(rule.title)
        for section in rule.sections:
            yield Text("")
            yield Text(section.heading, style="bold")
            yield from _prose(section.text)
        yield Text("")
    if not found.rules and len(found.causes) == 1:
        entry = found.causes[0]
        yield Text.assemble((f"{entry.cause.row.code} {entry.cause.value}", "bold"))
        yield Text(entry.cause.row.title)
        yield Text("")
        yield Text("What it means", style="bold")
        yield Text(entry.meaning)
        if not entry.codes:
            yield Text("`tfdoctor diagnose` finds it in a log; no check of a machine names it.")
        yield Text("")
        yield Text("What to do", style="bold")
        yield from _todo(entry.remedies, width)
    elif not found.causes and any(rule.has_all_causes for rule in found.rules):
        yield Text("Causes", style="bold")
        yield Text("Any: the data names it.")
    elif found.causes:
        yield Text("Cause" if len(found.causes) == 1 else "Causes", style="bold")
        for entry in found.causes:
            yield Text(entry.cause.value)
            yield Padding(Text(entry.meaning), (0, 0, 0, 2))
    if found.related:
        yield Text("")
        one = len(found.causes) == 1
        heading = "Rules" if not found.rules else "Other rules"
        yield Text(f"{heading} that can name {'this cause' if one else 'one of these causes'}", style="bold")
        if width < NARROW:
            for rule in found.related:
                yield Text(f"{rule.code} {rule.name}")
        else:
            yield _columns([(Text(r.code), Text(r.name), Text(r.title)) for r in found.related])


def _todo(remedies: Sequence[Remedy], width: int) -> Iterable[RenderableType]:
    for remedy in remedies:
        yield Text(remedy.text.removeprefix("Or ")[:1].upper() + remedy.text.removeprefix("Or ")[1:])
        for line in lines_of(remedy.commands, 4, width):
            yield Text(line, style="bold", no_wrap=True, overflow="ignore")
    if not remedies:
        yield Text("Nothing.")


def _render_retired(retired: RetiredRule, today: Sequence[RuleEntry]) -> Iterable[RenderableType]:
    yield Text.assemble((f"{retired.code} {retired.name}", "bold"), f" was retired in {retired.since}")
    yield Text(retired.title)
    yield Text("")
    instead = f" {' and '.join(rule.code for rule in today)} {'tell' if len(today) > 1 else 'tells'} it now."
    yield Text(retired.why + (instead if today else " Nothing reports it now."))
    yield Text("")


def _cause_line(entry: CauseEntry) -> Text:
    codes = f" ({', '.join(entry.codes)})" if entry.codes else ""
    return Text.assemble((entry.cause.value, "bold"), codes)


def _columns(rows: Iterable[tuple[Text, Text, Text]]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    for row in rows:
        table.add_row(*row)
    return table


def _prose(text: str) -> Iterable[RenderableType]:
    """Paragraphs are filled again; a list's entries and indented lines (commands) stay lines of their own."""
    for number, paragraph in enumerate(text.split("\n\n")):
        if number:
            yield Text("")
        for line in _lines(paragraph):
            indent = len(line) - len(line.lstrip())
            hang = 2 if line.lstrip().startswith(("* ", "- ")) else 0
            if hang:
                entry = Table.grid()
                entry.add_column(width=hang, no_wrap=True)
                entry.add_column(ratio=1)
                entry.add_row(Text("*"), Text(line.lstrip()[2:]))
                yield Padding(entry, (0, 0, 0, indent))
            else:
                yield Padding(Text(line.lstrip()), (0, 0, 0, indent))


def _lines(paragraph: str) -> list[str]:
    lines: list[str] = []
    for line in paragraph.splitlines():
        starts = line.lstrip().startswith(("* ", "- "))
        command = line.startswith("    ")
        goes_on = bool(lines) and not starts and not command and not lines[-1].startswith("    ")
        if goes_on:
            lines[-1] += " " + line.strip()
        else:
            lines.append(line.rstrip())
    return lines
