"""Parse ``dpkg -l`` and ``apt list --installed``."""

from __future__ import annotations

import re

from tfdoctor.core.records import dataclass
from tfdoctor.probes.parsers._text import Parsed, clean_lines, unquote

_ARCHITECTURES = (
    "amd64|i386|all|any|arm64|armhf|armel|ppc64el|ppc64|s390x|riscv64|x32|loong64|mips64el|sparc64"
    "|<none>|<keine>|<aucun>|<无>"
)
# The first group has the selection state, the package state and an error flag. The architecture distinguishes a
# row from prose that starts with two such letters.
_ROW = re.compile(
    rf"([uihrp][ncHUFWti]R?)[ \t]+(\S{{1,300}})[ \t]+(\S{{1,300}})[ \t]+({_ARCHITECTURES})(?=[ \t]|$)"
)
# The row of a package that is not installed, printed by a dpkg without an architecture column. The empty group stands for
# the architecture, so that both patterns have the same groups.
_NOT_INSTALLED_ROW = re.compile(r"([uihrp][ncHUFWti]R?)[ \t]+(\S{1,300})[ \t]+(<none>)[ \t]*()(?=\(|$)")
_APT_ROW = re.compile(
    rf"([a-z0-9][a-z0-9+.-]{{0,300}})/(\S{{1,300}})[ \t]+(\S{{1,300}})[ \t]+({_ARCHITECTURES})(?=[ \t]|$)"
)


@dataclass(frozen=True, slots=True)
class DpkgRow(Parsed):
    """A row of ``dpkg -l``. The values are as printed.

    ``status`` is for example ``ii`` (installed), ``rc`` (removed, but with configuration files) or ``un``
    (unknown). ``name`` may end in ``:amd64``. ``version`` is ``<none>`` if the package is not installed. ``arch``
    is empty if it is not printed.
    """

    status: str
    name: str
    version: str
    arch: str


@dataclass(frozen=True, slots=True)
class AptRow(Parsed):
    """A row of ``apt list``. The name excludes the slash and the suites after it."""

    name: str
    version: str
    arch: str


@dataclass(frozen=True, slots=True)
class DpkgListing(Parsed):
    """The rows of both listings. ``n_rows`` counts only the rows of ``dpkg -l``."""

    rows: tuple[DpkgRow, ...]
    n_rows: int
    apt_rows: tuple[AptRow, ...]
    notes: tuple[str, ...] = ()


def parse_dpkg(text: str) -> DpkgListing:
    """Parse a text with either listing or both, even if it was filtered by grep."""
    rows: list[DpkgRow] = []
    apt_rows: list[AptRow] = []
    for line in map(unquote, clean_lines(text)):
        if match := _ROW.match(line) or _NOT_INSTALLED_ROW.match(line):
            status, name, version, arch = match.groups()
            rows.append(DpkgRow(status, name, version, arch))
        elif match := _APT_ROW.match(line):
            name, _suites, version, arch = match.groups()
            apt_rows.append(AptRow(name, version, arch))
    notes = () if rows or apt_rows else ("no rows of dpkg -l or apt list",)
    return DpkgListing(rows=tuple(rows), n_rows=len(rows), apt_rows=tuple(apt_rows), notes=notes)
