"""The installation of an option of the plan into a virtual environment, in resumable steps.

What is installed is locked: compat/locks has the hash of every file. If the user's requirements need another version
of a package, uv or pip resolve it (resolution.py) before TensorFlow and CUDA are downloaded. The environment cannot
start until it is complete (see install_state.py).
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
from tfdoctor.advice import list_links
from tfdoctor.causes.steps import MakeLink
from tfdoctor.compat import Compat
from tfdoctor.environment.actions import make_link
from tfdoctor.environment.disk_space import (
    InstallSizes,
    capture_output,
    check_needs,
    compute_needs,
    has_room_for_pip_cache,
    measure_usage,
)
from tfdoctor.environment.folder import STATE_FOLDER, remove, write
from tfdoctor.environment.install_state import INSTALLING, LockedFolder, Record
from tfdoctor.environment.installers import (
    Installer,
    InstallFailedError,
    child_environment,
    run_installers,
    uv_options,
)
from tfdoctor.environment.resolution import NoSolutionError, PipResolution, Question, make_command, resolve
from tfdoctor.errors import Error, UsageError
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tfdoctor.compat.locks import Lock
    from tfdoctor.plan import Option
    from tfdoctor.report.progress import Progress

__all__ = [
    "NO_LOCK",
    "InstallRequest",
    "InstallResult",
    "LockFiles",
    "NoLockError",
    "describe_changes",
    "get_locks",
    "install_environment",
    "list_commands",
    "list_locked_lines",
    "make_disk_plan",
    "resolve_requirements",
]

NO_LOCK = "it is not among the combinations that were pinned and tested"
_TOOLS, _RESOLVE, _PACKAGES = "tools", "resolve", "packages"
_LOCKED, _HASHED, _OTHERS = "locked.txt", "requirements.txt", "addresses.txt"
"""Files in the environment's own folder that keep the resolution for the steps after it."""


class NoLockError(Error):
    """No lock exists for a release."""

    kind = "install"


@dataclass(frozen=True, slots=True)
class LockFiles:
    """The lock files that an environment is installed from."""

    tools: Path
    """The lock of pip, setuptools and wheel."""
    tensorflow: Path
    cuda: Path
    pins: tuple[str, ...]
    """`name==version` of every package in the last two locks: a user's requirements may not change these."""
    digest: str
    """SHA-256 over the digests of the three locks."""


@dataclass(frozen=True, slots=True)
class InstallRequest:
    """A request to install one option, with everything that it needs."""

    option: Option
    folder: Path
    """The folder of the environment, an absolute path."""
    base: str
    """The base interpreter: a path, or a version for uv to find or download."""
    version: str
    """The version of that interpreter, as far as it is known: `"3.11.7"`, `"3.11"`."""
    uv: str | None
    """The path of uv; None if the environment's pip installs."""
    locks: LockFiles
    requirements: tuple[str, ...] = ()
    """Validated requirement lines (environment/requirements)."""
    constraints: tuple[str, ...] = ()
    """Validated lines of the constraints files (`-c`)."""
    index: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    """The variables that the child processes inherit."""
    resolution: PipResolution | None = None
    """The resolution of the requirements; None until it is known."""

    @property
    def has_requirements(self) -> bool:
        """Whether the user has requirements or constraints."""
        return bool(self.requirements or self.constraints)

    @property
    def can_resolve_first(self) -> bool:
        """Whether the requirements can be resolved before the installation: pip needs 22.2, and so Python 3.7."""
        return self.uv is not None or versions.is_at_least(self.option.python, "3.7")

    @property
    def plan(self) -> dict[str, Any]:
        """The values that distinguish this plan from another one in the same folder."""
        text = "\n".join((*self.requirements, *(f"-c {line}" for line in self.constraints)))
        return {
            "tensorflow": self.option.tensorflow,
            "package": self.option.release.package,
            "python": self.option.python,
            "cuda_set": self.option.cuda_set.id if self.option.cuda_set is not None else None,
            "locks": self.locks.digest,
            "requirements": hashlib.sha256(text.encode()).hexdigest() if text else None,
        }

    @property
    def installer(self) -> Installer:
        """The installer: uv, or the environment's own pip."""
        python = str(self.folder / "bin" / "python")
        if self.uv is not None:
            return Installer("uv", python, (self.uv, "pip"), uv_options(self.env))
        return Installer("pip", python, (python, "-m", "pip"))


@dataclass(frozen=True, slots=True)
class InstallResult:
    """The result of `make`."""

    seconds: float
    resumed: bool
    """Whether an earlier run began the environment."""
    already: bool
    """Whether the environment was complete already, so that nothing was installed."""
    making: InstallRequest | None = None
    """The request with its resolution.

    None if the environment was complete and the user had no requirements, or if their resolution cannot be read.
    """


def get_locks(option: Option) -> LockFiles:
    """Return the locks of an option. Raise NoLockError if one does not exist, DataError if one is damaged."""
    release, python, cuda_set = option.release, option.python, option.cuda_set
    locks = Compat.load().locks
    tools = locks.tools(python)
    main = locks.get_lock(release.package, release.version, python)
    cuda = locks.cuda(cuda_set.id) if cuda_set is not None else None
    if tools is None or main is None or cuda is None or cuda_set is None:
        msg = f"TensorFlow {release.version} on Python {python} cannot be installed: {NO_LOCK}."
        raise NoLockError(msg, hint="Name another release: `tfdoctor recommend --method pip` has the best.")
    return LockFiles(
        tools=locks.tools_path(python),
        tensorflow=locks.path(release.package, release.version, python),
        cuda=locks.cuda_path(cuda_set.id),
        pins=_list_pins(main, cuda),
        digest=hashlib.sha256(" ".join(lock.digest for lock in (tools, main, cuda)).encode()).hexdigest(),
    )


def _list_pins(*locks: Lock) -> tuple[str, ...]:
    """Return `name==version` of every package in the locks."""
    return tuple(f"{package.name}=={package.version}" for lock in locks for package in lock.packages)


# ---------------------------------------------------------------- steps


@dataclass(frozen=True, slots=True)
class _Step:
    name: str
    text: str
    commands: tuple[tuple[str, ...], ...] = ()
    """Commands that may run at the same time."""
    work: Callable[[], None] | None = None


def _plan_steps(making: InstallRequest) -> tuple[_Step, ...]:
    """Return the steps of an installation; those after the resolution depend on it."""
    option, installer = making.option, making.installer
    tool_folder = making.folder / STATE_FOLDER
    index = _index_options(making)
    locked = (*index, "--no-deps", "--require-hashes")
    resolves = making.has_requirements and making.can_resolve_first
    tensorflow_lock = tool_folder / _LOCKED if resolves else making.locks.tensorflow
    tensorflow = (*locked, "--no-build-isolation", "-r", str(tensorflow_lock))
    cuda = ("-r", str(making.locks.cuda))
    install_commands: tuple[tuple[str, ...], ...]
    if installer.name == "uv":  # uv downloads and unpacks many wheels at once
        install_commands = (installer.install([*tensorflow, *cuda]),)
    else:
        install_commands = (installer.install(tensorflow), installer.install([*locked, *cuda]))
    steps = [
        _Step("venv", f"An environment of Python {making.version}", (_venv_command(making),)),
        _Step(
            _TOOLS,
            "pip, setuptools and wheel",
            (installer.install([*locked, "-r", str(making.locks.tools)]),),
        ),
    ]
    if resolves:
        resolve_command = make_command(_make_question(making), tool_folder / "tmp")
        steps.append(_Step(_RESOLVE, "Whether your requirements go with it, and how", (resolve_command,)))
    steps.append(
        _Step(
            _PACKAGES,
            f"TensorFlow {option.tensorflow} and what it needs, CUDA {option.cuda} with cuDNN {option.cudnn}",
            install_commands,
        )
    )
    if making.has_requirements:
        steps.append(_requirements_step(making, tool_folder))
    steps.append(
        _Step("links", "Links to CUDA's libraries where TensorFlow looks", (), lambda: _create_links(making))
    )
    return tuple(steps)


def _requirements_step(making: InstallRequest, tool_folder: Path) -> _Step:
    """Return the step that installs the user's requirements."""
    index, resolution = _index_options(making), making.resolution
    if not making.can_resolve_first:
        arguments = [
            "--constraint",
            str(tool_folder / "constraints.txt"),
            "--requirement",
            str(tool_folder / _HASHED),
        ]
        commands = [making.installer.install([*index, *arguments])]
        return _Step(
            "requirements", "Your requirements", tuple(commands), lambda: _write_requirements(making)
        )
    commands = []
    if resolution is None or resolution.hashed:
        arguments = ["--no-deps", "--require-hashes", "-r", str(tool_folder / _HASHED)]
        commands.append(making.installer.install([*index, *arguments]))
    if resolution is not None and resolution.unhashed:
        commands.append(making.installer.install([*index, "--no-deps", "-r", str(tool_folder / _OTHERS)]))
    return _Step("requirements", "Your requirements", tuple(commands))


def _venv_command(making: InstallRequest) -> tuple[str, ...]:
    """Return the command that creates the virtual environment."""
    if making.uv is not None:
        return (making.uv, "venv", "--allow-existing", "--python", making.base, str(making.folder))
    return (making.base, "-m", "venv", str(making.folder))


def _index_options(making: InstallRequest) -> tuple[str, ...]:
    """Return the options that select the index."""
    if making.index is None:
        return ()
    return ("--default-index" if making.uv is not None else "--index-url", making.index)


def _write_requirements(making: InstallRequest) -> None:
    """Write the constraints and requirements for an installer that cannot resolve beforehand."""
    tool_folder = making.folder / STATE_FOLDER
    constraints = (*making.locks.pins, *making.constraints)
    for name, lines in (("constraints.txt", constraints), (_HASHED, making.requirements)):
        write(tool_folder / name, "".join(f"{line}\n" for line in lines).encode())


def _site_packages(making: InstallRequest) -> Path:
    """Return the environment's site-packages folder."""
    return making.folder / "lib" / f"python{making.option.python}" / "site-packages"


def _find_links(making: InstallRequest) -> Iterator[tuple[Path, str]]:
    """Yield (path, target) of every link to CUDA's libraries that TensorFlow needs."""
    option = making.option
    if option.cuda_set is not None:
        for link in list_links(Compat.load(), option.release, option.cuda_set, str(_site_packages(making))):
            yield Path(link.path), link.target


def _create_links(making: InstallRequest) -> None:
    """Create the missing links. Raise InstallFailedError if the target of one does not exist."""
    for path, target in _find_links(making):
        if not (path.parent / target).is_file():
            msg = f"{path.name} is not where NVIDIA's wheel should have put it."
            raise InstallFailedError(msg, hint=clean_line(str(path.parent / target)))
        if path.is_symlink() and os.readlink(path) == target:  # noqa: PTH115 - as it was written
            continue
        make_link(MakeLink(str(path), target))


def list_commands(making: InstallRequest) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return (purpose, arguments) of every command that `make` runs.

    The links that it creates are included as `ln` commands.
    """
    commands = [(step.text, command) for step in _plan_steps(making) for command in step.commands]
    links = [("", ("ln", "-s", target, str(path))) for path, target in _find_links(making)]
    return (*commands, *((_plan_steps(making)[-1].text, arguments) for _, arguments in links))


# ---------------------------------------------------------------- resolution of the user's requirements


def get_requires(option: Option) -> tuple[str, ...]:
    """Return the known requirements of TensorFlow's wheel."""
    return option.release.requires


def _make_question(making: InstallRequest, base: str | None = None) -> Question:
    """Return the question for the resolver.

    `base` is an interpreter or a version, given if the environment does not exist yet.
    """
    python = making.installer.python if base is None else base
    python_option = "--python" if "/" in python else "--python-version"
    lock = list_locked_lines(making.locks.tensorflow)
    return Question(
        package=making.option.release.package,
        requires=get_requires(making.option),
        lock=lock,
        cuda=tuple(line.split(" ", 1)[0] for line in list_locked_lines(making.locks.cuda)),
        lines=making.requirements,
        constraints=making.constraints,
        program=(making.uv, "pip") if making.uv is not None else (python, "-m", "pip"),
        python=(python_option, python) if making.uv is not None else (),
        index=(*_index_options(making), *(uv_options(making.env) if making.uv is not None else ())),
    )


def list_locked_lines(path: Path) -> tuple[str, ...]:
    """Return `name==version --hash=…` of every package in a lock."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return tuple(line.removesuffix("  # sdist") for line in lines if line and not line.startswith("#"))


def resolve_requirements(
    making: InstallRequest, on_line: Callable[[str], None] | None = None
) -> PipResolution:
    """Return the resolution that `make` would find, worked out in a temporary folder.

    With pip a small temporary environment is made there, so that the locked pip resolves. Raise NoSolutionError with
    the reason, or InstallFailedError if the attempt itself fails.
    """
    env = child_environment(making.env)

    def run(arguments: Sequence[str]) -> None:
        run_installers([arguments], env=env, on_line=on_line)

    with tempfile.TemporaryDirectory(prefix="tfdoctor-") as name:
        folder = Path(name)
        if making.uv is not None:
            return resolve(_make_question(making, making.base), folder, run)
        temporary = dataclasses.replace(making, folder=folder / "env")
        run(_venv_command(temporary))
        arguments = [*_index_options(making), "--no-deps", "--require-hashes", "-r", str(making.locks.tools)]
        run(temporary.installer.install(arguments))
        return resolve(_make_question(temporary), folder, run)


def _resolve_request(
    making: InstallRequest, workplace: LockedFolder, run: Callable[[Sequence[str]], None]
) -> InstallRequest:
    """Return the request with its resolution, and save the resolution for a later run."""
    resolution = resolve(_make_question(making), workplace.temporary_folder, run)
    for name, lines in (
        (_LOCKED, resolution.unchanged),
        (_HASHED, resolution.hashed),
        (_OTHERS, resolution.unhashed),
    ):
        workplace.write_file(name, "".join(f"{line}\n" for line in lines))
    return dataclasses.replace(making, resolution=resolution)


def _load_resolution(making: InstallRequest, workplace: LockedFolder) -> InstallRequest | None:
    """Return the request with the resolution that an earlier run saved.

    Return None if it cannot be read or is empty.
    """
    try:
        locked, hashed, others = (
            tuple((workplace.folder / STATE_FOLDER / name).read_text(encoding="utf-8").splitlines())
            for name in (_LOCKED, _HASHED, _OTHERS)
        )
    except (OSError, ValueError):
        return None
    return dataclasses.replace(making, resolution=PipResolution(locked, hashed, others)) if locked else None


# ---------------------------------------------------------------- installation


def install_environment(request: InstallRequest, watcher: Progress) -> InstallResult:
    """Install the environment, or finish an unfinished one; do nothing if it is complete.

    Raise WorkplaceError, UsageError or InstallFailedError. An unfinished environment is kept and marked as such; it is
    removed if it has no working Python yet, or if the requirements have no solution.
    """
    started = time.monotonic()
    folder_text = clean_line(str(request.folder))

    def show_wait() -> None:
        watcher.stage(f"Another tfdoctor is at work in {folder_text}: waiting for it …")

    workplace = LockedFolder.acquire(request.folder, request.option.python, on_wait=show_wait)
    try:
        return _make(request, workplace, watcher, started)
    except InstallFailedError as error:
        watcher.failed("", error.output)
        raise
    finally:
        workplace.release()


def _make(
    making: InstallRequest, workplace: LockedFolder, watcher: Progress, start_time: float
) -> InstallResult:
    """Install the environment in a locked folder."""
    record_before = workplace.record()
    folder_text = clean_line(str(making.folder))
    is_same_plan = record_before is not None and dict(record_before.plan) == making.plan
    if record_before is not None and record_before.finished:
        if not is_same_plan:
            msg = f"--into: in {folder_text} is an environment of another plan: {_describe_record(record_before)}."
            raise UsageError(msg, hint="Name another folder with --into DIR, or remove this one.")
        if workplace.is_blocked:  # a run was killed just before its end
            workplace.finish(record_before)
        resumable = _load_resolution(making, workplace) if making.has_requirements else None
        return InstallResult(time.monotonic() - start_time, resumed=False, already=True, making=resumable)
    finished_steps = _list_done(making, record_before) if record_before is not None and is_same_plan else ()
    if record_before is not None:
        watcher.stage(
            f"{folder_text} is unfinished: going on with it."
            if is_same_plan
            else f"{folder_text} is unfinished, and of another plan ({_describe_record(record_before)}): it is rebuilt."
        )
    if "venv" in finished_steps and not _python_starts(making, workplace):
        finished_steps = ()
    if _RESOLVE in finished_steps:
        resumable = _load_resolution(making, workplace)
        making, finished_steps = (
            (resumable, finished_steps)
            if resumable is not None
            else (making, finished_steps[: finished_steps.index(_RESOLVE)])
        )
    record = Record(making.plan, "unfinished", finished_steps)
    try:
        workplace.write(record)
        if not finished_steps:
            workplace.clear()
        if _PACKAGES not in finished_steps:
            check_needs(
                compute_needs(
                    make_disk_plan(making),
                    installed_bytes=measure_usage(workplace.folder) if finished_steps else 0,
                ),
                folder_text,
            )
        record, making = _run_all_steps(making, workplace, record, watcher)
    except BaseException as error:
        # An environment that cannot start, or whose requirements have no solution, is of no use to anybody.
        steps = (workplace.record() or record).steps
        if "venv" not in steps or (isinstance(error, NoSolutionError) and _PACKAGES not in steps):
            workplace.abandon()
        raise
    watcher.done()
    workplace.finish(record)
    return InstallResult(
        time.monotonic() - start_time, resumed=bool(finished_steps), already=False, making=making
    )


def _list_done(making: InstallRequest, record: Record) -> tuple[str, ...]:
    """Return the steps that are done, up to the first that is not: the steps after that one run again."""
    finished = []
    for step in _plan_steps(making):
        if step.name not in record.steps:
            break
        finished.append(step.name)
    return tuple(finished)


def _run_all_steps(
    making: InstallRequest, workplace: LockedFolder, record: Record, watcher: Progress
) -> tuple[Record, InstallRequest]:
    """Run the steps that are not done. Return the final record, and the request with its resolution."""
    steps = _plan_steps(making)
    env = {**child_environment(making.env), INSTALLING: "1"}
    env.setdefault("TMPDIR", str(workplace.temporary_folder))
    if making.uv is None and not has_room_for_pip_cache(make_disk_plan(making)):
        env["PIP_NO_CACHE_DIR"] = "1"

    def run(*commands: Sequence[str]) -> None:
        run_installers(commands, env=env, on_line=watcher.line, pass_fds=[workplace.descriptor])

    workplace.block()
    if record.steps:
        _remove_incomplete(workplace.site_packages)
    for number in range(1, len(steps) + 1):
        step = steps[number - 1]
        if step.name in record.steps:
            continue
        watcher.step(number, len(steps), step.text)
        workplace.temporary_folder.mkdir(exist_ok=True)
        if step.work is not None:
            step.work()
        if step.name == _RESOLVE:
            making = _resolve_request(making, workplace, run)
            steps = _plan_steps(making)
            for text in describe_changes(making):
                watcher.stage(text)
        elif step.commands:
            run(*step.commands)
        if step.name == "venv":
            workplace.block()
        record = Record(record.plan, "unfinished", (*record.steps, step.name))
        workplace.write(record)
    return record, making


def describe_changes(making: InstallRequest) -> tuple[str, ...]:
    """Return one line for each change that the requirements make; nothing if there is no resolution yet."""
    if making.resolution is None:
        return ()
    lines, added = [], []
    for change in making.resolution.changes(list_locked_lines(making.locks.tensorflow)):
        if change.locked is None:
            added.append(f"{change.name} {change.chosen}")
        elif change.chosen is None:
            lines.append(f"{change.name} {change.locked} is left out: it is no longer needed.")
        else:
            lines.append(f"{change.name} {change.chosen} instead of {change.locked}, for your requirements.")
    if added:
        lines.append(f"Beside TensorFlow: {', '.join(added)}.")
    return tuple(clean_line(text, limit=2000) for text in lines) or (
        "Your requirements go with it as it is locked.",
    )


def _describe_record(record: Record) -> str:
    def format_field(name: str) -> str:
        return clean_line(str(record.plan.get(name, "?")), limit=40)

    return f"TensorFlow {format_field('tensorflow')} on Python {format_field('python')}"


def _python_starts(making: InstallRequest, workplace: LockedFolder) -> bool:
    """Return whether the unfinished environment's Python runs and has the required version."""
    required = making.option.python
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    output = capture_output((str(workplace.python), "-I", "-c", code), {**making.env, INSTALLING: "1"})
    return output is not None and output.strip() == required


# ---------------------------------------------------------------- disk space, and leftovers of a killed installer


def make_disk_plan(making: InstallRequest) -> InstallSizes:
    """Return what the installation writes to which folders, as far as the plan says."""
    option, cuda_set = making.option, making.option.cuda_set
    wheels = {option.release.package: option.release.unpacked}
    wheels |= {wheel.name: wheel.unpacked for wheel in cuda_set.wheels} if cuda_set is not None else {}
    return InstallSizes(
        folder=making.folder,
        size=option.size,
        download=option.release.size + (cuda_set.size if cuda_set is not None else 0),
        wheels=wheels,
        locks=(making.locks.tensorflow, making.locks.cuda),
        uv=making.uv,
        base=making.base,
        env=making.env,
    )


def _remove_incomplete(site: Path) -> None:
    """Remove distributions that a killed installer left incomplete, so that they are installed again.

    uv and pip write the list of files (RECORD) before or while they write the files. A distribution counts as installed
    only if all its listed files exist with their sizes.
    """
    for folder in sorted(site.glob("*.dist-info")):
        if not _is_complete(site, folder):
            remove(folder)
    for leftover in site.glob("~*"):  # pip renames what it is removing to such a name
        remove(leftover)


def _is_complete(site: Path, folder: Path) -> bool:
    """Return whether every file in a distribution's RECORD is installed."""
    try:
        with (folder / "RECORD").open(encoding="utf-8", newline="") as stream:
            records = [record for record in csv.reader(stream) if record]
        if not any(record[0] == f"{folder.name}/INSTALLER" for record in records):
            return False  # this is the wheel's own RECORD: the installer did not get to write its own
        return all(_is_file_installed(site, record) for record in records)
    except (OSError, ValueError, csv.Error):
        return False


def _is_file_installed(site: Path, row: Sequence[str]) -> bool:
    """Return whether the file of a RECORD row (path, hash, size) exists and has that size.

    A missing .pyc file counts as present, and an empty size matches every size.
    """
    try:
        status = os.stat(f"{site}/{row[0]}")  # noqa: PTH116 - there are tens of thousands of files
    except OSError:
        return row[0].endswith(".pyc")
    return len(row) < 3 or not row[2] or status.st_size == int(row[2])
