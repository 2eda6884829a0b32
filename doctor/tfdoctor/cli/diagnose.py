"""`tfdoctor diagnose`."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

from tfdoctor.compat import Compat
from tfdoctor.errors import ExitCode, UsageError
from tfdoctor.findings import Severity
from tfdoctor.logs.report import LogReport, diagnose_log, with_host
from tfdoctor.running import streams
from tfdoctor.running.streams import STDIN, read_log
from tfdoctor.text import clean, clean_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType

PATIENCE = 0.8
"""Seconds of reading one file before its progress is shown."""


def diagnose(
    files: Sequence[str],
    *,
    follow: bool = False,
    host: bool,
    fail_on: str,
    as_json: bool,
    as_github: bool,
    verbose: bool,
    quiet: bool,
) -> int:
    """Read each log, judge it, print. Returns the exit status."""
    names = list(files) or [STDIN]
    if not files and sys.stdin is not None and sys.stdin.isatty():
        raise UsageError(
            "no log to read.", hint="Name a file, or pipe one: `python train.py 2>&1 | tfdoctor diagnose`."
        )
    if STDIN in names and sys.stdin is None:
        raise UsageError("standard input is closed.")
    if names.count(STDIN) > 1:
        raise UsageError("standard input (-) can be read once only.")
    if follow and len(names) > 1:
        raise UsageError("one log can be followed (-f), not several.", hint="Start tfdoctor once for each.")
    compat = Compat.load()
    if follow:
        reports = [_followed(names[0], compat, aloud=not (as_json or as_github))]
    else:
        shown = sys.stderr.isatty() and not (as_json or quiet)
        reports = [_judged(name, compat, progress=shown) for name in names]
    if host:
        reports = _on_this_machine(reports, compat)
    if as_json:
        from tfdoctor.render.json import write_json
        from tfdoctor.render.log_json import log_json

        documents = [log_json(report) for report in reports]
        write_json(documents[0] if len(documents) == 1 else {"schema_version": 1, "logs": documents})
    elif as_github:
        from tfdoctor.render.log_markdown import log_markdown
        from tfdoctor.render.terminal import write
        from tfdoctor.system.identity import redactor_for

        redactor = redactor_for(os.environ, local=True)
        write("\n".join(log_markdown(report, redactor) for report in reports))
    else:
        from tfdoctor.render.log_console import print_log

        for number, report in enumerate(reports):
            print_log(
                report,
                verbose=verbose,
                quiet=quiet,
                heading=len(reports) > 1,
                first=number == 0 and not follow,
            )
    return exit_status(reports, fail_on)


def _on_this_machine(reports: Sequence[LogReport], compat: Compat) -> list[LogReport]:
    """What this machine's own facts add: an undecided cause is decided."""
    from tfdoctor.examine import examine
    from tfdoctor.system import LiveSystem

    report = examine(LiveSystem(), compat)
    return [with_host(one, report.verdict.cause, report.root) for one in reports]


def exit_status(reports: Sequence[LogReport], fail_on: str) -> ExitCode:
    """1 where a finding is at or above `fail_on`."""
    if fail_on == "never":
        return ExitCode.OK
    least = Severity[fail_on.upper()]
    found = any(finding.severity >= least for report in reports for finding in report.findings)
    return ExitCode.FOUND if found else ExitCode.OK


# ---------------------------------------------------------------- reading


def _judged(name: str, compat: Compat, *, progress: bool) -> LogReport:
    """One whole log."""
    shown = clean(name, limit=300)
    with _progress(shown) if progress else contextlib.nullcontext() as meter:
        return diagnose_log(read_log(name, note=_note, meter=meter), compat, shown)


def _note(text: str) -> None:
    sys.stderr.write(f"tfdoctor: {text}\n")


@contextlib.contextmanager
def _progress(name: str) -> Iterator[Callable[[int, int], None]]:
    """How much of a large file is read, for a person at a terminal, from the first second on; gone at the end."""
    began = time.monotonic()
    bars: list[Callable[[int, int], None]] = []
    last = 0.0
    with contextlib.ExitStack() as stack:

        def meter(done: int, size: int) -> None:
            nonlocal last
            now = time.monotonic()
            if now - began < PATIENCE or now - last < 0.1:
                return
            last = now
            if not bars:
                bars.append(stack.enter_context(_bar(name)))
            bars[0](done, size)

        yield meter


@contextlib.contextmanager
def _bar(name: str) -> Iterator[Callable[[int, int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskProgressColumn, TextColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        DownloadColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False) as progress:
        task = progress.add_task(clean_line(name, limit=40), total=None)

        def show(done: int, size: int) -> None:
            progress.update(task, completed=done, total=size, refresh=True)

        yield show


def _followed(name: str, compat: Compat, *, aloud: bool) -> LogReport:
    """A growing log until Ctrl-C, or until its pipe ends; `aloud`: tell the verdict whenever it changes."""
    from tfdoctor.running.watch import Watch

    shown = clean(name, limit=300)
    if aloud and sys.stderr.isatty():
        _note(f"following {clean_line(shown, limit=80)}; Ctrl-C ends it and gives the whole answer.")

    def tell(report: LogReport) -> None:
        from tfdoctor.render.log_console import print_log

        print_log(report, quiet=True)
        sys.stdout.flush()

    watch = Watch(compat, shown, tell if aloud else lambda _: None)
    with _until_interrupted() as interrupted:
        return diagnose_log(watch.passing(streams.follow(name, interrupted)), compat, shown)


@contextlib.contextmanager
def _until_interrupted() -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C is an answer and no exception; the second one ends everything, as ever."""
    seen: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        if seen:
            signal.default_int_handler(number, frame)
        seen.append(number)

    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # ignored on purpose
    ):
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield lambda: bool(seen)
    finally:
        signal.signal(signal.SIGINT, before)
