"""CDI specifications, as JSON or as the YAML that `nvidia-ctk cdi generate` writes.

No YAML library: a reader of block mappings and block sequences with plain or quoted scalars, which is all that
the toolkit writes. What is beyond that (anchors, block scalars, flow collections that are not JSON) is refused
with its line, never guessed at.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

MAX_DEPTH = 24
MAX_LINES = 50_000
_KEY = re.compile(
    r"(\"[^\"]{0,200}\"|'[^']{0,200}'|[^\s\"'#&*!|>%@`{}\[\],?:-][^:\"'#]{0,200}?)[ \t]{0,20}:(?:[ \t]+|\Z)"
)
_DRIVER = re.compile(r"/libcuda\.so\.(\d{3}\.\d{1,4}(?:\.\d{1,4})?)\Z")


class CdiError(ValueError):
    """The text is not a CDI specification that this reader takes."""


@dataclass(frozen=True, slots=True)
class Cdi:
    """What a specification lends to containers."""

    version: str
    kind: str
    devices: tuple[str, ...]
    paths: tuple[str, ...] = field(default=())
    """What must be there on the host, each once, in order: nodes, mounts, the programs of hooks."""

    @property
    def driver_version(self) -> str | None:
        """The version of the driver whose libcuda it lends."""
        found = (_DRIVER.search(path) for path in self.paths)
        return next((match[1] for match in found if match is not None), None)


def parse_cdi(text: str) -> Cdi:
    """Read a specification. Raises CdiError, with the line where it is known."""
    if text.lstrip("\ufeff \t\r\n").startswith("{"):
        try:
            document = json.loads(text.lstrip("\ufeff"))
        except (ValueError, RecursionError) as error:
            message = f"not JSON: {error}"
            raise CdiError(message) from error
    else:
        document = _Yaml(text).document()
    if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
        message = "it names no `kind`"
        raise CdiError(message)
    devices = [d for d in _list(document.get("devices")) if isinstance(d, dict)]
    edits = [document.get("containerEdits"), *(device.get("containerEdits") for device in devices)]
    paths = [path for edit in edits if isinstance(edit, dict) for path in _paths(edit)]
    return Cdi(
        version=str(document.get("cdiVersion", "")),
        kind=document["kind"],
        devices=tuple(str(device.get("name", "")) for device in devices),
        paths=tuple(dict.fromkeys(paths)),
    )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _paths(edit: dict[str, Any]) -> list[str]:
    """What one set of edits takes from the host."""
    nodes = [node for node in _list(edit.get("deviceNodes")) if isinstance(node, dict)]
    named: list[Any] = [node.get("hostPath") or node.get("path") for node in nodes]
    named += [mount.get("hostPath") for mount in _list(edit.get("mounts")) if isinstance(mount, dict)]
    named += [hook.get("path") for hook in _list(edit.get("hooks")) if isinstance(hook, dict)]
    return [path for path in named if isinstance(path, str) and path.startswith("/")]


@dataclass(slots=True)
class _Line:
    number: int
    indent: int
    text: str


class _Yaml:
    """The block subset of YAML. Scalars stay text."""

    def __init__(self, text: str) -> None:
        self._lines: list[_Line] = []
        self._at = 0
        rows = text.lstrip("\ufeff").splitlines()
        if len(rows) > MAX_LINES:
            message = f"more than {MAX_LINES} lines"
            raise CdiError(message)
        for number, row in enumerate(rows, 1):
            bare = row.strip(" \t\r")
            if not bare or bare.startswith("#") or (bare == "---" and not self._lines):
                continue
            if bare in ("---", "..."):
                break
            indent = len(row) - len(row.lstrip(" "))
            if row[indent] == "\t":
                message = f"line {number}: a tab in the indentation"
                raise CdiError(message)
            self._lines.append(_Line(number, indent, bare))

    def document(self) -> Any:
        if not self._lines:
            message = "it is empty"
            raise CdiError(message)
        value = self._block(self._lines[0].indent, 0)
        if self._at < len(self._lines):
            raise self._refuse(self._lines[self._at], "does not belong to what is above it")
        return value

    def _refuse(self, line: _Line, why: str) -> CdiError:
        return CdiError(f"line {line.number}: {why}")

    def _here(self) -> _Line | None:
        return self._lines[self._at] if self._at < len(self._lines) else None

    def _block(self, indent: int, depth: int) -> Any:
        line = self._lines[self._at]
        if depth > MAX_DEPTH:
            raise self._refuse(line, "too deep")
        if line.text == "-" or line.text.startswith("- "):
            return self._sequence(indent, depth)
        return self._mapping(indent, depth)

    def _sequence(self, indent: int, depth: int) -> list[Any]:
        items: list[Any] = []
        while (line := self._here()) is not None and line.indent == indent and line.text[:2] in ("-", "- "):
            rest = line.text[1:].lstrip(" ")
            if not rest:
                self._at += 1
                items.append(self._nested(indent + 1, depth))
            elif _KEY.match(rest) or rest.startswith("- "):
                # "- name: x" opens a block whose column is that of `name`.
                line.indent += len(line.text) - len(rest)
                line.text = rest
                items.append(self._block(line.indent, depth + 1))
            else:
                self._at += 1
                items.append(self._scalar(rest, line))
        return items

    def _mapping(self, indent: int, depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        while (line := self._here()) is not None and line.indent == indent:
            match = _KEY.match(line.text)
            if match is None:
                if line.text == "-" or line.text.startswith("- "):
                    break
                raise self._refuse(line, "not `key: value`")
            key, rest = str(self._scalar(match[1], line)), line.text[match.end() :].strip(" ")
            self._at += 1
            after = self._here()
            if rest and not rest.startswith("#"):
                result[key] = self._scalar(rest, line)
            elif after is not None and after.indent == indent and after.text[:2] in ("-", "- "):
                result[key] = self._sequence(indent, depth + 1)  # a list may stand under its key's column
            else:
                result[key] = self._nested(indent + 1, depth)
        return result

    def _nested(self, least: int, depth: int) -> Any:
        line = self._here()
        return self._block(line.indent, depth + 1) if line is not None and line.indent >= least else None

    def _scalar(self, text: str, line: _Line) -> Any:
        if text[:1] in ("{", "["):
            try:
                return json.loads(text)
            except (ValueError, RecursionError) as error:
                raise self._refuse(line, "a flow collection that is not JSON") from error
        if text.startswith('"'):
            try:
                return json.JSONDecoder().raw_decode(text)[0]
            except ValueError as error:
                raise self._refuse(line, "an unfinished string") from error
        if text.startswith("'"):
            quoted = re.match(r"'((?:[^']|'')*)'", text)
            if quoted is None:
                raise self._refuse(line, "an unfinished string")
            return quoted[1].replace("''", "'")
        if text[:1] in ("|", ">", "&", "*", "!", "%", "@", "`"):
            raise self._refuse(line, f"`{text[:1]}` is beyond what the toolkit writes")
        return re.split(r"\s#", text, maxsplit=1)[0].rstrip()
