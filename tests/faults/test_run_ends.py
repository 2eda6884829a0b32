"""`run` ends soon after its program, however much output still has to be analysed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from faults.harness import is_alive, start_tfdoctor, wait_for
from tfdoctor.verification.running import log_worker as running
from tfdoctor.verification.running.log_worker import MAX_QUEUED_BYTES, LogWorker
from tfdoctor.verification.running.passthrough import hold_signals

FAILURE_LOG = (
    "2026-01-01 00:00:00.000000: W tensorflow/core/common_runtime/gpu/gpu_device.cc:2344] Cannot dlopen some GPU "
    "libraries. Please make sure the missing libraries mentioned above are installed properly if you would like to use "
    "GPU. Follow the guide at https://www.tensorflow.org/install/gpu for how to download and setup the required "
    "libraries for your platform.\nSkipping registering GPU devices...\n"
)


def test_waiting_for_the_answer_has_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "FEED_TIMEOUT_S", 0.1)
    with hold_signals():
        analyst = LogWorker()
    os.kill(analyst._pid, signal.SIGSTOP)
    try:
        for _ in range(MAX_QUEUED_BYTES // 1_000_000):
            analyst.queue_output(1, b"y\n" * 500_000)
        analyst.queue_output(2, FAILURE_LOG.encode())
        os.kill(analyst._pid, signal.SIGCONT)
        start_time = time.monotonic()
        answer = analyst.wait_for_answer()
        assert time.monotonic() - start_time < running.ANSWER_TIMEOUT_S
    finally:
        analyst.kill()
    assert answer is not None
    assert answer.report.gpu_registered is False  # the end of the output was read
    assert analyst.dropped_bytes > 0  # how much depends on the machine


def test_stopped_worker_gives_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "ANSWER_TIMEOUT_S", 0.5)
    with hold_signals():
        analyst = LogWorker()
    os.kill(analyst._pid, signal.SIGSTOP)
    try:
        assert analyst.wait_for_answer() is None
    finally:
        analyst.kill()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")
def test_signal_during_analysis_ends_run_and_its_worker(tmp_path: Path) -> None:
    output_end = tmp_path / "over"
    with start_tfdoctor(
        "run", "-q", "--", "sh", "-c", f"head -c 60000000 /dev/zero | tr '\\0' '\\n'; touch {output_end}"
    ) as process:
        assert process.stdout is not None
        while process.stdout.read(1 << 20) and not output_end.exists():
            pass
        wait_for(output_end.exists)
        readers = [
            int(child)
            for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        ]
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode in (-signal.SIGTERM, 0)  # 0: it finished before the signal
    assert wait_for(lambda: not any(is_alive(pid) for pid in readers), 10)
