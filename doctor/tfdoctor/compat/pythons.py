"""Where a Python comes from: compat/pythons.toml, read strictly, and asked."""

# The annotations of rows are read when this runs (compat/decode.py): they are no texts here.

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import ClassVar

from tfdoctor import versions
from tfdoctor.compat.decode import Evidence, Sources, read
from tfdoctor.records import dataclass

__all__ = ["PythonBuild", "PythonBuilds", "PythonSystem", "Pythons", "load_pythons"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonSystem:
    """An Ubuntu release, and so every image made of it (`[[system]]`)."""

    NAMED: ClassVar = ("name",)
    name: str
    codename: str
    glibc: str
    default: str
    """Its `python3`."""
    others: tuple[str, ...]
    """What it has besides, without a third party's repository."""
    prerelease: tuple[str, ...] = ()
    """Those of `others` that are release candidates."""
    managed: bool = False
    """Its pip refuses to install into its Python (PEP 668)."""
    evidence: Evidence
    sources: Sources

    def __post_init__(self) -> None:
        if not {*self.prerelease} <= {*self.others}:
            msg = "`prerelease` names what `others` does not"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class DebianPython:
    """The `python3` of a Debian (`[[debian]]`)."""

    NAMED: ClassVar = ("name",)
    name: str
    codename: str
    default: str
    managed: bool = False
    """Its pip refuses to install into its Python (PEP 668)."""
    sources: Sources


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonBuilds:
    """A maker of builds that run on any glibc Linux (`[[builds]]`)."""

    NAMED: ClassVar = ("name",)
    name: str
    title: str
    command: str
    """With `{python}`."""
    pythons: tuple[str, ...]
    newest: Mapping[str, str]
    """Python → the newest patch release it has, where known."""
    note: str = ""
    evidence: Evidence
    sources: Sources

    def __post_init__(self) -> None:
        if "{python}" not in self.command:
            msg = "`command` must have {python}"
            raise ValueError(msg)
        for minor, patch in self.newest.items():
            if minor not in self.pythons or versions.major_minor(patch) != minor:
                msg = f"`newest`: {patch} is no {minor} that `pythons` has"
                raise ValueError(msg)


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
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class Pythons:
    """The whole table."""

    as_of: str
    systems: tuple[PythonSystem, ...] = field(metadata={"key": "system"})
    """Oldest first."""
    debian: tuple[DebianPython, ...]
    builds: tuple[PythonBuilds, ...]
    """The one to take first comes first."""

    def ways(self, python: str, *, system: str | None = None) -> tuple[PythonBuild, ...]:
        """Return every known way to a Python (`"3.9"`, `"3.9.18"`): the systems that have it, newest first, release
        candidates last of them; then ready builds. `system`: only this one's packages.
        """
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
        """Return the Ubuntu release of this number or code name, or None."""
        return next((row for row in self.systems if name in (row.name, row.codename)), None)

    def is_managed(self, system: str, release: str) -> bool:
        """Return whether pip refuses to install into the python3 of that system (PEP 668).

        False where it is not known.
        """
        rows: tuple[PythonSystem | DebianPython, ...] = self.systems if system == "ubuntu" else ()
        if system == "debian":
            rows = self.debian
        return any(row.managed for row in rows if release in (row.name, row.codename))

    def default_of(self, system: str, release: str) -> str | None:
        """Return the `python3` package of `("debian", "12")`, `("ubuntu", "22.04")`, by number or name, or None."""
        rows: tuple[PythonSystem | DebianPython, ...] = self.systems if system == "ubuntu" else ()
        if system == "debian":
            rows = self.debian
        return next((row.default for row in rows if release in (row.name, row.codename)), None)


def load_pythons(folder: Path) -> Pythons:
    """Load compat/pythons.toml. Raises DataError."""
    return read(Pythons, folder / "pythons.toml")
