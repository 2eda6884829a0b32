"""Dataclasses for a cluster specification and its evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfdoctor.core.records import dataclass

if TYPE_CHECKING:
    from tfdoctor.core.findings import Severity

__all__ = [
    "ClusterEvaluation",
    "ClusterSource",
    "ClusterSpecification",
    "Fault",
    "InstalledRelease",
    "Member",
    "Task",
]


@dataclass(frozen=True, slots=True)
class Task:
    """One process of a cluster."""

    type: str
    """The job of the task, such as "worker" or "ps"."""
    index: int
    """The index of the task in its job, counted from 0."""

    def __str__(self) -> str:
        return f"{self.type}:{self.index}"


@dataclass(frozen=True, slots=True)
class Fault:
    """A problem of the cluster or of one of its tasks."""

    kind: str
    """The kind of problem, such as "job-name". `codes` lists all kinds."""
    severity: Severity
    task: str | None
    """The task as JOB:INDEX. None if the problem concerns the whole cluster."""
    message: str
    """The description of the problem, in full sentences."""
    remedy: str = ""
    """The remedy as a sentence. Empty if there is none."""


@dataclass(frozen=True, slots=True)
class InstalledRelease:
    """The TensorFlow of one machine."""

    machine: str
    """"this machine", or the name of the recording."""
    version: str | None
    """The version. None if TensorFlow is not installed or its version is unknown."""


@dataclass(frozen=True, slots=True)
class ClusterSpecification:
    """A cluster specification, and the tasks that the text with the specification starts."""

    jobs: dict[str, dict[int, str]] | None
    """The address of each task by job and index. None if the text could not be read."""
    original_cluster: dict[str, Any] | None
    """The specification in its original form: the addresses of each job as a list, or by index.

    None if the text could not be read.
    """
    tasks: tuple[Task, ...] = ()
    """The tasks that the text starts: at most one for TF_CONFIG, one for each server in a Python file."""
    kind: str = "TF_CONFIG"
    """The form of the text: "TF_CONFIG", "ClusterSpec" (as JSON), or "Python"."""
    line: int | None = None
    """The line in a Python file. None for other sources."""
    faults: tuple[Fault, ...] = ()
    """The problems that were found when the text was parsed."""
    unknown_note: str = ""
    """A sentence about the parts that are known only when the program runs; empty if there are none."""

    @property
    def addresses(self) -> list[tuple[Task, str]]:
        """Each task with its address, in the order of the text; empty if the text could not be read."""
        return [
            (Task(job, index), address)
            for job, tasks in (self.jobs or {}).items()
            for index, address in tasks.items()
        ]


@dataclass(frozen=True, slots=True)
class ClusterSource:
    """A source of cluster specifications."""

    name: str
    """"env", the name of a file, or "text"."""
    specifications: tuple[ClusterSpecification, ...]


@dataclass(frozen=True, slots=True)
class Member:
    """A task of the cluster, with the results of probing it."""

    task: Task
    address: str
    is_own_task: bool
    """Whether this is the task of this process."""
    is_reachable: bool | None = None
    """Whether the task can be reached. None if no connection was requested or the result is unknown."""
    failure_kind: str | None = None
    """The kind of failure: "refused", "timeout", "no-such-name" or "not-tensorflow".

    None if the task was reached or not tried.
    """
    detail: str = ""
    """The details of the result, as a clause."""
    is_listening: bool | None = None
    """Whether the task's port is open on this machine. None if unknown, or if the task is on another machine."""


@dataclass(frozen=True, slots=True)
class ClusterEvaluation:
    """The evaluation of one cluster."""

    source: str
    """The source of the specification, as in `ClusterSource`."""
    specification: ClusterSpecification
    task: Task | None
    """The task of this process. None if unknown."""
    members: tuple[Member, ...]
    faults: tuple[Fault, ...]
    summary: str
    has_connection_results: bool
    """Whether connections to the tasks were requested."""
    notes: tuple[str, ...] = ()
    """Sentences about unknown facts, and other remarks."""
