"""Nodes on which Dask has a worker: one task pinned to one worker of each host.

So it serves whatever starts Dask's workers: dask-ssh, dask-jobqueue, Kubernetes, YARN.
"""

from __future__ import annotations

import importlib
import queue
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from tfdoctor.errors import Error, install_hint
from tfdoctor.fleet.nodes import remote
from tfdoctor.fleet.nodes.models import NodeAnswer, read_answer
from tfdoctor.fleet.nodes.unpickling import restrict_unpickling
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfdoctor.fleet.nodes.models import Job

__all__ = ["DaskEngine"]

CONNECTING = 20.0
"""Seconds that the scheduler has to answer."""
GRACE_S = 15.0
"""Seconds that sending a task and its answer may take."""
LOOK = 1.0
"""Seconds between two looks which workers are still there."""
SENDING = 60.0


class DaskEngine:
    """The workers of one scheduler."""

    name = "dask"

    def __init__(self, address: str) -> None:
        """Raises Error where Dask is not installed, or the scheduler does not answer."""
        try:
            cloudpickle: Any = importlib.import_module("cloudpickle")
            distributed: Any = importlib.import_module("distributed")
        except ImportError:
            raise Error("Dask is not installed beside tfdoctor.", hint=install_hint("distributed")) from None
        cloudpickle.register_pickle_by_value(remote)  # the workers have no tfdoctor
        restrict_unpickling()
        try:
            self._client: Any = distributed.Client(address, timeout=CONNECTING, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            msg = f"no Dask scheduler answers at {clean_line(address, limit=200)}: {clean_line(str(error), limit=200)}."
            raise Error(msg, hint="tcp://HOST:8786 is the usual form.") from None
        self._workers = self._choose_workers()

    def _choose_workers(self) -> dict[str, str]:
        """Return host → the address of one of its workers."""
        found: dict[str, str] = {}
        for address, worker in sorted(self._ask_scheduler().items()):
            host = worker.get("host") or address.rpartition("//")[2].rpartition(":")[0]
            found.setdefault(clean_line(str(host), limit=200), address)
        return found

    def _ask_scheduler(self) -> dict[str, Any]:
        try:
            info = self._client.scheduler_info(n_workers=-1)  # the newer ones show five, unless asked for all
        except TypeError:
            info = self._client.scheduler_info()
        workers: dict[str, Any] = info["workers"]
        return workers

    def hosts(self) -> Sequence[str]:
        return tuple(sorted(self._workers))

    def run(self, hosts: Sequence[str], job: Job) -> Iterator[NodeAnswer]:
        try:
            yield from _Running(self._client, self._workers, hosts, job, self._ask_scheduler)
        finally:
            self._client.close(timeout=5)


class _Running:
    """One run: its tasks, and what is known of the workers that have them."""

    def __init__(
        self, client: Any, workers: dict[str, str], hosts: Sequence[str], job: Job, seen: Any
    ) -> None:
        self._client, self._job, self._seen = client, job, seen
        self._ended: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._waiting: dict[str, dict[str, Any]] = defaultdict(dict)
        """A worker → host → its task."""
        self._moved: dict[str, float] = {}
        """A worker → when it last gave an answer, or was given its tasks."""
        self._gone = [host for host in hosts if host not in workers]
        asked = [(host, workers[host]) for host in hosts if host in workers]
        self._file = self._sent(sorted({worker for _, worker in asked}))
        for host, worker in asked:
            future = client.submit(
                remote.run_on_dask,
                self._file,
                job.python,
                job.arguments,
                job.deadline,
                job.largest,
                key=f"tfdoctor-{uuid4().hex}",
                workers=[worker],
                allow_other_workers=False,
                pure=False,
                retries=0,
            )
            self._waiting[worker][host] = future
            self._moved[worker] = time.monotonic()
            future.add_done_callback(lambda done, host=host: self._ended.put((host, done)))

    def _sent(self, workers: Sequence[str]) -> Any:
        """Return the file, which every worker gets once. Raises Error."""
        try:
            content = self._job.zipapp.read_bytes()
            return self._client.scatter(content, workers=workers, broadcast=True, hash=False, timeout=SENDING)
        except (OSError, TimeoutError, ValueError) as error:
            msg = f"Dask could not send the file to its workers: {clean_line(str(error), limit=200)}."
            raise Error(msg) from error

    def __iter__(self) -> Iterator[NodeAnswer]:
        looked = time.monotonic()
        try:
            for host in self._gone:
                yield NodeAnswer(host, "lost", why="Dask no longer has a worker there")
            while any(self._waiting.values()):
                try:
                    host, future = self._ended.get(timeout=LOOK)
                    one = self._answer(host, future)
                    if one is not None:
                        yield one
                except queue.Empty:
                    pass
                if time.monotonic() - looked >= LOOK:
                    yield from self._list_missing()
                    looked = time.monotonic()
        finally:
            left = [task for tasks in self._waiting.values() for task in tasks.values()]
            if left:
                self._client.cancel(left, force=True)

    def _answer(self, host: str, future: Any) -> NodeAnswer | None:
        worker = next((one for one, tasks in self._waiting.items() if host in tasks), None)
        if worker is None:
            return None  # given up before
        del self._waiting[worker][host]
        self._moved[worker] = time.monotonic()
        if future.status != "finished":
            why = clean_line(
                str(future.exception()) if future.status == "error" else future.status, limit=300
            )
            return NodeAnswer(host, "lost" if _is_killed(future) else "failed", why=why)
        try:
            got = future.result(timeout=GRACE_S)
        except Exception as error:
            return NodeAnswer(host, "lost", why=clean_line(str(error) or type(error).__name__, limit=300))
        return read_answer(host, got, self._job.largest)

    def _list_missing(self) -> Iterator[NodeAnswer]:
        """Hosts whose worker is gone, or gave no answer for too long."""
        there = self._seen()
        late = time.monotonic() - self._job.deadline - GRACE_S
        for worker, tasks in self._waiting.items():
            gone = worker not in there
            if not gone and self._moved[worker] > late:
                continue
            for host, future in list(tasks.items()):
                del tasks[host]
                self._client.cancel([future], force=True)
                if gone:
                    yield NodeAnswer(host, "lost", why="Dask's worker there went away")
                else:
                    yield NodeAnswer(host, "timeout", why=f"no answer within {self._job.deadline:g} s")


def _is_killed(future: Any) -> bool:
    return future.status in ("lost", "cancelled") or type(future.exception()).__name__ == "KilledWorker"
