"""The `tfdoctor diagnose` command."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tfdoctor.cli.log_arguments import select_logs, write_note
from tfdoctor.cli.options import (
    FailOn,
    FailOnOption,
    For,
    Force,
    Format,
    Html,
    Json,
    Output,
    Quiet,
    argument,
    choose_format,
    command,
    option,
    verbose_option,
)
from tfdoctor.cli.output_file import check_output, redirect_output
from tfdoctor.compat import Compat
from tfdoctor.core.errors import ExitCode, UsageError
from tfdoctor.core.text import clean, clean_line
from tfdoctor.logs.report import LogReport, diagnose_log, merge_host_finding
from tfdoctor.render.log import make_log_json, render_log
from tfdoctor.render.progress import show_read_progress
from tfdoctor.render.terminal import ERR, OUT
from tfdoctor.verification.running import streams
from tfdoctor.verification.running.streams import STDIN, read_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import FrameType

    from tfdoctor.remedies.tools import Tool


DOCUMENT_SUFFIXES = (".md", ".rst", ".py", ".adoc", ".tex")
"""The suffixes of files that can quote messages of several logs."""


@command(
    "tfdoctor diagnose train.log",
    "python train.py 2>&1 | tfdoctor diagnose",
    "tfdoctor diagnose --placement train.log",
)
def diagnose(
    files: Annotated[
        list[str] | None,
        argument("Logs, also .gz, .bz2, .xz and .zst; - or nothing: standard input.", metavar="[FILE…|-]"),
    ] = None,
    follow: Annotated[
        bool,
        option("Keep reading as the log grows, until Ctrl-C or the end of the pipe.", "--follow", "-f"),
    ] = False,
    host: Annotated[
        bool, option("The log is from this machine: examine it if the log does not show the cause.", "--host")
    ] = False,
    output_format: Annotated[
        Format, option("Print in this format; markdown, for an issue, is redacted.", "--format")
    ] = Format.text,
    placement: Annotated[
        bool,
        option(
            "Show which operations ran on which device, if the log has them "
            "(tf.debugging.set_log_device_placement).",
            "--placement",
        ),
    ] = False,
    svg: Annotated[
        Path | None,
        option(
            "With --placement: also write a picture of the operations and devices.", "--svg", metavar="FILE"
        ),
    ] = None,
    for_tool: For = None,
    fail_on: FailOnOption = FailOn.error,
    html: Html = None,
    output: Output = None,
    force: Force = False,
    as_json: Json = False,
    verbose: Annotated[bool, verbose_option("Show all evidence.")] = False,
    quiet: Quiet = False,
) -> int:
    """Diagnose each log, print the reports and return the exit status.

    Reads any log, or an excerpt of one, and names the one root cause. Sends nothing.

    TensorFlow logs where operations go after tf.debugging.set_log_device_placement(True), in TensorFlow 1 with
    ConfigProto(log_device_placement=True). --placement counts them.
    """
    output_format = choose_format(output_format, as_json=as_json)
    as_json, as_markdown = output_format is Format.json, output_format is Format.markdown
    log_names = select_logs(files or (), "diagnose")
    check_output(output, force=force, input_paths=log_names, other_outputs=(html, svg))
    if placement:
        from tfdoctor.cli.placement import diagnose_placement

        if len(log_names) != 1 or follow or host or as_markdown or for_tool is not None or html is not None:
            raise UsageError(
                "--placement reads one log; of the other options it takes --svg, -o, --force, --fail-on, --json and -v."
            )
        with redirect_output(output, force=force):
            return diagnose_placement(
                log_names[0],
                svg=svg,
                force=force,
                fail_on=fail_on,
                as_json=as_json,
                verbose=verbose,
                quiet=quiet,
            )
    if svg is not None:
        raise UsageError("--svg needs --placement.")
    if log_names.count(STDIN) > 1:
        raise UsageError("standard input (-) can be read only once.")
    if follow and len(log_names) > 1:
        raise UsageError("one log can be followed (-f), not several.", hint="Start tfdoctor once for each.")
    if follow and for_tool is not None:
        raise UsageError("--for is for a log that has ended; -f follows one that grows.")
    if html is not None:
        from tfdoctor.system.writing import check_output_file

        if follow:
            raise UsageError("--html shows a log that has ended; -f follows one that grows.")
        check_output_file(html, force=force, option="--html", input_paths=log_names)
    compat = Compat.load()
    stdin_copy = _StdinCopy() if html is not None else None
    if follow:
        reports = [_follow_log(log_names[0], compat, prints_verdicts=not (as_json or as_markdown))]
    else:
        shows_progress = ERR.is_terminal and not (as_json or quiet)
        reports = [
            _diagnose_complete_log(
                name, compat, shows_progress=shows_progress, stdin_copy=stdin_copy, tool=for_tool
            )
            for name in log_names
        ]
    for name, report in zip(log_names, reports, strict=True):
        if Path(name).suffix.lower() in DOCUMENT_SUFFIXES and report.findings and not quiet:
            write_note(
                f"is {clean_line(name, limit=80)} a log? The answer is about the messages that it quotes."
            )
    if host:
        reports = _apply_host_facts(reports, compat)
    if html is not None and stdin_copy is not None:
        _write_page(html, log_names, reports, stdin_copy, force=force, quiet=quiet)
    with redirect_output(output, force=force):
        _print_reports(reports, output_format, verbose=verbose, quiet=quiet, is_followed=follow)
    has_finding = any(fail_on.is_reached(report.findings) for report in reports)
    return ExitCode.FOUND if has_finding else ExitCode.OK


def _print_reports(
    reports: Sequence[LogReport], output_format: Format, *, verbose: bool, quiet: bool, is_followed: bool
) -> None:
    """Print the reports in a format. Those of a log that was followed come after an empty line."""
    if output_format is Format.json:
        from tfdoctor.render.json import make_document_head, write_json

        documents = [make_log_json(report) for report in reports]
        write_json(
            documents[0] if len(documents) == 1 else {**make_document_head("diagnose"), "logs": documents}
        )
    elif output_format is Format.markdown:
        from tfdoctor.render.log_markdown import make_log_markdown
        from tfdoctor.system.identity import make_redactor

        redactor = make_redactor(os.environ, include_local_names=True)
        OUT.write_document("\n".join(make_log_markdown(report, redactor) for report in reports))
    else:
        for number, report in enumerate(reports):
            text = render_log(report, verbose=verbose, quiet=quiet, heading=len(reports) > 1, **OUT.layout)
            OUT.write(text if number == 0 and not is_followed else f"\n{text}")


def _apply_host_facts(reports: Sequence[LogReport], compat: Compat) -> list[LogReport]:
    """Return the reports, with the cause from the facts about this host if a log does not show one."""
    from tfdoctor.diagnosis import examine
    from tfdoctor.system import LiveSystem

    report = examine(LiveSystem(), compat)
    return [
        merge_host_finding(log_report, report.verdict.cause, report.root_finding) for log_report in reports
    ]


# ---------------------------------------------------------------- input


def _diagnose_complete_log(
    name: str, compat: Compat, *, shows_progress: bool, stdin_copy: _StdinCopy | None, tool: Tool | None
) -> LogReport:
    """Return the report on a complete log.

    `stdin_copy`, if given, stores the log if it is standard input, which cannot be read again.
    """
    label = clean(name, limit=300)
    with show_read_progress(label) if shows_progress else contextlib.nullcontext() as meter:
        chunks = read_log(name, on_note=write_note, meter=meter)
        return diagnose_log(
            stdin_copy.store(chunks) if stdin_copy and name == STDIN else chunks, compat, label, tool=tool
        )


class _StdinCopy:
    """A copy of the beginning of standard input, which can be read only once."""

    MAX_BYTES = 64 * 1024 * 1024
    """The number of bytes after which no further chunk is stored."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._size = 0

    def store(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the chunks unchanged and store them, up to the limit."""
        for chunk in chunks:
            if self._size < self.MAX_BYTES:
                self._chunks.append(chunk)
                self._size += len(chunk)
            yield chunk

    def replay(self, name: str) -> Iterable[bytes]:
        """Return the chunks of a log once more, without repeating notes about damaged data."""
        return self._chunks if name == STDIN else read_log(name, on_note=lambda _: None)


def _write_page(
    target: Path,
    log_names: Sequence[str],
    reports: Sequence[LogReport],
    stdin_copy: _StdinCopy,
    *,
    force: bool,
    quiet: bool,
) -> None:
    """Write a redacted HTML page of all logs. Raise UsageError or Error if it cannot be written."""
    from tfdoctor.cli.html_file import write_redacted_page
    from tfdoctor.logs.excerpt import make_excerpt
    from tfdoctor.render.html.log import make_logs_html

    excerpts = [
        (report, make_excerpt(stdin_copy.replay(name), report))
        for name, report in zip(log_names, reports, strict=True)
    ]
    write_redacted_page(target, partial(make_logs_html, excerpts), force=force, quiet=quiet)


def _follow_log(name: str, compat: Compat, *, prints_verdicts: bool) -> LogReport:
    """Follow a growing log until Ctrl-C or the end of its pipe, and return the report.

    With `prints_verdicts`, print the verdict whenever it changes.
    """
    from tfdoctor.verification.running.watch import LogWatcher

    label = clean(name, limit=300)
    if prints_verdicts and ERR.is_terminal:
        write_note(f"Following {clean_line(label, limit=80)}. Press Ctrl-C for the full report.")

    def print_verdict(report: LogReport) -> None:
        OUT.write(render_log(report, quiet=True, **OUT.layout))
        OUT.flush()
        if OUT.is_broken:  # nobody reads what follows
            raise BrokenPipeError

    watch = LogWatcher(compat, label, print_verdict if prints_verdicts else lambda _: None)
    with _stop_at_interrupt() as interrupted:
        return diagnose_log(watch.forward_pieces(streams.follow(name, interrupted)), compat, label)


@contextlib.contextmanager
def _stop_at_interrupt() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether Ctrl-C was pressed. A second Ctrl-C raises KeyboardInterrupt.

    Outside the main thread, and if SIGINT is ignored, the function always returns False.
    """
    received_signals: list[int] = []

    def handle_interrupt(signal_number: int, frame: FrameType | None) -> None:
        if received_signals:
            signal.default_int_handler(signal_number, frame)  # raises KeyboardInterrupt
        received_signals.append(signal_number)

    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # ignored on purpose
    ):
        yield lambda: False
        return
    previous_handler = signal.signal(signal.SIGINT, handle_interrupt)
    try:
        yield lambda: bool(received_signals)
    finally:
        signal.signal(signal.SIGINT, previous_handler)
