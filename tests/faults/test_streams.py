"""Standard streams that are closed, full or left by their reader: a documented exit status and no traceback."""

from __future__ import annotations

import pytest

from faults.harness import HEALTHY, shell

COMMANDS = {
    "--help": 0,
    "--version": 0,
    f"check --facts {HEALTHY}": 0,
    f"check --facts {HEALTHY} --json": 0,
    f"report --facts {HEALTHY}": 0,
    "matrix --json": 0,
    "recommend --gpu 8.6": 0,
    "build --anywhere --print": 0,
    "diagnose - <<<x": 0,
    "matrix --tf 9.9": 2,
    "matrix --tf 9.9 --json": 2,
}


@pytest.mark.few(5)
@pytest.mark.parametrize("words", COMMANDS)
def test_an_answer_that_cannot_be_written_is_none(words: str) -> None:
    for place in (">&-", ">/dev/full"):
        done = shell(f"DOCTOR {words} {place}")
        assert done.returncode == (COMMANDS[words] or 3), (place, done)
        assert b"Traceback" not in done.stderr
        assert b"Exception ignored" not in done.stderr
        assert done.stderr.startswith(b"tfdoctor: ")


@pytest.mark.parametrize("words", [f"check --facts {HEALTHY}", "diagnose - <<<x", "matrix --tf 9.9"])
def test_what_is_told_aside_may_go_nowhere(words: str) -> None:
    whole = shell(f"DOCTOR {words}")
    for place in ("2>&-", "2>/dev/full"):
        done = shell(f"DOCTOR {words} {place}")
        assert (done.returncode, done.stdout, done.stderr) == (whole.returncode, whole.stdout, b"")
    assert shell(f"DOCTOR {words} >&- 2>&-").returncode == (whole.returncode or 3)


def test_standard_input_that_is_closed() -> None:
    for words in ("diagnose -", "parse auto -"):
        done = shell(f"DOCTOR {words} <&-")
        assert done.returncode in (2, 3)
        assert done.stderr.startswith(b"tfdoctor: ")
        assert b"Traceback" not in done.stderr


def test_a_reader_that_leaves_is_no_error() -> None:
    done = shell(f"DOCTOR check --facts {HEALTHY} -v | head -c 1; exit ${{PIPESTATUS[0]}}")
    assert (done.returncode, done.stderr) == (0, b"")
    for buffered in ("unset PYTHONUNBUFFERED", "export PYTHONUNBUFFERED=1"):
        done = shell(f"{buffered}; DOCTOR matrix --json | head -c 1; exit ${{PIPESTATUS[0]}}")
        assert (done.returncode, done.stderr) == (0, b""), buffered
