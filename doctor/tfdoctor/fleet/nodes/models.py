"""What an engine is asked to run on each node of a cluster, and what came back."""

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

LONGEST_LINE = 4096
"""Bytes of the line before a worker's output."""
Ended = Literal["answered", "failed", "lost", "timeout", "flooded"]
"""How it went on one node. failed: it ran, and gave nothing; lost: the node could not be reached, or went away;
timeout: no answer within the deadline; flooded: it wrote more than is taken."""


@dataclass(frozen=True, slots=True)
class Job:
    """The one thing that is run on every node."""

    zipapp: Path
    """The file that travels along: tfdoctor and all that it needs (`scripts/zipapp` writes it)."""
    arguments: tuple[str, ...]
    """Its command line: ("check", "--json")."""
    python: str = "python3"
    """The interpreter on the node that runs the file."""
    deadline: float = 120.0
    """Seconds that one node has, from its start there."""
    largest: int = 4 << 20
    """Bytes that are taken of one node's output."""


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """What one node gave."""

    host: str
    ended: Ended
    output: bytes = b""
    """Standard output, as it came: from outside, not looked at. Empty unless answered."""
    why: str = ""
    """One line, cleaned, where it did not answer: "exit status 127: python3: not found"."""
    seconds: float | None = None


def read_answer(host: str, data: object, largest: int) -> NodeAnswer:
    """Return what a worker of Dask or Ray sent (see `remote.run_here`); a failure if it is anything else."""
    if not isinstance(data, bytes):
        return NodeAnswer(host, "failed", why="what it sent is no answer of tfdoctor")
    line, _, output = data.partition(b"\n")
    if len(output) > largest or len(line) > LONGEST_LINE:
        return NodeAnswer(host, "flooded", why=f"more than {largest >> 20} MiB")
    try:
        head = json.loads(line)
        ended, why, seconds = head["ended"], head["why"], head["seconds"]
    except (ValueError, TypeError, KeyError, RecursionError):
        ended = why = seconds = None
    if (
        ended not in get_args(Ended)
        or not isinstance(why, str)
        or not isinstance(seconds, float)
        or not math.isfinite(seconds)
    ):
        return NodeAnswer(host, "failed", why="what it sent is no answer of tfdoctor")
    return NodeAnswer(
        host, ended, output if ended == "answered" else b"", clean_line(why, limit=300), seconds
    )


class Engine(Protocol):
    """A way to the nodes. Imports its library only when made; raises `errors.Error` where it cannot be used."""

    name: str
    """As JSON has it: "ssh", "slurm", "dask", "ray", "kubernetes"."""

    def hosts(self) -> Sequence[str]:
        """Return the nodes' names, sorted, each once."""
        ...

    def run(self, hosts: Sequence[str], job: Job) -> Iterator[NodeAnswer]:
        """Yield one answer for every one of `hosts`, in the order in which they end.

        Closing the iterator (or an exception within it, Ctrl-C among them) stops what still runs, here and, as far as
        the engine can, there.
        """
        ...
