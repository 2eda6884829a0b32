"""What a command installs: pip, uv, conda and apt-get, read from their words. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from tfdoctor.dockerfile.read.models import SourceLine

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tfdoctor.dockerfile.read.shell import Command, Word

__all__ = [
    "AptCall",
    "CondaCall",
    "PipCall",
    "WantedDistribution",
    "apt_call",
    "conda_call",
    "parse_wanted",
    "pip_call",
    "requirement_lines",
]

MAX_WORDS = 5000
"""Words of one pip command that are read."""
_PIP = re.compile(r"pip-?(\d(?:\.\d{1,2})?)?")
_PYTHON = re.compile(r"(?:python|pypy)(\d(?:\.\d{1,2})?)?")
_WHEEL = re.compile(
    r"(?:.*/)?([A-Za-z0-9_.]+)-([0-9][A-Za-z0-9_.+!]*)(?:-\d\w*)?-[\w.]+-[\w.]+-[\w.]+\.whl(?:#.*)?"
)
_CONDA_SPEC = re.compile(r"(?:[\w./-]+::)?([A-Za-z0-9_.-]+)\s*((?:[<>=!~]=?|==).*)?")
_APT_SPEC = re.compile(r"([a-z0-9][a-z0-9+.-]*)(?::[a-z0-9]+)?(?:=(\S+))?(?:/\S+)?")
_VALUED = frozenset(
    [
        "-i",
        "--index-url",
        "--extra-index-url",
        "-f",
        "--find-links",
        "-t",
        "--target",
        "--prefix",
        "--root",
        "--platform",
        "--python-version",
        "--only-binary",
        "--no-binary",
        "--trusted-host",
        "--timeout",
        "--retries",
        "--proxy",
        "--cert",
        "--client-cert",
        "--cache-dir",
        "--log",
        "--progress-bar",
        "--upgrade-strategy",
        "--config-settings",
        "-C",
        "--global-option",
        "--install-option",
        "--build-option",
        "--abi",
        "--implementation",
        "--src",
        "--use-feature",
        "--exists-action",
        "--index",
        "--default-index",
        "--index-strategy",
        "-P",
        "--upgrade-package",
        "--no-binary-package",
        "--torch-backend",
        "-w",
        "--wheel-dir",
        "-d",
        "--dest",
        "--root-user-action",
        "--report",
        "--hash",
        "--default-timeout",
        "--resolution",
        "--prerelease",
        "--link-mode",
        "--exclude-newer",
    ]
)
"""Options of pip and uv whose value is the next word."""


@dataclass(frozen=True, slots=True)
class WantedDistribution:
    """One requirement."""

    name: str
    """Normalised: `"tensorflow-gpu"`."""
    extras: frozenset[str]
    specifier: str
    """PEP 440: `"==2.4.1"`; empty: any."""
    text: str
    line: int
    source: str
    """Where it stands: empty for the Dockerfile, else the name of a file."""
    known: bool = True
    """False: a part of it could not be known, such as the version."""
    cut: str = ""
    """What the shell took for a redirection: `">=2.4"`."""
    marker: str = ""

    @property
    def seen(self) -> SourceLine:
        return SourceLine(self.text, self.line, self.source)


@dataclass(frozen=True, slots=True)
class PipCall:
    """`pip install`, `uv pip install`, `pip uninstall`, `pip wheel`."""

    action: str
    program: str
    """The word before: `"pip3"`, `"python3.8"`, `"/opt/venv/bin/pip"`, `"uv"`."""
    python: str | None
    """The Python that the program's name says: `"3.8"`."""
    packages: tuple[WantedDistribution, ...]
    files: tuple[str, ...]
    constraints: tuple[str, ...]
    others: int
    """Words that are projects of their own: paths, addresses."""
    dependencies: bool
    """False with `--no-deps`."""
    line: int


@dataclass(frozen=True, slots=True)
class CondaCall:
    """`conda install`, `conda create`, `mamba …`."""

    packages: tuple[tuple[str, str], ...]
    """(name, version as written)."""
    environment: str
    files: tuple[str, ...]
    line: int


@dataclass(frozen=True, slots=True)
class AptCall:
    """`apt-get update`, `apt-get install`."""

    action: str
    packages: tuple[tuple[str, str | None], ...]
    """(name, version)."""
    unknown: bool
    """Whether a word could not be known."""
    line: int


def parse_wanted(
    text: str, line: int, source: str = "", *, known: bool = True, cut: str = ""
) -> WantedDistribution | None:
    """Return a requirement as pip takes it, or a wheel's file name; None if it is neither."""
    text = text.strip()
    if len(text) > 1000:
        return None
    match = _WHEEL.fullmatch(text)
    if match is not None:
        name = canonicalize_name(match[1])
        return WantedDistribution(
            name, frozenset(), f"=={match[2].replace('_', '.')}", text, line, source, known
        )
    try:
        found = Requirement(text.rstrip("=<>!~") if not known else text)
    except (InvalidRequirement, RecursionError, ValueError):
        return None
    specifier, marker = str(found.specifier), str(found.marker or "")
    if found.url is not None:
        match = _WHEEL.fullmatch(found.url)
        specifier = f"=={match[2]}" if match is not None else ""
        known = known and match is not None
    name = canonicalize_name(found.name)
    extras = frozenset(canonicalize_name(one) for one in found.extras)
    return WantedDistribution(name, extras, specifier, text, line, source, known, cut, marker)


def pip_call(command: Command) -> PipCall | None:
    """Return what a pip or uv command does, or None if it is none."""
    words = list(command.words)
    if not words:
        return None
    program, python, rest = words[0].text, None, words[1:]
    name = command.name
    if (
        name in ("conda", "mamba", "micromamba", "poetry", "pipenv", "pdm")
        and (inner := _run_inside(rest)) is not None
    ):
        program, name, rest = f"{name} run", inner[0].text.rpartition("/")[2], inner[1:]
        words = inner
    if (match := _PYTHON.fullmatch(name)) is not None:
        place = _module(rest)
        if place is None:
            return None
        python = match[1] if match[1] and "." in match[1] else None
        rest = rest[place:]
        program = words[0].text
    elif name == "uv":
        if not rest or rest[0].text != "pip":
            return None
        rest, program = rest[1:], "uv"
    elif (match := _PIP.fullmatch(name)) is not None:
        python = match[1] if match[1] and "." in match[1] else None
    else:
        return None
    while rest and rest[0].text.startswith("-"):
        rest = rest[2:] if rest[0].text in _VALUED else rest[1:]
    if not rest or rest[0].text not in ("install", "uninstall", "wheel", "download", "sync"):
        return None
    return _pip(command, rest[0].text, program, python, rest[1:], len(command.words) - len(rest) + 1)


def _run_inside(rest: Sequence[Word]) -> list[Word] | None:
    """Return `conda run -n tf pip install …` → `pip install …`."""
    if not rest or rest[0].text != "run":
        return None
    words = list(rest[1:])
    while words and words[0].text.startswith("-"):
        words = words[2:] if words[0].text in ("-n", "--name", "-p", "--prefix") else words[1:]
    return words or None


def _module(rest: Sequence[Word]) -> int | None:
    """Return the place after `-m pip`."""
    for place, word in enumerate(rest):
        if word.text == "-m" and place + 1 < len(rest) and rest[place + 1].text in ("pip", "uv.pip"):
            return place + 2
        if not word.text.startswith("-"):
            return None
    return None


def _pip(
    command: Command, action: str, program: str, python: str | None, rest: Sequence[Word], offset: int
) -> PipCall:
    packages: list[WantedDistribution] = []
    files: list[str] = []
    constraints: list[str] = []
    others, dependencies = 0, True
    cuts = {one.after: f"{one.operator}{one.target}" for one in command.redirects if one.glued}
    skip = False
    for place, word in enumerate(rest[:MAX_WORDS]):
        if skip:
            skip = False
            continue
        text = word.text
        following = rest[place + 1].text if place + 1 < len(rest) else ""
        option, equal, value = text.partition("=")
        if option in ("-r", "--requirement", "--requirements"):
            files.append(value if equal else following)
            skip = not equal
        elif text.startswith("-r") and len(text) > 2 and not text.startswith("--"):
            files.append(text[2:])
        elif option in ("-c", "--constraint", "--constraints", "--build-constraint", "-b"):
            constraints.append(value if equal else following)
            skip = not equal
        elif option in ("--python", "-p") and program == "uv":
            version = value if equal else following
            python = version if re.fullmatch(r"\d\.\d{1,2}", version) else python
            program = version if "/" in version else program
            skip = not equal
        elif option in ("-e", "--editable"):
            others, skip = others + 1, not equal
        elif text == "--no-deps":
            dependencies = False
        elif text.startswith("-"):
            skip = text in _VALUED
        elif (cut := cuts.get(offset + place + 1, "")) and (
            found := parse_wanted(text, word.line, cut=cut)
        ) is not None:
            packages.append(found)
        elif action == "sync":
            files.append(text)
        elif (found := parse_wanted(text, word.line, known=word.known)) is not None and not text.startswith(
            (".", "/")
        ):
            packages.append(found)
        else:
            others += 1
    return PipCall(
        action,
        program,
        python,
        tuple(packages),
        tuple(files),
        tuple(constraints),
        others,
        dependencies,
        command.line,
    )


def conda_call(command: Command) -> CondaCall | None:
    """Return what conda installs, or None."""
    if command.name not in ("conda", "mamba", "micromamba") or len(command.words) < 2:
        return None
    words = [word.text for word in command.words[1:]]
    if words[0] == "env" and len(words) > 1:
        words = words[1:]
    if words[0] not in ("install", "create", "update", "upgrade"):
        return None
    packages: list[tuple[str, str]] = []
    files: list[str] = []
    environment, skip = "", False
    for place, text in enumerate(words[1:], 1):
        following = words[place + 1] if place + 1 < len(words) else ""
        if skip:
            skip = False
        elif text in ("-n", "--name", "-p", "--prefix"):
            environment, skip = following, True
        elif text in ("-f", "--file"):
            files.append(following)
            skip = True
        elif text.startswith("--file="):
            files.append(text.partition("=")[2])
        elif text in ("-c", "--channel", "--solver", "--subdir", "--platform"):
            skip = True
        elif not text.startswith("-") and (match := _CONDA_SPEC.fullmatch(text)) is not None:
            packages.append((match[1].lower(), (match[2] or "").strip()))
    return CondaCall(tuple(packages), environment, tuple(files), command.line)


def apt_call(command: Command) -> AptCall | None:
    """Return what apt-get does, or None."""
    if command.name not in ("apt-get", "apt", "aptitude"):
        return None
    words = command.words[1:]
    action, packages, unknown, skip = "", [], False, False
    for word in words:
        if skip:
            skip = False
        elif word.text in ("-o", "-t", "-c", "--option", "--target-release"):
            skip = True
        elif word.text.startswith("-"):
            continue
        elif not action:
            action = word.text
        elif (match := _APT_SPEC.fullmatch(word.text)) is not None and word.known:
            packages.append((match[1], match[2]))
        elif not word.known:
            unknown = True
    return AptCall(action, tuple(packages), unknown, command.line) if action else None


def requirement_lines(text: str) -> Iterable[tuple[int, str]]:
    """Yield (number, line) of a requirements file: continued lines joined, comments and empty lines left out."""
    begun, kept = 0, list[str]()
    for number, row in enumerate([*text.removeprefix("\ufeff").splitlines(), ""], 1):
        begun = begun or number
        if row.endswith("\\"):
            kept.append(row[:-1])
            continue
        line = re.sub(r"(?:^|\s)#.*$", "", " ".join([*kept, row])).strip()
        if line:
            yield begun, line
        begun, kept = 0, []
