"""Tests of `cluster --peer`, which compares this machine's TensorFlow with that of other machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.planner import CommandResult, call_tfdoctor
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


def run_cluster_command(*args: str, status: int) -> CommandResult:
    result = call_tfdoctor("cluster", "--tf-config", TEXT, *args)
    assert result.status == status, result.err
    return result


def test_recorded_machines_with_two_releases_differ() -> None:
    peers = [f"--peer={HOSTS / name}" for name in ("blackwell-with-tf218", "blackwell-with-tf221")]
    answer = run_cluster_command(*peers, "--json", "--fail-on", "warning", status=1).json
    (finding,) = [entry for entry in answer["findings"] if entry["name"] == "version-differs"]
    assert finding["code"] == "TFD739"
    assert "2.18" in finding["message"]
    assert "2.21" in finding["message"]


def test_invalid_recording_is_refused(tmp_path: Path) -> None:
    assert "Traceback" not in run_cluster_command("--peer", str(tmp_path), status=2).err
