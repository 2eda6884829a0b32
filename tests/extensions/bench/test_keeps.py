"""Measured times are kept after Ctrl-C and after a crash."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from cli.planner import validate
from extensions.bench.made import make_devices_line, make_run_line

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SITECUSTOMIZE = """
import json, os, sys, time
if any(word.endswith("stages.py") for word in sys.orig_argv):
    for part in {parts!r}:
        print("tfdoctor-payload:" + json.dumps(part), flush=True)
    open({ready!r}, "w").close()
    {end}
    os._exit(3)
"""


TWO_RUNS = (make_run_line(1e-3), make_run_line(2e-3, size=2048))


def start_bench(
    folder: Path, end: str, *arguments: str, timed: Sequence[object] = TWO_RUNS
) -> subprocess.Popen[str]:
    """Start `tfdoctor bench` with a Python whose payload prints `timed` and then runs the code `end`."""
    parts = [{"stage": "import", "tensorflow": "2.20.0"}, make_devices_line("CPU:0"), *timed]
    script = SITECUSTOMIZE.format(parts=parts, ready=str(folder / "ready"), end=end)
    (folder / "sitecustomize.py").write_text(script, encoding="utf-8")
    command = [sys.executable, "-m", "tfdoctor", "bench", "--json", "--devices", "CPU:0"]
    return subprocess.Popen(
        [*command, "--python", sys.executable, "-o", str(folder / "out"), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(folder)},
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.few(1)
def test_signal_keeps_measured_times(tmp_path: Path, number: signal.Signals) -> None:
    process = start_bench(tmp_path, "time.sleep(100)")
    deadline = time.monotonic() + 60
    while not (tmp_path / "ready").exists():
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    time.sleep(0.2)
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    answer = json.loads(out)
    validate(answer, "bench")
    assert [run["size"] for run in answer["runs"] if run["seconds"]] == [1024, 2048]
    assert answer["stopped"] == "It was interrupted; what was timed by then is shown."
    assert process.returncode in (-number, 128 + number)
    assert "Traceback" not in err
    assert json.loads((tmp_path / "out" / "bench.json").read_text("utf-8")) == answer


def test_crash_keeps_measured_times(tmp_path: Path) -> None:
    process = start_bench(tmp_path, f"os.kill(os.getpid(), {int(signal.SIGSEGV)})")
    out, err = process.communicate(timeout=60)
    answer = json.loads(out)
    assert [run["size"] for run in answer["runs"] if run["seconds"]] == [1024, 2048]
    assert answer["stopped"] == "Signal 11 ended TensorFlow; what was timed by then is shown."
    assert "Traceback" not in err
    assert (tmp_path / "out" / "bench.svg").exists()
    assert process.returncode == 3


def test_empty_result_replaces_no_earlier_result(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "bench.json").write_text("{}")
    process = start_bench(tmp_path, "")
    output = process.communicate(timeout=60)[0]  # --json: errors are JSON, too
    assert (process.returncode, (out / "bench.json").read_text()) == (2, "{}")
    assert "exists" in output
    code = 'print("RuntimeError: of a module beside it", file=sys.stderr)'
    process = start_bench(tmp_path, code, "--force", timed=())
    answer = json.loads(process.communicate(timeout=60)[0])
    assert (process.returncode, (out / "bench.json").read_text()) == (3, "{}")
    (finding,) = answer["findings"]
    assert finding["explanation"].endswith("Its last line: RuntimeError: of a module beside it")
    assert finding["remedies"][0]["commands"] == [f"tfdoctor check --python {sys.executable}"]


def test_pictures_of_replaced_result_are_removed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    for name in ("bench.json", "bench.svg", "bench-light.png", "mine.png"):
        (out / name).write_text("{}")
    process = start_bench(
        tmp_path, 'print("tfdoctor-payload:" + json.dumps({"end": True}))\n    sys.stdout.flush()', "--force"
    )
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert {path.name for path in out.iterdir()} == {"bench.json", "bench.svg", "mine.png"}


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("said", "status"),
    [
        ({"stage": "bench", "status": "failed", "wish": True, "detail": "an all-reduce needs two"}, 2),
        ({"stage": "bench", "status": "failed", "detail": "ResourceExhaustedError: OOM"}, 3),
    ],
)
def test_unfulfillable_request_is_a_usage_error(tmp_path: Path, said: object, status: int) -> None:
    process = start_bench(tmp_path, "", timed=(said,))
    out, _ = process.communicate(timeout=60)
    assert process.returncode == status
    assert ("tfdoctor check" in out) is (status == 3)
