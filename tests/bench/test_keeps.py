"""Ctrl-C and a crash keep what was measured by then."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from bench.made import on, piece
from cli.planner import validate

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

TIMES = """
import json, os, sys, time
if any(word.endswith("stages.py") for word in sys.orig_argv):
    for part in {parts!r}:
        print("tfdoctor-payload:" + json.dumps(part), flush=True)
    open({ready!r}, "w").close()
    {end}
    os._exit(3)
"""


TWO = (piece(1e-3), piece(2e-3, size=2048))


def bench(folder: Path, end: str, *more: str, timed: Sequence[object] = TWO) -> subprocess.Popen[str]:
    """With a Python whose TensorFlow has timed two pieces of work, or `timed`, and then does `end`."""
    parts = [{"stage": "import", "tensorflow": "2.20.0"}, on("CPU:0"), *timed]
    text = TIMES.format(parts=parts, ready=str(folder / "ready"), end=end)
    (folder / "sitecustomize.py").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "tfdoctor", "bench", "--json", "--devices", "CPU:0"]
    return subprocess.Popen(
        [*command, "--python", sys.executable, "-o", str(folder / "out"), *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(folder)},
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.few(1)
def test_a_signal_keeps_what_was_timed(tmp_path: Path, number: signal.Signals) -> None:
    running = bench(tmp_path, "time.sleep(100)")
    deadline = time.monotonic() + 60
    while not (tmp_path / "ready").exists():
        assert time.monotonic() < deadline
        assert running.poll() is None, running.communicate()
        time.sleep(0.05)
    time.sleep(0.2)
    running.send_signal(number)
    out, err = running.communicate(timeout=30)
    answer = json.loads(out)
    validate(answer, "bench")
    assert [one["size"] for one in answer["runs"] if one["seconds"]] == [1024, 2048]
    assert answer["stopped"] == "It was interrupted; what was timed by then is shown."
    assert running.returncode in (-number, 128 + number)
    assert "Traceback" not in err
    assert json.loads((tmp_path / "out" / "bench.json").read_text("utf-8")) == answer


def test_a_crash_keeps_what_was_timed(tmp_path: Path) -> None:
    running = bench(tmp_path, f"os.kill(os.getpid(), {int(signal.SIGSEGV)})")
    out, err = running.communicate(timeout=60)
    answer = json.loads(out)
    assert [one["size"] for one in answer["runs"] if one["seconds"]] == [1024, 2048]
    assert answer["stopped"] == "Signal 11 ended TensorFlow; what was timed by then is shown."
    assert "Traceback" not in err
    assert (tmp_path / "out" / "bench.svg").exists()
    assert running.returncode == 3


def test_nothing_takes_no_earlier_results_place(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "bench.json").write_text("{}")
    running = bench(tmp_path, "")
    told = running.communicate(timeout=60)[0]  # --json: errors are JSON, too
    assert (running.returncode, (out / "bench.json").read_text()) == (2, "{}")
    assert "exists" in told
    said = 'print("RuntimeError: of a module beside it", file=sys.stderr)'
    running = bench(tmp_path, said, "--force", timed=())
    answer = json.loads(running.communicate(timeout=60)[0])
    assert (running.returncode, (out / "bench.json").read_text()) == (3, "{}")
    (finding,) = answer["findings"]
    assert finding["explanation"].endswith("Its last line: RuntimeError: of a module beside it")
    assert finding["remedies"][0]["commands"] == [f"tfdoctor check --python {sys.executable}"]


def test_a_picture_of_an_earlier_result_goes_with_it(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    for name in ("bench.json", "bench.svg", "bench-light.png", "mine.png"):
        (out / name).write_text("{}")
    running = bench(
        tmp_path, 'print("tfdoctor-payload:" + json.dumps({"end": True}))\n    sys.stdout.flush()', "--force"
    )
    running.communicate(timeout=60)
    assert running.returncode == 0
    assert {path.name for path in out.iterdir()} == {"bench.json", "bench.svg", "mine.png"}


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("said", "status"),
    [
        ({"stage": "bench", "status": "failed", "wish": True, "detail": "an all-reduce needs two"}, 2),
        ({"stage": "bench", "status": "failed", "detail": "ResourceExhaustedError: OOM"}, 3),
    ],
)
def test_a_wish_that_no_work_serves_is_no_sick_tensorflow(tmp_path: Path, said: object, status: int) -> None:
    running = bench(tmp_path, "", timed=(said,))
    out, _ = running.communicate(timeout=60)
    assert running.returncode == status
    assert ("tfdoctor check" in out) is (status == 3)
