"""A plan → a virtual environment on this machine, made step by step so that it can be interrupted at any of them.

What is installed is locked: every file has its hash in compat/locks. Where a user's requirements want another version
of something, uv or pip say which (resolution.py) before TensorFlow and CUDA are fetched. The environment is held back
(see workplace.py) until everything is in it.
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import os
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdoctor import versions
from tfdoctor.advice import links_for
from tfdoctor.causes.steps import MakeLink
from tfdoctor.compat import Compat
from tfdoctor.environment.actions import make_link
from tfdoctor.environment.disk_space import Writing, capture_output, needs, refuse, room_for_pips_cache, used
from tfdoctor.environment.folder import OWN, remove, write
from tfdoctor.environment.install_state import INSTALLING, Record, Workplace
from tfdoctor.environment.installers import (
    Installer,
    InstallFailedError,
    child_environment,
    run_installers,
    uv_options,
)
from tfdoctor.environment.resolution import NoSolutionError, PipResolution, Question, command, resolve
from tfdoctor.errors import Error, UsageError
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tfdoctor.compat.locks import Lock
    from tfdoctor.plan import Option
    from tfdoctor.report.progress import Progress

__all__ = [
    "NO_LOCK",
    "InstallResult",
    "LockFiles",
    "Making",
    "NoLockError",
    "commands_of",
    "describe_changes",
    "list_locked_lines",
    "list_writing",
    "locks_of",
    "make",
    "try_requirements",
]

NO_LOCK = "it is not among the combinations that were pinned and tested"
_TOOLS, _RESOLVE, _PACKAGES = "tools", "resolve", "packages"
_LOCKED, _HASHED, _OTHERS = "locked.txt", "requirements.txt", "addresses.txt"
"""A resolution, kept in the environment's own folder for the steps that come after it."""


class NoLockError(Error):
    """A release that nobody pinned."""

    kind = "install"


@dataclass(frozen=True, slots=True)
class LockFiles:
    """The files of pins that an environment is made from, as the installers are given them."""

    tools: Path
    """pip, setuptools and wheel."""
    tensorflow: Path
    cuda: Path
    pins: tuple[str, ...]
    """`name==version` of everything in the last two: what a user's requirements may not change."""
    digest: str
    """SHA-256 over the digests of the three."""


@dataclass(frozen=True, slots=True)
class Making:
    """What is to be made, and with what."""

    option: Option
    folder: Path
    """Absolute."""
    base: str
    """The Python it is made from: a path, or a version for uv to find or fetch."""
    version: str
    """That Python's version, as far as it is known: `"3.11.7"`, `"3.11"`."""
    uv: str | None
    """uv's path where it does the work, else the environment's pip does."""
    locks: LockFiles
    requirements: tuple[str, ...] = ()
    """Checked lines (requirements.py)."""
    constraints: tuple[str, ...] = ()
    """The lines of a requirements file's `-c`, checked likewise."""
    index: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    """What the programs inherit."""
    resolution: PipResolution | None = None
    """What the requirements come to, once that is known."""

    @property
    def asks(self) -> bool:
        """Whether anything is wanted besides the plan."""
        return bool(self.requirements or self.constraints)

    @property
    def can_try(self) -> bool:
        """Whether it can be told beforehand what the requirements come to: pip can from 22.2 on, which needs
        Python 3.7."""
        return self.uv is not None or versions.is_at_least(self.option.python, "3.7")

    @property
    def plan(self) -> dict[str, Any]:
        """What tells this plan from another one in the same folder."""
        wanted = "\n".join((*self.requirements, *(f"-c {line}" for line in self.constraints)))
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
class InstallResult:
    """What came of it."""

    seconds: float
    resumed: bool
    """It was begun by an earlier run."""
    already: bool
    """It was there, whole: nothing was done."""
    making: Making | None = None
    """The request, with what the requirements came to; None: nothing was done."""


def locks_of(option: Option) -> LockFiles:
    """Return the locks of a plan. Raises NoLockError if one is not there, DataError where one is damaged."""
    release, python, chosen = option.release, option.python, option.cuda_set
    known = Compat.load().locks
    tools = known.tools(python)
    main = known.get_lock(release.package, release.version, python)
    cuda = known.cuda(chosen.id) if chosen is not None else None
    if tools is None or main is None or cuda is None or chosen is None:
        msg = f"TensorFlow {release.version} on Python {python} cannot be installed: {NO_LOCK}."
        raise NoLockError(msg, hint="Name another release: `tfdoctor recommend --method pip` has the best.")
    return LockFiles(
        tools=known.tools_path(python),
        tensorflow=known.path(release.package, release.version, python),
        cuda=known.cuda_path(chosen.id),
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
    own = making.folder / OWN
    index = _index(making)
    locked = (*index, "--no-deps", "--require-hashes")
    tried = making.asks and making.can_try
    pins = own / _LOCKED if tried else making.locks.tensorflow
    tensorflow = (*locked, "--no-build-isolation", "-r", str(pins))
    cuda = ("-r", str(making.locks.cuda))
    both: tuple[tuple[str, ...], ...]
    if installer.name == "uv":  # it downloads and unpacks many at once
        both = (installer.install([*tensorflow, *cuda]),)
    else:
        both = (installer.install(tensorflow), installer.install([*locked, *cuda]))
    found = [
        _Step("venv", f"An environment of Python {making.version}", (_make_environment(making),)),
        _Step(
            _TOOLS,
            "pip, setuptools and wheel",
            (installer.install([*locked, "-r", str(making.locks.tools)]),),
        ),
    ]
    if tried:
        asked = command(_question(making), own / "tmp")
        found.append(_Step(_RESOLVE, "Whether your requirements go with it, and how", (asked,)))
    found.append(
        _Step(
            _PACKAGES,
            f"TensorFlow {option.tensorflow} and what it needs, CUDA {option.cuda} with cuDNN {option.cudnn}",
            both,
        )
    )
    if making.asks:
        found.append(_requirements_step(making, own))
    found.append(
        _Step("links", "Links to CUDA's libraries where TensorFlow looks", (), lambda: _link(making))
    )
    return tuple(found)


def _requirements_step(making: Making, own: Path) -> _Step:
    index, known = _index(making), making.resolution
    if not making.can_try:
        words = ["--constraint", str(own / "constraints.txt"), "--requirement", str(own / _HASHED)]
        commands = [making.installer.install([*index, *words])]
        return _Step(
            "requirements", "Your requirements", tuple(commands), lambda: _write_requirements(making)
        )
    commands = []
    if known is None or known.hashed:
        words = ["--no-deps", "--require-hashes", "-r", str(own / _HASHED)]
        commands.append(making.installer.install([*index, *words]))
    if known is not None and known.others:
        commands.append(making.installer.install([*index, "--no-deps", "-r", str(own / _OTHERS)]))
    return _Step("requirements", "Your requirements", tuple(commands))


def _make_environment(making: Making) -> tuple[str, ...]:
    if making.uv is not None:
        return (making.uv, "venv", "--allow-existing", "--python", making.base, str(making.folder))
    return (making.base, "-m", "venv", str(making.folder))


def _index(making: Making) -> tuple[str, ...]:
    if making.index is None:
        return ()
    return ("--default-index" if making.uv is not None else "--index-url", making.index)


def _write_requirements(making: Making) -> None:
    own = making.folder / OWN
    limits = (*making.locks.pins, *making.constraints)
    for name, rows in (("constraints.txt", limits), (_HASHED, making.requirements)):
        write(own / name, "".join(f"{row}\n" for row in rows).encode())


def _site(making: Making) -> Path:
    return making.folder / "lib" / f"python{making.option.python}" / "site-packages"


def _links(making: Making) -> Iterator[tuple[Path, str]]:
    option = making.option
    if option.cuda_set is not None:
        for link in links_for(Compat.load(), option.release, option.cuda_set, str(_site(making))):
            yield Path(link.path), link.target


def _link(making: Making) -> None:
    """Make the links, each in one step; one that is there as it should be stays."""
    for path, target in _links(making):
        if not (path.parent / target).is_file():
            msg = f"{path.name} is not where NVIDIA's wheel should have put it."
            raise InstallFailedError(msg, hint=clean_line(str(path.parent / target)))
        if path.is_symlink() and os.readlink(path) == target:  # noqa: PTH115 - as it was written
            continue
        make_link(MakeLink(str(path), target))


def commands_of(making: Making) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return (what it is for, its words) of every command that `make` runs, and of one for each link it makes."""
    found = [(step.text, command) for step in _steps(making) for command in step.commands]
    links = [("", ("ln", "-s", target, str(path))) for path, target in _links(making)]
    return (*found, *((_steps(making)[-1].text, words) for _, words in links))


# ---------------------------------------------------------------- what a user's requirements come to


def requires_of(option: Option) -> tuple[str, ...]:
    """Return what is known of what the wheel of TensorFlow requires."""
    return option.release.requires


def _question(making: Making, base: str | None = None) -> Question:
    """base: a Python, or a version of one, where the environment is not there yet."""
    python = making.installer.python if base is None else base
    told = "--python" if "/" in python else "--python-version"
    lock = list_locked_lines(making.locks.tensorflow)
    return Question(
        package=making.option.release.package,
        requires=requires_of(making.option),
        lock=lock,
        cuda=tuple(line.split(" ", 1)[0] for line in list_locked_lines(making.locks.cuda)),
        lines=making.requirements,
        constraints=making.constraints,
        program=(making.uv, "pip") if making.uv is not None else (python, "-m", "pip"),
        python=(told, python) if making.uv is not None else (),
        index=(*_index(making), *(uv_options(making.env) if making.uv is not None else ())),
    )


def list_locked_lines(path: Path) -> tuple[str, ...]:
    """`name==version --hash=…` of every package of a lock."""
    rows = path.read_text(encoding="utf-8").splitlines()
    return tuple(row.removesuffix("  # sdist") for row in rows if row and not row.startswith("#"))


def try_requirements(making: Making, on_line: Callable[[str], None] | None = None) -> PipResolution:
    """Return what `make` would find, without the environment: in a temporary folder.

    With pip that folder has a small environment for a while, for the locked pip to be asked. Raises NoSolutionError
    with the reason, InstallFailedError where it could not be tried.
    """
    env = child_environment(making.env)

    def run(words: Sequence[str]) -> None:
        run_installers([words], env=env, on_line=on_line)

    with tempfile.TemporaryDirectory(prefix="tfdoctor-") as name:
        folder = Path(name)
        if making.uv is not None:
            return resolve(_question(making, making.base), folder, run)
        inner = dataclasses.replace(making, folder=folder / "env")
        run(_make_environment(inner))
        words = [*_index(making), "--no-deps", "--require-hashes", "-r", str(making.locks.tools)]
        run(inner.installer.install(words))
        return resolve(_question(inner), folder, run)


def _resolve_request(making: Making, place: Workplace, run: Callable[[Sequence[str]], None]) -> Making:
    """Return the request with its resolution, which is also written down for a run that goes on."""
    found = resolve(_question(making), place.space, run)
    for name, lines in ((_LOCKED, found.kept), (_HASHED, found.hashed), (_OTHERS, found.others)):
        place.write_beside(name, "".join(f"{line}\n" for line in lines))
    return dataclasses.replace(making, resolution=found)


def _load_resolution(making: Making, place: Workplace) -> Making | None:
    """Return the request with the resolution that an earlier run wrote down; None if that is gone."""
    try:
        kept, hashed, others = (
            tuple((place.folder / OWN / name).read_text(encoding="utf-8").splitlines())
            for name in (_LOCKED, _HASHED, _OTHERS)
        )
    except (OSError, ValueError):
        return None
    return dataclasses.replace(making, resolution=PipResolution(kept, hashed, others)) if kept else None


# ---------------------------------------------------------------- making it


def make(making: Making, watcher: Progress) -> InstallResult:
    """Make the environment, or finish it; where it is there already, nothing is done.

    Raises WorkplaceError, UsageError, InstallFailedError. What is half-made stays, marked as such; where there was
    not even a Python yet, nothing stays.
    """
    began = time.monotonic()
    shown = clean_line(str(making.folder))

    def show_wait() -> None:
        watcher.stage(f"Another tfdoctor is at work in {shown}: waiting for it …")

    place = Workplace.take(making.folder, making.option.python, on_wait=show_wait)
    try:
        return _make(making, place, watcher, began)
    except InstallFailedError as error:
        watcher.failed("", error.output)
        raise
    finally:
        place.release()


def _make(making: Making, place: Workplace, watcher: Progress, began: float) -> InstallResult:
    known = place.record()
    shown = clean_line(str(making.folder))
    same = known is not None and dict(known.plan) == making.plan
    if known is not None and known.finished:
        if not same:
            msg = f"--into: in {shown} is an environment of another plan: {_describe_record(known)}."
            raise UsageError(msg, hint="Name another folder with --into DIR, or remove this one.")
        if place.blocked:  # a run was killed in its last moment
            place.finish(known)
        again = _load_resolution(making, place) if making.asks else None
        return InstallResult(time.monotonic() - began, resumed=False, already=True, making=again)
    done = _list_done(making, known) if known is not None and same else ()
    if known is not None:
        watcher.stage(
            f"{shown} is unfinished: going on with it."
            if same
            else f"{shown} is unfinished, and of another plan ({_describe_record(known)}): it is rebuilt."
        )
    if "venv" in done and not _starts(making, place):
        done = ()
    if _RESOLVE in done:
        again = _load_resolution(making, place)
        making, done = (again, done) if again is not None else (making, done[: done.index(_RESOLVE)])
    record = Record(making.plan, "unfinished", done)
    try:
        place.write(record)
        if not done:
            place.clear()
        if _PACKAGES not in done:
            refuse(needs(list_writing(making), there=used(place.folder) if done else 0), shown)
        record, making = _run_all_steps(making, place, record, watcher)
    except BaseException as error:
        # Nothing of worth is there yet; a folder with an environment that cannot start helps nobody, nor does one
        # for requirements that cannot be had.
        steps = (place.record() or record).steps
        if "venv" not in steps or (isinstance(error, NoSolutionError) and _PACKAGES not in steps):
            place.abandon()
        raise
    watcher.done()
    place.finish(record)
    return InstallResult(time.monotonic() - began, resumed=bool(done), already=False, making=making)


def _list_done(making: Making, known: Record) -> tuple[str, ...]:
    """Return the steps that are done, up to the first that is not: what comes after it is done once more."""
    found = []
    for step in _steps(making):
        if step.name not in known.steps:
            break
        found.append(step.name)
    return tuple(found)


def _run_all_steps(
    making: Making, place: Workplace, record: Record, watcher: Progress
) -> tuple[Record, Making]:
    steps = _steps(making)
    env = {**child_environment(making.env), INSTALLING: "1"}
    env.setdefault("TMPDIR", str(place.space))
    if making.uv is None and not room_for_pips_cache(list_writing(making)):
        env["PIP_NO_CACHE_DIR"] = "1"

    def run(*commands: Sequence[str]) -> None:
        run_installers(commands, env=env, on_line=watcher.line, pass_fds=[place.descriptor])

    place.block()
    if record.steps:
        _take_away_halves(place.site)
    for number in range(1, len(steps) + 1):
        step = steps[number - 1]
        if step.name in record.steps:
            continue
        watcher.step(number, len(steps), step.text)
        place.space.mkdir(exist_ok=True)
        if step.work is not None:
            step.work()
        if step.name == _RESOLVE:
            making = _resolve_request(making, place, run)
            steps = _steps(making)
            for text in describe_changes(making):
                watcher.stage(text)
        elif step.commands:
            run(*step.commands)
        if step.name == "venv":
            place.block()
        record = Record(record.plan, "unfinished", (*record.steps, step.name))
        place.write(record)
    return record, making


def describe_changes(making: Making) -> tuple[str, ...]:
    """Return what the requirements change, a line each; of a known resolution."""
    if making.resolution is None:
        return ()
    found, added = [], []
    for one in making.resolution.changes(list_locked_lines(making.locks.tensorflow)):
        if one.locked is None:
            added.append(f"{one.name} {one.chosen}")
        elif one.chosen is None:
            found.append(f"{one.name} {one.locked} is left out: it is no longer needed.")
        else:
            found.append(f"{one.name} {one.chosen} instead of {one.locked}, for your requirements.")
    if added:
        found.append(f"Beside TensorFlow: {', '.join(added)}.")
    return tuple(clean_line(text, limit=2000) for text in found) or (
        "Your requirements go with it as it is locked.",
    )


def _describe_record(record: Record) -> str:
    def format_field(name: str) -> str:
        return clean_line(str(record.plan.get(name, "?")), limit=40)

    return f"TensorFlow {format_field('tensorflow')} on Python {format_field('python')}"


def _starts(making: Making, place: Workplace) -> bool:
    """Return whether the Python of an environment that was begun still runs, and is of the version that is wanted."""
    wanted = making.option.python
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    told = capture_output((str(place.python), "-I", "-c", code), {**making.env, INSTALLING: "1"})
    return told is not None and told.strip() == wanted


# ---------------------------------------------------------------- room, and what a killed installer left


def list_writing(making: Making) -> Writing:
    """Return what is written where, as far as the plan tells."""
    option, chosen = making.option, making.option.cuda_set
    wheels = {option.release.package: option.release.unpacked}
    wheels |= {wheel.name: wheel.unpacked for wheel in chosen.wheels} if chosen is not None else {}
    return Writing(
        folder=making.folder,
        size=option.size,
        download=option.release.size + (chosen.size if chosen is not None else 0),
        wheels=wheels,
        locks=(making.locks.tensorflow, making.locks.cuda),
        uv=making.uv,
        base=making.base,
        env=making.env,
    )


def _take_away_halves(site: Path) -> None:
    """Take what an installer was at when it was killed for not installed, so that it is installed once more.

    Both write the list of files (RECORD) before or while they write the files: what it lists is all there, with its
    size, or the distribution does not count as installed.
    """
    for folder in sorted(site.glob("*.dist-info")):
        if not _whole(site, folder):
            remove(folder)
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
    """Return a row of RECORD: path, hash, size; the last two are empty for what may change."""
    try:
        status = os.stat(f"{site}/{row[0]}")  # noqa: PTH116 - tens of thousands of them
    except OSError:
        return row[0].endswith(".pyc")
    return len(row) < 3 or not row[2] or status.st_size == int(row[2])
