"""Standard streams that are closed, full or without a reader: a documented exit status and no traceback."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from faults.harness import HEALTHY, run_in_shell

if TYPE_CHECKING:
    from pathlib import Path

COMMANDS = {
    "--help": 0,
    "--version": 0,
    f"check --from {HEALTHY}": 0,
    f"check --from {HEALTHY} --json": 0,
    f"report --from {HEALTHY}": 0,
    "matrix --json": 0,
    "recommend --gpu 8.6": 0,
    "build --anywhere --print": 0,
    "diagnose - <<<x": 0,
    "matrix --tf 9.9": 2,
    "matrix --tf 9.9 --json": 2,
}


@pytest.mark.few(2)
@pytest.mark.parametrize("words", COMMANDS)
def test_unwritable_output_is_an_error(words: str) -> None:
    for redirection in (">&-", ">/dev/full"):
        result = run_in_shell(f"DOCTOR {words} {redirection}")
        assert result.returncode == (COMMANDS[words] or 3), (redirection, result)
        assert b"Traceback" not in result.stderr
        assert b"Exception ignored" not in result.stderr
        assert result.stderr.startswith(b"tfdoctor: ")


@pytest.mark.parametrize("words", [f"check --from {HEALTHY}", "diagnose - <<<x", "matrix --tf 9.9"])
def test_unwritable_stderr_is_ignored(words: str) -> None:
    expected = run_in_shell(f"DOCTOR {words}")
    for redirection in ("2>&-", "2>/dev/full"):
        result = run_in_shell(f"DOCTOR {words} {redirection}")
        assert (result.returncode, result.stdout, result.stderr) == (
            expected.returncode,
            expected.stdout,
            b"",
        )
    assert run_in_shell(f"DOCTOR {words} >&- 2>&-").returncode == (expected.returncode or 3)


def test_closed_standard_input_is_an_error() -> None:
    for command in ("diagnose -", "parse auto -"):
        result = run_in_shell(f"DOCTOR {command} <&-")
        assert result.returncode in (2, 3)
        assert result.stderr.startswith(b"tfdoctor: ")
        assert b"Traceback" not in result.stderr


def test_closed_pipe_is_no_error() -> None:
    result = run_in_shell(f"DOCTOR check --from {HEALTHY} -v | head -c 1; exit ${{PIPESTATUS[0]}}")
    assert (result.returncode, result.stderr) == (0, b"")
    for setting in ("unset PYTHONUNBUFFERED", "export PYTHONUNBUFFERED=1"):
        result = run_in_shell(f"{setting}; DOCTOR matrix --json | head -c 1; exit ${{PIPESTATUS[0]}}")
        assert (result.returncode, result.stderr) == (0, b""), setting


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_status_is_kept_if_nobody_reads(tmp_path: Path, unbuffered: str) -> None:
    (tmp_path / "a.py").write_text("import os\nos.environ['CUDA_VISIBLE_DEVIES'] = '0'\n" * 200)
    for words in (f"lint {tmp_path}", f"lint --json {tmp_path}", "check --from /nowhere"):
        script = f"export PYTHONUNBUFFERED={unbuffered}; {{ sleep 1; DOCTOR {words}; echo $? >&2; }} | true"
        result = run_in_shell(script)
        assert result.stderr.split()[-1:] == [b"2" if "nowhere" in words else b"1"], words


@pytest.mark.parametrize("words", ["diagnose /dev/full", "diagnose - </dev/zero"])
def test_endless_devices_are_refused(words: str) -> None:
    result = run_in_shell(f"timeout 60 DOCTOR {words}")
    assert result.returncode == 2
    assert b"is a device, not a log" in result.stderr
