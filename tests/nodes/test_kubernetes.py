"""Tests of `fleet run --kubernetes` with the official client and a scripted API that runs the pods, and of --emit."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from nodes.kubernetes_api import Cluster, serve
from nodes.machines import node
from tfdoctor.extensions.fleet.nodes.zipapp import build_zipapp

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KINDS = {
    "node-1": "healthy-two-gpus",
    "node-2": "kernel-updated",
    "node-3": "lying",
    "node-4": "flooding",
    "node-5": "hanging",
    "node-6": "failing",
    "node-7": "gone",
    "node-8": "full",
}
STATES = ["ok", "found", "failed", "failed", "timeout", "failed", "lost", "timeout"]
IMAGE = "tensorflow/tensorflow:2.20.0-gpu"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    pytest.importorskip("kubernetes")
    fake_cluster = Cluster(tmp_path, KINDS)
    for name, kind in KINDS.items():
        if kind not in ("gone", "full"):
            node(tmp_path, name, kind)
    server = serve(fake_cluster)
    port = server.server_address[1]
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        "clusters": [{"name": "here", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "me", "user": {}}],
    }
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    yield fake_cluster
    fake_cluster.stop()
    server.shutdown()
    server.server_close()


def start_process(tmp_path: Path, *arguments: str) -> subprocess.Popen[str]:
    command = ["fleet", "run", str(tmp_path / "out"), "--kubernetes", "gpu", "--image", IMAGE, *arguments]
    # The grace period is for pulling images; here it would only delay the test.
    script = "import runpy, tfdoctor.extensions.fleet.nodes.kubernetes as k; k.GRACE_S = 8; "
    script += "runpy.run_module('tfdoctor', run_name='__main__')"
    return subprocess.Popen(
        [sys.executable, "-c", script, *command],
        env={**os.environ, "KUBECONFIG": str(tmp_path / "kubeconfig")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_bad_nodes_are_reported_and_all_objects_removed(cluster: Cluster, tmp_path: Path) -> None:
    process = start_process(tmp_path, "--timeout", "10", "--json")
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 1, stderr
    report: dict[str, Any] = json.loads(stdout)
    assert {entry["host"]: entry["status"] for entry in report["hosts"]} == dict(
        zip(KINDS, STATES, strict=True)
    ), stderr
    reasons = {entry["host"]: entry["why"] for entry in report["hosts"]}
    assert "it is broken" in reasons["node-6"]
    assert "lost the node" in reasons["node-7"]
    assert "Insufficient nvidia.com/gpu" in reasons["node-8"]
    assert "asks for 1 of nvidia.com/gpu" in stderr
    assert (cluster.maps, cluster.jobs) == ({}, {})
    assert "Traceback" not in stderr


def test_ctrl_c_removes_all_objects(cluster: Cluster, tmp_path: Path) -> None:
    process = start_process(tmp_path)
    deadline = time.monotonic() + 60
    while not (tmp_path / "out" / "node-1.json").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=40)
    assert process.returncode == 130, stderr
    assert (cluster.maps, cluster.jobs) == ({}, {})
    assert "--resume" in stderr


def test_missing_permission_is_reported(cluster: Cluster, tmp_path: Path) -> None:
    arguments = ["fleet", "run", str(tmp_path / "out"), "--kubernetes", "kube-system", "--image", IMAGE]
    process = subprocess.run(
        [sys.executable, "-m", "tfdoctor", *arguments],
        env={**os.environ, "KUBECONFIG": str(tmp_path / "kubeconfig")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert process.returncode == 3
    assert "403" in process.stderr
    assert "Traceback" not in process.stderr
    assert cluster.maps == {}


def emit_plan(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["fleet", "run", "unused", "--kubernetes", "gpu", "--emit", *arguments]
    return subprocess.run(
        [sys.executable, "-m", "tfdoctor", *command], capture_output=True, text=True, timeout=60, check=False
    )


def test_manifest_requests_no_extra_privileges() -> None:
    result = emit_plan("--image", IMAGE, "--gpu-count", "2", "--python", "/opt/venv/bin/python")
    # client-side apply copies each object into an annotation, which may have 262,144 bytes
    assert "apply --server-side -f" in result.stdout
    assert result.returncode == 0, result.stderr
    *maps, daemon = yaml.safe_load_all(result.stdout)
    parts = [base64.b64decode(content) for item in maps for _, content in sorted(item["binaryData"].items())]
    assert b"".join(parts) == build_zipapp()
    assert all(len(part) < 1 << 20 for part in parts)
    pod = daemon["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == IMAGE
    assert container["command"][4:] == ["python3", "check", "--json", "--python", "/opt/venv/bin/python"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["automountServiceAccountToken"] is False
    assert {key for item in pod["volumes"] for key in item} == {"name", "projected", "emptyDir"}
    assert not {"hostNetwork", "hostPID", "hostIPC", "serviceAccountName"} & set(pod)
    assert "no path of its host" in result.stdout.splitlines()[0]
    # `rollout status` must wait for the answer, not for the start.
    assert container["readinessProbe"]["exec"]["command"] == ["test", "-s", "/scratch/status"]


@pytest.mark.parametrize("version", ["1.28", ""])
def test_manifest_matches_the_schemas(tmp_path: Path, version: str) -> None:
    """The schemas of an old and of the newest Kubernetes refuse unknown fields."""
    validator = pytest.importorskip("kubernetes_validate")
    from tfdoctor.extensions.fleet.nodes import NodeJob
    from tfdoctor.extensions.fleet.nodes.manifests import make_config_maps, make_node_job

    job = NodeJob(tmp_path, ("check", "--json"))
    manifests = [
        *yaml.safe_load_all(emit_plan("--image", IMAGE).stdout),
        make_node_job("run", 1, "node", IMAGE, job, gpus=1, part_count=3),
        *make_config_maps("run", b"content"),
    ]
    for manifest in manifests:
        validator.validate(manifest, version or validator.latest_version(), strict=True)


@pytest.mark.parametrize("words", [[], ["--image", "-x"], ["--image", "a b"], ["--image", "a\nb"]])
def test_invalid_image_name_is_refused(words: list[str]) -> None:
    assert emit_plan(*words).returncode == 2


def test_manifest_matches_the_client_models(tmp_path: Path) -> None:
    """The client's models accept all fields and lose none."""
    client = pytest.importorskip("kubernetes.client")
    from tfdoctor.extensions.fleet.nodes import NodeJob
    from tfdoctor.extensions.fleet.nodes.manifests import make_daemon_set, make_node_job

    job = NodeJob(tmp_path, ("check", "--json"))
    api = client.ApiClient()
    for body, kind in (
        (make_node_job("run", 1, "node", IMAGE, job, gpus=1, part_count=3), "V1Job"),
        (make_daemon_set("run", IMAGE, job, gpus=0, part_count=3), "V1DaemonSet"),
    ):
        reply = type("Reply", (), {"data": json.dumps(body)})
        try:
            read = api.deserialize(reply, kind)
        except TypeError:
            read = api.deserialize(json.dumps(body), kind, "application/json")
        assert api.sanitize_for_serialization(read) == body
