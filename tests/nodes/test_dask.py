"""Tests of `fleet run --dask` with a real scheduler and real workers, each on its own address as a host."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from nodes.machines import node
from processes import wait_for_processes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytest.importorskip("distributed")
pytestmark = [pytest.mark.few(0), pytest.mark.filterwarnings("ignore")]

KINDS = {
    "127.0.0.2": "healthy-two-gpus",
    "127.0.0.3": "healthy-two-gpus",
    "127.0.0.4": "healthy-one-gpu",
    "127.0.0.5": "kernel-updated",
    "127.0.0.6": "lying",
    "127.0.0.7": "flooding",
    "127.0.0.8": "hanging",
    "127.0.0.9": "hanging",
    "127.0.0.10": "healthy-one-gpu",
    "127.0.0.11": "healthy-one-gpu",
}
KILLED = "127.0.0.9"
PRELOADED = {"127.0.0.10": "Evil()", "127.0.0.11": "5"}
"""Host -> the Python expression of the value that its worker sends instead of each result."""
PRELOAD = """
import os
from distributed.core import Status
from distributed.protocol import to_serialize

class Evil:
    def __reduce__(self):
        return os.system, ("touch MARKER",)

def dask_setup(worker):
    async def get_data(comm, keys, who=None, serializers=None, **_):
        held = {key: VALUE if str(key).startswith("tfdoctor-") else worker.data[key] for key in keys}
        data = {key: to_serialize(value) for key, value in held.items()}
        await comm.write({"status": "OK", "data": data}, serializers=serializers)
        await comm.read()
        return Status.dont_reply

    worker.handlers["get_data"] = get_data
"""
STATES = ["ok", "ok", "ok", "found", "failed", "failed", "timeout", "lost", "failed", "failed"]
ADDRESS = re.compile(r"Scheduler at:\s+(tcp://[\d.]+:\d+)")


def start_dask(*arguments: str, log: Path, **env: str) -> subprocess.Popen[bytes]:
    defaults = {"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "5 minutes", "PYTHONWARNINGS": "ignore"}
    with log.open("wb") as stream:
        return subprocess.Popen(
            [sys.executable, "-m", "distributed.cli." + arguments[0], *arguments[1:]],
            env={**os.environ, **defaults, **env},
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, dict[str, subprocess.Popen[bytes]]]]:
    """Yield the scheduler's address and the worker process of each host."""
    log = tmp_path / "scheduler.log"
    arguments = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--no-show")
    processes = [start_dask("dask_scheduler", *arguments, log=log)]
    workers = {}
    try:
        address = wait_for_match(log, ADDRESS)
        for host, kind in KINDS.items():
            node_folder = node(tmp_path, host, kind)
            arguments = (address, "--host", host, "--nthreads", "1", "--no-nanny", "--no-dashboard")
            if host in PRELOADED:
                preload = tmp_path / f"preload_{len(workers)}.py"
                marker = str(tmp_path / "marker")
                preload.write_text(PRELOAD.replace("VALUE", PRELOADED[host]).replace("MARKER", marker))
                arguments += ("--preload", str(preload))
            path = f"{node_folder}{os.pathsep}{os.environ['PATH']}"
            workers[host] = start_dask("dask_worker", *arguments, log=tmp_path / f"{host}.log", PATH=path)
            processes.append(workers[host])
        for host in KINDS:
            wait_for_match(tmp_path / f"{host}.log", re.compile(r"(Registered to)"))
        yield address, workers
    finally:
        for process in processes:
            for signal_number in (signal.SIGTERM, signal.SIGKILL):
                if process.poll() is None:
                    os.killpg(process.pid, signal_number)
                    try:
                        process.wait(10)
                    except subprocess.TimeoutExpired:
                        continue


def wait_for_match(log: Path, pattern: re.Pattern[str]) -> str:
    deadline = time.monotonic() + 150
    while time.monotonic() < deadline:
        match = pattern.search(log.read_text(errors="replace")) if log.exists() else None
        if match is not None:
            return match.group(1)
        time.sleep(0.2)
    pytest.fail(f"no {pattern.pattern} in {log.read_text(errors='replace')}")


@pytest.mark.timeout(500)
def test_bad_workers_do_not_affect_the_others(
    cluster: tuple[str, dict[str, subprocess.Popen[bytes]]], tmp_path: Path
) -> None:
    address, workers = cluster
    out = tmp_path / "out"
    arguments = ["fleet", "run", str(out), "--dask", address, "--timeout", "30", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "tfdoctor", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 150
    while not (out / "127.0.0.2.json").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    os.killpg(workers[KILLED].pid, signal.SIGKILL)
    stdout, stderr = process.communicate(timeout=200)
    assert process.returncode == 1, stderr
    report: dict[str, Any] = json.loads(stdout)
    assert {entry["host"]: entry["status"] for entry in report["hosts"]} == dict(
        zip(KINDS, STATES, strict=True)
    ), stderr
    assert report["engine"] == "dask"
    assert "Traceback" not in stderr
    reasons = {entry["host"]: entry["why"] for entry in report["hosts"]}
    assert "went away" in reasons[KILLED]
    assert "no answer within 30 s" in reasons["127.0.0.8"]
    assert "more than" in reasons["127.0.0.7"]
    assert "is not JSON" in reasons["127.0.0.6"]
    for host in PRELOADED:
        assert reasons[host] == "what it sent is no answer of tfdoctor"
    assert not (tmp_path / "marker").exists()
    assert wait_for_processes(tmp_path, beside=[entry.pid for entry in workers.values()]) == set()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_remote_processes_end_with_the_run(
    cluster: tuple[str, dict[str, subprocess.Popen[bytes]]], tmp_path: Path, number: signal.Signals
) -> None:
    """Dask cannot stop a running task: the worker notices that no client waits for it any more."""
    address, workers = cluster
    out = tmp_path / "out"
    arguments = ["fleet", "run", str(out), "--dask", address, "--json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "tfdoctor", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 150
    while not (out / "127.0.0.2.json").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == (130 if number == signal.SIGINT else -number), stderr
    assert (
        wait_for_processes(tmp_path, beside=[worker.pid for worker in workers.values()], seconds=20) == set()
    )


def test_missing_scheduler_is_reported(tmp_path: Path) -> None:
    arguments = ["fleet", "run", str(tmp_path / "out"), "--dask", "tcp://127.0.0.1:9"]
    result = subprocess.run(
        [sys.executable, "-m", "tfdoctor", *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert result.returncode == 3
    assert "no Dask scheduler answers at tcp://127.0.0.1:9" in result.stderr
    assert "Traceback" not in result.stderr
