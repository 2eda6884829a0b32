"""What `run` says at the end of a program."""

from __future__ import annotations

import shlex
import signal
import textwrap
from typing import TYPE_CHECKING

from tfdoctor.findings import Cause
from tfdoctor.render.log import render_log
from tfdoctor.render.paragraphs import SCREEN_LINES
from tfdoctor.render.placement import render_placement
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.logs.report import LogReport
    from tfdoctor.placement import Placement

__all__ = ["render_run"]


def render_run(
    words: Sequence[str],
    status: int,
    report: LogReport | None,
    *,
    known: bool,
    failures: Sequence[str],
    lost: int,
    notes: Sequence[str],
    placement: Placement | None = None,
    placed: Sequence[str] = (),
    verbose: bool,
    quiet: bool,
    width: int = 80,
    colour: bool = False,
) -> str:
    """Return what went wrong with us, then what the program's output meant.

    words: the program and its arguments. status: its own, or minus the signal that ended it. report: None if its
    output could not be judged. known: something of TensorFlow was in it. lost: bytes that were not looked at.
    placement: where operations went, where that was asked; `placed`: what was done for it.
    """
    lines = [f"could not pass its output on: {failure}." for failure in failures]
    if report is None:
        lines.append("its log could not be judged.")
    if lost:
        lines.append(
            f"its output came faster than it can be judged: {lost / 1e6:.0f} MB of it were not looked at, "
            "so line numbers may be too low."
        )
    text = "".join(f"tfdoctor: {line}\n" for line in lines)
    if report is None:
        return text
    text += _summarize_log(
        words, status, report, known, notes, verbose=verbose, quiet=quiet, width=width, colour=colour
    )
    if placement is None:
        return text
    where = render_placement(placement, verbose=verbose, width=width, colour=colour)
    if quiet:
        first, _, _ = where.partition("\n\n")
        return f"{text}{first.rstrip()}\n"
    return f"{text}\nWhere operations ran:\n\n{where}\n{_fill_notes(placed, width)}\n"


def _summarize_log(
    words: Sequence[str],
    status: int,
    report: LogReport,
    known: bool,
    notes: Sequence[str],
    *,
    verbose: bool,
    quiet: bool,
    width: int,
    colour: bool,
) -> str:
    if report.cause is Cause.INCONCLUSIVE and not known:
        nothing = "tfdoctor: the output contains no TensorFlow message about GPUs.\n"
        return "" if quiet else nothing
    room = SCREEN_LINES - 4 - 3 * bool(notes)  # for what stands above and below it
    body = render_log(report, verbose=verbose, quiet=quiet, room=room, width=width, colour=colour)
    if quiet:
        return body
    ended = f"exit status {status}" if status >= 0 else f"signal {-status} ({_signal_name(-status)})"
    head = f"tfdoctor: {clean_line(shlex.join(words), limit=120)} ended with {ended}. What its output meant:"
    told = _fill_notes(notes, width)
    return "\n".join(["", head, "", body.rstrip("\n"), *(["", told] if told else []), ""])


def _fill_notes(notes: Sequence[str], width: int) -> str:
    return textwrap.fill(" ".join(notes), width, break_long_words=False, break_on_hyphens=False)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
