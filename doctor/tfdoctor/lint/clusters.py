"""Clusters written out in code: addresses, and tasks that they have."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from tfdoctor.cluster.addresses import parse_address
from tfdoctor.cluster.reader import parse_index
from tfdoctor.lint.reporter import Telling
from tfdoctor.lint.values import Const, Map, Obj, Seq, constant
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from tfdoctor.lint.models import LintTarget

__all__ = ["Clusters", "bad_address", "problems_of"]

_FILLED_IN = re.compile(r"[${}<>%]")


def bad_address(text: str) -> str | None:
    """Return what is wrong with a task's address, as a sentence.

    None if nothing is, or where it is filled in later.
    """
    if _FILLED_IN.search(text):
        return None
    fault = parse_address(text).fault
    return f"The address {clean_line(text, limit=70)!r} is not HOST:PORT: {fault}." if fault else None


def problems_of(config: Any) -> Iterator[tuple[str, str, str]]:
    """(name, message, a text to look for) of a TF_CONFIG that was read from JSON."""
    if not isinstance(config, dict):
        return
    cluster, task = config.get("cluster"), config.get("task")
    jobs = cluster if isinstance(cluster, dict) else {}
    for members in jobs.values():
        given = (
            members.values()
            if isinstance(members, dict)
            else members
            if isinstance(members, list)
            else [members]
        )
        for one in given:
            wrong = bad_address(one) if isinstance(one, str) else None
            if wrong is not None:
                yield "cluster-address", wrong, one
    if isinstance(task, dict) and jobs:
        wrong = bad_task(
            {str(job): _indices(members) for job, members in jobs.items()},
            task.get("type"),
            parse_index(task.get("index")),
        )
        if wrong is not None:
            yield "cluster-task", wrong, '"task"'


def _indices(members: Any) -> Collection[int] | None:
    """Return the indices of a job's tasks, as TensorFlow counts them."""
    if isinstance(members, list):
        return range(len(members))
    if isinstance(members, dict):
        return {index for index in map(parse_index, members) if index is not None}
    return None


def bad_task(jobs: Mapping[str, Collection[int] | None], job: Any, index: Any) -> str | None:
    """Return what is wrong with a task of a cluster. jobs: the indices of each job's tasks.

    None: not known.
    """
    if not isinstance(job, str):
        return None
    if job not in jobs:
        return None if job == "evaluator" else f"The cluster has no job {job!r}."
    there = jobs[job]
    if not isinstance(index, int) or isinstance(index, bool) or there is None or index in there:
        return None
    many = f"{len(there)} task{'s' if len(there) != 1 else ''}"
    counted = ", counted from 0" if set(there) == set(range(len(there))) else ""
    return f"The job {job!r} has {many}{counted}; there is no task {index}."


class Clusters(Telling):
    """ClusterSpec, Server and TF_CONFIG in Python."""

    def __init__(self, asked: LintTarget, text: str) -> None:
        super().__init__(asked, text)
        self.started: set[tuple[str, int]] = set()

    def cluster_spec(self, node: Any, args: list[Any], keywords: dict[Any, Any]) -> Any:
        given = args[0] if args else keywords.get("cluster")
        if isinstance(given, Obj) and given.kind == "cluster":
            return given
        if not isinstance(given, Map):
            return None
        return Obj("cluster", self.jobs(given), node)

    def jobs(self, given: Map) -> dict[str, Collection[int] | None]:
        """Return job → the indices of its tasks, with its addresses looked at."""
        jobs: dict[str, Collection[int] | None] = {} if given.whole else {"": None}
        for key, value, _, value_node in given.entries:
            name = constant(key)
            if not isinstance(name, str):
                jobs[""] = None
                continue
            jobs[name] = None
            members = (
                value.items if isinstance(value, Seq) else value.entries if isinstance(value, Map) else ()
            )
            self.spend(16 * len(members))
            if isinstance(value, Seq):
                jobs[name] = range(len(value.items))
                for item, at in zip(value.items, value.nodes, strict=False):
                    self.address(item, at)
            elif isinstance(value, Map):
                for _, item, _, at in value.entries:
                    self.address(item, at)
            elif isinstance(constant(value), str):
                self.address(value, value_node)
        return jobs

    def address(self, value: Any, node: Any) -> None:
        text = constant(value)
        wrong = bad_address(text) if isinstance(text, str) else None
        if wrong is not None:
            self.tell("cluster-address", node, wrong)

    def server(self, node: Any, args: list[Any], keywords: dict[Any, Any]) -> None:
        cluster = args[0] if args else keywords.get("server_or_cluster_def")
        if isinstance(cluster, Map):
            cluster = Obj("cluster", self.jobs(cluster))
        job = constant(args[1] if len(args) > 1 else keywords.get("job_name"))
        index = constant(args[2] if len(args) > 2 else keywords.get("task_index"))
        if not (isinstance(cluster, Obj) and cluster.kind == "cluster"):
            return
        if "" not in cluster.data:
            wrong = bad_task(cluster.data, job, index)
            if wrong is not None:
                self.tell("cluster-task", node, wrong)
        if isinstance(job, str) and isinstance(index, int) and not self.maybe and not self.uncalled:
            if (job, index) in self.started:
                self.tell("cluster-task", node, f"The task {job}:{index} is started twice.")
            self.started.add((job, index))

    def tf_config(self, value: Any, node: Any) -> None:
        """What TF_CONFIG is set to."""
        if isinstance(value, Const) and isinstance(value.value, str):
            self.spend(4 * len(value.value))
            try:
                config = json.loads(value.value)
            except (ValueError, RecursionError):
                return
            for name, message, _ in problems_of(config):
                self.tell(name, node, message)
        elif isinstance(value, Obj) and value.kind == "json" and isinstance(value.data, Map):
            parts = {
                constant(key): (held, at) for key, held, _, at in value.data.entries if isinstance(key, Const)
            }
            cluster, _ = parts.get("cluster", (None, None))
            task, at = parts.get("task", (None, None))
            if not isinstance(cluster, Map):
                return
            jobs = self.jobs(cluster)
            if isinstance(task, Map) and "" not in jobs:
                held = {
                    constant(key): constant(one) for key, one, _, _ in task.entries if isinstance(key, Const)
                }
                wrong = bad_task(jobs, held.get("type"), held.get("index"))
                if wrong is not None:
                    self.tell("cluster-task", at if at is not None else node, wrong)
