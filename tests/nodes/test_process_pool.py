"""Tests of `fleet run` through ssh and srun: scripts stand in for both and run their command in a local shell."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from nodes.machines import make_fake_launchers
from processes import wait_for_processes
from tfdoctor.core.errors import Error, UsageError
from tfdoctor.extensions.fleet.nodes.slurm import SlurmEngine
from tfdoctor.extensions.fleet.nodes.ssh import parse_host_names

if TYPE_CHECKING:
    from pathlib import Path

KINDS = {
    "node1": "healthy-two-gpus",
    "node2": "healthy-two-gpus",
    "node3": "driver-too-old-for-libcuda",
    "node4": "hanging",
    "node5": "lying",
    "node6": "flooding",
    "node7": "dying",
    "node8": "failing",
    "node9": "gone",
}
STATES = {
    "node1": "ok",
    "node2": "ok",
    "node3": "found",
    "node4": "timeout",
    "node5": "failed",
    "node6": "failed",
    "node7": "failed",
    "node8": "failed",
    "node9": "lost",
}


def run_fleet(
    folder: Path, programs: Path, *arguments: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tfdoctor", "fleet", "run", str(folder), *arguments],
        env={**os.environ, **(env or {}), "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.few(1)
@pytest.mark.parametrize("engine", ["ssh", "slurm", "slurm job"])
def test_bad_nodes_do_not_affect_the_others(tmp_path: Path, engine: str) -> None:
    programs = make_fake_launchers(tmp_path, KINDS)
    arguments = {
        "ssh": ["--ssh", ",".join(KINDS)],
        "slurm": ["--slurm", "gpu"],
        "slurm job": ["--slurm", "job"],
    }[engine]
    start = time.monotonic()
    result = run_fleet(
        tmp_path / "out",
        programs,
        *arguments,
        "--timeout",
        "25",
        "--json",
        env={"SLURM_JOB_NODELIST": "node[1-9]"},
    )
    assert result.returncode == 1, result.stderr
    report: dict[str, Any] = json.loads(result.stdout)
    assert {entry["host"]: entry["status"] for entry in report["hosts"]} == STATES
    assert report["engine"] == engine.split(maxsplit=1)[0]
    reasons = {entry["host"]: entry["why"] for entry in report["hosts"]}
    assert "is not JSON" in reasons["node5"]
    assert "4 MiB" in reasons["node6"]
    assert "it is broken" in reasons["node8"]
    assert time.monotonic() - start < 60
    assert wait_for_processes(tmp_path) == set()
    assert list((tmp_path / "tmp").glob("*/*")) == []  # even though the flooding node was killed at once


def test_resume_asks_only_hosts_without_a_result(tmp_path: Path) -> None:
    programs = make_fake_launchers(tmp_path, {"node1": "healthy-two-gpus", "node2": "failing"})
    out = tmp_path / "out"
    assert run_fleet(out, programs, "--ssh", "node1,node2").returncode == 1
    before = (out / "node1.json").stat().st_mtime_ns
    refused = run_fleet(out, programs, "--ssh", "node1,node2")
    assert refused.returncode == 2
    assert "--resume" in refused.stderr
    (tmp_path / "nodes" / "node2" / "python3").write_bytes(
        (tmp_path / "nodes" / "node1" / "python3").read_bytes()
    )
    resumed = run_fleet(out, programs, "--ssh", "node1,node2", "--resume")
    assert "Asking 1 host through ssh, 1 have a result" in resumed.stderr
    assert (out / "node1.json").stat().st_mtime_ns == before
    assert "2 of 2 hosts answered" in resumed.stdout


def test_ctrl_c_keeps_the_results_and_leaves_no_process(tmp_path: Path) -> None:
    programs = make_fake_launchers(tmp_path, {"node1": "healthy-two-gpus", "node2": "hanging"})
    process = subprocess.Popen(
        [sys.executable, "-m", "tfdoctor", "fleet", "run", str(tmp_path / "out"), "--ssh", "node1,node2"],
        env={**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 40
    while not (tmp_path / "out" / "fleet.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(0.5)  # the answer is counted after it was written
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "1 of 2 hosts had answered; --resume asks the others" in stderr
    assert (tmp_path / "out" / "node1.json").exists()
    assert wait_for_processes(tmp_path) == set()


def test_dry_run_asks_no_host(tmp_path: Path) -> None:
    programs = make_fake_launchers(tmp_path, {"node1": "failing"})
    result = run_fleet(
        tmp_path / "out", programs, "--ssh", "node1", "--dry-run", "--python", "/opt/tf/bin/python"
    )
    assert result.returncode == 0
    assert "check --json --python /opt/tf/bin/python on 1 host: node1" in result.stdout
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--ssh", "a", "--slurm", "b"],
        ["--ssh", "-oProxyCommand=x"],
        ["--ssh", "a;b"],
        ["--ssh", ""],
        ["--slurm", "--x"],
        ["--ssh", "a", "--timeout", "nan"],
    ],
)
def test_invalid_arguments_ask_no_host(tmp_path: Path, words: list[str]) -> None:
    programs = make_fake_launchers(tmp_path, {"a": "failing"})
    result = run_fleet(tmp_path / "out", programs, *words)
    assert result.returncode == 2, result.stderr
    assert not (tmp_path / "out").exists()


def test_report_asks_no_host(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tfdoctor", "fleet", "report", str(tmp_path)]
    assert subprocess.run([*command, "--ssh", "a"], capture_output=True, check=False).returncode == 2
    assert subprocess.run(command, capture_output=True, check=False).returncode == 2


def test_host_names_are_parsed() -> None:
    text = "b, a  # the first\nuser@c.example.org\nssh://u@d:2222\na\n[::1]"
    assert parse_host_names(text) == ("[::1]", "a", "b", "ssh://u@d:2222", "user@c.example.org")
    for invalid in ("-x", "a\x1bb", "a$(x)", "a`b`", "a'b", "u@-x"):
        with pytest.raises(UsageError):
            parse_host_names(invalid)


def test_missing_or_failing_slurm_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Error, match="no srun"):
        SlurmEngine("gpu")
    programs = make_fake_launchers(tmp_path, {})
    (programs / "sinfo").write_text("#!/bin/sh\necho 'slurm_load_partitions: no contact' >&2; exit 1\n")
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    with pytest.raises(Error, match="no contact"):
        SlurmEngine("gpu").hosts()
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    with pytest.raises(UsageError, match="no allocation"):
        SlurmEngine("job")


PEERS = '{"worker": ["127.0.0.1:9", "nobody.invalid:9"]}'


@pytest.mark.few(0)
def test_unreachable_peers_are_reported(tmp_path: Path) -> None:
    programs = make_fake_launchers(tmp_path, dict.fromkeys(("a", "b"), "healthy-two-gpus") | {"c": "gone"})
    result = run_fleet(tmp_path / "out", programs, "--ssh", "a,b,c", "--connect", PEERS, "--json")
    assert "Asking 3 hosts" in result.stderr
    assert "Asking 2 hosts" in result.stderr
    findings = {finding["name"]: finding for finding in json.loads(result.stdout)["findings"]}
    assert findings["peers-apart"]["hosts"] == ["a", "b"]
    assert "do not reach nobody.invalid:9" in findings["peers-apart"]["message"]
    command = [sys.executable, "-m", "tfdoctor", "fleet", "report", str(tmp_path / "out"), "--json"]
    report = json.loads(subprocess.run(command, capture_output=True, check=False).stdout)
    assert [finding["name"] for finding in report["findings"]] == [
        finding["name"] for finding in json.loads(result.stdout)["findings"]
    ]
    assert report["files_left_aside"] == 0


@pytest.mark.parametrize("value", ["0", "65536", "{", "[]", '{"worker": 5}', "/no/such/file"])
def test_invalid_peers_ask_no_host(tmp_path: Path, value: str) -> None:
    programs = make_fake_launchers(tmp_path, {"a": "failing"})
    result = run_fleet(tmp_path / "out", programs, "--ssh", "a", "--connect", value)
    assert result.returncode == 2, result.stderr
    assert not (tmp_path / "out").exists()


def test_file_of_hosts_may_have_a_byte_order_mark(tmp_path: Path) -> None:
    programs = make_fake_launchers(tmp_path, {})
    (tmp_path / "hosts").write_bytes(b"\xef\xbb\xbfh1\r\nh2\r\n")
    result = run_fleet(tmp_path / "out", programs, "--dry-run", "--ssh", str(tmp_path / "hosts"))
    assert "on 2 hosts: h1, h2" in result.stdout
    result = run_fleet(tmp_path / "out", programs, "--dry-run", "--ssh", "h" * 254)
    assert (result.returncode, "is no name of a host" in result.stderr) == (2, True)
