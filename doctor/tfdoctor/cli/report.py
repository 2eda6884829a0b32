"""`tfdoctor report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tfdoctor.cli.capture import look, warn
from tfdoctor.compat import Compat
from tfdoctor.errors import ExitCode
from tfdoctor.render.report_markdown import report_markdown
from tfdoctor.system import LiveSystem, RecordedSystem
from tfdoctor.system.writing import check_file, write_file

if TYPE_CHECKING:
    from tfdoctor.system import System

STDOUT = Path("-")


def report(
    *, facts: Path | None, python: str | None, output: Path | None, timeout: float, force: bool
) -> int:
    """Look, redact, judge, write. Returns the exit status: 0 whatever was found."""
    if output is not None and output != STDOUT:
        check_file(output, force=force)
    system: System = LiveSystem()
    if facts is not None:
        recorded = RecordedSystem(facts)
        system, python = recorded, python or recorded.python
    captured = look(system, Compat.load(), python=python, timeout=timeout, local=facts is None)
    text = report_markdown(captured.report, differences=captured.differences)
    if output is not None and output != STDOUT:
        write_file(output, text.encode("utf-8"), force=force)
    if output is None or output == STDOUT:
        from tfdoctor.render import terminal

        terminal.write(text)
    warn(captured)
    return ExitCode.OK
