"""`tfdoctor diagnose`."""

from __future__ import annotations

import gzip
import lzma
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING

from tfdoctor.compat import Compat
from tfdoctor.errors import ExitCode, UsageError
from tfdoctor.findings import Severity
from tfdoctor.logs.reader import is_binary
from tfdoctor.logs.report import LogReport, diagnose_log, with_host
from tfdoctor.redact import clean

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CHUNK = 1 << 20
STDIN = "-"


def diagnose(
    files: Sequence[str],
    *,
    host: bool,
    fail_on: str,
    as_json: bool,
    as_github: bool,
    verbose: bool,
    quiet: bool,
) -> int:
    """Read each log, judge it, print. Returns the exit status."""
    names = list(files) or [STDIN]
    if not files and sys.stdin.isatty():
        raise UsageError(
            "no log to read.", hint="Name a file, or pipe one: `python train.py 2>&1 | tfdoctor diagnose`."
        )
    if names.count(STDIN) > 1:
        raise UsageError("standard input (-) can be read once only.")
    compat = Compat.load()
    reports = [diagnose_log(_chunks(name), compat, clean(name, limit=300)) for name in names]
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

        write("\n".join(log_markdown(report) for report in reports))
    else:
        from tfdoctor.render.log_console import print_log

        for number, report in enumerate(reports):
            print_log(report, verbose=verbose, quiet=quiet, heading=len(reports) > 1, first=number == 0)
    return exit_status(reports, fail_on)


def _on_this_machine(reports: Sequence[LogReport], compat: Compat) -> list[LogReport]:
    """What this machine's own facts add: an undecided cause is decided."""
    from tfdoctor.diagnose import diagnose as judge
    from tfdoctor.survey import survey
    from tfdoctor.system import LiveSystem

    report = judge(survey(LiveSystem(), compat, requested_python=None, timeout=10.0), compat)
    return [with_host(one, report.verdict.cause, report.root) for one in reports]


def exit_status(reports: Sequence[LogReport], fail_on: str) -> ExitCode:
    """1 where a finding is at or above `fail_on`."""
    if fail_on == "never":
        return ExitCode.OK
    least = Severity[fail_on.upper()]
    found = any(finding.severity >= least for report in reports for finding in report.findings)
    return ExitCode.FOUND if found else ExitCode.OK


# ---------------------------------------------------------------- reading


def _chunks(name: str) -> Iterator[bytes]:
    """The bytes of a file or of standard input, unpacked. Raises UsageError where it cannot be read."""
    if name == STDIN:
        yield from _pieces(sys.stdin.buffer, "standard input")
        return
    path = Path(name)
    if path.is_dir():
        msg = f"{clean(name)} is a folder, not a log."
        raise UsageError(msg, hint="Name the file inside it.")
    try:
        with path.open("rb") as file:
            yield from _pieces(file, name)
    except FileNotFoundError as error:
        msg = f"there is no file {clean(name)}."
        raise UsageError(msg) from error
    except OSError as error:
        msg = f"{clean(name)} cannot be read: {error.strerror or error}."
        raise UsageError(msg) from error


def _pieces(raw: IO[bytes], name: str) -> Iterator[bytes]:
    first = raw.read(CHUNK)
    opened: IO[bytes] = _Rest(first, raw)  # type: ignore[assignment]
    if first.startswith(b"\x1f\x8b"):
        opened = gzip.GzipFile(fileobj=opened)  # type: ignore[assignment]
    elif first.startswith(b"\xfd7zXZ\x00"):
        opened = lzma.LZMAFile(opened)  # noqa: SIM115 - the file below it is closed by the caller
    elif first.startswith(b"\x28\xb5\x2f\xfd"):
        msg = f"{clean(name)} is packed with zstd."
        raise UsageError(msg, hint=f"zstd -dc {clean(name)} | tfdoctor diagnose")
    try:
        checked = False
        while piece := opened.read(CHUNK):
            if not checked and is_binary(piece[:8192]):
                msg = f"{clean(name)} is not a text."
                raise UsageError(msg, hint="diagnose reads logs.")
            checked = True
            yield piece
    except (EOFError, gzip.BadGzipFile, lzma.LZMAError) as error:
        if not checked:
            msg = f"{clean(name)} cannot be unpacked: {error}."
            raise UsageError(msg) from error


class _Rest:
    """A stream whose first piece was read already."""

    def __init__(self, first: bytes, raw: IO[bytes]) -> None:
        self._first = first
        self._raw = raw

    def read(self, size: int = -1) -> bytes:
        if self._first:
            if size < 0:
                size = len(self._first)
            piece, self._first = self._first[:size], self._first[size:]
            return piece
        return self._raw.read(size)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False
