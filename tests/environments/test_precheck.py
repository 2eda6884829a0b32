"""Conflicts between requirements: the messages of uv and pip, and network failures, which are no conflict."""

from __future__ import annotations

import itertools
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tfdoctor.compat import Compat
from tfdoctor.environments import precheck
from tfdoctor.environments.installers import InstallFailedError, find_uv
from tfdoctor.environments.precheck import PrecheckResult, describe_unmet_pin, precheck_requirements
from tfdoctor.images.analysis import check_dockerfile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

UV_CONFLICT = (
    "  × No solution found when resolving dependencies:",
    "  ╰─▶ Because you require numpy>=2 and numpy==1.26.4, we can conclude that your",
    "      requirements are unsatisfiable.",
)
NO_WHEELS = (
    "Because all versions of docopt have no usable wheels and you require docopt, we can conclude …",
)
PIP_CONFLICT = (
    "ERROR: Cannot install x because these package versions have conflicting dependencies.",
    "The conflict is caused by:",
    "    The user requested numpy>=2",
    "    The user requested (constraint) numpy==1.26.4",
)
NETWORKX_CONFLICT = (
    "Processing /wheels/networkx-3.6.1-py3-none-any.whl (from torch==2.5.1->-r wanted.txt (line 2))",
    "Collecting certificate-tools (from neural-network==1)",
    "ERROR: Cannot install tensorflow and torch because these package versions have conflicting dependencies.",
    "The conflict is caused by:",
    "    tensorflow[and-cuda] 2.18.0 depends on nvidia-cuda-nvrtc-cu12==12.5.82",
    "    torch 2.5.1 depends on nvidia-cuda-nvrtc-cu12==12.4.127",
)
NOT_FOUND = ("ERROR: No matching distribution found for docopt",)
PIP_RETRIES = (
    "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(...)': /simple/docopt/",
    *PIP_CONFLICT,
)
NETWORK_TIMEOUT = ("  Failed to download distribution due to network timeout.", *UV_CONFLICT)
NETWORK_FAILURE = ("error: Failed to fetch: `https://index.example/simple/numpy/`", "  Caused by: dns error")


@pytest.fixture
def installer_variables() -> list[Mapping[str, str]]:
    """The environment of each run of the installer."""
    return []


@pytest.fixture
def fake_installer(
    monkeypatch: pytest.MonkeyPatch, installer_variables: list[Mapping[str, str]]
) -> Callable[..., list[Sequence[str]]]:
    """Return a function that fakes uv or pip and returns the list of its commands.

    The installer fails with the given lines, or succeeds if there are none.
    """

    def end(*lines: str, unsolved: bool = True, uv: bool = True) -> list[Sequence[str]]:
        commands: list[Sequence[str]] = []

        def run(command: Sequence[str], *, env: Mapping[str, str], **_: object) -> None:
            commands.append(command)
            installer_variables.append(env)
            if lines:
                raise InstallFailedError("it failed", output=lines, has_no_solution=unsolved)

        monkeypatch.setattr(precheck, "find_uv", lambda _: "/opt/uv" if uv else None)
        monkeypatch.setattr(precheck, "can_run", lambda *_: not uv)
        monkeypatch.setattr(precheck, "run_installer", run)
        return commands

    return end


def test_compatible_requirements_have_no_conflict(
    fake_installer: Callable[..., list[Sequence[str]]], installer_variables: list[Mapping[str, str]]
) -> None:
    commands, address = fake_installer(), "https://index.example/simple"
    assert (
        precheck_requirements(["numpy"], ["numpy==1.26.4"], "3.11", env={}, index_url=address)
        == PrecheckResult()
    )
    arguments = list(commands[0])
    assert arguments[:3] == ["/opt/uv", "pip", "compile"]
    assert arguments[arguments.index("--python-version") + 1] == "3.11"
    assert arguments[arguments.index("--only-binary") + 1] == ":all:"
    assert (
        address not in arguments
    )  # it may contain a login, and every user of the host can read command lines
    assert installer_variables[0]["UV_DEFAULT_INDEX"] == installer_variables[0]["PIP_INDEX_URL"] == address


@pytest.mark.parametrize(
    ("lines", "uv", "conflict"),
    [
        (UV_CONFLICT, True, "numpy==1.26.4"),
        (PIP_CONFLICT, False, "numpy==1.26.4"),
        (NETWORKX_CONFLICT, False, "nvidia-cuda-nvrtc-cu12==12.4.127"),
    ],
)
def test_conflict_is_quoted_from_the_installer(
    fake_installer: Callable[..., list[Sequence[str]]], lines: tuple[str, ...], uv: bool, conflict: str
) -> None:
    fake_installer(*lines, uv=uv)
    result = precheck_requirements(["pandas"], ["numpy==1.26.4"], "3.11", env={})
    assert conflict in result.conflict_reason
    assert not result.unknown_reason


@pytest.mark.parametrize(
    ("lines", "uv", "unsolved"),
    [
        (NO_WHEELS, True, True),
        (NOT_FOUND, False, True),
        (NETWORK_FAILURE, True, False),
        (NETWORK_FAILURE, True, True),
        (PIP_RETRIES, False, True),
        (NETWORK_TIMEOUT, True, True),
    ],
)
def test_failed_check_is_no_conflict(
    fake_installer: Callable[..., list[Sequence[str]]], lines: tuple[str, ...], uv: bool, unsolved: bool
) -> None:
    fake_installer(*lines, uv=uv, unsolved=unsolved)
    result = precheck_requirements(["docopt"], [], "3.11", env={})
    assert result.unknown_reason
    assert not result.conflict_reason


def test_pip_resolves_for_another_platform_in_a_dry_run(
    fake_installer: Callable[..., list[Sequence[str]]],
) -> None:
    commands = fake_installer(uv=False)
    precheck_requirements(["numpy"], [], "3.12", env={})
    arguments = list(commands[0])
    assert arguments[:4] == [sys.executable, "-m", "pip", "install"]
    assert "--dry-run" in arguments
    assert "--target" in arguments
    platforms = [value for name, value in itertools.pairwise(arguments) if name == "--platform"]
    assert platforms == [
        *(f"manylinux_2_{minor}_x86_64" for minor in (28, 27, 26, 24, 17, 12, 5)),
        "manylinux2014_x86_64",
    ]


def test_settings_that_replace_those_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    answers: list[Exception | None] = [None, None, OSError("odd")]

    def run(command: Sequence[str], *, env: dict[str, str], **_: object) -> None:
        calls.append((list(command), env))
        error = answers.pop(0)
        if error is not None:
            raise error

    monkeypatch.setattr(precheck, "find_uv", lambda _: "/opt/uv")
    monkeypatch.setattr(precheck, "run_installer", run)
    user = {"PIP_NO_INDEX": "1", "HOME": "/none", "PIP_CONFIG_FILE": os.devnull, "SSL_CERT_FILE": "/mine"}
    precheck_requirements(["numpy"], [], "3.11", env=user)
    precheck_requirements(["numpy"], [], "3.11", env=user, ca_file="/ca.pem", proxy="http://p")
    (command, env), (_, changed) = calls
    assert "--index-url" not in command
    assert "--no-index" in command
    assert (env["SSL_CERT_FILE"], env.get("HTTPS_PROXY")) == ("/mine", None)
    assert {changed[name] for name in ("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy")} == {
        "http://p"
    }
    assert (changed["SSL_CERT_FILE"], changed["PIP_CERT"]) == ("/ca.pem", "/ca.pem")
    result = precheck_requirements(["numpy"], [], "3.11", env=user)
    assert result == PrecheckResult(unknown_reason="odd")


@pytest.mark.parametrize(
    ("resolved", "other"),
    [
        ("torch==2.15.0\nnvidia-cudnn-cu13==9.26.0.51 \\\n", "nvidia-cudnn-cu13"),
        ('{"install": [{"metadata": {"name": "nvidia-nccl-cu13"}}]}', "nvidia-nccl-cu13"),
        ("nvidia-cudnn-cu12==9.10.2.21\nnvidia-cublas==13.4.1.3\n", ""),
    ],
)
def test_wheel_over_the_files_of_a_pinned_one_is_a_conflict(
    tmp_path: Path, resolved: str, other: str
) -> None:
    (tmp_path / precheck.RESOLVED_FILE).write_text(resolved, encoding="utf-8")
    pins = ("numpy==2.0", "nvidia-cudnn-cu12==9.10.2.21", "nvidia-nccl-cu12==2.27.3")
    reason = precheck._find_replaced_wheel(tmp_path, pins)
    assert other in reason
    assert bool(reason) is bool(other)
    assert precheck._find_replaced_wheel(tmp_path, ("numpy==2.0",)) == ""


def test_neither_uv_nor_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precheck, "find_uv", lambda _: None)
    monkeypatch.setattr(precheck, "can_run", lambda *_: False)
    assert "neither uv nor pip" in precheck_requirements(["numpy"], [], "3.11", env={}).unknown_reason


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
def test_unmet_pin_is_reported_without_an_installer(
    fake_installer: Callable[..., list[Sequence[str]]], wanted: str, told: str
) -> None:
    pins = ("numpy==1.26.4", "typing_extensions==4.5.0", "tensorflow==2.15.0.post1", "six", "x-y<2")
    conflict = describe_unmet_pin(["six", wanted], pins, "3.11")
    assert conflict.startswith(told)
    assert bool(conflict) is bool(told)
    commands = fake_installer()
    assert precheck_requirements([wanted], pins, "3.11", env={}) == PrecheckResult(conflict_reason=conflict)
    assert len(commands) == (0 if told else 1)


def test_unreachable_index_is_no_conflict(tmp_path: Path) -> None:
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
    result = precheck_requirements(
        ["tfdoctor-nothing"], [], "3.11", env=env, index_url="http://127.0.0.1:1/simple"
    )
    assert result == PrecheckResult(unknown_reason="the package index was not reached")


@pytest.mark.parametrize(
    ("marker", "applies"), [('python_full_version >= "3.11.4"', True), ('python_version < "3.11"', False)]
)
def test_marker_has_one_answer_for_machines_and_dockerfiles(marker: str, applies: bool) -> None:
    """A minor version counts as its newest patch release, whichever command reads the requirement."""
    requirement = f"numpy<1; {marker}"
    assert bool(describe_unmet_pin([requirement], ["numpy==1.26.4"], "3.11")) is applies
    report = check_dockerfile(
        f"FROM python:3.11-slim\nRUN pip install tensorflow==2.15.1 '{requirement}'\n", Compat.load()
    )
    assert ("TFD519" in {finding.code for finding in report.findings}) is applies
