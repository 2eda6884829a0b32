"""The TensorFlow and the Python that `install` chooses, and the errors if there is none."""

from __future__ import annotations

import dataclasses
import functools
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from rules.make_facts import healthy
from tfdoctor.compat import Compat
from tfdoctor.core.errors import Error, UsageError
from tfdoctor.environments import selection
from tfdoctor.environments.install import NoLockError
from tfdoctor.environments.interpreters import Interpreter
from tfdoctor.environments.requirements import RequirementSet, read_requirement_files
from tfdoctor.environments.selection import (
    InstallOptions,
    PlanChoice,
    _make_python_error,
    _make_venv_error,
    _matches_version,
    _parse_python_option,
    _suggest_newer,
    _to_specifier,
    choose_plan,
    make_install_request,
)
from tfdoctor.prediction.fit.models import Host

if TYPE_CHECKING:
    from pathlib import Path

    from tfdoctor.system import System

COMPAT = Compat.load()
UV = "/bin/uv"


def make_options(text: str = "", tensorflow: str | None = None, folder: Path | None = None) -> InstallOptions:
    """Return options with a requirements file of this text."""
    requirement_set = RequirementSet()
    if folder is not None:
        path = folder / ("pyproject.toml" if text.startswith("[") else "r.txt")
        path.write_text(text)
        requirement_set = read_requirement_files([path], lambda file: file.read_text())
    return InstallOptions(COMPAT, tensorflow, (), requirement_set)


def make_interpreter(version: str, *, venv: bool = True, path: str = "") -> Interpreter:
    return Interpreter(path or f"/usr/bin/python{version}", version, "/usr", venv)


@functools.cache
def machine(distribution: str | None = "ubuntu", version: str | None = "22.04", *, root: bool = False) -> Any:
    facts = healthy().machine
    like = ("debian",) if distribution == "ubuntu" else ()
    return dataclasses.replace(
        facts, distribution_id=distribution, distribution_version=version, distribution_like=like, root=root
    )


def choose(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    *interpreters: Interpreter,
    options: InstallOptions | None = None,
    python: str | None = None,
    uv: str | None = None,
) -> PlanChoice:
    monkeypatch.setattr(selection, "find_interpreters", lambda _: interpreters)
    monkeypatch.setattr(
        selection,
        "query_interpreter",
        lambda path, _: next((i for i in interpreters if i.path == path), None),
    )
    choice = choose_plan(
        options or make_options(tensorflow="2.15"),
        python,
        Host(),
        folder,
        uv=uv,
        system=cast("System", None),
        machine=machine(),
    )
    assert isinstance(choice, PlanChoice)
    return choice


def test_best_interpreter_is_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pythons = [make_interpreter(version) for version in ("3.10.4", "3.11.9", "3.11.2", "3.12.1")]
    chosen = choose(monkeypatch, tmp_path, *pythons)
    assert (chosen.base_python, chosen.python_version, chosen.notes) == (
        "/usr/bin/python3.10.4",
        "3.10.4",
        (),
    )
    assert choose(monkeypatch, tmp_path, *pythons[1:]).python_version == "3.11.9"
    assert choose(monkeypatch, tmp_path, pythons[3], pythons[0], pythons[1]).python_version == "3.11.9"
    assert choose(monkeypatch, tmp_path, *pythons, python="3.11").python_version == "3.11.9"
    assert choose(monkeypatch, tmp_path, *pythons, python="3.11.2").python_version == "3.11.2"
    inside = make_interpreter("3.11.9", path=str(tmp_path / "bin/python"))
    assert choose(monkeypatch, tmp_path, inside, pythons[0]).python_version == "3.10.4"
    latest = choose(monkeypatch, tmp_path, pythons[0], options=make_options(tensorflow="latest"), uv=UV)
    assert latest.option.tensorflow == COMPAT.newest.version


def test_interpreter_without_venv_needs_uv(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bare, whole = make_interpreter("3.11.9", venv=False), make_interpreter("3.10.4")
    assert choose(monkeypatch, tmp_path, bare, whole).python_version == "3.10.4"
    assert choose(monkeypatch, tmp_path, bare, whole, uv=UV).python_version == "3.11.9"
    with pytest.raises(Error, match="it lacks ensurepip") as error:
        choose(monkeypatch, tmp_path, bare)
    assert error.value.hint == "sudo apt-get install python3.11-venv, or get uv (pipx install uv)."
    hint = _make_venv_error(bare, machine("fedora", "40")).hint
    assert hint == "Install its venv package, or get uv (pipx install uv)."


def test_missing_python_is_fetched_by_uv(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    chosen = choose(monkeypatch, tmp_path, uv=UV)
    assert chosen.base_python == chosen.python_version == chosen.option.python
    assert chosen.notes == (f"No Python {chosen.option.python} is here: uv fetches one.",)
    chosen = choose(monkeypatch, tmp_path, make_interpreter("3.11.9"), python="3.11.2", uv=UV)
    assert (chosen.base_python, chosen.notes) == ("3.11.2", ("No Python 3.11.2 is here: uv fetches one.",))
    with pytest.raises(Error, match=r"No Python 3\.11\.2 is here\."):
        choose(monkeypatch, tmp_path, make_interpreter("3.11.9"), python="3.11.2")
    with pytest.raises(Error, match=r"needs Python 3\.11 or 3\.10 or 3\.9, and none is here"):
        choose(monkeypatch, tmp_path)


def test_named_interpreter_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    named = make_interpreter("3.10.4", path=str(tmp_path / "bin/python"))
    (tmp_path / "bin").mkdir()
    for text in (str(tmp_path), str(tmp_path / "bin/python")):
        chosen = choose(monkeypatch, tmp_path / "env", make_interpreter("3.11.9"), named, python=text)
        assert chosen.base_python == named.path
    for text in (str(tmp_path / "other"), "./none"):
        with pytest.raises(UsageError, match="is no Python 3"):
            choose(monkeypatch, tmp_path, python=text)
    with pytest.raises(UsageError, match="neither a version nor a path"):
        choose(monkeypatch, tmp_path, python="python4")
    assert _parse_python_option(None, cast("System", None)) == (None, None)
    assert _parse_python_option("3.9", cast("System", None)) == ("3.9", None)


def test_files_restrict_the_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    project = "[project]\nrequires-python = '>=3.10,<3.11'\ndependencies = ['tensorflow==2.15.*']\n"
    options = make_options(project, folder=tmp_path)
    pythons = [make_interpreter("3.11.9"), make_interpreter("3.10.4")]
    assert choose(monkeypatch, tmp_path, *pythons, options=options).python_version == "3.10.4"
    with pytest.raises(UsageError, match=r"--python-version 3\.11 and .*\(python<3.11,>=3.10\) contradict"):
        choose(monkeypatch, tmp_path, *pythons, options=options, python="3.11")
    never = make_options(project.replace(">=3.10,<3.11", "<2"), folder=tmp_path)
    with pytest.raises(UsageError, match=r"\(python<2\): TensorFlow has no wheels for this Python"):
        choose(monkeypatch, tmp_path, *pythons, options=never)
    markers = make_options('tensorflow==2.15.*; python_version < "3.11"\n', folder=tmp_path)
    assert markers.depends_on_python
    assert choose(monkeypatch, tmp_path, *pythons, options=markers).python_version == "3.10.4"
    with pytest.raises(UsageError, match=r"on Python 3\.11 these files want no TensorFlow"):
        markers.make_request("3.11")
    assert markers.make_request(None).tensorflow is None
    assert dataclasses.replace(markers, tensorflow_option="2.16").make_request("3.11").tensorflow == "2.16"
    wrong = make_options(
        'tensorflow==99; python_version < "3.11"\ntensorflow==98; python_version >= "3.11"', folder=tmp_path
    )
    with pytest.raises(UsageError, match="no known TensorFlow meets this requirement"):
        choose(monkeypatch, tmp_path, *pythons, options=wrong)


@pytest.mark.parametrize(
    ("lines", "option", "specifier"),
    [
        ("", "2.15", "2.15"),
        ("tensorflow", "2.15", "2.15"),
        ("tensorflow", None, None),
        ("tensorflow>=2.14", None, ">=2.14"),
        ("tensorflow>=2.14\ntensorflow<2.16\ntensorflow>=2.14", None, ">=2.14,<2.16"),
        ("tensorflow>=2.14", "2.15", "==2.15.*,>=2.14"),
        ("tensorflow>=2.14", "latest", f"=={COMPAT.newest.version},>=2.14"),
        ("tensorflow>=2.14", "not a version", "not a version"),
        ("tensorflow>=2.14", "==99", "==99"),
    ],
)
def test_option_and_files_are_combined(
    tmp_path: Path, lines: str, option: str | None, specifier: str | None
) -> None:
    assert make_options(lines, option, tmp_path).make_request("3.11").tensorflow == specifier


def test_contradictions_are_named(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"--tf 2\.12 and .*line 1 \(tensorflow>=2\.14\) contradict each other"
    ):
        make_options("tensorflow>=2.14", "2.12", tmp_path).make_request("3.11")
    with pytest.raises(
        UsageError, match=r"line 1 \(tensorflow>=99\) and .*line 2 \(tensorflow<98\): no known"
    ):
        make_options("tensorflow>=99\ntensorflow<98", None, tmp_path).make_request("3.11")


def test_values_of_the_tf_option() -> None:
    cases = {
        "2": "==2.*",
        " 2.15 ": "==2.15.*",
        "2.15.1": "==2.15.1",
        ">=2.15": ">=2.15",
        "~=2.15": "~=2.15",
        "LATEST": f"=={COMPAT.newest.version}",
    }
    assert {text: _to_specifier(text, COMPAT) for text in cases} == cases
    assert [_matches_version(version, "3.1") for version in ("3.1", "3.1.4", "3.11")] == [True, True, False]


def test_newer_tensorflow_is_mentioned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    chosen = choose(monkeypatch, tmp_path, make_interpreter("3.8.1"), options=make_options())
    assert chosen.option.tensorflow.startswith("2.13.")
    (note,) = chosen.notes
    assert f"TensorFlow {COMPAT.newest.version} is newer; it needs another Python" in note
    recommendation = cast("Any", SimpleNamespace(options=[chosen.option]))
    assert _suggest_newer(recommendation, chosen.option) == ()


@pytest.mark.parametrize(
    ("where", "version", "hint"),
    [
        (("ubuntu", "22.04"), None, "sudo apt-get install python3.10 python3.10-venv, or get uv"),
        (("ubuntu", "22.04"), "3.10.4", "sudo apt-get install python3.10 python3.10-venv, or get uv"),
        (("ubuntu", "22.04"), "3.9", "get uv (pipx install uv): the same command then fetches one."),
        (("fedora", "40"), None, "sudo dnf install python3.11, or get uv"),
        (("fedora", "40"), "3.9.1", "sudo dnf install python3.9, or get uv"),
        ((None, None), None, "get uv (pipx install uv): the same command then fetches one."),
    ],
)
def test_hint_for_a_missing_python(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    where: tuple[str | None, str | None],
    version: str | None,
    hint: str,
) -> None:
    option = choose(monkeypatch, tmp_path, make_interpreter("3.11.9")).option
    assert _make_python_error(option, version, machine(*where)).hint.startswith(hint)
    as_root = _make_python_error(option, version, machine(*where, root=True)).hint
    assert as_root.startswith(hint.removeprefix("sudo "))


def test_request_contains_the_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lines = "numpy<2\nnvidia-cudnn-cu12==1.0\ntensorflow-gpu==2.15.*\n-c limits.txt\n"
    (tmp_path / "limits.txt").write_text("scipy<2\nnvidia-cudnn-cu12==2.0\n")
    options = dataclasses.replace(make_options(lines, folder=tmp_path), packages=("rich",))
    choice = choose(monkeypatch, tmp_path, make_interpreter("3.11.9"), options=options)
    choice = dataclasses.replace(choice, notes=("first",))
    request, notes = make_install_request(
        choice, options, tmp_path / "env", uv=UV, index="https://i.example", env={"A": "1"}
    )
    assert request.requirements == ("numpy<2", "rich")
    assert request.constraints == ("scipy<2",)
    assert (request.index_url, request.uv_path, request.env) == ("https://i.example", UV, {"A": "1"})
    assert notes[0] == "first"
    assert "tensorflow-gpu is taken as tensorflow" in notes[1]
    assert "nvidia-cudnn-cu12==1.0" in notes[2]
    assert len(notes) == 3


def test_release_without_a_lock_is_skipped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = selection.get_lock_files

    def get_lock_files(option: Any) -> Any:
        if option.python == "3.11":
            raise NoLockError("no lock")
        return real(option)

    monkeypatch.setattr(selection, "get_lock_files", get_lock_files)
    pythons = [make_interpreter("3.11.9"), make_interpreter("3.10.4")]
    assert choose(monkeypatch, tmp_path, *pythons).python_version == "3.10.4"
    with pytest.raises(NoLockError):
        choose(monkeypatch, tmp_path, pythons[0], python="3.11")


def test_nothing_fits_the_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    options = make_options("tensorflow==2.15.*\npackaging; python_version<'3'", folder=tmp_path)
    monkeypatch.setattr(selection, "make_plan", lambda *_: SimpleNamespace(options=()))
    for set_of_files in (
        options,
        make_options("[project]\nrequires-python='>=3.9'\ndependencies=[]", folder=tmp_path),
    ):
        answer = choose_plan(
            set_of_files,
            None,
            Host(),
            tmp_path,
            uv=None,
            system=cast("System", None),
            machine=machine(),
        )
        assert not isinstance(answer, PlanChoice)
        assert answer.options == ()
