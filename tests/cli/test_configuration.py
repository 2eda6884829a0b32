"""Settings of a project: `tfdoctor.toml` and [tool.tfdoctor] in pyproject.toml, for `check` and `lint`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from cli.planner import Tfdoctor, validate
from tfdoctor.cli.configuration import load_configuration
from tfdoctor.cli.options import FailOn
from tfdoctor.core.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

DEMO = ("check", "--from", "demo:plain-pip-install")


@pytest.fixture
def tfdoctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Tfdoctor:
    monkeypatch.chdir(tmp_path)
    return Tfdoctor(monkeypatch, capsys)


def test_ignored_findings_do_not_count_and_are_named(tfdoctor: Tfdoctor) -> None:
    assert tfdoctor(*DEMO).status == 1
    result = tfdoctor(*DEMO, "--ignore", "tfd201")
    assert result.status == 0
    assert "will not use the GPU" in result.out
    assert "[TFD201]" not in result.out
    assert result.out.endswith("Settings: the command line; ignored TFD201\n")
    document = tfdoctor(*DEMO, "--ignore", "TFD112,TFD201", "--json").json
    validate(document, "check")
    assert document["findings"] == []
    assert [finding["code"] for finding in document["ignored"]] == ["TFD201"]
    assert document["verdict"]["gpu_usable"] is False
    assert "there is no finding TFD1" in tfdoctor(*DEMO, "--ignore", "TFD1").err


@pytest.mark.parametrize("name", ["tfdoctor.toml", "pyproject.toml"])
def test_nearest_file_applies(tfdoctor: Tfdoctor, tmp_path: Path, name: str) -> None:
    header = "" if name == "tfdoctor.toml" else "[tool.tfdoctor]\n"
    (tmp_path / name).write_text(f'{header}ignore = ["TFD201", "hard-coded-devices"]\n')
    (tmp_path / "sub").mkdir()
    os.chdir(tmp_path / "sub")
    result = tfdoctor(*DEMO)
    assert result.status == 0
    assert result.out.splitlines()[-1] == f"Settings: ../{name}; ignored TFD201"
    assert tfdoctor(*DEMO, "--json").json["settings_file"] == str(tmp_path / name)
    (tmp_path / "sub" / "pyproject.toml").write_text("[project]\n")  # another project
    assert tfdoctor(*DEMO).status == 1


def test_fail_on_of_the_command_line_precedes_that_of_the_file(tfdoctor: Tfdoctor, tmp_path: Path) -> None:
    (tmp_path / "tfdoctor.toml").write_text('fail-on = "never"\n')
    result = tfdoctor(*DEMO)
    assert (result.status, result.out.splitlines()[-1]) == (0, "Settings: tfdoctor.toml; --fail-on never")
    assert tfdoctor(*DEMO, "--fail-on", "error").status == 1


def make_python(path: Path, mark: Path) -> None:
    """Write an executable that leaves a mark when it runs."""
    path.parent.mkdir(parents=True)
    path.write_text(f'#!/bin/sh\ntouch {mark}\nexec {sys.executable} "$@"\n')
    path.chmod(0o755)


def test_path_in_a_file_is_named_and_not_run(tfdoctor: Tfdoctor, tmp_path: Path) -> None:
    make_python(tmp_path / ".venv" / "bin" / "python", tmp_path / "ran")
    for path in (".venv", "./.venv/bin/python", str(tmp_path / ".venv")):
        (tmp_path / "tfdoctor.toml").write_text(f'python = "{path}"\n')
        text = " ".join(tfdoctor("check").out.split())
        assert "It names a Python, which a file cannot start: `tfdoctor check --python .venv" in text
    assert not (tmp_path / "ran").exists()


def test_bare_name_is_searched_on_path(
    tfdoctor: Tfdoctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_python(tmp_path / "elsewhere" / "python3.77", tmp_path / "ran")
    make_python(tmp_path / "here" / "python3.77", tmp_path / "wrong")
    (tmp_path / "here" / "tfdoctor.toml").write_text('python = "python3.77"\n')
    os.chdir(tmp_path / "here")
    monkeypatch.setenv("PATH", f":.:{tmp_path / 'elsewhere'}:{os.environ['PATH']}")
    text = " ".join(tfdoctor("check").out.split())
    assert "Settings: tfdoctor.toml; --python python3.77" in text
    assert (tmp_path / "ran").exists(), text
    assert not (tmp_path / "wrong").exists(), "the working folder is not on PATH"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('ignore = ["TFD999"]', "line 1: `ignore`: there is no finding TFD999."),
        ('\n\nignore = "TFD201"', "line 3: `ignore` takes a list of codes"),
        ("ignore = [1]", "line 1: `ignore` takes a list"),
        ('tf = "2.16"\nfail-on = "errors"', 'line 2: `fail-on` takes "error", "warning" or "never"'),
        ("fail-on = [1]", "line 1: `fail-on` takes"),
        ("python = 3.11", "line 1: `python` takes a name or a path in quotes"),
        ('python = "a\\u0007"', "line 1: `python` takes"),
        ('fial-on = "error"', "line 1: unknown key `fial-on`; did you mean `fail-on`?"),
        ("[check]\nx = 1", "line 1: unknown key `check`; there are python, ignore"),
        ("ignore =", "not valid TOML"),
    ],
)
def test_invalid_settings_are_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "tfdoctor.toml").write_text(f"{text}\n")
    with pytest.raises(UsageError) as error:
        load_configuration(tmp_path)
    assert error.value.message.startswith(f"{tmp_path}/tfdoctor.toml")
    assert message in error.value.message


def test_files_that_are_no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").write_text("[project\n")  # broken, and without our table
    os.mkfifo(tmp_path / "tfdoctor.toml")
    assert load_configuration(tmp_path) is None
    (tmp_path / "tfdoctor.toml").unlink()
    (tmp_path / "tfdoctor.toml").write_text('fail-on = "never"\n')
    configuration = load_configuration(tmp_path)
    assert configuration is not None
    assert configuration.fail_on is FailOn.never
    if os.geteuid() == 0:
        os.chown(tmp_path / "tfdoctor.toml", 12345, 12345)
        assert load_configuration(tmp_path) is None, "another user's file"
        os.chown(tmp_path, 12345, 12345)
        assert load_configuration(tmp_path) is not None, "a checkout of another user"


def test_lint_reads_the_same_file(tfdoctor: Tfdoctor, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os\nos.environ['CUDA_VISIBLE_DEVIES'] = '0'\n")
    assert tfdoctor("lint", "train.py").status == 1
    (tmp_path / "tfdoctor.toml").write_text(
        'python = "python3"\nfail-on = "never"\nignore = ["TFD201", "misspelt-variable"]\n'
    )
    assert tfdoctor("lint", "train.py").status == 0
    (tmp_path / "tfdoctor.toml").write_text('ignore = ["TFD201"]\ntf = 2\n')
    result = tfdoctor("lint", "train.py")
    assert (result.status, "tfdoctor.toml, line 2: `tf` takes a release" in result.err) == (2, True)
