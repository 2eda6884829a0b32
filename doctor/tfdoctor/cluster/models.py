"""Data classes for a cluster specification and its evaluation."""

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
    """Job of the task, such as "worker" or "ps"."""
    index: int

    def __str__(self) -> str:
        return f"{self.type}:{self.index}"


@dataclass(frozen=True, slots=True)
class Address:
    """Address of a task. `fault` is empty if it is HOST:PORT, and `host` is set only if it is known."""

    text: str
    host: str = ""
    """Host in lower case, without brackets and final dot."""
    port: int | None = None
    fault: str = ""
    """What is wrong, as a clause such as "it has no port"."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Problem or note about the cluster or one of its tasks."""

    name: str
    severity: Severity
    task: str | None
    """Task as JOB:INDEX; None for the whole cluster."""
    message: str
    """Description in full sentences."""
    fix: str = ""
    """What to do, as a sentence; "" if there is no advice."""


@dataclass(frozen=True, slots=True)
class InstalledRelease:
    """TensorFlow of one machine."""

    machine: str
    """"this machine", or the name of the recording."""
    release: str | None
    """Version; None if TensorFlow is not installed or its version is not known."""


@dataclass(frozen=True, slots=True)
class Written:
    """Cluster specification, and the tasks that the same text starts."""

    jobs: dict[str, dict[int, str]] | None
    """Address of each task by job and index; None if the text could not be read."""
    shown: dict[str, Any] | None
    """Specification as it is written: lists, or objects if indices are left out; None if it could not be read."""
    tasks: tuple[Task, ...] = ()
    """Tasks of this process: one for TF_CONFIG, one for each server of a Python file."""
    kind: str = "TF_CONFIG"
    """"TF_CONFIG", "ClusterSpec", or "Python"."""
    line: int | None = None
    """Line in a Python file; None for other sources."""
    faults: tuple[Fault, ...] = ()
    """Problems that prevented reading a part of it."""
    partly: str = ""
    """Parts that are not known without running the program, as a sentence; "" if there are none."""

    @property
    def addresses(self) -> list[tuple[Task, str]]:
        """Each task with its address, in the order of the text."""
        return [
            (Task(job, index), address)
            for job, tasks in (self.jobs or {}).items()
            for index, address in tasks.items()
        ]


@dataclass(frozen=True, slots=True)
class ClusterSource:
    """A source with the clusters in it."""

    source: str
    """"env", the name of a file, or "text"."""
    written: tuple[Written, ...]


@dataclass(frozen=True, slots=True)
class Member:
    """Task with the results of probing it."""

    task: Task
    address: str
    self: bool
    reachable: bool | None = None
    """Whether it can be reached; None if that was not requested or is not known."""
    why: str | None = None
    """"refused", "timeout", "no-such-name" or "not-tensorflow"; None if it was reached or not tried."""
    detail: str = ""
    """Details of the result, as a clause."""
    listening: bool | None = None
    """Whether its port is open on this machine; None if the task is not on this machine or it is not known."""


@dataclass(frozen=True, slots=True)
class ClusterAnswer:
    """Evaluation of one cluster."""

    source: str
    written: Written
    task: Task | None
    members: tuple[Member, ...]
    faults: tuple[Fault, ...]
    summary: str
    connected: bool
    notes: tuple[str, ...] = ()
    """Sentences about what is not known, and other remarks."""
