"""Read poetry.lock and uv.lock, and select the pinned versions for one Python version on Linux."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from packaging.markers import InvalidMarker, Marker
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from tfdoctor.core import versions
from tfdoctor.core.errors import UsageError
from tfdoctor.core.text import clean_line
from tfdoctor.environments.requirements.lines import parse_line
from tfdoctor.environments.requirements.models import RequirementFile, VersionCondition, is_marker_true
from tfdoctor.environments.requirements.project import as_table, convert_poetry_constraint, load_toml

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tfdoctor.environments.requirements.lines import RequirementItem

__all__ = ["LockGraph", "parse_poetry", "parse_uv"]

_MAX_PACKAGES = 20_000
"""The largest number of packages in a lock file, and of dependencies of one package."""
_HASH = re.compile(r"sha256:([0-9a-f]{64})")
_EXTRA = re.compile(r"""extra\s*==\s*["']([^"']{1,100})["']""")


@dataclass(frozen=True)
class PackageDependency:
    """A dependency of a package or of the project."""

    name: str
    version: str | None
    """The version, if the lock file has several versions of the package; None stands for all locked versions."""
    marker: Marker | None
    extras: tuple[str, ...]
    """The required extras of the package."""


@dataclass(frozen=True)
class PinnedPackage:
    """A pinned package in a lock file."""

    name: str
    version: str
    direct_url: str | None
    """`"git+https://…@commit"`; None for a package from an index."""
    hashes: tuple[str, ...]
    """SHA-256 digests, hexadecimal."""
    markers: tuple[Marker, ...]
    """The package is needed only if one of these markers is true; empty if it has no such condition."""
    dependencies: tuple[PackageDependency, ...]
    """The dependencies of the package."""
    dependencies_by_extra: Mapping[str, tuple[PackageDependency, ...]]
    """The dependencies of each extra, by the name of the extra."""
    is_local: bool = False
    """Whether this is the project itself or another local project, which is on no index."""


@dataclass(frozen=True)
class LockGraph:
    """The packages of a lock file and their dependencies."""

    display_path: str
    packages: tuple[PinnedPackage, ...]
    project_dependencies: tuple[PackageDependency, ...] | None
    """The dependencies of the project.

    None if the lock file does not list them. Then all packages are needed except those that markers exclude.
    """

    @cached_property
    def _packages_by_name(self) -> Mapping[str, list[PinnedPackage]]:
        """The packages by name; a lock file may have several versions of one package."""
        packages_by_name: dict[str, list[PinnedPackage]] = {}
        for package in self.packages:
            packages_by_name.setdefault(package.name, []).append(package)
        return packages_by_name

    def iter_items(self, marker_environment: Mapping[str, str]) -> Iterator[RequirementItem]:
        """Yield the pins that are needed in a marker environment.

        Raise UsageError if a pin is not a valid requirement.
        """
        needed_packages = (
            self._list_reachable(marker_environment)
            if self.project_dependencies is not None
            else self._list_not_excluded(marker_environment)
        )
        for package in needed_packages:
            if package.is_local:
                continue
            requirement = (
                f"{package.name} @ {package.direct_url}"
                if package.direct_url
                else f"{package.name}=={package.version}"
            )
            item = parse_line(requirement, f"{self.display_path}, {package.name}")
            if item is not None:
                yield replace(item, hashes=package.hashes)

    def _iter_matching_packages(
        self, dependency: PackageDependency, marker_environment: Mapping[str, str]
    ) -> Iterator[PinnedPackage]:
        """Yield the packages that satisfy a dependency in a marker environment."""
        for package in self._packages_by_name.get(dependency.name, ()):
            if dependency.version in (None, package.version) and _is_needed(package, marker_environment):
                yield package

    def _list_reachable(self, marker_environment: Mapping[str, str]) -> list[PinnedPackage]:
        """Return the packages that the project needs directly or indirectly, sorted by name."""
        reachable: dict[int, PinnedPackage] = {}
        visited: set[tuple[int, str]] = set()  # (ID of the package, extra); "" for the package without extras
        pending = list(self.project_dependencies or ())
        while pending:
            dependency = pending.pop()
            if not is_marker_true(dependency.marker, marker_environment):
                continue
            for package in self._iter_matching_packages(dependency, marker_environment):
                reachable[id(package)] = package
                for extra in ("", *dependency.extras):
                    if (id(package), extra) not in visited:
                        visited.add((id(package), extra))
                        pending += (
                            package.dependencies_by_extra.get(extra, ()) if extra else package.dependencies
                        )
        return sorted(reachable.values(), key=lambda package: package.name)

    def _list_not_excluded(self, marker_environment: Mapping[str, str]) -> list[PinnedPackage]:
        """Return all packages except those that are needed only on other systems or Python versions.

        Packages are removed until each remaining one is either needed by another, or no package depends on it.
        """
        included = {
            id(package): package for package in self.packages if _is_needed(package, marker_environment)
        }
        required_names = {dependency.name for package in self.packages for dependency in package.dependencies}
        while True:
            is_needed_by_name: dict[str, bool] = {}
            for package in included.values():
                for dependency in package.dependencies:
                    # A lock file contains the dependencies of an extra only if some package requires the extra.
                    extras = _EXTRA.findall(str(dependency.marker))
                    is_marker_met = any(
                        is_marker_true(dependency.marker, {**marker_environment, "extra": extra_name})
                        for extra_name in ["", *extras]
                    )
                    is_needed_by_name[dependency.name] = (
                        is_needed_by_name.get(dependency.name, False) or is_marker_met
                    )
            remaining = {
                key: package
                for key, package in included.items()
                if is_needed_by_name.get(package.name, package.name not in required_names)
            }
            if len(remaining) == len(included):
                return sorted(remaining.values(), key=lambda package: package.name)
            included = remaining


def _is_needed(package: PinnedPackage, marker_environment: Mapping[str, str]) -> bool:
    """Return whether one of a package's markers is true, or the package has no markers."""
    return not package.markers or any(
        is_marker_true(marker, marker_environment) for marker in package.markers
    )


# ---------------------------------------------------------------- values of both formats


def _list_packages(document: Mapping[str, Any], display_path: str) -> list[dict[str, Any]]:
    """Return the package tables of a lock file. Raise UsageError if it has no valid list of them."""
    packages = document.get("package")
    if (
        not isinstance(packages, list)
        or len(packages) > _MAX_PACKAGES
        or not all(isinstance(package, dict) for package in packages)
    ):
        msg = f"-r: {display_path} does not list packages as such a lock does."
        raise UsageError(msg)
    for package in packages:
        if not isinstance(package.get("name"), str):
            msg = f"-r: {display_path} has a package without a name."
            raise UsageError(msg)
    return packages


def _parse_version(package: Mapping[str, Any], path: str) -> str:
    """Return the version in a package table. Raise UsageError if it is not valid."""
    version = package.get("version")
    if not isinstance(version, str) or not versions.is_version(version):
        msg = f"{path}, {clean_line(str(package['name']), limit=80)}: `{clean_line(str(version))}` is not a version."
        raise UsageError(msg)
    return version


def _parse_marker(text: Any, location: str) -> Marker | None:
    """Parse a marker; return None if it is empty or not a string. Raise UsageError if it is not valid."""
    if not isinstance(text, str) or not text.strip():
        return None
    try:
        return Marker(text)
    except (InvalidMarker, RecursionError) as error:
        msg = f"{location}: `{clean_line(text)}` is not a marker."
        raise UsageError(msg) from error


def _list_hashes(files: Iterable[Any]) -> tuple[str, ...]:
    """Return the distinct SHA-256 digests of a package's files, sorted."""
    digests = [
        match[1]
        for file in files
        if isinstance(file, dict) and (match := _HASH.fullmatch(str(file.get("hash")))) is not None
    ]
    return tuple(sorted({*digests}))


def _as_list(value: Any) -> list[Any]:
    """Return the first `_MAX_PACKAGES` items of a list; an empty list if the value is not a list."""
    return value[:_MAX_PACKAGES] if isinstance(value, list) else []


def _parse_python_conditions(text: Any, location: str, *, is_poetry: bool) -> list[VersionCondition]:
    """Return the condition on the Python version as a list of one; empty if the text has alternatives (`||`).

    Raise UsageError if the text is not a valid constraint.
    """
    if not isinstance(text, str) or "|" in text:  # a PEP 440 specifier cannot express alternatives
        return []
    try:
        return [
            VersionCondition(
                SpecifierSet(convert_poetry_constraint(text, location) if is_poetry else text), location
            )
        ]
    except InvalidSpecifier as error:
        msg = f"{location}: `{clean_line(text)}` is not a set of versions."
        raise UsageError(msg) from error


# ---------------------------------------------------------------- uv


def parse_uv(text: str, display_path: str) -> RequirementFile:
    """Parse the text of a uv.lock. Raise UsageError if it cannot be used."""
    document = load_toml(text, display_path)
    pinned_packages: list[PinnedPackage] = []
    project_dependencies: list[PackageDependency] = []
    for package in _list_packages(document, display_path):
        location = f"{display_path}, {clean_line(package['name'], limit=80)}"
        source = as_table(package.get("source"))
        is_local = any(key in source for key in ("virtual", "editable", "directory", "path"))
        dependencies = tuple(_iter_uv_dependencies(package.get("dependencies"), location))
        extras = {
            str(extra_name): tuple(_iter_uv_dependencies(extra_entries, location))
            for extra_name, extra_entries in as_table(package.get("optional-dependencies")).items()
        }
        files = [
            *_as_list(package.get("wheels")),
            *([package["sdist"]] if isinstance(package.get("sdist"), dict) else []),
        ]
        markers = [_parse_marker(entry, location) for entry in _as_list(package.get("resolution-markers"))]
        pinned_packages.append(
            PinnedPackage(
                name=canonicalize_name(package["name"]),
                version="" if is_local else _parse_version(package, display_path),
                direct_url=_format_uv_address(source),
                hashes=_list_hashes(files) if not is_local and "git" not in source else (),
                markers=tuple(entry for entry in markers if entry is not None),
                dependencies=dependencies,
                dependencies_by_extra=extras,
                is_local=is_local,
            )
        )
        # "." is the project that the lock file belongs to.
        if any(source.get(key) == "." for key in ("virtual", "editable", "directory")):
            project_dependencies += dependencies
    notes = [f"{display_path}: as it is pinned there, without its groups for development and its extras."]
    local_packages = [pinned for pinned in pinned_packages if pinned.is_local]
    graph_dependencies = tuple(project_dependencies) if local_packages and project_dependencies else None
    result = RequirementFile(
        notes=notes, lock_graphs=[LockGraph(display_path, tuple(pinned_packages), graph_dependencies)]
    )
    result.python_conditions += _parse_python_conditions(
        document.get("requires-python"), f"{display_path}, requires-python", is_poetry=False
    )
    return result


def _iter_uv_dependencies(entries: Any, location: str) -> Iterator[PackageDependency]:
    for entry in _as_list(entries):
        if isinstance(entry, dict) and isinstance(entry.get("name"), str):
            version = entry.get("version")
            extras = tuple(str(name) for name in _as_list(entry.get("extra")))
            yield PackageDependency(
                name=canonicalize_name(entry["name"]),
                version=version if isinstance(version, str) else None,
                marker=_parse_marker(entry.get("marker"), location),
                extras=extras,
            )


def _format_uv_address(source: Mapping[str, Any]) -> str | None:
    """Return the address of a package; None if the package is from an index."""
    if isinstance(source.get("git"), str):
        address, _, commit = source["git"].partition("#")
        return f"git+{address.partition('?')[0]}" + (f"@{commit}" if commit else "")
    return source["url"] if isinstance(source.get("url"), str) else None


# ---------------------------------------------------------------- poetry


def parse_poetry(text: str, display_path: str) -> RequirementFile:
    """Parse the text of a poetry.lock of any format version. Raise UsageError if it cannot be used.

    Optional packages, and those that are only in other groups than main, are left out.
    """
    document = load_toml(text, display_path)
    metadata = as_table(document.get("metadata"))
    result = RequirementFile(
        notes=[f"{display_path}: as it is pinned there, without its groups for development and its extras."]
    )
    pinned_packages = []
    for package in _list_packages(document, display_path):
        location = f"{display_path}, {clean_line(package['name'], limit=80)}"
        groups = package.get("groups")
        if package.get("optional") is True or package.get("category", "main") != "main":
            continue
        if isinstance(groups, list) and "main" not in groups:
            continue
        source = as_table(package.get("source"))
        is_local = source.get("type") in ("directory", "file")
        if is_local:
            result.notes.append(f"{location}: a path of this machine, which is left out.")
        files = _as_list(package.get("files")) or _as_list(
            as_table(metadata.get("files")).get(package["name"])
        )
        marker_value = package.get("markers")
        marker = _parse_marker(
            marker_value.get("main") if isinstance(marker_value, dict) else marker_value, location
        )
        pinned_packages.append(
            PinnedPackage(
                name=canonicalize_name(package["name"]),
                version=_parse_version(package, display_path),
                direct_url=_format_poetry_address(source),
                hashes=_list_hashes(files) if source.get("type") != "git" else (),
                markers=(marker,) if marker is not None else (),
                dependencies=tuple(_iter_poetry_dependencies(package.get("dependencies"), location)),
                dependencies_by_extra={},
                is_local=is_local,
            )
        )
    result.lock_graphs.append(LockGraph(display_path, tuple(pinned_packages), None))
    result.python_conditions += _parse_python_conditions(
        metadata.get("python-versions"), f"{display_path}, python-versions", is_poetry=True
    )
    return result


def _iter_poetry_dependencies(dependencies: Any, location: str) -> Iterator[PackageDependency]:
    for name, value in list(as_table(dependencies).items())[:_MAX_PACKAGES]:
        for alternative in value if isinstance(value, list) else [value]:
            marker = _parse_marker(as_table(alternative).get("markers"), location)
            yield PackageDependency(name=canonicalize_name(name), version=None, marker=marker, extras=())


def _format_poetry_address(source: Mapping[str, Any]) -> str | None:
    """Return the address of a package; None if the package is from an index."""
    if source.get("type") == "git":
        return f"git+{source.get('url')}@{source.get('resolved_reference') or source.get('reference')}"
    return str(source.get("url")) if source.get("type") == "url" else None
