"""Logs as containers, schedulers, services, notebooks and editors keep them: the answer is that of the log itself."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab.keep_logs import keep_outcome
from tfdoctor.compat import Compat
from tfdoctor.logs.report import diagnose_log

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfdoctor.logs.report import LogReport

COMPAT = Compat.load()
KEPT = keep_outcome(Path(__file__).parent / "lab")
CHOSEN = (
    "1.13.2-cudnn-empty.log",
    "1.13.2-without-cudnn.log",
    "1.14.0-all-missing.log",
    "2.10.1-cudnn-needs-foo.log",
    "2.10.1-without-cusolver.log",
    "2.15.1-all-present.log",
    "2.18.1-init-803.log",
    "2.21.0-cc-30.log",
)
ENGLISH = "cannot open shared object file: No such file or directory"


def _time(number: int) -> str:
    return f"2026-11-23T08:{number // 60 % 60:02d}:{number % 60:02d}.{number * 7919 % 10**9:09d}"


def _before(form: str) -> Callable[[str], str]:
    """Each line behind this, in which `{t}` is a time and `{n}` the line's number."""
    return lambda log: "".join(
        f"{form.replace('{t}', _time(n)).replace('{n}', str(n))}{line}\n"
        for n, line in enumerate(log.splitlines(), 1)
    )


def _json(log: str, key: str, **others: str) -> str:
    return "".join(f"{json.dumps({**others, key: line})}\n" for line in log.splitlines())


def _notebook(log: str) -> str:
    output = {"name": "stderr", "output_type": "stream", "text": log.splitlines(keepends=True)}
    cell = {"cell_type": "code", "execution_count": 1, "metadata": {}, "outputs": [output], "source": []}
    return json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1)


def _coloured(log: str) -> str:
    return "".join(
        f"\x1b[2m[{n:04d}]\x1b[0m \x1b[33m{line}\x1b[0m\x1b[K\r\n" for n, line in enumerate(log.splitlines())
    )


WRAPPED: dict[str, Callable[[str], str]] = {
    "docker logs -t": _before("{t}Z "),
    "kubectl logs --prefix": _before("[pod/train-worker-0/tensorflow] "),
    "docker compose": _before("\x1b[36mtrainer-1   |\x1b[0m "),
    "stern": _before("train-0 tensorflow "),
    "containerd": _before("{t}Z stderr F "),
    "journald": _before("Nov 23 08:30:07 gpu-node7 python3[48211]: "),
    "srun --label": _before("0: "),
    "cloud watch": _before("17323456{n}\t"),
    "airflow": _before("[2026-11-23, 08:30:07 UTC] {subprocess.py:93} INFO - "),
    "a logger": _before("2026-11-23 08:30:07.123 | WARNING  | runner:pipe:42 - "),
    "cat -n": _before("     {n}\t"),
    "grep -n": _before("logs/train.err:{n}:"),
    "quoted": _before("> "),
    "docker's own file": lambda log: _json(log, "log", stream="stderr"),
    "journald's JSON": lambda log: _json(log, "MESSAGE", _PID="48211"),
    "notebook": _notebook,
    "colours": _coloured,
    "CRLF": lambda log: log.replace("\n", "\r\n"),
    "HTML": lambda log: f"<html><body><pre>{html.escape(log)}</pre></body></html>",
    "German": lambda log: log.replace(
        ENGLISH, "Kann die Shared-Object-Datei nicht öffnen: Datei oder Verzeichnis nicht gefunden"
    ),
    "Chinese": lambda log: log.replace(ENGLISH, "无法打开共享对象文件: 没有那个文件或目录"),
}


def answer(report: LogReport) -> tuple[object, ...]:
    return (
        report.cause,
        report.missing_libraries,
        report.tensorflow_version,
        report.era,
        report.gpu_registered,
        report.devices,
    )


@pytest.mark.parametrize("name", CHOSEN)
def test_what_stands_around_a_log_changes_nothing(name: str) -> None:
    log = KEPT[name].log
    alone = answer(diagnose_log([log.encode()], COMPAT))
    assert alone[0].value in KEPT[name].causes
    for how, wrap in WRAPPED.items():
        assert (how, answer(diagnose_log([wrap(log).encode()], COMPAT))) == (how, alone)
    assert answer(diagnose_log([f"python : {log}".encode("utf-16")], COMPAT)) == alone


def test_what_cuts_the_first_line_leaves_the_cause() -> None:
    log = KEPT["2.10.1-without-cusolver.log"].log
    assert diagnose_log([log.encode()[25:]], COMPAT).cause is diagnose_log([log.encode()], COMPAT).cause
