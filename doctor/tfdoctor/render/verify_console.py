"""A verification in a terminal: a line for each stage as it ends, then the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from tfdoctor.render import terminal
from tfdoctor.render.console import explained
from tfdoctor.render.terminal import hanging
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from tfdoctor.findings import Stage, Verification

__all__ = ["render_end", "render_stage"]

MARKS = {"passed": ("✓", "green"), "failed": ("✗", "bold red"), "skipped": ("–", "dim")}


def render_stage(stage: Stage, *, width: int = 80, colour: bool = False) -> str:
    """One stage's line."""
    out = terminal.page(width, coloured=colour)
    mark, style = MARKS[stage.status]
    seconds = f" ({stage.seconds:.1f} s)" if stage.seconds >= 0.05 else ""
    hanging(
        out,
        Text(f"{mark} ", style=style) + Text(stage.name.ljust(11), style="bold"),
        clean_line(stage.detail, limit=1000) + seconds,
    )
    return terminal.text_of(out)


def render_end(
    done: Verification, *, verbose: bool = False, quiet: bool = False, width: int = 80, colour: bool = False
) -> str:
    """The verdict, why, and what to do."""
    out = terminal.page(width, coloured=colour)
    status = {True: "passed", False: "failed", None: "skipped"}[done.ok]
    mark, style = MARKS[status]
    cause = f" [{done.cause.value}]" if done.cause is not None and done.ok is False else ""
    if not quiet:
        out.print()
    hanging(out, Text(f"{mark} ", style=style), clean_line(done.summary, limit=1000) + cause, style="bold")
    if not quiet and done.findings:
        explained(out, done.findings[0], verbose=verbose)
        for finding in done.findings[1 : None if verbose else 3]:
            hanging(out, Text("  Also  ", style="dim"), clean_line(f"{finding.title} [{finding.code}]"))
    return terminal.text_of(out)
