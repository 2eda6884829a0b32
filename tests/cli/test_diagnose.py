"""`tfdoctor diagnose`, as a program: files, pipes, formats, exit statuses."""

from __future__ import annotations

import gzip
import json
import lzma
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tfdoctor.findings import Cause
from tfdoctor.logs.signatures import BENIGN

SCHEMA: dict[str, Any] = json.loads(
    (Path(__file__).resolve().parents[2] / "docs" / "schemas" / "diagnose.schema.json").read_text(
        encoding="utf-8"
    )
)
LOG = (
    "W tensorflow/stream_executor/platform/default/dso_loader.cc:60] Could not load dynamic library "
    "'libcudart.so.11.0'; dlerror: libcudart.so.11.0: cannot open shared object file: No such file or directory; "
    "LD_LIBRARY_PATH: /home/user/cuda-10.2/lib64\nSkipping registering GPU devices...\n"
)


def tfdoctor(*args: str, stdin: bytes = b"") -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "tfdoctor", "diagnose", *args],
        input=stdin,
        capture_output=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def answer(*args: str, stdin: bytes = b"") -> dict[str, Any]:
    _, out, _ = tfdoctor("--json", *args, stdin=stdin)
    value: dict[str, Any] = json.loads(out)
    jsonschema.Draft202012Validator(SCHEMA).validate(value)
    return value


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "train.log"
    path.write_text(LOG, encoding="utf-8")
    return path


def test_the_schema_has_the_vocabulary() -> None:
    assert SCHEMA["$defs"]["cause"]["enum"] == [cause.value for cause in Cause]
    assert SCHEMA["$defs"]["report"]["properties"]["benign"]["items"]["enum"] == list(BENIGN)


def test_a_file(log: Path) -> None:
    value = answer(str(log))
    assert value["verdict"]["cause"] == "libs-wrong-version"
    assert value["missing_libraries"] == ["libcudart.so.11.0"]
    assert value["gpu_registered"] is False
    assert value["lines"] == 2
    assert value["bytes"] == len(LOG)
    assert value["findings"][0]["evidence"][0]["line"] == 1


@pytest.mark.parametrize("args", [(), ("-",)])
def test_a_pipe(args: tuple[str, ...]) -> None:
    assert answer(*args, stdin=LOG.encode())["file"] == "-"


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_packed(tmp_path: Path, pack: Any) -> None:
    path = tmp_path / "log.packed"
    path.write_bytes(pack(LOG.encode()))
    assert answer(str(path))["bytes"] == len(LOG)


def test_several_files(log: Path) -> None:
    value = answer(str(log), str(log))
    assert [report["verdict"]["cause"] for report in value["logs"]] == ["libs-wrong-version"] * 2


def test_the_exit_status(log: Path) -> None:
    assert tfdoctor(str(log))[0] == 1
    assert tfdoctor("--fail-on", "never", str(log))[0] == 0
    assert tfdoctor(stdin=b"nothing\n")[0] == 0
    assert tfdoctor("--fail-on", "warning", stdin=b"nothing\n")[0] == 1


def test_the_terminal(log: Path) -> None:
    _, out, _ = tfdoctor(str(log))
    assert out.startswith(("✗ ", "x "))
    assert "[TFD202]" in out
    assert "line 1:" in out
    assert tfdoctor("-q", str(log))[1].count("\n") <= 3


def test_markdown_is_redacted(log: Path) -> None:
    _, out, _ = tfdoctor("--format", "github", str(log))
    assert "| cause | `libs-wrong-version` |" in out
    assert "/home/user" not in out


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "no file"), (b"\x00\x01\x02\x03" * 500, "not a text"), (b"\x1f\x8bxx", "cannot be unpacked")],
)
def test_what_cannot_be_read_is_a_wrong_request(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "log"
    if content is not None:
        path.write_bytes(content)
    status, out, err = tfdoctor(str(path))
    assert (status, out) == (2, "")
    assert words in err
    status, out, _ = tfdoctor("--json", str(path))
    assert status == 2
    assert json.loads(out)["error"]["code"] == 2


def test_a_folder_is_no_log(tmp_path: Path) -> None:
    status, _, err = tfdoctor(str(tmp_path))
    assert status == 2
    assert "folder" in err


def test_an_empty_log_says_nothing() -> None:
    assert answer(stdin=b"")["verdict"]["cause"] == "inconclusive"
