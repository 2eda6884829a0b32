"""``dpkg -l`` and ``apt list --installed``."""

from __future__ import annotations

import re

from tfdoctor.parse._text import Parsed, clean_lines, unquote
from tfdoctor.records import dataclass

_ARCHITECTURES = (
    "amd64|i386|all|any|arm64|armhf|armel|ppc64el|ppc64|s390x|riscv64|x32|loong64|mips64el|sparc64"
    "|<none>|<keine>|<aucun>|<无>"
)
# Wanted action, status, error flag. The architecture distinguishes a row from prose that starts with two such
# letters.
_ROW = re.compile(
    rf"([uihrp][ncHUFWti]R?)[ \t]+(\S{{1,300}})[ \t]+(\S{{1,300}})[ \t]+({_ARCHITECTURES})(?=[ \t]|$)"
)
_NOT_INSTALLED_ROW = re.compile(r"([uihrp][ncHUFWti]R?)[ \t]+(\S{1,300})[ \t]+(<none>)[ \t]*()(?=\(|$)")
"""A row of a package that is not installed, from a dpkg that prints no architectures."""
_APT_ROW = re.compile(
    rf"([a-z0-9][a-z0-9+.-]{{0,300}})/(\S{{1,300}})[ \t]+(\S{{1,300}})[ \t]+({_ARCHITECTURES})(?=[ \t]|$)"
)


@dataclass(frozen=True, slots=True)
class DpkgRow(Parsed):
    """A row of ``dpkg -l``, as printed.

    ``status`` is for example ``ii`` (installed), ``rc`` (removed, configuration left) or ``un`` (unknown).
    ``name`` keeps a ``:amd64``, ``version`` is ``<none>`` if none is installed, ``arch`` is empty if none is
    printed.
    """

    status: str
    name: str
    version: str
    arch: str


@dataclass(frozen=True, slots=True)
class AptRow(Parsed):
    """A row of ``apt list``: the name without the suites after the slash."""

    name: str
    version: str
    arch: str


@dataclass(frozen=True, slots=True)
class Dpkg(Parsed):
    """Both listings; ``n_rows`` counts the rows of ``dpkg -l`` only."""

    rows: tuple[DpkgRow, ...]
    n_rows: int
    apt_rows: tuple[AptRow, ...]
    notes: tuple[str, ...] = ()


def parse_dpkg(text: str) -> Dpkg:
    """Parse either listing, or both in one text, whole or filtered by grep."""
    rows: list[DpkgRow] = []
    apt_rows: list[AptRow] = []
    for line in map(unquote, clean_lines(text)):
        if row := _ROW.match(line) or _NOT_INSTALLED_ROW.match(line):
            rows.append(DpkgRow(*row.groups()))
        elif apt := _APT_ROW.match(line):
            apt_rows.append(AptRow(apt[1], apt[3], apt[4]))
    notes = () if rows or apt_rows else ("no rows of dpkg -l or apt list",)
    return Dpkg(tuple(rows), len(rows), tuple(apt_rows), notes)
