"""Run the check with Kubernetes: one Job runs on each node, and its output is the pod's log."""

from __future__ import annotations

import contextlib
import importlib
import re
import time
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from tfdoctor.core.errors import Error, UsageError, make_install_command
from tfdoctor.core.text import clean_line
from tfdoctor.extensions.fleet.nodes.manifests import (
    REQUESTS_NOTE,
    RUN_LABEL,
    list_collect_commands,
    make_config_maps,
    make_daemon_set,
    make_node_job,
)
from tfdoctor.extensions.fleet.nodes.models import NodeAnswer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfdoctor.extensions.fleet.nodes.models import NodeJob

__all__ = ["KubernetesEngine", "format_manifest"]

NAMESPACE_PATTERN = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
"""A valid name of a namespace."""
IMAGE_PATTERN = re.compile(r"[A-Za-z0-9][\w./:@+-]{0,500}")
"""The name of an image, with tag or digest."""
GRACE_S = 60.0
"""Seconds beyond the deadline that placing a pod, pulling its image and reading its log may take."""
POLL_S = 1.0
"""Seconds between two requests for the pods' states."""
REQUEST_TIMEOUT_S = 20.0
"""Seconds that one API request may take."""
FATAL_WAIT_REASONS = (
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
)
"""The reasons for which a waiting container will never start."""


def validate_image(namespace: str, image: str | None) -> str:
    """Return the image name. Raise UsageError if it or the namespace is invalid."""
    if NAMESPACE_PATTERN.fullmatch(namespace) is None:
        msg = f"--kubernetes: {clean_line(namespace, limit=80)!r} is no name of a namespace."
        raise UsageError(msg)
    if image is None or IMAGE_PATTERN.fullmatch(image) is None:
        raise UsageError(
            "--kubernetes needs --image: one with Python 3.10 or later; its Python is what is examined.",
            hint="--image tensorflow/tensorflow:2.17.0-gpu",
        )
    return image


def format_manifest(namespace: str, image: str, job: NodeJob, *, gpus: int) -> str:
    """Return YAML with the file in ConfigMaps and a DaemonSet, for users who apply it themselves.

    Comments at its beginning list the requested resources and the commands to run.
    """
    import yaml

    run_name = f"tfdoctor-{uuid4().hex[:8]}"
    config_maps = make_config_maps(run_name, job.zipapp_path.read_bytes())
    objects = [*config_maps, make_daemon_set(run_name, image, job, gpus=gpus, part_count=len(config_maps))]
    lines = [REQUESTS_NOTE.format(gpus=gpus), "", *list_collect_commands(run_name, namespace)]
    header = "".join(f"# {line}".rstrip() + "\n" for line in lines)
    return header + yaml.safe_dump_all(objects, sort_keys=False, width=10_000)


class KubernetesEngine:
    """An engine for the cluster in kubectl's configuration, or for the cluster in which tfdoctor runs."""

    name = "kubernetes"

    def __init__(self, namespace: str, image: str | None, *, gpus: int = 1) -> None:
        """Connect to the cluster.

        Raise UsageError if an argument is invalid, and Error if the client is not installed or no cluster is configured.
        """
        self._image = validate_image(namespace, image)
        self._namespace, self._gpus = namespace, gpus
        try:
            client: Any = importlib.import_module("kubernetes.client")
            config: Any = importlib.import_module("kubernetes.config")
        except ImportError:
            msg = "the client for Kubernetes is not installed next to tfdoctor."
            raise Error(msg, hint=make_install_command("kubernetes")) from None
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
    def requests_note(self) -> str:
        """The resources that every pod requests, as a sentence."""
        return REQUESTS_NOTE.format(gpus=self._gpus)

    def hosts(self) -> Sequence[str]:
        """Return the nodes that accept pods. Raise Error if they cannot be listed."""
        try:
            nodes = self._core.list_node(_request_timeout=REQUEST_TIMEOUT_S).items
        except self._failures as error:
            raise self._make_error("the nodes cannot be listed", error) from None
        return tuple(sorted(str(node.metadata.name) for node in nodes if not node.spec.unschedulable))

    def _make_error(self, action: str, error: Exception) -> Error:
        reason = getattr(error, "reason", None)
        status = getattr(error, "status", None)
        description = f"{status} {reason}" if status else str(reason or error)
        msg = f"Kubernetes: {action}: {clean_line(description, limit=200)}."
        return Error(msg)

    def run(self, hosts: Sequence[str], job: NodeJob) -> Iterator[NodeAnswer]:
        run_name = f"tfdoctor-{uuid4().hex[:8]}"
        try:
            host_by_number = self._create_jobs(run_name, hosts, job)
            yield from self._collect_answers(run_name, host_by_number, job)
        finally:
            self._remove_jobs(run_name)

    def _create_jobs(self, run_name: str, hosts: Sequence[str], job: NodeJob) -> dict[str, str]:
        """Create the Jobs, and return the node of each Job by its number. Raise Error if that fails."""
        config_maps = make_config_maps(run_name, job.zipapp_path.read_bytes())
        try:
            for config_map in config_maps:
                self._core.create_namespaced_config_map(
                    self._namespace, config_map, _request_timeout=REQUEST_TIMEOUT_S
                )
            for number, host in enumerate(hosts):
                body = make_node_job(
                    run_name, number, host, self._image, job, gpus=self._gpus, part_count=len(config_maps)
                )
                self._batch.create_namespaced_job(self._namespace, body, _request_timeout=REQUEST_TIMEOUT_S)
        except self._failures as error:
            action = f"the jobs cannot be made in {self._namespace}"
            raise self._make_error(action, error) from None
        return {str(number): host for number, host in enumerate(hosts)}

    def _remove_jobs(self, run_name: str) -> None:
        """Delete the Jobs and ConfigMaps of a run. Errors are ignored."""
        selector = {"label_selector": f"{RUN_LABEL}={run_name}", "_request_timeout": REQUEST_TIMEOUT_S}
        with contextlib.suppress(*self._failures):
            self._batch.delete_collection_namespaced_job(
                self._namespace, propagation_policy="Background", **selector
            )
        with contextlib.suppress(*self._failures):
            self._core.delete_collection_namespaced_config_map(self._namespace, **selector)

    def _collect_answers(
        self, run_name: str, waiting_hosts: dict[str, str], job: NodeJob
    ) -> Iterator[NodeAnswer]:
        """Yield each node's result as soon as its pod has ended or was removed, or the deadline has passed.

        `waiting_hosts` are the hosts by the number of their Job.
        """
        started = time.monotonic()
        last_pods: dict[str, Any] = {}
        while waiting_hosts:
            pods = self._list_pods(run_name)
            for number, pod in pods.items() if pods is not None else ():
                if number in waiting_hosts:
                    answer = self._parse_answer(waiting_hosts[number], pod, job)
                    if answer is not None:
                        del waiting_hosts[number]
                        yield answer
            # A pod that the last list contained, and that the current one lacks, was removed.
            for number in [n for n in last_pods if pods is not None and n in waiting_hosts and n not in pods]:
                yield NodeAnswer(waiting_hosts.pop(number), "lost", reason="its pod was removed")
            last_pods = pods if pods is not None else last_pods
            if time.monotonic() - started > job.time_limit_s + GRACE_S:
                for number, host in list(waiting_hosts.items()):
                    del waiting_hosts[number]
                    reason = (
                        _get_wait_reason(last_pods.get(number)) or f"no answer within {job.time_limit_s:g} s"
                    )
                    yield NodeAnswer(host, "timeout", reason=reason)
            if waiting_hosts:
                time.sleep(POLL_S)

    def _list_pods(self, run_name: str) -> dict[str, Any] | None:
        """Return the pods by the number of their Job, or None if the request failed."""
        try:
            pods = self._core.list_namespaced_pod(
                self._namespace, label_selector=f"{RUN_LABEL}={run_name}", _request_timeout=REQUEST_TIMEOUT_S
            ).items
        except self._failures:
            return None
        return {str((pod.metadata.labels or {}).get(f"{RUN_LABEL}-node")): pod for pod in pods}

    def _parse_answer(self, host: str, pod: Any, job: NodeJob) -> NodeAnswer | None:
        """Return the node's result, or None if the pod has not ended."""
        phase = pod.status.phase
        if phase == "Unknown" or pod.status.reason == "NodeLost":
            return NodeAnswer(host, "lost", reason="Kubernetes has lost the node")
        if pod.status.reason == "DeadlineExceeded":
            return NodeAnswer(
                host, "timeout", reason=_get_wait_reason(pod) or f"no answer within {job.time_limit_s:g} s"
            )
        if phase == "Pending":
            reason = _get_wait_reason(pod)
            return (
                NodeAnswer(host, "failed", reason=reason) if reason.startswith(FATAL_WAIT_REASONS) else None
            )
        if phase not in ("Succeeded", "Failed"):
            return None
        end_message, seconds = _describe_pod_end(pod)
        try:
            log = self._core.read_namespaced_pod_log(
                pod.metadata.name,
                self._namespace,
                limit_bytes=job.max_output_bytes + 1,
                _preload_content=False,
                _request_timeout=REQUEST_TIMEOUT_S,
            )
            output = bytes(log.data)
        except self._failures as error:
            return NodeAnswer(host, "lost", reason=self._make_error("its log cannot be read", error).message)
        if len(output) > job.max_output_bytes:
            return NodeAnswer(
                host,
                "flooded",
                reason=f"it wrote more than {job.max_output_bytes >> 20} MiB",
                duration_s=seconds,
            )
        if output.strip():
            return NodeAnswer(host, "answered", output, duration_s=seconds)
        return NodeAnswer(
            host, "failed", reason=end_message or pod.status.reason or "it said nothing", duration_s=seconds
        )


def _get_wait_reason(pod: Any) -> str:
    """Return why a pod does not start, according to its container or the scheduler. Empty if unknown."""
    if pod is None:
        return ""
    for status in pod.status.container_statuses or ():
        waiting = status.state.waiting if status.state is not None else None
        if waiting is not None and waiting.reason not in (None, "ContainerCreating", "PodInitializing"):
            return clean_line(f"{waiting.reason}: {waiting.message or ''}".strip(": "), limit=300)
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False" and condition.message:
            return clean_line(str(condition.message), limit=300)
    return ""


def _describe_pod_end(pod: Any) -> tuple[str, float | None]:
    """Return the container's exit status with its last message, and its duration in seconds.

    The result is ("", None) if the container has not ended.
    """
    for status in pod.status.container_statuses or ():
        terminated = status.state.terminated if status.state is not None else None
        if terminated is not None:
            last_line = (terminated.message or "").strip().rpartition("\n")[2]
            message = f"exit status {terminated.exit_code}{': ' if last_line else ''}{last_line}"
            started, finished = terminated.started_at, terminated.finished_at
            seconds = (finished - started).total_seconds() if started and finished else None
            return clean_line(message, limit=300), seconds
    return "", None
