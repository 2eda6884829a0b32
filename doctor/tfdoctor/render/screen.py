"""`check` on one screen: is the GPU used, why not, what is typed, can that be undone, and what without root.

What has no room is counted, and named with the command that shows it: `-v` has everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor import __version__
from tfdoctor.advice.undo_hints import describe_undo_rights, needs_root
from tfdoctor.facts import value_of
from tfdoctor.findings import OutcomeKind, Severity, Status
from tfdoctor.render.finding import SEVERITY_STATUS, capitalize_remedy, mark
from tfdoctor.render.paragraphs import (
    LABEL,
    SCREEN_LINES,
    Page,
    Text,
    cells,
    command_lines,
    few,
    lines_of,
    print_hanging,
    print_labelled,
)
from tfdoctor.text import clean_line, join_words

if TYPE_CHECKING:
    from tfdoctor.environment.models import Offer
    from tfdoctor.findings import Area, Finding, Report

__all__ = [
    "ASK",
    "MAX_TEXT_LINES",
    "NAME",
    "NARROW",
    "UNDOABLE",
    "format_count",
    "more",
    "print_heading",
    "print_reason",
    "render_screen",
    "todo",
    "verdict",
]

NAME = 13
"""Columns of an area's name."""
UNDOABLE = "No root needed; it asks first, and with --undo takes all of it back."
ASK = "Ask whoever runs this machine: it needs root."
MAX_COMMAND_CHARS = 28
"""Characters of a command that is repeated; a longer one is still to be seen above its answer."""
NARROW = 60
"""Columns below which a text may take twice the lines."""
ALL, ONE_HEADING, GOOD_ON_ONE, FEW_COMMANDS, SHORT, DENSE = LEVELS = range(6)
"""How much is left out where a screen has no room."""
FOR_TENSORFLOW = ("CUDA", "cuDNN", "Loader")
"""Areas that are looked into for one TensorFlow."""
CODES = 4
"""Codes of findings that are named in one line."""
MAX_TEXT_LINES = 3
"""Lines of a text; of commands where there is no room for all of them."""


def render_screen(
    report: Report, *, fix: Offer | None, typed: str, width: int = 80, colour: bool = False
) -> str:
    """Return the report on one screen. typed: the command that gave it; `-v` is added."""
    typed = typed if len(typed) <= MAX_COMMAND_CHARS else "the same with"
    for less in LEVELS if width >= NARROW else LEVELS[:FEW_COMMANDS]:
        out = Page(width, coloured=colour)
        _print_all(out, report, fix, typed, less)
        if out.height <= SCREEN_LINES:
            break
    return out.text


def _print_all(out: Page, report: Report, fix: Offer | None, typed: str, less: int) -> None:
    main = report.main
    print_heading(out, report, short=less >= ONE_HEADING)
    verdict(out, report)
    if main is not None and main is not report.root and report.verdict.gpu_usable is not None:
        status = SEVERITY_STATUS[main.severity]
        print_hanging(out, mark(status), f"{clean_line(main.title)} [{main.code}]")
    if main is not None:
        out.print()
        print_reason(out, main.explanation, lines=MAX_TEXT_LINES if less < SHORT else 2, dense=less >= DENSE)
        offered = fix if fix is not None and any(one is main for one in fix.findings) else None
        todo(out, main, offered, typed, least=less >= FEW_COMMANDS)
    out.print()
    _areas(out, report, one_line=less >= GOOD_ON_ONE)
    _unmade(out, report)
    _print_observed(out, report)
    out.print()
    _last(out, report, fix, typed)


def print_heading(out: Page, report: Report, *, short: bool = False) -> None:
    """Which Python was examined, and why that one. `short`: on one line, unless it is none that anybody meant."""
    python, choice = value_of(report.facts.python), report.facts.choice
    where = f"{python.executable} (Python {python.version})" if python is not None else "no Python answered"
    if python is None and choice is not None:
        where = f"{choice.path} (no answer)"
    odd = choice is not None and (choice.on_path or choice.lost)
    if choice is not None and choice.why and (odd or not short):
        where = f"{where}, {choice.why}"
    if choice is not None and choice.on_path:
        where += f" ({choice.how}), while the shell finds another Python: {choice.on_path}"
    for lost in choice.lost if choice is not None else ():
        where += f"; {lost.variable} ({lost.prefix}) cannot be used"
    text = clean_line(f"tfdoctor {__version__} · {where}")
    out.print(Text(text))
    out.print()


def verdict(out: Page, report: Report) -> None:
    """Whether the GPU is used, and why not."""
    usable = report.verdict.gpu_usable
    status = {True: Status.GOOD, False: Status.BAD, None: Status.WARNING}[usable]
    code = f" [{report.root.code}]" if report.root is not None else ""
    print_hanging(out, mark(status), clean_line(report.verdict.headline) + code, style="bold")


def print_reason(out: Page, text: str, *, lines: int = MAX_TEXT_LINES, dense: bool = False) -> None:
    """The reason, in whole sentences; `dense`: without an empty line below it."""
    columns = out.width - LABEL
    lines = lines if out.width >= NARROW else 2 * lines
    print_labelled(out, "Why", few(clean_line(text, limit=3000), columns, lines))
    if not dense:
        out.print()


def todo(out: Page, finding: Finding, fix: Offer | None, typed: str, *, least: bool = False) -> None:
    """What is typed, whether that can be undone, and what somebody without root does. `least`: in few lines."""
    if fix is not None:
        label = Text("  Fix it".ljust(LABEL), style="bold")
        lines = list(lines_of([fix.command], LABEL, out.width))
        if not lines[0][:LABEL].strip():
            label = label + Text(lines.pop(0)[LABEL:], style="bold")
        out.print(label, wrap=False)  # alone where the command needs the whole width
        for line in lines:
            out.print(Text(line, style="bold"), wrap=False)
        own = next((one for one in finding.remedies if one.steps), None)
        if own is not None and not least:
            print_labelled(out, "", few(capitalize_remedy(own.text), out.width - LABEL, 2))
        print_labelled(out, "", UNDOABLE)
        if own is not None and own.by_hand:
            print_labelled(out, "By hand", few(capitalize_remedy(own.by_hand), out.width - LABEL, 2))
            print_labelled(out, "", f"What to type for that: {typed} -v")
        return
    if not finding.remedies:
        return
    first = finding.remedies[0]
    commands = [one for one in first.commands if not one.startswith("tfdoctor check")] or first.commands
    print_labelled(out, "Do", few(capitalize_remedy(first.full_text), out.width - LABEL, 2))
    shown = list(lines_of(commands, LABEL, out.width))
    if least and len(shown) > MAX_TEXT_LINES + 1:
        commands = _whole(commands, out.width)
        command_lines(out, commands, LABEL, style="bold", broken=True)
        print_labelled(out, "", f"The rest: {typed} -v")
    else:
        command_lines(out, commands, LABEL, style="bold", broken=True)
    if told := describe_undo_rights(first):
        print_labelled(out, "", told)
    if needs_root(first):
        _print_alternative(out, finding, typed)


def _whole(commands: list[str] | tuple[str, ...], width: int) -> list[str]:
    """Return the first commands that have room in a few lines: a part of one is of no use."""
    kept: list[str] = []
    for command in commands:
        if kept and len(list(lines_of([*kept, command], LABEL, width))) > MAX_TEXT_LINES:
            break
        kept.append(command)
    return kept


def _print_alternative(out: Page, finding: Finding, typed: str) -> None:
    """A way that needs none, or who can be asked."""
    for other in finding.remedies[1:]:
        does = any(
            one.startswith(("export ", "tfdoctor install", "tfdoctor check")) for one in other.commands
        )
        if does and not needs_root(other):
            text = f"{capitalize_remedy(other.full_text).rstrip('.:')}: {typed} -v"
            print_labelled(out, "No root?", few(text, out.width - LABEL, 2))
            return
    print_labelled(out, "No root?", ASK)


# ---------------------------------------------------------------- what was seen


def _areas(out: Page, report: Report, *, one_line: bool) -> None:
    good = [area for area in report.areas if area.status is Status.GOOD]
    vain = [area for area in report.areas if area.status is Status.UNKNOWN and area.name in FOR_TENSORFLOW]
    for area in report.areas:
        if area.name == "Loader" and _repeats(area, report):
            continue
        if one_line and (area in good or (area in vain and len(vain) > 1)):
            continue
        _row(out, area, report.main)
    if one_line and len(vain) > 1:
        names = ", ".join(area.name for area in vain)
        print_hanging(
            out, mark(Status.UNKNOWN), f"{names}: not looked into, there is no TensorFlow to do it for"
        )
    if one_line and good:
        names = ", ".join(area.name for area in good if area.name != "Loader")
        print_hanging(out, mark(Status.GOOD), names)


def _repeats(area: Area, report: Report) -> bool:
    """Return whether another line says what the loader's does, or it says nothing that decides."""
    return area.status is Status.GOOD or any(
        one.status is Status.BAD for one in report.areas if one.name in ("CUDA", "cuDNN", "Driver")
    )


def _row(out: Page, area: Area, main: Finding | None) -> None:
    texts = [clean_line(text) for text in (area.text, *area.brief)]
    beside = [one for one in area.findings if one is not main]
    code = ""
    if area.findings:
        one = (beside or area.findings)[0]
        code = f" [{one.code}]"
        reasons = [clean_line(one.title)] if beside else []
        reasons += [one.row] if one.row and (beside or not area.reason) else []
        texts = [
            *(f"{text}: {reason}" for reason in reasons if reason not in texts for text in texts),
            *([reasons[-1]] if reasons else texts),
        ]
    room = max(out.width - NAME - 2 - len(code), 12)
    text = next((text for text in texts if cells(text) <= room), texts[-1])
    print_hanging(out, mark(area.status) + Text(area.name.ljust(NAME), style="bold"), text + code)


def _unmade(out: Page, report: Report) -> None:
    """ "Could not be run" under a good word needs its reason."""
    if not report.verdict.gpu_usable:
        return
    unmade = [o for o in report.outcomes if o.kind in (OutcomeKind.COULD_NOT_CHECK, OutcomeKind.CRASHED)]
    for outcome in unmade[:2]:
        crashed = "crashed (a defect of tfdoctor): " if outcome.kind is OutcomeKind.CRASHED else ""
        text = f"{outcome.code} could not be run: {crashed}{clean_line(outcome.why)}"
        print_hanging(out, mark(Status.UNKNOWN), few(text, out.width - 2, 2 if out.width >= NARROW else 4))


def _print_observed(out: Page, report: Report) -> None:
    """What TensorFlow did, where it was run: what differs from the prediction, and what failed."""
    observed, said = report.observed, report.prediction
    if observed is None:
        return
    out.print()
    rows = (
        ("imports", said.import_ok, observed.import_ok),
        ("registers a GPU", said.gpu_registered, observed.gpu_registered),
        ("GPUs", said.gpu_count, observed.gpu_count),
        ("missing", ", ".join(said.missing_libraries), ", ".join(observed.missing_libraries)),
    )
    differs = [
        f"{name}: predicted {_format_value(was)}, was {_format_value(found)}"
        for name, was, found in rows
        if was != found
    ]
    ran = f"TensorFlow was run ({observed.seconds:.1f} s)"
    if not differs:
        print_hanging(out, mark(Status.GOOD), f"{ran} and did what was predicted.")
    for text in differs:
        print_hanging(out, mark(Status.WARNING), f"{ran}; {clean_line(text)}")
    for line in observed.computed:
        status = Status.BAD if "failed" in line else Status.GOOD
        print_hanging(out, mark(status), few(f"It computed: {clean_line(line)}", out.width - 2, 2))
    if observed.error:
        print_hanging(out, Text("  "), few(clean_line(observed.error), out.width - 2, 2))


def _format_value(value: object) -> str:
    return (
        {True: "yes", False: "no", None: "not known"}[value]
        if isinstance(value, bool) or value is None
        else str(value) or "nothing"
    )


# ---------------------------------------------------------------- the last lines


def format_count(count: int, word: str, plural: str = "") -> str:
    """Return "1 problem", "2 problems"."""
    return f"{count} {word if count == 1 else plural or f'{word}s'}"


def _last(out: Page, report: Report, fix: Offer | None, typed: str) -> None:
    counts = report.counts()
    errors = sum(one.severity is Severity.ERROR for one in report.findings)
    warnings = sum(one.severity is Severity.WARNING for one in report.findings)
    unmade = counts["could_not_check"] + counts["crashed"]
    parts = [format_count(errors, "problem") + _codes(report, Severity.ERROR)] if errors else []
    parts += [format_count(warnings, "warning") + _codes(report, Severity.WARNING)] if warnings else []
    parts = [join_words(parts)] if parts else []
    parts += [] if errors else [f"{counts['clean']} checks found nothing"]
    parts += [f"{format_count(unmade, 'check')} could not be run"] if unmade else []
    out.print(Text(f"{'; '.join(parts)}."))
    main = report.main
    if main is None:
        if report.observed is None and report.verdict.gpu_usable:
            more(out, "See it compute", [(f"{typed} --deep", "")])
        elif not report.verdict.gpu_usable:
            more(out, "More", [(f"{typed} -v", "")])
        return
    fixed = fix is not None and any(one is main for one in fix.findings)
    ways = len(main.remedies) - (not fixed)
    beside = [format_count(ways, "other way")] if ways > 0 else []
    beside += ["all warnings"] if warnings > 1 else []
    if fix is not None and not fixed:
        more(out, f"{join_words([one.code for one in fix.findings][:3])} can be fixed", [(fix.command, "")])
    evidence = join_words([*beside, "the evidence"])
    more(out, "More", [(f"tfdoctor explain {main.code}", ""), (f"{typed} -v", evidence)])


def _codes(report: Report, severity: Severity) -> str:
    """Return which ones, where there are several: the screen tells of one."""
    codes = [one.code for one in report.findings if one.severity is severity]
    if len(codes) < 2:
        return ""
    shown = list(dict.fromkeys(codes))
    return f" ({', '.join(shown[:CODES])}{', …' if len(shown) > CODES else ''})"


def more(out: Page, what: str, commands: list[tuple[str, str]]) -> None:
    """Commands that tell more, each with what it tells; on one line where they have room."""
    line = Text(f"{what}: ")
    for number, (command, tells) in enumerate(commands):
        told = Text(command) + Text(f" ({tells})" if tells else "")
        if number and len(line) + len(told) + 2 > out.width:
            out.print(line, wrap=len(line) > out.width)
            line = Text(f"{'':{len(what) + 2}}") + told
        else:
            line = line + Text(", " if number else "") + told
    out.print(line, wrap=len(line) > out.width)
