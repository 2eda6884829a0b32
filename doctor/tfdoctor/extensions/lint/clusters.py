"""Check the addresses and tasks of clusters in Python code and in TF_CONFIG."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from tfdoctor.core.task_addresses import parse_address, parse_index
from tfdoctor.core.text import clean_line
from tfdoctor.extensions.lint.reporter import Reporter
from tfdoctor.extensions.lint.values import ConstantValue, DictValue, ObjectValue, SequenceValue, get_constant

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from tfdoctor.extensions.lint.models import LintTarget

__all__ = ["ClusterChecks", "describe_address_fault", "iter_tf_config_problems"]

_PLACEHOLDER = re.compile(r"[${}<>%]")
"""A character that an address contains only if a shell variable or template field is in it."""


def describe_address_fault(text: str) -> str | None:
    """Return a sentence that says what is wrong with a task address.

    Return None if nothing is wrong, or if the address has a placeholder that is filled in at run time.
    """
    if _PLACEHOLDER.search(text):
        return None
    fault = parse_address(text).fault
    return f"The address {clean_line(text, limit=70)!r} is not HOST:PORT: {fault}." if fault else None


def iter_tf_config_problems(config: Any) -> Iterator[tuple[str, str, str]]:
    """Yield (kind of finding, message, text that locates it) for each problem in a parsed TF_CONFIG."""
    if not isinstance(config, dict):
        return
    cluster, task = config.get("cluster"), config.get("task")
    jobs = cluster if isinstance(cluster, dict) else {}
    for members in jobs.values():
        addresses = (
            members.values()
            if isinstance(members, dict)
            else members
            if isinstance(members, list)
            else [members]
        )
        for address in addresses:
            fault = describe_address_fault(address) if isinstance(address, str) else None
            if fault is not None:
                yield "cluster-address", fault, address
    if isinstance(task, dict) and jobs:
        fault = describe_task_fault(
            {str(job): _list_indices(members) for job, members in jobs.items()},
            task.get("type"),
            parse_index(task.get("index")),
        )
        if fault is not None:
            yield "cluster-task", fault, '"task"'


def _list_indices(members: Any) -> Collection[int] | None:
    """Return the task indices of a job, or None if they are unknown."""
    if isinstance(members, list):
        return range(len(members))
    if isinstance(members, dict):
        return {index for index in map(parse_index, members) if index is not None}
    return None


def describe_task_fault(jobs: Mapping[str, Collection[int] | None], job: Any, index: Any) -> str | None:
    """Return a sentence that says that a cluster lacks a task, or None if it may have the task.

    `jobs` maps each job to its task indices, or to None if they are unknown.
    """
    if not isinstance(job, str):
        return None
    if job not in jobs:
        # an evaluator is not part of the cluster
        return None if job == "evaluator" else f"The cluster has no job {job!r}."
    indices = jobs[job]
    if not isinstance(index, int) or isinstance(index, bool) or indices is None or index in indices:
        return None
    count = f"{len(indices)} task{'s' if len(indices) != 1 else ''}"
    index_note = ", counted from 0" if set(indices) == set(range(len(indices))) else ""
    return f"The job {job!r} has {count}{index_note}; there is no task {index}."


class ClusterChecks(Reporter):
    """The checks of ClusterSpec, Server and TF_CONFIG in Python."""

    def __init__(self, target: LintTarget, text: str) -> None:
        super().__init__(target, text)
        self.started_tasks: set[tuple[str, int]] = set()
        """(job, index) of each task that the file starts."""

    def evaluate_cluster_spec(self, node: Any, args: list[Any], keywords: dict[Any, Any]) -> Any:
        """Return the value of a call of ClusterSpec, or None if its argument is unknown."""
        argument = args[0] if args else keywords.get("cluster")
        if isinstance(argument, ObjectValue) and argument.kind == "cluster":
            return argument
        if not isinstance(argument, DictValue):
            return None
        return ObjectValue("cluster", self.collect_jobs(argument), node)

    def collect_jobs(self, cluster: DictValue) -> dict[str, Collection[int] | None]:
        """Report invalid addresses in a cluster, and return the task indices of each job.

        The key "" means that not all jobs are known. The value of a job is None if its indices are unknown.
        """
        jobs: dict[str, Collection[int] | None] = {} if cluster.is_complete else {"": None}
        for key, value, _, value_node in cluster.entries:
            name = get_constant(key)
            if not isinstance(name, str):
                jobs[""] = None
                continue
            jobs[name] = None
            members = (
                value.items
                if isinstance(value, SequenceValue)
                else value.entries
                if isinstance(value, DictValue)
                else ()
            )
            self.count_work(16 * len(members))
            if isinstance(value, SequenceValue):
                jobs[name] = range(len(value.items))
                for item, item_node in zip(value.items, value.nodes, strict=False):
                    self.check_task_address(item, item_node)
            elif isinstance(value, DictValue):
                for _, item, _, item_node in value.entries:
                    self.check_task_address(item, item_node)
            elif isinstance(get_constant(value), str):
                self.check_task_address(value, value_node)
        return jobs

    def check_task_address(self, value: Any, node: Any) -> None:
        """Report a task address that is not HOST:PORT."""
        text = get_constant(value)
        problem = describe_address_fault(text) if isinstance(text, str) else None
        if problem is not None:
            self.report("cluster-address", node, problem)

    def check_server(self, node: Any, args: list[Any], keywords: dict[Any, Any]) -> None:
        """Report a call of Server whose task does not exist or is started twice."""
        cluster = args[0] if args else keywords.get("server_or_cluster_def")
        if isinstance(cluster, DictValue):
            cluster = ObjectValue("cluster", self.collect_jobs(cluster))
        job = get_constant(args[1] if len(args) > 1 else keywords.get("job_name"))
        index = get_constant(args[2] if len(args) > 2 else keywords.get("task_index"))
        if not (isinstance(cluster, ObjectValue) and cluster.kind == "cluster"):
            return
        if "" not in cluster.data:
            problem = describe_task_fault(cluster.data, job, index)
            if problem is not None:
                self.report("cluster-task", node, problem)
        if isinstance(job, str) and isinstance(index, int) and not self.branch_depth and not self.is_uncalled:
            if (job, index) in self.started_tasks:
                self.report("cluster-task", node, f"The task {job}:{index} is started twice.")
            self.started_tasks.add((job, index))

    def check_tf_config(self, value: Any, node: Any) -> None:
        """Check a value of TF_CONFIG: a JSON text, or the result of json.dumps."""
        if isinstance(value, ConstantValue) and isinstance(value.value, str):
            self.count_work(4 * len(value.value))
            try:
                parsed_config = json.loads(value.value)
            except (ValueError, RecursionError):
                return
            for name, message, _ in iter_tf_config_problems(parsed_config):
                self.report(name, node, message)
        elif isinstance(value, ObjectValue) and value.kind == "json" and isinstance(value.data, DictValue):
            parts = {
                get_constant(key): (member, task_node)
                for key, member, _, task_node in value.data.entries
                if isinstance(key, ConstantValue)
            }
            cluster, _ = parts.get("cluster", (None, None))
            task, task_node = parts.get("task", (None, None))
            if not isinstance(cluster, DictValue):
                return
            jobs = self.collect_jobs(cluster)
            if isinstance(task, DictValue) and "" not in jobs:
                member = {
                    get_constant(key): get_constant(item)
                    for key, item, _, _ in task.entries
                    if isinstance(key, ConstantValue)
                }
                problem = describe_task_fault(jobs, member.get("type"), member.get("index"))
                if problem is not None:
                    self.report("cluster-task", task_node if task_node is not None else node, problem)
