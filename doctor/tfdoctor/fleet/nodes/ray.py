"""Nodes of a Ray cluster: one task pinned to each that is alive."""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdoctor.errors import Error, install_hint
from tfdoctor.fleet.nodes import remote
from tfdoctor.fleet.nodes.models import NodeAnswer, read_answer
from tfdoctor.fleet.nodes.unpickling import restrict_unpickling
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfdoctor.fleet.nodes.models import Job

__all__ = ["RayEngine"]

GRACE_S = 30.0
"""Seconds that starting a worker process on the node may take beside what runs there."""
CONNECTING = 10.0
LOOK = 1.0
"""Seconds between two looks which nodes are still alive."""


class RayEngine:
    """The nodes of one cluster. address: "auto", HOST:6379, or ray://HOST:10001."""

    name = "ray"

    def __init__(self, address: str) -> None:
        """Raises Error where Ray is not installed, or no cluster answers."""
        try:
            self._ray: Any = importlib.import_module("ray")
            cloudpickle: Any = importlib.import_module("ray.cloudpickle")
            self._pinned: Any = importlib.import_module("ray.util.scheduling_strategies")
        except ImportError:
            raise Error("Ray is not installed beside tfdoctor.", hint=install_hint("ray")) from None
        cloudpickle.register_pickle_by_value(remote)  # the workers have no tfdoctor
        restrict_unpickling()
        _listens(address)
        try:
            self._ray.init(
                address=address, log_to_driver=False, logging_level="ERROR", configure_logging=False
            )
        except Exception as error:
            why = clean_line(str(error) or type(error).__name__, limit=200)
            msg = f"no Ray cluster answers at {clean_line(address, limit=200)}: {why}."
            raise Error(
                msg, hint="HOST:6379 is the usual form; `ray status` shows whether it runs."
            ) from None
        self._nodes = self._name_nodes()

    def _alive(self) -> list[dict[str, Any]]:
        return [one for one in self._ray.nodes() if one.get("Alive")]

    def _name_nodes(self) -> dict[str, str]:
        """Return host → the node's identifier. Hosts of one name have their address or identifier behind it."""
        nodes = sorted(self._alive(), key=lambda one: str(one["NodeID"]))
        names = Counter(one.get("NodeManagerHostname") for one in nodes)
        addresses = Counter(one.get("NodeManagerAddress") for one in nodes)
        found = {}
        for one in nodes:
            name, address = one.get("NodeManagerHostname"), one.get("NodeManagerAddress")
            told = (
                name
                if names[name] == 1
                else address
                if addresses[address] == 1
                else f"{name}-{one['NodeID'][:8]}"
            )
            found[clean_line(str(told), limit=200)] = str(one["NodeID"])
        return found

    def hosts(self) -> Sequence[str]:
        return tuple(sorted(self._nodes))

    def run(self, hosts: Sequence[str], job: Job) -> Iterator[NodeAnswer]:
        """Standard output is closed meanwhile: Ray prints there what happens to its nodes."""
        with Path(os.devnull).open("w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):
            yield from self._run(hosts, job)

    def _run(self, hosts: Sequence[str], job: Job) -> Iterator[NodeAnswer]:
        waiting: dict[Any, str] = {}
        try:
            content = self._ray.put(job.zipapp.read_bytes())
            task = self._ray.remote(num_cpus=0, max_retries=0)(remote.run_here)
            for host in hosts:
                if host not in self._nodes:
                    yield NodeAnswer(host, "lost", why="Ray no longer has that node")
                    continue
                strategy = self._pinned.NodeAffinitySchedulingStrategy(self._nodes[host], soft=False)
                pinned = task.options(scheduling_strategy=strategy)
                waiting[pinned.remote(content, job.python, job.arguments, job.deadline, job.largest)] = host
            yield from self._collect_ended(waiting, job)
        finally:
            for one in waiting:
                with contextlib.suppress(Exception):
                    self._ray.cancel(one, force=True)
            self._ray.shutdown()

    def _collect_ended(self, waiting: dict[Any, str], job: Job) -> Iterator[NodeAnswer]:
        until = time.monotonic() + job.deadline + GRACE_S
        while waiting:
            done, _ = self._ray.wait(list(waiting), num_returns=1, timeout=LOOK)
            for one in done:
                yield self._answer(waiting.pop(one), one, job.largest)
            if done:
                continue
            alive = {str(one["NodeID"]) for one in self._alive()}
            for one, host in list(waiting.items()):
                if self._nodes[host] not in alive:
                    del waiting[one]
                    yield NodeAnswer(host, "lost", why="Ray's node went away")
                elif time.monotonic() > until:
                    del waiting[one]
                    with contextlib.suppress(Exception):
                        self._ray.cancel(one, force=True)
                    yield NodeAnswer(host, "timeout", why=f"no answer within {job.deadline:g} s")

    def _answer(self, host: str, one: Any, largest: int) -> NodeAnswer:
        try:
            got = self._ray.get(one)
        except Exception as error:
            gone = isinstance(
                error, (self._ray.exceptions.RaySystemError, self._ray.exceptions.WorkerCrashedError)
            )
            gone = gone or type(error).__name__ in (
                "NodeDiedError",
                "TaskUnschedulableError",
                "ObjectLostError",
            )
            why = clean_line(str(error).partition("\n")[0] or type(error).__name__, limit=300)
            return NodeAnswer(host, "lost" if gone else "failed", why=why)
        return read_answer(host, got, largest)


def _listens(address: str) -> None:
    """Raises Error where nothing listens at HOST:PORT: Ray itself tries for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdecimal() and len(port) < 6):
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECTING).close()
    except (OSError, OverflowError, UnicodeError) as error:
        why = clean_line(str(error), limit=200)
        msg = f"no Ray cluster answers at {clean_line(address, limit=200)}: {why}."
        raise Error(msg, hint="HOST:6379 is the usual form; `ray status` shows whether it runs.") from None
