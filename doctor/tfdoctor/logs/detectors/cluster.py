"""Detect tasks of a distributed job that cannot reach each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.findings import Cause
from tfdoctor.core.text import clean_line, join_words
from tfdoctor.logs.log_context import Decision, LogContext

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfdoctor.logs.events import Event

__all__ = ["detect_cluster"]

SERVER_SIGNATURES = (
    "server-started",
    "cluster-target",
    "cluster-waiting",
    "cluster-lost",
    "parameter-server",
)
"""Signatures that only TensorFlow servers log. Other programs also use gRPC."""
OTHER_GRPC_USERS = ("framework-pytorch", "framework-jax")
"""Other frameworks that use gRPC."""


def detect_cluster(context: LogContext) -> Decision | None:
    """Return the cause if a task cannot reach its cluster, or None if the log does not show that."""
    return (
        _detect_bad_specification(context)
        or _detect_lost_task(context)
        or _detect_unreachable_task(context)
        or _detect_waiting_task(context)
    )


def _detect_bad_specification(context: LogContext) -> Decision | None:
    """Return the cause if the cluster specification is invalid, or if this task cannot listen."""
    log = context.log
    event = log.find_first("cluster-address")
    if event is not None:
        return Decision(
            Cause.CLUSTER_FAILURE,
            context.list_evidence("cluster-address"),
            note=f'An address is "{clean_line(event.get("address"), limit=100)}". Write HOST:PORT.',
            title="An address of the cluster is not HOST:PORT",
        )
    if log.has("cluster-refused"):
        message = clean_line(log.list_events("cluster-refused")[0].get("what"), limit=160)
        return Decision(
            Cause.CLUSTER_FAILURE,
            context.list_evidence("cluster-refused"),
            note=f"TensorFlow says: {message}.",
            title="TensorFlow refuses this cluster, or this task of it",
        )
    if log.has("cluster-bind"):
        return Decision(
            Cause.CLUSTER_FAILURE,
            context.list_evidence("cluster-bind"),
            note="The same task may run already: two processes with the same index, or one that was left over.",
            title="This task cannot listen at its port",
        )
    return None


def _detect_lost_task(context: LogContext) -> Decision | None:
    """Return the cause if a task ended or no longer responds."""
    if not context.log.has("cluster-lost"):
        return None
    lost_tasks = _list_tasks(
        [*context.log.list_events("cluster-lost"), *_list_following_tasks(context, "cluster-lost")]
    )
    return Decision(
        Cause.CLUSTER_FAILURE,
        context.list_evidence("cluster-lost"),
        note=f"{_format_tasks(lost_tasks)} The reason is in the log of that task.",
        title="A task of the cluster ended, or no longer answers",
    )


def _detect_unreachable_task(context: LogContext) -> Decision | None:
    """Return the cause if a task cannot connect to another one."""
    log = context.log
    events = context.list_evidence("cluster-connect", "cluster-reset")
    if not events or (
        not log.has(*SERVER_SIGNATURES) and (log.has(*OTHER_GRPC_USERS) or not log.has("cluster-connect"))
    ):
        return None
    if _has_later_session(context, events[-1]):
        return None
    tasks = _list_tasks(log.list_events("cluster-target"))
    addresses = dict.fromkeys(
        event.get("address") for event in log.list_events("cluster-connect") if event.get("address")
    )
    target = (
        f" It connects to {join_words([clean_line(address, limit=80) for address in list(addresses)[:4]])}."
        if addresses
        else ""
    )
    return Decision(
        Cause.CLUSTER_FAILURE,
        (*events, *context.list_evidence("cluster-target"))[:4],
        note=(
            f"{_format_tasks(tasks)}{target} It is not started yet, has ended, has another address, or a "
            "firewall is between."
        ),
        title="A task of the cluster cannot be reached" if log.has("cluster-connect") else "",
    )


def _detect_waiting_task(context: LogContext) -> Decision | None:
    """Return the cause if this task waits for other tasks."""
    log = context.log
    waiting, missing_tasks = log.find_last("cluster-waiting"), log.find_last("cluster-tasks-left")
    events: list[Event] = []
    if waiting is not None and not _has_later_session(context, waiting):
        events = log.list_events("cluster-waiting")
        tasks = _list_tasks(events)
    elif missing_tasks is not None and int(missing_tasks.get("left")) > 0:
        events, tasks = [missing_tasks], _list_tasks(_list_following_tasks(context, "cluster-tasks-left"))
    if not events:
        return None
    return Decision(
        Cause.CLUSTER_FAILURE,
        (*events[:1], *events[-1:]) if len(events) > 1 else tuple(events),
        note=f"{_format_tasks(tasks)} It is not started yet, has another address or index, or a firewall is between.",
        title="A task waits for another task of its cluster",
    )


def _has_later_session(context: LogContext, event: Event) -> bool:
    """Return whether a session began after this event."""
    session_event = context.log.find_last("cluster-session")
    return session_event is not None and session_event.order > event.order


def _list_following_tasks(context: LogContext, signature_id: str) -> list[Event]:
    """Return the events that name a task on one of the three lines below an event of this signature."""
    lines = {event.line for event in context.log.list_events(signature_id)}
    return [
        event
        for event in context.log.list_events("cluster-task-named")
        if lines & {event.line - 1, event.line - 2, event.line - 3}
    ]


def _list_tasks(events: Iterable[Event]) -> list[str]:
    """Return the names of the tasks in the events, such as "worker:1", each once."""
    tasks: dict[str, None] = {}
    for event in events:
        task = event.captures.get("task") or ""
        job, _, index = task.removeprefix("/job:").partition("/task:")
        if index:
            tasks[f"{job.partition('/')[0]}:{index}"] = None
    return list(tasks)


def _format_tasks(tasks: list[str]) -> str:
    """Return a sentence that names the tasks."""
    if not tasks:
        return "The log does not name the task."
    return (
        f"The task is {join_words(tasks)}." if len(tasks) == 1 else f"The tasks are {join_words(tasks[:6])}."
    )
