"""Where a Python comes from: compat/pythons.toml, read strictly, and asked."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from tfdoctor import versions
from tfdoctor.compat.decode import Table, read_toml
from tfdoctor.data import data_dir

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["PythonBuild", "PythonBuilds", "PythonSystem", "Pythons", "load_pythons"]

_EVIDENCE = ("measured", "documented", "inferred")


@dataclass(frozen=True, slots=True)
class PythonSystem:
    """An Ubuntu release, and so every image made of it (`[[system]]`)."""

    name: str
    glibc: str
    default: str
    """Its `python3`."""
    others: tuple[str, ...]
    """What it has besides, without a third party's repository."""
    prerelease: tuple[str, ...]
    """Those of `others` that are release candidates."""
    evidence: Literal["measured", "documented", "inferred"]
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PythonBuilds:
    """A maker of builds that run on any glibc Linux (`[[builds]]`)."""

    name: str
    title: str
    command: str
    """With `{python}`."""
    pythons: tuple[str, ...]
    newest: Mapping[str, str]
    """Python → the newest patch release it has, where known."""
    note: str
    evidence: Literal["measured", "documented", "inferred"]
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PythonBuild:
    """One way to a Python."""

    python: str
    origin: str
    """`"ubuntu 20.04"`, or the maker's name."""
    package: str | None
    """The system's package: `"python3.9"`."""
    command: str | None
    """What the maker's tool is told."""
    prerelease: bool
    evidence: Literal["measured", "documented", "inferred"]


@dataclass(frozen=True, slots=True)
class Pythons:
    """The whole table."""

    as_of: str
    systems: tuple[PythonSystem, ...]
    """Oldest first."""
    builds: tuple[PythonBuilds, ...]
    """The one to take first comes first."""

    def ways(self, python: str, *, system: str | None = None) -> tuple[PythonBuild, ...]:
        """Every known way to a Python (`"3.9"`, `"3.9.18"`): the systems that have it, newest first, release
        candidates last of them; then ready builds. `system`: only this one's packages."""
        wanted = versions.major_minor(python)
        own = [
            PythonBuild(
                wanted,
                f"ubuntu {row.name}",
                f"python{wanted}",
                None,
                wanted in row.prerelease,
                row.evidence,
            )
            for row in reversed(self.systems)
            if wanted in (row.default, *row.others) and system in (None, row.name)
        ]
        own.sort(key=lambda build: build.prerelease)
        made = [
            PythonBuild(wanted, row.name, None, row.command.format(python=wanted), False, row.evidence)
            for row in self.builds
            if wanted in row.pythons
        ]
        return (*own, *made)

    def system(self, name: str) -> PythonSystem | None:
        """The Ubuntu release of this number, or None."""
        return next((row for row in self.systems if row.name == name), None)


@lru_cache(maxsize=4)
def load_pythons(folder: Path | None = None) -> Pythons:
    """compat/pythons.toml, read once. Raises DataError."""
    top = read_toml((folder or data_dir("compat")) / "pythons.toml")
    if top.whole("schema_version") != 1:
        raise top.fail("schema_version must be 1")
    as_of = top.text("as_of")
    systems, builds = [], []
    for raw in top.tables("system"):
        row = Table(raw, f"{top.where}: system {_name(raw)}")
        systems.append(_system(row))
        row.done()
    for raw in top.tables("builds"):
        row = Table(raw, f"{top.where}: builds {_name(raw)}")
        builds.append(_builds(row))
        row.done()
    top.done()
    return Pythons(as_of, tuple(systems), tuple(builds))


def _name(raw: object) -> str:
    return str(raw.get("name", "")) if isinstance(raw, dict) else ""


def _sources(row: Table) -> tuple[str, ...]:
    found = row.texts("sources")
    if not found:
        raise row.fail("`sources` is empty: every row says where it is from")
    return found


def _system(row: Table) -> PythonSystem:
    result = PythonSystem(
        name=row.text("name"),
        glibc=row.text("glibc"),
        default=row.text("default"),
        others=row.texts("others"),
        prerelease=row.texts("prerelease", optional=True),
        evidence=row.choice("evidence", _EVIDENCE),
        sources=_sources(row),
    )
    row.done()
    if not {*result.prerelease} <= {*result.others}:
        raise row.fail("`prerelease` names what `others` does not")
    return result


def _builds(row: Table) -> PythonBuilds:
    result = PythonBuilds(
        name=row.text("name"),
        title=row.text("title"),
        command=row.text("command"),
        pythons=row.texts("pythons"),
        newest=row.pairs("newest"),
        note=row.opt_text("note") or "",
        evidence=row.choice("evidence", _EVIDENCE),
        sources=_sources(row),
    )
    row.done()
    if "{python}" not in result.command:
        raise row.fail("`command` must have {python}")
    for minor, patch in result.newest.items():
        if minor not in result.pythons or versions.major_minor(patch) != minor:
            msg = f"`newest`: {patch} is no {minor} that `pythons` has"
            raise row.fail(msg)
    return result
