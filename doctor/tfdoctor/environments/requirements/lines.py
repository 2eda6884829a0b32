"""Parse and validate requirement lines from files and options.

A line is an error if it would not work in an image or in another environment: a local path, a URL with a password, or a
pip option. The error names the line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from tfdoctor.core.errors import UsageError
from tfdoctor.core.text import clean_line, strip_credentials

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "MAX_LINES",
    "RequirementItem",
    "is_tensorflow",
    "join_lines",
    "parse_line",
    "parse_packages",
    "parse_requirements",
]

MAX_LINES = 2000
"""The largest number of lines in a requirements file."""
_MAX_LINE_CHARS = 2000
"""The largest number of characters in a line without its hashes."""
_MAX_HASHED_LINE_CHARS = 100_000
"""The largest number of characters in a line with its hashes. A release may have a hundred wheels, each with a hash."""
_HASH = re.compile(r"\s--hash=sha256:([0-9a-f]{64})(?=\s|$)")
_TENSORFLOW_NAME = re.compile(
    r"tensorflow(?:-gpu|-cpu|-intel|-macos|-rocm)?|tf-nightly(?:-gpu|-cpu)?|nvidia-tensorflow"
)


@dataclass(frozen=True, slots=True)
class RequirementItem:
    """A parsed requirement line with its location."""

    requirement: Requirement
    location: str
    """The location for messages: `"requirements.txt, line 3"`."""
    hashes: tuple[str, ...] = ()
    """SHA-256 digests, hexadecimal."""

    @property
    def name(self) -> str:
        """The normalized package name."""
        return canonicalize_name(self.requirement.name)

    @property
    def line(self) -> str:
        """The line for an installer."""
        return " ".join([str(self.requirement), *(f"--hash=sha256:{digest}" for digest in self.hashes)])


def is_tensorflow(name: str) -> bool:
    """Return whether a normalized name is that of a TensorFlow distribution.

    Only one such distribution can be installed in an environment.
    """
    return _TENSORFLOW_NAME.fullmatch(name) is not None


def parse_requirements(text: str, name: str) -> tuple[str, ...]:
    """Return the normalized requirement lines in the text of a file, in order.

    `name` is the file name for error messages. Raise UsageError if there are too many lines, or if a line cannot be used.
    """
    lines = join_lines(text)
    if len(lines) > MAX_LINES:
        msg = f"{name} has more than {MAX_LINES} lines."
        raise UsageError(msg)
    checked_lines = [
        checked_line
        for number, line in lines
        if (checked_line := _check_requirement(line, f"{name}, line {number}")) is not None
    ]
    return tuple(checked_lines)


def parse_packages(packages: Iterable[str]) -> tuple[str, ...]:
    """Return the normalized lines for the values of the `--package` options.

    Raise UsageError if a value cannot be used.
    """
    return tuple(
        line
        for package in packages
        if (line := _check_requirement(package, f"--package {clean_line(package)}")) is not None
    )


def join_lines(text: str) -> list[tuple[int, str]]:
    """Join lines that end with a backslash, remove comments, and return (number, line) for each.

    The number is that of the first of the joined lines. Empty lines are included.
    """
    joined: list[tuple[int, str]] = []
    first_number, partial = 0, ""  # of the joined line so far; 0 if there is none
    for number, line in enumerate(text.lstrip("\ufeff").splitlines(), 1):
        first_number = first_number or number
        if line.endswith("\\"):
            partial += line[:-1] + " "
        else:
            joined.append((first_number, partial + line))
            first_number, partial = 0, ""
    if partial:
        joined.append((first_number, partial))
    return [(number, re.sub(r"(?:^|\s)#.*$", "", line).strip()) for number, line in joined]


def _check_requirement(text: str, location: str) -> str | None:
    """Return the validated line; None if it is empty.

    Raise UsageError if the line cannot be used, or if it requires TensorFlow itself.
    """
    item = parse_line(text, location)
    if item is not None and is_tensorflow(item.name):
        msg = f"{location}: TensorFlow itself is chosen with --tf."
        raise UsageError(msg)
    return item.line if item is not None else None


def parse_line(line: str, location: str, *, may_quote: bool = True) -> RequirementItem | None:
    """Parse a line of a requirements file; return None if it is empty.

    Raise UsageError if the line is not a requirement that can be used. The error names `location` and, if `may_quote` is
    true, quotes the line without passwords.
    """
    line = line.strip()
    if not line:
        return None
    hashes = _HASH.findall(line[:_MAX_HASHED_LINE_CHARS])
    requirement_text = _HASH.sub("", line[:_MAX_HASHED_LINE_CHARS]).strip()
    if (
        len(requirement_text) > _MAX_LINE_CHARS
        or len(line) > _MAX_HASHED_LINE_CHARS
        or not line.isprintable()
    ):
        msg = f"{location}: this is not a requirement."
        raise UsageError(msg)
    quoted = f"`{strip_credentials(clean_line(line, limit=120))}`" if may_quote else "it"
    if requirement_text.startswith("-"):
        msg = f"{location}: {quoted} is an option of pip, which these lines cannot have here."
        raise UsageError(msg, hint=_suggest_option(requirement_text))
    if requirement_text.startswith((".", "/", "~")) or (
        requirement_text.endswith((".whl", ".tar.gz", ".zip")) and "@" not in requirement_text
    ):
        msg = f"{location}: {quoted} is a file of this machine; only what an index has can be taken."
        raise UsageError(
            msg, hint="Publish it to an index (--index), or add it with a Dockerfile of your own on top."
        )
    try:
        requirement = Requirement(requirement_text)
    except (  # a marker with hundreds of parentheses raises RecursionError
        InvalidRequirement,
        RecursionError,
    ) as error:
        reason = f": {clean_line(str(error).splitlines()[0])}" if may_quote else "."
        msg = f"{location}: {quoted} is not a requirement{reason}"
        raise UsageError(msg, hint="NAME, NAME==1.2 or NAME>=1,<2, one on a line.") from error
    if requirement.url is not None:
        _check_url(requirement.url, location)
    return RequirementItem(requirement, location, tuple(hashes))


def _check_url(url: str, location: str) -> None:
    """Raise UsageError if a URL is not https or contains a user name or password."""
    if not url.startswith(("https://", "git+https://")):
        msg = f"{location}: only https addresses can be used."
        raise UsageError(msg)
    if "@" in url.split("//", 1)[1].partition("/")[0]:
        msg = f"{location}: this address has a name or password in it, which would stay in what is made."
        raise UsageError(msg)


def _suggest_option(option: str) -> str:
    """Return a sentence that says how to replace a pip option in a requirement line."""
    name = option.split("=", 1)[0].split(maxsplit=1)[0]
    return {
        "-i": "Use --index URL.",
        "--index-url": "Use --index URL.",
        "--extra-index-url": "Use --index URL with an index that has everything.",
        "-r": "Name each file with -r on the command line.",
        "--requirement": "Name each file with -r on the command line.",
        "-c": "Put the pins into the requirements themselves.",
        "--constraint": "Put the pins into the requirements themselves.",
        "-e": "Publish the project, or add it with a Dockerfile of your own on top.",
        "--editable": "Publish the project, or add it with a Dockerfile of your own on top.",
    }.get(name, "Remove the line.")
