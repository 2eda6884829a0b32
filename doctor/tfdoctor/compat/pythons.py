"""The sources from which each Python version can be installed: compat/pythons.toml."""

# compat/decode.py reads the annotations of the dataclasses at run time: they must not be strings here.

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import ClassVar

from tfdoctor.compat.decode import Evidence, Sources, read_table
from tfdoctor.core import versions
from tfdoctor.core.records import dataclass

__all__ = ["PythonBuild", "PythonProvider", "PythonSystem", "Pythons", "load_pythons"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonSystem:
    """An Ubuntu release, and the images based on it (`[[system]]`)."""

    NAMED: ClassVar = ("name",)
    name: str
    codename: str
    glibc: str
    default_python: str = field(metadata={"key": "default"})
    """Version of its `python3`."""
    other_pythons: tuple[str, ...] = field(metadata={"key": "others"})
    """Other Python versions in its repositories."""
    prerelease_pythons: tuple[str, ...] = field(default=(), metadata={"key": "prerelease"})
    """Versions in `others` that are release candidates."""
    is_managed: bool = field(default=False, metadata={"key": "managed"})
    """Whether its pip refuses to install into its Python (PEP 668)."""
    evidence: Evidence
    sources: Sources

    def __post_init__(self) -> None:
        if not {*self.prerelease_pythons} <= {*self.other_pythons}:
            msg = "`prerelease` names what `others` does not"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class DebianPython:
    """The `python3` of a Debian release (`[[debian]]`)."""

    NAMED: ClassVar = ("name",)
    name: str
    codename: str
    default_python: str = field(metadata={"key": "default"})
    is_managed: bool = field(default=False, metadata={"key": "managed"})
    """Whether its pip refuses to install into its Python (PEP 668)."""
    sources: Sources


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonProvider:
    """A provider of builds that run on any Linux with glibc (`[[builds]]`)."""

    NAMED: ClassVar = ("name",)
    name: str
    title: str
    command: str
    """Install command with `{python}` for the version."""
    pythons: tuple[str, ...]
    newest_patch_by_minor: Mapping[str, str] = field(metadata={"key": "newest"})
    """Newest patch release of each Python, if known."""
    note: str = ""
    evidence: Evidence
    sources: Sources

    def __post_init__(self) -> None:
        if "{python}" not in self.command:
            msg = "`command` must have {python}"
            raise ValueError(msg)
        for minor, patch in self.newest_patch_by_minor.items():
            if minor not in self.pythons or versions.major_minor(patch) != minor:
                msg = f"`newest`: {patch} is no {minor} that `pythons` has"
                raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class PythonBuild:
    """A source from which a Python version can be installed."""

    python: str
    origin: str
    """`"ubuntu 20.04"`, or the name of the provider."""
    package: str | None
    """System package, such as `"python3.9"`. None for a provider's build."""
    command: str | None
    """Command of the provider's tool. None for a system package."""
    is_prerelease: bool
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class Pythons:
    """The sources of Python versions, by kind."""

    as_of: str
    systems: tuple[PythonSystem, ...] = field(metadata={"key": "system"})
    """Oldest first."""
    debian_releases: tuple[DebianPython, ...] = field(metadata={"key": "debian"})
    providers: tuple[PythonProvider, ...] = field(metadata={"key": "builds"})
    """The preferred provider comes first."""

    def find_builds(self, python: str, *, system: str | None = None) -> tuple[PythonBuild, ...]:
        """Return all known builds of a Python minor version (`"3.9"`, also given as `"3.9.18"`).

        System packages come first, sorted from the newest system to the oldest, with release candidates at the end. The
        providers' builds follow. `system` selects the packages of one Ubuntu release; None selects all.
        """
        minor = versions.major_minor(python)
        packages = [
            PythonBuild(
                python=minor,
                origin=f"ubuntu {source.name}",
                package=f"python{minor}",
                command=None,
                is_prerelease=minor in source.prerelease_pythons,
                evidence=source.evidence,
            )
            for source in reversed(self.systems)
            if minor in (source.default_python, *source.other_pythons) and system in (None, source.name)
        ]
        packages.sort(key=lambda build: build.is_prerelease)
        builds = [
            PythonBuild(
                python=minor,
                origin=source.name,
                package=None,
                command=source.command.format(python=minor),
                is_prerelease=False,
                evidence=source.evidence,
            )
            for source in self.providers
            if minor in source.pythons
        ]
        return (*packages, *builds)

    def find_system(self, name: str) -> PythonSystem | None:
        """Return the Ubuntu release with this number or code name; None if it is not in the table."""
        return next((system for system in self.systems if name in (system.name, system.codename)), None)

    def is_managed(self, system: str, release: str) -> bool:
        """Return whether pip refuses to install into the `python3` of a system (PEP 668).

        The result is False if the system is not in the table.
        """
        systems: tuple[PythonSystem | DebianPython, ...] = self.systems if system == "ubuntu" else ()
        if system == "debian":
            systems = self.debian_releases
        return any(entry.is_managed for entry in systems if release in (entry.name, entry.codename))

    def list_pythons(self, system: str, release: str) -> tuple[str, ...]:
        """Return the final Python versions that a system such as `("ubuntu", "18.04")` provides, its `python3` first.

        The result is empty if the system is not in the table.
        """
        default_python = self.get_default_python(system, release)
        ubuntu = self.find_system(release) if system == "ubuntu" else None
        others = (
            [python for python in ubuntu.other_pythons if python not in ubuntu.prerelease_pythons]
            if ubuntu is not None
            else []
        )
        return (default_python, *others) if default_python is not None else ()

    def get_default_python(self, system: str, release: str) -> str | None:
        """Return the version of `python3` in a system such as `("debian", "12")` or `("ubuntu", "jammy")`.

        The result is None if the system is not in the table.
        """
        systems: tuple[PythonSystem | DebianPython, ...] = self.systems if system == "ubuntu" else ()
        if system == "debian":
            systems = self.debian_releases
        return next(
            (entry.default_python for entry in systems if release in (entry.name, entry.codename)), None
        )


def load_pythons(folder: Path) -> Pythons:
    """Load compat/pythons.toml. Raise DataError if it is invalid."""
    return read_table(Pythons, folder / "pythons.toml")
