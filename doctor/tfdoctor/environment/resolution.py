"""Which versions a user's requirements get beside a locked TensorFlow: asked of uv or pip, from metadata.

TensorFlow and NVIDIA's wheels stay as they were planned; everything else of the lock stays where the requirements let
it, with its hashes. Nothing is installed, and neither TensorFlow nor CUDA is fetched to find out.
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
    "LIMITS",
    "WANTED",
    "NoSolutionError",
    "PinChange",
    "PipResolution",
    "Question",
    "command",
    "reason_of",
    "resolve",
    "write_lines",
]

_T = TypeVar("_T")
WANTED, LIMITS, FOUND, REPORT = "wanted.txt", "limits.txt", "found.txt", "report.json"
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
    """The requirements cannot be had together."""


@dataclass(frozen=True, slots=True)
class Question:
    """What has to go together."""

    package: str
    """`"tensorflow"`."""
    requires: tuple[str, ...]
    """What is known of what that wheel requires; pip would have to fetch it to know the rest."""
    lock: tuple[str, ...]
    """The lines of its lock: `name==version --hash=…`."""
    cuda: tuple[str, ...]
    """`name==version` of NVIDIA's wheels."""
    lines: tuple[str, ...]
    """The user's requirements, checked (requirements/lines.py)."""
    constraints: tuple[str, ...]
    """The user's constraints, likewise."""
    program: tuple[str, ...]
    """`("/…/uv", "pip")`, or a Python with `-m pip`."""
    python: tuple[str, ...]
    """What tells uv which Python it is for: `("--python", "/…/python")`; nothing for pip, which runs in it."""
    index: tuple[str, ...]
    """Options that name the index."""

    @property
    def uv(self) -> bool:
        """Whether uv answers."""
        return Path(self.program[0]).name.startswith("uv")

    @property
    def pins(self) -> Mapping[str, str]:
        """Name → version, of the lock."""
        return dict(_name_version(line) for line in self.lock)


@dataclass(frozen=True, slots=True)
class PinChange:
    """A package that is not as in the lock."""

    name: str
    locked: str | None
    """None: the lock does not have it."""
    chosen: str | None
    """A version or an address; None: nothing needs it any more."""


@dataclass(frozen=True, slots=True)
class PipResolution:
    """All that is installed besides NVIDIA's wheels, as lines for `--no-deps`."""

    kept: tuple[str, ...]
    """Lines of the lock."""
    hashed: tuple[str, ...] = ()
    """New or at another version: `name==version --hash=…`."""
    others: tuple[str, ...] = ()
    """Lines of which no hash is known: addresses of repositories, packages of an index that gives none."""

    def changes(self, lock: Sequence[str]) -> tuple[PinChange, ...]:
        """Against a lock's lines, by name."""
        before = dict(_name_version(line) for line in lock)
        after = dict(_name_version(line) for line in (*self.kept, *self.hashed, *self.others))
        names = sorted({*before, *after})
        return tuple(
            PinChange(name, before.get(name), after.get(name))
            for name in names
            if before.get(name) != after.get(name)
        )


def _name_version(line: str) -> tuple[str, str]:
    """Name, and version or address, of `name==version --hash=…`, `name==version ; marker`, `name @ address`."""
    word = line.split(" --hash=", 1)[0].split(" ;", 1)[0].strip()
    name, equals, version = word.partition("==")
    if equals and "@" not in name:
        return canonicalize_name(name.partition("[")[0].strip()), version.strip()
    name, _, address = word.partition("@")
    return canonicalize_name(name.partition("[")[0].strip()), address.strip() or "?"


# ---------------------------------------------------------------- asking


def command(question: Question, folder: Path) -> tuple[str, ...]:
    """Return what is run first (with uv: all that is run) in a folder that it may write into."""
    limits, wanted = str(folder / LIMITS), str(folder / WANTED)
    if question.uv:
        quiet = ("--quiet", "--no-header", "--no-annotate", "--generate-hashes")
        where = ("--constraints", limits, "--output-file", str(folder / FOUND), wanted)
        return (*question.program, "compile", *quiet, *question.python, *question.index, *where)
    words = ("--dry-run", "--ignore-installed", "--report", str(folder / REPORT))
    return (*question.program, "install", *words, *question.index, "-c", limits, "-r", wanted)


def resolve(question: Question, folder: Path, run: Callable[[Sequence[str]], None]) -> PipResolution:
    """Ask; `run` runs a command to its end and raises InstallFailedError where it fails.

    Raises NoSolutionError with the resolver's reason, and InstallFailedError where it could not be tried.
    """
    try:
        found = (
            _resolve_by_uv(question, folder, run) if question.uv else _resolve_by_pip(question, folder, run)
        )
    except InstallFailedError as error:
        if not error.unsolved:
            raise
        raise _make_no_solution_error(
            question, reason_of(error.output) or str(error), error.output
        ) from error
    return _compare_with_lock(question, found)


def _make_no_solution_error(
    question: Question,
    reason: str,
    output: Iterable[str] = (),
    hint: str = "Loosen the named requirement, or choose another TensorFlow with --tf.",
) -> NoSolutionError:
    version = question.pins.get(question.package, "")
    reason = re.sub(rf"-r \S+{re.escape(WANTED)} \(line 1\)", f"{question.package}=={version}", reason)
    return NoSolutionError(
        f"Your requirements and TensorFlow {version} cannot be installed together: {reason}",
        hint=hint,
        output=output,
    )


def _resolve_by_uv(question: Question, folder: Path, run: Callable[[Sequence[str]], None]) -> list[str]:
    """Return all pins of the lock first; then without those that the requirements exclude.

    Then none, the lock being what uv prefers, for it stands in its output file already.

    Not at once: where one of two indexes has a version without the file for this Python, uv prefers another version.
    """
    own = f"{question.package}=={question.pins[question.package]}"
    pins = {name: f"{name}=={version}" for name, version in question.pins.items() if name != question.package}
    write_lines(folder / WANTED, [own, *_strip_hashes(question.lines)])

    def ask(limits: Mapping[str, str]) -> None:
        always = [*question.cuda, *_strip_hashes(question.constraints)]
        write_lines(folder / LIMITS, [*always, *limits.values()])
        write_lines(folder / FOUND, () if limits else question.lock)
        run(command(question, folder))

    _first(ask, [pins, _drop_pins(pins, _list_excluded(question)), {}])
    return list(_rows(_read_output(folder / FOUND)))


def _first(ask: Callable[[_T], None], attempts: Sequence[_T]) -> None:
    """The first attempt that has a solution. Raises what the last one raises where none has."""
    different = [one for number, one in enumerate(attempts) if one not in attempts[:number]]
    for attempt in different[:-1]:
        try:
            ask(attempt)
        except InstallFailedError as error:
            if not error.unsolved:
                raise
        else:
            return
    ask(different[-1])


def _resolve_by_pip(question: Question, folder: Path, run: Callable[[Sequence[str]], None]) -> list[str]:
    """pip has no preferences, and fetches all that it resolves: it is asked step by step, with TensorFlow stood in
    for as long as what that requires is known.

    All pins of the lock first; then without those that the requirements exclude and whose limits are known; then
    with the real TensorFlow, without those that the requirements exclude, and at last without all.
    """
    own = f"{question.package}=={question.pins[question.package]}"
    pins = {name: f"{name}=={version}" for name, version in question.pins.items() if name != question.package}
    known: dict[str, str] = {canonicalize_name(Requirement(one).name): one for one in question.requires}
    stub = _stub(folder, own, [known.get(name, name) for name in pins])
    cuda = [_stub(folder, pin, ()) for pin in question.cuda]
    excluded = set(_list_excluded(question))
    attempts = [
        (stub, pins),
        (stub, _drop_pins(pins, excluded & {*known})),
        (stub, _drop_pins(pins, known)),
        (own, _drop_pins(pins, excluded)),
        (own, {}),
    ]

    def ask(attempt: tuple[str, dict[str, str]]) -> None:
        write_lines(folder / WANTED, [attempt[0], *_strip_hashes(question.lines)])
        write_lines(folder / LIMITS, [*cuda, *_strip_hashes(question.constraints), *attempt[1].values()])
        run(command(question, folder))

    _first(ask, attempts)
    return list(_parse_report(_read_output(folder / REPORT)))


def _drop_pins(pins: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    left = {*names}
    return {name: pin for name, pin in pins.items() if name not in left}


def _list_excluded(question: Question) -> Iterator[str]:
    """Yield names whose pin in the lock the user's own lines do not allow."""
    pins = question.pins
    for line in _strip_hashes((*question.lines, *question.constraints)):
        try:
            wanted = Requirement(line)
        except InvalidRequirement:
            continue
        pin = pins.get(canonicalize_name(wanted.name))
        if pin is not None and (wanted.url or not wanted.specifier.contains(pin, prereleases=True)):
            yield canonicalize_name(wanted.name)


def _stub(folder: Path, pin: str, requires: Sequence[str]) -> str:
    """Return a wheel that has nothing but a name, a version and what it requires: in place of one of gigabytes."""
    name, version = _name_version(pin)
    stem = f"{name.replace('-', '_')}-{version}"
    needs = "".join(f"Requires-Dist: {one}\n" for one in requires)
    info = f"{stem}.dist-info"
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}"
        )
        archive.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: tfdoctor\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr(f"{info}/RECORD", "")
    return f"{name} @ {path.absolute().as_uri()}"


def _strip_hashes(lines: Iterable[str]) -> list[str]:
    """With a single hash in it an installer would ask for one of everything."""
    return [_HASH.sub("", line).strip() for line in lines]


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """A file of requirements."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _read_output(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return stream.read(_MAX_OUTPUT_BYTES).decode("utf-8", "replace")
    except OSError as error:
        msg = f"What was resolved cannot be read: {error.strerror or error}."
        raise InstallFailedError(msg) from error


# ---------------------------------------------------------------- what was answered


def _rows(text: str) -> Iterator[str]:
    """Yield the requirements of a file that uv wrote, each on one line."""
    for row in re.sub(r"\\\n", " ", text).splitlines():
        line = " ".join(row.split())
        if line and not line.startswith(("#", "-")):
            yield line


def _parse_report(text: str) -> Iterator[str]:
    """Yield the requirements of pip's report. Raises InstallFailedError if it is none."""
    try:
        rows = json.loads(text)["install"]
        for row in rows:
            yield _format_installed(row)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InstallFailedError("pip's report of what it would install cannot be read.") from error


def _format_installed(row: dict[str, Any]) -> str:
    name, version = canonicalize_name(row["metadata"]["name"]), row["metadata"]["version"]
    info = row["download_info"]
    digest = info.get("archive_info", {}).get("hashes", {}).get("sha256")
    if not row.get("is_direct"):
        return f"{name}=={version}" + (f" --hash=sha256:{digest}" if digest else "")
    if "vcs_info" in info:
        return f"{name} @ {info['vcs_info']['vcs']}+{info['url']}@{info['vcs_info']['commit_id']}"
    return f"{name} @ {info['url']}" + (f" --hash=sha256:{digest}" if digest else "")


def _compare_with_lock(question: Question, found: Sequence[str]) -> PipResolution:
    """Return what was found, beside the lock.

    Raises NoSolutionError if it would lay itself over what is planned.
    """
    locked = dict(zip(question.pins, question.lock, strict=True))
    pins = question.pins
    cuda = {_name_version(pin)[0] for pin in question.cuda}
    owners = {_CUDA_SUFFIX.sub("", name): name for name in cuda if _CUDA_SUFFIX.search(name)}
    asked = dict(_list_own_hashes(question))
    kept: list[str] = []
    hashed: list[str] = []
    others: list[str] = []
    for line in found:
        name, version = _name_version(line)
        if name in cuda:
            continue
        if name == question.package or (pins.get(name) == version and name not in asked):
            kept.append(locked[name])
            continue
        owner = owners.get(_CUDA_SUFFIX.sub("", name)) if _CUDA_SUFFIX.search(name) else None
        owner = owner or (question.package if name in _OTHER_TENSORFLOWS else None)
        if owner is not None:
            raise _make_no_solution_error(
                question,
                f"{name} {version} comes with them, and overwrites the files of {owner}.",
                hint="Put the package that needs it into its own environment.",
            )
        bare = _HASH.sub("", line).strip()
        hashes = asked.get(name) or tuple(_HASH.findall(line))
        if hashes:
            hashed.append(" ".join([bare, *(f"--hash={one}" for one in sorted({*hashes}))]))
        else:
            others.append(bare)
    if not any(_name_version(line)[0] == question.package for line in kept):
        kept.append(locked[question.package])
    return PipResolution(tuple(kept), tuple(hashed), tuple(others))


def _list_own_hashes(question: Question) -> Iterator[tuple[str, tuple[str, ...]]]:
    """name → the hashes that the user's own lines give."""
    for line in (*question.lines, *question.constraints):
        hashes = tuple(_HASH.findall(line))
        if hashes:
            try:
                name = Requirement(_HASH.sub("", line).strip()).name
            except InvalidRequirement:
                continue
            yield canonicalize_name(name), hashes


# ---------------------------------------------------------------- why not

_HEAD = re.compile(r"^(?:error: |cause: |[×╰─▶│\s]+|ERROR: )+")
_SAYS_NOTHING = re.compile(
    r"No solution found when resolving|ResolutionImpossible|^To fix this|^[12]\. |^hint:|^WARNING|^\[notice\]|"
    r"^INFO:|^Looking in|^Additionally, some packages|"
    r"^(?:Collecting|Using cached|Downloading|Processing|Requirement|Ignoring|"
    r"Saved|Preparing|Installing|Getting|Discarding)\b|^Would install|━"
)


def reason_of(lines: Sequence[str]) -> str:
    """Return the resolver's own words, in one sentence."""
    said: list[str] = []
    conflict = next((at for at, line in enumerate(lines) if "conflict is caused by" in line), 0)
    for line in lines[conflict:]:
        text = _HEAD.sub("", line.strip()).strip()
        if text and not _SAYS_NOTHING.search(text) and text not in said:
            said.append(text)
    joined = ""
    for text in said[-12:]:
        glue = "" if not joined else " " if joined.endswith((".", ":", ",")) else "; "
        joined += glue + text
    return clean_line(joined, limit=900)
