# ruff: noqa: E501 - lines of logs are long
"""Logs of TensorFlow 2.15 and 2.20 servers that cannot connect, and similar messages of other programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfdoctor.compat import Compat
from tfdoctor.logs.report import LogReport, diagnose_log
from tfdoctor.render.log_screen import render_log_screen

COMPAT = Compat.load()
DATA = Path(__file__).parent / "data" / "cluster"


def make_report(text: str) -> LogReport:
    return diagnose_log([text.encode()], COMPAT, "log.txt")


@pytest.mark.parametrize(
    ("name", "title", "words"),
    [
        ("server-missing-220", "waits for another", "local:1"),
        ("server-missing-215", "waits for another", "local:1"),
        ("server-nocolon-220", "not HOST:PORT", "localhost2999"),
        ("mw-missing1-220", "waits for another", "worker:1"),
        ("mw-missing0-215", "cannot be reached", "worker:0"),
        ("mw-twice-b-220", "cannot listen", "two processes with the same index"),
        ("mw-killed0-220", "ended, or no longer answers", "worker:1"),
    ],
)
def test_real_server_logs_have_their_cause(name: str, title: str, words: str) -> None:
    report = make_report((DATA / f"{name}.log").read_text("utf-8"))
    assert report.cause.value == "cluster-failure"
    assert report.root_finding is not None
    assert title in report.root_finding.title
    assert words in report.root_finding.explanation
    assert report.root_finding.evidence
    assert "tfdoctor cluster --connect" in report.root_finding.remedies[0].commands


STARTED = "2026-11-23 08:35:08.5: I tensorflow/core/distributed_runtime/rpc/grpc_server_lib.cc:457] Started server with target: grpc://localhost:2998\n"
TCP_REFUSED = "E0327 10:00:00.1 123 tcp_client_posix.c:173] failed to connect to 'ipv4:127.0.0.1:2999': socket error: connection refused\n"
SOCKET_CLOSED = "tensorflow.python.framework.errors_impl.UnavailableError: Socket closed\n"
SESSION_WAITS = (
    "I master.cc:275] CreateSession still waiting for response from worker: /job:worker/replica:0/task:1\n"
)
SESSION_STARTED = "I tensorflow/core/distributed_runtime/master_session.cc:1017] Start master session 58ab5c1bf0a3c6b3 with config:\n"
WAITING_FOR = "I coordination_service.cc:506] Waiting for {}/2 tasks to connect.\n"
STRAGGLERS = "I coordination_service.cc:509] Example stragglers:\n"
TORCH = '  File "/x/lib/python3.9/site-packages/torch/nn/modules/module.py", line 1190, in _call_impl\n'
ALL_ADDRESSES_FAILED = "UNAVAILABLE: failed to connect to all addresses\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TCP_REFUSED * 20, "127.0.0.1:2999"),
        (STARTED + SOCKET_CLOSED, "does not name the task"),
        (ALL_ADDRESSES_FAILED, "does not name the task"),
        ("ValueError: The `task_id` 2 exceeds the maximum id of worker.\n", "exceeds"),
        (STARTED + SESSION_WAITS, "worker:1"),
        (
            WAITING_FOR.format(2) + STRAGGLERS + "/job:ps/replica:0/task:0\n/job:worker/replica:0/task:3\n",
            "ps:0 and worker:3",
        ),
    ],
)
def test_messages_of_other_layers_are_recognized(text: str, words: str) -> None:
    report = make_report(text)
    assert report.cause.value == "cluster-failure"
    assert report.root_finding is not None
    assert words in report.root_finding.explanation


@pytest.mark.parametrize(
    "text",
    [
        STARTED,
        STARTED + SESSION_WAITS + SESSION_STARTED,
        WAITING_FOR.format(1) + STRAGGLERS + "/job:worker/replica:0/task:1\n" + WAITING_FOR.format(0),
        SOCKET_CLOSED,
        TORCH + ALL_ADDRESSES_FAILED,
        "ConnectionResetError: [Errno 104] Connection reset by peer\n",
    ],
)
def test_connected_cluster_or_other_program_is_no_failure(text: str) -> None:
    assert make_report(text).cause.value == "inconclusive"


def test_waiting_task_is_reported_beside_a_missing_driver() -> None:
    """On a machine without a GPU, the waiting task is a second finding."""
    no_driver = "E cuda_platform.cc:51] failed call to cuInit: INTERNAL: CUDA error: Failed call to cuInit: UNKNOWN ERROR (303)\n"
    report = make_report(
        no_driver + STARTED + WAITING_FOR.format(1) + STRAGGLERS + "/job:worker/replica:0/task:1\n"
    )
    assert report.cause.value == "no-driver"
    screen = render_log_screen(report, heading=False)
    assert "Also: A task waits for another task of its cluster: " in screen
    assert "worker:1" in screen
    assert "tfdoctor cluster --connect" in screen


def test_missing_worker_is_reported_beside_a_missing_driver() -> None:
    """In a real log of TensorFlow 2.20 on a CPU, the missing worker is a second finding."""
    text = (DATA / "mw-cutoff-220.log").read_text("utf-8")
    report = make_report(text)
    assert report.cause.value == "no-driver"
    (cluster_finding,) = [finding for finding in report.findings if finding.cause.value == "cluster-failure"]
    assert "waits for another" in cluster_finding.title
    assert "worker:1" in cluster_finding.explanation
    complete = make_report(text.replace("Waiting for 1/2", "Waiting for 0/2"))
    assert [finding for finding in complete.findings if finding.cause.value == "cluster-failure"] == []
