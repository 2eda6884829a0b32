"""`fleet run --kubernetes` through the official client, against a scripted API whose pods really run; and --emit."""

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
from tfdoctor.fleet.nodes.zipapp import zipapp

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
    made = Cluster(tmp_path, KINDS)
    for name, kind in KINDS.items():
        if kind not in ("gone", "full"):
            node(tmp_path, name, kind)
    server = serve(made)
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
    yield made
    made.stop()
    server.shutdown()
    server.server_close()


def start_process(tmp_path: Path, *words: str) -> subprocess.Popen[str]:
    command = ["fleet", "run", str(tmp_path / "out"), "--kubernetes", "gpu", "--image", IMAGE, *words]
    # Grace beside the deadline is for pulling images: here it would only be waited for.
    run = "import runpy, tfdoctor.fleet.nodes.kubernetes as k; k.GRACE_S = 8; "
    run += "runpy.run_module('tfdoctor', run_name='__main__')"
    return subprocess.Popen(
        [sys.executable, "-c", run, *command],
        env={**os.environ, "KUBECONFIG": str(tmp_path / "kubeconfig")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_all_others_arrive_the_bad_ones_are_named_and_nothing_stays(cluster: Cluster, tmp_path: Path) -> None:
    process = start_process(tmp_path, "--deadline", "10", "--json")
    printed, said = process.communicate(timeout=120)
    assert process.returncode == 1, said
    told: dict[str, Any] = json.loads(printed)
    assert {one["host"]: one["status"] for one in told["hosts"]} == dict(zip(KINDS, STATES, strict=True)), (
        said
    )
    why = {one["host"]: one["why"] for one in told["hosts"]}
    assert "it is broken" in why["node-6"]
    assert "lost the node" in why["node-7"]
    assert "Insufficient nvidia.com/gpu" in why["node-8"]
    assert "asks for 1 of nvidia.com/gpu" in said
    assert (cluster.maps, cluster.jobs) == ({}, {})
    assert "Traceback" not in said


def test_ctrl_c_removes_what_was_made(cluster: Cluster, tmp_path: Path) -> None:
    process = start_process(tmp_path)
    until = time.monotonic() + 60
    while not (tmp_path / "out" / "node-1.json").exists() and time.monotonic() < until:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=40)
    assert process.returncode == 130, said
    assert (cluster.maps, cluster.jobs) == ({}, {})
    assert "--resume" in said


def test_no_permission_is_told_and_nothing_stays(cluster: Cluster, tmp_path: Path) -> None:
    words = ["fleet", "run", str(tmp_path / "out"), "--kubernetes", "kube-system", "--image", IMAGE]
    process = subprocess.run(
        [sys.executable, "-m", "tfdoctor", *words],
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


def emit_plan(*words: str) -> subprocess.CompletedProcess[str]:
    command = ["fleet", "run", "unused", "--kubernetes", "gpu", "--emit", *words]
    return subprocess.run(
        [sys.executable, "-m", "tfdoctor", *command], capture_output=True, text=True, timeout=60, check=False
    )


def test_the_manifest_asks_for_no_more_than_it_says() -> None:
    ran = emit_plan("--image", IMAGE, "--gpus", "2", "--python", "/opt/venv/bin/python")
    assert ran.returncode == 0, ran.stderr
    *maps, daemon = yaml.safe_load_all(ran.stdout)
    parts = [base64.b64decode(content) for one in maps for _, content in sorted(one["binaryData"].items())]
    assert b"".join(parts) == zipapp()
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
    assert {key for one in pod["volumes"] for key in one} == {"name", "projected", "emptyDir"}
    assert not {"hostNetwork", "hostPID", "hostIPC", "serviceAccountName"} & set(pod)
    assert "no path of its host" in ran.stdout.splitlines()[0]
    # `rollout status` is to wait for the answer, not for the start.
    assert container["readinessProbe"]["exec"]["command"] == ["test", "-s", "/scratch/status"]


@pytest.mark.parametrize("version", ["1.28", ""])
def test_it_is_what_the_api_takes(tmp_path: Path, version: str) -> None:
    """By the schemas of an old and of the newest Kubernetes, which refuse what they do not know."""
    validating = pytest.importorskip("kubernetes_validate")
    from tfdoctor.fleet.nodes import Job
    from tfdoctor.fleet.nodes.manifests import file_maps, node_job

    job = Job(tmp_path, ("check", "--json"))
    made = [
        *yaml.safe_load_all(emit_plan("--image", IMAGE).stdout),
        node_job("run", 1, "node", IMAGE, job, gpus=1, parts=3),
        *file_maps("run", b"content"),
    ]
    for one in made:
        validating.validate(one, version or validating.latest_version(), strict=True)


@pytest.mark.parametrize("words", [[], ["--image", "-x"], ["--image", "a b"], ["--image", "a\nb"]])
def test_a_wrong_image_is_refused(words: list[str]) -> None:
    assert emit_plan(*words).returncode == 2


def test_it_is_what_the_client_knows(tmp_path: Path) -> None:
    """The client's models refuse no field, and lose none."""
    client = pytest.importorskip("kubernetes.client")
    from tfdoctor.fleet.nodes import Job
    from tfdoctor.fleet.nodes.manifests import daemon_set, node_job

    job = Job(tmp_path, ("check", "--json"))
    api = client.ApiClient()
    for body, kind in (
        (node_job("run", 1, "node", IMAGE, job, gpus=1, parts=3), "V1Job"),
        (daemon_set("run", IMAGE, job, gpus=0, parts=3), "V1DaemonSet"),
    ):
        reply = type("Reply", (), {"data": json.dumps(body)})
        try:
            read = api.deserialize(reply, kind)
        except TypeError:
            read = api.deserialize(json.dumps(body), kind, "application/json")
        assert api.sanitize_for_serialization(read) == body
