"""Making an environment, ended at every point: never looking whole before it is, and finished by the next run.

The installers are stood in for by functions of this process, so that hundreds of ends fit into seconds; real ones
are in tests/cli/test_install.py. Each attempt is a forked child that kills itself at the N-th change it makes.
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

import tfdoctor.environment.install as core
from lab import environments
from tfdoctor.advice import links_for
from tfdoctor.compat import Compat
from tfdoctor.environment.install import Making, NoLockError, locks_of, make
from tfdoctor.environment.install_state import GUARD, INSTALLING, MARK, Record, Workplace, read_record
from tfdoctor.errors import UsageError
from tfdoctor.fit import Host
from tfdoctor.plan import Method, Request, recommend
from tfdoctor.report.progress import Progress

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


def make_making(folder: Path, spec: str = "2.20.0", requirements: tuple[str, ...] = ()) -> Making:
    plan = dataclasses.replace(option(spec), python=MINOR)
    return Making(
        option=plan,
        folder=folder,
        base=sys.executable,
        version=MINOR,
        uv="/nowhere/uv",
        locks=locks_of(option(spec)),
        requirements=requirements,
        env={"PATH": os.environ["PATH"]},
    )


def distribution(site: Path, name: str) -> None:
    """Files first, the list of them last, as installers do."""
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (site / name).mkdir(exist_ok=True)
    for file in (site / name / "__init__.py", info / "METADATA"):
        file.write_text("name", encoding="utf-8")
    rows = [
        f"{name}/__init__.py,,4",
        f"{name}-1.0.dist-info/METADATA,,4",
        f"{name}-1.0.dist-info/INSTALLER,,",
    ]
    (info / "INSTALLER").write_text("test", encoding="utf-8")
    (info / "RECORD").write_text("\n".join(rows), encoding="utf-8")


def pretend(commands: Sequence[Sequence[str]], **_: Any) -> None:
    """What uv would do, in short: an environment that starts, a distribution that is not there yet."""
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
        if "compile" in command:  # what stands in the file already is the lock
            with Path(command[command.index("--output-file") + 1]).open("a", encoding="utf-8") as stream:
                stream.write(f"pandas==1.0 --hash=sha256:{'0' * 64}\n")
            continue
        folder = Path(command[command.index("--python") + 1]).parent.parent
        site = next(folder.glob("lib/python3*/site-packages"))
        for path in (command[at + 1] for at, word in enumerate(command) if word in ("-r", "--requirement")):
            name = "p" + "".join(filter(str.isalnum, Path(path).stem))
            if not (site / f"{name}-1.0.dist-info").exists():  # "already satisfied", as real ones say
                distribution(site, name)


@pytest.fixture
def _pretended(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def find_no_links(*_: Any) -> tuple[()]:
        return ()

    def need_nothing(*_: Any, **__: Any) -> tuple[()]:
        return ()

    def skip_sync(_: int) -> None:
        """Only a power failure would tell the difference, and a busy disk takes its time."""

    monkeypatch.setattr(os, "fsync", skip_sync)
    monkeypatch.setattr(core, "run_installers", pretend)
    monkeypatch.setattr(core, "links_for", find_no_links)
    monkeypatch.setattr(core, "needs", need_nothing)
    return


def run_forked(work: Callable[[], Any], kill_at: int, below: Path) -> bool:
    """Do it in a child that ends at its N-th change below a folder; whether it lived to its end."""
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


def runs(folder: Path) -> bool | None:
    """Whether its Python starts; None where there is none that belongs to an environment."""
    python = folder / "bin" / "python"
    if not python.exists() or not (folder / "pyvenv.cfg").exists():
        return None
    env = {"PATH": os.environ["PATH"]}
    done = subprocess.run([python, "-c", "0"], env=env, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 3), done.stderr
    assert (MARK in done.stderr) == (done.returncode == 3)
    return done.returncode == 0


def assert_whole(folder: Path, names: Sequence[str]) -> None:
    record = read_record(folder)
    assert record is not None
    assert record.finished
    assert runs(folder) is True
    site = next(folder.glob("lib/python3*/site-packages"))
    found = {path.name.partition("-")[0] for path in site.glob("*.dist-info")}
    assert len(found) == len(names)
    for info in site.glob("*.dist-info"):
        assert core._whole(site, info)
    assert (folder / "bin" / "activate").read_text() == "VIRTUAL_ENV=1\n"
    assert not (site / GUARD).exists()
    assert sorted(path.name for path in (folder / ".tfdoctor").iterdir()) == sorted(names_of_own(record))


def names_of_own(record: Record) -> set[str]:
    extra = {"addresses.txt", "locked.txt", "requirements.txt"} if record.plan["requirements"] else set()
    return {"install.json", "install.lock"} | extra


@pytest.mark.few(1)
@pytest.mark.usefixtures("_pretended")
@pytest.mark.filterwarnings("ignore:This process.*fork:DeprecationWarning")
@pytest.mark.parametrize("twice", [False, True])
def test_killed_at_every_change(tmp_path: Path, twice: bool) -> None:
    """At some of them, in a tenth of a second each; at all with TFDOCTOR_LAB_FULL=1.

    `twice`: the run that goes on is killed, too, and a third one finishes.
    """
    step = 1 if environments.list_everything() else 7 if twice else 4
    point, lived, looked = 0, False, set()
    while not lived:
        point += step
        folder = tmp_path / f"env{point}"
        this = make_making(folder, requirements=("pandas",))
        lived = run_forked(lambda this=this: make(this, Progress()), point, folder)
        if twice and not lived:
            run_forked(lambda this=this: make(this, Progress()), point // 2 + 1, folder)
        record = read_record(folder) if folder.exists() else None
        starts = runs(folder)
        looked.add(starts)
        # It starts only where everything is in it.
        assert not starts or (record is not None and record.finished), point
        made = make(this, Progress())
        assert made.already == (record is not None and record.finished), point
        assert_whole(folder, ["tools", "tensorflow", "cuda", "requirements"])
        shutil.rmtree(folder)
        assert point < 500
    assert point > 30
    assert {True, False} <= looked


@pytest.mark.usefixtures("_pretended")
def test_an_unfinished_one_of_another_plan_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "env"

    def fail_commands(commands: Sequence[Sequence[str]], **words: Any) -> None:
        if any("tensorflow-2.20.0" in word for command in commands for word in command):
            raise core.InstallFailedError("no network.")
        pretend(commands, **words)

    monkeypatch.setattr(core, "run_installers", fail_commands)
    with pytest.raises(core.InstallFailedError, match="no network"):
        make(make_making(folder), Progress())
    assert runs(folder) is False
    (folder / "left").write_text("")
    make(make_making(folder, "2.19.1"), Progress())
    assert runs(folder) is True
    assert not (folder / "left").exists()
    with pytest.raises(UsageError, match=r"TensorFlow 2\.19\.1 on Python"):
        make(make_making(folder), Progress())
    assert runs(folder) is True


@pytest.mark.usefixtures("_pretended")
def test_what_fails_before_there_is_a_python_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_commands(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(core, "run_installers", fail_commands)
    with pytest.raises(KeyboardInterrupt):
        make(make_making(tmp_path / "env"), Progress())
    assert not list(tmp_path.iterdir())
    (tmp_path / "mine").mkdir()
    with pytest.raises(KeyboardInterrupt):
        make(make_making(tmp_path / "mine"), Progress())
    assert list(tmp_path.iterdir()) == [tmp_path / "mine"], "what was there before stays"
    assert not list((tmp_path / "mine").iterdir())


@pytest.mark.usefixtures("_pretended")
def test_a_python_that_is_gone_is_made_anew(tmp_path: Path) -> None:
    folder = tmp_path / "env"
    make(make_making(folder), Progress())
    record = read_record(folder)
    assert record is not None
    place = Workplace.take(folder, MINOR, on_wait=lambda: None)
    place.write(Record(record.plan, "unfinished", record.steps[:-1]))
    place.block()
    place.release()
    (folder / "bin" / "python").unlink()
    assert make(make_making(folder), Progress()).resumed is False
    assert runs(folder) is True


def test_a_half_installed_distribution_does_not_count(tmp_path: Path) -> None:
    for name in ("whole", "shorter", "missing", "listless", "own"):
        distribution(tmp_path, name)
    (tmp_path / "shorter" / "__init__.py").write_text("na")
    (tmp_path / "missing" / "__init__.py").unlink()
    (tmp_path / "listless-1.0.dist-info" / "RECORD").unlink()
    record = tmp_path / "own-1.0.dist-info" / "RECORD"
    record.write_text("own/__init__.py,,4\n")  # the wheel's: the installer had not written its own
    (tmp_path / "~umpy").mkdir()
    core._take_away_halves(tmp_path)
    assert [path.name for path in tmp_path.glob("*.dist-info")] == ["whole-1.0.dist-info"]
    assert not (tmp_path / "~umpy").exists()


def test_the_guard_speaks_in_every_shell(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    place = Workplace.take(tmp_path / "other", MINOR, on_wait=lambda: None)
    shutil.copytree(tmp_path / "env", place.folder, symlinks=True, dirs_exist_ok=True)
    before = {path.name: path.read_text() for path in place.folder.glob("bin/[aA]ctivate*")}
    assert before
    place.block()
    place.block()  # may be done again
    env = {name: text for name, text in os.environ.items() if name != "VIRTUAL_ENV"}
    for shell, flag in (("sh", "."), ("bash", "source"), ("csh", "source"), ("fish", "source")):
        if shutil.which(shell) is None:
            continue
        script = place.folder / "bin" / f"activate{'.' + shell if shell in ('csh', 'fish') else ''}"
        line = f"{flag} '{script}'" + ('; test -n "$VIRTUAL_ENV"' if shell in ("sh", "bash") else "")
        told = subprocess.run([shell, "-c", line], env=env, capture_output=True, text=True, check=False)
        assert told.returncode != 0, shell
        assert MARK in told.stderr, shell
    python = place.folder / "bin" / "python"
    for flags in ([], ["-I"], ["-E", "-s"], ["-m", "pip"]):
        told = subprocess.run([python, *flags, "-c", "0"], capture_output=True, text=True, check=False)
        assert (told.returncode, MARK in told.stderr) == (3, True)
    ours = {**os.environ, INSTALLING: "1"}
    assert subprocess.run([python, "-I", "-c", "0"], env=ours, check=False).returncode == 0
    place.finish(Record({}, "unfinished", ()))
    assert {path.name: path.read_text() for path in place.folder.glob("bin/[aA]ctivate*")} == before
    assert subprocess.run([python, "-c", "0"], check=False).returncode == 0
    place.release()


def test_links_are_made_once_and_only_to_files(tmp_path: Path) -> None:
    this = dataclasses.replace(make_making(tmp_path), option=option("2.21.0"))
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    assert this.option.cuda_set is not None
    wanted = links_for(Compat.load(), this.option.release, this.option.cuda_set, str(site))
    assert wanted
    with pytest.raises(core.InstallFailedError, match="is not where"):
        core._link(this)
    for link in wanted:
        file = Path(os.path.normpath(Path(link.path).parent / link.target))
        for path in (file, Path(link.path)):
            path.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("a library")
    core._link(this)
    inodes = [Path(link.path).lstat().st_ino for link in wanted]
    assert all(Path(link.path).read_text() == "a library" for link in wanted)
    core._link(this)
    assert [Path(link.path).lstat().st_ino for link in wanted] == inodes


@pytest.mark.parametrize("spec", [f"2.{minor}" for minor in range(5, 22)])
def test_what_the_planner_offers_for_an_environment_is_locked(spec: str) -> None:
    answer = recommend(Compat.load(), Request(spec, method=Method.PIP), Host())
    locks = locks_of(answer.options[0])
    assert all(path.is_file() for path in (locks.tools, locks.tensorflow, locks.cuda))
    assert f"tensorflow=={answer.options[0].tensorflow}" in locks.pins


def test_a_release_without_a_lock_is_told() -> None:
    candidates = [release for release in Compat.load().releases if release.is_prerelease]
    assert candidates
    plan = dataclasses.replace(option(), release=candidates[-1], tensorflow=candidates[-1].version)
    with pytest.raises(NoLockError, match="pinned and tested"):
        locks_of(plan)
