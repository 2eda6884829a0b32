"""Job that an engine runs on each node of a cluster, and the nodes' results."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Literal, Protocol, get_args

from tfdoctor.records import dataclass
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = ["Ended", "Engine", "Job", "NodeAnswer", "read_answer"]

MAX_LINE_BYTES = 4096
"""Most bytes of the JSON line that precedes a worker's output."""
Ended = Literal["answered", "failed", "lost", "timeout", "flooded"]
"""How the run ended on one node.

answered: it wrote output; failed: it wrote no output, or could not run; lost: the node was not reached, or went away;
timeout: it did not end within the deadline; flooded: it wrote more output than is accepted.
"""


@dataclass(frozen=True, slots=True)
class Job:
    """Command that is run on every node."""

    zipapp: Path
    """File with tfdoctor and everything that it needs (`scripts/zipapp` writes it)."""
    arguments: tuple[str, ...]
    """Arguments of the command, such as ("check", "--json")."""
    python: str = "python3"
    """Interpreter on the node that runs the file."""
    deadline: float = 120.0
    """Most seconds that the command may run on one node."""
    largest: int = 4 << 20
    """Most bytes of one node's output that are accepted."""


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """Result of the run on one node."""

    host: str
    ended: Ended
    output: bytes = b""
    """Raw standard output, not validated. Empty unless `ended` is "answered"."""
    why: str = ""
    """Reason in one cleaned line, such as "exit status 127: python3: not found"; "" if it answered."""
    seconds: float | None = None
    """Duration of the run; None if not known."""


def read_answer(host: str, data: object, largest: int) -> NodeAnswer:
    """Parse the data that a Dask or Ray worker sent (see `remote.run_here`). Invalid data become a failure."""
    if not isinstance(data, bytes):
        return NodeAnswer(host, "failed", why="what it sent is no answer of tfdoctor")
    line, _, output = data.partition(b"\n")
    if len(output) > largest or len(line) > MAX_LINE_BYTES:
        return NodeAnswer(host, "flooded", why=f"more than {largest >> 20} MiB")
    try:
        head = json.loads(line)
        ended, reason, seconds = head["ended"], head["why"], head["seconds"]
    except (ValueError, TypeError, KeyError, RecursionError):
        ended = reason = seconds = None
    if (
        ended not in get_args(Ended)
        or not isinstance(reason, str)
        or not isinstance(seconds, float)
        or not math.isfinite(seconds)
    ):
        return NodeAnswer(host, "failed", why="what it sent is no answer of tfdoctor")
    return NodeAnswer(
        host, ended, output if ended == "answered" else b"", clean_line(reason, limit=300), seconds
    )


class Engine(Protocol):
    """Connection to the nodes.

    It imports its library when it is created, and raises `errors.Error` if it cannot be used.
    """

    name: str
    """Name in JSON: "ssh", "slurm", "dask", "ray" or "kubernetes"."""

    def hosts(self) -> Sequence[str]:
        """Return the nodes' names, sorted and unique."""
        ...

    def run(self, hosts: Sequence[str], job: Job) -> Iterator[NodeAnswer]:
        """Yield one answer for each of `hosts`, in the order in which they end.

        Closing the iterator, or an exception in it such as Ctrl-C, stops what is still running here and, as far as
        the engine can, on the nodes.
        """
        ...
