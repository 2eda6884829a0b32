"""Tests of `cluster --peer`, which compares this machine's TensorFlow with that of other machines."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tfdoctor.core.findings import Severity
from tfdoctor.extensions.cluster.analysis import evaluate_cluster
from tfdoctor.extensions.cluster.models import InstalledRelease
from tfdoctor.extensions.cluster.reader import parse_cluster

HOSTS = Path(__file__).parents[2] / "hosts"
TEXT = '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}'


def summarize_answer(*releases: str | None) -> tuple[list[tuple[str, Severity]], tuple[str, ...]]:
    installed = [InstalledRelease(f"machine {number}", item) for number, item in enumerate(releases)]
    answer = evaluate_cluster(
        parse_cluster(TEXT, "env").specifications[0], "env", installed_releases=installed
    )
    return [(item.kind, item.severity) for item in answer.faults], answer.notes


@pytest.mark.parametrize(
    ("releases", "differ", "notes"),
    [
        ((), False, []),
        (("2.20.0", "2.20.0"), False, ["2 machines have the same TensorFlow, 2.20.0."]),
        (("2.20.0", "2.18.1", "2.20.0"), True, []),
        ((None, "2.18.1"), False, ["No version of TensorFlow is known of machine 0: not compared."]),
        (("2.20.0", "2.18.1", None), True, ["No version of TensorFlow is known of machine 2: not compared."]),
    ],
)
def test_versions_are_compared(releases: tuple[str | None, ...], differ: bool, notes: list[str]) -> None:
    assert summarize_answer(*releases) == (
        [("version-differs", Severity.WARNING)] if differ else [],
        tuple(notes),
    )


def run_cluster_command(*args: str, status: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tfdoctor", "cluster", "--tf-config", TEXT, *args]
    result = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert result.returncode == status, result.stderr
    return result


def test_recorded_machines_with_two_releases_differ() -> None:
    peers = [f"--peer={HOSTS / name}" for name in ("blackwell-with-tf218", "blackwell-with-tf221")]
    answer = json.loads(run_cluster_command(*peers, "--json", "--fail-on", "warning", status=1).stdout)
    (finding,) = [entry for entry in answer["findings"] if entry["name"] == "version-differs"]
    assert finding["code"] == "TFD739"
    assert "2.18" in finding["message"]
    assert "2.21" in finding["message"]


def test_invalid_recording_is_refused(tmp_path: Path) -> None:
    assert "Traceback" not in run_cluster_command("--peer", str(tmp_path), status=2).stderr
