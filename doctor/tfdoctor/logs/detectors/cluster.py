"""Tasks of a distributed job that do not find each other: one gate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.findings import Cause
from tfdoctor.logs.log_context import Case, Decision
from tfdoctor.text import clean_line, join_words

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfdoctor.logs.events import Event

__all__ = ["cluster"]

OURS = ("server-started", "cluster-target", "cluster-waiting", "cluster-lost", "parameter-server")
"""What only TensorFlow's own servers say: other programs use gRPC, too."""
OTHERS = ("framework-pytorch", "framework-jax")


def cluster(case: Case) -> Decision | None:
    """Return what keeps a task from its cluster. After all that keeps TensorFlow from a GPU."""
    return _specification(case) or _detect_lost(case) or _unreachable(case) or _detect_waiting(case)


def _specification(case: Case) -> Decision | None:
    log = case.log
    wrong = log.first("cluster-address")
    if wrong is not None:
        return Decision(
            Cause.CLUSTER_FAILURE,
            case.says("cluster-address"),
            note=f'An address is "{clean_line(wrong.get("address"), limit=100)}". Write HOST:PORT.',
            title="An address of the cluster is not HOST:PORT",
        )
    if log.has("cluster-refused"):
        what = clean_line(log.list_events("cluster-refused")[0].get("what"), limit=160)
        return Decision(
            Cause.CLUSTER_FAILURE,
            case.says("cluster-refused"),
            note=f"TensorFlow says: {what}.",
            title="TensorFlow refuses this cluster, or this task of it",
        )
    if log.has("cluster-bind"):
        return Decision(
            Cause.CLUSTER_FAILURE,
            case.says("cluster-bind"),
            note="The same task may run already: two processes with the same index, or one that was left over.",
            title="This task cannot listen at its port",
        )
    return None


def _detect_lost(case: Case) -> Decision | None:
    if not case.log.has("cluster-lost"):
        return None
    lost = _tasks([*case.log.list_events("cluster-lost"), *_list_following(case, "cluster-lost")])
    return Decision(
        Cause.CLUSTER_FAILURE,
        case.says("cluster-lost"),
        note=f"{_name_tasks(lost)} The reason is in the log of that task.",
        title="A task of the cluster ended, or no longer answers",
    )


def _unreachable(case: Case) -> Decision | None:
    log = case.log
    seen = case.says("cluster-connect", "cluster-reset")
    if not seen or (not log.has(*OURS) and (log.has(*OTHERS) or not log.has("cluster-connect"))):
        return None
    if _went_on(case, seen[-1]):
        return None
    tasks = _tasks(log.list_events("cluster-target"))
    places = dict.fromkeys(
        event.get("address") for event in log.list_events("cluster-connect") if event.get("address")
    )
    where = (
        f" It connects to {join_words([clean_line(one, limit=80) for one in list(places)[:4]])}."
        if places
        else ""
    )
    return Decision(
        Cause.CLUSTER_FAILURE,
        (*seen, *case.says("cluster-target"))[:4],
        note=(
            f"{_name_tasks(tasks)}{where} It is not started yet, has ended, has another address, or a "
            "firewall is between."
        ),
        title="A task of the cluster cannot be reached" if log.has("cluster-connect") else "",
    )


def _detect_waiting(case: Case) -> Decision | None:
    log = case.log
    waits, left = log.last("cluster-waiting"), log.last("cluster-tasks-left")
    events: list[Event] = []
    if waits is not None and not _went_on(case, waits):
        events = log.list_events("cluster-waiting")
        tasks = _tasks(events)
    elif left is not None and int(left.get("left")) > 0:
        events, tasks = [left], _tasks(_list_following(case, "cluster-tasks-left"))
    if not events:
        return None
    return Decision(
        Cause.CLUSTER_FAILURE,
        (*events[:1], *events[-1:]) if len(events) > 1 else tuple(events),
        note=f"{_name_tasks(tasks)} It is not started yet, has another address or index, or a firewall is between.",
        title="A task waits for another task of its cluster",
    )


def _went_on(case: Case, event: Event) -> bool:
    """Return whether a session began after that."""
    started = case.log.last("cluster-session")
    return started is not None and started.order > event.order


def _list_following(case: Case, name: str) -> list[Event]:
    """Return the tasks that are named on the lines just below."""
    lines = {event.line for event in case.log.list_events(name)}
    return [
        e for e in case.log.list_events("cluster-task-named") if lines & {e.line - 1, e.line - 2, e.line - 3}
    ]


def _tasks(events: Iterable[Event]) -> list[str]:
    """Return "worker:1", each once."""
    found: dict[str, None] = {}
    for event in events:
        task = event.fields.get("task") or ""
        job, _, index = task.removeprefix("/job:").partition("/task:")
        if index:
            found[f"{job.partition('/')[0]}:{index}"] = None
    return list(found)


def _name_tasks(tasks: list[str]) -> str:
    """Return the sentence that names them; "" if none is named."""
    if not tasks:
        return "The log does not name the task."
    return (
        f"The task is {join_words(tasks)}." if len(tasks) == 1 else f"The tasks are {join_words(tasks[:6])}."
    )
