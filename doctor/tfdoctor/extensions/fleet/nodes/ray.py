"""Run the check on the nodes of a Ray cluster: one task is pinned to each live node."""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdoctor.core.errors import Error, make_install_command
from tfdoctor.core.text import clean_line
from tfdoctor.extensions.fleet.nodes import remote
from tfdoctor.extensions.fleet.nodes.models import NodeAnswer, parse_answer
from tfdoctor.extensions.fleet.nodes.unpickling import restrict_unpickling

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfdoctor.extensions.fleet.nodes.models import NodeJob

__all__ = ["RayEngine"]

GRACE_S = 30.0
"""Seconds beyond the deadline that starting a worker process on the node may take."""
CONNECT_TIMEOUT_S = 10.0
"""Seconds that connecting to the cluster's port may take."""
POLL_S = 1.0
"""Seconds between two checks that the nodes are still alive."""


class RayEngine:
    """An engine for the nodes of one Ray cluster. The address is "auto", HOST:6379 or ray://HOST:10001."""

    name = "ray"

    def __init__(self, address: str) -> None:
        """Connect to the cluster. Raise Error if Ray is not installed or no cluster responds."""
        try:
            self._ray: Any = importlib.import_module("ray")
            cloudpickle: Any = importlib.import_module("ray.cloudpickle")
            self._strategies: Any = importlib.import_module("ray.util.scheduling_strategies")
        except ImportError:
            raise Error("Ray is not installed next to tfdoctor.", hint=make_install_command("ray")) from None
        cloudpickle.register_pickle_by_value(remote)  # the workers do not have tfdoctor
        restrict_unpickling()
        _check_listening(address)
        try:
            self._ray.init(
                address=address, log_to_driver=False, logging_level="ERROR", configure_logging=False
            )
        except Exception as error:
            reason = clean_line(str(error) or type(error).__name__, limit=200)
            msg = f"no Ray cluster answers at {clean_line(address, limit=200)}: {reason}."
            raise Error(
                msg, hint="HOST:6379 is the usual form; `ray status` shows whether it runs."
            ) from None
        self._node_ids = self._map_names()

    def _list_live_nodes(self) -> list[dict[str, Any]]:
        return [node for node in self._ray.nodes() if node.get("Alive")]

    def _map_names(self) -> dict[str, str]:
        """Return the identifiers of the live nodes by unique names.

        A node is named by its host name if that is unique, else by its address if that is unique, else by its host
        name with a part of its identifier.
        """
        nodes = sorted(self._list_live_nodes(), key=lambda node: str(node["NodeID"]))
        name_counts = Counter(node.get("NodeManagerHostname") for node in nodes)
        address_counts = Counter(node.get("NodeManagerAddress") for node in nodes)
        id_by_name = {}
        for node in nodes:
            name, address = node.get("NodeManagerHostname"), node.get("NodeManagerAddress")
            unique_name = (
                name
                if name_counts[name] == 1
                else address
                if address_counts[address] == 1
                else f"{name}-{node['NodeID'][:8]}"
            )
            id_by_name[clean_line(str(unique_name), limit=200)] = str(node["NodeID"])
        return id_by_name

    def hosts(self) -> Sequence[str]:
        return tuple(sorted(self._node_ids))

    def run(self, hosts: Sequence[str], job: NodeJob) -> Iterator[NodeAnswer]:
        """Yield the results. Standard output is suppressed meanwhile, because Ray prints to it."""
        with Path(os.devnull).open("w", encoding="utf-8") as null, contextlib.redirect_stdout(null):
            yield from self._run(hosts, job)

    def _run(self, hosts: Sequence[str], job: NodeJob) -> Iterator[NodeAnswer]:
        """Start one task on each node and yield the results. Cancel the remaining tasks at the end."""
        waiting_hosts: dict[Any, str] = {}
        try:
            content = self._ray.put(job.zipapp_path.read_bytes())
            task = self._ray.remote(num_cpus=0, max_retries=0)(remote.run_here)
            for host in hosts:
                if host not in self._node_ids:
                    yield NodeAnswer(host, "lost", reason="Ray no longer has that node")
                    continue
                strategy = self._strategies.NodeAffinitySchedulingStrategy(self._node_ids[host], soft=False)
                pinned_task = task.options(scheduling_strategy=strategy)
                waiting_hosts[
                    pinned_task.remote(
                        content, job.python, job.arguments, job.time_limit_s, job.max_output_bytes
                    )
                ] = host
            yield from self._collect_answers(waiting_hosts, job)
        finally:
            for reference in waiting_hosts:
                with contextlib.suppress(Exception):
                    self._ray.cancel(reference, force=True)
            self._ray.shutdown()

    def _collect_answers(self, waiting_hosts: dict[Any, str], job: NodeJob) -> Iterator[NodeAnswer]:
        """Yield each node's result when its task has ended, the node is lost, or the deadline has passed.

        `waiting_hosts` are the hosts by the reference of their task. A host is removed when it has a result.
        """
        deadline = time.monotonic() + job.time_limit_s + GRACE_S
        while waiting_hosts:
            finished, _ = self._ray.wait(list(waiting_hosts), num_returns=1, timeout=POLL_S)
            for reference in finished:
                yield self._parse_result(waiting_hosts.pop(reference), reference, job.max_output_bytes)
            if finished:
                continue
            live_ids = {str(node["NodeID"]) for node in self._list_live_nodes()}
            for reference, host in list(waiting_hosts.items()):
                if self._node_ids[host] not in live_ids:
                    del waiting_hosts[reference]
                    yield NodeAnswer(host, "lost", reason="Ray's node went away")
                elif time.monotonic() > deadline:
                    del waiting_hosts[reference]
                    with contextlib.suppress(Exception):
                        self._ray.cancel(reference, force=True)
                    yield NodeAnswer(host, "timeout", reason=f"no answer within {job.time_limit_s:g} s")

    def _parse_result(self, host: str, reference: Any, largest: int) -> NodeAnswer:
        """Return a node's result from that of its task."""
        try:
            data = self._ray.get(reference)
        except Exception as error:
            is_node_lost = isinstance(
                error, (self._ray.exceptions.RaySystemError, self._ray.exceptions.WorkerCrashedError)
            )
            is_node_lost = is_node_lost or type(error).__name__ in (
                "NodeDiedError",
                "TaskUnschedulableError",
                "ObjectLostError",
            )
            reason = clean_line(str(error).partition("\n")[0] or type(error).__name__, limit=300)
            return NodeAnswer(host, "lost" if is_node_lost else "failed", reason=reason)
        return parse_answer(host, data, largest)


def _check_listening(address: str) -> None:
    """Raise Error if nothing listens at HOST:PORT, because Ray itself would retry for minutes.

    Addresses in another form, such as "auto", are not checked.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdecimal() and len(port) < 6):
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_S).close()
    except (OSError, OverflowError, UnicodeError) as error:
        reason = clean_line(str(error), limit=200)
        msg = f"no Ray cluster answers at {clean_line(address, limit=200)}: {reason}."
        raise Error(msg, hint="HOST:6379 is the usual form; `ray status` shows whether it runs.") from None
