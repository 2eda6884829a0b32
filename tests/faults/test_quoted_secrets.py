"""Passwords are removed from quoted values, and no line of a file that the user did not name is quoted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cli.planner import Tfdoctor

if TYPE_CHECKING:
    from pathlib import Path

INSTALL = ["install", "--dry-run", "--tf", "2.20", "--into", "new"]
BUILD = ["build", "--dry-run", "--tf", "2.20"]


@pytest.fixture
def tfdoctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Tfdoctor:
    monkeypatch.chdir(tmp_path)
    return Tfdoctor(monkeypatch, capsys)


@pytest.mark.parametrize(
    "words",
    [
        [*BUILD, "--no-such-option", "http://u:hunter2@h"],
        [*BUILD, "--proxy", "u:hunter2@p:3128"],
        [*BUILD, "--registry", "u:hunter2@h"],
        [*BUILD, "--registry", "http://u:a@hunter2@h"],
        [*BUILD, "--registry", "http://u:a hunter2@h"],
        [*BUILD, "--registry", "http://u:it's hunter2@h"],
        [*BUILD, "--registry", "x@h?token=hunter2"],
        ["diagnose", "http://u:a@hunter2@h"],
        ["check", "--python", "http://u:a' hunter2@h"],
        [*BUILD, "--base", "u:hunter2@h/x:1"],
        [*BUILD, "--index", "http://u:hun/ter2@h"],
        [*BUILD, "--tag", "https://u:hunter2@h/x"],
        [*INSTALL, "--package", "x @ http://u:hunter2@h/x.whl"],
        [*INSTALL, "--index", "ftp://u:hunter2@h/x"],
        ["verify", "https://u:hunter2@h/x"],
        ["fleet", "run", "x", "--ssh", "u:hunter2@h"],
        ["lint", "https://u:hunter2@h/x"],
        ["check", "--from", "https://u:hunter2@h/x"],
    ],
)
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_refused_values_are_quoted_without_passwords(
    tfdoctor: Tfdoctor, words: list[str], form: list[str]
) -> None:
    result = tfdoctor(*words, *form)
    assert result.status in (2, 3)
    assert result.err + result.out
    assert "hunter2" not in result.err + result.out
    assert "hun/ter2" not in result.err + result.out


@pytest.mark.parametrize(
    "line",
    ["--extra-index-url https://u:hunter2@h/simple", "--proxy http://u:hunter2@p", "git+ssh://u:hunter2@h/x"],
)
def test_refused_lines_are_quoted_without_passwords(tfdoctor: Tfdoctor, tmp_path: Path, line: str) -> None:
    (tmp_path / "r.txt").write_text(f"{line}\n")
    result = tfdoctor(*INSTALL, "-r", "r.txt")
    assert (result.status, "line 1" in result.err, "hunter2" in result.err) == (2, True, False)


@pytest.mark.parametrize("option", ["-r", "-c", "--requirement="])
def test_lines_of_files_outside_the_folder_are_not_quoted(
    tfdoctor: Tfdoctor, tmp_path: Path, option: str
) -> None:
    (tmp_path / "shadow").write_text("root:*:20228:0\n")
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "r.txt").write_text(f"{option} ../shadow\n")
    (tmp_path / "project" / "own.txt").write_text("-r more.txt\n")
    (tmp_path / "project" / "more.txt").write_text("root:*:20228:0\n")
    (tmp_path / "project" / "link.txt").symlink_to("../shadow")
    (tmp_path / "project" / "linked.txt").write_text("-r link.txt\n")
    for name, quoted in (("r.txt", False), ("own.txt", True), ("linked.txt", False)):
        result = tfdoctor(*INSTALL, "-r", f"project/{name}")
        assert (result.status, "line 1" in result.err, "20228" in result.err) == (2, True, quoted), result.err
