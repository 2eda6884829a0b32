"""The `tfdoctor report` command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.cli.capture import record_system, warn_of_differences
from tfdoctor.cli.options import Force, From, Output, Python, Timeout, command
from tfdoctor.cli.output_file import check_output, redirect_output
from tfdoctor.compat import Compat
from tfdoctor.core.errors import ExitCode
from tfdoctor.diagnosis import make_live_system
from tfdoctor.render.report_markdown import make_report_markdown
from tfdoctor.render.terminal import OUT
from tfdoctor.system import RecordedSystem

if TYPE_CHECKING:
    from tfdoctor.system import System


@command("tfdoctor report", "tfdoctor report --from bug.tar.gz -o bug.md")
def report(
    recording_path: From = None,
    python: Python = None,
    output: Output = None,
    timeout: Timeout = 10.0,
    force: Force = False,
) -> int:
    """Print a redacted report on a machine as Markdown. The exit status is 0 whatever was found.

    Prints versions, verdict, findings and their evidence. Sends nothing.
    """
    check_output(output, force=force, input_paths=[recording_path])
    system: System = make_live_system(python if recording_path is None else None)
    if recording_path is not None:
        recorded_system = RecordedSystem(recording_path)
        system, python = recorded_system, python or recorded_system.python
    recording = record_system(
        system, Compat.load(), python=python, timeout=timeout, local=recording_path is None
    )
    text = make_report_markdown(recording.recording_report, differences=recording.differences)
    with redirect_output(output, force=force):
        OUT.write_document(text)
    warn_of_differences(recording)
    return ExitCode.OK
