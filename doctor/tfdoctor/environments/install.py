"""Install a planned option into a virtual environment, in steps that a later run can resume.

The versions and hashes of all files are locked in compat/locks. If the user's requirements need other versions of some
packages, uv or pip resolves them (resolution.py) before TensorFlow and CUDA are downloaded. Until the installation is
complete, the environment's Python refuses to start (install_state.py).
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

from tfdoctor.compat import Compat
from tfdoctor.core import versions
from tfdoctor.core.causes.steps import MakeLink
from tfdoctor.core.errors import Error, UsageError
from tfdoctor.core.text import clean_line
from tfdoctor.environments.actions import make_link
from tfdoctor.environments.disk_space import (
    InstallSizes,
    capture_output,
    compute_needs,
    has_space_for_pip_cache,
    measure_disk_usage,
    require_space,
)
from tfdoctor.environments.folder import STATE_FOLDER, remove_path, write_atomically
from tfdoctor.environments.install_state import INSTALLING_VARIABLE, InstallRecord, LockedFolder
from tfdoctor.environments.installers import (
    Installer,
    InstallFailedError,
    list_uv_options,
    make_child_environment,
    run_installers,
)
from tfdoctor.environments.resolution import (
    NoSolutionError,
    ResolutionRequest,
    ResolvedPackages,
    make_resolver_command,
    resolve,
)
from tfdoctor.remedies.links import list_links

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tfdoctor.diagnosis.progress import Progress
    from tfdoctor.planning import Option

__all__ = [
    "NO_LOCK_REASON",
    "InstallRequest",
    "InstallResult",
    "LockFiles",
    "NoLockError",
    "describe_changes",
    "get_lock_files",
    "install_environment",
    "list_install_commands",
    "list_locked_lines",
    "make_install_sizes",
    "resolve_requirements",
]

NO_LOCK_REASON = "it is not among the combinations that were pinned and tested"
"""The reason in messages why a release cannot be installed without a lock."""
_TOOLS_STEP, _RESOLVE_STEP, _PACKAGES_STEP = "tools", "resolve", "packages"
"""The names of steps in the record."""
_LOCKED_FILE, _HASHED_FILE, _UNHASHED_FILE = "locked.txt", "requirements.txt", "addresses.txt"
"""The files in `.tfdoctor` that save the resolution: locked lines, other lines with hashes, lines without a hash."""


class NoLockError(Error):
    """There is no lock for a release."""

    kind = "install"


@dataclass(frozen=True, slots=True)
class LockFiles:
    """The lock files that an environment is installed from."""

    tools: Path
    """The lock of pip, setuptools and wheel."""
    tensorflow: Path
    """The lock of TensorFlow and its dependencies."""
    cuda: Path
    """The lock of NVIDIA's wheels."""
    pins: tuple[str, ...]
    """`name==version` of every package in the locks of TensorFlow and CUDA."""
    digest: str
    """The SHA-256 of the digests of the three locks."""


@dataclass(frozen=True, slots=True)
class InstallRequest:
    """A request to install one option into a folder."""

    option: Option
    folder: Path
    """The absolute path of the environment."""
    base_python: str
    """The base interpreter: a path, or a version that uv finds or downloads."""
    python_version: str
    """The version of the base interpreter: `"3.11.7"`, or `"3.11"` if the patch release is not known."""
    uv_path: str | None
    """The path of uv; None if the environment's pip installs."""
    lock_files: LockFiles
    requirements: tuple[str, ...] = ()
    """Validated requirement lines (environments/requirements)."""
    constraints: tuple[str, ...] = ()
    """Validated lines of the constraints files (`-c`)."""
    index_url: str | None = None
    """The URL of the package index; None for the usual one."""
    env: Mapping[str, str] = field(default_factory=dict)
    """The variables that the child processes inherit."""
    resolution: ResolvedPackages | None = None
    """The resolution of the requirements; None until it is known."""

    @property
    def has_requirements(self) -> bool:
        """Whether the user has requirements or constraints."""
        return bool(self.requirements or self.constraints)

    @property
    def can_resolve_first(self) -> bool:
        """Whether the requirements can be resolved before the installation.

        pip can since 22.2 (`pip install --dry-run`), which requires Python 3.7.
        """
        return self.uv_path is not None or versions.is_at_least(self.option.python, "3.7")

    @property
    def plan_key(self) -> dict[str, Any]:
        """The values that identify the plan. An unfinished installation is resumed only if they are the same."""
        text = "\n".join((*self.requirements, *(f"-c {line}" for line in self.constraints)))
        return {
            "tensorflow": self.option.tensorflow,
            "package": self.option.release.package,
            "python": self.option.python,
            "cuda_set": self.option.cuda_set.id if self.option.cuda_set is not None else None,
            "locks": self.lock_files.digest,
            "requirements": hashlib.sha256(text.encode()).hexdigest() if text else None,
        }

    @property
    def installer(self) -> Installer:
        """The installer: uv, or pip in the environment."""
        python = str(self.folder / "bin" / "python")
        if self.uv_path is not None:
            return Installer(
                name="uv",
                interpreter_path=python,
                base_command=(self.uv_path, "pip"),
                install_options=list_uv_options(self.env),
            )
        return Installer(name="pip", interpreter_path=python, base_command=(python, "-m", "pip"))


@dataclass(frozen=True, slots=True)
class InstallResult:
    """The result of `install_environment`."""

    seconds: float
    """The duration in seconds."""
    was_resumed: bool
    """Whether the installation continued that of an earlier run."""
    was_complete: bool
    """Whether the environment was already complete, so that nothing was installed."""
    request: InstallRequest | None = None
    """The request with its resolution.

    None if the environment was already complete, and the user has no requirements or their resolution cannot be read.
    """


def get_lock_files(option: Option) -> LockFiles:
    """Return the lock files of an option.

    Raise NoLockError if a lock does not exist, or DataError if a lock is damaged.
    """
    release, python, cuda_set = option.release, option.python, option.cuda_set
    locks = Compat.load().locks
    tools = locks.get_tools_lock(python)
    tensorflow = locks.get_lock(release.package, release.version, python)
    cuda = locks.get_cuda_lock(cuda_set.id) if cuda_set is not None else None
    if tools is None or tensorflow is None or cuda is None or cuda_set is None:
        msg = f"TensorFlow {release.version} on Python {python} cannot be installed: {NO_LOCK_REASON}."
        raise NoLockError(msg, hint="Name another release: `tfdoctor recommend --method pip` has the best.")
    return LockFiles(
        tools=locks.get_tools_path(python),
        tensorflow=locks.get_path(release.package, release.version, python),
        cuda=locks.get_cuda_path(cuda_set.id),
        pins=tuple(
            f"{package.name}=={package.version}" for package in (*tensorflow.packages, *cuda.packages)
        ),
        digest=hashlib.sha256(
            " ".join(lock.digest for lock in (tools, tensorflow, cuda)).encode()
        ).hexdigest(),
    )


# ---------------------------------------------------------------- steps


@dataclass(frozen=True, slots=True)
class _Step:
    """A step of the installation."""

    name: str
    """The name in the record."""
    description: str
    """The description for the user."""
    commands: tuple[tuple[str, ...], ...] = ()
    """Commands that may run at the same time."""
    prepare: Callable[[], None] | None = None
    """A function that is called before the commands run."""


def _plan_steps(request: InstallRequest) -> tuple[_Step, ...]:
    """Return the steps of an installation. The steps after the resolution depend on its result."""
    option, installer = request.option, request.installer
    state_folder = request.folder / STATE_FOLDER
    index = _list_index_options(request)
    locked_options = (*index, "--no-deps", "--require-hashes")
    resolves_first = request.has_requirements and request.can_resolve_first
    tensorflow_lock = state_folder / _LOCKED_FILE if resolves_first else request.lock_files.tensorflow
    tensorflow_arguments = (*locked_options, "--no-build-isolation", "-r", str(tensorflow_lock))
    cuda_arguments = ("-r", str(request.lock_files.cuda))
    install_commands: tuple[tuple[str, ...], ...]
    if installer.name == "uv":  # uv downloads and unpacks many wheels at once
        install_commands = (installer.make_install_command([*tensorflow_arguments, *cuda_arguments]),)
    else:
        install_commands = (
            installer.make_install_command(tensorflow_arguments),
            installer.make_install_command([*locked_options, *cuda_arguments]),
        )
    steps = [
        _Step("venv", f"An environment of Python {request.python_version}", (_make_venv_command(request),)),
        _Step(
            _TOOLS_STEP,
            "pip, setuptools and wheel",
            (installer.make_install_command([*locked_options, "-r", str(request.lock_files.tools)]),),
        ),
    ]
    if resolves_first:
        resolve_command = make_resolver_command(_make_resolution_request(request), state_folder / "tmp")
        steps.append(
            _Step(_RESOLVE_STEP, "Whether your requirements go with it, and how", (resolve_command,))
        )
    steps.append(
        _Step(
            _PACKAGES_STEP,
            f"TensorFlow {option.tensorflow} and what it needs, CUDA {option.cuda} with cuDNN {option.cudnn}",
            install_commands,
        )
    )
    if request.has_requirements:
        steps.append(_make_requirements_step(request, state_folder))
    steps.append(
        _Step(
            name="links",
            description="Links to CUDA's libraries where TensorFlow looks",
            prepare=lambda: _create_links(request),
        )
    )
    return tuple(steps)


def _make_requirements_step(request: InstallRequest, state_folder: Path) -> _Step:
    """Return the step that installs the user's requirements, and resolves them if that was not done before."""
    index, resolution = _list_index_options(request), request.resolution
    if not request.can_resolve_first:
        arguments = [
            "--constraint",
            str(state_folder / "constraints.txt"),
            "--requirement",
            str(state_folder / _HASHED_FILE),
        ]
        commands = [request.installer.make_install_command([*index, *arguments])]
        return _Step(
            "requirements", "Your requirements", tuple(commands), lambda: _write_requirements(request)
        )
    commands = []
    if resolution is None or resolution.hashed_lines:
        arguments = ["--no-deps", "--require-hashes", "-r", str(state_folder / _HASHED_FILE)]
        commands.append(request.installer.make_install_command([*index, *arguments]))
    if resolution is not None and resolution.unhashed_lines:
        commands.append(
            request.installer.make_install_command(
                [*index, "--no-deps", "-r", str(state_folder / _UNHASHED_FILE)]
            )
        )
    return _Step("requirements", "Your requirements", tuple(commands))


def _make_venv_command(request: InstallRequest) -> tuple[str, ...]:
    """Return the command that creates the virtual environment."""
    if request.uv_path is not None:
        return (
            request.uv_path,
            "venv",
            "--allow-existing",
            "--python",
            request.base_python,
            str(request.folder),
        )
    return (request.base_python, "-m", "venv", str(request.folder))


def _list_index_options(request: InstallRequest) -> tuple[str, ...]:
    """Return the options that select the package index; empty for the usual one."""
    if request.index_url is None:
        return ()
    return ("--default-index" if request.uv_path is not None else "--index-url", request.index_url)


def _write_requirements(request: InstallRequest) -> None:
    """Write the constraints and requirements to files, for an installer that cannot resolve them first."""
    state_folder = request.folder / STATE_FOLDER
    constraints = (*request.lock_files.pins, *request.constraints)
    for name, lines in (("constraints.txt", constraints), (_HASHED_FILE, request.requirements)):
        write_atomically(state_folder / name, "".join(f"{line}\n" for line in lines).encode())


def _iter_links(request: InstallRequest) -> Iterator[tuple[Path, str]]:
    """Yield (path, target) of every link to CUDA's libraries that TensorFlow needs."""
    option = request.option
    if option.cuda_set is not None:
        site_packages = request.folder / "lib" / f"python{option.python}" / "site-packages"
        for link in list_links(Compat.load(), option.release, option.cuda_set, str(site_packages)):
            yield Path(link.path), link.target


def _create_links(request: InstallRequest) -> None:
    """Create the missing links. Raise InstallFailedError if the target of a link does not exist."""
    for path, target in _iter_links(request):
        if not (path.parent / target).is_file():
            msg = f"{path.name} is not where NVIDIA's wheel should have put it."
            raise InstallFailedError(msg, hint=clean_line(str(path.parent / target)))
        if path.is_symlink() and os.readlink(path) == target:  # noqa: PTH115 - as it was written
            continue
        make_link(MakeLink(str(path), target))


def list_install_commands(request: InstallRequest) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return (description, arguments) of every command that `install_environment` runs.

    The links that it creates itself are included as `ln` commands.
    """
    steps = _plan_steps(request)
    *_other_steps, link_step = steps
    commands = [(step.description, command) for step in steps for command in step.commands]
    link_commands = [("ln", "-s", target, str(path)) for path, target in _iter_links(request)]
    return (*commands, *((link_step.description, arguments) for arguments in link_commands))


# ---------------------------------------------------------------- resolution of the user's requirements


def get_known_requirements(option: Option) -> tuple[str, ...]:
    """Return the requirements of the TensorFlow wheel that the compat data has recorded."""
    return option.release.requirements


def _make_resolution_request(request: InstallRequest, base: str | None = None) -> ResolutionRequest:
    """Return the request for the resolver.

    `base` is an interpreter or a version to resolve for; None means the environment's own interpreter.
    """
    python = request.installer.interpreter_path if base is None else base
    python_option = "--python" if "/" in python else "--python-version"
    lock = list_locked_lines(request.lock_files.tensorflow)
    return ResolutionRequest(
        package=request.option.release.package,
        recorded_requires=get_known_requirements(request.option),
        lock_lines=lock,
        cuda_pins=tuple(line.split(" ", 1)[0] for line in list_locked_lines(request.lock_files.cuda)),
        requirements=request.requirements,
        constraints=request.constraints,
        resolver_command=(request.uv_path, "pip") if request.uv_path is not None else (python, "-m", "pip"),
        python_options=(python_option, python) if request.uv_path is not None else (),
        index_options=(
            *_list_index_options(request),
            *(list_uv_options(request.env) if request.uv_path is not None else ()),
        ),
    )


def list_locked_lines(path: Path) -> tuple[str, ...]:
    """Return the line `name==version --hash=…` of every package in a lock file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    # The lock marks a package that pip builds from source; installers must not see the mark.
    return tuple(line.removesuffix("  # sdist") for line in lines if line and not line.startswith("#"))


def resolve_requirements(
    request: InstallRequest, on_line: Callable[[str], None] | None = None
) -> ResolvedPackages:
    """Resolve the requirements in a temporary folder, as an installation does, and install nothing.

    If pip resolves, a temporary environment with the locked pip is created first. Raise NoSolutionError if the
    requirements have no solution, or InstallFailedError if the resolver cannot run.
    """
    env = make_child_environment(request.env)

    def run(arguments: Sequence[str]) -> None:
        run_installers([arguments], env=env, on_line=on_line)

    with tempfile.TemporaryDirectory(prefix="tfdoctor-") as name:
        folder = Path(name)
        if request.uv_path is not None:
            return resolve(_make_resolution_request(request, request.base_python), folder, run)
        temporary_request = dataclasses.replace(request, folder=folder / "env")
        run(_make_venv_command(temporary_request))
        arguments = [
            *_list_index_options(request),
            "--no-deps",
            "--require-hashes",
            "-r",
            str(request.lock_files.tools),
        ]
        run(temporary_request.installer.make_install_command(arguments))
        return resolve(_make_resolution_request(temporary_request), folder, run)


def _resolve_request(
    request: InstallRequest, locked_folder: LockedFolder, run: Callable[[Sequence[str]], None]
) -> InstallRequest:
    """Resolve the requirements, save the result for a later run, and return the request with it."""
    resolution = resolve(_make_resolution_request(request), locked_folder.temporary_folder, run)
    for name, lines in (
        (_LOCKED_FILE, resolution.locked_lines),
        (_HASHED_FILE, resolution.hashed_lines),
        (_UNHASHED_FILE, resolution.unhashed_lines),
    ):
        locked_folder.write_file(name, "".join(f"{line}\n" for line in lines))
    return dataclasses.replace(request, resolution=resolution)


def _load_resolution(request: InstallRequest, locked_folder: LockedFolder) -> InstallRequest | None:
    """Return the request with the resolution that an earlier run saved; None if it cannot be read."""
    try:
        unchanged, hashed, unhashed = (
            tuple((locked_folder.folder / STATE_FOLDER / name).read_text(encoding="utf-8").splitlines())
            for name in (_LOCKED_FILE, _HASHED_FILE, _UNHASHED_FILE)
        )
    except (OSError, ValueError):
        return None
    return (
        dataclasses.replace(
            request,
            resolution=ResolvedPackages(locked_lines=unchanged, hashed_lines=hashed, unhashed_lines=unhashed),
        )
        if unchanged
        else None
    )


# ---------------------------------------------------------------- installation


def install_environment(request: InstallRequest, progress: Progress) -> InstallResult:
    """Install the environment, or resume an unfinished installation; do nothing if it is complete.

    Raise LockedFolderError or UsageError if the folder cannot be used, and InstallFailedError if a step fails. A later
    run can continue after a failure, so the environment is removed only if it has no Python yet or if the requirements
    have no solution.
    """
    start_time = time.monotonic()
    folder_text = clean_line(str(request.folder))

    def show_wait() -> None:
        progress.begin_stage(f"Another tfdoctor is at work in {folder_text}: waiting for it …")

    locked_folder = LockedFolder.acquire(request.folder, request.option.python, on_wait=show_wait)
    try:
        return _install_locked(request, locked_folder, progress, start_time)
    except InstallFailedError as error:
        progress.report_failure("", error.output)
        raise
    finally:
        locked_folder.release()


def _install_locked(
    request: InstallRequest, locked_folder: LockedFolder, progress: Progress, start_time: float
) -> InstallResult:
    """Install the environment in a locked folder."""
    previous_record = locked_folder.read_record()
    folder_text = clean_line(str(request.folder))
    is_same_plan = previous_record is not None and dict(previous_record.plan_key) == request.plan_key
    if previous_record is not None and previous_record.is_finished:
        if not is_same_plan:
            msg = f"--into: in {folder_text} is an environment of another plan: {_describe_record(previous_record)}."
            raise UsageError(msg, hint="Name another folder with --into DIR, or remove this one.")
        if locked_folder.is_blocked:  # an earlier run was killed just before its end
            locked_folder.finish(previous_record)
        resolved_request = _load_resolution(request, locked_folder) if request.has_requirements else None
        return InstallResult(
            time.monotonic() - start_time, was_resumed=False, was_complete=True, request=resolved_request
        )
    finished_names = (
        _list_finished_steps(request, previous_record) if previous_record is not None and is_same_plan else ()
    )
    if previous_record is not None:
        progress.begin_stage(
            f"{folder_text} is unfinished: going on with it."
            if is_same_plan
            else f"{folder_text} is unfinished, and of another plan ({_describe_record(previous_record)}): it is rebuilt."
        )
    if "venv" in finished_names and not _has_working_python(request, locked_folder):
        finished_names = ()
    if _RESOLVE_STEP in finished_names:
        resolved_request = _load_resolution(request, locked_folder)
        request, finished_names = (
            (resolved_request, finished_names)
            if resolved_request is not None
            else (request, finished_names[: finished_names.index(_RESOLVE_STEP)])
        )
    record = InstallRecord(plan_key=request.plan_key, state="unfinished", finished_steps=finished_names)
    try:
        locked_folder.write_record(record)
        if not finished_names:
            locked_folder.clear()
        if _PACKAGES_STEP not in finished_names:
            require_space(
                compute_needs(
                    make_install_sizes(request),
                    installed_bytes=measure_disk_usage(locked_folder.folder) if finished_names else 0,
                ),
                folder_text,
            )
        record, request = _run_all_steps(request, locked_folder, record, progress)
    except BaseException as error:
        # A later run cannot use an environment without a Python, or with requirements that have no solution.
        steps = (locked_folder.read_record() or record).finished_steps
        if "venv" not in steps or (isinstance(error, NoSolutionError) and _PACKAGES_STEP not in steps):
            locked_folder.abandon()
        raise
    progress.end_step()
    locked_folder.finish(record)
    return InstallResult(
        time.monotonic() - start_time, was_resumed=bool(finished_names), was_complete=False, request=request
    )


def _list_finished_steps(request: InstallRequest, record: InstallRecord) -> tuple[str, ...]:
    """Return the names of the finished steps before the first unfinished step. All other steps run again."""
    names = []
    for step in _plan_steps(request):
        if step.name not in record.finished_steps:
            break
        names.append(step.name)
    return tuple(names)


def _run_all_steps(
    request: InstallRequest, locked_folder: LockedFolder, record: InstallRecord, progress: Progress
) -> tuple[InstallRecord, InstallRequest]:
    """Run the unfinished steps. Return the final record, and the request with its resolution."""
    steps = _plan_steps(request)
    env = {**make_child_environment(request.env), INSTALLING_VARIABLE: "1"}
    env.setdefault("TMPDIR", str(locked_folder.temporary_folder))
    if request.uv_path is None and not has_space_for_pip_cache(make_install_sizes(request)):
        env["PIP_NO_CACHE_DIR"] = "1"

    def run(*commands: Sequence[str]) -> None:
        run_installers(commands, env=env, on_line=progress.report_line, pass_fds=[locked_folder.descriptor])

    locked_folder.block()
    if record.finished_steps:
        _remove_incomplete(locked_folder.site_packages)
    for number in range(1, len(steps) + 1):
        step = steps[number - 1]  # `steps` is replaced after the resolution
        if step.name in record.finished_steps:
            continue
        progress.begin_step(number, len(steps), step.description)
        locked_folder.temporary_folder.mkdir(exist_ok=True)
        if step.prepare is not None:
            step.prepare()
        if step.name == _RESOLVE_STEP:
            request = _resolve_request(request, locked_folder, run)
            steps = _plan_steps(request)
            for text in describe_changes(request):
                progress.begin_stage(text)
        elif step.commands:
            run(*step.commands)
        if step.name == "venv":
            locked_folder.block()  # again, for the new activate scripts
        record = InstallRecord(
            plan_key=record.plan_key, state="unfinished", finished_steps=(*record.finished_steps, step.name)
        )
        locked_folder.write_record(record)
    return record, request


def describe_changes(request: InstallRequest) -> tuple[str, ...]:
    """Return lines about the packages that differ from the lock, or one line if there is no difference.

    Return an empty tuple if the requirements are not resolved yet.
    """
    if request.resolution is None:
        return ()
    lines, added_packages = [], []
    for change in request.resolution.compare_with_lock(list_locked_lines(request.lock_files.tensorflow)):
        if change.locked_version is None:
            added_packages.append(f"{change.name} {change.resolved_version}")
        elif change.resolved_version is None:
            lines.append(f"{change.name} {change.locked_version} is left out: it is no longer needed.")
        else:
            lines.append(
                f"{change.name} {change.resolved_version} instead of {change.locked_version}, for your requirements."
            )
    if added_packages:
        lines.append(f"Beside TensorFlow: {', '.join(added_packages)}.")
    return tuple(clean_line(text, limit=2000) for text in lines) or (
        "Your requirements go with it as it is locked.",
    )


def _describe_record(record: InstallRecord) -> str:
    """Return the TensorFlow and Python versions of a record, for messages."""

    def format_field(name: str) -> str:
        return clean_line(str(record.plan_key.get(name, "?")), limit=40)

    return f"TensorFlow {format_field('tensorflow')} on Python {format_field('python')}"


def _has_working_python(request: InstallRequest, locked_folder: LockedFolder) -> bool:
    """Return whether the unfinished environment's Python runs and has the required version."""
    required = request.option.python
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    output = capture_output(
        (str(locked_folder.interpreter_path), "-I", "-c", code), {**request.env, INSTALLING_VARIABLE: "1"}
    )
    return output is not None and output.strip() == required


# ---------------------------------------------------------------- disk space, and leftovers of a killed installer


def make_install_sizes(request: InstallRequest) -> InstallSizes:
    """Return the sizes of the installation according to the compat data, and the folders that it uses."""
    option, cuda_set = request.option, request.option.cuda_set
    wheels = {option.release.package: option.release.unpacked_bytes}
    wheels |= {wheel.name: wheel.unpacked_bytes for wheel in cuda_set.wheels} if cuda_set is not None else {}
    return InstallSizes(
        folder=request.folder,
        unpacked_bytes=option.size_bytes,
        download_bytes=option.release.size_bytes + (cuda_set.size_bytes if cuda_set is not None else 0),
        unpacked_bytes_by_wheel=wheels,
        lock_files=(request.lock_files.tensorflow, request.lock_files.cuda),
        uv_path=request.uv_path,
        base_python=request.base_python,
        env=request.env,
    )


def _remove_incomplete(site_packages: Path) -> None:
    """Remove the metadata of incomplete distributions, so that they are installed again.

    uv and pip write the list of files (RECORD) before all files are written. A distribution is therefore complete only
    if all listed files exist with the listed sizes.
    """
    for dist_info in sorted(site_packages.glob("*.dist-info")):
        if not _is_complete(site_packages, dist_info):
            remove_path(dist_info)
    for leftover in site_packages.glob("~*"):  # pip renames a folder to ~… before it removes it
        remove_path(leftover)


def _is_complete(site_packages: Path, dist_info: Path) -> bool:
    """Return whether every file in a distribution's RECORD is installed."""
    try:
        with (dist_info / "RECORD").open(encoding="utf-8", newline="") as stream:
            rows = [row for row in csv.reader(stream) if row]
        paths = [path for path, *_ in rows]
        if f"{dist_info.name}/INSTALLER" not in paths:
            return False  # this is still the RECORD from the wheel: the installer adds this line at the end
        return all(_is_file_installed(site_packages, row) for row in rows)
    except (OSError, ValueError, csv.Error):
        return False


def _is_file_installed(site_packages: Path, row: Sequence[str]) -> bool:
    """Return whether the file of a RECORD row (path, hash, size) exists and has that size.

    A missing .pyc file counts as present, and an empty size matches every size.
    """
    path, *hash_and_size = row
    try:
        status = os.stat(f"{site_packages}/{path}")  # noqa: PTH116 - there are tens of thousands of files
    except OSError:
        return path.endswith(".pyc")
    size = hash_and_size[1] if len(hash_and_size) > 1 else ""
    return not size or status.st_size == int(size)
