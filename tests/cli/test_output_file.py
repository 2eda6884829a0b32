"""`-o FILE` of each command that has `--format`: the file gets what the terminal would show."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cli.planner import Tfdoctor
from tfdoctor.cli.commands import CORE_COMMANDS, load_command

if TYPE_CHECKING:
    from pathlib import Path

LOG = "Could not load dynamic library 'libcudart.so.11.0'; dlerror: no such file\n"
LINES = (
    ("diagnose", "train.log"),
    ("diagnose", "train.log", "--json"),
    ("diagnose", "train.log", "--format", "markdown"),
    ("diagnose", "--placement", "train.log"),
    ("matrix", "2.20"),
    ("matrix", "2.20", "--json"),
    ("matrix", "--list-gpus"),
    ("lint", "train.py"),
    ("lint", "train.py", "--format", "sarif"),
)


@pytest.fixture
def tfdoctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Tfdoctor:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.log").write_text(LOG)
    (tmp_path / "train.py").write_text("import os\nos.environ['CUDA_VISIBLE_DEVIES'] = '0'\n")
    return Tfdoctor(monkeypatch, capsys)


@pytest.mark.parametrize("words", LINES, ids=" ".join)
def test_file_has_the_output(tfdoctor: Tfdoctor, tmp_path: Path, words: tuple[str, ...]) -> None:
    printed = tfdoctor(*words)
    assert printed.out
    written = tfdoctor(*words, "-o", "result")
    assert (written.status, written.out) == (printed.status, "")
    assert (tmp_path / "result").read_text(encoding="utf-8") == printed.out
    again = tfdoctor(*words, "-o", "result")
    assert (again.status, "result exists" in again.out + again.err) == (2, True)
    assert tfdoctor(*words, "-o", "result", "--force").status == printed.status
    assert tfdoctor(*words, "-o", "-").out == printed.out


@pytest.mark.parametrize("words", [("diagnose", "train.log"), ("matrix", "2.20")], ids=" ".join)
def test_two_options_do_not_write_one_file(
    tfdoctor: Tfdoctor, tmp_path: Path, words: tuple[str, ...]
) -> None:
    result = tfdoctor(*words, "-o", "page", "--html", str(tmp_path / "page"), "--force")
    assert (result.status, "also the file of another option" in result.err) == (2, True)
    assert not (tmp_path / "page").exists()


@pytest.mark.parametrize("words", [("diagnose", "train.log"), ("lint", "train.py")], ids=" ".join)
def test_input_is_not_replaced(tfdoctor: Tfdoctor, tmp_path: Path, words: tuple[str, ...]) -> None:
    before = (tmp_path / words[-1]).read_text()
    result = tfdoctor(*words, "-o", words[-1], "--force")
    assert (result.status, "is what this command reads" in result.err) == (2, True)
    assert (tmp_path / words[-1]).read_text() == before


def test_error_writes_no_file(tfdoctor: Tfdoctor, tmp_path: Path) -> None:
    result = tfdoctor("matrix", "9.9", "--json", "-o", "result")
    assert result.status == 2
    assert "no TensorFlow 9.9 is known" in result.out, "the error, as JSON"
    assert not (tmp_path / "result").exists()
    assert "cannot be combined" in tfdoctor("lint", "train.py", "--diff", "-o", "result").err


def test_every_command_with_a_format_has_the_option() -> None:
    for name in ("lint", *CORE_COMMANDS):
        annotations = getattr(load_command(name), "__annotations__", {})
        assert ("output" in annotations) >= ("output_format" in annotations), name
