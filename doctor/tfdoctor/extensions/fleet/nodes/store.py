"""Store a fleet's results in a folder: one file for each node, and a journal of the ended runs.

`NODE.json` is the node's raw output. `fleet.jsonl` has one line for each run that ended. Result files that the user
adds need no line in the journal.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from tfdoctor.core.errors import Error, UsageError
from tfdoctor.core.records import dataclass
from tfdoctor.core.text import clean_line
from tfdoctor.system.writing import append_line, place_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tfdoctor.extensions.fleet.nodes.models import NodeAnswer

__all__ = ["JOURNAL", "PEERS_FOLDER", "JournalEntry", "ResultStore", "StoredNode"]

JOURNAL = "fleet.jsonl"
"""The file name of the journal."""
PEERS_FOLDER = "peers"
"""The subfolder with the results about the hosts' peers, in the same format."""
RUN_OUTCOMES = ("answered", "failed", "lost", "timeout", "flooded")
"""The outcomes of a run."""
MAX_LINE_BYTES = 4096
"""The most bytes of a line of the journal that are read."""
MAX_JOURNAL_LINES = 1_000_000
"""The most lines of the journal that are read."""
MAX_NAME_CHARS = 200
"""The length in characters to which host names are cut."""


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """A journal entry about the end of a node's run."""

    host: str
    outcome: str
    """How the run ended, one of RUN_OUTCOMES."""
    reason: str = ""
    duration_s: float | None = None
    """The duration of the run in seconds. None if unknown."""
    request_time: float | None = None
    """The time of the request by this machine's clock, in seconds since 1970. None if unknown."""
    response_time: float | None = None
    """The time of the response by the same clock. None if unknown."""


@dataclass(frozen=True, slots=True)
class StoredNode:
    """A node with a result file or a journal entry in the folder."""

    host: str
    content: bytes | None
    """The content of the file. None if there is no file, or if it cannot be read."""
    journal_entry: JournalEntry | None
    """The journal entry of the node. None if there is none."""
    read_error: str = ""
    """The reason why the file cannot be read. Empty if it can, or if there is no file."""


class ResultStore:
    """A folder of results. Only regular files are read, and files are written atomically."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ignored_file_count = 0
        """The number of files that are not results. It is complete after all items of `results` were yielded."""

    def create_folder(self) -> None:
        """Create the folder if it is missing. Raise UsageError or Error if it cannot be used."""
        display_path = clean_line(str(self.folder))
        try:
            self.folder.mkdir(exist_ok=True)
            if not os.access(self.folder, os.W_OK | os.X_OK):
                raise PermissionError(13, "Permission denied")
        except FileExistsError:
            msg = f"-o: {display_path} is no folder."
            raise UsageError(msg) from None
        except FileNotFoundError:
            msg = f"-o: there is no folder {clean_line(str(self.folder.parent))}."
            raise UsageError(msg) from None
        except OSError as error:
            msg = f"-o: {display_path} cannot be written to: {error.strerror}."
            raise Error(msg) from error

    @property
    def is_empty(self) -> bool:
        """Whether the folder is missing or has no files."""
        return not self.folder.is_dir() or not any(self.folder.iterdir())

    def save_answer(self, answer: NodeAnswer, *, request_time: float | None, response_time: float) -> None:
        """Store the result of one node. Raise Error if it cannot be written.

        `asked` and `came` are the times of the request and the response, as in `JournalEntry`.
        """
        try:
            if answer.outcome == "answered":
                place_file(self.folder / make_file_name(answer.host), answer.output, force=True)
            line = {
                "host": answer.host,
                "ended": answer.outcome,
                "why": answer.reason,
                "seconds": answer.duration_s,
                "asked": request_time,
                "came": response_time,
            }
            append_line(self.folder / JOURNAL, json.dumps(line))
        except OSError as error:
            msg = f"{clean_line(str(self.folder))}: a result cannot be kept: {error.strerror}."
            raise Error(msg, hint="Free some room, then run it again with --resume.") from error

    def load_journal(self) -> dict[str, JournalEntry]:
        """Return the last journal entry of each node, by host. Empty if the journal cannot be read."""
        endings: dict[str, JournalEntry] = {}
        try:
            with (self.folder / JOURNAL).open("rb") as journal:
                for _ in range(MAX_JOURNAL_LINES):
                    line = journal.readline(MAX_LINE_BYTES)
                    if not line:
                        break
                    ending = _parse_ending(line)
                    if ending is not None:
                        endings[ending.host] = ending
        except OSError:
            pass
        return endings

    def iter_nodes(self, max_file_bytes: int) -> Iterator[StoredNode]:
        """Yield the nodes with a result file, sorted by file name, then those that are only in the journal.

        Files are read up to `largest` + 1 bytes, so that a larger file can be detected. Raise UsageError if the folder
        is missing or cannot be read.
        """
        display_path = clean_line(str(self.folder))
        try:
            names = sorted(entry.name for entry in os.scandir(self.folder))
        except NotADirectoryError:
            msg = f"{display_path} is no folder."
            raise UsageError(msg, hint="Name the folder of the results.") from None
        except OSError as error:
            msg = f"{display_path} cannot be read: {error.strerror}."
            raise UsageError(msg) from error
        endings = self.load_journal()
        self.ignored_file_count = 0
        for name in names:
            if name in (JOURNAL, PEERS_FOLDER):
                continue
            if not name.endswith(".json"):
                self.ignored_file_count += 1
                continue
            host = clean_line(unquote(name.removesuffix(".json"), errors="replace"), limit=MAX_NAME_CHARS)
            content, reason = _load_content(self.folder / name, max_file_bytes)
            yield StoredNode(host, content, endings.pop(host, None), reason)
        for ending in endings.values():
            yield StoredNode(ending.host, None, ending)


def make_file_name(host: str) -> str:
    """Return the file name for a host, quoted so that it cannot leave the folder."""
    return f"{quote(host[:MAX_NAME_CHARS], safe='')}.json"


def _load_content(path: Path, largest: int) -> tuple[bytes | None, str]:
    """Return at most `largest` + 1 bytes of a file, or None and the reason why it cannot be read."""
    try:
        if not path.is_file():
            return None, "it is no regular file"
        with path.open("rb") as stream:
            return stream.read(largest + 1), ""
    except OSError as error:
        return None, f"its file cannot be read: {error.strerror}"


def _parse_ending(line: bytes) -> JournalEntry | None:
    """Parse a line of the journal. Return None if the line is invalid."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if (
        not isinstance(data, dict)
        or not isinstance(data.get("host"), str)
        or data.get("ended") not in RUN_OUTCOMES
    ):
        return None
    reason = data.get("why")
    return JournalEntry(
        clean_line(data["host"], limit=MAX_NAME_CHARS),
        data["ended"],
        clean_line(reason, limit=300) if isinstance(reason, str) else "",
        duration_s=_as_number(data.get("seconds")),
        request_time=_as_number(data.get("asked")),
        response_time=_as_number(data.get("came")),
    )


def _as_number(value: Any) -> float | None:
    """Return the value as a float, or None if it is not a number of reasonable size."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) < 1e12 else None
