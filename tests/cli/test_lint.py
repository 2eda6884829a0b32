"""`tfdoctor lint` as it is typed; the hook for pre-commit and the action for GitHub."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import textwrap
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml

from cli.planner import Ended, Tfdoctor, is_clean, validate
from tfdoctor.explain import MEMORY_CODE

ROOT = Path(__file__).resolve().parents[2]
BAD = 'import os\nos.environ["CUDA_VISIBLE_DEVIES"] = "0"\n'
GOOD = BAD.replace("DEVIES", "DEVICES")


class Lint:
    """`tfdoctor lint` in a folder, in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._called = monkeypatch, Tfdoctor(monkeypatch, capsys)
        for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
            monkeypatch.delenv(name, raising=False)

    def __call__(self, *args: str, cwd: Path) -> Ended:
        self._monkeypatch.chdir(cwd)
        return self._called("lint", *args)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Lint:
    return Lint(monkeypatch, capsys)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text(BAD)
    (tmp_path / "src" / "b.py").write_text(GOOD)
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "c.py").write_text(BAD)
    (tmp_path / "run").write_text("#!/bin/sh\nexport CUDA_VISIBLE_DEVIES=0\n")
    (tmp_path / "notes.txt").write_text("export CUDA_VISIBLE_DEVIES=0\n")
    return tmp_path


def test_the_screen(run: Lint, project: Path) -> None:
    done = run("src", cwd=project)
    assert done.status == 1
    assert done.err == ""
    assert is_clean(done.out)
    lines = done.out.splitlines()
    assert lines[0].startswith("src/a.py:2:12: TFD711 misspelt-variable: ")
    assert lines[1:3] == ['  2 | os.environ["CUDA_VISIBLE_DEVIES"] = "0"', f"    | {' ' * 11}^"]
    assert lines[-1].startswith("1 finding in 2 files. --fix corrects it.")
    clean = run("src/b.py", cwd=project)
    assert (clean.status, clean.out) == (0, "No problems found in 1 file.\n")


def test_json(run: Lint, project: Path) -> None:
    done = run(".", "--json", cwd=project)
    answer = json.loads(done.out)
    validate(answer, "lint")
    assert answer["files"] == 3
    assert [(one["path"], one["line"]) for one in answer["findings"]] == [("run", 2), ("src/a.py", 2)]
    assert json.loads(run(".", "--format", "json", cwd=project).out) == answer


def test_formats_of_servers(run: Lint, project: Path) -> None:
    (project / "a,b%.py").write_text(BAD)
    github = run("a,b%.py", "--format", "github", cwd=project).out
    assert github.startswith(
        "::error file=a%2Cb%25.py,line=2,col=12,title=TFD711 misspelt-variable::Nothing reads"
    )
    sarif = json.loads(run("src", "--format", "sarif", cwd=project).out)
    assert sarif["version"] == "2.1.0"
    (result,) = sarif["runs"][0]["results"]
    assert result["ruleId"] == "TFD711"
    place = result["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "src/a.py"}, "region": {"startLine": 2, "startColumn": 12}}
    for where, failures in (("src", "1"), ("src/b.py", "0")):
        root = ET.fromstring(run(where, "--format", "junit", cwd=project).out)  # noqa: S314 - ours
        assert root.get("failures") == failures
        assert len(list(root.iter("testcase"))) == 1


def test_diff_changes_nothing_and_fix_what_is_certain(run: Lint, project: Path) -> None:
    file = project / "src" / "a.py"
    shown = run("--diff", "src", cwd=project)
    assert (
        '-os.environ["CUDA_VISIBLE_DEVIES"] = "0"\n+os.environ["CUDA_VISIBLE_DEVICES"] = "0"\n' in shown.out
    )
    assert (shown.status, file.read_text()) == (1, BAD)
    done = run("--fix", "src", cwd=project)
    assert done.out == f"{shown.out}No problems found in 2 files.\n"
    assert (done.status, file.read_text()) == (0, GOOD)


def test_a_fix_keeps_the_encoding_and_the_ends_of_lines(run: Lint, tmp_path: Path) -> None:
    for name, data in (
        ("latin.py", b"# -*- coding: latin-1 -*-\r\n# \xe9\r\n" + BAD.replace("\n", "\r\n").encode()),
        ("bom.py", b"\xef\xbb\xbf" + BAD.encode()),
    ):
        (tmp_path / name).write_bytes(data)
        assert run("--fix", name, cwd=tmp_path).status == 0
        assert (tmp_path / name).read_bytes() == data.replace(b"DEVIES", b"DEVICES")


@pytest.mark.parametrize(
    ("table", "status"),
    [
        ('ignore = ["TFD711"]', 0),
        ('ignore = ["misspelt-variable"]', 0),
        ('select = ["removed-api"]', 0),
        ('exclude = ["src/a.py", "run"]', 0),
        ('exclude = ["src"]', 1),
        ('per-file-ignores = { "src/*" = ["TFD711"], "run" = ["TFD711"] }', 0),
        ("gpus = 3", 1),
    ],
)
def test_settings(run: Lint, project: Path, table: str, status: int) -> None:
    (project / "pyproject.toml").write_text(f"[tool.tfdoctor]\n{table}\n")
    assert run(".", cwd=project).status == status


def test_the_release_and_the_gpus_come_from_options_before_settings(run: Lint, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.tfdoctor]\ntf = "1.15"\ngpus = 1\n')
    (tmp_path / "a.py").write_text(
        "import tensorflow as tf\ntf.Session()\nwith tf.device('/gpu:1'):\n    pass\n"
    )

    def names(*args: str) -> list[str]:
        return [one["name"] for one in run("a.py", "--json", *args, cwd=tmp_path).json["findings"]]

    assert names() == ["no-such-device"]
    assert names("--tf", "2.16") == ["removed-api", "no-such-device"]
    assert names("--gpus", "2") == []


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("none",), "there is no file or folder"),
        (("--tf", "banana", "."), "not a release"),
        (("--json", "--format", "sarif", "."), "exclude each other"),
        (("bad",), "unknown key `ingore`, did you mean `ignore`?"),
        (("worse",), "cannot be read"),
    ],
)
def test_wrong_requests(run: Lint, tmp_path: Path, args: tuple[str, ...], words: str) -> None:
    for folder, text in (("bad", "[tool.tfdoctor]\ningore = []\n"), ("worse", "[tool.")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "pyproject.toml").write_text(text)
    done = run(*args, cwd=tmp_path)
    assert done.status == 2
    assert words in done.err + done.out
    assert "Traceback" not in done.err


def test_what_cannot_be_read_is_named(run: Lint, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"\0\0")
    (tmp_path / "b.ipynb").write_text("{")
    (tmp_path / "c.py").symlink_to("nowhere")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "loop").symlink_to(tmp_path)
    done = run(".", "--json", cwd=tmp_path)
    answer = json.loads(done.out)
    validate(answer, "lint")
    assert done.status == 0
    assert [one["path"] for one in answer["unreadable"]] == ["a.py", "b.ipynb", "c.py"]
    assert "3 could not be read completely" in run(".", cwd=tmp_path).out


def test_names_cannot_reach_the_terminal(run: Lint, tmp_path: Path) -> None:
    (tmp_path / "a\x1b[31m\n.py").write_text(BAD)
    for form in ("text", "github", "junit", "sarif"):
        done = run(".", "--format", form, cwd=tmp_path)
        assert is_clean(done.out), form
        assert done.status == 1


def test_the_hook(project: Path) -> None:
    """As pre-commit calls it: the entry, then the files that changed."""
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    assert hook["language"] == "python"
    program, *words = hook["entry"].split()
    assert program == "tfdoctor"
    for name, status in (("src/a.py", 1), ("src/b.py", 0)):
        command = [sys.executable, "-m", program, *words, name, "run" if status else "src/b.py"]
        assert (
            subprocess.run(command, cwd=project, capture_output=True, check=False, timeout=60).returncode
            == status
        )


@pytest.mark.skipif(sys.platform == "win32", reason="the action runs bash")
def test_the_action(project: Path) -> None:
    """Its last step, as GitHub runs it; the one before installs this checkout."""
    action = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
    install, lint = action["runs"]["steps"]
    assert "$GITHUB_ACTION_PATH" in install["run"]
    assert "${{" not in install["run"] + lint["run"], "what is given goes through the environment"
    folder = project / "temp" / "tfdoctor" / "bin"
    folder.mkdir(parents=True)
    (folder / "tfdoctor").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tfdoctor "$@"\n')
    (folder / "tfdoctor").chmod(0o755)
    inputs = {name: one["default"] for name, one in action["inputs"].items()}
    given = {f"LINT_{name.upper()}": value for name, value in inputs.items()}
    assert set(lint["env"]) == set(given)
    (project / "a b.py").write_text(BAD)
    for more, status, count in (
        ({}, 1, 3),
        ({"LINT_PATHS": "src/b.py\na b.py\n"}, 1, 1),
        ({"LINT_PATHS": "src/b.py", "LINT_TF": "2.16", "LINT_GPUS": "1"}, 0, 0),
    ):
        env = {**os.environ, **given, **more, "RUNNER_TEMP": str(project / "temp")}
        done = subprocess.run(
            [shutil.which("bash") or "", "-e", "-o", "pipefail", "-c", lint["run"]],
            cwd=project,
            env=env,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert (done.returncode, done.stdout.count("::error ")) == (status, count), done.stderr


@pytest.mark.parametrize(("era", "release"), [("2", "2.20"), ("1", "1.15")])
def test_the_page_on_memory_has_code_of_that_tensorflow(
    run: Lint, tmp_path: Path, era: str, release: str
) -> None:
    """By the names that these releases have."""
    below = MEMORY_CODE.partition(f"TensorFlow {era}")[2].splitlines()[1:]
    lines = "\n".join(itertools.takewhile(lambda line: line.startswith("    "), below))
    (tmp_path / "limits.py").write_text(f"import tensorflow as tf\n\n{textwrap.dedent(lines)}\n")
    done = run("limits.py", "--tf", release, cwd=tmp_path)
    assert (done.status, done.err) == (0, ""), done.out
    assert lines.count("tf.") >= 2
    if era == "1":
        assert "TFD" in run("limits.py", "--tf", "2.20", cwd=tmp_path).out
