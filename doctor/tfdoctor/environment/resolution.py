"""The resolution of a user's requirements beside a locked TensorFlow, by uv or pip, from metadata.

TensorFlow and NVIDIA's wheels stay as planned. The other packages of the lock keep their versions and hashes if the
requirements allow it. Nothing is installed, and where possible neither TensorFlow nor CUDA is downloaded.
"""

from __future__ import annotations

import json
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from tfdoctor.environment.installers import InstallFailedError
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

__all__ = [
    "CONSTRAINTS_FILE",
    "REQUIREMENTS_FILE",
    "NoSolutionError",
    "PinChange",
    "PipResolution",
    "Question",
    "format_reason",
    "make_command",
    "resolve",
    "write_lines",
]

_T = TypeVar("_T")
REQUIREMENTS_FILE, CONSTRAINTS_FILE, RESOLVED_FILE, REPORT_FILE = (
    "wanted.txt",
    "limits.txt",
    "found.txt",
    "report.json",
)
_MAX_OUTPUT_BYTES = 32_000_000
_HASH = re.compile(r"\s--hash=(sha256:[0-9a-f]{64})(?=\s|$)")
_CUDA_SUFFIX = re.compile(r"-cu[0-9]{2}")
_OTHER_TENSORFLOWS = frozenset(
    {
        "tensorflow",
        "tensorflow-cpu",
        "tensorflow-gpu",
        "tensorflow-rocm",
        "tf-nightly",
        "tf-nightly-cpu",
        "tf-nightly-gpu",
        "nvidia-tensorflow",
    }
)


class NoSolutionError(InstallFailedError):
    """The requirements have no common solution."""


@dataclass(frozen=True, slots=True)
class Question:
    """The packages to resolve together, and the resolver."""

    package: str
    """`"tensorflow"`."""
    requires: tuple[str, ...]
    """The known requirements of that wheel; pip would have to download it to know the others."""
    lock: tuple[str, ...]
    """The lines of its lock: `name==version --hash=…`."""
    cuda: tuple[str, ...]
    """`name==version` of NVIDIA's wheels."""
    lines: tuple[str, ...]
    """The user's requirements, validated (requirements/lines.py)."""
    constraints: tuple[str, ...]
    """The user's constraints, validated in the same way."""
    program: tuple[str, ...]
    """`("/…/uv", "pip")`, or a Python with `-m pip`."""
    python: tuple[str, ...]
    """uv's options for the target Python: `("--python", "/…/python")`; empty for pip, which runs in it."""
    index: tuple[str, ...]
    """Options that select the index."""

    @property
    def uv(self) -> bool:
        """Whether uv is the resolver."""
        return Path(self.program[0]).name.startswith("uv")

    @property
    def pins(self) -> Mapping[str, str]:
        """The versions of all packages of the lock, by name."""
        return dict(_split_name_version(line) for line in self.lock)


@dataclass(frozen=True, slots=True)
class PinChange:
    """A package whose resolution differs from the lock."""

    name: str
    locked: str | None
    """The version in the lock; None if the lock does not contain the package."""
    chosen: str | None
    """A version or an address; None if the package is no longer needed."""


@dataclass(frozen=True, slots=True)
class PipResolution:
    """All packages to install besides NVIDIA's wheels, as lines for `--no-deps`."""

    unchanged: tuple[str, ...]
    """Lines of the lock."""
    hashed: tuple[str, ...] = ()
    """New packages, or other versions: `name==version --hash=…`."""
    unhashed: tuple[str, ...] = ()
    """Lines without a known hash: addresses of repositories, packages of an index that gives no hashes."""

    def changes(self, lock: Sequence[str]) -> tuple[PinChange, ...]:
        """Return the differences from the lines of a lock, by name."""
        locked = dict(_split_name_version(line) for line in lock)
        resolved = dict(_split_name_version(line) for line in (*self.unchanged, *self.hashed, *self.unhashed))
        names = sorted({*locked, *resolved})
        return tuple(
            PinChange(name, locked.get(name), resolved.get(name))
            for name in names
            if locked.get(name) != resolved.get(name)
        )


def _split_name_version(line: str) -> tuple[str, str]:
    """Return (name, version or address) of a requirement line.

    The line is `name==version --hash=…`, `name==version ; marker` or `name @ address`.
    """
    requirement = line.split(" --hash=", 1)[0].split(" ;", 1)[0].strip()
    name, equals, version = requirement.partition("==")
    if equals and "@" not in name:
        return canonicalize_name(name.partition("[")[0].strip()), version.strip()
    name, _, address = requirement.partition("@")
    return canonicalize_name(name.partition("[")[0].strip()), address.strip() or "?"


# ---------------------------------------------------------------- resolving


def make_command(question: Question, folder: Path) -> tuple[str, ...]:
    """Return the first command of the resolution (with uv the only one), which writes into `folder`."""
    constraints_path, requirements_path = str(folder / CONSTRAINTS_FILE), str(folder / REQUIREMENTS_FILE)
    if question.uv:
        quiet = ("--quiet", "--no-header", "--no-annotate", "--generate-hashes")
        files = (
            "--constraints",
            constraints_path,
            "--output-file",
            str(folder / RESOLVED_FILE),
            requirements_path,
        )
        return (*question.program, "compile", *quiet, *question.python, *question.index, *files)
    options = ("--dry-run", "--ignore-installed", "--report", str(folder / REPORT_FILE))
    return (
        *question.program,
        "install",
        *options,
        *question.index,
        "-c",
        constraints_path,
        "-r",
        requirements_path,
    )


def resolve(question: Question, folder: Path, run: Callable[[Sequence[str]], None]) -> PipResolution:
    """Resolve a question; `run` runs a command to its end and raises InstallFailedError if it fails.

    Raise NoSolutionError with the resolver's reason, or InstallFailedError if the resolver could not run.
    """
    try:
        lines = (
            _resolve_by_uv(question, folder, run) if question.uv else _resolve_by_pip(question, folder, run)
        )
    except InstallFailedError as error:
        if not error.unsolved:
            raise
        raise _make_no_solution_error(
            question, format_reason(error.output) or str(error), error.output
        ) from error
    return _compare_with_lock(question, lines)


def _make_no_solution_error(
    question: Question,
    reason: str,
    output: Iterable[str] = (),
    hint: str = "Loosen the named requirement, or choose another TensorFlow with --tf.",
) -> NoSolutionError:
    """Return the error for requirements without a solution."""
    version = question.pins.get(question.package, "")
    reason = re.sub(
        rf"-r \S+{re.escape(REQUIREMENTS_FILE)} \(line 1\)", f"{question.package}=={version}", reason
    )
    return NoSolutionError(
        f"Your requirements and TensorFlow {version} cannot be installed together: {reason}",
        hint=hint,
        output=output,
    )


def _resolve_by_uv(question: Question, folder: Path, run: Callable[[Sequence[str]], None]) -> list[str]:
    """Return the lines that uv resolves.

    First all pins of the lock are constraints, then only those that the requirements do not exclude, and at last
    none; then the lock is in uv's output file, so that uv prefers its versions. That is not done at once because uv
    prefers another version if one of two indexes has the locked one without a file for this Python.
    """
    tensorflow_pin = f"{question.package}=={question.pins[question.package]}"
    pins = {name: f"{name}=={version}" for name, version in question.pins.items() if name != question.package}
    write_lines(folder / REQUIREMENTS_FILE, [tensorflow_pin, *_strip_hashes(question.lines)])

    def ask(limits: Mapping[str, str]) -> None:
        constraints = [*question.cuda, *_strip_hashes(question.constraints)]
        write_lines(folder / CONSTRAINTS_FILE, [*constraints, *limits.values()])
        write_lines(folder / RESOLVED_FILE, () if limits else question.lock)
        run(make_command(question, folder))

    _try_in_order(ask, [pins, _drop_pins(pins, _list_excluded(question)), {}])
    return list(_join_lines(_load_output(folder / RESOLVED_FILE)))


def _try_in_order(ask: Callable[[_T], None], attempts: Sequence[_T]) -> None:
    """Call `ask` with each attempt until one has a solution. Raise the error of the last one if none has."""
    distinct = [attempt for index, attempt in enumerate(attempts) if attempt not in attempts[:index]]
    for candidate in distinct[:-1]:
        try:
            ask(candidate)
        except InstallFailedError as error:
            if not error.unsolved:
                raise
        else:
            return
    ask(distinct[-1])


def _resolve_by_pip(question: Question, folder: Path, run: Callable[[Sequence[str]], None]) -> list[str]:
    """Return the lines that pip resolves.

    pip prefers no versions, and downloads everything that it resolves. So the first attempts use a stub wheel instead
    of TensorFlow, as long as its known requirements suffice: with all pins of the lock, then without the excluded
    pins whose limits are known, then without all pins whose limits are known. The last attempts use the real
    TensorFlow: without the excluded pins, and then without any pins.
    """
    tensorflow_pin = f"{question.package}=={question.pins[question.package]}"
    pins = {name: f"{name}=={version}" for name, version in question.pins.items() if name != question.package}
    known_requires: dict[str, str] = {
        canonicalize_name(Requirement(requirement).name): requirement for requirement in question.requires
    }
    stub = _make_stub_wheel(folder, tensorflow_pin, [known_requires.get(name, name) for name in pins])
    cuda = [_make_stub_wheel(folder, pin, ()) for pin in question.cuda]
    excluded = set(_list_excluded(question))
    attempts = [
        (stub, pins),
        (stub, _drop_pins(pins, excluded & {*known_requires})),
        (stub, _drop_pins(pins, known_requires)),
        (tensorflow_pin, _drop_pins(pins, excluded)),
        (tensorflow_pin, {}),
    ]

    def ask(attempt: tuple[str, dict[str, str]]) -> None:
        write_lines(folder / REQUIREMENTS_FILE, [attempt[0], *_strip_hashes(question.lines)])
        write_lines(
            folder / CONSTRAINTS_FILE, [*cuda, *_strip_hashes(question.constraints), *attempt[1].values()]
        )
        run(make_command(question, folder))

    _try_in_order(ask, attempts)
    return list(_parse_report(_load_output(folder / REPORT_FILE)))


def _drop_pins(pins: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """Return the pins without those of some packages."""
    dropped = {*names}
    return {name: pin for name, pin in pins.items() if name not in dropped}


def _list_excluded(question: Question) -> Iterator[str]:
    """Yield the names of packages whose locked version the user's lines do not allow."""
    pins = question.pins
    for line in _strip_hashes((*question.lines, *question.constraints)):
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        pin = pins.get(canonicalize_name(requirement.name))
        if pin is not None and (requirement.url or not requirement.specifier.contains(pin, prereleases=True)):
            yield canonicalize_name(requirement.name)


def _make_stub_wheel(folder: Path, pin: str, requires: Sequence[str]) -> str:
    """Create a wheel with only a name, a version and requirements; return its line.

    It stands for a wheel of gigabytes.
    """
    name, version = _split_name_version(pin)
    wheel_name = f"{name.replace('-', '_')}-{version}"
    requires_lines = "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
    info_folder = f"{wheel_name}.dist-info"
    path = folder / f"{wheel_name}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(
            f"{info_folder}/METADATA",
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires_lines}",
        )
        archive.writestr(
            f"{info_folder}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: tfdoctor\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr(f"{info_folder}/RECORD", "")
    return f"{name} @ {path.absolute().as_uri()}"


def _strip_hashes(lines: Iterable[str]) -> list[str]:
    """Return the lines without hashes: if one line has a hash, an installer requires one for every line."""
    return [_HASH.sub("", line).strip() for line in lines]


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a file of requirements."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _load_output(path: Path) -> str:
    """Return the start of a resolver's output file. Raise InstallFailedError if it cannot be read."""
    try:
        with path.open("rb") as stream:
            return stream.read(_MAX_OUTPUT_BYTES).decode("utf-8", "replace")
    except OSError as error:
        msg = f"What was resolved cannot be read: {error.strerror or error}."
        raise InstallFailedError(msg) from error


# ---------------------------------------------------------------- results


def _join_lines(text: str) -> Iterator[str]:
    """Yield the requirements of a file that uv wrote, each on one line."""
    for raw_line in re.sub(r"\\\n", " ", text).splitlines():
        line = " ".join(raw_line.split())
        if line and not line.startswith(("#", "-")):
            yield line


def _parse_report(text: str) -> Iterator[str]:
    """Yield the requirements of pip's report. Raise InstallFailedError if it cannot be parsed."""
    try:
        entries = json.loads(text)["install"]
        for entry in entries:
            yield _format_installed(entry)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InstallFailedError("pip's report of what it would install cannot be read.") from error


def _format_installed(entry: dict[str, Any]) -> str:
    """Return the line for an entry of pip's report."""
    name, version = canonicalize_name(entry["metadata"]["name"]), entry["metadata"]["version"]
    info = entry["download_info"]
    digest = info.get("archive_info", {}).get("hashes", {}).get("sha256")
    if not entry.get("is_direct"):
        return f"{name}=={version}" + (f" --hash=sha256:{digest}" if digest else "")
    if "vcs_info" in info:
        return f"{name} @ {info['vcs_info']['vcs']}+{info['url']}@{info['vcs_info']['commit_id']}"
    return f"{name} @ {info['url']}" + (f" --hash=sha256:{digest}" if digest else "")


def _compare_with_lock(question: Question, lines: Sequence[str]) -> PipResolution:
    """Return the resolution, sorted into lines of the lock and others.

    Raise NoSolutionError if a package would overwrite the files of a planned one.
    """
    locked = dict(zip(question.pins, question.lock, strict=True))
    pins = question.pins
    cuda = {_split_name_version(pin)[0] for pin in question.cuda}
    owners = {_CUDA_SUFFIX.sub("", name): name for name in cuda if _CUDA_SUFFIX.search(name)}
    user_hashes = dict(_list_own_hashes(question))
    unchanged: list[str] = []
    hashed: list[str] = []
    others: list[str] = []
    for line in lines:
        name, version = _split_name_version(line)
        if name in cuda:
            continue
        if name == question.package or (pins.get(name) == version and name not in user_hashes):
            unchanged.append(locked[name])
            continue
        owner = owners.get(_CUDA_SUFFIX.sub("", name)) if _CUDA_SUFFIX.search(name) else None
        owner = owner or (question.package if name in _OTHER_TENSORFLOWS else None)
        if owner is not None:
            raise _make_no_solution_error(
                question,
                f"{name} {version} comes with them, and overwrites the files of {owner}.",
                hint="Put the package that needs it into its own environment.",
            )
        line_without_hashes = _HASH.sub("", line).strip()
        hashes = user_hashes.get(name) or tuple(_HASH.findall(line))
        if hashes:
            hashed.append(
                " ".join([line_without_hashes, *(f"--hash={hash_value}" for hash_value in sorted({*hashes}))])
            )
        else:
            others.append(line_without_hashes)
    if not any(_split_name_version(line)[0] == question.package for line in unchanged):
        unchanged.append(locked[question.package])
    return PipResolution(tuple(unchanged), tuple(hashed), tuple(others))


def _list_own_hashes(question: Question) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield (name, hashes) of the user's lines that have hashes."""
    for line in (*question.lines, *question.constraints):
        hashes = tuple(_HASH.findall(line))
        if hashes:
            try:
                name = Requirement(_HASH.sub("", line).strip()).name
            except InvalidRequirement:
                continue
            yield canonicalize_name(name), hashes


# ---------------------------------------------------------------- reasons

_LINE_PREFIX = re.compile(r"^(?:error: |cause: |[×╰─▶│\s]+|ERROR: )+")
_UNINFORMATIVE = re.compile(
    r"No solution found when resolving|ResolutionImpossible|^To fix this|^[12]\. |^hint:|^WARNING|^\[notice\]|"
    r"^INFO:|^Looking in|^Additionally, some packages|"
    r"^(?:Collecting|Using cached|Downloading|Processing|Requirement|Ignoring|"
    r"Saved|Preparing|Installing|Getting|Discarding)\b|^Would install|━"
)


def format_reason(lines: Sequence[str]) -> str:
    """Return the resolver's explanation as one line."""
    parts: list[str] = []
    conflict = next((index for index, line in enumerate(lines) if "conflict is caused by" in line), 0)
    for line in lines[conflict:]:
        text = _LINE_PREFIX.sub("", line.strip()).strip()
        if text and not _UNINFORMATIVE.search(text) and text not in parts:
            parts.append(text)
    joined = ""
    for text in parts[-12:]:
        separator = "" if not joined else " " if joined.endswith((".", ":", ",")) else "; "
        joined += separator + text
    return clean_line(joined, limit=900)
