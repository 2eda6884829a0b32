"""`tfdoctor lint`."""

from __future__ import annotations

import enum
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tfdoctor.cli.options import Json, argument, command, option
from tfdoctor.errors import ExitCode, UsageError
from tfdoctor.lint import Answer, Asked, Problem, Unreadable, kind_of_file, lint_text
from tfdoctor.lint.fixes import difference, fixed
from tfdoctor.lint.settings import SKIPPED, Settings, SettingsError, release_of, settings_of
from tfdoctor.parse.toml import loads
from tfdoctor.system.sources import below, first_line, read_source
from tfdoctor.text import clean, clean_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Format(str, enum.Enum):
    """How findings are printed."""

    text = "text"
    json = "json"
    github = "github"
    sarif = "sarif"
    junit = "junit"


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
    form: Annotated[Format, option("How to print findings.", "--format")] = Format.text,
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

    if as_json and form not in (Format.text, Format.json):
        msg = f"--json and --format {form.value} exclude each other."
        raise UsageError(msg)
    form = Format.json if as_json else form
    release = release_of(tf) if tf is not None else None
    if tf is not None and release is None:
        msg = f"--tf {clean_line(tf)!r} is not a release of TensorFlow."
        raise UsageError(msg, hint="tfdoctor lint --tf 2.16 .")
    for path in paths:
        if not path.exists():
            msg = f"there is no file or folder {clean_line(str(path))}."
            raise UsageError(msg)
    answer, texts = _judged(paths, release, gpus)
    if diff or fix:
        changes = _changes(answer, texts)
        shown = "".join(difference(path, before, after) for path, (before, after) in changes.items())
        (OUT if form is Format.text else ERR).write(clean(shown, limit=4_000_000))
        if fix:
            _write(changes)
            answer, _ = _judged(paths, release, gpus)
    if not (diff and form is Format.text):
        OUT.write(FORMATS[form.value](answer, **OUT.looks))
    return ExitCode.FOUND if answer.problems else ExitCode.OK


def _judged(
    paths: Sequence[Path], release: tuple[int, int] | None, gpus: int | None
) -> tuple[Answer, dict[str, tuple[str, str]]]:
    """The answer, and path → (text, kind) of the files that have a fix."""
    here = _here() if release is None or gpus is None else (None, None)
    problems: list[Problem] = []
    unreadable: list[Unreadable] = []
    texts: dict[str, tuple[str, str]] = {}
    count = 0
    for path, kind, settings, below_root in _files(paths):
        asked = Asked(
            next((one for one in (release, settings.tf, here[0]) if one is not None), None),
            next((one for one in (gpus, settings.gpus, here[1]) if one is not None), None),
        )
        shown = str(path)
        count += 1
        try:
            text = read_source(path, python=kind == "python")
        except ValueError as error:
            unreadable.append(Unreadable(shown, f"{error}"))
            continue
        found, why = lint_text(text, kind, asked)
        if why is not None:
            unreadable.append(Unreadable(shown, why))
        found = [replace(one, path=shown) for one in found if settings.wants(below_root, one.name)]
        problems += found
        if any(one.fix is not None for one in found):
            texts[shown] = text, kind
    return Answer(count, tuple(problems), tuple(unreadable)), texts


def _files(paths: Sequence[Path]) -> Iterator[tuple[Path, str, Settings, str]]:
    """Each file once: (path, its kind, what its project wants, its path from the pyproject.toml on)."""
    seen: set[Path] = set()
    known: dict[Path, tuple[Settings, Path]] = {}
    for path in paths:
        settings, root = _project(path if path.is_dir() else path.parent, known)

        def inner(one: Path, root: Path = root) -> str:
            try:
                return one.resolve().relative_to(root).as_posix()
            except (ValueError, OSError):
                return one.name

        def left_out(one: Path, settings: Settings = settings, inner: object = inner) -> bool:
            return bool(settings.exclude) and settings.left_out(inner(one))  # type: ignore[operator]

        named = not path.is_dir()
        for one in [path] if named else below(path, SKIPPED, left_out):
            kind = kind_of_file(one.name) or kind_of_file(
                one.name, first_line(one) if "." not in one.name else ""
            )
            if kind is None and not named:
                continue
            real = one.absolute()
            if real in seen:
                continue
            seen.add(real)
            yield one, kind or "python", settings, inner(one)


def _project(folder: Path, known: dict[Path, tuple[Settings, Path]]) -> tuple[Settings, Path]:
    """What the nearest pyproject.toml with a [tool.tfdoctor] says, and its folder. Raises UsageError."""
    start = folder.resolve()
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
    """The environment's TensorFlow and this machine's GPUs; None: not known."""
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


def _changes(answer: Answer, texts: dict[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """Path → (text before, text after) of what is certain."""
    changes = {}
    for path, (text, kind) in texts.items():
        after = fixed(text, [one for one in answer.problems if one.path == path], kind)
        if after != text:
            changes[path] = text, after
    return changes


def _write(changes: dict[str, tuple[str, str]]) -> None:
    from tfdoctor.system.writing import write_file

    for path, (before, after) in changes.items():
        file = Path(path)
        data = file.read_bytes()
        for encoding in ("utf-8", "utf-8-sig", "latin-1", "utf-16"):
            try:
                same = data.decode(encoding) == before
            except UnicodeDecodeError:
                continue
            if same:
                write_file(file, after.encode(encoding), force=True, option="--fix")
                break
