"""Nodes of a Kubernetes cluster: a Job on each, through the official client; the answers are the pods' logs."""

from __future__ import annotations

import contextlib
import importlib
import re
import time
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from tfdoctor.errors import Error, UsageError, install_hint
from tfdoctor.fleet.nodes.manifests import ASKS, LABEL, daemon_set, file_maps, make_collect_script, node_job
from tfdoctor.fleet.nodes.models import NodeAnswer
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfdoctor.fleet.nodes.models import Job

__all__ = ["KubernetesEngine", "format_manifest"]

NAMESPACE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
IMAGE = re.compile(r"[A-Za-z0-9][\w./:@+-]{0,500}")
GRACE_S = 60.0
"""Seconds beside the deadline that placing a pod, pulling its image and reading its log may take."""
LOOK = 1.0
REQUEST_TIMEOUT_S = 20.0
"""Seconds that one request has."""
NEVER = (
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
)
"""Reasons for which a container waits and will not start."""


def check_image(namespace: str, image: str | None) -> str:
    """Return the image. Raises UsageError if it or the namespace is none."""
    if NAMESPACE.fullmatch(namespace) is None:
        msg = f"--kubernetes: {clean_line(namespace, limit=80)!r} is no name of a namespace."
        raise UsageError(msg)
    if image is None or IMAGE.fullmatch(image) is None:
        raise UsageError(
            "--kubernetes needs --image: one with Python 3.10 or later; its Python is what is examined.",
            hint="--image tensorflow/tensorflow:2.20.0-gpu",
        )
    return image


def format_manifest(namespace: str, image: str, job: Job, *, gpus: int) -> str:
    """Return YAML for those who apply it themselves: the file, and a DaemonSet.

    Above it what it asks for and what to type.
    """
    import yaml

    run = f"tfdoctor-{uuid4().hex[:8]}"
    maps = file_maps(run, job.zipapp.read_bytes())
    parts = [*maps, daemon_set(run, image, job, gpus=gpus, parts=len(maps))]
    lines = [ASKS.format(gpus=gpus), "", *make_collect_script(run, namespace)]
    head = "".join(f"# {line}".rstrip() + "\n" for line in lines)
    return head + yaml.safe_dump_all(parts, sort_keys=False, width=10_000)


class KubernetesEngine:
    """The nodes of the cluster that kubectl's configuration, or the pod that we run in, names."""

    name = "kubernetes"

    def __init__(self, namespace: str, image: str | None, *, gpus: int = 1) -> None:
        """Raises UsageError, and Error where the client is not installed or finds no cluster."""
        self._image = check_image(namespace, image)
        self._namespace, self._gpus = namespace, gpus
        try:
            client: Any = importlib.import_module("kubernetes.client")
            config: Any = importlib.import_module("kubernetes.config")
        except ImportError:
            msg = "the client for Kubernetes is not installed beside tfdoctor."
            raise Error(msg, hint=install_hint("kubernetes")) from None
        try:
            config.load_config()
        except config.ConfigException as error:
            msg = f"no cluster is configured: {clean_line(str(error), limit=200)}."
            raise Error(
                msg, hint="kubectl config get-contexts; or give --emit, and apply it yourself."
            ) from None
        settings = client.Configuration.get_default_copy()
        settings.retries = False
        api = client.ApiClient(settings)
        self._core, self._batch = client.CoreV1Api(api), client.BatchV1Api(api)
        self._failures: tuple[type[Exception], ...] = (
            client.exceptions.ApiException,
            importlib.import_module("urllib3.exceptions").HTTPError,
            OSError,
        )

    @property
    def asks(self) -> str:
        """What every pod asks for."""
        return ASKS.format(gpus=self._gpus)

    def hosts(self) -> Sequence[str]:
        """Return nodes that take pods. Raises Error."""
        try:
            found = self._core.list_node(_request_timeout=REQUEST_TIMEOUT_S).items
        except self._failures as error:
            raise self._make_error("the nodes cannot be listed", error) from None
        return tuple(sorted(str(one.metadata.name) for one in found if not one.spec.unschedulable))

    def _make_error(self, what: str, error: Exception) -> Error:
        reason = getattr(error, "reason", None)
        status = getattr(error, "status", None)
        why = f"{status} {reason}" if status else str(reason or error)
        msg = f"Kubernetes: {what}: {clean_line(why, limit=200)}."
        return Error(msg)

    def run(self, hosts: Sequence[str], job: Job) -> Iterator[NodeAnswer]:
        run = f"tfdoctor-{uuid4().hex[:8]}"
        try:
            numbers = self._create_jobs(run, hosts, job)
            yield from self._collect_ended(run, numbers, job)
        finally:
            self._remove_jobs(run)

    def _create_jobs(self, run: str, hosts: Sequence[str], job: Job) -> dict[str, str]:
        """Return a job's number → its node. Raises Error."""
        maps = file_maps(run, job.zipapp.read_bytes())
        try:
            for one in maps:
                self._core.create_namespaced_config_map(
                    self._namespace, one, _request_timeout=REQUEST_TIMEOUT_S
                )
            for number, host in enumerate(hosts):
                body = node_job(run, number, host, self._image, job, gpus=self._gpus, parts=len(maps))
                self._batch.create_namespaced_job(self._namespace, body, _request_timeout=REQUEST_TIMEOUT_S)
        except self._failures as error:
            what = f"the jobs cannot be made in {self._namespace}"
            raise self._make_error(what, error) from None
        return {str(number): host for number, host in enumerate(hosts)}

    def _remove_jobs(self, run: str) -> None:
        where = {"label_selector": f"{LABEL}={run}", "_request_timeout": REQUEST_TIMEOUT_S}
        with contextlib.suppress(*self._failures):
            self._batch.delete_collection_namespaced_job(
                self._namespace, propagation_policy="Background", **where
            )
        with contextlib.suppress(*self._failures):
            self._core.delete_collection_namespaced_config_map(self._namespace, **where)

    def _collect_ended(self, run: str, waiting: dict[str, str], job: Job) -> Iterator[NodeAnswer]:
        began = time.monotonic()
        seen: dict[str, Any] = {}
        while waiting:
            pods = self._pods(run)
            for number, pod in pods.items() if pods is not None else ():
                if number in waiting:
                    one = self._answer(waiting[number], pod, job)
                    if one is not None:
                        del waiting[number]
                        yield one
            for number in [n for n in seen if pods is not None and n in waiting and n not in pods]:
                yield NodeAnswer(waiting.pop(number), "lost", why="its pod was removed")
            seen = pods if pods is not None else seen
            if time.monotonic() - began > job.deadline + GRACE_S:
                for number, host in list(waiting.items()):
                    del waiting[number]
                    why = _waits(seen.get(number)) or f"no answer within {job.deadline:g} s"
                    yield NodeAnswer(host, "timeout", why=why)
            if waiting:
                time.sleep(LOOK)

    def _pods(self, run: str) -> dict[str, Any] | None:
        """Return a job's number → its pod; None if the API gave no answer this time."""
        try:
            found = self._core.list_namespaced_pod(
                self._namespace, label_selector=f"{LABEL}={run}", _request_timeout=REQUEST_TIMEOUT_S
            ).items
        except self._failures:
            return None
        return {str((one.metadata.labels or {}).get(f"{LABEL}-node")): one for one in found}

    def _answer(self, host: str, pod: Any, job: Job) -> NodeAnswer | None:
        """Return None: it still runs."""
        phase = pod.status.phase
        if phase == "Unknown" or pod.status.reason == "NodeLost":
            return NodeAnswer(host, "lost", why="Kubernetes has lost the node")
        if pod.status.reason == "DeadlineExceeded":
            return NodeAnswer(host, "timeout", why=_waits(pod) or f"no answer within {job.deadline:g} s")
        if phase == "Pending":
            why = _waits(pod)
            return NodeAnswer(host, "failed", why=why) if why.startswith(NEVER) else None
        if phase not in ("Succeeded", "Failed"):
            return None
        said, seconds = _end(pod)
        try:
            log = self._core.read_namespaced_pod_log(
                pod.metadata.name,
                self._namespace,
                limit_bytes=job.largest + 1,
                _preload_content=False,
                _request_timeout=REQUEST_TIMEOUT_S,
            )
            output = bytes(log.data)
        except self._failures as error:
            return NodeAnswer(host, "lost", why=self._make_error("its log cannot be read", error).message)
        if len(output) > job.largest:
            return NodeAnswer(
                host, "flooded", why=f"it wrote more than {job.largest >> 20} MiB", seconds=seconds
            )
        if output.strip():
            return NodeAnswer(host, "answered", output, seconds=seconds)
        return NodeAnswer(host, "failed", why=said or pod.status.reason or "it said nothing", seconds=seconds)


def _waits(pod: Any) -> str:
    """Return why it does not start: the scheduler's reason, or the container's."""
    if pod is None:
        return ""
    for one in pod.status.container_statuses or ():
        waiting = one.state.waiting if one.state is not None else None
        if waiting is not None and waiting.reason not in (None, "ContainerCreating", "PodInitializing"):
            return clean_line(f"{waiting.reason}: {waiting.message or ''}".strip(": "), limit=300)
    for one in pod.status.conditions or ():
        if one.type == "PodScheduled" and one.status == "False" and one.message:
            return clean_line(str(one.message), limit=300)
    return ""


def _end(pod: Any) -> tuple[str, float | None]:
    """Return (the last words, seconds)."""
    for one in pod.status.container_statuses or ():
        ended = one.state.terminated if one.state is not None else None
        if ended is not None:
            words = (ended.message or "").strip().rpartition("\n")[2]
            said = f"exit status {ended.exit_code}{': ' if words else ''}{words}"
            times = (ended.started_at, ended.finished_at)
            seconds = (times[1] - times[0]).total_seconds() if all(times) else None
            return clean_line(said, limit=300), seconds
    return "", None
