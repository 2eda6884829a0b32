"""What stands before the messages of a log is replaced in published outputs, whatever its notation."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import pytest

from cli.planner import Tfdoctor
from core.privacy.kinds import PLAIN
from tfdoctor.core.privacy.redactor import Redactor
from tfdoctor.logs.message_start import find_message_start
from tfdoctor.render.log_markdown import redact_line_prefix

if TYPE_CHECKING:
    from pathlib import Path

PREFIXES = (
    "[prterun-node17zq-4711@1,0]<stderr>: ",
    "[node17zq:rank0]: ",
    "node17zq\t",
    "0: node17zq: ",
    "(train pid=3, node=node17zq) ",
    "[node17zq:1,0]<stderr>: ",
    "[1,0]<stderr>:node17zq: ",
    "[pod/name/node17zq] ",
    "host=node17zq user=annazq ",
    "node17zq| ",
    "node17zq> ",
    "<node17zq> ",
    "{node17zq} ",
    "annazq@node17zq ",
    "node17zq.example[4711]: ",
    "2024-05-01 10:00:00 node17zq trainer: ",
    "node17zq#3 - ",
    "ts=1 host=node17zq msg=",
    "node17zq~0 :: ",
    "==> node17zq <== ",
    "NODE17ZQ ",
)
MESSAGES = (
    (
        "2024-05-01 10:00:00.123456: W tensorflow/stream_executor/platform/default/dso_loader.cc:64] Could not load "
        "dynamic library 'libcudart.so.11.0'; dlerror: libcudart.so.11.0: cannot open shared object file: No such file"
    ),
    "I0000 00:00:1700000000.123456   12345 cuda_executor.cc:1015] successful NUMA node read from SysFS",
    "ImportError: libcublas.so.10.0: cannot open shared object file: No such file or directory",
    "Traceback (most recent call last):",
    "NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.",
)

WRAPPED = (
    (
        (
            "2026-01-02 03:04:05.123456: E tensorflow/tsl/distributed_runtime/coordination/coordination_service_agent.cc:481] "
            "Coordination agent is in ERROR: Barrier timed out. Timed out task names:"
        ),
        "/job:worker/replica:0/task:1",
    ),
    (
        (
            "2026-01-02 03:04:05.123456: W tensorflow/core/common_runtime/gpu/gpu_device.cc:2343] Cannot dlopen some GPU "
            "libraries. Please make sure the missing"
        ),
        "libraries mentioned above are installed properly if you would like to use GPU.",
        "Skipping registering GPU devices...",
    ),
)
"""Messages that go on in lines that have the same prefix."""


@pytest.mark.parametrize("prefix", PREFIXES)
def test_prefix_is_not_published(prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for message in MESSAGES:
        line = redact_line_prefix(prefix + message, Redactor())
        assert line.endswith(message)
        assert "zq" not in line.lower()


def test_prefixes_are_not_in_the_outputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log, page = tmp_path / "log", tmp_path / "page.html"
    tfdoctor = Tfdoctor(monkeypatch, capsys)
    for prefix, messages in product(PREFIXES, (MESSAGES, *WRAPPED)):
        log.write_text("".join(f"{prefix}{message}\n" for message in messages), encoding="utf-8")
        tfdoctor("diagnose", "--html", str(page), "--force", str(log))
        content = page.read_text(encoding="utf-8")
        markdown = tfdoctor("diagnose", "--format", "markdown", str(log)).out
        assert "Could not load dynamic library" in content or messages is not MESSAGES, prefix
        assert "libcudart" in markdown or messages is not MESSAGES, prefix
        for output in (content, markdown):
            assert "node17" not in output.lower(), prefix
            assert "annazq" not in output, prefix


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "> ",
        "2024-01-01T10:00:00.123456789Z stderr F ",
        "[1,0]<stderr>:",
        "[rank0]: ",
        "0: ",
        "(pid=7428) ",
        "May  1 10:00:00 INFO: ",
        "worker-3 | ",
        '{"log":"',
    ],
)
def test_known_words_stay(prefix: str) -> None:
    for message in MESSAGES:
        assert redact_line_prefix(prefix + message, Redactor()) == prefix + message


def test_messages_have_no_prefix() -> None:
    assert [
        line for line in PLAIN if Redactor().redact_prefix(line[: find_message_start(line)]) not in line
    ] == []
