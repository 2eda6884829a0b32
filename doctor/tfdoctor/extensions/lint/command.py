"""The `tfdoctor lint` command."""

from __future__ import annotations

import enum
import errno
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tfdoctor.cli.configuration import find_settings_table
from tfdoctor.cli.options import Force, Json, Output, argument, command, option
from tfdoctor.cli.output_file import check_output, redirect_output
from tfdoctor.core.edits import Edit, EditError, SourceText, apply_edits
from tfdoctor.core.errors import ExitCode, UsageError
from tfdoctor.core.facts.variables import READ_VARIABLES, guess_variable
from tfdoctor.core.text import clean, clean_line
from tfdoctor.extensions.lint.analysis import (
    detect_file_kind,
    is_conda_environment,
    is_requirements_file,
    lint_text,
)
from tfdoctor.extensions.lint.fixes import drop_fixes_of_shared_names, format_diff, list_variables, plan_edits
from tfdoctor.extensions.lint.models import LintProblem, LintResult, LintTarget, UnreadableFile
from tfdoctor.extensions.lint.settings import (
    SKIPPED_FOLDER_PATTERNS,
    Settings,
    SettingsError,
    parse_release,
    parse_settings,
)
from tfdoctor.system.sources import (
    OUTWARD_LINK,
    is_inside,
    iter_uppercase_words,
    load_source,
    read_first_line,
    resolve_path,
    walk_files,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


_PIP_INSTALL = re.compile(r"\bpip[\d.]*[ \t]+install\b")
CONTAINER_KINDS = ("dockerfile", "yaml", "devcontainer")
"""The kinds of files that can describe an image or a container."""


class LintFormat(str, enum.Enum):
    """An output format of `lint`."""

    text = "text"
    json = "json"
    github = "github"
    sarif = "sarif"
    junit = "junit"


@dataclass(frozen=True, slots=True)
class _EditableFile:
    """A source file with the edits that `--fix` makes in it."""

    source: SourceText
    edits: list[Edit]

    @property
    def corrected_text(self) -> str:
        """The text of the file after the edits, without a byte order mark."""
        data = apply_edits(self.source.data, self.edits)
        return data[len(self.source.byte_order_mark) :].decode(self.source.codec)


@command("tfdoctor lint .", "tfdoctor lint --tf 2.16 --gpu-count 2 train.py", "tfdoctor lint --fix train.py")
def lint(
    paths: Annotated[
        list[str], argument("Files, or folders with all that is below them.", metavar="PATH...")
    ],
    tf: Annotated[
        str | None, option("The release that the code is for. Default: the environment's.", metavar="VERSION")
    ] = None,
    gpu_count: Annotated[
        int | None,
        option("The number of GPUs it will see. Default: this machine's.", min=0, max=1024, metavar="N"),
    ] = None,
    output_format: Annotated[LintFormat, option("How to print findings.", "--format")] = LintFormat.text,
    diff: Annotated[bool, option("Show what --fix would change, and change nothing.", "--diff")] = False,
    fix: Annotated[bool, option("Correct what is certain; shows the changes.", "--fix")] = False,
    as_json: Json = False,
    output: Output = None,
    force: Force = False,
) -> int:
    """Lint the files, print the problems, edit the files if requested, and return the exit status.

    Reads Python 2 and 3, notebooks, shell scripts, Dockerfiles, compose files, pods, devcontainer.json and other YAML,
    and runs none of them; a file of requirements if it is named. The image that a Dockerfile describes is checked like
    a machine. For a Dockerfile that is named, the package index is asked whether its packages fit together. `# noqa: TFD711`
    and [tool.tfdoctor] in pyproject.toml turn findings off.
    """
    from tfdoctor.extensions.lint.render import FORMATTERS
    from tfdoctor.render.terminal import ERR, OUT

    if as_json and output_format not in (LintFormat.text, LintFormat.json):
        msg = f"--json and --format {output_format.value} exclude each other."
        raise UsageError(msg)
    output_format = LintFormat.json if as_json else output_format
    if output is not None and (diff or fix):
        raise UsageError("-o writes the findings to a file: it cannot be combined with --diff or --fix.")
    release = parse_release(tf) if tf is not None else None
    if tf is not None and release is None:
        msg = f"--tf {clean_line(tf)!r} is not a release of TensorFlow."
        raise UsageError(msg, hint="tfdoctor lint --tf 2.16 .")
    for path in paths:
        if not os.path.exists(path):  # noqa: PTH110 (Path("") would be the working folder)
            msg = f"there is no file or folder {clean_line(path) or repr(path)}."
            raise UsageError(msg)
    check_output(output, force=force, input_paths=[path for path in paths if not os.path.isdir(path)])  # noqa: PTH112
    files = [Path(path) for path in paths]
    result, editable_files, refusals = _lint_files(files, release, gpu_count)
    if not result.file_count and not result.unreadable_files:
        msg = f"there is no file that lint checks in {clean_line(', '.join(paths))}."
        raise UsageError(msg)
    if diff or fix:
        (OUT if output_format is LintFormat.text else ERR).write(
            clean(_format_changes(editable_files), limit=4_000_000)
        )
        if fix:
            refusals |= _edit_files(editable_files)
            if editable_files:
                result, _, _ = _lint_files(files, release, gpu_count)
            result = replace(
                result,
                problems=tuple(
                    replace(problem, fix=None) if problem.path in refusals else problem
                    for problem in result.problems
                ),
            )
        for name, reason in refusals.items():
            ERR.write(f"{clean_line(name)}: left unchanged: {clean_line(reason)}.\n")
    if not (diff and output_format is LintFormat.text):
        with redirect_output(output, force=force):
            OUT.write(FORMATTERS[output_format.value](result, **OUT.layout))
    if result.problems:
        return ExitCode.FOUND
    return ExitCode.IMPOSSIBLE if result.has_read_nothing else ExitCode.OK


def _lint_files(
    paths: Sequence[Path], release: tuple[int, int] | None, gpu_count: int | None
) -> tuple[LintResult, dict[str, _EditableFile], dict[str, str]]:
    """Lint the given files and folders, and return (result, editable files, refusals).

    The editable files are those that `--fix` changes, by path. The refusals are the reasons why `--fix` cannot change
    other files, by path. `release` and `gpu_count` apply to every file. If they are None, the settings of the file's
    project apply, or else the detected environment. Raise UsageError if settings are invalid.
    """
    detected_release, detected_gpu_count = (
        _detect_environment() if release is None or gpu_count is None else (None, None)
    )
    problems: list[LintProblem] = []
    unreadable: list[UnreadableFile] = []
    editable_files: dict[str, _EditableFile] = {}
    refusals: dict[str, str] = {}
    correctable_files: dict[str, tuple[SourceText, str, list[LintProblem]]] = {}
    variables: dict[str, set[str] | None] = {}

    def report_folder(error: OSError) -> None:
        label = str(error.filename)
        unreadable.append(UnreadableFile(label, error.strerror or str(error)))
        variables[label] = None

    image_problems: list[tuple[LintProblem, str]] = []
    named_paths = {path for path in paths if not path.is_dir()}
    for path, kind, settings, path_in_project in _iter_files(paths, report_folder):
        target = LintTarget(
            tf_version=next(
                (item for item in (release, settings.tf_version, detected_release) if item is not None), None
            ),
            gpu_count=next(
                (item for item in (gpu_count, settings.gpu_count, detected_gpu_count) if item is not None),
                None,
            ),
        )
        label = str(path)
        variables[label] = set()
        try:
            source = _load_source(path, kind)
        except ValueError as error:
            unreadable.append(UnreadableFile(label, f"{error}"))
            variables[label] = _find_known_words(path)
            continue
        file_problems, found, reason = _lint_file(
            path, kind, source.text, target, is_named=path in named_paths
        )
        image_problems += [item for item in found if settings.is_reported(path_in_project, item[0].kind_name)]
        if reason is not None:
            # no part of a conda environment is checked if there is nothing in it for pip
            is_read = bool(file_problems or found) or not is_conda_environment(kind, source.text)
            unreadable.append(UnreadableFile(label, reason, is_read))
        file_problems = [
            replace(item, path=label)
            for item in file_problems
            if settings.is_reported(path_in_project, item.kind_name)
        ]
        variables[label] = list_variables(source.text, kind, file_problems)
        if any(item.fix for item in file_problems):
            correctable_files[label] = source, kind, file_problems
        else:
            problems += file_problems
    file_ids = {label: _get_file_id(label) for label in variables}
    for label, (source, kind, file_problems) in correctable_files.items():
        other_variables = {
            name: names for name, names in variables.items() if file_ids[name] != file_ids[label]
        }
        fixable_problems = drop_fixes_of_shared_names(file_problems, other_variables)
        try:
            if edits := plan_edits(source, fixable_problems, kind):
                editable_files[label] = _EditableFile(source, edits)
        except EditError as error:
            refusals[label] = f"{error}"
            fixable_problems = [replace(item, fix=None) for item in fixable_problems]
        problems += fixable_problems
    # what a compose file starts is reported in its Dockerfile if that is checked, too
    problems += [
        problem
        for problem, origin in image_problems
        if origin == problem.path or _get_file_id(origin) not in file_ids.values()
    ]
    index_by_label = {label: index for index, label in enumerate(variables)}
    problems.sort(key=lambda item: (index_by_label[item.path], item.cell_number or 0, item.line))
    result = LintResult(
        file_count=len(variables) - sum(not item.is_read for item in unreadable),
        problems=tuple(problems),
        unreadable_files=tuple(unreadable),
    )
    return result, editable_files, refusals


def _load_source(path: Path, kind: str) -> SourceText:
    """Return the text of a file. Raise ValueError if it cannot be read or is of a kind that is not checked."""
    if kind == "other":
        raise ValueError("it is not a kind of file that lint reads")
    return load_source(path, is_python=kind == "python")


def _lint_file(
    path: Path, kind: str, text: str, target: LintTarget, *, is_named: bool
) -> tuple[list[LintProblem], list[tuple[LintProblem, str]], str | None]:
    """Check a file, and return (problems of its code, problems of the images that it describes, reason).

    The second list and the reason are those of `lint_container_file`. What a file of requirements installs is checked if
    the file itself is named on the command line: others may be for another machine.
    """
    problems, reason = (
        lint_text(text, kind, target) if kind not in ("devcontainer", "requirements") else ([], None)
    )
    if is_named and (kind == "requirements" or is_conda_environment(kind, text)):
        from tfdoctor.extensions.lint.requirements import lint_conda_environment, lint_requirements

        lint_packages = lint_requirements if kind == "requirements" else lint_conda_environment
        package_problems, packages_reason = lint_packages(text, path)
        return problems, [(item, str(path)) for item in package_problems], reason or packages_reason
    if kind in ("shell", "job", "notebook") and "tensorflow" in text and _PIP_INSTALL.search(text):
        from tfdoctor.extensions.lint.requirements import lint_pip_commands

        return [*problems, *lint_pip_commands(text, kind, path)], [], reason
    if kind not in CONTAINER_KINDS:
        return problems, [], reason
    from tfdoctor.extensions.lint.containers import describes_container, lint_container_file

    if not describes_container(kind, path, text):
        return problems, [], reason
    found, container_reason = lint_container_file(text, path, queries_index=is_named)
    lines = {problem.line for problem in problems}
    image_problems = [  # the rule for machines finds a misspelt variable as well
        item for item in found if not (item[0].kind_name == "misspelt-variable" and item[0].line in lines)
    ]
    return problems, image_problems, reason or container_reason


def _get_file_id(path: str) -> tuple[int, int] | str:
    """Return the device and inode of a file, which are the same for all of its names, or else its path."""
    try:
        status = Path(path).stat()
    except OSError:
        return path
    return status.st_dev, status.st_ino


def _find_known_words(path: Path) -> set[str] | None:
    """Return the known and misspelt variables in a file that cannot be checked. None if it is unreadable."""
    try:
        return {word for word in iter_uppercase_words(path) if word in READ_VARIABLES or guess_variable(word)}
    except OSError:
        return None


def _iter_files(
    paths: Sequence[Path], on_error: Callable[[OSError], None]
) -> Iterator[tuple[Path, str, Settings, str]]:
    """Yield (path, kind, settings, path in project) once for each file.

    The project is the folder of the nearest pyproject.toml, which contains the settings. `on_error` is called with the
    error of each folder that cannot be listed, and with one for each link that leads out of the given folder. Raise
    UsageError if settings are invalid.
    """
    visited_paths: set[Path] = set()
    projects: dict[Path, tuple[Settings, Path]] = {}
    for path in paths:
        settings, root = _find_project(path if path.is_dir() else path.parent, projects)

        # The defaults bind the values of this turn of the loop.
        def get_relative_path(file: Path, root: Path = root) -> str:
            try:
                return resolve_path(file).relative_to(root).as_posix()
            except ValueError:
                return file.name

        def is_excluded(
            file: Path, settings: Settings = settings, get_path: object = get_relative_path
        ) -> bool:
            return bool(settings.excluded_patterns) and settings.is_excluded(get_path(file))  # type: ignore[operator]

        is_named = not path.is_dir()
        for file in [path] if is_named else walk_files(path, SKIPPED_FOLDER_PATTERNS, is_excluded, on_error):
            if not is_named and file.is_symlink() and not is_inside(file, path):
                if detect_file_kind(file.name) is not None:
                    on_error(OSError(errno.ELOOP, OUTWARD_LINK, str(file)))
                continue
            # the first line is read only if the name does not show the kind
            kind = detect_file_kind(file.name) or detect_file_kind(
                file.name, read_first_line(file) if "." not in file.name else ""
            )
            if kind is None and not is_named:
                continue
            absolute_path = file.absolute()
            if absolute_path in visited_paths:
                continue
            visited_paths.add(absolute_path)
            if kind is None and is_requirements_file(file):
                kind = "requirements"
            elif kind is None and file.suffix:  # for train.py.orig, the kind of train.py
                kind = detect_file_kind(file.stem, read_first_line(file)) or "other"
            yield file, kind or "python", settings, get_relative_path(file)


def _find_project(folder: Path, projects: dict[Path, tuple[Settings, Path]]) -> tuple[Settings, Path]:
    """Return the settings of the project (see `cli.configuration`), and the folder that their paths are relative to.

    If there are none, return the default settings and `folder`. `projects` caches the results. Raise UsageError if the
    settings are invalid.
    """
    start = resolve_path(folder)
    if start in projects:
        return projects[start]
    project = Settings(), start
    table = find_settings_table(start)
    if table is not None:
        try:
            project = parse_settings(table.values), table.path.parent
        except SettingsError as error:
            key = f"{error}".partition("`")[2].partition("`")[0]
            raise table.make_error(key, f"{error}") from error
    projects[start] = project
    return project


def _detect_environment() -> tuple[tuple[int, int] | None, int | None]:
    """Return the environment's TensorFlow release and this host's number of GPUs. None means unknown."""
    import sys

    from tfdoctor.system import LiveSystem

    system = LiveSystem()
    env = system.env
    release = None
    for prefix in (env.get("VIRTUAL_ENV"), env.get("CONDA_PREFIX"), sys.prefix):
        folder = Path(prefix or "/nonexistent") / "lib"  # without a prefix, nothing is found
        site_folders = [*folder.glob("python3*/site-packages"), folder.parent / "Lib" / "site-packages"]
        names = [
            dist_info.name
            for site_folder in site_folders
            if site_folder.is_dir()
            for dist_info in site_folder.glob("t*.dist-info")
        ]
        for name in names:
            package, _, version = name.removesuffix(".dist-info").partition("-")
            if package in ("tensorflow", "tensorflow_gpu", "tensorflow_cpu", "tf_nightly"):
                release = release or parse_release(version)
        if release is not None:
            break
    try:
        gpu_count = len(system.listdir("/proc/driver/nvidia/gpus"))
    except (OSError, ValueError):
        gpu_count = 0
    return release, gpu_count or None


def _format_changes(editable_files: dict[str, _EditableFile]) -> str:
    """Return a diff of the edits that `--fix` makes."""
    return "".join(
        format_diff(path, file.source.text, file.corrected_text) for path, file in editable_files.items()
    )


def _edit_files(editable_files: dict[str, _EditableFile]) -> dict[str, str]:
    """Edit each file once, even if it has several names. Return the reasons for unchanged files by path."""
    from tfdoctor.system.editing import edit_file

    refusals: dict[str, str] = {}
    edited_ids: set[object] = set()
    file_ids = {path: _get_file_id(path) for path in editable_files}  # before an edit can replace a file
    for path, file in editable_files.items():
        try:
            if file_ids[path] not in edited_ids:
                edit_file(Path(path), file.source.data, file.edits)
                edited_ids.add(file_ids[path])
        except (EditError, OSError) as error:
            refusals[path] = f"{error}"
    return refusals
