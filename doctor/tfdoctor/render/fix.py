"""What fix would do, did and left, in a terminal and as JSON (docs/schemas/fix.schema.json)."""

from __future__ import annotations

import shlex
from itertools import groupby
from typing import TYPE_CHECKING, Any

from tfdoctor.advice.undo_hints import describe_undo_rights, needs_root
from tfdoctor.causes.steps import SHELL_STEPS
from tfdoctor.environment.models import FixStatus
from tfdoctor.findings import Severity
from tfdoctor.render.finding import finding_json
from tfdoctor.render.json import SCHEMA_VERSION
from tfdoctor.render.paragraphs import SCREEN_LINES, Page, Text, command_lines, few, lines_of, print_hanging
from tfdoctor.render.report import report_json
from tfdoctor.render.screen import ASK, format_count
from tfdoctor.text import clean, clean_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.environment.history.journal import Undone
    from tfdoctor.environment.models import Attempt, FixResult, Unfixed

__all__ = ["fix_json", "render_fix", "render_undo", "undo_json"]

MARKS = {
    FixStatus.PLANNED: ("→", "bold"),
    FixStatus.FIXED: ("✓", "green"),
    FixStatus.ROLLED_BACK: ("–", "yellow"),
    FixStatus.FAILED: ("✗", "bold red"),
}


def render_fix(
    result: FixResult,
    *,
    dry: bool,
    asking: bool = False,
    verbose: bool = False,
    quiet: bool = False,
    width: int = 80,
    colour: bool = False,
) -> str:
    """Return `dry`: nothing was changed; `asking`: it may be as soon as somebody says so."""
    for less in range(1 if verbose or quiet else 4):
        out = Page(width, coloured=colour)
        if not quiet:
            _print_all(out, result, dry=dry, verbose=verbose, less=less)
            out.print()
        _end(out, result, dry=dry, asking=asking)
        if out.height <= SCREEN_LINES:
            break
    return out.text


def _print_all(out: Page, result: FixResult, *, dry: bool, verbose: bool, less: int) -> None:
    """What is done and what is left; `less`: how much of it has no room, 3 at most."""
    how = " (as activating it sets the variables)" if result.activated else ""
    print_hanging(out, Text("Environment "), clean_line(f"{result.environment.prefix}{how}"))
    for sentence in result.recovered:
        print_hanging(out, Text("  "), clean_line(sentence, limit=1000))
    most = len(result.attempts) if verbose or less < 2 else 3
    for done in result.attempts[:most]:
        _print_done(out, done, verbose=verbose or dry, most=None if verbose else (8, 4, 2, 1)[less])
    tried = {(done.candidate.finding.code, done.candidate.finding.title) for done in result.attempts}
    kept = result.unfixed if verbose else result.unfixed[: (4, 2, 1, 0)[less]]
    for left in kept:
        _print_left(
            out,
            left,
            tried=(left.finding.code, left.finding.title) in tried,
            verbose=verbose,
            most=None if verbose else (8, 4, 2, 1)[less],
        )
    rest = len(result.attempts[most:]) + len(result.unfixed) - len(kept)
    if rest:
        out.print()
        out.print(Text(f"and {format_count(rest, 'more finding')} (-v)."))


def _print_done(out: Page, done: Attempt, *, verbose: bool, most: int | None) -> None:
    mark, style = MARKS[done.status]
    finding = done.candidate.finding
    out.print()
    print_hanging(out, Text(f"{mark} {finding.code}  ", style=style), clean_line(finding.title), style="bold")
    _text(out, done.candidate.remedy.text, most)
    if verbose or done.status is not FixStatus.FIXED:
        _commands(out, done.commands, most)
    result = {
        FixStatus.FIXED: f"Done: {done.changes} file{'s' * (done.changes != 1)} changed.",
        FixStatus.ROLLED_BACK: f"{done.detail} It was taken back.",
        FixStatus.FAILED: f"It failed and was taken back: {done.detail}",
        FixStatus.PLANNED: "",
    }[done.status]
    if result:
        print_hanging(out, Text("          "), clean_line(result, limit=1000))


def _print_left(out: Page, left: Unfixed, *, tried: bool, verbose: bool, most: int | None) -> None:
    """`tried`: what fix can do about it stands above, and that it did not help."""
    finding = left.finding
    remedies = [remedy for remedy in finding.remedies if not (tried and remedy.steps)]
    if tried and not remedies:
        return
    mark, style = ("✗", "bold red") if finding.severity >= Severity.ERROR else ("!", "yellow")
    out.print()
    print_hanging(out, Text(f"{mark} {finding.code}  ", style=style), clean_line(finding.title), style="bold")
    why = "What fix could do did not help. Decide what else to do:" if tried else left.why
    print_hanging(out, Text("          "), clean_line(why, limit=1000))
    for remedy in remedies[: None if verbose else 1]:
        _text(out, remedy.text, most)
        _commands(out, remedy.commands, most)
        told = [describe_undo_rights(remedy), f"No root? {ASK}" if needs_root(remedy) else ""]
        for text in filter(None, told):
            print_hanging(out, Text("          "), text)


def _text(out: Page, text: str, most: int | None) -> None:
    text = clean_line(text, limit=1000)
    print_hanging(
        out, Text("          "), text if most is None else few(text, max(out.width - 10, 20), min(most, 3))
    )


def _commands(out: Page, commands: Sequence[str], most: int | None) -> None:
    """most: lines that are shown; of a command all or nothing."""
    if most is None:
        command_lines(out, commands, 12)
        return
    shown: list[str] = []
    for command in commands:
        if shown and len(list(lines_of([*shown, command], 12, out.width))) > most:
            break
        shown.append(command)
    for changed, lines in groupby(shown, lambda one: one.startswith(("+ ", "- "))):
        if not changed:
            command_lines(out, lines, 12, broken=True)
            continue
        for line in lines:  # of a script: nobody types it
            print_hanging(out, Text(f"            {line[:2]}"), clean_line(line[2:], limit=4000))
    if len(shown) < len(commands):
        out.print(Text(f"            and {format_count(len(commands) - len(shown), 'more command')} (-v)"))


def _end(out: Page, result: FixResult, *, dry: bool, asking: bool) -> None:
    after = result.after
    usable = after.verdict.gpu_usable
    mark, style = {True: ("✓", "green"), False: ("✗", "bold red"), None: ("!", "yellow")}[usable]
    if dry:
        count = len(result.attempts)
        text = (
            f"{'' if asking else 'Nothing was changed. '}{count} finding{'s' * (count != 1)} can be fixed here."
            if count
            else f"Fix can do nothing here. {after.verdict.headline}"
        )
        if count:
            print_hanging(out, Text(f"{mark} ", style=style), clean_line(after.verdict.headline, limit=1000))
        print_hanging(out, Text(""), clean_line(text, limit=1000), style="bold")
        if count and not asking:
            typed = f"tfdoctor fix --python {shlex.quote(result.environment.python)}"
            out.print(Text("To have it done:"))
            command_lines(out, [typed], 4, style="bold", broken=True)
        if count:
            print_hanging(out, Text(""), "No root needed; `--undo` takes all of it back.")
        return
    nothing = "" if result.attempts else "Fix can do nothing here. "
    print_hanging(
        out,
        Text(f"{mark} ", style=style),
        clean_line(nothing + after.verdict.headline, limit=1000),
        style="bold",
    )
    seen = result.observed
    if seen is not None:
        devices = ", ".join(seen.devices) or seen.error or "none"
        text = clean_line(f"TensorFlow itself lists: {devices} ({seen.seconds:.1f} s)", limit=600)
        print_hanging(out, Text("  "), text)
        for line in seen.computed:
            if "failed" in line:
                print_hanging(
                    out, Text("! ", style="yellow"), clean_line(f"computing on it: {line}", limit=600)
                )
    if result.fixed:
        environment = result.environment
        if any(
            isinstance(step, SHELL_STEPS) for one in result.attempts if one.ok for step in one.candidate.steps
        ):
            again = (
                f"conda activate {shlex.quote(environment.prefix)}"
                if environment.kind == "conda"
                else f". {shlex.quote(f'{environment.prefix}/bin/activate')}"
            )
            _command(out, "New variables hold from the next activation on: ", again)
        undo = f"tfdoctor fix --undo --python {shlex.quote(environment.python)}"
        _command(out, "To take all of it back: ", undo)


def _command(out: Page, text: str, command: str) -> None:
    """Never broken: it is there to be copied."""
    line = Text(text) + Text(clean(command).replace("\n", "\ufffd"), style="bold")
    out.print(line, wrap=False)


def render_undo(prefix: str, undone: Undone, *, width: int = 80, colour: bool = False) -> str:
    """Return what was taken back."""
    out = Page(width, coloured=colour)
    if not undone.entries:
        print_hanging(out, Text("– "), clean_line(f"fix has changed nothing in {prefix}."))
        return out.text
    for entry in undone.entries:
        codes = ", ".join(entry.codes)
        text = clean_line(f"{entry.title} ({entry.changes} changed, {entry.when})", limit=600)
        print_hanging(out, Text(f"✓ {codes}  ", style="green"), text)
    count = undone.restored
    print_hanging(
        out, Text(""), clean_line(f"{prefix} is as it was: {count} path{'s' * (count != 1)} restored.")
    )
    for path in undone.kept:
        print_hanging(
            out, Text("! ", style="yellow"), clean_line(f"left alone, because it was changed since: {path}")
        )
    return out.text


# ---------------------------------------------------------------- JSON


def fix_json(result: FixResult) -> dict[str, Any]:
    """Return a run of fix, or its plan."""
    return {
        "schema_version": SCHEMA_VERSION,
        "environment": result.environment.prefix,
        "activated": result.activated,
        "repairs": [
            {
                "code": done.candidate.finding.code,
                "cause": done.candidate.finding.cause.value,
                "title": done.candidate.finding.title,
                "text": done.candidate.remedy.text,
                "status": done.status.value,
                "detail": done.detail,
                "commands": list(done.commands),
                "changes": done.changes,
            }
            for done in result.attempts
        ],
        "left": [{"why": left.why, "finding": finding_json(left.finding)} for left in result.unfixed],
        "recovered": list(result.recovered),
        "undone": None,
        "check": report_json(result.after),
    }


def undo_json(prefix: str, undone: Undone) -> dict[str, Any]:
    """Return a run of fix --undo."""
    return {
        "schema_version": SCHEMA_VERSION,
        "environment": prefix,
        "activated": False,
        "repairs": [],
        "left": [],
        "recovered": [],
        "undone": {
            "entries": [
                {
                    "codes": list(entry.codes),
                    "title": entry.title,
                    "when": entry.when,
                    "changes": entry.changes,
                }
                for entry in undone.entries
            ],
            "restored": undone.restored,
            "kept": list(undone.kept),
        },
        "check": None,
    }
