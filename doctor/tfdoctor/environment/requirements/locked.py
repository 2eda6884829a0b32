"""poetry.lock and uv.lock: the versions that a project is pinned to, as far as this system needs them."""

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
from tfdoctor.environment.requirements.models import Condition, RequirementFile, holds
from tfdoctor.environment.requirements.project import poetry_specifier, tables
from tfdoctor.errors import UsageError
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tfdoctor.environment.requirements.lines import Item

__all__ = ["Graph", "read_poetry", "read_uv"]

_MAX_PACKAGES = 20_000
"""Packages of a lock, and dependencies of one."""
_HASH = re.compile(r"sha256:([0-9a-f]{64})")
_EXTRA = re.compile(r"""extra\s*==\s*["']([^"']{1,100})["']""")


@dataclass(frozen=True)
class Edge:
    """What one package needs of another."""

    name: str
    version: str | None
    """Where the lock has several of that name; None: any that holds here."""
    marker: Marker | None
    extras: tuple[str, ...]


@dataclass(frozen=True)
class Node:
    """A pinned package."""

    name: str
    version: str
    address: str | None
    """`"git+https://…@commit"`; None: from an index."""
    hashes: tuple[str, ...]
    markers: tuple[Marker, ...]
    """It is wanted where any of them holds, or there is none."""
    edges: tuple[Edge, ...]
    of_extras: Mapping[str, tuple[Edge, ...]]
    local: bool = False
    """The project itself, or another one of this machine."""


@dataclass(frozen=True)
class Graph:
    """A lock."""

    shown: str
    nodes: tuple[Node, ...]
    roots: tuple[Edge, ...] | None
    """What the project needs; None: the lock does not say, and all that could be needed here is."""

    @cached_property
    def _named(self) -> Mapping[str, list[Node]]:
        found: dict[str, list[Node]] = {}
        for node in self.nodes:
            found.setdefault(node.name, []).append(node)
        return found

    def items(self, where: Mapping[str, str]) -> Iterator[Item]:
        """Yield the pins that are wanted there. Raises UsageError."""
        chosen = self._from_roots(where) if self.roots is not None else self._list_included(where)
        for node in chosen:
            if node.local:
                continue
            wanted = f"{node.name} @ {node.address}" if node.address else f"{node.name}=={node.version}"
            item = parse_line(wanted, f"{self.shown}, {node.name}")
            if item is not None:
                yield replace(item, hashes=node.hashes)

    def _met(self, edge: Edge, where: Mapping[str, str]) -> Iterator[Node]:
        for node in self._named.get(edge.name, ()):
            if edge.version in (None, node.version) and _is_wanted(node, where):
                yield node

    def _from_roots(self, where: Mapping[str, str]) -> list[Node]:
        """Return what can be reached: the lock says what each needs."""
        found: dict[int, Node] = {}
        done: set[tuple[int, str]] = set()
        waiting = list(self.roots or ())
        while waiting:
            edge = waiting.pop()
            if not holds(edge.marker, where):
                continue
            for node in self._met(edge, where):
                found[id(node)] = node
                for extra in ("", *edge.extras):
                    if (id(node), extra) not in done:
                        done.add((id(node), extra))
                        waiting += node.of_extras.get(extra, ()) if extra else node.edges
        return sorted(found.values(), key=lambda node: node.name)

    def _list_included(self, where: Mapping[str, str]) -> list[Node]:
        """Return all but those which only another system or Python needs."""
        kept = {id(node): node for node in self.nodes if _is_wanted(node, where)}
        of_others = {edge.name for node in self.nodes for edge in node.edges}
        while True:
            needed: dict[str, bool] = {}
            for node in kept.values():
                for edge in node.edges:
                    # An extra that is in the lock is there because somebody wants it.
                    extras = _EXTRA.findall(str(edge.marker)) if edge.marker is not None else []
                    live = any(holds(edge.marker, {**where, "extra": one}) for one in ["", *extras])
                    needed[edge.name] = needed.get(edge.name, False) or live
            left = {
                key: node for key, node in kept.items() if needed.get(node.name, node.name not in of_others)
            }
            if len(left) == len(kept):
                return sorted(left.values(), key=lambda node: node.name)
            kept = left


def _is_wanted(node: Node, where: Mapping[str, str]) -> bool:
    return not node.markers or any(holds(marker, where) for marker in node.markers)


# ---------------------------------------------------------------- what both have


def _packages(document: Mapping[str, Any], shown: str) -> list[dict[str, Any]]:
    rows = document.get("package")
    if (
        not isinstance(rows, list)
        or len(rows) > _MAX_PACKAGES
        or not all(isinstance(row, dict) for row in rows)
    ):
        msg = f"-r: {shown} does not list packages as such a lock does."
        raise UsageError(msg)
    for row in rows:
        if not isinstance(row.get("name"), str):
            msg = f"-r: {shown} has a package without a name."
            raise UsageError(msg)
    return rows


def _version(row: Mapping[str, Any], shown: str) -> str:
    version = row.get("version")
    if not isinstance(version, str) or not versions.is_version(version):
        msg = f"{shown}, {clean_line(str(row['name']), limit=80)}: `{clean_line(str(version))}` is not a version."
        raise UsageError(msg)
    return version


def _marker(text: Any, where: str) -> Marker | None:
    if not isinstance(text, str) or not text.strip():
        return None
    try:
        return Marker(text)
    except (InvalidMarker, RecursionError) as error:
        msg = f"{where}: `{clean_line(text)}` is not a marker."
        raise UsageError(msg) from error


def _hashes(files: Iterable[Any]) -> tuple[str, ...]:
    found = [
        match[1]
        for file in files
        if isinstance(file, dict) and (match := _HASH.fullmatch(str(file.get("hash")))) is not None
    ]
    return tuple(sorted({*found}))


def _as_mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value[:_MAX_PACKAGES] if isinstance(value, list) else []


def _pythons(text: Any, where: str, *, poetry: bool) -> list[Condition]:
    if not isinstance(text, str) or "|" in text:
        return []
    try:
        return [Condition(SpecifierSet(poetry_specifier(text, where) if poetry else text), where)]
    except InvalidSpecifier as error:
        msg = f"{where}: `{clean_line(text)}` is not a set of versions."
        raise UsageError(msg) from error


# ---------------------------------------------------------------- uv


def read_uv(text: str, shown: str) -> RequirementFile:
    """uv.lock. Raises UsageError."""
    document = tables(text, shown)
    nodes: list[Node] = []
    roots: list[Edge] = []
    for row in _packages(document, shown):
        where = f"{shown}, {clean_line(row['name'], limit=80)}"
        source = _as_mapping(row.get("source"))
        local = any(key in source for key in ("virtual", "editable", "directory", "path"))
        edges = tuple(_uv_edges(row.get("dependencies"), where))
        extras = {
            str(extra): tuple(_uv_edges(rows, where))
            for extra, rows in _as_mapping(row.get("optional-dependencies")).items()
        }
        files = [*_list(row.get("wheels")), *([row["sdist"]] if isinstance(row.get("sdist"), dict) else [])]
        marks = [_marker(one, where) for one in _list(row.get("resolution-markers"))]
        nodes.append(
            Node(
                name=canonicalize_name(row["name"]),
                version="" if local else _version(row, shown),
                address=_uv_address(source),
                hashes=_hashes(files) if not local and "git" not in source else (),
                markers=tuple(one for one in marks if one is not None),
                edges=edges,
                of_extras=extras,
                local=local,
            )
        )
        if any(source.get(key) == "." for key in ("virtual", "editable", "directory")):
            roots += edges
    notes = [f"{shown}: as it is pinned there, without its groups for development and its extras."]
    local_ones = [node for node in nodes if node.local]
    chosen = tuple(roots) if local_ones and roots else None
    part = RequirementFile(notes=notes, graphs=[Graph(shown, tuple(nodes), chosen)])
    part.pythons += _pythons(document.get("requires-python"), f"{shown}, requires-python", poetry=False)
    return part


def _uv_edges(rows: Any, where: str) -> Iterator[Edge]:
    for row in _list(rows):
        if isinstance(row, dict) and isinstance(row.get("name"), str):
            version = row.get("version")
            extras = tuple(str(one) for one in _list(row.get("extra")))
            yield Edge(
                canonicalize_name(row["name"]),
                version if isinstance(version, str) else None,
                _marker(row.get("marker"), where),
                extras,
            )


def _uv_address(source: Mapping[str, Any]) -> str | None:
    if isinstance(source.get("git"), str):
        address, _, commit = source["git"].partition("#")
        return f"git+{address.partition('?')[0]}" + (f"@{commit}" if commit else "")
    return source["url"] if isinstance(source.get("url"), str) else None


# ---------------------------------------------------------------- poetry


def read_poetry(text: str, shown: str) -> RequirementFile:
    """poetry.lock, of any version of it. Raises UsageError."""
    document = tables(text, shown)
    metadata = _as_mapping(document.get("metadata"))
    part = RequirementFile(
        notes=[f"{shown}: as it is pinned there, without its groups for development and its extras."]
    )
    nodes = []
    for row in _packages(document, shown):
        where = f"{shown}, {clean_line(row['name'], limit=80)}"
        groups = row.get("groups")
        if row.get("optional") is True or row.get("category", "main") != "main":
            continue
        if isinstance(groups, list) and "main" not in groups:
            continue
        source = _as_mapping(row.get("source"))
        local = source.get("type") in ("directory", "file")
        if local:
            part.notes.append(f"{where}: a path of this machine, which is left out.")
        files = _list(row.get("files")) or _list(_as_mapping(metadata.get("files")).get(row["name"]))
        said = row.get("markers")
        marker = _marker(said.get("main") if isinstance(said, dict) else said, where)
        nodes.append(
            Node(
                name=canonicalize_name(row["name"]),
                version=_version(row, shown),
                address=_poetry_address(source),
                hashes=_hashes(files) if source.get("type") != "git" else (),
                markers=(marker,) if marker is not None else (),
                edges=tuple(_poetry_edges(row.get("dependencies"), where)),
                of_extras={},
                local=local,
            )
        )
    part.graphs.append(Graph(shown, tuple(nodes), None))
    part.pythons += _pythons(metadata.get("python-versions"), f"{shown}, python-versions", poetry=True)
    return part


def _poetry_edges(rows: Any, where: str) -> Iterator[Edge]:
    for name, said in list(_as_mapping(rows).items())[:_MAX_PACKAGES]:
        for one in said if isinstance(said, list) else [said]:
            marker = _marker(_as_mapping(one).get("markers"), where)
            yield Edge(canonicalize_name(name), None, marker, ())


def _poetry_address(source: Mapping[str, Any]) -> str | None:
    if source.get("type") == "git":
        return f"git+{source.get('url')}@{source.get('resolved_reference') or source.get('reference')}"
    return str(source.get("url")) if source.get("type") == "url" else None
