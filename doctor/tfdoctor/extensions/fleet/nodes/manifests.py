"""Make Kubernetes objects as plain values: ConfigMaps with tfdoctor's zipapp, and pods that run it.

A pod requests GPUs of the device plugin, but no path of its host, because the container runtime adds the driver's
libraries. It does not run as root, has no token, and may write only to a folder in memory.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.extensions.fleet.nodes.models import NodeJob

__all__ = ["REQUESTS_NOTE", "RUN_LABEL", "make_config_maps", "make_daemon_set", "make_node_job"]

REQUESTS_NOTE = (
    "Each pod asks for {gpus} of nvidia.com/gpu, a tenth of a processor and 256 MiB of memory; for no path of its "
    "host, no capability, no token and no root."
)
"""A description of the requested resources, which is shown before anything is created."""
RUN_LABEL = "tfdoctor.dev/run"
"""The label of all objects of a run. Its value is the name of the run."""
PART_BYTES = 900_000
"""The bytes of the file in one ConfigMap, which can hold 1 MiB at most."""
GPU_RESOURCE = "nvidia.com/gpu"
"""The resource of NVIDIA's device plugin."""
NOBODY_UID = 65534
"""The user and group ID of `nobody`."""
JOB_TTL_S = 600
"""Seconds after which Kubernetes removes a Job that has ended, in case tfdoctor itself cannot."""


def make_config_maps(run_name: str, content: bytes) -> list[dict[str, Any]]:
    """Return as many ConfigMaps as are needed for the parts of the file."""
    parts = [content[start : start + PART_BYTES] for start in range(0, len(content), PART_BYTES)]
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"{run_name}-{number:02d}", "labels": {RUN_LABEL: run_name}},
            "immutable": True,
            "binaryData": {f"part-{number:02d}": base64.b64encode(part).decode("ascii")},
        }
        for number, part in enumerate(parts)
    ]


def make_node_job(
    run_name: str, number: int, node: str, image: str, job: NodeJob, *, gpus: int, part_count: int
) -> dict[str, Any]:
    """Return a Job that runs once on the given node."""
    match_fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    node_selector = {"nodeSelectorTerms": [{"matchFields": match_fields}]}
    pod = _make_pod(run_name, image, job, gpus=gpus, part_count=part_count)
    pod["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": node_selector}}
    pod["restartPolicy"] = "Never"
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"{run_name}-n{number}", "labels": {RUN_LABEL: run_name}},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": round(job.time_limit_s),
            "ttlSecondsAfterFinished": JOB_TTL_S,
            "template": {
                "metadata": {"labels": {RUN_LABEL: run_name, f"{RUN_LABEL}-node": str(number)}},
                "spec": pod,
            },
        },
    }


def make_daemon_set(run_name: str, image: str, job: NodeJob, *, gpus: int, part_count: int) -> dict[str, Any]:
    """Return a DaemonSet, which runs a pod on every node until it is deleted."""
    pod = _make_pod(run_name, image, job, gpus=gpus, part_count=part_count, keep_running=True)
    # A pod is ready once it has answered: `kubectl rollout status` waits for that, and then the logs are complete.
    probe = {"exec": {"command": ["test", "-s", "/scratch/status"]}, "periodSeconds": 2}
    pod["containers"][0]["readinessProbe"] = probe
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": run_name, "labels": {RUN_LABEL: run_name}},
        "spec": {
            "selector": {"matchLabels": {RUN_LABEL: run_name}},
            "template": {"metadata": {"labels": {RUN_LABEL: run_name}}, "spec": pod},
        },
    }


def _make_pod(
    run_name: str, image: str, job: NodeJob, *, gpus: int, part_count: int, keep_running: bool = False
) -> dict[str, Any]:
    """Return the pod's specification. With `keep_running`, its container does not end after the command."""
    limits = {"memory": "1Gi", **({GPU_RESOURCE: str(gpus)} if gpus else {})}
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 5,
        "tolerations": [{"key": GPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule"}],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": NOBODY_UID,
            "runAsGroup": NOBODY_UID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "tfdoctor",
                "image": image,
                "command": [
                    "/bin/sh",
                    "-c",
                    _make_container_script(job.max_output_bytes, keep_running=keep_running),
                    "sh",
                    job.python,
                    *job.arguments,
                ],
                "env": [{"name": "TMPDIR", "value": "/scratch"}, {"name": "HOME", "value": "/scratch"}],
                "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": limits},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [
                    {"name": "file", "mountPath": "/tfdoctor", "readOnly": True},
                    {"name": "scratch", "mountPath": "/scratch"},
                ],
            }
        ],
        "volumes": [
            {
                "name": "file",
                "projected": {
                    "sources": [{"configMap": {"name": f"{run_name}-{n:02d}"}} for n in range(part_count)]
                },
            },
            {"name": "scratch", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}},
        ],
    }


def _make_container_script(max_output_bytes: int, *, keep_running: bool) -> str:
    """Return the shell script of the container.

    The pod's log is the standard output of the command, cut after `max_output_bytes` + 1 bytes so that a longer output
    can be detected. The end of its standard error becomes the termination message.
    """
    run_command = '"$python" /scratch/tfdoctor.pyz "$@" 2>/scratch/said; echo $? >/scratch/status'
    report_command = (
        "tail -c 2000 /scratch/said >/dev/termination-log 2>/dev/null; rm -f /scratch/tfdoctor.pyz"
    )
    finish_command = "while :; do sleep 3600; done" if keep_running else "exit $(cat /scratch/status)"
    return (
        "cat /tfdoctor/part-* >/scratch/tfdoctor.pyz || exit 125; python=$1; shift; "
        f"{{ {run_command}; }} | head -c {max_output_bytes + 1}; {report_command}; {finish_command}"
    )


def list_collect_commands(run_name: str, namespace: str) -> Sequence[str]:
    """Return shell commands that apply the manifest, fetch the pods' logs, and delete everything again."""
    name_format = "-o jsonpath='{range .items[*]}{.metadata.name} {.spec.nodeName}{\"\\n\"}{end}'"
    return (
        f"kubectl -n {namespace} apply --server-side -f FILE",
        f"kubectl -n {namespace} rollout status ds/{run_name} --timeout=5m",
        f"kubectl -n {namespace} get pods -l {RUN_LABEL}={run_name} {name_format} |",
        f'  while read -r pod node; do kubectl -n {namespace} logs "$pod" > "DIR/$node.json"; done',
        f"kubectl -n {namespace} delete ds,cm -l {RUN_LABEL}={run_name}",
        "tfdoctor fleet report DIR",
    )
