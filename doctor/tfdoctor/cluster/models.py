"""A cluster as it is written, and what is told of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfdoctor.records import dataclass

if TYPE_CHECKING:
    from tfdoctor.findings import Severity

__all__ = [
    "Address",
    "ClusterAnswer",
    "ClusterSource",
    "Fault",
    "InstalledRelease",
    "Member",
    "Task",
    "Written",
]


@dataclass(frozen=True, slots=True)
class Task:
    """One process of a cluster."""

    type: str
    """Its job: "worker", "ps"."""
    index: int

    def __str__(self) -> str:
        return f"{self.type}:{self.index}"


@dataclass(frozen=True, slots=True)
class Address:
    """What is written for a task. `fault` is empty where it is HOST:PORT, and `host` is set only where it is known."""

    text: str
    host: str = ""
    """Lower case, without brackets and without a dot at its end."""
    port: int | None = None
    fault: str = ""
    """Half a sentence: "it has no port"."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something is wrong, or worth knowing, with the cluster or with one task of it."""

    name: str
    severity: Severity
    task: str | None
    """JOB:INDEX; None: the cluster as a whole."""
    message: str
    """Sentences."""
    fix: str = ""
    """What to do, as a sentence."""


@dataclass(frozen=True, slots=True)
class InstalledRelease:
    """The TensorFlow of one machine."""

    machine: str
    """"this machine", or the recording's name."""
    release: str | None
    """None: there is none, or it could not be known."""


@dataclass(frozen=True, slots=True)
class Written:
    """A cluster, and the tasks that the same text starts."""

    jobs: dict[str, dict[int, str]] | None
    """Job → index → address; None where the text could not be read."""
    shown: dict[str, Any] | None
    """The same as it is written: lists, or objects where indices are left out."""
    tasks: tuple[Task, ...] = ()
    """Who "this task" is: one of TF_CONFIG, one a server of a Python file."""
    kind: str = "TF_CONFIG"
    """"TF_CONFIG", "ClusterSpec", or "Python"."""
    line: int | None = None
    """Of a Python file."""
    faults: tuple[Fault, ...] = ()
    """What kept a part of it from being read."""
    partly: str = ""
    """What of it could not be known without running the program, as a sentence."""

    @property
    def addresses(self) -> list[tuple[Task, str]]:
        """Return each task with its address, in the order of the text."""
        return [
            (Task(job, index), address)
            for job, tasks in (self.jobs or {}).items()
            for index, address in tasks.items()
        ]


@dataclass(frozen=True, slots=True)
class ClusterSource:
    """One source and the clusters in it."""

    source: str
    """"env", a file's name, or "text"."""
    written: tuple[Written, ...]


@dataclass(frozen=True, slots=True)
class Member:
    """A task, and what was seen of it."""

    task: Task
    address: str
    self: bool
    reachable: bool | None = None
    """None: not asked for, or it could not be known."""
    why: str | None = None
    """"refused", "timeout", "no-such-name", "not-tensorflow"."""
    detail: str = ""
    """What was seen, as half a sentence."""
    listening: bool | None = None
    """Whether something listens at its port on this machine; None: not this machine's, or not known."""


@dataclass(frozen=True, slots=True)
class ClusterAnswer:
    """What is told: of one cluster."""

    source: str
    written: Written
    task: Task | None
    members: tuple[Member, ...]
    faults: tuple[Fault, ...]
    summary: str
    connected: bool
    notes: tuple[str, ...] = ()
    """What could not be known, and what helps to read the rest: sentences."""
