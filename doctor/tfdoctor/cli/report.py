"""`tfdoctor report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tfdoctor.cli.capture import look, warn
from tfdoctor.cli.options import Python, Timeout, command
from tfdoctor.compat import Compat
from tfdoctor.errors import ExitCode
from tfdoctor.render.report_markdown import report_markdown
from tfdoctor.render.terminal import OUT
from tfdoctor.system import LiveSystem, RecordedSystem
from tfdoctor.system.ending import stopping
from tfdoctor.system.writing import check_file, write_file

if TYPE_CHECKING:
    from tfdoctor.system import System

STDOUT = Path("-")


@command
def report(
    facts: Annotated[
        Path | None, typer.Option(metavar="BUNDLE", help="Of a recorded machine instead of this one.")
    ] = None,
    python: Python = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write it there, not to the terminal."),
    ] = None,
    timeout: Timeout = 10.0,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
) -> int:
    """Look, redact, judge, write. Returns the exit status: 0 whatever was found.

    Versions, verdict, findings and what they rest on. Sends nothing.
    """
    if output is not None and output != STDOUT:
        check_file(output, force=force)
    system: System = LiveSystem()
    if facts is not None:
        recorded = RecordedSystem(facts)
        system, python = recorded, python or recorded.python
    with stopping(system):
        captured = look(system, Compat.load(), python=python, timeout=timeout, local=facts is None)
        text = report_markdown(captured.report, differences=captured.differences)
        if output is not None and output != STDOUT:
            write_file(output, text.encode("utf-8"), force=force)
    if output is None or output == STDOUT:
        OUT.write(text)
    warn(captured)
    return ExitCode.OK
