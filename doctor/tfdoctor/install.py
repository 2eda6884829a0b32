"""A plan → a virtual environment on this machine, made step by step so that it can be interrupted at any of them.

What is installed is locked: every file has its hash in compat/locks. The environment is held back (see workplace.py)
until everything is in it.
"""

from __future__ import annotations

import csv
import hashlib
import os
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tfdoctor import children
from tfdoctor.compat.locks import cuda_lock, cuda_lock_path, lock, lock_path, tools_lock, tools_path
from tfdoctor.errors import Error, UsageError
from tfdoctor.redact import clean_line
from tfdoctor.repair.actions import make_link
from tfdoctor.repair.installers import (
    Installer,
    InstallFailedError,
    child_environment,
    run_installers,
    uv_options,
)
from tfdoctor.repair.links import links_for
from tfdoctor.steps import Link
from tfdoctor.workplace import INSTALLING, Record, Workplace, remove

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tfdoctor.compat.locks import Lock
    from tfdoctor.plan import Option

__all__ = [
    "NO_LOCK",
    "Installed",
    "Locks",
    "Making",
    "NoLockError",
    "Watcher",
    "commands_of",
    "locks_of",
    "make",
    "used",
]

NO_LOCK = "nobody has pinned and tried it"
_PACKAGES = "packages"
_CHECKING = 120.0
"""Seconds that a fresh Python may take to start once."""


class Watcher(Protocol):
    """Who is told how it goes."""

    def stage(self, text: str) -> None:
        """Something that is worth a line."""

    def step(self, number: int, total: int, text: str) -> None:
        """A step begins."""

    def output(self, line: str) -> None:
        """A line that an installer printed."""


class NoLockError(Error):
    """A release that nobody pinned."""

    kind = "install"


@dataclass(frozen=True, slots=True)
class Locks:
    """The files of pins that an environment is made from, as the installers are given them."""

    tools: Path
    """pip, setuptools and wheel."""
    tensorflow: Path
    cuda: Path
    pins: tuple[str, ...]
    """`name==version` of everything in the last two: what a user's requirements may not change."""
    digest: str
    """Of what is in them."""


@dataclass(frozen=True, slots=True)
class Making:
    """What is to be made, and with what."""

    option: Option
    folder: Path
    """Absolute."""
    base: str
    """The Python it is made from: a path, or a version for uv to find or fetch."""
    version: str
    """Of that Python, as far as it is known: `"3.11.7"`, `"3.11"`."""
    uv: str | None
    """uv's path where it does the work, else the environment's pip does."""
    locks: Locks
    requirements: tuple[str, ...] = ()
    """Checked lines (requirements.py)."""
    index: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    """What the programs inherit."""

    @property
    def plan(self) -> dict[str, Any]:
        """What tells this plan from another one in the same folder."""
        wanted = "\n".join(self.requirements)
        return {
            "tensorflow": self.option.tensorflow,
            "package": self.option.release.package,
            "python": self.option.python,
            "cuda_set": self.option.cuda_set.id if self.option.cuda_set is not None else None,
            "locks": self.locks.digest,
            "requirements": hashlib.sha256(wanted.encode()).hexdigest() if wanted else None,
        }

    @property
    def installer(self) -> Installer:
        """uv, or the environment's own pip."""
        python = str(self.folder / "bin" / "python")
        if self.uv is not None:
            return Installer("uv", python, (self.uv, "pip"), uv_options(self.env))
        return Installer("pip", python, (python, "-m", "pip"))


@dataclass(frozen=True, slots=True)
class Installed:
    """What came of it."""

    seconds: float
    resumed: bool
    """It was begun by an earlier run."""
    already: bool
    """It was there, whole: nothing was done."""


def locks_of(option: Option) -> Locks:
    """The locks of a plan. Raises NoLockError where one is not there, DataError where one is damaged."""
    release, python, chosen = option.release, option.python, option.cuda_set
    tools = tools_lock(python)
    main = lock(release.package, release.version, python)
    cuda = cuda_lock(chosen.id) if chosen is not None else None
    if tools is None or main is None or cuda is None or chosen is None:
        msg = f"TensorFlow {release.version} on Python {python} cannot be installed: {NO_LOCK}."
        raise NoLockError(msg, hint="Name another release: `tfdoctor recommend --method pip` has the best.")
    return Locks(
        tools=tools_path(python),
        tensorflow=lock_path(release.package, release.version, python),
        cuda=cuda_lock_path(chosen.id),
        pins=_pins(main, cuda),
        digest=hashlib.sha256(" ".join(one.digest for one in (tools, main, cuda)).encode()).hexdigest(),
    )


def _pins(*locks: Lock) -> tuple[str, ...]:
    return tuple(f"{package.name}=={package.version}" for one in locks for package in one.packages)


# ---------------------------------------------------------------- the steps


@dataclass(frozen=True, slots=True)
class _Step:
    name: str
    text: str
    commands: tuple[tuple[str, ...], ...] = ()
    """Run side by side: they do not meet."""
    work: Callable[[], None] | None = None


def _steps(making: Making) -> tuple[_Step, ...]:
    option, installer = making.option, making.installer
    locked = (*_index(making), "--no-deps", "--require-hashes")
    tensorflow = (*locked, "--no-build-isolation", "-r", str(making.locks.tensorflow))
    cuda = ("-r", str(making.locks.cuda))
    both: tuple[tuple[str, ...], ...]
    if installer.name == "uv":  # it downloads and unpacks many at once
        both = (installer.install([*tensorflow, *cuda]),)
    else:
        both = (installer.install(tensorflow), installer.install([*locked, *cuda]))
    found = [
        _Step("venv", f"An environment of Python {making.version}", (_make_environment(making),)),
        _Step(
            "tools",
            "pip, setuptools and wheel",
            (installer.install([*locked, "-r", str(making.locks.tools)]),),
        ),
        _Step(
            _PACKAGES,
            f"TensorFlow {option.tensorflow} and what it needs, CUDA {option.cuda} with cuDNN {option.cudnn}",
            both,
        ),
    ]
    if making.requirements:
        own = making.folder / ".tfdoctor"
        words = ["--constraint", str(own / "constraints.txt"), "--requirement", str(own / "requirements.txt")]
        found.append(
            _Step(
                "requirements",
                "Your requirements",
                (installer.install([*_index(making), *words]),),
                lambda: _write_requirements(making),
            )
        )
    found.append(
        _Step("links", "Links to CUDA's libraries where TensorFlow looks", (), lambda: _link(making))
    )
    return tuple(found)


def _make_environment(making: Making) -> tuple[str, ...]:
    if making.uv is not None:
        return (making.uv, "venv", "--allow-existing", "--python", making.base, str(making.folder))
    return (making.base, "-m", "venv", str(making.folder))


def _index(making: Making) -> tuple[str, ...]:
    if making.index is None:
        return ()
    return ("--default-index" if making.uv is not None else "--index-url", making.index)


def _write_requirements(making: Making) -> None:
    own = making.folder / ".tfdoctor"
    (own / "constraints.txt").write_text("".join(f"{pin}\n" for pin in making.locks.pins), encoding="utf-8")
    (own / "requirements.txt").write_text(
        "".join(f"{row}\n" for row in making.requirements), encoding="utf-8"
    )


def _site(making: Making) -> Path:
    return making.folder / "lib" / f"python{making.option.python}" / "site-packages"


def _links(making: Making) -> Iterator[tuple[Path, str]]:
    option = making.option
    if option.cuda_set is not None:
        for link in links_for(option.release, option.cuda_set, str(_site(making))):
            yield Path(link.path), link.target


def _link(making: Making) -> None:
    """Make the links, each in one step; one that is there as it should be stays."""
    for path, target in _links(making):
        if not (path.parent / target).is_file():
            msg = f"{path.name} is not where NVIDIA's wheel should have put it."
            raise InstallFailedError(msg, hint=clean_line(str(path.parent / target)))
        if path.is_symlink() and os.readlink(path) == target:  # noqa: PTH115 - as it was written
            continue
        make_link(Link(str(path), target))


def commands_of(making: Making) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """(what it is for, its words) of every command that `make` runs, and of one for each link it makes."""
    found = [(step.text, command) for step in _steps(making) for command in step.commands]
    links = [("", ("ln", "-s", target, str(path))) for path, target in _links(making)]
    return (*found, *((_steps(making)[-1].text, words) for _, words in links))


# ---------------------------------------------------------------- making it


def make(making: Making, watcher: Watcher) -> Installed:
    """Make the environment, or finish it; where it is there already, nothing is done.

    Raises WorkplaceError, UsageError, InstallFailedError. What is half-made stays, marked as such; where there was
    not even a Python yet, nothing stays.
    """
    began = time.monotonic()
    shown = clean_line(str(making.folder))

    def waiting() -> None:
        watcher.stage(f"Another tfdoctor is at work in {shown}: waiting for it …")

    place = Workplace.take(making.folder, making.option.python, on_wait=waiting)
    try:
        return _make(making, place, watcher, began)
    finally:
        place.release()


def _make(making: Making, place: Workplace, watcher: Watcher, began: float) -> Installed:
    known = place.record()
    shown = clean_line(str(making.folder))
    same = known is not None and dict(known.plan) == making.plan
    if known is not None and known.finished:
        if not same:
            msg = f"--into: in {shown} is an environment of another plan: {_in_words(known)}."
            raise UsageError(msg, hint="Name another folder with --into DIR, or remove this one.")
        if place.held:  # a run was killed in its last moment
            place.let_go(known)
        return Installed(time.monotonic() - began, resumed=False, already=True)
    done: tuple[str, ...] = known.steps if known is not None and same else ()
    if known is not None:
        watcher.stage(
            f"{shown} is unfinished: going on with it."
            if same
            else f"{shown} is unfinished, and of another plan ({_in_words(known)}): it is made anew."
        )
    if "venv" in done and not _starts(making, place):
        done = ()
    record = Record(making.plan, "unfinished", done)
    try:
        place.write(record)
        if not done:
            place.clear()
        _room(making, place, resumed=bool(done))
        record = _all_steps(making, place, record, watcher)
    except BaseException:
        # Nothing of worth is there yet; a folder with an environment that cannot start helps nobody.
        if "venv" not in (place.record() or record).steps:
            place.abandon()
        raise
    place.let_go(record)
    return Installed(time.monotonic() - began, resumed=bool(done), already=False)


def _all_steps(making: Making, place: Workplace, record: Record, watcher: Watcher) -> Record:
    steps = _steps(making)
    env = {**child_environment(making.env), INSTALLING: "1"}
    env.setdefault("TMPDIR", str(place.space))
    place.hold()
    if record.steps:
        _take_away_halves(place.site)
    for number, step in enumerate(steps, 1):
        if step.name in record.steps:
            continue
        watcher.step(number, len(steps), step.text)
        place.space.mkdir(exist_ok=True)
        if step.work is not None:
            step.work()
        if step.commands:
            run_installers(step.commands, env=env, on_line=watcher.output, pass_fds=[place.descriptor])
        if step.name == "venv":
            place.hold()
        record = Record(record.plan, "unfinished", (*record.steps, step.name))
        place.write(record)
    return record


def _in_words(record: Record) -> str:
    def said(name: str) -> str:
        return clean_line(str(record.plan.get(name, "?")), limit=40)

    return f"TensorFlow {said('tensorflow')} on Python {said('python')}"


def _starts(making: Making, place: Workplace) -> bool:
    """Whether the Python of an environment that was begun still runs, and is of the version that is wanted."""
    wanted = making.option.python
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    said = _said(making, (str(place.python), "-I", "-c", code))
    return said is not None and said.strip() == wanted


# ---------------------------------------------------------------- room, and what a killed installer left


def _room(making: Making, place: Workplace, *, resumed: bool) -> None:
    """Raise InstallFailedError where the disk is too small for the plan."""
    size = making.option.size
    if size is None:
        return
    if making.uv is None:  # pip keeps all that it downloads until it has unpacked it
        chosen = making.option.cuda_set
        size += making.option.release.size + (chosen.size if chosen is not None else 0)
    there = used(place.folder) if resumed else 0
    free = shutil.disk_usage(place.folder).free
    if free < size - there and not _in_cache(making, place):
        more = " more" if there else ""
        msg = (
            f"There is not enough room for {clean_line(str(place.folder))}: it takes about {_gigabytes(size - there)}"
            f"{more}, and {_gigabytes(free)} are free."
        )
        raise InstallFailedError(msg, hint="Free some space, or name a folder on another disk: --into DIR.")


def _in_cache(making: Making, place: Workplace) -> bool:
    """Whether uv has all of it unpacked on this very disk: then it makes second names of files, which take no room."""
    if making.uv is None:
        return False
    where = ["-r", str(making.locks.tensorflow), "-r", str(making.locks.cuda)]
    words = ("--dry-run", "--offline", "--no-deps", "--require-hashes", "--no-build-isolation")
    target = ("--python", making.base, "--target", str(place.space))
    cache = _said(making, (making.uv, "cache", "dir"))
    told = _said(making, (making.uv, "pip", "install", *words, *target, *where))
    if cache is None or told is None or "Would download" in told or "Would install" not in told:
        return False
    try:
        return Path(cache.strip()).stat().st_dev == place.folder.stat().st_dev
    except OSError:
        return False


def _said(making: Making, command: Sequence[str]) -> str | None:
    """What a command prints; None where it fails."""
    try:
        ran = children.run(command, env={**child_environment(making.env), INSTALLING: "1"}, timeout=_CHECKING)
    except (OSError, ValueError):
        return None
    said = ran.stdout + ran.stderr  # uv tells what it would do on standard error
    return said.decode("utf-8", "replace") if ran.returncode == 0 else None


def _gigabytes(count: int) -> str:
    return f"{max(count, 0) / 1e9:.1f} GB"


def used(folder: Path) -> int:
    """Bytes on disk of everything below a folder; a file with several names there counts once."""
    total, seen = 0, set()
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                status = os.lstat(f"{parent}/{name}")
            except OSError:
                continue
            if status.st_ino not in seen:
                seen.add(status.st_ino)
                total += status.st_blocks * 512
    return total


def _take_away_halves(site: Path) -> None:
    """Take what an installer was at when it was killed for not installed, so that it is installed once more.

    Both write the list of files (RECORD) before or while they write the files: what it lists is all there, with its
    size, or the distribution does not count as installed.
    """
    for folder in sorted(site.glob("*.dist-info")):
        if not _whole(site, folder):
            shutil.rmtree(folder)
    for leftover in site.glob("~*"):  # pip's name for what it was removing
        remove(leftover)


def _whole(site: Path, folder: Path) -> bool:
    try:
        with (folder / "RECORD").open(encoding="utf-8", newline="") as stream:
            rows = [row for row in csv.reader(stream) if row]
        if not any(row[0] == f"{folder.name}/INSTALLER" for row in rows):
            return False  # the wheel's own list: the installer had not come to write its
        return all(_is_there(site, row) for row in rows)
    except (OSError, ValueError, csv.Error):
        return False


def _is_there(site: Path, row: Sequence[str]) -> bool:
    """A row of RECORD: path, hash, size; the last two are empty for what may change."""
    try:
        status = os.stat(f"{site}/{row[0]}")  # noqa: PTH116 - tens of thousands of them
    except OSError:
        return row[0].endswith(".pyc")
    return len(row) < 3 or not row[2] or status.st_size == int(row[2])
