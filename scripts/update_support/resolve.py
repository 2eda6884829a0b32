"""Which versions go together, as of a day: a small resolver over the files of the index.

Newest first and depth first, with the requirements of the root read before those of its dependencies. Small
on purpose: TensorFlow's trees have thirty nodes and pin most of them, and no ready resolver does all of it
(Python 2.7 and 3.5 as targets, upload times, markers of another Python).
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

__all__ = ["NEWEST", "Pin", "Resolver", "UnsolvableError", "environment", "tags_of"]

GLIBC = 31
"""Wheels may ask for glibc 2.31 (Ubuntu 20.04, Debian 11), not for more."""
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
STEPS = 20000
"""Candidates that are tried before the resolver gives up."""


class UnsolvableError(ValueError):
    """Nothing fits; the message says where it ended."""


class Source(Protocol):
    """What the resolver asks; `Index` is one."""

    def files(self, project: str) -> list[File]: ...

    def requirements(self, file: File) -> list[str]: ...


def environment(python: str) -> dict[str, str]:
    """The markers' variables on Linux x86-64."""
    old = python.startswith("2")
    return {
        "python_version": python,
        "python_full_version": NEWEST[python],
        "implementation_name": "" if old else "cpython",
        "implementation_version": "0" if old else NEWEST[python],
        "platform_python_implementation": "CPython",
        "sys_platform": "linux2" if old else "linux",
        "os_name": "posix",
        "platform_system": "Linux",
        "platform_machine": "x86_64",
        "platform_release": "",
        "platform_version": "",
    }


def platforms(glibc: int = GLIBC) -> list[str]:
    """Platform tags that a Linux x86-64 with glibc 2.`glibc` installs, best first."""
    found = []
    for minor in range(glibc, 4, -1):
        found.append(f"manylinux_2_{minor}_x86_64")
        if minor in LEGACY:
            found.append(f"{LEGACY[minor]}_x86_64")
    return [*found, "linux_x86_64"]


def tags_of(python: str) -> dict[Tag, int]:
    """Every tag that a CPython installs → its rank, best first."""
    major, minor = (int(part) for part in python.split("."))
    abi = f"cp{major}{minor}" + ("mu" if major == 2 else "m" if minor < 8 else "")
    names = platforms()
    found: dict[Tag, int] = {}
    for tag in cpython_tags((major, minor), [abi], names):
        found.setdefault(tag, len(found))
    for tag in compatible_tags((major, minor), f"cp{major}{minor}", names):
        found.setdefault(tag, len(found))
    return found


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
        """The lowest glibc 2.x for which there is a file; 0: any."""
        order = {name: int(name.split("_")[2]) for name in platforms() if name.startswith("manylinux_2_")}
        order |= {f"{name}_x86_64": minor for minor, name in LEGACY.items()}
        known = [
            min((order[tag.platform] for tag in file.tags if tag.platform in order), default=0)
            for file in self.files
        ]
        return min(known, default=0)


@dataclass
class Resolver:
    """Resolves for one Python as of one day."""

    source: Source
    python: str
    until: str
    """Files uploaded later do not exist; ISO 8601."""
    forbidden: dict[str, list[SpecifierSet]] = field(default_factory=dict)
    """Project → versions that are known to break."""
    constraints: list[Requirement] = field(default_factory=list)
    """Limits on projects that something else asks for."""
    preferred: dict[str, Pin] = field(default_factory=dict)
    """Taken first wherever the requirements allow it, whatever the day."""
    shared: dict[tuple[str, str], list[tuple[Version, File]]] = field(default_factory=dict)
    """(Python, project) → what this Python can install at all; give several resolvers the same one."""
    steps: int = 0
    deepest: str = ""

    def __post_init__(self) -> None:
        self.tags = tags_of(self.python)
        self.environment = environment(self.python)
        self._candidates: dict[str, list[Pin]] = {}

    # ------------------------------------------------------------ candidates

    def candidates(self, name: str) -> list[Pin]:
        """What could be installed, wheels before source archives, newest first."""
        if name not in self._candidates:
            versions: dict[Version, list[File]] = {}
            for version, file in self._installable(name):
                if file.uploaded <= self.until:
                    versions.setdefault(version, []).append(file)
            pins = [self._pin(name, version, files) for version, files in versions.items()]
            pins = [pin for pin in pins if pin.files and not self._forbidden(pin)]
            pins.sort(key=lambda pin: (not pin.built, pin.version), reverse=True)
            self._candidates[name] = [*([self.preferred[name]] if name in self.preferred else []), *pins]
        return self._candidates[name]

    def _installable(self, name: str) -> list[tuple[Version, File]]:
        key = (self.python, name)
        if key not in self.shared:
            files = (file for file in self.source.files(name) if self._usable(file))
            self.shared[key] = [(file.version, file) for file in files]
        return self.shared[key]

    def _usable(self, file: File) -> bool:
        if file.yanked or not file.sha256 or not file.uploaded:
            return False
        if file.is_wheel and not any(tag in self.tags for tag in file.tags):
            return False
        try:
            return SpecifierSet(file.requires_python).contains(NEWEST[self.python])
        except InvalidSpecifier:
            return True

    def _pin(self, name: str, version: Version, files: list[File]) -> Pin:
        wheels = [file for file in files if file.is_wheel]
        wheels.sort(key=lambda file: min(self.tags[tag] for tag in file.tags if tag in self.tags))
        archives = [file for file in files if not file.is_wheel]
        archives.sort(key=lambda file: (not file.filename.endswith(".tar.gz"), file.filename))
        return Pin(name, version, tuple(wheels or archives[:1]))

    def _forbidden(self, pin: Pin) -> bool:
        return any(row.contains(pin.version, prereleases=True) for row in self.forbidden.get(pin.name, ()))

    def requirements(self, pin: Pin, extras: Iterable[str] = ()) -> list[Requirement]:
        """What a pin requires here."""
        found = []
        for text in self.source.requirements(pin.files[0]):
            try:
                wanted = Requirement(text)
            except InvalidRequirement:
                continue
            marker = wanted.marker
            if marker is None or any(
                marker.evaluate({**self.environment, "extra": extra}) for extra in ("", *extras)
            ):
                found.append(wanted)
        return found

    # ------------------------------------------------------------ search

    def resolve(self, roots: Sequence[str]) -> list[Pin]:
        """Pins of everything that `roots` need, by name. Raises UnsolvableError."""
        found = self._search({}, [("", Requirement(text)) for text in roots])
        if isinstance(found, set):
            msg = f"Python {self.python}, {self.until[:10]}: {', '.join(roots)}: stuck at {self.deepest}"
            raise UnsolvableError(msg)
        return [found[name] for name in sorted(found)]

    def _search(
        self, pinned: dict[str, Pin], wanted: list[tuple[str, Requirement]]
    ) -> dict[str, Pin] | set[str]:
        """All pins, or the projects whose choice is to blame: what is not among them is not tried again.

        `wanted`: who requires, and what.
        """
        name = next((key for _, row in wanted if (key := canonicalize_name(row.name)) not in pinned), None)
        if name is None:
            return pinned
        mine = [(who, row) for who, row in wanted if canonicalize_name(row.name) == name]
        limits = [row for _, row in mine]
        limits += [row for row in self.constraints if canonicalize_name(row.name) == name]
        extras = {extra for row in limits for extra in row.extras}
        self.deepest = f"{name} ({', '.join(str(row) for row in limits)})"
        blamed = {who for who, _ in mine}
        for pin in self._list_fitting(name, limits):
            self.steps += 1
            if self.steps > STEPS:
                return set()
            more = self.requirements(pin, sorted(extras))
            together = {**pinned, name: pin}
            refused = {canonicalize_name(row.name) for row in more if not _allows(row, together)}
            if refused:
                blamed |= refused
                continue
            found = self._search(together, [*wanted, *((name, row) for row in more)])
            if isinstance(found, dict):
                return found
            if name not in found:
                return found
            blamed |= found
        return blamed - {name}

    def _list_fitting(self, name: str, limits: list[Requirement]) -> Iterator[Pin]:
        """Candidates that all requirements allow; candidates for a release only where no final one fits."""
        fitting = [
            pin
            for pin in self.candidates(name)
            if all(row.specifier.contains(pin.version, prereleases=True) for row in limits)
        ]
        yield from [pin for pin in fitting if not pin.version.is_prerelease] or fitting


def _allows(wanted: Requirement, pinned: dict[str, Pin]) -> bool:
    pin = pinned.get(canonicalize_name(wanted.name))
    return pin is None or wanted.specifier.contains(pin.version, prereleases=True)
