"""The summary that `run` prints after the program has ended."""

from __future__ import annotations

import shlex
import signal
import textwrap
from typing import TYPE_CHECKING

from tfdoctor.core.causes.codes import NOT_PRINTED
from tfdoctor.core.findings import Cause
from tfdoctor.core.text import clean_line
from tfdoctor.render.log import render_log
from tfdoctor.render.paragraphs import SCREEN_LINES
from tfdoctor.render.placement import render_placement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.logs.placement import Placement
    from tfdoctor.logs.report import LogReport

__all__ = ["render_run"]

NO_OPERATION_TEXT = "Where operations ran is not known: TensorFlow logged no operation. It was not imported, or it ran nothing."
"""What `run --placement` says if the log names no operation, although TensorFlow was told to name each."""


def render_run(
    arguments: Sequence[str],
    status: int,
    report: LogReport | None,
    *,
    has_messages: bool,
    failures: Sequence[str],
    lost_bytes: int,
    notes: Sequence[str],
    placement: Placement | None = None,
    placement_notes: Sequence[str] = (),
    verbose: bool,
    quiet: bool,
    width: int = 80,
    colour: bool = False,
) -> str:
    """Return the problems of tfdoctor itself, followed by the diagnosis of the program's output.

    * `arguments` are the program and its arguments.
    * `status` is the exit status, or the negative number of the signal that ended the program.
    * `report` is None if the output could not be analysed.
    * `has_messages` says whether the output contained TensorFlow messages.
    * `failures` are the errors that occurred when the output was passed on.
    * `lost_bytes` is the number of bytes of the output that were not analysed.
    * `notes` are sentences that are printed below the diagnosis.
    * `placement` is the result of the placement analysis, or None if it was not requested.
    * `placement_notes` are sentences that are printed below the placement.
    """
    problems = [f"could not pass its output on: {failure}." for failure in failures]
    if report is None:
        problems.append("its log could not be judged.")
    if lost_bytes:
        problems.append(
            f"its output came faster than it can be judged: {lost_bytes / 1e6:.0f} MB of it were not looked at, "
            "so line numbers may be too low."
        )
    text = "".join(f"tfdoctor: {problem}\n" for problem in problems)
    if report is None:
        return text
    text += _summarize_log(
        arguments,
        status,
        report,
        has_messages,
        notes,
        verbose=verbose,
        quiet=quiet,
        width=width,
        colour=colour,
    )
    if placement is None:
        return text
    if any(finding.code == NOT_PRINTED for finding in placement.findings):
        prefix, notes = ("", []) if quiet else ("\n", list(placement_notes))
        return f"{text}{prefix}{_fill_notes([NO_OPERATION_TEXT, *notes], width)}\n"
    placement_text = render_placement(placement, verbose=verbose, width=width, colour=colour)
    if quiet:
        summary, _, _ = placement_text.partition("\n\n")
        return f"{text}{summary.rstrip()}\n"
    return f"{text}\nWhere operations ran:\n\n{placement_text}\n{_fill_notes(placement_notes, width)}\n"


def _summarize_log(
    arguments: Sequence[str],
    status: int,
    report: LogReport,
    has_messages: bool,
    notes: Sequence[str],
    *,
    verbose: bool,
    quiet: bool,
    width: int,
    colour: bool,
) -> str:
    """Return the diagnosis of the program's output as text."""
    if report.cause is Cause.INCONCLUSIVE and not has_messages:
        message = "tfdoctor: the output contains no TensorFlow message about GPUs.\n"
        return "" if quiet else message
    # Four lines are printed around the log's text, and three more for notes.
    max_lines = SCREEN_LINES - 4 - 3 * bool(notes)
    diagnosis = render_log(
        report, verbose=verbose, quiet=quiet, max_lines=max_lines, width=width, colour=colour
    )
    if quiet:
        return diagnosis
    ending = f"exit status {status}" if status >= 0 else f"signal {-status} ({_get_signal_name(-status)})"
    heading = f"tfdoctor: {clean_line(shlex.join(arguments), limit=120)} ended with {ending}. Diagnosis:"
    note_text = _fill_notes(notes, width)
    return "\n".join(["", heading, "", diagnosis.rstrip("\n"), *(["", note_text] if note_text else []), ""])


def _fill_notes(notes: Sequence[str], width: int) -> str:
    """Return the notes as one paragraph. Commands and paths in it are not broken."""
    return textwrap.fill(" ".join(notes), width, break_long_words=False, break_on_hyphens=False)


def _get_signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
