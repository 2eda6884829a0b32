"""The plan or the result of `install`, as text and as JSON (docs/schemas/install.schema.json)."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from tfdoctor.core.findings import Severity
from tfdoctor.core.text import clean_line
from tfdoctor.render.json import make_document_head
from tfdoctor.render.paragraphs import SCREEN_LINES, Page, Text, print_commands, print_hanging, shorten_text
from tfdoctor.render.plan import make_option_json, print_option
from tfdoctor.render.report import make_report_json, render_report
from tfdoctor.render.screen import print_more_commands

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tfdoctor.core.findings import Report
    from tfdoctor.planning import Option

__all__ = [
    "make_environment_json",
    "make_install_json",
    "make_resolution_json",
    "render_dry_run",
    "render_installation",
]


def render_dry_run(
    option: Option,
    folder: str,
    notes: Sequence[str],
    commands: Sequence[tuple[str, Sequence[str]]],
    *,
    complete: bool = True,
    width: int = 80,
    colour: bool = False,
) -> str:
    """Return the plan and its commands. Unless `complete` is set, the text is shortened to one screen.

    `commands` contains (purpose, arguments) for each command.
    """
    for with_commands in (True, False):
        out = Page(width, coloured=colour)
        print_option(out, option, complete=complete)
        out.print()
        for note in notes:
            text = clean_line(note, limit=4000)
            print_hanging(out, Text(""), text if complete else shorten_text(text, width, 2))
        print_hanging(
            out, Text(""), f"Nothing was changed. It would create {clean_line(folder)} in these steps:"
        )
        _print_steps(out, commands, with_commands=with_commands)
        if complete:
            break
        out.print()
        print_hanging(out, Text(""), "No root needed. To undo it:")
        print_commands(out, [f"rm -r {shlex.quote(clean_line(folder))}"], 4, with_continuations=True)
        print_more_commands(out, "More", [("add -v", "all parts and commands")])
        if out.height <= SCREEN_LINES:
            break
    return out.text


def _print_steps(out: Page, commands: Sequence[tuple[str, Sequence[str]]], *, with_commands: bool) -> None:
    """Print the purpose of each step and, if `with_commands` is set, its commands."""
    last_purpose = ""
    for purpose, arguments in commands:
        if purpose != last_purpose:  # consecutive commands can have the same purpose
            print_hanging(out, Text("  # "), clean_line(purpose))
        last_purpose = purpose
        if with_commands:
            print_commands(out, [shlex.join(arguments)], 4, with_continuations=True)


def render_installation(
    folder: str, report: Report, *, is_correct: bool, verbose: bool, width: int = 80, colour: bool = False
) -> str:
    """Return how to use and remove the environment, and the report on it.

    `is_correct` says whether the environment itself is correct, even if the machine cannot use its GPU.
    """
    quoted_folder, is_usable = shlex.quote(clean_line(folder)), report.verdict.gpu_usable is True
    check_command = f"tfdoctor check --python {quoted_folder}"
    text = f"Use it:     . {quoted_folder}/bin/activate\nRemove it:  rm -r {quoted_folder}\n\n"
    if is_correct and not is_usable and report.observed is None and not verbose:
        return f"{text}The environment is right. {_describe_problem(report)}\nMore:       {check_command}\n"
    is_short = is_correct and is_usable and not verbose
    text += render_report(
        report, verbose=verbose, quiet=is_short, check_command=check_command, width=width, colour=colour
    )
    warnings = [warning for warning in report.findings if warning.severity is Severity.WARNING]
    if is_short and warnings:
        text += "".join(f"Note:       {clean_line(warning.title)} [{warning.code}]\n" for warning in warnings)
        text += f"More:       {check_command}    tfdoctor fix --python {quoted_folder} --dry-run\n"
    return text


def _describe_problem(report: Report) -> str:
    """Return a sentence that says why this machine cannot use its GPU in the environment."""
    if report.root_finding is None:
        return clean_line(report.verdict.summary)
    return f"What is wrong on this machine: {clean_line(report.root_finding.title)}."


# ---------------------------------------------------------------- JSON


def make_install_json(
    option: Option,
    commands: Sequence[Sequence[str]],
    *,
    environment: dict[str, Any] | None,
    report: Report | None,
    notes: Sequence[str],
    resolution: dict[str, Any] | None,
    disk_space: Sequence[tuple[str, Sequence[str], int, int]] | None,
) -> dict[str, Any]:
    """Return the document that `tfdoctor install --json` prints.

    `environment` is None if nothing was installed (--dry-run). `disk_space` contains (folder, uses of the space, bytes needed,
    bytes free) for each disk. It is None if the space was not checked.
    """
    return {
        **make_document_head("install"),
        "plan": make_option_json(option, 1),
        "commands": [list(arguments) for arguments in commands],
        "environment": environment,
        "check": make_report_json(report) if report is not None else None,
        "notes": list(notes),
        "resolution": resolution,
        "room": None
        if disk_space is None
        else [
            {"path": path, "for": list(contents), "needed_bytes": size, "free_bytes": free}
            for path, contents, size, free in disk_space
        ],
    }


def make_environment_json(
    folder: Path, installer: str, seconds: float, *, was_resumed: bool
) -> dict[str, Any]:
    """Return the JSON of the new environment. `was_resumed` means that an earlier installation was continued."""
    return {
        "path": str(folder),
        "python": str(folder / "bin" / "python"),
        "installer": installer,
        "seconds": round(seconds, 2),
        "resumed": was_resumed,
    }


def make_resolution_json(
    changes: Sequence[tuple[str, str | None, str | None]], *, was_attempted: bool, reason: str | None
) -> dict[str, Any]:
    """Return the JSON of the resolution of the user's requirements.

    `changes` contains (name, locked version, chosen version) for each package whose version is not the locked version.
    The version None means that the package is not installed. `was_attempted` says whether a resolution was attempted. If
    nothing was resolved, `reason` is the reason.
    """
    rows = [{"name": name, "locked": locked, "chosen": chosen} for name, locked, chosen in changes]
    return {"tried": was_attempted, "why": reason, "changes": rows}
