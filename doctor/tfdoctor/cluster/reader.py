"""TF_CONFIG, the JSON of a ClusterSpec, or a Python file (never run) → what is written in it.

The rules are TensorFlow's: python/training/server_lib.py (ClusterSpec), python/distribute/cluster_resolver/
tfconfig_cluster_resolver.py.
"""

from __future__ import annotations

import ast
import json
import math
from dataclasses import replace
from typing import Any

from tfdoctor.cluster.models import ClusterSource, Fault, Task, Written
from tfdoctor.cluster.python import find_clusters
from tfdoctor.findings import Severity
from tfdoctor.text import clean_line

__all__ = ["MAX_SPECIFICATION_CHARS", "convert_cluster", "parse_index", "read_cluster"]

MAX_SPECIFICATION_CHARS = 4 << 20
"""Characters of a specification."""
FORM = 'It is JSON of this form: {"cluster": {"worker": ["HOST:PORT", …]}, "task": {"type": "worker", "index": 0}}.'


def read_cluster(text: str, source: str, *, python: bool = False) -> ClusterSource:
    """Read the clusters of a text. Never raises. source: "env", "text", or a file's name; python: it is Python."""
    if python:
        return ClusterSource(source, tuple(convert_cluster(one) for one in find_clusters(text)))
    if len(text) > MAX_SPECIFICATION_CHARS:
        return ClusterSource(source, (_invalid(f"it is longer than {MAX_SPECIFICATION_CHARS >> 20} MiB"),))
    twice: list[str] = []

    def collect_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for name, value in pairs:
            if name in made:
                twice.append(name)
            made[name] = value
        return made

    try:
        value = json.loads(text, object_pairs_hook=collect_pairs)
    except (ValueError, RecursionError) as error:
        return ClusterSource(source, (_invalid(_describe_error(text, error), _hint(text)),))
    written = convert_cluster(_Config(value), environment=source == "env")
    for name in dict.fromkeys(twice):
        fault = Fault(
            "cluster-task",
            Severity.ERROR,
            None,
            f'"{clean_line(name, limit=60)}" is written twice in one object. Python keeps the last one, and the '
            "tasks of the first are gone.",
            "Write it once, with all of its tasks.",
        )
        written = replace(written, faults=(*written.faults, fault))
    return ClusterSource(source, (written,))


class _Config:
    """JSON that was read. (A Python file's parts come as `python.Found`.)"""

    def __init__(self, value: Any) -> None:
        self.value = value


def convert_cluster(found: Any, *, environment: bool = False) -> Written:
    """Convert a value, of JSON or of a Python file (`python.Found`), into a cluster."""
    if not isinstance(found, _Config):
        if found.text is not None:
            (inner,) = read_cluster(found.text, "text").written
            return replace(inner, kind="TF_CONFIG", line=found.line, partly=found.partly)
        if found.config is not None:
            inner = convert_cluster(_Config(found.config))
            return replace(inner, kind="TF_CONFIG", line=found.line, partly=found.partly)
        if found.cluster is None:
            return Written(None, None, (), "Python", found.line, (), found.partly)
        jobs, faults = _read_jobs(found.cluster)
        tasks = tuple(Task(job, index) for job, index in found.servers)
        return Written(
            jobs, _format_cluster(found.cluster), tasks, "Python", found.line, tuple(faults), found.partly
        )
    value = found.value
    if not isinstance(value, dict):
        what = "a text that holds JSON" if isinstance(value, str) else f"{_kind(value)}"
        return _invalid(f"it is {what}, and TensorFlow takes an object")
    if not environment and "cluster" not in value and "task" not in value and _is_spec(value):
        jobs, faults = _read_jobs(value)
        return Written(jobs, _format_cluster(value), (), "ClusterSpec", faults=tuple(faults))
    if "cluster" not in value and any(
        isinstance(one, (list, dict)) for key, one in value.items() if key != "task"
    ):
        return _invalid('it has no "cluster": TensorFlow takes it for no cluster at all and runs alone')
    cluster = value.get("cluster", {})
    if not isinstance(cluster, dict):
        return _invalid(f'"cluster" is {_kind(cluster)}, and TensorFlow takes an object of jobs')
    jobs, faults = _read_jobs(cluster)
    task, more = _read_task(value)
    return Written(jobs, _format_cluster(cluster), (task,) if task else (), faults=(*faults, *more))


def _is_spec(value: dict[str, Any]) -> bool:
    return bool(value) and all(
        isinstance(tasks, (list, dict)) and all(isinstance(one, str) for one in _values(tasks))
        for tasks in value.values()
    )


def _format_cluster(cluster: dict[str, Any]) -> dict[str, Any]:
    """Return the cluster in the form in which it is written; null for an address that is no text."""

    def text(address: Any) -> str | None:
        return address if isinstance(address, str) else None

    shown: dict[str, Any] = {}
    for job, tasks in cluster.items():
        if isinstance(tasks, dict):
            shown[str(job)] = {str(index): text(address) for index, address in tasks.items()}
        else:
            shown[str(job)] = [text(one) for one in tasks] if isinstance(tasks, (list, tuple)) else []
    return shown


def _values(tasks: Any) -> list[Any]:
    return list(tasks.values()) if isinstance(tasks, dict) else list(tasks)


def _read_jobs(cluster: dict[str, Any]) -> tuple[dict[str, dict[int, str]], list[Fault]]:
    """Return job → index → address, and the faults. Addresses that are no text are left out."""
    jobs: dict[str, dict[int, str]] = {}
    faults: list[Fault] = []
    for job, tasks in cluster.items():
        shown = clean_line(str(job), limit=60)
        jobs[job] = {}
        if not isinstance(tasks, (list, tuple, dict)):
            message = f"The tasks of {shown} are {_kind(tasks)}, and TensorFlow takes a list of addresses: TypeError."
            fix = "Put the addresses in brackets." if isinstance(tasks, str) else ""
            faults.append(Fault("cluster-address", Severity.ERROR, f"{shown}:0", message, fix))
            continue
        for number, (key, address) in enumerate(
            tasks.items() if isinstance(tasks, dict) else enumerate(tasks)
        ):
            index = parse_index(key)
            if index is None or index < 0:
                message = (
                    f'In the job {shown} "{clean_line(str(key), limit=60)}" is no index of a task: 0, 1, 2 …'
                )
                faults.append(Fault("cluster-task", Severity.ERROR, None, message))
                continue
            if index in jobs[job]:
                message = f"The job {shown} has the task {index} twice; TensorFlow keeps the last one."
                faults.append(Fault("cluster-task", Severity.ERROR, f"{shown}:{index}", message))
            if isinstance(address, str):
                jobs[job][index] = address
            else:
                message = f"The address of {shown}:{number} is {_kind(address)}, not a text: TypeError."
                faults.append(Fault("cluster-address", Severity.ERROR, f"{shown}:{index}", message))
                jobs[job][index] = ""
    return jobs, faults


def _read_task(value: dict[str, Any]) -> tuple[Task | None, list[Fault]]:
    """Return the task of this process, by "task"."""
    size = sum(
        len(_values(one)) for one in value.get("cluster", {}).values() if isinstance(one, (list, dict))
    )

    def fault(message: str) -> list[Fault]:
        return [
            Fault(
                "cluster-task",
                Severity.ERROR,
                None,
                message,
                'Give each process its own "task": {"type": "worker", "index": 0}.',
            )
        ]

    if "task" not in value or value["task"] == {}:
        if size < 2:
            return None, []
        return None, fault(
            f'The cluster has {size} tasks and there is no "task": a process does not know which one it is.'
        )
    task = value["task"]
    if not isinstance(task, dict):
        return None, fault(
            f'"task" is {_kind(task)}, and TensorFlow takes an object with "type" and "index".'
        )
    if "type" not in task or not isinstance(task["type"], str):
        return None, fault('"task" does not say which job it is: "type" is missing, or is no text.')
    if "index" not in task:
        return None, fault('"task" does not say which of the job\'s tasks it is: "index" is missing.')
    index = parse_index(task["index"])
    if index is None:
        return None, fault(
            f'"index" of "task" is {_kind(task["index"])}, and TensorFlow takes a number: 0, 1, 2 …'
        )
    if isinstance(task["index"], float) and task["index"] != index:
        return Task(task["type"], index), fault(
            f'"index" of "task" is {task["index"]}; TensorFlow takes it for {index}.'
        )
    return Task(task["type"], index), []


def parse_index(value: Any) -> int | None:
    """Return Python's int() of a value, as TensorFlow calls it; None if that raises."""
    if isinstance(value, (bool, int)):
        return int(value) if abs(value) < 1 << 63 else None
    if isinstance(value, float):
        return int(value) if math.isfinite(value) and abs(value) < 1 << 63 else None
    if isinstance(value, str) and len(value) < 30:
        try:
            return int(value)
        except ValueError:
            return None
    return None


def _kind(value: Any) -> str:
    for kind, words in (
        (bool, "true or false"),
        (str, "a text"),
        (int, "a number"),
        (float, "a number"),
        (list, "a list"),
        (tuple, "a list"),
        (dict, "an object"),
    ):
        if isinstance(value, kind):
            return f'"{clean_line(value, limit=40)}"' if isinstance(value, str) and value else words
    return "null" if value is None else "something else"


def _invalid(why: str, fix: str = FORM) -> Written:
    fault = Fault("json-invalid", Severity.ERROR, None, f"TensorFlow cannot use this: {why}.", fix)
    return Written(None, None, faults=(fault,))


def _describe_error(text: str, error: Exception) -> str:
    if not text.strip():
        return "it is set and empty" if not text else "it is nothing but white space"
    if isinstance(error, json.JSONDecodeError):
        return f"it is no JSON, by line {error.lineno}, column {error.colno}: {error.msg}"
    return "it is nested too deeply" if isinstance(error, RecursionError) else "a number in it is too long"


def _hint(text: str) -> str:
    if not text.strip():
        return f"Unset TF_CONFIG, or write it whole. {FORM}"
    if text.startswith("\ufeff"):
        return "Save it without a byte order mark."
    if len(text) < 100_000:
        try:
            ast.literal_eval(text.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            pass
        else:
            single = "'" in text
            return (
                'JSON wants double quotes: put {"cluster": …} into single quotes for the shell, or write it with '
                "json.dumps in Python."
                if single
                else "JSON has no comma before a closing bracket."
            )
    if '"' not in text and "cluster" in text:
        return "The shell took the double quotes away: put all of it into single quotes: '{\"cluster\": …}'."
    return FORM
