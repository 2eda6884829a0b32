"""The plan or the result of `fix`, as text and as JSON (docs/schemas/fix.schema.json)."""

from __future__ import annotations

import shlex
from itertools import groupby
from typing import TYPE_CHECKING, Any

from tfdoctor.core.causes.steps import VariableStep
from tfdoctor.core.findings import Severity, Status
from tfdoctor.core.text import clean, clean_line
from tfdoctor.environments.models import FixStatus
from tfdoctor.remedies.undo_hints import describe_root, describe_undo_with_root_note, needs_root
from tfdoctor.render.finding import STATUS_BY_USABLE, format_mark, make_finding_json
from tfdoctor.render.json import make_document_head
from tfdoctor.render.paragraphs import (
    SCREEN_LINES,
    Page,
    Text,
    print_commands,
    print_hanging,
    select_commands,
    shorten_text,
)
from tfdoctor.render.report import make_report_json
from tfdoctor.render.screen import format_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.environments.history.journal import UndoResult
    from tfdoctor.environments.models import Attempt, FixResult, UnfixedFinding

__all__ = ["make_fix_json", "make_undo_json", "render_fix", "render_undo"]

NOTHING_TO_FIX = "Nothing to fix automatically."
MARKS = {
    FixStatus.PLANNED: ("→", "bold"),
    FixStatus.FIXED: ("✓", "green"),
    FixStatus.ROLLED_BACK: ("–", "yellow"),
    FixStatus.FAILED: ("✗", "bold red"),
}
"""The mark and the style of each status."""


def render_fix(
    result: FixResult,
    *,
    is_plan: bool,
    asks_next: bool = False,
    verbose: bool = False,
    quiet: bool = False,
    width: int = 80,
    colour: bool = False,
) -> str:
    """Return the plan or the result of `fix` as text.

    `is_plan` says whether nothing has been changed yet, and `asks_next` whether the user is then asked to agree. With
    `quiet`, only the conclusion is printed. Unless `verbose` is set, the text is shortened to one screen.
    """
    for level in range(1 if verbose or quiet else 4):  # shortened more and more, until it fits
        out = Page(width, coloured=colour)
        if not quiet:
            _print_details(out, result, is_plan=is_plan, verbose=verbose, level=level)
            out.print()
        _print_conclusion(out, result, is_plan=is_plan, asks_next=asks_next)
        if out.height <= SCREEN_LINES:
            break
    return out.text


def _print_details(out: Page, result: FixResult, *, is_plan: bool, verbose: bool, level: int) -> None:
    """Print the attempts and the remaining findings.

    `level` says how much the text is shortened, from 0 (least) to 3 (most). With `verbose`, it is not shortened.
    """
    activation_note = " (with its activation variables)" if result.is_activated else ""
    print_hanging(out, Text("Environment "), clean_line(f"{result.environment.prefix}{activation_note}"))
    for sentence in result.recovery_notes:
        print_hanging(out, Text("  "), clean_line(sentence, limit=1000))
    max_attempts = len(result.attempts) if verbose or level < 2 else 3
    for attempt in result.attempts[:max_attempts]:
        _print_attempt(
            out, attempt, verbose=verbose or is_plan, max_lines=None if verbose else (8, 4, 2, 1)[level]
        )
    attempted_findings = {
        (attempt.candidate.finding.code, attempt.candidate.finding.title) for attempt in result.attempts
    }
    shown_unfixed = result.unfixed_findings if verbose else result.unfixed_findings[: (4, 2, 1, 0)[level]]
    for unfixed in shown_unfixed:
        _print_unfixed(
            out,
            unfixed,
            was_attempted=(unfixed.finding.code, unfixed.finding.title) in attempted_findings,
            verbose=verbose,
            max_lines=None if verbose else (8, 4, 2, 1)[level],
        )
    hidden_count = len(result.attempts[max_attempts:]) + len(result.unfixed_findings) - len(shown_unfixed)
    if hidden_count:
        out.print()
        out.print(Text(f"and {format_count(hidden_count, 'more finding')} (-v)."))


def _print_attempt(out: Page, attempt: Attempt, *, verbose: bool, max_lines: int | None) -> None:
    mark, style = MARKS[attempt.status]
    finding = attempt.candidate.finding
    out.print()
    print_hanging(out, Text(f"{mark} {finding.code}  ", style=style), clean_line(finding.title), style="bold")
    _print_text(out, attempt.candidate.remedy.text, max_lines)
    if verbose or attempt.status is not FixStatus.FIXED:
        _print_commands(out, attempt.commands, max_lines)
    result_text = {
        FixStatus.FIXED: f"Done: {attempt.changed_path_count} file{'s' * (attempt.changed_path_count != 1)} changed.",
        FixStatus.ROLLED_BACK: f"{attempt.detail} It was taken back.",
        FixStatus.FAILED: f"It failed and was taken back: {attempt.detail}",
        FixStatus.PLANNED: "",
    }[attempt.status]
    if result_text:
        print_hanging(out, Text("          "), clean_line(result_text, limit=1000))


def _print_unfixed(
    out: Page, unfixed: UnfixedFinding, *, was_attempted: bool, verbose: bool, max_lines: int | None
) -> None:
    """Print a finding that `fix` cannot fix, with the reason and its first remedy, or all if `verbose` is set.

    `was_attempted` says whether `fix` has tried its own remedies without success. They are then left out.
    """
    finding = unfixed.finding
    remedies = [remedy for remedy in finding.remedies if not (was_attempted and remedy.steps)]
    if was_attempted and not remedies:
        return
    mark = format_mark(
        Status.BAD if finding.severity >= Severity.ERROR else Status.WARNING, f"{finding.code}  "
    )
    out.print()
    print_hanging(out, mark, clean_line(finding.title), style="bold")
    reason = "What fix could do did not help. Decide what else to do:" if was_attempted else unfixed.reason
    print_hanging(out, Text("          "), clean_line(reason, limit=1000))
    for remedy in remedies[: None if verbose else 1]:
        _print_text(out, remedy.text, max_lines)
        _print_commands(out, remedy.commands, max_lines)
        notes = [
            describe_undo_with_root_note(remedy),
            f"No root? {describe_root(remedy)}" if needs_root(remedy) else "",
        ]
        for text in filter(None, notes):
            print_hanging(out, Text("          "), text)


def _print_text(out: Page, text: str, max_lines: int | None) -> None:
    text = clean_line(text, limit=1000)
    print_hanging(
        out,
        Text("          "),
        text if max_lines is None else shorten_text(text, max(out.width - 10, 20), min(max_lines, 3)),
    )


def _print_commands(out: Page, commands: Sequence[str], max_lines: int | None) -> None:
    """Print the commands that fit in `max_lines` lines, but at least one. None means all. No command is cut."""
    if max_lines is None:
        print_commands(out, commands, 12)
        return
    shown_commands = select_commands(commands, 12, out.width, max_lines)
    for is_script_line, lines in groupby(shown_commands, lambda text: text.startswith(("+ ", "- "))):
        if not is_script_line:
            print_commands(out, lines, 12, with_continuations=True)
            continue
        for line in lines:  # a line to add to a script or to remove from it, not a command
            print_hanging(out, Text(f"            {line[:2]}"), clean_line(line[2:], limit=4000))
    if len(shown_commands) < len(commands):
        out.print(
            Text(f"            and {format_count(len(commands) - len(shown_commands), 'more command')} (-v)")
        )


def _print_conclusion(out: Page, result: FixResult, *, is_plan: bool, asks_next: bool) -> None:
    """Print the verdict, and how to apply the plan or to undo the changes."""
    after = result.report_after
    mark = format_mark(STATUS_BY_USABLE[after.verdict.gpu_usable])
    if is_plan:
        count = len(result.attempts)
        text = (
            f"{'' if asks_next else 'Nothing was changed. '}{count} finding{'s' * (count != 1)} can be fixed here."
            if count
            else f"{NOTHING_TO_FIX} {after.verdict.headline}"
        )
        if count:
            print_hanging(out, mark, clean_line(after.verdict.headline, limit=1000))
        print_hanging(out, Text(""), clean_line(text, limit=1000), style="bold")
        if count and not asks_next:
            words = ["tfdoctor fix", *result.requested_codes, "--python"]
            fix_command = f"{' '.join(words)} {shlex.quote(result.environment.interpreter_path)}"
            out.print(Text("To apply:"))
            print_commands(out, [fix_command], 4, style="bold", with_continuations=True)
        if count:
            print_hanging(out, Text(""), "No root needed; `--undo` reverts everything.")
        _print_remaining(out, result)
        return
    prefix = "" if result.attempts else f"{NOTHING_TO_FIX} "
    print_hanging(out, mark, clean_line(prefix + after.verdict.headline, limit=1000), style="bold")
    _print_remaining(out, result)
    observed = result.observed
    if observed is not None:
        devices = ", ".join(observed.devices) or observed.error or "none"
        text = clean_line(f"TensorFlow itself lists: {devices} ({observed.seconds:.1f} s)", limit=600)
        print_hanging(out, Text("  "), text)
        for line in observed.computed:
            if "failed" in line:
                print_hanging(
                    out, Text("! ", style="yellow"), clean_line(f"computing on it: {line}", limit=600)
                )
    if result.fixed_count:
        environment = result.environment
        if any(
            isinstance(step, VariableStep)
            for attempt in result.attempts
            if attempt.is_fixed
            for step in attempt.candidate.steps
        ):
            activate_command = (
                f"conda activate {shlex.quote(environment.prefix)}"
                if environment.activation_kind == "conda"
                else f". {shlex.quote(f'{environment.prefix}/bin/activate')}"
            )
            _print_command(out, "New variables hold from the next activation on: ", activate_command)
        undo_command = f"tfdoctor fix --undo --python {shlex.quote(environment.interpreter_path)}"
        _print_command(out, "To revert everything: ", undo_command)


def _print_remaining(out: Page, result: FixResult) -> None:
    """Print what keeps TensorFlow from the GPU although fix has done what it may do, and who can change it."""
    remaining = result.remaining
    if remaining is not None:
        text = f"Still to do, by {remaining.actor}: {remaining.finding.title}. {remaining.action}"
        print_hanging(out, Text("  "), clean_line(text, limit=1000))


def _print_command(out: Page, text: str, command: str) -> None:
    """Print a text and a command on one line, so that the command can be copied."""
    # A newline in a path would split the command, so it is made visible.
    line = Text(text) + Text(clean(command).replace("\n", "\ufffd"), style="bold")
    out.print(line, wrap=False)


def render_undo(prefix: str, result: UndoResult, *, width: int = 80, colour: bool = False) -> str:
    """Return what `fix --undo` reverted, as text."""
    out = Page(width, coloured=colour)
    for note in result.recovery_notes:
        print_hanging(out, Text("– "), clean_line(note, limit=1000))
    if not result.undone_steps:
        if not result.recovery_notes:
            print_hanging(out, Text("– "), clean_line(f"Nothing to undo in {prefix}."))
        return out.text
    for entry in result.undone_steps:
        codes = ", ".join(entry.codes)
        text = clean_line(f"{entry.title} ({entry.changes} changed, {entry.when})", limit=600)
        print_hanging(out, Text(f"✓ {codes}  ", style="green"), text)
    count = result.restored_count
    verdict = "is as it was" if not result.unrestored_paths else "is as it was but for what is named below"
    print_hanging(
        out, Text(""), clean_line(f"{prefix} {verdict}: {count} path{'s' * (count != 1)} restored.")
    )
    for path in result.unrestored_paths:
        print_hanging(
            out, Text("! ", style="yellow"), clean_line(f"left alone, because it was changed since: {path}")
        )
    return out.text


# ---------------------------------------------------------------- JSON


def make_fix_json(result: FixResult) -> dict[str, Any]:
    """Return the JSON document of a run of `fix`, or of its plan."""
    return {
        **make_document_head("fix"),
        "environment": result.environment.prefix,
        "activated": result.is_activated,
        "repairs": [
            {
                "code": attempt.candidate.finding.code,
                "cause": attempt.candidate.finding.cause.value,
                "title": attempt.candidate.finding.title,
                "text": attempt.candidate.remedy.text,
                "status": attempt.status.value,
                "detail": attempt.detail,
                "commands": list(attempt.commands),
                "changes": attempt.changed_path_count,
            }
            for attempt in result.attempts
        ],
        "left": [
            {"why": unfixed.reason, "finding": make_finding_json(unfixed.finding)}
            for unfixed in result.unfixed_findings
        ],
        "recovered": list(result.recovery_notes),
        "undone": None,
        "check": make_report_json(result.report_after),
    }


def make_undo_json(prefix: str, result: UndoResult) -> dict[str, Any]:
    """Return the JSON document of a run of `fix --undo`."""
    return {
        **make_document_head("fix"),
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
                for entry in result.undone_steps
            ],
            "restored": result.restored_count,
            "kept": list(result.unrestored_paths),
        },
        "check": None,
    }
