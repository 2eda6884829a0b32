"""`run` ends soon after its program, however much of the output still waits to be judged."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from faults.harness import alive, start, wait_for
from tfdoctor.running import log_worker as running
from tfdoctor.running.log_worker import PLENTY, Analyst
from tfdoctor.running.passthrough import hold_signals

FAILED = (
    "2026-01-01 00:00:00.000000: W tensorflow/core/common_runtime/gpu/gpu_device.cc:2344] Cannot dlopen some GPU "
    "libraries. Please make sure the missing libraries mentioned above are installed properly if you would like to use "
    "GPU. Follow the guide at https://www.tensorflow.org/install/gpu for how to download and setup the required "
    "libraries for your platform.\nSkipping registering GPU devices...\n"
)


def test_the_wait_for_the_answer_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "FEEDING", 0.5)
    with hold_signals():
        analyst = Analyst()
    os.kill(analyst._pid, signal.SIGSTOP)
    try:
        for _ in range(PLENTY // 1_000_000):
            analyst.take(1, b"y\n" * 500_000)
        analyst.take(2, FAILED.encode())
        os.kill(analyst._pid, signal.SIGCONT)
        began = time.monotonic()
        answer = analyst.answer()
        assert time.monotonic() - began < running.ANSWER_TIMEOUT_S
    finally:
        analyst.kill()
    assert answer is not None
    assert answer.report.gpu_registered is False  # the end was read
    assert analyst.lost > PLENTY // 2


def test_nobody_answers_and_we_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "ANSWER_TIMEOUT_S", 0.5)
    with hold_signals():
        analyst = Analyst()
    os.kill(analyst._pid, signal.SIGSTOP)
    try:
        assert analyst.answer() is None
    finally:
        analyst.kill()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")
def test_a_signal_while_it_judges_ends_it_and_its_reader(tmp_path: Path) -> None:
    over = tmp_path / "over"
    with start(
        "run", "-q", "--", "sh", "-c", f"head -c 60000000 /dev/zero | tr '\\0' '\\n'; touch {over}"
    ) as process:
        assert process.stdout is not None
        while process.stdout.read(1 << 20) and not over.exists():
            pass
        wait_for(over.exists)
        readers = [
            int(one) for one in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        ]
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode in (-signal.SIGTERM, 0)  # 0: it was faster than we are
    assert wait_for(lambda: not any(alive(pid) for pid in readers), 10)
