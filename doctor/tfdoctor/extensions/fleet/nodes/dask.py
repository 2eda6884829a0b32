"""Run the check on the hosts of a Dask cluster: one task is pinned to one worker of each host.

It does not matter how the workers were started: with dask-ssh, dask-jobqueue, Kubernetes or YARN.
"""

from __future__ import annotations

import importlib
import queue
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from tfdoctor.core.errors import Error, make_install_command
from tfdoctor.core.text import clean_line
from tfdoctor.extensions.fleet.nodes import remote
from tfdoctor.extensions.fleet.nodes.models import NodeAnswer, parse_answer
from tfdoctor.extensions.fleet.nodes.unpickling import restrict_unpickling

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfdoctor.extensions.fleet.nodes.models import NodeJob

__all__ = ["DaskEngine"]

CONNECT_TIMEOUT_S = 20.0
"""Seconds within which the scheduler must respond."""
GRACE_S = 15.0
"""Seconds beyond the deadline that sending a task and its result may take."""
POLL_S = 1.0
"""Seconds between two checks that the workers still exist."""
SEND_TIMEOUT_S = 60.0
"""Seconds that sending the file to all workers may take."""


class DaskEngine:
    """An engine for the workers of one Dask scheduler."""

    name = "dask"

    def __init__(self, address: str) -> None:
        """Connect to the scheduler. Raise Error if Dask is not installed or the scheduler does not respond."""
        try:
            cloudpickle: Any = importlib.import_module("cloudpickle")
            distributed: Any = importlib.import_module("distributed")
        except ImportError:
            raise Error(
                "Dask is not installed next to tfdoctor.", hint=make_install_command("distributed")
            ) from None
        cloudpickle.register_pickle_by_value(remote)  # the workers do not have tfdoctor
        restrict_unpickling()
        try:
            self._client: Any = distributed.Client(address, timeout=CONNECT_TIMEOUT_S, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            msg = f"no Dask scheduler answers at {clean_line(address, limit=200)}: {clean_line(str(error), limit=200)}."
            raise Error(msg, hint="tcp://HOST:8786 is the usual form.") from None
        self._workers = self._choose_workers()

    def _choose_workers(self) -> dict[str, str]:
        """Return the address of one worker for each host."""
        addresses: dict[str, str] = {}
        for address, worker in sorted(self._fetch_workers().items()):
            host = worker.get("host") or address.rpartition("//")[2].rpartition(":")[0]
            addresses.setdefault(clean_line(str(host), limit=200), address)
        return addresses

    def _fetch_workers(self) -> dict[str, Any]:
        """Return the scheduler's workers by address."""
        try:
            info = self._client.scheduler_info(n_workers=-1)  # newer versions return five workers by default
        except TypeError:
            info = self._client.scheduler_info()
        workers: dict[str, Any] = info["workers"]
        return workers

    def hosts(self) -> Sequence[str]:
        return tuple(sorted(self._workers))

    def run(self, hosts: Sequence[str], job: NodeJob) -> Iterator[NodeAnswer]:
        try:
            yield from _DaskRun(self._client, self._workers, hosts, job, self._fetch_workers)
        finally:
            self._client.close(timeout=5)


class _DaskRun:
    """The tasks of one run, and the state of their workers."""

    def __init__(
        self, client: Any, workers: dict[str, str], hosts: Sequence[str], job: NodeJob, list_workers: Any
    ) -> None:
        self._client, self._job, self._list_workers = client, job, list_workers
        self._finished: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._waiting: dict[str, dict[str, Any]] = defaultdict(dict)
        """The tasks that have not ended, by worker and host."""
        self._last_active: dict[str, float] = {}
        """The time when each worker last got a task or sent a result."""
        self._absent_hosts = [host for host in hosts if host not in workers]
        targets = [(host, workers[host]) for host in hosts if host in workers]
        self._file_reference = self._send_file(sorted({worker for _, worker in targets}))
        for host, worker in targets:
            future = client.submit(
                remote.run_on_dask,
                self._file_reference,
                job.python,
                job.arguments,
                job.time_limit_s,
                job.max_output_bytes,
                key=f"tfdoctor-{uuid4().hex}",
                workers=[worker],
                allow_other_workers=False,
                pure=False,
                retries=0,
            )
            self._waiting[worker][host] = future
            self._last_active[worker] = time.monotonic()
            # `host=host` binds the current host, because the function is called later
            future.add_done_callback(
                lambda finished_future, host=host: self._finished.put((host, finished_future))
            )

    def _send_file(self, workers: Sequence[str]) -> Any:
        """Send the file to every worker once and return its reference. Raise Error if that fails."""
        try:
            content = self._job.zipapp_path.read_bytes()
            return self._client.scatter(
                content, workers=workers, broadcast=True, hash=False, timeout=SEND_TIMEOUT_S
            )
        except (OSError, TimeoutError, ValueError) as error:
            msg = f"Dask could not send the file to its workers: {clean_line(str(error), limit=200)}."
            raise Error(msg) from error

    def __iter__(self) -> Iterator[NodeAnswer]:
        """Yield the results as they arrive, and cancel the remaining tasks at the end."""
        last_check = time.monotonic()
        try:
            for host in self._absent_hosts:
                yield NodeAnswer(host, "lost", reason="Dask no longer has a worker there")
            while any(self._waiting.values()):
                try:
                    host, future = self._finished.get(timeout=POLL_S)
                    answer = self._parse_result(host, future)
                    if answer is not None:
                        yield answer
                except queue.Empty:
                    pass
                if time.monotonic() - last_check >= POLL_S:
                    yield from self._iter_missing_results()
                    last_check = time.monotonic()
        finally:
            remaining = [task for tasks in self._waiting.values() for task in tasks.values()]
            if remaining:
                self._client.cancel(remaining, force=True)

    def _parse_result(self, host: str, future: Any) -> NodeAnswer | None:
        """Return a host's result, or None if the host was already reported as lost or late."""
        worker = next((candidate for candidate, tasks in self._waiting.items() if host in tasks), None)
        if worker is None:
            return None
        del self._waiting[worker][host]
        self._last_active[worker] = time.monotonic()
        if future.status != "finished":
            reason = clean_line(
                str(future.exception()) if future.status == "error" else future.status, limit=300
            )
            return NodeAnswer(host, "lost" if _is_killed(future) else "failed", reason=reason)
        try:
            data = future.result(timeout=GRACE_S)
        except Exception as error:
            return NodeAnswer(host, "lost", reason=clean_line(str(error) or type(error).__name__, limit=300))
        return parse_answer(host, data, self._job.max_output_bytes)

    def _iter_missing_results(self) -> Iterator[NodeAnswer]:
        """Yield failed results for hosts whose worker no longer exists, or was silent for too long."""
        workers = self._list_workers()
        earliest_activity = time.monotonic() - self._job.time_limit_s - GRACE_S
        for worker, tasks in self._waiting.items():
            is_gone = worker not in workers
            if not is_gone and self._last_active[worker] > earliest_activity:
                continue
            for host, future in list(tasks.items()):
                del tasks[host]
                self._client.cancel([future], force=True)
                if is_gone:
                    yield NodeAnswer(host, "lost", reason="Dask's worker there went away")
                else:
                    yield NodeAnswer(host, "timeout", reason=f"no answer within {self._job.time_limit_s:g} s")


def _is_killed(future: Any) -> bool:
    """Return whether a task ended because its worker or the task itself was removed."""
    return future.status in ("lost", "cancelled") or type(future.exception()).__name__ == "KilledWorker"
