"""`tfdoctor lint`."""

from __future__ import annotations

import enum
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tfdoctor.cli.options import Json, argument, command, option
from tfdoctor.errors import ExitCode, UsageError
from tfdoctor.lint import LintAnswer, LintProblem, LintTarget, Unreadable, kind_of_file, lint_text
from tfdoctor.lint.fixes import drop_names_elsewhere, format_diff, list_names_left, plan_edits
from tfdoctor.lint.settings import SKIPPED, Settings, SettingsError, release_of, settings_of
from tfdoctor.parse.edits import Edit, EditError, Source, apply_edits
from tfdoctor.parse.toml import loads
from tfdoctor.system.sources import first_line, load_source, read_source, real_path, walk_files
from tfdoctor.text import clean, clean_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class LintFormat(str, enum.Enum):
    """How findings are printed."""

    text = "text"
    json = "json"
    github = "github"
    sarif = "sarif"
    junit = "junit"


@dataclass(frozen=True, slots=True)
class _Editable:
    """A file with certain corrections."""

    source: Source
    edits: list[Edit]

    @property
    def corrected(self) -> str:
        data = apply_edits(self.source.data, self.edits)
        return data[len(self.source.mark) :].decode(self.source.codec)


@command
def lint(
    paths: Annotated[
        list[Path], argument("Files, or folders with all that is below them.", metavar="PATH...")
    ],
    tf: Annotated[
        str | None, option("The release that the code is for. Default: the environment's.", metavar="VERSION")
    ] = None,
    gpus: Annotated[
        int | None,
        option("How many GPUs it will see. Default: this machine's.", min=0, max=1024, metavar="N"),
    ] = None,
    form: Annotated[LintFormat, option("How to print findings.", "--format")] = LintFormat.text,
    diff: Annotated[bool, option("Show what --fix would change, and change nothing.", "--diff")] = False,
    fix: Annotated[bool, option("Correct what is certain; shows the changes.", "--fix")] = False,
    as_json: Json = False,
) -> int:
    """Read, judge, print; with --fix write. Returns the exit status.

    Reads Python 2 and 3, notebooks, shell scripts, Dockerfiles and YAML, and runs none of them. `# noqa: TFD711` and
    [tool.tfdoctor] in pyproject.toml turn findings off.
    """
    from tfdoctor.render.lint import FORMATS
    from tfdoctor.render.terminal import ERR, OUT

    if as_json and form not in (LintFormat.text, LintFormat.json):
        msg = f"--json and --format {form.value} exclude each other."
        raise UsageError(msg)
    form = LintFormat.json if as_json else form
    release = release_of(tf) if tf is not None else None
    if tf is not None and release is None:
        msg = f"--tf {clean_line(tf)!r} is not a release of TensorFlow."
        raise UsageError(msg, hint="tfdoctor lint --tf 2.16 .")
    for path in paths:
        if not path.exists():
            msg = f"there is no file or folder {clean_line(str(path))}."
            raise UsageError(msg)
    answer, editable, refused = _lint_files(paths, release, gpus)
    if diff or fix:
        (OUT if form is LintFormat.text else ERR).write(clean(_show_changes(editable), limit=4_000_000))
        if fix:
            refused |= _fix(editable)
            answer = _lint_files(paths, release, gpus)[0] if editable else answer
        for name, reason in refused.items():
            ERR.write(f"{clean_line(name)}: left unchanged: {clean_line(reason)}.\n")
    if not (diff and form is LintFormat.text):
        OUT.write(FORMATS[form.value](answer, **OUT.looks))
    return ExitCode.FOUND if answer.problems else ExitCode.OK


def _lint_files(
    paths: Sequence[Path], release: tuple[int, int] | None, gpus: int | None
) -> tuple[LintAnswer, dict[str, _Editable], dict[str, str]]:
    """Return the answer, the files that --fix corrects by path, and why it cannot correct others."""
    here = _here() if release is None or gpus is None else (None, None)
    problems: list[LintProblem] = []
    unreadable: list[Unreadable] = []
    editable: dict[str, _Editable] = {}
    refused: dict[str, str] = {}
    correctable: dict[str, tuple[Source, str, list[LintProblem], bool]] = {}
    names_left: dict[str, set[str]] = {}
    for path, kind, settings, below_root, leaves in _files(paths):
        asked = LintTarget(
            next((one for one in (release, settings.tf, here[0]) if one is not None), None),
            next((one for one in (gpus, settings.gpus, here[1]) if one is not None), None),
        )
        shown = str(path)
        names_left[shown] = set()
        try:
            source = load_source(path, python=kind == "python")
        except ValueError as error:
            unreadable.append(Unreadable(shown, f"{error}"))
            continue
        found, why = lint_text(source.text, kind, asked)
        if why is not None:
            unreadable.append(Unreadable(shown, why))
        found = [replace(one, path=shown) for one in found if settings.wants(below_root, one.name)]
        names_left[shown] = list_names_left(source.text, kind, found)
        if any(one.fix for one in found):
            correctable[shown] = source, kind, found, leaves
        else:
            problems += found
    for shown, (source, kind, found, leaves) in correctable.items():
        fixable = drop_names_elsewhere(found, names_left)
        try:
            if edits := plan_edits(source, fixable, kind):
                if leaves:
                    raise EditError("it is a link that leads out of the folder")  # noqa: TRY301
                editable[shown] = _Editable(source, edits)
        except EditError as error:
            refused[shown] = f"{error}"
            fixable = [replace(one, fix=None) for one in fixable]
        problems += fixable
    order = {shown: place for place, shown in enumerate(names_left)}
    problems.sort(key=lambda one: order[one.path])
    return LintAnswer(len(names_left), tuple(problems), tuple(unreadable)), editable, refused


def _files(paths: Sequence[Path]) -> Iterator[tuple[Path, str, Settings, str, bool]]:
    """Yield each file once: path, kind, its project's settings, its path from the pyproject.toml on, and whether it is
    a link out of the folder below which it was found."""
    seen: set[Path] = set()
    known: dict[Path, tuple[Settings, Path]] = {}
    for path in paths:
        settings, root = _project(path if path.is_dir() else path.parent, known)

        def inner(one: Path, root: Path = root) -> str:
            try:
                return real_path(one).relative_to(root).as_posix()
            except ValueError:
                return one.name

        def is_excluded(one: Path, settings: Settings = settings, inner: object = inner) -> bool:
            return bool(settings.exclude) and settings.is_excluded(inner(one))  # type: ignore[operator]

        named = not path.is_dir()
        for one in [path] if named else walk_files(path, SKIPPED, is_excluded):
            kind = kind_of_file(one.name) or kind_of_file(
                one.name, first_line(one) if "." not in one.name else ""
            )
            if kind is None and not named:
                continue
            real = one.absolute()
            if real in seen:
                continue
            seen.add(real)
            leaves = not named and one.is_symlink() and not _is_inside(one, path)
            yield one, kind or "python", settings, inner(one), leaves


def _is_inside(path: Path, folder: Path) -> bool:
    return real_path(path).is_relative_to(real_path(folder))


def _project(folder: Path, known: dict[Path, tuple[Settings, Path]]) -> tuple[Settings, Path]:
    """Return what the nearest pyproject.toml with a [tool.tfdoctor] says, and its folder.

    Raises UsageError.
    """
    start = real_path(folder)
    if start in known:
        return known[start]
    answer = Settings(), start
    for place in (start, *start.parents):
        file = place / "pyproject.toml"
        if file.is_file():
            table = _table(file)
            if table is not None:
                try:
                    answer = settings_of(table), place
                except SettingsError as error:
                    msg = f"{clean_line(str(file))}: [tool.tfdoctor]: {error}."
                    raise UsageError(msg) from error
            break
    known[start] = answer
    return answer


def _table(file: Path) -> dict[str, object] | None:
    try:
        raw = loads(read_source(file, python=False))
    except ValueError as error:
        msg = f"{clean_line(str(file))} cannot be read: {clean_line(str(error))}."
        raise UsageError(msg) from error
    tool = raw.get("tool")
    table = tool.get("tfdoctor") if isinstance(tool, dict) else None
    return table if isinstance(table, dict) else None


def _here() -> tuple[tuple[int, int] | None, int | None]:
    """Return the environment's TensorFlow and this machine's GPUs; None: not known."""
    import sys

    from tfdoctor.system import LiveSystem

    system = LiveSystem()
    env = system.env
    found = None
    for prefix in (env.get("VIRTUAL_ENV"), env.get("CONDA_PREFIX"), sys.prefix):
        folder = Path(prefix or "/nonexistent") / "lib"
        places = [*folder.glob("python3*/site-packages"), folder.parent / "Lib" / "site-packages"]
        names = [one.name for place in places if place.is_dir() for one in place.glob("t*.dist-info")]
        for name in names:
            package, _, version = name.removesuffix(".dist-info").partition("-")
            if package in ("tensorflow", "tensorflow_gpu", "tensorflow_cpu", "tf_nightly"):
                found = found or release_of(version)
        if found is not None:
            break
    try:
        cards = len(system.listdir("/proc/driver/nvidia/gpus"))
    except (OSError, ValueError):
        cards = 0
    return found, cards or None


def _show_changes(editable: dict[str, _Editable]) -> str:
    """Return the differences that --fix makes."""
    return "".join(format_diff(path, one.source.text, one.corrected) for path, one in editable.items())


def _fix(editable: dict[str, _Editable]) -> dict[str, str]:
    """Correct the files, each once, whatever names it has; return why one was left unchanged, by path."""
    from tfdoctor.system.editing import edit_file

    refused: dict[str, str] = {}
    done: set[object] = set()
    for path, one in editable.items():
        try:
            status = Path(path).stat()
            names = {os.path.realpath(path), (status.st_dev, status.st_ino)}
            if not names & done:
                edit_file(Path(path), one.source.data, one.edits)
                done |= names
        except (EditError, OSError) as error:
            refused[path] = f"{error}"
    return refused
