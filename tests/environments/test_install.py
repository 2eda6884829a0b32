"""Installing an environment, killed at every point: it never looks complete before it is, and the next run finishes it.

Functions of this process replace the installers, so that hundreds of kills take seconds; tests/cli/test_install.py
uses real installers. Each attempt is a forked child that kills itself at its N-th change.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tfdoctor.environments.install as core
from lab import environments
from tfdoctor.compat import Compat
from tfdoctor.core.errors import UsageError
from tfdoctor.diagnosis.progress import Progress
from tfdoctor.environments.install import InstallRequest, NoLockError, get_lock_files, install_environment
from tfdoctor.environments.install_state import (
    INSTALL_GUARD_FILE,
    INSTALLING_VARIABLE,
    UNFINISHED_MARK,
    InstallRecord,
    LockedFolder,
    read_record,
)
from tfdoctor.planning import Method, Request, recommend
from tfdoctor.prediction.fit.models import Host
from tfdoctor.remedies.links import list_links

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

MINOR = f"{sys.version_info[0]}.{sys.version_info[1]}"
CHANGES = frozenset(
    {"os.chmod", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink", "shutil.rmtree"}
)


@functools.cache
def option(spec: str = "2.20.0", python: str = "3.11") -> Any:
    request = Request(spec, python=python, method=Method.PIP)
    return recommend(Compat.load(), request, Host()).options[0]


def make_request(folder: Path, spec: str = "2.20.0", requirements: tuple[str, ...] = ()) -> InstallRequest:
    plan = dataclasses.replace(option(spec), python=MINOR)
    return InstallRequest(
        option=plan,
        folder=folder,
        base_python=sys.executable,
        python_version=MINOR,
        uv_path="/nowhere/uv",
        lock_files=get_lock_files(option(spec)),
        requirements=requirements,
        env={"PATH": os.environ["PATH"]},
    )


def write_distribution(site: Path, name: str) -> None:
    """Write the files first and their list last, as installers do."""
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (site / name).mkdir(exist_ok=True)
    for file in (site / name / "__init__.py", info / "METADATA"):
        file.write_text("name", encoding="utf-8")
    lines = [
        f"{name}/__init__.py,,4",
        f"{name}-1.0.dist-info/METADATA,,4",
        f"{name}-1.0.dist-info/INSTALLER,,",
    ]
    (info / "INSTALLER").write_text("test", encoding="utf-8")
    (info / "RECORD").write_text("\n".join(lines), encoding="utf-8")


def fake_installers(commands: Sequence[Sequence[str]], **_: Any) -> None:
    """Do in short what uv would do: create an environment, or install a missing distribution."""
    for command in commands:
        if "venv" in command:
            folder = Path(command[-1])
            (folder / "bin").mkdir(parents=True, exist_ok=True)
            home = Path(sys.executable).resolve().parent
            (folder / "pyvenv.cfg").write_text(f"home = {home}\n", encoding="utf-8")
            for name in ("python", "python3"):
                (folder / "bin" / name).unlink(missing_ok=True)
                (folder / "bin" / name).symlink_to(Path(sys.executable).resolve())
            for name in ("activate", "activate.csh", "activate.fish"):
                (folder / "bin" / name).write_text("VIRTUAL_ENV=1\n", encoding="utf-8")
            continue
        if "compile" in command:  # the file already contains the lock
            with Path(command[command.index("--output-file") + 1]).open("a", encoding="utf-8") as stream:
                stream.write(f"pandas==1.0 --hash=sha256:{'0' * 64}\n")
            continue
        folder = Path(command[command.index("--python") + 1]).parent.parent
        site = next(folder.glob("lib/python3*/site-packages"))
        for path in (
            command[index + 1]
            for index, argument in enumerate(command)
            if argument in ("-r", "--requirement")
        ):
            name = "p" + "".join(filter(str.isalnum, Path(path).stem))
            if not (site / f"{name}-1.0.dist-info").exists():  # real installers say "already satisfied"
                write_distribution(site, name)


@pytest.fixture
def _pretended(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def find_no_links(*_: Any) -> tuple[()]:
        return ()

    def need_nothing(*_: Any, **__: Any) -> tuple[()]:
        return ()

    def skip_sync(_: int) -> None:
        """Save time: only a power failure would make a difference."""

    monkeypatch.setattr(os, "fsync", skip_sync)
    monkeypatch.setattr(core, "run_installers", fake_installers)
    monkeypatch.setattr(core, "list_links", find_no_links)
    monkeypatch.setattr(core, "compute_needs", need_nothing)
    return


def run_forked(work: Callable[[], Any], kill_at: int, below: Path) -> bool:
    """Run `work` in a child that kills itself at its N-th change below a folder; return whether it survived."""
    child = os.fork()
    if child == 0:
        seen = 0

        def hook(event: str, args: tuple[Any, ...]) -> None:
            nonlocal seen
            writes = event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)
            if (event in CHANGES or writes) and str(args[0]).startswith(str(below)):
                seen += 1
                if seen == kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)

        status = 1
        try:
            sys.addaudithook(hook)
            work()
            status = 0
        finally:
            os._exit(status)
    _, ended = os.waitpid(child, 0)
    assert os.WIFSIGNALED(ended) or os.WEXITSTATUS(ended) == 0
    return not os.WIFSIGNALED(ended)


def python_starts(folder: Path) -> bool | None:
    """Return whether the environment's Python starts, or None if there is no environment."""
    python = folder / "bin" / "python"
    if not python.exists() or not (folder / "pyvenv.cfg").exists():
        return None
    env = {"PATH": os.environ["PATH"]}
    done = subprocess.run([python, "-c", "0"], env=env, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 3), done.stderr
    assert (UNFINISHED_MARK in done.stderr) == (done.returncode == 3)
    return done.returncode == 0


def assert_whole(folder: Path, names: Sequence[str]) -> None:
    record = read_record(folder)
    assert record is not None
    assert record.is_finished
    assert python_starts(folder) is True
    site = next(folder.glob("lib/python3*/site-packages"))
    projects = {path.name.partition("-")[0] for path in site.glob("*.dist-info")}
    assert len(projects) == len(names)
    for info in site.glob("*.dist-info"):
        assert core._is_complete(site, info)
    assert (folder / "bin" / "activate").read_text() == "VIRTUAL_ENV=1\n"
    assert not (site / INSTALL_GUARD_FILE).exists()
    assert sorted(path.name for path in (folder / ".tfdoctor").iterdir()) == sorted(own_file_names(record))


def own_file_names(record: InstallRecord) -> set[str]:
    """Return the names of the files that tfdoctor keeps in an environment."""
    extra = {"addresses.txt", "locked.txt", "requirements.txt"} if record.plan_key["requirements"] else set()
    return {"install.json", "install.lock"} | extra


@pytest.mark.few(1)
@pytest.mark.usefixtures("_pretended")
@pytest.mark.filterwarnings("ignore:This process.*fork:DeprecationWarning")
@pytest.mark.parametrize("twice", [False, True])
def test_killed_at_every_change(tmp_path: Path, twice: bool) -> None:
    """Kill at some changes, a tenth of a second each, or at all of them with TFDOCTOR_LAB_FULL=1.

    With `twice`, the second run is also killed, and a third one finishes.
    """
    step = 1 if environments.is_full_run() else 7 if twice else 4
    point, survived, start_states = 0, False, set()
    while not survived:
        point += step
        folder = tmp_path / f"env{point}"
        request = make_request(folder, requirements=("pandas",))
        survived = run_forked(lambda request=request: install_environment(request, Progress()), point, folder)
        if twice and not survived:
            run_forked(
                lambda request=request: install_environment(request, Progress()), point // 2 + 1, folder
            )
        record = read_record(folder) if folder.exists() else None
        starts = python_starts(folder)
        start_states.add(starts)
        # It starts only if it is complete.
        assert not starts or (record is not None and record.is_finished), point
        result = install_environment(request, Progress())
        assert result.was_complete == (record is not None and record.is_finished), point
        assert_whole(folder, ["tools", "tensorflow", "cuda", "requirements"])
        shutil.rmtree(folder)
        assert point < 500
    assert point > 30
    assert {True, False} <= start_states


@pytest.mark.usefixtures("_pretended")
def test_unfinished_environment_of_another_plan_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "env"

    def fail_commands(commands: Sequence[Sequence[str]], **options: Any) -> None:
        if any("tensorflow-2.20.0" in argument for command in commands for argument in command):
            raise core.InstallFailedError("no network.")
        fake_installers(commands, **options)

    monkeypatch.setattr(core, "run_installers", fail_commands)
    with pytest.raises(core.InstallFailedError, match="no network"):
        install_environment(make_request(folder), Progress())
    assert python_starts(folder) is False
    (folder / "left").write_text("")
    install_environment(make_request(folder, "2.19.1"), Progress())
    assert python_starts(folder) is True
    assert not (folder / "left").exists()
    with pytest.raises(UsageError, match=r"TensorFlow 2\.19\.1 on Python"):
        install_environment(make_request(folder), Progress())
    assert python_starts(folder) is True


@pytest.mark.usefixtures("_pretended")
def test_failure_before_python_exists_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_commands(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(core, "run_installers", fail_commands)
    with pytest.raises(KeyboardInterrupt):
        install_environment(make_request(tmp_path / "env"), Progress())
    assert not list(tmp_path.iterdir())
    (tmp_path / "mine").mkdir()
    with pytest.raises(KeyboardInterrupt):
        install_environment(make_request(tmp_path / "mine"), Progress())
    assert list(tmp_path.iterdir()) == [tmp_path / "mine"], "what was there before stays"
    assert not list((tmp_path / "mine").iterdir())


@pytest.mark.usefixtures("_pretended")
def test_missing_python_is_created_again(tmp_path: Path) -> None:
    folder = tmp_path / "env"
    install_environment(make_request(folder), Progress())
    record = read_record(folder)
    assert record is not None
    workplace = LockedFolder.acquire(folder, MINOR, on_wait=lambda: None)
    workplace.write_record(InstallRecord(record.plan_key, "unfinished", record.finished_steps[:-1]))
    workplace.block()
    workplace.release()
    (folder / "bin" / "python").unlink()
    assert install_environment(make_request(folder), Progress()).was_resumed is False
    assert python_starts(folder) is True


def test_half_installed_distributions_are_removed(tmp_path: Path) -> None:
    for name in ("whole", "shorter", "missing", "listless", "own"):
        write_distribution(tmp_path, name)
    (tmp_path / "shorter" / "__init__.py").write_text("na")
    (tmp_path / "missing" / "__init__.py").unlink()
    (tmp_path / "listless-1.0.dist-info" / "RECORD").unlink()
    record = tmp_path / "own-1.0.dist-info" / "RECORD"
    record.write_text(
        "own/__init__.py,,4\n"
    )  # the RECORD of the wheel, which the installer had not yet replaced
    (tmp_path / "~umpy").mkdir()
    core._remove_incomplete(tmp_path)
    assert [path.name for path in tmp_path.glob("*.dist-info")] == ["whole-1.0.dist-info"]
    assert not (tmp_path / "~umpy").exists()


def test_guard_reports_in_every_shell(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    workplace = LockedFolder.acquire(tmp_path / "other", MINOR, on_wait=lambda: None)
    shutil.copytree(tmp_path / "env", workplace.folder, symlinks=True, dirs_exist_ok=True)
    before = {path.name: path.read_text() for path in workplace.folder.glob("bin/[aA]ctivate*")}
    assert before
    workplace.block()
    workplace.block()  # blocking twice is allowed
    env = {name: text for name, text in os.environ.items() if name != "VIRTUAL_ENV"}
    for shell, flag in (("sh", "."), ("bash", "source"), ("csh", "source"), ("fish", "source")):
        if shutil.which(shell) is None:
            continue
        script = workplace.folder / "bin" / f"activate{'.' + shell if shell in ('csh', 'fish') else ''}"
        line = f"{flag} '{script}'" + ('; test -n "$VIRTUAL_ENV"' if shell in ("sh", "bash") else "")
        done = subprocess.run([shell, "-c", line], env=env, capture_output=True, text=True, check=False)
        assert done.returncode != 0, shell
        assert UNFINISHED_MARK in done.stderr, shell
    python = workplace.folder / "bin" / "python"
    for flags in ([], ["-I"], ["-E", "-s"], ["-m", "pip"]):
        done = subprocess.run([python, *flags, "-c", "0"], capture_output=True, text=True, check=False)
        assert (done.returncode, UNFINISHED_MARK in done.stderr) == (3, True)
    installing = {**os.environ, INSTALLING_VARIABLE: "1"}
    assert subprocess.run([python, "-I", "-c", "0"], env=installing, check=False).returncode == 0
    workplace.finish(InstallRecord({}, "unfinished", ()))
    assert {path.name: path.read_text() for path in workplace.folder.glob("bin/[aA]ctivate*")} == before
    assert subprocess.run([python, "-c", "0"], check=False).returncode == 0
    workplace.release()


def test_links_are_created_once_and_only_to_files(tmp_path: Path) -> None:
    request = dataclasses.replace(make_request(tmp_path), option=option("2.21.0"))
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    assert request.option.cuda_set is not None
    links = list_links(Compat.load(), request.option.release, request.option.cuda_set, str(site))
    assert links
    with pytest.raises(core.InstallFailedError, match="is not where"):
        core._create_links(request)
    for link in links:
        file = Path(os.path.normpath(Path(link.path).parent / link.target))
        for path in (file, Path(link.path)):
            path.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("a library")
    core._create_links(request)
    inodes = [Path(link.path).lstat().st_ino for link in links]
    assert all(Path(link.path).read_text() == "a library" for link in links)
    core._create_links(request)
    assert [Path(link.path).lstat().st_ino for link in links] == inodes


@pytest.mark.parametrize("spec", [f"2.{minor}" for minor in range(5, 22)])
def test_recommended_options_are_locked(spec: str) -> None:
    recommendation = recommend(Compat.load(), Request(spec, method=Method.PIP), Host())
    locks = get_lock_files(recommendation.options[0])
    assert all(path.is_file() for path in (locks.tools, locks.tensorflow, locks.cuda))
    assert f"tensorflow=={recommendation.options[0].tensorflow}" in locks.pins


def test_release_without_a_lock_is_refused() -> None:
    candidates = [release for release in Compat.load().releases if release.is_prerelease]
    assert candidates
    plan = dataclasses.replace(option(), release=candidates[-1], tensorflow=candidates[-1].version)
    with pytest.raises(NoLockError, match="pinned and tested"):
        get_lock_files(plan)
