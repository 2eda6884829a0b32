"""A user's requirements: files and options that come from outside, made into lines that pip may be given.

What a file can say and an image or environment cannot keep is refused with its line: paths of this machine, other
files, indexes with passwords, options of pip.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from tfdoctor.errors import UsageError
from tfdoctor.text import clean_line, strip_credentials

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "MAX_LINES",
    "Item",
    "is_tensorflow",
    "join_lines",
    "parse_line",
    "parse_packages",
    "parse_requirements",
]

MAX_LINES = 2000
_MAX_LINE_CHARS = 2000
_LONGEST_HASHED = 100_000
"""Characters of a line, and of one with its hashes: a release may have a hundred wheels."""
_HASH = re.compile(r"\s--hash=sha256:([0-9a-f]{64})(?=\s|$)")
_OURS = re.compile(r"tensorflow(?:-gpu|-cpu|-intel|-macos|-rocm)?|tf-nightly(?:-gpu|-cpu)?|nvidia-tensorflow")


@dataclass(frozen=True, slots=True)
class Item:
    """One requirement, with where it stands."""

    requirement: Requirement
    where: str
    """`"requirements.txt, line 3"`."""
    hashes: tuple[str, ...] = ()
    """SHA-256, hexadecimal."""

    @property
    def name(self) -> str:
        """Normalised."""
        return canonicalize_name(self.requirement.name)

    @property
    def line(self) -> str:
        """As an installer is given it."""
        return " ".join([str(self.requirement), *(f"--hash=sha256:{one}" for one in self.hashes)])


def is_tensorflow(name: str) -> bool:
    """Return whether a distribution, by its normalised name, is a TensorFlow: one excludes the others."""
    return _OURS.fullmatch(name) is not None


def parse_requirements(text: str, name: str) -> tuple[str, ...]:
    """Return the requirement lines of a file, normalised, in order.

    Raises UsageError with the line that cannot be used.
    """
    rows = join_lines(text)
    if len(rows) > MAX_LINES:
        msg = f"{name} has more than {MAX_LINES} lines."
        raise UsageError(msg)
    found = [line for number, row in rows if (line := _line(row, f"{name}, line {number}")) is not None]
    return tuple(found)


def parse_packages(packages: Iterable[str]) -> tuple[str, ...]:
    """Return what `--package` was given. Raises UsageError."""
    return tuple(line for one in packages if (line := _line(one, f"--package {clean_line(one)}")) is not None)


def join_lines(text: str) -> list[tuple[int, str]]:
    """Return (number, line) with continued lines joined and comments taken away."""
    rows: list[tuple[int, str]] = []
    begun, kept = 0, ""
    for number, row in enumerate(text.lstrip("\ufeff").splitlines(), 1):
        begun = begun or number
        if row.endswith("\\"):
            kept += row[:-1] + " "
        else:
            rows.append((begun, kept + row))
            begun, kept = 0, ""
    if kept:
        rows.append((begun, kept))
    return [(number, re.sub(r"(?:^|\s)#.*$", "", row).strip()) for number, row in rows]


def _line(row: str, where: str) -> str | None:
    item = parse_line(row, where)
    if item is not None and is_tensorflow(item.name):
        msg = f"{where}: TensorFlow itself is chosen with --tf."
        raise UsageError(msg)
    return item.line if item is not None else None


def parse_line(row: str, where: str, *, quote: bool = True) -> Item | None:
    """Read one line of a requirements file; None if nothing stands on it. Raises UsageError.

    `quote`: whether a line that is refused may be shown, without its passwords.
    """
    row = row.strip()
    if not row:
        return None
    hashes = _HASH.findall(row[:_LONGEST_HASHED])
    wanted = _HASH.sub("", row[:_LONGEST_HASHED]).strip()
    if len(wanted) > _MAX_LINE_CHARS or len(row) > _LONGEST_HASHED or not row.isprintable():
        msg = f"{where}: this is not a requirement."
        raise UsageError(msg)
    shown = f"`{strip_credentials(clean_line(row, limit=120))}`" if quote else "it"
    if wanted.startswith("-"):
        msg = f"{where}: {shown} is an option of pip, which these lines cannot have here."
        raise UsageError(msg, hint=_suggest_option(wanted))
    if wanted.startswith((".", "/", "~")) or (
        wanted.endswith((".whl", ".tar.gz", ".zip")) and "@" not in wanted
    ):
        msg = f"{where}: {shown} is a file of this machine; only what an index has can be taken."
        raise UsageError(
            msg, hint="Publish it to an index (--index), or add it with a Dockerfile of your own on top."
        )
    try:
        requirement = Requirement(wanted)
    except (InvalidRequirement, RecursionError) as error:  # RecursionError: hundreds of brackets in a marker
        reason = f": {clean_line(str(error).splitlines()[0])}" if quote else "."
        msg = f"{where}: {shown} is not a requirement{reason}"
        raise UsageError(msg, hint="NAME, NAME==1.2 or NAME>=1,<2, one on a line.") from error
    if requirement.url is not None:
        _check_url(requirement.url, where)
    return Item(requirement, where, tuple(hashes))


def _check_url(url: str, where: str) -> None:
    if not url.startswith(("https://", "git+https://")):
        msg = f"{where}: only https addresses can be used."
        raise UsageError(msg)
    if "@" in url.split("//", 1)[1].partition("/")[0]:
        msg = f"{where}: this address has a name or password in it, which would stay in what is made."
        raise UsageError(msg)


def _suggest_option(option: str) -> str:
    word = option.split("=", 1)[0].split(maxsplit=1)[0]
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
    }.get(word, "Remove the line.")
