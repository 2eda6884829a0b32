"""Data types for the job that an engine runs on each node of a cluster, and for the nodes' results."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Literal, Protocol, get_args

from tfdoctor.core.records import dataclass
from tfdoctor.core.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = ["NodeAnswer", "NodeEngine", "NodeJob", "RunOutcome", "parse_answer"]

MAX_LINE_BYTES = 4096
"""The most bytes of the JSON line that precedes a worker's output."""
RunOutcome = Literal["answered", "failed", "lost", "timeout", "flooded"]
"""How the run ended on one node.

* answered: it wrote output.
* failed: it wrote no output, or could not run.
* lost: the node was not reached, or went away.
* timeout: it did not end within the deadline.
* flooded: it wrote more output than is accepted.
"""


@dataclass(frozen=True, slots=True)
class NodeJob:
    """The command that is run on every node."""

    zipapp_path: Path
    """The file with tfdoctor and everything that it needs (`scripts/zipapp` writes it)."""
    arguments: tuple[str, ...]
    """The arguments of the command, such as ("check", "--json")."""
    python: str = "python3"
    """The interpreter on the node that runs the file."""
    time_limit_s: float = 120.0
    """The most seconds that the command may run on one node."""
    max_output_bytes: int = 4 << 20
    """The most bytes of one node's output that are accepted."""


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """The result of the run on one node."""

    host: str
    outcome: RunOutcome
    output: bytes = b""
    """The standard output, not validated. Empty unless `ended` is "answered"."""
    reason: str = ""
    """The reason in one cleaned line, such as "exit status 127: python3: not found". Empty if it answered."""
    duration_s: float | None = None
    """The duration of the run in seconds. None if unknown."""


def parse_answer(host: str, data: object, max_output_bytes: int) -> NodeAnswer:
    """Parse the data from a Dask or Ray worker (see `remote.run_here`).

    If they are invalid, return a failed run.
    """
    if not isinstance(data, bytes):
        return NodeAnswer(host, "failed", reason="what it sent is no answer of tfdoctor")
    line, _, output = data.partition(b"\n")
    if len(output) > max_output_bytes or len(line) > MAX_LINE_BYTES:
        return NodeAnswer(host, "flooded", reason=f"more than {max_output_bytes >> 20} MiB")
    try:
        header = json.loads(line)
        ended, reason, seconds = header["ended"], header["why"], header["seconds"]
    except (ValueError, TypeError, KeyError, RecursionError):
        ended = reason = seconds = None
    if (
        ended not in get_args(RunOutcome)
        or not isinstance(reason, str)
        or not isinstance(seconds, float)
        or not math.isfinite(seconds)
    ):
        return NodeAnswer(host, "failed", reason="what it sent is no answer of tfdoctor")
    return NodeAnswer(
        host, ended, output if ended == "answered" else b"", clean_line(reason, limit=300), seconds
    )


class NodeEngine(Protocol):
    """A connection to the nodes of a cluster.

    Creating it imports the library of the engine, and raises `errors.Error` if the cluster cannot be used.
    """

    name: str
    """The name in JSON: "ssh", "slurm", "dask", "ray" or "kubernetes"."""

    def hosts(self) -> Sequence[str]:
        """Return the nodes' names, sorted and unique."""
        ...

    def run(self, hosts: Sequence[str], job: NodeJob) -> Iterator[NodeAnswer]:
        """Yield one answer for each of `hosts`, in the order in which they end.

        Closing the iterator, or an exception in it such as Ctrl-C, stops the local processes. It also stops the
        processes on the nodes, as far as the engine can.
        """
        ...
