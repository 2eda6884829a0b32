"""Parse the arguments of pip, uv, conda and apt-get commands."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from tfdoctor.images.read.models import SourceLine

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tfdoctor.images.read.shell import Command, Word

__all__ = [
    "AptCall",
    "CondaCall",
    "PipCall",
    "PipRequirement",
    "iter_requirement_lines",
    "parse_apt_call",
    "parse_conda_call",
    "parse_pip_call",
    "parse_requirement",
]

MAX_PIP_ARGUMENTS = 5000
"""The largest number of arguments of one pip command that are read."""
_PIP = re.compile(r"pip-?(\d(?:\.\d{1,2})?)?")
"""A program such as pip, pip3, pip3.8 or pip-3.8; the group is the version."""
_PYTHON = re.compile(r"(?:python|pypy)(\d(?:\.\d{1,2})?)?")
"""A program such as python, python3 or python3.8; the group is the version."""
_WHEEL = re.compile(
    r"(?:.*/)?([A-Za-z0-9_.]+)-([0-9][A-Za-z0-9_.+!]*)(?:-\d\w*)?-[\w.]+-[\w.]+-[\w.]+\.whl(?:#.*)?"
)
"""NAME-VERSION[-BUILD]-PYTHON-ABI-PLATFORM.whl, with an optional path and fragment."""
_CONDA_SPEC = re.compile(r"(?:[\w./-]+::)?([A-Za-z0-9_.-]+)\s*((?:[<>=!~]=?|==).*)?")
"""[CHANNEL::]NAME[VERSION CONDITION]"""
_APT_SPEC = re.compile(r"([a-z0-9][a-z0-9+.-]*)(?::[a-z0-9]+)?(?:=(\S+))?(?:/\S+)?")
"""NAME[:ARCHITECTURE][=VERSION][/RELEASE]"""
_FOLDER_OPTIONS = frozenset({"-t", "--target", "--prefix", "--root"})
"""Options of pip with the folder to install into."""
_OPTIONS_WITH_VALUE = frozenset(
    [
        *_FOLDER_OPTIONS,
        "-i",
        "--index-url",
        "--extra-index-url",
        "-f",
        "--find-links",
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
"""pip and uv options whose value is the next argument."""


@dataclass(frozen=True, slots=True)
class PipRequirement:
    """A requirement of a pip command, or a line of a requirements or constraints file."""

    name: str
    """The normalised name, such as `tensorflow-gpu`."""
    extras: frozenset[str]
    specifier: str
    """The version specifier (PEP 440), such as `==2.4.1`. Empty for any version."""
    text: str
    """The requirement as written."""
    line: int
    source: str
    """The name of the file that it is in. Empty for the Dockerfile."""
    is_known: bool = True
    """Whether the whole requirement is known. A part from a variable without a known value is unknown."""
    redirected_part: str = ""
    """The part that the shell interprets as a redirection, such as `>=2.4`. Empty if there is none."""
    marker: str = ""
    """The environment marker (PEP 508). Empty if there is none."""

    @property
    def source_line(self) -> SourceLine:
        return SourceLine(self.text, self.line, self.source)


@dataclass(frozen=True, slots=True)
class PipCall:
    """A `pip` or `uv pip` command: `install`, `uninstall`, `wheel`, `download` or (uv only) `sync`."""

    action: str
    """The action, such as `install` or `uninstall`."""
    program: str
    """The program as written, such as `pip3`, `python3.8`, `/opt/venv/bin/pip` or `uv`."""
    python: str | None
    """The Python version in the program name or in uv's `--python`, such as `3.8`. None if there is none."""
    packages: tuple[PipRequirement, ...]
    requirements_files: tuple[str, ...]
    """Paths of requirements files."""
    constraints_files: tuple[str, ...]
    """Paths of constraints files."""
    unnamed_count: int
    """The number of projects that are given by path or URL."""
    installs_dependencies: bool
    """Whether the command also installs dependencies; False with `--no-deps`."""
    folder: str
    """The folder in `--target`, `--prefix` or `--root`. Empty for the Python's own folder."""
    line: int


@dataclass(frozen=True, slots=True)
class CondaCall:
    """A `conda install`, `create`, `update` or `upgrade`, or the same command of mamba or micromamba."""

    packages: tuple[tuple[str, str], ...]
    """The packages as pairs of a name and a version as written."""
    environment: str
    """The name or path of the environment. Empty for the active one."""
    spec_files: tuple[str, ...]
    """Paths of environment files, or of files with package lists."""
    line: int


@dataclass(frozen=True, slots=True)
class AptCall:
    """An apt-get, apt or aptitude command."""

    action: str
    """The action, such as `update` or `install`."""
    packages: tuple[tuple[str, str | None], ...]
    """The packages as pairs of a name and a version. The version is None if none is given."""
    has_unknown_argument: bool
    """Whether the value of an argument is unknown."""
    line: int


def parse_requirement(
    text: str, line: int, source: str = "", *, known: bool = True, redirected_part: str = ""
) -> PipRequirement | None:
    """Parse a requirement or a wheel file name as pip does. Return None if it is neither.

    `known` says whether the whole text is known. `redirected_part` is the part that the shell takes for a redirection.
    """
    text = text.strip()
    if len(text) > 1000:
        return None
    match = _WHEEL.fullmatch(text)
    if match is not None:
        name = canonicalize_name(match[1])
        return PipRequirement(
            name=name,
            extras=frozenset(),
            specifier=f"=={match[2].replace('_', '.')}",
            text=text,
            line=line,
            source=source,
            is_known=known,
        )
    try:
        # An unknown version leaves a text such as "tensorflow==", which is read as "tensorflow".
        requirement = Requirement(text.rstrip("=<>!~") if not known else text)
    except (InvalidRequirement, RecursionError, ValueError):
        return None
    specifier, marker = str(requirement.specifier), str(requirement.marker or "")
    if requirement.url is not None:
        match = _WHEEL.fullmatch(requirement.url)
        specifier = f"=={match[2]}" if match is not None else ""
        known = known and match is not None
    name = canonicalize_name(requirement.name)
    extras = frozenset(canonicalize_name(extra) for extra in requirement.extras)
    return PipRequirement(
        name=name,
        extras=extras,
        specifier=specifier,
        text=text,
        line=line,
        source=source,
        is_known=known,
        redirected_part=redirected_part,
        marker=marker,
    )


def parse_pip_call(command: Command) -> PipCall | None:
    """Parse a pip or uv command. Return None if it is another command."""
    arguments = list(command.words)
    if not arguments:
        return None
    program, python, remaining = arguments[0].text, None, arguments[1:]
    name = command.name
    if (
        name in ("conda", "mamba", "micromamba", "poetry", "pipenv", "pdm")
        and (inner_command := _find_conda_run_command(remaining)) is not None
    ):
        program, name, remaining = f"{name} run", inner_command[0].text.rpartition("/")[2], inner_command[1:]
        arguments = inner_command
    if (match := _PYTHON.fullmatch(name)) is not None:
        arguments_index = _find_pip_arguments(remaining)
        if arguments_index is None:
            return None
        python = (
            match[1] if match[1] and "." in match[1] else None
        )  # `python3` does not name the minor version
        remaining = remaining[arguments_index:]
        program = arguments[0].text
    elif name == "uv":
        if not remaining or remaining[0].text != "pip":
            return None
        remaining, program = remaining[1:], "uv"
    elif (match := _PIP.fullmatch(name)) is not None:
        python = match[1] if match[1] and "." in match[1] else None
    else:
        return None
    while remaining and remaining[0].text.startswith("-"):
        remaining = remaining[2:] if remaining[0].text in _OPTIONS_WITH_VALUE else remaining[1:]
    if not remaining or remaining[0].text not in ("install", "uninstall", "wheel", "download", "sync"):
        return None
    return _parse_pip_arguments(
        command, remaining[0].text, program, python, remaining[1:], len(command.words) - len(remaining) + 1
    )


def _find_conda_run_command(conda_arguments: Sequence[Word]) -> list[Word] | None:
    """Return the command within `conda run`, such as `pip install …` in `conda run -n tf pip install …`.

    `conda_arguments` are those after `conda`. Return None if it is another command.
    """
    if not conda_arguments or conda_arguments[0].text != "run":
        return None
    arguments = list(conda_arguments[1:])
    while arguments and arguments[0].text.startswith("-"):
        arguments = (
            arguments[2:] if arguments[0].text in ("-n", "--name", "-p", "--prefix") else arguments[1:]
        )
    return arguments or None


def _find_pip_arguments(arguments: Sequence[Word]) -> int | None:
    """Return the index after `-m pip` in Python's arguments, or None if they do not run pip."""
    for index, argument in enumerate(arguments):
        if (
            argument.text == "-m"
            and index + 1 < len(arguments)
            and arguments[index + 1].text in ("pip", "uv.pip")
        ):
            return index + 2
        if not argument.text.startswith("-"):
            return None
    return None


def _parse_pip_arguments(
    command: Command, action: str, program: str, python: str | None, arguments: Sequence[Word], offset: int
) -> PipCall:
    """Parse the arguments of a pip command.

    `arguments` are those after the action, and `offset` is the number of words before them.
    """
    packages: list[PipRequirement] = []
    files: list[str] = []
    constraints: list[str] = []
    other_count, has_dependencies, folder = 0, True, ""
    redirected_parts = {
        redirect.word_count: f"{redirect.operator}{redirect.target}"
        for redirect in command.redirects
        if redirect.is_attached
    }
    skips_next = False
    for index, argument in enumerate(arguments[:MAX_PIP_ARGUMENTS]):
        if skips_next:
            skips_next = False
            continue
        text = argument.text
        next_argument = arguments[index + 1].text if index + 1 < len(arguments) else ""
        option, equals_sign, value = text.partition("=")
        if option in ("-r", "--requirement", "--requirements"):
            files.append(value if equals_sign else next_argument)
            skips_next = not equals_sign
        elif text.startswith("-r") and len(text) > 2 and not text.startswith("--"):
            files.append(text[2:])
        elif option in ("-c", "--constraint", "--constraints", "--build-constraint", "-b"):
            constraints.append(value if equals_sign else next_argument)
            skips_next = not equals_sign
        elif option in ("--python", "-p") and program == "uv":
            version = value if equals_sign else next_argument
            python = version if re.fullmatch(r"\d\.\d{1,2}", version) else python
            program = version if "/" in version else program
            skips_next = not equals_sign
        elif option in ("-e", "--editable"):
            other_count, skips_next = other_count + 1, not equals_sign
        elif option in _FOLDER_OPTIONS:
            folder = value if equals_sign else next_argument
            skips_next = not equals_sign
        elif text == "--no-deps":
            has_dependencies = False
        elif text.startswith("-"):
            skips_next = text in _OPTIONS_WITH_VALUE
        elif (redirected_part := redirected_parts.get(offset + index + 1, "")) and (
            requirement := parse_requirement(text, argument.line, redirected_part=redirected_part)
        ) is not None:
            packages.append(requirement)
        elif action == "sync":
            files.append(text)
        elif (
            requirement := parse_requirement(text, argument.line, known=argument.is_known)
        ) is not None and not text.startswith((".", "/")):
            packages.append(requirement)
        else:
            other_count += 1
    return PipCall(
        action=action,
        program=program,
        python=python,
        packages=tuple(packages),
        requirements_files=tuple(files),
        constraints_files=tuple(constraints),
        unnamed_count=other_count,
        installs_dependencies=has_dependencies,
        folder=folder,
        line=command.line,
    )


def parse_conda_call(command: Command) -> CondaCall | None:
    """Parse a command that installs packages with conda. Return None if it is another command."""
    if command.name not in ("conda", "mamba", "micromamba") or len(command.words) < 2:
        return None
    arguments = [argument.text for argument in command.words[1:]]
    if arguments[0] == "env" and len(arguments) > 1:
        arguments = arguments[1:]
    if arguments[0] not in ("install", "create", "update", "upgrade"):
        return None
    packages: list[tuple[str, str]] = []
    files: list[str] = []
    environment, skips_next = "", False
    for index, text in enumerate(arguments[1:], 1):
        next_argument = arguments[index + 1] if index + 1 < len(arguments) else ""
        if skips_next:
            skips_next = False
        elif text in ("-n", "--name", "-p", "--prefix"):
            environment, skips_next = next_argument, True
        elif text in ("-f", "--file"):
            files.append(next_argument)
            skips_next = True
        elif text.startswith("--file="):
            files.append(text.partition("=")[2])
        elif text in ("-c", "--channel", "--solver", "--subdir", "--platform"):
            skips_next = True
        elif not text.startswith("-") and (match := _CONDA_SPEC.fullmatch(text)) is not None:
            packages.append((match[1].lower(), (match[2] or "").strip()))
    return CondaCall(tuple(packages), environment, tuple(files), command.line)


def parse_apt_call(command: Command) -> AptCall | None:
    """Parse an apt-get, apt or aptitude command. Return None if it is another command."""
    if command.name not in ("apt-get", "apt", "aptitude"):
        return None
    arguments = command.words[1:]
    action, packages, has_unknown, skips_next = "", [], False, False
    for argument in arguments:
        if skips_next:
            skips_next = False
        elif argument.text in ("-o", "-t", "-c", "--option", "--target-release"):
            skips_next = True
        elif argument.text.startswith("-"):
            continue
        elif not action:
            action = argument.text
        elif (match := _APT_SPEC.fullmatch(argument.text)) is not None and argument.is_known:
            packages.append((match[1], match[2]))
        elif not argument.is_known:
            has_unknown = True
    return AptCall(action, tuple(packages), has_unknown, command.line) if action else None


def iter_requirement_lines(text: str) -> Iterable[tuple[int, str]]:
    """Yield (number, line) for the lines of a requirements file.

    Continued lines are joined, with the number of the first one. Comments and empty lines are skipped.
    """
    first_number, line_parts = 0, list[str]()
    # The additional empty line ends a last line that has a backslash.
    for number, text_line in enumerate([*text.removeprefix("\ufeff").splitlines(), ""], 1):
        first_number = first_number or number
        if text_line.endswith("\\"):
            line_parts.append(text_line[:-1])
            continue
        line = re.sub(r"(?:^|\s)#.*$", "", " ".join([*line_parts, text_line])).strip()
        if line:
            yield first_number, line
        first_number, line_parts = 0, []
