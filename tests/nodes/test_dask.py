"""`fleet run --dask` with a real scheduler and eight real workers, each on an address of its own: a "host"."""

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
from processes import processes_stay

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
"""Host → what its worker sends in place of every result."""
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


def dask(*words: str, log: Path, **env: str) -> subprocess.Popen[bytes]:
    quiet = {"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "20 s", "PYTHONWARNINGS": "ignore"}
    with log.open("wb") as stream:
        return subprocess.Popen(
            [sys.executable, "-m", "distributed.cli." + words[0], *words[1:]],
            env={**os.environ, **quiet, **env},
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, dict[str, subprocess.Popen[bytes]]]]:
    """The scheduler's address, and host → its worker."""
    log = tmp_path / "scheduler.log"
    words = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--no-show")
    started = [dask("dask_scheduler", *words, log=log)]
    workers = {}
    try:
        address = wait_for_end(log, ADDRESS)
        for host, kind in KINDS.items():
            place = node(tmp_path, host, kind)
            words = (address, "--host", host, "--nthreads", "1", "--no-nanny", "--no-dashboard")
            if host in PRELOADED:
                preload = tmp_path / f"preload_{len(workers)}.py"
                marker = str(tmp_path / "marker")
                preload.write_text(PRELOAD.replace("VALUE", PRELOADED[host]).replace("MARKER", marker))
                words += ("--preload", str(preload))
            path = f"{place}{os.pathsep}{os.environ['PATH']}"
            workers[host] = dask("dask_worker", *words, log=tmp_path / f"{host}.log", PATH=path)
            started.append(workers[host])
        for host in KINDS:
            wait_for_end(tmp_path / f"{host}.log", re.compile(r"(Registered to)"))
        yield address, workers
    finally:
        for one in started:
            for end in (signal.SIGTERM, signal.SIGKILL):
                if one.poll() is None:
                    os.killpg(one.pid, end)
                    try:
                        one.wait(10)
                    except subprocess.TimeoutExpired:
                        continue


def wait_for_end(log: Path, pattern: re.Pattern[str]) -> str:
    until = time.monotonic() + 150
    while time.monotonic() < until:
        found = pattern.search(log.read_text(errors="replace")) if log.exists() else None
        if found is not None:
            return found.group(1)
        time.sleep(0.2)
    pytest.fail(f"no {pattern.pattern} in {log.read_text(errors='replace')}")


@pytest.mark.timeout(500)
def test_one_killed_one_hanging_one_lying_one_flooding(
    cluster: tuple[str, dict[str, subprocess.Popen[bytes]]], tmp_path: Path
) -> None:
    address, workers = cluster
    out = tmp_path / "out"
    words = ["fleet", "run", str(out), "--dask", address, "--deadline", "30", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "tfdoctor", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    until = time.monotonic() + 150
    while not (out / "127.0.0.2.json").exists() and time.monotonic() < until:
        time.sleep(0.1)
    os.killpg(workers[KILLED].pid, signal.SIGKILL)
    printed, said = process.communicate(timeout=200)
    assert process.returncode == 1, said
    told: dict[str, Any] = json.loads(printed)
    assert {one["host"]: one["status"] for one in told["hosts"]} == dict(zip(KINDS, STATES, strict=True)), (
        said
    )
    assert told["engine"] == "dask"
    assert "Traceback" not in said
    why = {one["host"]: one["why"] for one in told["hosts"]}
    assert "went away" in why[KILLED]
    assert "no answer within 30 s" in why["127.0.0.8"]
    assert "more than" in why["127.0.0.7"]
    assert "no JSON" in why["127.0.0.6"]
    for host in PRELOADED:
        assert why[host] == "what it sent is no answer of tfdoctor"
    assert not (tmp_path / "marker").exists()
    assert processes_stay(tmp_path, beside=[one.pid for one in workers.values()]) == set()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_what_runs_there_ends_with_us(
    cluster: tuple[str, dict[str, subprocess.Popen[bytes]]], tmp_path: Path, number: signal.Signals
) -> None:
    """Dask stops no task that runs: the worker sees that nobody waits for it any more."""
    address, workers = cluster
    out = tmp_path / "out"
    words = ["fleet", "run", str(out), "--dask", address, "--json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "tfdoctor", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    until = time.monotonic() + 150
    while not (out / "127.0.0.2.json").exists() and time.monotonic() < until:
        time.sleep(0.1)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == (130 if number == signal.SIGINT else -number), said
    assert processes_stay(tmp_path, beside=[one.pid for one in workers.values()], seconds=20) == set()


def test_a_scheduler_that_is_not_there_is_told(tmp_path: Path) -> None:
    words = ["fleet", "run", str(tmp_path / "out"), "--dask", "tcp://127.0.0.1:9"]
    ran = subprocess.run(
        [sys.executable, "-m", "tfdoctor", *words], capture_output=True, text=True, timeout=100, check=False
    )
    assert ran.returncode == 3
    assert "no Dask scheduler answers at tcp://127.0.0.1:9" in ran.stderr
    assert "Traceback" not in ran.stderr
