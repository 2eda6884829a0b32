"""Whether requirements go together: what the programs say, read; and no network taken for a conflict."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from tfdoctor.environment import precheck
from tfdoctor.environment.installers import InstallFailedError, find_uv
from tfdoctor.environment.precheck import Foreseen, find_unmet_pin, foresee

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

UNSOLVED = (
    "  × No solution found when resolving dependencies:",
    "  ╰─▶ Because you require numpy>=2 and numpy==1.26.4, we can conclude that your",
    "      requirements are unsatisfiable.",
)
NO_WHEELS = (
    "Because all versions of docopt have no usable wheels and you require docopt, we can conclude …",
)
BY_PIP = (
    "ERROR: Cannot install x because these package versions have conflicting dependencies.",
    "The conflict is caused by:",
    "    The user requested numpy>=2",
    "    The user requested (constraint) numpy==1.26.4",
)
NOT_THERE = ("ERROR: No matching distribution found for docopt",)
CUT_OFF = ("error: Failed to fetch: `https://index.example/simple/numpy/`", "  Caused by: dns error")


@pytest.fixture
def says(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Sequence[str]]]:
    """uv, or pip, ends with these lines; the commands that it was given."""

    def end(*lines: str, unsolved: bool = True, uv: bool = True) -> list[Sequence[str]]:
        commands: list[Sequence[str]] = []

        def run(command: Sequence[str], **_: object) -> None:
            commands.append(command)
            if lines:
                raise InstallFailedError("it failed", output=lines, unsolved=unsolved)

        monkeypatch.setattr(precheck, "find_uv", lambda _: "/opt/uv" if uv else None)
        monkeypatch.setattr(precheck, "runs", lambda *_: not uv)
        monkeypatch.setattr(precheck, "run_installer", run)
        return commands

    return end


def test_what_goes_together_says_nothing(says: Callable[..., list[Sequence[str]]]) -> None:
    commands = says()
    assert (
        foresee(["numpy"], ["numpy==1.26.4"], "3.11", env={}, index="https://index.example/simple")
        == Foreseen()
    )
    words = list(commands[0])
    assert words[:3] == ["/opt/uv", "pip", "compile"]
    assert words[words.index("--python-version") + 1] == "3.11"
    assert words[words.index("--index-url") + 1] == "https://index.example/simple"
    assert words[words.index("--only-binary") + 1] == ":all:"


@pytest.mark.parametrize(
    ("lines", "uv", "conflict"),
    [(UNSOLVED, True, "numpy==1.26.4"), (BY_PIP, False, "numpy==1.26.4")],
)
def test_a_conflict_is_told_in_its_own_words(
    says: Callable[..., list[Sequence[str]]], lines: tuple[str, ...], uv: bool, conflict: str
) -> None:
    says(*lines, uv=uv)
    said = foresee(["pandas"], ["numpy==1.26.4"], "3.11", env={})
    assert conflict in said.conflict
    assert not said.unknown


@pytest.mark.parametrize(
    ("lines", "uv", "unsolved"),
    [(NO_WHEELS, True, True), (NOT_THERE, False, True), (CUT_OFF, True, False), (CUT_OFF, True, True)],
)
def test_what_could_not_be_asked_is_no_conflict(
    says: Callable[..., list[Sequence[str]]], lines: tuple[str, ...], uv: bool, unsolved: bool
) -> None:
    says(*lines, uv=uv, unsolved=unsolved)
    said = foresee(["docopt"], [], "3.11", env={})
    assert said.unknown
    assert not said.conflict


def test_pip_is_asked_for_another_machine_and_told_where_nothing_is_written(
    says: Callable[..., list[Sequence[str]]],
) -> None:
    commands = says(uv=False)
    foresee(["numpy"], [], "3.12", env={})
    words = list(commands[0])
    assert words[:4] == [sys.executable, "-m", "pip", "install"]
    assert "--dry-run" in words
    assert "--target" in words
    assert words.count("--platform") > 3


def test_neither_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precheck, "find_uv", lambda _: None)
    monkeypatch.setattr(precheck, "runs", lambda *_: False)
    assert "neither uv nor pip" in foresee(["numpy"], [], "3.11", env={}).unknown


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ("numpy>=2", "numpy>=2 is asked for, and numpy==1.26.4 is what goes with it"),
        ("NumPy[x] >= 2 --hash=sha256:00", "NumPy>=2 is asked for"),
        ("Typing.Extensions!=4.5.0", "Typing.Extensions!=4.5.0 is asked for"),
        ("numpy>=2; python_version < '3.12'", "numpy>=2 is asked for"),
        ("numpy>=2; python_version >= '3.12'", ""),
        ("numpy>=2; sys_platform == 'win32' or extra == 'gpu'", ""),
        ("numpy>=1.26,<2", ""),
        ("numpy", ""),
        ("pandas>=99", ""),
        ("numpy @ https://files.example/numpy-2.0.0.whl", ""),
        ("-e .", ""),
        ("tensorflow==2.15.0.post1", ""),
    ],
)
def test_what_a_pin_does_not_meet_is_told_without_asking(
    says: Callable[..., list[Sequence[str]]], wanted: str, told: str
) -> None:
    pins = ("numpy==1.26.4", "typing_extensions==4.5.0", "tensorflow==2.15.0.post1", "six", "x-y<2")
    said = find_unmet_pin(["six", wanted], pins, "3.11")
    assert said.startswith(told)
    assert bool(said) is bool(told)
    commands = says()
    assert foresee([wanted], pins, "3.11", env={}) == Foreseen(conflict=said)
    assert len(commands) == (0 if told else 1)


def test_a_network_that_leads_nowhere_is_no_conflict(tmp_path: Path) -> None:
    env = {
        **os.environ,
        "UV_CACHE_DIR": str(tmp_path),
        "PIP_CACHE_DIR": str(tmp_path),
        "UV_HTTP_RETRIES": "0",
    }
    env |= {"PIP_RETRIES": "1", "PIP_DEFAULT_TIMEOUT": "1", "NO_PROXY": "", "no_proxy": ""}
    env.pop("PIP_FIND_LINKS", None)
    if find_uv(env) is None:
        pytest.skip("uv is not on PATH")
    said = foresee(["tfdoctor-nothing"], [], "3.11", env=env, index="http://127.0.0.1:1/simple")
    assert said == Foreseen(unknown="the package index was not reached")
