"""Parse cluster specifications: TF_CONFIG, a ClusterSpec as JSON, or a Python file (never run).

The rules are those of TensorFlow's python/training/server_lib.py (ClusterSpec) and
python/distribute/cluster_resolver/tfconfig_cluster_resolver.py.
"""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from typing import Any

from tfdoctor.core.findings import Severity
from tfdoctor.core.task_addresses import parse_index
from tfdoctor.core.text import clean_line
from tfdoctor.extensions.cluster.models import ClusterSource, ClusterSpecification, Fault, Task
from tfdoctor.extensions.cluster.python import find_clusters

__all__ = ["MAX_SPECIFICATION_CHARS", "convert_cluster", "parse_cluster"]

MAX_SPECIFICATION_CHARS = 4 << 20
"""The maximum number of characters in a specification."""
FORMAT_HINT = 'It is JSON of this form: {"cluster": {"worker": ["HOST:PORT", …]}, "task": {"type": "worker", "index": 0}}.'


def parse_cluster(text: str, source: str, *, is_python: bool = False) -> ClusterSource:
    """Parse the clusters in a text. Invalid JSON becomes a fault of the result.

    `source` is "env", "text", or the name of a file. If `is_python` is true, the text is Python source, and the
    errors of `find_clusters` are raised.
    """
    if is_python:
        return ClusterSource(source, tuple(convert_cluster(cluster) for cluster in find_clusters(text)))
    if len(text) > MAX_SPECIFICATION_CHARS:
        return ClusterSource(
            source, (_make_invalid_specification(f"it is longer than {MAX_SPECIFICATION_CHARS >> 20} MiB"),)
        )
    duplicate_names: list[str] = []

    def make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        json_object: dict[str, Any] = {}
        for name, value in pairs:
            if name in json_object:  # json.loads would drop the first value without an error
                duplicate_names.append(name)
            json_object[name] = value
        return json_object

    try:
        value = json.loads(text, object_pairs_hook=make_object)
    except (ValueError, RecursionError) as error:
        return ClusterSource(
            source, (_make_invalid_specification(_describe_error(text, error), _suggest_fix(text)),)
        )
    cluster_spec = convert_cluster(_JsonValue(value), is_tf_config=source == "env")
    for name in dict.fromkeys(duplicate_names):
        fault = Fault(
            "cluster-task",
            Severity.ERROR,
            task=None,
            message=f'"{clean_line(name, limit=60)}" is written twice in one object. Python keeps the last one, and the '
            "tasks of the first are gone.",
            remedy="Write it once, with all of its tasks.",
        )
        cluster_spec = replace(cluster_spec, faults=(*cluster_spec.faults, fault))
    return ClusterSource(source, (cluster_spec,))


class _JsonValue:
    """A parsed JSON value, which differs in its class from a cluster in a Python file (`SourceCluster`)."""

    def __init__(self, value: Any) -> None:
        self.value = value


def convert_cluster(parsed_value: Any, *, is_tf_config: bool = False) -> ClusterSpecification:
    """Convert parsed JSON (`_JsonValue`) or a `SourceCluster` to a specification.

    If `is_tf_config` is true, the JSON is the value of TF_CONFIG, so it cannot be a bare ClusterSpec.
    """
    if not isinstance(parsed_value, _JsonValue):
        if parsed_value.tf_config_text is not None:
            (specification,) = parse_cluster(parsed_value.tf_config_text, "text").specifications
            return replace(
                specification, kind="TF_CONFIG", line=parsed_value.line, unknown_note=parsed_value.note
            )
        if parsed_value.tf_config_value is not None:
            specification = convert_cluster(_JsonValue(parsed_value.tf_config_value))
            return replace(
                specification, kind="TF_CONFIG", line=parsed_value.line, unknown_note=parsed_value.note
            )
        if parsed_value.cluster is None:
            return ClusterSpecification(
                jobs=None,
                original_cluster=None,
                kind="Python",
                line=parsed_value.line,
                unknown_note=parsed_value.note,
            )
        jobs, faults = _parse_jobs(parsed_value.cluster)
        tasks = tuple(Task(job, index) for job, index in parsed_value.servers)
        return ClusterSpecification(
            jobs=jobs,
            original_cluster=_convert_addresses(parsed_value.cluster),
            tasks=tasks,
            kind="Python",
            line=parsed_value.line,
            faults=tuple(faults),
            unknown_note=parsed_value.note,
        )
    value = parsed_value.value
    if not isinstance(value, dict):
        description = "a text that holds JSON" if isinstance(value, str) else f"{_describe_json_value(value)}"
        return _make_invalid_specification(f"it is {description}, and TensorFlow takes an object")
    if not is_tf_config and "cluster" not in value and "task" not in value and _is_cluster_spec(value):
        jobs, faults = _parse_jobs(value)
        return ClusterSpecification(jobs, _convert_addresses(value), kind="ClusterSpec", faults=tuple(faults))
    if "cluster" not in value and any(
        isinstance(item, (list, dict)) for key, item in value.items() if key != "task"
    ):
        return _make_invalid_specification(
            'it has no "cluster": TensorFlow takes it for no cluster at all and runs alone'
        )
    cluster = value.get("cluster", {})
    if not isinstance(cluster, dict):
        return _make_invalid_specification(
            f'"cluster" is {_describe_json_value(cluster)}, and TensorFlow takes an object of jobs'
        )
    jobs, faults = _parse_jobs(cluster)
    task, task_faults = _parse_task(value)
    return ClusterSpecification(
        jobs,
        _convert_addresses(cluster),
        tasks=(task,) if task else (),
        faults=(*faults, *task_faults),
    )


def _is_cluster_spec(value: dict[str, Any]) -> bool:
    """Return whether a JSON object is a ClusterSpec: each value is a list or an object of addresses."""
    return bool(value) and all(
        isinstance(tasks, (list, dict))
        and all(isinstance(address, str) for address in _list_addresses(tasks))
        for tasks in value.values()
    )


def _convert_addresses(cluster: dict[str, Any]) -> dict[str, Any]:
    """Return the cluster in its original form, with None for each address that is not a text."""

    def convert_address(address: Any) -> str | None:
        return address if isinstance(address, str) else None

    raw_cluster: dict[str, Any] = {}
    for job, tasks in cluster.items():
        if isinstance(tasks, dict):
            raw_cluster[str(job)] = {str(index): convert_address(address) for index, address in tasks.items()}
        else:
            raw_cluster[str(job)] = (
                [convert_address(value) for value in tasks] if isinstance(tasks, (list, tuple)) else []
            )
    return raw_cluster


def _list_addresses(tasks: Any) -> list[Any]:
    return list(tasks.values()) if isinstance(tasks, dict) else list(tasks)


def _parse_jobs(cluster: dict[str, Any]) -> tuple[dict[str, dict[int, str]], list[Fault]]:
    """Return (addresses by job and index, faults). An address that is not a text becomes empty."""
    jobs: dict[str, dict[int, str]] = {}
    faults: list[Fault] = []
    for job, tasks in cluster.items():
        job_text = clean_line(str(job), limit=60)
        jobs[job] = {}
        if not isinstance(tasks, (list, tuple, dict)):
            message = (
                f"The tasks of {job_text} are {_describe_json_value(tasks)}"
                ", and TensorFlow takes a list of addresses: TypeError."
            )
            fix = "Put the addresses in brackets." if isinstance(tasks, str) else ""
            faults.append(Fault("cluster-address", Severity.ERROR, f"{job_text}:0", message, fix))
            continue
        for position, (index_key, address) in enumerate(
            tasks.items() if isinstance(tasks, dict) else enumerate(tasks)
        ):
            index = parse_index(index_key)
            if index is None or index < 0:
                message = f'In the job {job_text} "{clean_line(str(index_key), limit=60)}" is no index of a task: 0, 1, 2 …'
                faults.append(Fault("cluster-task", Severity.ERROR, None, message))
                continue
            if index in jobs[job]:
                message = f"The job {job_text} has the task {index} twice; TensorFlow keeps the last one."
                faults.append(Fault("cluster-task", Severity.ERROR, f"{job_text}:{index}", message))
            if isinstance(address, str):
                jobs[job][index] = address
            else:
                message = f"The address of {job_text}:{position} is {_describe_json_value(address)}, not a text: TypeError."
                faults.append(Fault("cluster-address", Severity.ERROR, f"{job_text}:{index}", message))
                jobs[job][index] = ""
    return jobs, faults


def _parse_task(value: dict[str, Any]) -> tuple[Task | None, list[Fault]]:
    """Return (task of this process, faults) from "task". The task is None if it is missing or invalid."""
    task_count = sum(
        len(_list_addresses(tasks))
        for tasks in value.get("cluster", {}).values()
        if isinstance(tasks, (list, dict))
    )

    def make_faults(message: str) -> list[Fault]:
        return [
            Fault(
                "cluster-task",
                Severity.ERROR,
                task=None,
                message=message,
                remedy='Give each process its own "task": {"type": "worker", "index": 0}.',
            )
        ]

    if "task" not in value or value["task"] == {}:
        if task_count < 2:
            return None, []
        return None, make_faults(
            f'The cluster has {task_count} tasks and there is no "task": a process does not know which one it is.'
        )
    task = value["task"]
    if not isinstance(task, dict):
        return None, make_faults(
            f'"task" is {_describe_json_value(task)}, and TensorFlow takes an object with "type" and "index".'
        )
    if "type" not in task or not isinstance(task["type"], str):
        return None, make_faults('"task" does not say which job it is: "type" is missing, or is no text.')
    if "index" not in task:
        return None, make_faults('"task" does not say which of the job\'s tasks it is: "index" is missing.')
    index = parse_index(task["index"])
    if index is None:
        return None, make_faults(
            f'"index" of "task" is {_describe_json_value(task["index"])}, and TensorFlow takes a number: 0, 1, 2 …'
        )
    if isinstance(task["index"], float) and task["index"] != index:
        return Task(task["type"], index), make_faults(
            f'"index" of "task" is {task["index"]}; TensorFlow takes it for {index}.'
        )
    return Task(task["type"], index), []


def _describe_json_value(value: Any) -> str:
    """Return the type of a JSON value in words, or the value itself in quotes if it is a text."""
    for json_type, description in (
        (bool, "true or false"),
        (str, "a text"),
        (int, "a number"),
        (float, "a number"),
        (list, "a list"),
        (tuple, "a list"),
        (dict, "an object"),
    ):
        if isinstance(value, json_type):
            return f'"{clean_line(value, limit=40)}"' if isinstance(value, str) and value else description
    return "null" if value is None else "something else"


def _make_invalid_specification(reason: str, fix: str = FORMAT_HINT) -> ClusterSpecification:
    """Return a specification that could not be read, with the reason as its fault."""
    message = f"TensorFlow cannot use this: {reason}."
    fault = Fault("json-invalid", Severity.ERROR, task=None, message=message, remedy=fix)
    return ClusterSpecification(jobs=None, original_cluster=None, faults=(fault,))


def _describe_error(text: str, error: Exception) -> str:
    if not text.strip():
        return "it is set but empty" if not text else "it is nothing but white space"
    if isinstance(error, json.JSONDecodeError):
        return f"it is not valid JSON (line {error.lineno}, column {error.colno}: {error.msg})"
    return "it is nested too deeply" if isinstance(error, RecursionError) else "a number in it is too long"


def _suggest_fix(text: str) -> str:
    """Return a sentence that says how to correct a text that is not JSON."""
    if not text.strip():
        return f"Unset TF_CONFIG, or write it whole. {FORMAT_HINT}"
    if text.startswith("\ufeff"):
        return "Save it without a byte order mark."
    if len(text) < 100_000:
        try:
            ast.literal_eval(text.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            pass
        else:
            has_single_quotes = "'" in text
            return (
                'JSON wants double quotes: put {"cluster": …} into single quotes for the shell, or write it with '
                "json.dumps in Python."
                if has_single_quotes
                else "JSON has no comma before a closing bracket."
            )
    if '"' not in text and "cluster" in text:
        return "The shell took the double quotes away: put all of it into single quotes: '{\"cluster\": …}'."
    return FORMAT_HINT
