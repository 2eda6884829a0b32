"""Logs as containers, schedulers, services, notebooks and editors store them: the report does not change."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab.keep_logs import load_logs
from tfdoctor.compat import Compat
from tfdoctor.logs.report import diagnose_log

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfdoctor.logs.report import LogReport

COMPAT = Compat.load()
OUTCOMES = load_logs(Path(__file__).parent / "lab")
LOGS = (
    "1.13.2-cudnn-empty.log",
    "1.13.2-without-cudnn.log",
    "1.14.0-all-missing.log",
    "2.10.1-cudnn-needs-foo.log",
    "2.10.1-without-cusolver.log",
    "2.15.1-all-present.log",
    "2.18.1-init-803.log",
    "2.21.0-cc-30.log",
)
ENGLISH_ERROR = "cannot open shared object file: No such file or directory"


def _format_time(number: int) -> str:
    return f"2026-11-23T08:{number // 60 % 60:02d}:{number % 60:02d}.{number * 7919 % 10**9:09d}"


def _prefix(form: str) -> Callable[[str], str]:
    """Return a function that puts this before each line, with a time for `{t}` and the line number for `{n}`."""
    return lambda log: "".join(
        f"{form.replace('{t}', _format_time(n)).replace('{n}', str(n))}{line}\n"
        for n, line in enumerate(log.splitlines(), 1)
    )


def _to_json_lines(log: str, key: str, **fields: str) -> str:
    return "".join(f"{json.dumps({**fields, key: line})}\n" for line in log.splitlines())


def _to_notebook(log: str) -> str:
    output = {"name": "stderr", "output_type": "stream", "text": log.splitlines(keepends=True)}
    cell = {"cell_type": "code", "execution_count": 1, "metadata": {}, "outputs": [output], "source": []}
    return json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1)


def _add_colours(log: str) -> str:
    return "".join(
        f"\x1b[2m[{n:04d}]\x1b[0m \x1b[33m{line}\x1b[0m\x1b[K\r\n" for n, line in enumerate(log.splitlines())
    )


WRAPPED: dict[str, Callable[[str], str]] = {
    "docker logs -t": _prefix("{t}Z "),
    "kubectl logs --prefix": _prefix("[pod/train-worker-0/tensorflow] "),
    "docker compose": _prefix("\x1b[36mtrainer-1   |\x1b[0m "),
    "stern": _prefix("train-0 tensorflow "),
    "containerd": _prefix("{t}Z stderr F "),
    "journald": _prefix("Nov 23 08:30:07 gpu-node7 python3[48211]: "),
    "srun --label": _prefix("0: "),
    "cloud watch": _prefix("17323456{n}\t"),
    "airflow": _prefix("[2026-11-23, 08:30:07 UTC] {subprocess.py:93} INFO - "),
    "a logger": _prefix("2026-11-23 08:30:07.123 | WARNING  | runner:pipe:42 - "),
    "cat -n": _prefix("     {n}\t"),
    "grep -n": _prefix("logs/train.err:{n}:"),
    "quoted": _prefix("> "),
    "docker's own file": lambda log: _to_json_lines(log, "log", stream="stderr"),
    "journald's JSON": lambda log: _to_json_lines(log, "MESSAGE", _PID="48211"),
    "notebook": _to_notebook,
    "colours": _add_colours,
    "CRLF": lambda log: log.replace("\n", "\r\n"),
    "HTML": lambda log: f"<html><body><pre>{html.escape(log)}</pre></body></html>",
    "German": lambda log: log.replace(
        ENGLISH_ERROR, "Kann die Shared-Object-Datei nicht öffnen: Datei oder Verzeichnis nicht gefunden"
    ),
    "Chinese": lambda log: log.replace(ENGLISH_ERROR, "无法打开共享对象文件: 没有那个文件或目录"),
}


def summarize(report: LogReport) -> tuple[object, ...]:
    return (
        report.cause,
        report.missing_sonames,
        report.tensorflow_version,
        report.era,
        report.gpu_registered,
        report.registered_devices,
    )


@pytest.mark.parametrize("name", LOGS)
def test_wrapping_does_not_change_the_report(name: str) -> None:
    log = OUTCOMES[name].log
    expected = summarize(diagnose_log([log.encode()], COMPAT))
    assert expected[0].value in OUTCOMES[name].causes
    for wrapping, wrap in WRAPPED.items():
        assert (wrapping, summarize(diagnose_log([wrap(log).encode()], COMPAT))) == (wrapping, expected)
    assert summarize(diagnose_log([f"python : {log}".encode("utf-16")], COMPAT)) == expected


def test_cut_first_line_does_not_change_the_cause() -> None:
    log = OUTCOMES["2.10.1-without-cusolver.log"].log
    assert diagnose_log([log.encode()[25:]], COMPAT).cause is diagnose_log([log.encode()], COMPAT).cause


def test_line_of_the_program_after_a_sentence_is_not_joined() -> None:
    log = (
        "2022-05-06 12:13:14.000000: I tensorflow/core/platform/cpu_feature_guard.cc:193] This TensorFlow binary\n"
        "2019-07-08 12:13:15.000000: W tensorflow/core/common_runtime/gpu/gpu_device.cc:1663] Cannot dlopen some GPU "
        "libraries. Skipping registering GPU devices...\n"
        "loading patient mustermann from db\n"
    )
    report = diagnose_log([log.encode()], Compat.load())
    evidence = [item.text for finding in report.findings for item in finding.evidence]
    assert evidence
    assert not any("mustermann" in text for text in evidence)


@pytest.mark.parametrize(
    "line", ["srun: error: node07: task 0: Out Of Memory", "slurmstepd-node07: error: Detected 1 oom-kill"]
)
def test_line_of_a_launcher_is_not_joined(line: str) -> None:
    log = (
        "2024-05-03 10:11:12.123456: W tensorflow/core/framework/op_kernel.cc:1828] RESOURCE_EXHAUSTED: OOM when "
        "allocating tensor with shape[1024,1024] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by "
        f"allocator GPU_0_bfc\n{line}\n"
    )
    report = diagnose_log([log.encode()], Compat.load())
    assert not any("node07" in item.text for finding in report.findings for item in finding.evidence)
