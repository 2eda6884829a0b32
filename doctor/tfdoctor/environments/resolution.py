"""Resolve a user's requirements together with a locked TensorFlow, using uv or pip.

The versions of TensorFlow and of NVIDIA's wheels are fixed. The other packages keep their locked versions and hashes if
the requirements allow it. Nothing is installed. TensorFlow is downloaded only if pip cannot resolve the requirements
without it.
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

from tfdoctor.core.text import clean_line
from tfdoctor.environments.installers import InstallFailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

__all__ = [
    "CONSTRAINTS_FILE",
    "REQUIREMENTS_FILE",
    "NoSolutionError",
    "PinChange",
    "ResolutionRequest",
    "ResolvedPackages",
    "format_resolver_reason",
    "make_resolver_command",
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
"""The number of bytes that are read from a resolver's output file."""
_HASH = re.compile(r"\s--hash=(sha256:[0-9a-f]{64})(?=\s|$)")
_CUDA_SUFFIX = re.compile(r"-cu[0-9]{2}")
"""The CUDA version in the name of an NVIDIA wheel, such as `nvidia-cudnn-cu12`."""
_TENSORFLOW_DISTRIBUTIONS = frozenset(
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
"""Distributions that contain the package `tensorflow`. Two of them would overwrite each other's files."""
# The start of a line in a resolver's explanation: labels, and the characters of uv's tree.
_LINE_PREFIX = re.compile(r"^(?:error: |cause: |[×╰─▶│\s]+|ERROR: )+")
# Progress messages and hints of uv and pip.
_UNINFORMATIVE = re.compile(
    r"No solution found when resolving|ResolutionImpossible|^To fix this|^[12]\. |^hint:|^WARNING|^\[notice\]|"
    r"^INFO:|^Looking in|^Additionally, some packages|"
    r"^(?:Collecting|Using cached|Downloading|Processing|Requirement|Ignoring|"
    r"Saved|Preparing|Installing|Getting|Discarding)\b|^Would install|━"
)
_MAX_REASON_LINES = 12
_MAX_REASON_CHARS = 900


class NoSolutionError(InstallFailedError):
    """The requirements have no common solution."""


@dataclass(frozen=True, slots=True)
class ResolutionRequest:
    """The packages to resolve together, and the resolver to use."""

    package: str
    """The TensorFlow distribution: `"tensorflow"`."""
    recorded_requires: tuple[str, ...]
    """The recorded requirements of the TensorFlow wheel; pip could read them only by downloading the wheel."""
    lock_lines: tuple[str, ...]
    """The lines of the TensorFlow lock: `name==version --hash=…`."""
    cuda_pins: tuple[str, ...]
    """The pins of NVIDIA's wheels: `name==version`."""
    requirements: tuple[str, ...]
    """The user's requirements, validated (requirements/lines.py)."""
    constraints: tuple[str, ...]
    """The user's constraints, validated in the same way."""
    resolver_command: tuple[str, ...]
    """The start of the resolver's command: `("/…/uv", "pip")` or `("/…/python", "-m", "pip")`."""
    python_options: tuple[str, ...]
    """uv's options for the target Python: `("--python", "/…/python")`; empty for pip, which the target Python runs."""
    index_options: tuple[str, ...]
    """Options that select the package index."""

    @property
    def uses_uv(self) -> bool:
        """Whether uv is the resolver."""
        return Path(self.resolver_command[0]).name.startswith("uv")

    @property
    def version_by_name(self) -> Mapping[str, str]:
        """The locked versions by package name."""
        return dict(_split_name_version(line) for line in self.lock_lines)


@dataclass(frozen=True, slots=True)
class PinChange:
    """A package whose resolved version differs from the locked one."""

    name: str
    locked_version: str | None
    """The version in the lock; None if the lock does not contain the package."""
    resolved_version: str | None
    """The resolved version or URL; None if the package is no longer needed."""


@dataclass(frozen=True, slots=True)
class ResolvedPackages:
    """The result of a resolution: requirement lines to install with `--no-deps`, without NVIDIA's wheels."""

    locked_lines: tuple[str, ...]
    """Lines copied from the lock."""
    hashed_lines: tuple[str, ...] = ()
    """Lines for packages or versions that are not in the lock: `name==version --hash=…`."""
    unhashed_lines: tuple[str, ...] = ()
    """Lines without a known hash: repository URLs, and packages from an index that publishes no hashes."""

    def compare_with_lock(self, lock: Sequence[str]) -> tuple[PinChange, ...]:
        """Return the packages that differ from the lines of a lock, sorted by name."""
        locked_versions = dict(_split_name_version(line) for line in lock)
        resolved_versions = dict(
            _split_name_version(line)
            for line in (*self.locked_lines, *self.hashed_lines, *self.unhashed_lines)
        )
        names = sorted({*locked_versions, *resolved_versions})
        return tuple(
            PinChange(
                name=name,
                locked_version=locked_versions.get(name),
                resolved_version=resolved_versions.get(name),
            )
            for name in names
            if locked_versions.get(name) != resolved_versions.get(name)
        )


def _split_name_version(line: str) -> tuple[str, str]:
    """Split a requirement line into the normalized name and the version or URL; "?" if there is neither.

    The line is `name==version --hash=…`, `name==version ; marker` or `name @ URL`.
    """
    requirement = line.split(" --hash=", 1)[0].split(" ;", 1)[0].strip()
    name, equals, version = requirement.partition("==")
    if equals and "@" not in name:
        return canonicalize_name(name.partition("[")[0].strip()), version.strip()
    name, _, url = requirement.partition("@")
    return canonicalize_name(name.partition("[")[0].strip()), url.strip() or "?"


# ---------------------------------------------------------------- resolving


def make_resolver_command(request: ResolutionRequest, folder: Path) -> tuple[str, ...]:
    """Return the command that runs the resolver with the input and output files in `folder`.

    All attempts use the same command with different contents of the input files.
    """
    constraints_path, requirements_path = str(folder / CONSTRAINTS_FILE), str(folder / REQUIREMENTS_FILE)
    if request.uses_uv:
        output_options = ("--quiet", "--no-header", "--no-annotate", "--generate-hashes")
        file_options = (
            "--constraints",
            constraints_path,
            "--output-file",
            str(folder / RESOLVED_FILE),
            requirements_path,
        )
        return (
            *request.resolver_command,
            "compile",
            *output_options,
            *request.python_options,
            *request.index_options,
            *file_options,
        )
    options = ("--dry-run", "--ignore-installed", "--report", str(folder / REPORT_FILE))
    return (
        *request.resolver_command,
        "install",
        *options,
        *request.index_options,
        "-c",
        constraints_path,
        "-r",
        requirements_path,
    )


def resolve(
    request: ResolutionRequest, folder: Path, run_command: Callable[[Sequence[str]], None]
) -> ResolvedPackages:
    """Resolve the requirements of a request, and return the lines to install.

    `folder` is an empty folder for the resolver's files. `run_command` runs a command to its end, and raises
    InstallFailedError if it fails. Raise NoSolutionError with the resolver's reason if the requirements have no
    solution, or InstallFailedError if the resolver cannot run.
    """
    try:
        lines = (
            _resolve_by_uv(request, folder, run_command)
            if request.uses_uv
            else _resolve_by_pip(request, folder, run_command)
        )
    except InstallFailedError as error:
        if not error.has_no_solution:
            raise
        raise _make_no_solution_error(
            request, format_resolver_reason(error.output) or str(error), error.output
        ) from error
    return _group_by_lock(request, lines)


def _make_no_solution_error(
    request: ResolutionRequest,
    reason: str,
    output: Iterable[str] = (),
    hint: str = "Loosen the named requirement, or choose another TensorFlow with --tf.",
) -> NoSolutionError:
    """Return the error for requirements without a solution."""
    version = request.version_by_name.get(request.package, "")
    # pip names TensorFlow's requirement by its line in the temporary file.
    reason = re.sub(
        rf"-r \S+{re.escape(REQUIREMENTS_FILE)} \(line 1\)", f"{request.package}=={version}", reason
    )
    return NoSolutionError(
        f"Your requirements and TensorFlow {version} cannot be installed together: {reason}",
        hint=hint,
        output=output,
    )


def _resolve_by_uv(
    request: ResolutionRequest, folder: Path, run: Callable[[Sequence[str]], None]
) -> list[str]:
    """Return the requirement lines that uv resolves, in up to three attempts.

    1. All pins of the lock are constraints.
    2. Only the pins that the user's lines allow are constraints.
    3. No pin is a constraint. The lock is written to uv's output file, so that uv prefers the locked versions.

    The third attempt alone is not enough: uv does not prefer the locked version if one of two indexes has that version
    without a file for this Python.
    """
    tensorflow_pin = f"{request.package}=={request.version_by_name[request.package]}"
    pins = {
        name: f"{name}=={version}"
        for name, version in request.version_by_name.items()
        if name != request.package
    }
    write_lines(folder / REQUIREMENTS_FILE, [tensorflow_pin, *_strip_hashes(request.requirements)])

    def resolve_attempt(pin_constraints: Mapping[str, str]) -> None:
        constraints = [*request.cuda_pins, *_strip_hashes(request.constraints)]
        write_lines(folder / CONSTRAINTS_FILE, [*constraints, *pin_constraints.values()])
        write_lines(folder / RESOLVED_FILE, () if pin_constraints else request.lock_lines)
        run(make_resolver_command(request, folder))

    _try_in_order(resolve_attempt, [pins, _drop_pins(pins, _iter_excluded_names(request)), {}])
    return list(_iter_requirement_lines(_load_output(folder / RESOLVED_FILE)))


def _try_in_order(resolve_attempt: Callable[[_T], None], attempts: Sequence[_T]) -> None:
    """Call `resolve_attempt` with each distinct attempt until one has a solution.

    Raise the error of the last attempt if none has a solution. Raise any other error at once.
    """
    distinct = [attempt for index, attempt in enumerate(attempts) if attempt not in attempts[:index]]
    for candidate in distinct[:-1]:
        try:
            resolve_attempt(candidate)
        except InstallFailedError as error:
            if not error.has_no_solution:
                raise
        else:
            return
    resolve_attempt(distinct[-1])


def _resolve_by_pip(
    request: ResolutionRequest, folder: Path, run: Callable[[Sequence[str]], None]
) -> list[str]:
    """Return the requirement lines that pip resolves, in up to five attempts.

    pip has no option to prefer a version, and downloads everything that it resolves. The first attempts therefore use a
    stub wheel in place of TensorFlow. An excluded pin is one that the user's lines do not allow.

    1. The stub with all pins of the lock.
    2. The stub without the excluded pins of packages in `request.known_requires`.
    3. The stub without any pins of packages in `request.known_requires`.
    4. The real TensorFlow without the excluded pins.
    5. The real TensorFlow without any pins.
    """
    tensorflow_pin = f"{request.package}=={request.version_by_name[request.package]}"
    pins = {
        name: f"{name}=={version}"
        for name, version in request.version_by_name.items()
        if name != request.package
    }
    known_requires: dict[str, str] = {
        canonicalize_name(Requirement(requirement).name): requirement
        for requirement in request.recorded_requires
    }
    stub = _make_stub_wheel(folder, tensorflow_pin, [known_requires.get(name, name) for name in pins])
    cuda_stubs = [_make_stub_wheel(folder, pin, ()) for pin in request.cuda_pins]
    excluded_names = set(_iter_excluded_names(request))
    attempts = [
        (stub, pins),
        (stub, _drop_pins(pins, excluded_names & {*known_requires})),
        (stub, _drop_pins(pins, known_requires)),
        (tensorflow_pin, _drop_pins(pins, excluded_names)),
        (tensorflow_pin, {}),
    ]

    def resolve_attempt(attempt: tuple[str, dict[str, str]]) -> None:
        tensorflow_line, pin_constraints = attempt
        write_lines(folder / REQUIREMENTS_FILE, [tensorflow_line, *_strip_hashes(request.requirements)])
        write_lines(
            folder / CONSTRAINTS_FILE,
            [*cuda_stubs, *_strip_hashes(request.constraints), *pin_constraints.values()],
        )
        run(make_resolver_command(request, folder))

    _try_in_order(resolve_attempt, attempts)
    return list(_iter_report_lines(_load_output(folder / REPORT_FILE)))


def _drop_pins(pins: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """Return the pins except those of the named packages."""
    dropped_names = {*names}
    return {name: pin for name, pin in pins.items() if name not in dropped_names}


def _iter_excluded_names(request: ResolutionRequest) -> Iterator[str]:
    """Yield the names of the packages whose locked version the user's lines do not allow."""
    locked_versions = request.version_by_name
    for line in _strip_hashes((*request.requirements, *request.constraints)):
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        locked_version = locked_versions.get(canonicalize_name(requirement.name))
        if locked_version is not None and (
            requirement.url or not requirement.specifier.contains(locked_version, prereleases=True)
        ):
            yield canonicalize_name(requirement.name)


def _make_stub_wheel(folder: Path, pin: str, requires: Sequence[str]) -> str:
    """Create a wheel that contains only metadata, and return the requirement line for it.

    The resolver reads this wheel instead of downloading the real one, which may have several hundred megabytes.
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
    """Return the lines without hashes. If one line has a hash, installers require hashes in every line."""
    return [_HASH.sub("", line).strip() for line in lines]


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a requirements file with one line for each item."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _load_output(path: Path) -> str:
    """Return the text of a resolver's output file, up to the size limit.

    Raise InstallFailedError if the file cannot be read.
    """
    try:
        with path.open("rb") as stream:
            return stream.read(_MAX_OUTPUT_BYTES).decode("utf-8", "replace")
    except OSError as error:
        msg = f"What was resolved cannot be read: {error.strerror or error}."
        raise InstallFailedError(msg) from error


# ---------------------------------------------------------------- results


def _iter_requirement_lines(text: str) -> Iterator[str]:
    """Yield the requirement lines in the text of a file that uv wrote, with continued lines joined."""
    for raw_line in re.sub(r"\\\n", " ", text).splitlines():
        line = " ".join(raw_line.split())
        if line and not line.startswith(("#", "-")):
            yield line


def _iter_report_lines(text: str) -> Iterator[str]:
    """Yield the requirement lines for pip's report. Raise InstallFailedError if it cannot be parsed."""
    try:
        entries = json.loads(text)["install"]
        for entry in entries:
            yield _format_installed(entry)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InstallFailedError("pip's report of what it would install cannot be read.") from error


def _format_installed(entry: dict[str, Any]) -> str:
    """Return the requirement line for one entry of pip's report."""
    name, version = canonicalize_name(entry["metadata"]["name"]), entry["metadata"]["version"]
    info = entry["download_info"]
    digest = info.get("archive_info", {}).get("hashes", {}).get("sha256")
    if not entry.get("is_direct"):
        return f"{name}=={version}" + (f" --hash=sha256:{digest}" if digest else "")
    if "vcs_info" in info:
        return f"{name} @ {info['vcs_info']['vcs']}+{info['url']}@{info['vcs_info']['commit_id']}"
    return f"{name} @ {info['url']}" + (f" --hash=sha256:{digest}" if digest else "")


def _group_by_lock(request: ResolutionRequest, lines: Sequence[str]) -> ResolvedPackages:
    """Group the resolved lines by whether they are in the lock, and drop NVIDIA's wheels.

    Raise NoSolutionError if a package would overwrite the files of a planned package, because it is another TensorFlow
    distribution, or the same NVIDIA library for another CUDA version.
    """
    lock_line_by_name = dict(zip(request.version_by_name, request.lock_lines, strict=True))
    locked_versions = request.version_by_name
    cuda_names = {_split_name_version(pin)[0] for pin in request.cuda_pins}
    cuda_name_by_stem = {_CUDA_SUFFIX.sub("", name): name for name in cuda_names if _CUDA_SUFFIX.search(name)}
    user_hashes = dict(_iter_user_hashes(request))
    unchanged: list[str] = []
    hashed: list[str] = []
    unhashed: list[str] = []
    for line in lines:
        name, version = _split_name_version(line)
        if name in cuda_names:
            continue
        if name == request.package or (locked_versions.get(name) == version and name not in user_hashes):
            unchanged.append(lock_line_by_name[name])
            continue
        overwritten_name = (
            cuda_name_by_stem.get(_CUDA_SUFFIX.sub("", name)) if _CUDA_SUFFIX.search(name) else None
        )
        overwritten_name = overwritten_name or (
            request.package if name in _TENSORFLOW_DISTRIBUTIONS else None
        )
        if overwritten_name is not None:
            raise _make_no_solution_error(
                request,
                f"{name} {version} comes with them, and overwrites the files of {overwritten_name}.",
                hint="Put the package that needs it into its own environment.",
            )
        line_without_hashes = _HASH.sub("", line).strip()
        hashes = user_hashes.get(name) or tuple(_HASH.findall(line))
        if hashes:
            hashed.append(
                " ".join([line_without_hashes, *(f"--hash={hash_value}" for hash_value in sorted({*hashes}))])
            )
        else:
            unhashed.append(line_without_hashes)
    if not any(_split_name_version(line)[0] == request.package for line in unchanged):
        unchanged.append(lock_line_by_name[request.package])
    return ResolvedPackages(
        locked_lines=tuple(unchanged), hashed_lines=tuple(hashed), unhashed_lines=tuple(unhashed)
    )


def _iter_user_hashes(request: ResolutionRequest) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield (name, hashes) for each of the user's lines that has hashes."""
    for line in (*request.requirements, *request.constraints):
        hashes = tuple(_HASH.findall(line))
        if hashes:
            try:
                name = Requirement(_HASH.sub("", line).strip()).name
            except InvalidRequirement:
                continue
            yield canonicalize_name(name), hashes


# ---------------------------------------------------------------- reasons


def format_resolver_reason(lines: Sequence[str]) -> str:
    """Return the resolver's explanation as one line, without progress messages and hints."""
    parts: list[str] = []
    # pip explains a conflict after this line.
    start = next((index for index, line in enumerate(lines) if "conflict is caused by" in line), 0)
    for line in lines[start:]:
        text = _LINE_PREFIX.sub("", line.strip()).strip()
        if text and not _UNINFORMATIVE.search(text) and text not in parts:
            parts.append(text)
    joined = ""
    for text in parts[-_MAX_REASON_LINES:]:  # the explanation is at the end of the output
        separator = "" if not joined else " " if joined.endswith((".", ":", ",")) else "; "
        joined += separator + text
    return clean_line(joined, limit=_MAX_REASON_CHARS)
