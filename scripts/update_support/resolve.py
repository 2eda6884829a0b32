"""A small resolver over the files of the index, as of a day.

It searches depth first with the newest version first, and reads the requirements of the root before those of its
dependencies. It is small on purpose: TensorFlow's trees have thirty nodes and pin most of them, and no existing
resolver supports all of this (Python 2.7 and 3.5 as targets, upload times, markers of another Python).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from packaging.version import Version

    from update_support.index import File

__all__ = ["NEWEST", "Pin", "Resolver", "UnsolvableError", "make_marker_environment", "rank_tags"]

MAX_GLIBC_MINOR = 31
"""Wheels may require glibc 2.31 (Ubuntu 20.04, Debian 11), but not a newer one."""
NEWEST = {
    "2.7": "2.7.18",
    "3.5": "3.5.10",
    "3.6": "3.6.15",
    "3.7": "3.7.17",
    "3.8": "3.8.20",
    "3.9": "3.9.25",
    "3.10": "3.10.19",
    "3.11": "3.11.14",
    "3.12": "3.12.12",
    "3.13": "3.13.11",
}
"""A late patch release of each Python, for markers and Requires-Python."""
LEGACY = {5: "manylinux1", 12: "manylinux2010", 17: "manylinux2014"}
MAX_STEPS = 20000
"""Maximum number of candidates that are tried."""


class UnsolvableError(ValueError):
    """No versions fit; the message says where the search ended."""


class Source(Protocol):
    """The interface that the resolver needs; `Index` implements it."""

    def files(self, project: str) -> list[File]: ...

    def requirements(self, file: File) -> list[str]: ...


def make_marker_environment(python: str) -> dict[str, str]:
    """Return the variables of markers on Linux x86-64."""
    is_python2 = python.startswith("2")
    return {
        "python_version": python,
        "python_full_version": NEWEST[python],
        "implementation_name": "" if is_python2 else "cpython",
        "implementation_version": "0" if is_python2 else NEWEST[python],
        "platform_python_implementation": "CPython",
        "sys_platform": "linux2" if is_python2 else "linux",
        "os_name": "posix",
        "platform_system": "Linux",
        "platform_machine": "x86_64",
        "platform_release": "",
        "platform_version": "",
    }


def list_platforms(glibc: int = MAX_GLIBC_MINOR) -> list[str]:
    """Return the platform tags that Linux x86-64 with glibc 2.`glibc` supports, best first."""
    tags = []
    for minor in range(glibc, 4, -1):
        tags.append(f"manylinux_2_{minor}_x86_64")
        if minor in LEGACY:
            tags.append(f"{LEGACY[minor]}_x86_64")
    return [*tags, "linux_x86_64"]


def rank_tags(python: str) -> dict[Tag, int]:
    """Return the rank of every tag that a CPython supports, best first."""
    major, minor = (int(part) for part in python.split("."))
    abi = f"cp{major}{minor}" + ("mu" if major == 2 else "m" if minor < 8 else "")
    names = list_platforms()
    ranks: dict[Tag, int] = {}
    for tag in cpython_tags((major, minor), [abi], names):
        ranks.setdefault(tag, len(ranks))
    for tag in compatible_tags((major, minor), f"cp{major}{minor}", names):
        ranks.setdefault(tag, len(ranks))
    return ranks


@dataclass(frozen=True)
class Pin:
    """One version of one project, and its files that this Python can install: wheels, else one archive."""

    name: str
    version: Version
    files: tuple[File, ...]

    @property
    def built(self) -> bool:
        """Whether there is no wheel."""
        return not self.files[0].is_wheel

    @property
    def glibc(self) -> int:
        """The lowest glibc 2.x for which there is a file; 0 for any."""
        order = {
            name: int(name.split("_")[2]) for name in list_platforms() if name.startswith("manylinux_2_")
        }
        order |= {f"{name}_x86_64": minor for minor, name in LEGACY.items()}
        lowest = [
            min((order[tag.platform] for tag in file.tags if tag.platform in order), default=0)
            for file in self.files
        ]
        return min(lowest, default=0)


@dataclass
class Resolver:
    """Resolves requirements for one Python as of one day."""

    source: Source
    python: str
    until: str
    """Files uploaded later are ignored; ISO 8601."""
    forbidden: dict[str, list[SpecifierSet]] = field(default_factory=dict)
    """Versions that are known to break, by project."""
    constraints: list[Requirement] = field(default_factory=list)
    """Limits on projects that are required by others."""
    preferred: dict[str, Pin] = field(default_factory=dict)
    """Pins that are tried first if the requirements allow them, whatever their date."""
    shared: dict[tuple[str, str], list[tuple[Version, File]]] = field(default_factory=dict)
    """Files that a Python can install, by (Python, project); several resolvers may share it."""
    steps: int = 0
    deepest: str = ""

    def __post_init__(self) -> None:
        self.tags = rank_tags(self.python)
        self.environment = make_marker_environment(self.python)
        self._candidates: dict[str, list[Pin]] = {}

    # ------------------------------------------------------------ candidates

    def candidates(self, name: str) -> list[Pin]:
        """Return the installable pins, wheels before source archives, newest first."""
        if name not in self._candidates:
            versions: dict[Version, list[File]] = {}
            for version, file in self._list_installable(name):
                if file.uploaded <= self.until:
                    versions.setdefault(version, []).append(file)
            pins = [self._make_pin(name, version, files) for version, files in versions.items()]
            pins = [pin for pin in pins if pin.files and not self._is_forbidden(pin)]
            pins.sort(key=lambda pin: (not pin.built, pin.version), reverse=True)
            self._candidates[name] = [*([self.preferred[name]] if name in self.preferred else []), *pins]
        return self._candidates[name]

    def _list_installable(self, name: str) -> list[tuple[Version, File]]:
        key = (self.python, name)
        if key not in self.shared:
            files = (file for file in self.source.files(name) if self._is_usable(file))
            self.shared[key] = [(file.version, file) for file in files]
        return self.shared[key]

    def _is_usable(self, file: File) -> bool:
        if file.yanked or not file.sha256 or not file.uploaded:
            return False
        if file.is_wheel and not any(tag in self.tags for tag in file.tags):
            return False
        try:
            return SpecifierSet(file.requires_python).contains(NEWEST[self.python])
        except InvalidSpecifier:
            return True

    def _make_pin(self, name: str, version: Version, files: list[File]) -> Pin:
        wheels = [file for file in files if file.is_wheel]
        wheels.sort(key=lambda file: min(self.tags[tag] for tag in file.tags if tag in self.tags))
        archives = [file for file in files if not file.is_wheel]
        archives.sort(key=lambda file: (not file.filename.endswith(".tar.gz"), file.filename))
        return Pin(name, version, tuple(wheels or archives[:1]))

    def _is_forbidden(self, pin: Pin) -> bool:
        return any(
            specifier.contains(pin.version, prereleases=True)
            for specifier in self.forbidden.get(pin.name, ())
        )

    def requirements(self, pin: Pin, extras: Iterable[str] = ()) -> list[Requirement]:
        """Return the requirements of a pin in this environment."""
        requirements = []
        for text in self.source.requirements(pin.files[0]):
            try:
                requirement = Requirement(text)
            except InvalidRequirement:
                continue
            marker = requirement.marker
            if marker is None or any(
                marker.evaluate({**self.environment, "extra": extra}) for extra in ("", *extras)
            ):
                requirements.append(requirement)
        return requirements

    # ------------------------------------------------------------ search

    def resolve(self, roots: Sequence[str]) -> list[Pin]:
        """Return the pins of everything that `roots` require, by name. Raise UnsolvableError."""
        result = self._search({}, [("", Requirement(text)) for text in roots])
        if isinstance(result, set):
            msg = f"Python {self.python}, {self.until[:10]}: {', '.join(roots)}: stuck at {self.deepest}"
            raise UnsolvableError(msg)
        return [result[name] for name in sorted(result)]

    def _search(
        self, pinned: dict[str, Pin], wanted: list[tuple[str, Requirement]]
    ) -> dict[str, Pin] | set[str]:
        """Return all pins, or the projects that caused the failure; trying others again is useless.

        wanted: pairs of the requiring project and its requirement.
        """
        name = next(
            (key for _, requirement in wanted if (key := canonicalize_name(requirement.name)) not in pinned),
            None,
        )
        if name is None:
            return pinned
        own_requirements = [
            (requirer, requirement)
            for requirer, requirement in wanted
            if canonicalize_name(requirement.name) == name
        ]
        limits = [requirement for _, requirement in own_requirements]
        limits += [
            requirement for requirement in self.constraints if canonicalize_name(requirement.name) == name
        ]
        extras = {extra for requirement in limits for extra in requirement.extras}
        self.deepest = f"{name} ({', '.join(str(requirement) for requirement in limits)})"
        blamed = {requirer for requirer, _ in own_requirements}
        for pin in self._list_fitting(name, limits):
            self.steps += 1
            if self.steps > MAX_STEPS:
                return set()
            new_requirements = self.requirements(pin, sorted(extras))
            extended = {**pinned, name: pin}
            refused = {
                canonicalize_name(requirement.name)
                for requirement in new_requirements
                if not _is_allowed(requirement, extended)
            }
            if refused:
                blamed |= refused
                continue
            result = self._search(
                extended, [*wanted, *((name, requirement) for requirement in new_requirements)]
            )
            if isinstance(result, dict):
                return result
            if name not in result:
                return result
            blamed |= result
        return blamed - {name}

    def _list_fitting(self, name: str, limits: list[Requirement]) -> Iterator[Pin]:
        """Yield the candidates that all requirements allow; prereleases only if no final version fits."""
        fitting = [
            pin
            for pin in self.candidates(name)
            if all(requirement.specifier.contains(pin.version, prereleases=True) for requirement in limits)
        ]
        yield from [pin for pin in fitting if not pin.version.is_prerelease] or fitting


def _is_allowed(requirement: Requirement, pinned: dict[str, Pin]) -> bool:
    pin = pinned.get(canonicalize_name(requirement.name))
    return pin is None or requirement.specifier.contains(pin.version, prereleases=True)
