"""`tfdoctor matrix`: the list of releases, the sheet of a release, and invalid requests."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from compat.every_row import for_each
from tfdoctor.cli.startup import run
from tfdoctor.compat import Compat
from tfdoctor.core.findings import Cause
from tfdoctor.planning import Request, recommend
from tfdoctor.planning.release_sheet import (
    describe_conditions,
    format_python_ranges,
    get_problem_code,
    make_sheet,
)
from tfdoctor.prediction.fit.matrix import MatrixQuery, select_rows
from tfdoctor.prediction.fit.models import Host, HostGpu
from tfdoctor.render.matrix import (
    render_gpus,
    render_markdown_rows,
    render_markdown_sheet,
    render_rows,
    render_sheet,
)
from tfdoctor.rules import ALL_RULES, known_problem

COMPAT = Compat.load()
SCHEMA = json.loads(
    (Path(__file__).resolve().parents[2] / "docs" / "schemas" / "matrix.schema.json").read_bytes()
)
VERSIONS = sorted({row.version for row in COMPAT.releases})


def tfdoctor(monkeypatch: pytest.MonkeyPatch, *args: str) -> int:
    monkeypatch.setattr(sys, "argv", ["tfdoctor", "matrix", *args])
    with pytest.raises(SystemExit) as end:
        run()
    assert isinstance(end.value.code, int)
    return end.value.code


def answer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *args: str) -> Any:
    assert tfdoctor(monkeypatch, *args, "--json") == 0
    out, err = capsys.readouterr()
    assert not err
    data = json.loads(out)
    jsonschema.Draft202012Validator(SCHEMA).validate(data)
    return data


# --- JSON ---


def test_json_has_every_release(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    data = answer(monkeypatch, capsys)
    assert len(data["rows"]) == len(COMPAT.releases)
    assert "install" not in data
    assert all(
        release["required_libraries"] == sorted(release["required_libraries"]) for release in data["rows"]
    )


@pytest.mark.parametrize(
    ("args", "versions"),
    [
        (("--tf", "2.4"), ["2.4.4", "2.4.4"]),
        (("--tf", "1.14", "--cuda", "10"), ["1.14.0"]),
        (("--tf", ">=2.10,<2.13", "--package", "tensorflow", "--python-version", "3.7"), ["2.11.0", "2.10.1", "2.10.0"]),
        (("--cuda", "12.2"), ["2.15.1", "2.15.0.post1", "2.15.0"]),
        (("--cudnn", "8.7"), []),
        (("--tf", "2.14", "--cudnn", "8.6"), ["2.14.1"]),
        (("--tf", ">=2.17", "--gpu", "RTX 5090", "--python-version", "3.9", "--cudnn", "8"), ["2.17.1", "2.17.0"]),
        (("--tf", ">=2.16,<2.17", "--gpu", "3.5"), []),
        (("--driver", "470.82.01", "--cuda", "12"), []),
        (("--tf", "2.10.1", "--windows", "--package", "tensorflow"), ["2.10.1"]),
        (("--tf", "latest"), [COMPAT.newest.version]),
        (("--gpu", "10de:2684", "--cuda", "12.3"), ["2.17.1", "2.17.0", "2.16.2", "2.16.1"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)  # fmt: skip
def test_filters(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    args: tuple[str, ...],
    versions: list[str],
) -> None:
    data = answer(monkeypatch, capsys, *args)
    assert [release["tensorflow"] for release in data["rows"]] == versions


def test_release_has_installation_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = answer(monkeypatch, capsys, "--tf", "2.21")
    (release,) = data["rows"]
    assert (release["tensorflow"], release["cuda"], release["driver_minimum"]["linux"]) == (
        "2.21.0",
        "12.5.1",
        "525.60.13",
    )
    problems = {problem["id"]: problem["code"] for problem in release["known_problems"]}
    assert problems["runpath-without-cusolver"] == "TFD203"
    commands = [command for step in data["install"] for command in step["commands"]]
    assert any("'tensorflow[and-cuda]==2.21.0'" in command for command in commands)
    assert any("libcusolver.so.11" in command for command in commands)


def test_gpu_determines_the_pins(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    p100_answer = answer(monkeypatch, capsys, "--tf", "2.20", "--gpu", "Tesla P100")
    l4_answer = answer(monkeypatch, capsys, "--tf", "2.20", "--gpu", "L4")
    assert "9.11" in json.dumps(p100_answer["install"])
    assert "9.11" not in json.dumps(l4_answer["install"])


def test_list_of_gpus(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    data = answer(monkeypatch, capsys, "--list-gpus")
    assert len(data["gpus"]) == len(COMPAT.gpus)
    assert not data["rows"]


def test_windows(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    releases = answer(monkeypatch, capsys, "--windows", "--cuda", "11")["rows"]
    assert releases[0]["tensorflow"] == "2.10.1"
    assert all(release["gpu_windows"] for release in releases)
    assert tfdoctor(monkeypatch, "--windows", "--tf", ">=2.10,<2.12") == 0
    out = capsys.readouterr().out
    assert "452.39" in out
    assert "450.80.02" not in out
    assert "Without GPU code on Windows: tensorflow 2.11.1" in out
    data = answer(monkeypatch, capsys, "--windows", "--tf", "2.10")
    assert data["install"][0]["commands"][0] == "py -3.10 -m venv tf-env"


# --- wrong requests ---


@pytest.mark.parametrize(
    ("args", "message", "hint"),
    [
        (("--tf", "3.0"), "no TensorFlow 3.0", "The nearest: 2.21.0"),
        (("--tf", "2.4.9"), "2.4.9", "The nearest: 2.4.4, 2.4.3"),
        (("--tf", "1.13.0"), "1.13.0", "1.13.1"),
        (("--tf", ">=3"), ">=3", "2.21.0"),
        (("--tf", "banana"), "`banana` is not a version", "There are 2.21.0"),
        (("--tf", ""), "not a version", "2.21.0"),
        (("--tf", "2.10", "--package", "torch"), "`torch`", "tensorflow and tensorflow-gpu"),
        (("--tf", "2.20", "--package", "tensorflow-gpu"), "tensorflow-gpu 2.20", "`tfdoctor matrix` lists"),
        (("--gpu", "RTX 9999"), "`RTX 9999`", "The nearest: "),
        (("--gpu", ""), "no NVIDIA GPU", "--list-gpus"),
        (("--gpu", "8.6.1"), "--gpu", "--gpu 8.6"),
        (("--cuda", "twelve"), "--cuda", "12.5.1"),
        (("--cudnn", "x"), "--cudnn", "9.3"),
        (("--python-version", "x"), "--python-version", "3.13"),
        (("--driver", "new"), "--driver", "550"),
        (("--format", "markdown", "--json"), "--json and --format markdown", ""),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_invalid_request_lists_the_choices(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    args: tuple[str, ...],
    message: str,
    hint: str,
) -> None:
    assert tfdoctor(monkeypatch, *args) == 2
    out, err = capsys.readouterr()
    if "--json" in args:
        err = out
    else:
        assert not out
    assert message in err
    assert hint in err


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--python-version", "3.6", "--cuda", "12"), "Without --cuda 12: "),
        (("--cuda", "12.9"), "No release has --cuda 12.9. There are 12.5.1"),
        (("--tf", "2.21", "--gpu", "5.0"), "Without --gpu 5.0: 1 release; the newest is tensorflow 2.21.0."),
        (("--tf", "2.3", "--gpu", "GTX 960M"), "Without --gpu 'GTX 960M': "),
        (
            ("--tf", "1.14", "--gpu", "RTX 5090"),
            "CUDA 10.0 supports GPUs up to compute capability 7.5; compute capability 12.0 is newer",
        ),
        (("--tf", "1.14", "--gpu", "RTX 5090"), "tfdoctor recommend --gpu 'RTX 5090'"),
    ],
)
def test_empty_result_suggests_changes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], args: tuple[str, ...], says: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert tfdoctor(monkeypatch, *args) == 0
    text = capsys.readouterr().out
    assert says in " ".join(text.split())
    assert ".." not in text
    assert max(map(len, text.splitlines())) <= 80


def test_decimal_comma_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tfdoctor(monkeypatch, "--gpu", "8,6") == 2
    assert "--gpu 8,6: a compute capability is written with a point." in capsys.readouterr().err
    assert tfdoctor(monkeypatch, "--gpu", "8.6,7.5") == 0


def test_ambiguous_gpu_name_lists_its_capabilities(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tfdoctor(monkeypatch, "--gpu", "GT 730") == 0
    assert "2.1, 3.0 or 3.5" in capsys.readouterr().out


# --- text output ---


@pytest.mark.few(3)
@pytest.mark.parametrize("width", [20, 40, 69, 80, 123, 124, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    for query in (MatrixQuery(), MatrixQuery(capability="8.6"), MatrixQuery(gpu=False)):
        text = render_rows(select_rows(COMPAT, query), as_of=COMPAT.as_of, width=width)
        assert all(len(line) <= width for line in text.splitlines())
    for version in ("1.0.1", "1.12.3", "1.15.2", "2.0.0", "2.10.1", "2.15.0", "2.21.0", "2.22.0rc0"):
        rows = select_rows(COMPAT, MatrixQuery(tf=version))
        text = render_sheet(make_sheet(COMPAT, rows), as_of=COMPAT.as_of, width=width)
        for line in text.splitlines():
            assert len(line) <= width or line.startswith("    "), "only commands are as long as they are"
    assert all(len(line) <= width for line in render_gpus(COMPAT.gpus, width=width).splitlines())


@for_each(VERSIONS)
def test_every_release_has_a_sheet(version: str) -> None:
    rows = select_rows(COMPAT, MatrixQuery(tf=version))
    release_sheet = make_sheet(COMPAT, rows)
    text = render_sheet(release_sheet, as_of=COMPAT.as_of)
    assert text.startswith(f"{release_sheet.main_row.release.package} {version} ")
    assert f"=={version}" in text
    for problem in release_sheet.main_row.problems:
        assert problem.id in {known_problem.id for known_problem in COMPAT.problems}
        assert get_problem_code(problem) in text
    assert release_sheet.main_row.release.gpu or "without GPU code" in text
    assert ("pre-release" in text) is release_sheet.main_row.release.is_prerelease
    markdown = render_markdown_sheet(release_sheet, as_of=COMPAT.as_of)
    assert markdown.startswith(f"# {release_sheet.main_row.release.package} {version}\n")
    assert len(release_sheet.other_rows) + 1 == len(rows)


def test_colour_changes_nothing_but_colour() -> None:
    rows = select_rows(COMPAT, MatrixQuery(tf="2.21"))
    release_sheet = make_sheet(COMPAT, rows)
    coloured = render_sheet(release_sheet, as_of=COMPAT.as_of, colour=True)
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == render_sheet(release_sheet, as_of=COMPAT.as_of)


def test_output_fits_ascii_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    for args in ((), ("--tf", "2.21"), ("--gpu", "GT 730")):
        assert tfdoctor(monkeypatch, *args) == 0
    assert b"TFD203" in raw.getvalue()


def test_markdown_is_one_table() -> None:
    lines = render_markdown_rows(select_rows(COMPAT)).splitlines()
    assert {line.count("|") for line in lines} == {11}
    assert "| 2.21.0 |" in "\n".join(lines)


def test_python_versions_are_abbreviated() -> None:
    assert format_python_ranges(("2.7", "3.5", "3.6", "3.7")) == "2.7, 3.5-3.7"
    assert format_python_ranges(("3.9", "3.10", "3.11")) == "3.9-3.11"
    assert format_python_ranges(()) == ""


# --- codes of problems ---


def test_problems_have_the_codes_of_check() -> None:
    rules = {rule.code: rule for rule in ALL_RULES}
    codes = {problem.id: get_problem_code(problem) for problem in COMPAT.problems}
    assert codes["runpath-without-cusolver"] == codes["runpath-almost-empty"] == "TFD203"
    assert codes["nvml-required"] == "TFD109"
    for problem in COMPAT.problems:
        rule = rules[codes[problem.id]]
        assert problem.cause in {cause.value for cause in rule.causes}
        if not problem.is_reported_by_rules:
            assert rule is known_problem.RULE
        assert "{" not in describe_conditions(problem)


# --- HTML ---


@pytest.mark.parametrize(
    "beside", ["--json", "--format=markdown", "--all", "--windows", "--driver=550", "--tf=2.15"]
)
def test_html_allows_no_filters(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, beside: str
) -> None:
    assert tfdoctor(monkeypatch, "--html", str(tmp_path / "page.html"), beside) == 2
    assert "--html writes all releases" in "".join(capsys.readouterr())
    assert not list(tmp_path.iterdir())


def test_html_replaces_no_file_without_force(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    target = tmp_path / "page.html"
    target.write_text("mine", encoding="utf-8")
    assert tfdoctor(monkeypatch, "--html", str(target)) == 2
    assert "--force" in capsys.readouterr().err
    assert target.read_text(encoding="utf-8") == "mine"


def test_cards_that_are_too_new_for_the_libraries_are_excluded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """CUDA 10.0 has no code for an A100, whatever PTX TensorFlow 1.14 has; CUDA 12 has."""
    assert tfdoctor(monkeypatch, "1.14") == 0
    sheet = " ".join(capsys.readouterr().out.split())
    assert "GPUs compute capability 3.5 to 7.5; newer cards do not work." in sheet
    assert tfdoctor(monkeypatch, "--all") == 0
    table = capsys.readouterr().out
    rows = [line for line in table.splitlines() if line[:1].isdigit()]
    assert next(row for row in rows if row.startswith("1.14.0")).endswith(" 3.5 - 7.0, to 7.5")
    assert next(row for row in rows if row.startswith("2.21.0")).endswith("+")
    assert not any(row.startswith("1.") and row.endswith(("+", "*")) for row in rows)
    assert "to N: up to this one after compiling PTX" in table


@pytest.mark.parametrize("capability", ["3.5", "8.6", "12.0"])
def test_sheet_installs_nothing_that_the_planner_refuses_for_the_card(capability: str) -> None:
    compat, host = Compat.load(), Host(cards=(HostGpu("the card", capability),))
    refused = 0
    for version in sorted({release.version for release in compat.releases if release.gpu}):
        plan = recommend(compat, Request(tensorflow=version), host, with_suggestions=False)
        causes = {reason.cause for reason in plan.conflict.reasons} if plan.conflict is not None else set()
        if not causes & {Cause.GPU_TOO_NEW, Cause.GPU_TOO_OLD}:
            continue
        refused += 1
        sheet = make_sheet(compat, select_rows(compat, MatrixQuery(tf=version)), capabilities=[capability])
        assert [remedy.commands for remedy in sheet.remedies] == [(f"tfdoctor recommend --gpu {capability}",)]
    assert refused
