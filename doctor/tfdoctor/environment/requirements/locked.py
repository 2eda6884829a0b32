"""Read poetry.lock and uv.lock, and select the pinned versions for one Python version on Linux."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from packaging.markers import InvalidMarker, Marker
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from tfdoctor import versions
from tfdoctor.environment.requirements.lines import parse_line
from tfdoctor.environment.requirements.models import Condition, RequirementFile, is_marker_true
from tfdoctor.environment.requirements.project import convert_poetry_constraint, load_toml
from tfdoctor.errors import UsageError
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tfdoctor.environment.requirements.lines import RequirementItem

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
    address: str | None
    """`"git+https://…@commit"`; None for a package from an index."""
    hashes: tuple[str, ...]
    markers: tuple[Marker, ...]
    """Markers of the package itself: it is needed only if one of them is true. Empty if it has no such condition."""
    edges: tuple[PackageDependency, ...]
    """The dependencies of the package."""
    extra_edges: Mapping[str, tuple[PackageDependency, ...]]
    """The dependencies of each extra, by the name of the extra."""
    local: bool = False
    """Whether this is the project itself or another local project, which no index has."""


@dataclass(frozen=True)
class LockGraph:
    """The packages of a lock file and their dependencies."""

    display_path: str
    nodes: tuple[PinnedPackage, ...]
    roots: tuple[PackageDependency, ...] | None
    """The dependencies of the project.

    None if the lock file does not list them. Then all packages are included except those that markers exclude.
    """

    @cached_property
    def _nodes_by_name(self) -> Mapping[str, list[PinnedPackage]]:
        """The packages by name; a lock file may have several versions of one package."""
        nodes_by_name: dict[str, list[PinnedPackage]] = {}
        for node in self.nodes:
            nodes_by_name.setdefault(node.name, []).append(node)
        return nodes_by_name

    def iter_items(self, marker_environment: Mapping[str, str]) -> Iterator[RequirementItem]:
        """Yield the pins that are needed in a marker environment.

        Raise UsageError if one is not a valid requirement.
        """
        needed_nodes = (
            self._list_reachable(marker_environment)
            if self.roots is not None
            else self._list_included(marker_environment)
        )
        for node in needed_nodes:
            if node.local:
                continue
            requirement = f"{node.name} @ {node.address}" if node.address else f"{node.name}=={node.version}"
            item = parse_line(requirement, f"{self.display_path}, {node.name}")
            if item is not None:
                yield replace(item, hashes=node.hashes)

    def _iter_nodes(
        self, edge: PackageDependency, marker_environment: Mapping[str, str]
    ) -> Iterator[PinnedPackage]:
        """Yield the packages that satisfy a dependency in a marker environment."""
        for node in self._nodes_by_name.get(edge.name, ()):
            if edge.version in (None, node.version) and _is_needed(node, marker_environment):
                yield node

    def _list_reachable(self, marker_environment: Mapping[str, str]) -> list[PinnedPackage]:
        """Return the packages that are reachable from the project's dependencies."""
        reachable: dict[int, PinnedPackage] = {}
        visited: set[tuple[int, str]] = set()
        pending = list(self.roots or ())
        while pending:
            edge = pending.pop()
            if not is_marker_true(edge.marker, marker_environment):
                continue
            for node in self._iter_nodes(edge, marker_environment):
                reachable[id(node)] = node
                for extra in ("", *edge.extras):
                    if (id(node), extra) not in visited:
                        visited.add((id(node), extra))
                        pending += node.extra_edges.get(extra, ()) if extra else node.edges
        return sorted(reachable.values(), key=lambda node: node.name)

    def _list_included(self, marker_environment: Mapping[str, str]) -> list[PinnedPackage]:
        """Return all packages except those that are needed only on other systems or Python versions.

        Packages are removed until each is either needed by a remaining package, or no package depends on it.
        """
        included = {id(node): node for node in self.nodes if _is_needed(node, marker_environment)}
        required_names = {edge.name for node in self.nodes for edge in node.edges}
        while True:
            needed: dict[str, bool] = {}
            for node in included.values():
                for edge in node.edges:
                    # A lock file contains the dependencies of an extra only if some package requires the extra.
                    extras = _EXTRA.findall(str(edge.marker)) if edge.marker is not None else []
                    is_needed = any(
                        is_marker_true(edge.marker, {**marker_environment, "extra": extra_name})
                        for extra_name in ["", *extras]
                    )
                    needed[edge.name] = needed.get(edge.name, False) or is_needed
            remaining = {
                key: node
                for key, node in included.items()
                if needed.get(node.name, node.name not in required_names)
            }
            if len(remaining) == len(included):
                return sorted(remaining.values(), key=lambda node: node.name)
            included = remaining


def _is_needed(node: PinnedPackage, marker_environment: Mapping[str, str]) -> bool:
    """Return whether one of a package's markers is true, or the package has none."""
    return not node.markers or any(is_marker_true(marker, marker_environment) for marker in node.markers)


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


def _as_mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _as_list(value: Any) -> list[Any]:
    """Return the first `_MAX_PACKAGES` items of a list; an empty list if the value is not a list."""
    return value[:_MAX_PACKAGES] if isinstance(value, list) else []


def _parse_python_conditions(text: Any, location: str, *, is_poetry: bool) -> list[Condition]:
    """Return the condition on the Python version as a list of one; empty if it has alternatives (`||`).

    Raise UsageError if the text is not a valid constraint.
    """
    if not isinstance(text, str) or "|" in text:
        return []
    try:
        return [
            Condition(
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
    nodes: list[PinnedPackage] = []
    roots: list[PackageDependency] = []
    for package in _list_packages(document, display_path):
        location = f"{display_path}, {clean_line(package['name'], limit=80)}"
        source = _as_mapping(package.get("source"))
        is_local = any(key in source for key in ("virtual", "editable", "directory", "path"))
        edges = tuple(_iter_uv_edges(package.get("dependencies"), location))
        extras = {
            str(extra_name): tuple(_iter_uv_edges(dependencies, location))
            for extra_name, dependencies in _as_mapping(package.get("optional-dependencies")).items()
        }
        files = [
            *_as_list(package.get("wheels")),
            *([package["sdist"]] if isinstance(package.get("sdist"), dict) else []),
        ]
        markers = [_parse_marker(entry, location) for entry in _as_list(package.get("resolution-markers"))]
        nodes.append(
            PinnedPackage(
                name=canonicalize_name(package["name"]),
                version="" if is_local else _parse_version(package, display_path),
                address=_format_uv_address(source),
                hashes=_list_hashes(files) if not is_local and "git" not in source else (),
                markers=tuple(entry for entry in markers if entry is not None),
                edges=edges,
                extra_edges=extras,
                local=is_local,
            )
        )
        if any(source.get(key) == "." for key in ("virtual", "editable", "directory")):
            roots += edges
    notes = [f"{display_path}: as it is pinned there, without its groups for development and its extras."]
    local_nodes = [node for node in nodes if node.local]
    graph_roots = tuple(roots) if local_nodes and roots else None
    result = RequirementFile(notes=notes, graphs=[LockGraph(display_path, tuple(nodes), graph_roots)])
    result.python_conditions += _parse_python_conditions(
        document.get("requires-python"), f"{display_path}, requires-python", is_poetry=False
    )
    return result


def _iter_uv_edges(dependencies: Any, location: str) -> Iterator[PackageDependency]:
    for dependency in _as_list(dependencies):
        if isinstance(dependency, dict) and isinstance(dependency.get("name"), str):
            version = dependency.get("version")
            extras = tuple(str(name) for name in _as_list(dependency.get("extra")))
            yield PackageDependency(
                canonicalize_name(dependency["name"]),
                version if isinstance(version, str) else None,
                _parse_marker(dependency.get("marker"), location),
                extras,
            )


def _format_uv_address(source: Mapping[str, Any]) -> str | None:
    """Return the address of a package; None if it is from an index."""
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
    metadata = _as_mapping(document.get("metadata"))
    result = RequirementFile(
        notes=[f"{display_path}: as it is pinned there, without its groups for development and its extras."]
    )
    nodes = []
    for package in _list_packages(document, display_path):
        location = f"{display_path}, {clean_line(package['name'], limit=80)}"
        groups = package.get("groups")
        if package.get("optional") is True or package.get("category", "main") != "main":
            continue
        if isinstance(groups, list) and "main" not in groups:
            continue
        source = _as_mapping(package.get("source"))
        is_local = source.get("type") in ("directory", "file")
        if is_local:
            result.notes.append(f"{location}: a path of this machine, which is left out.")
        files = _as_list(package.get("files")) or _as_list(
            _as_mapping(metadata.get("files")).get(package["name"])
        )
        marker_value = package.get("markers")
        marker = _parse_marker(
            marker_value.get("main") if isinstance(marker_value, dict) else marker_value, location
        )
        nodes.append(
            PinnedPackage(
                name=canonicalize_name(package["name"]),
                version=_parse_version(package, display_path),
                address=_format_poetry_address(source),
                hashes=_list_hashes(files) if source.get("type") != "git" else (),
                markers=(marker,) if marker is not None else (),
                edges=tuple(_iter_poetry_edges(package.get("dependencies"), location)),
                extra_edges={},
                local=is_local,
            )
        )
    result.graphs.append(LockGraph(display_path, tuple(nodes), None))
    result.python_conditions += _parse_python_conditions(
        metadata.get("python-versions"), f"{display_path}, python-versions", is_poetry=True
    )
    return result


def _iter_poetry_edges(dependencies: Any, location: str) -> Iterator[PackageDependency]:
    for name, value in list(_as_mapping(dependencies).items())[:_MAX_PACKAGES]:
        for alternative in value if isinstance(value, list) else [value]:
            marker = _parse_marker(_as_mapping(alternative).get("markers"), location)
            yield PackageDependency(canonicalize_name(name), None, marker, ())


def _format_poetry_address(source: Mapping[str, Any]) -> str | None:
    """Return the address of a package; None if it is from an index."""
    if source.get("type") == "git":
        return f"git+{source.get('url')}@{source.get('resolved_reference') or source.get('reference')}"
    return str(source.get("url")) if source.get("type") == "url" else None
