"""CDI specifications, as JSON or as the YAML that `nvidia-ctk cdi generate` writes.

The YAML library is imported only where such a file is there. Anchors, which the toolkit never writes, are refused with
their line, and so is what is too long or too deep.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tfdoctor.text import lazy_pattern

MAX_DEPTH = 24
MAX_LINES = 50_000
_DRIVER = lazy_pattern(r"/libcuda\.so\.(\d{3}\.\d{1,4}(?:\.\d{1,4})?)\Z")


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
        document = _yaml(text.lstrip("\ufeff"))
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
    """Return what one set of edits takes from the host."""
    nodes = [node for node in _list(edit.get("deviceNodes")) if isinstance(node, dict)]
    named: list[Any] = [node.get("hostPath") or node.get("path") for node in nodes]
    named += [mount.get("hostPath") for mount in _list(edit.get("mounts")) if isinstance(mount, dict)]
    named += [hook.get("path") for hook in _list(edit.get("hooks")) if isinstance(hook, dict)]
    return [path for path in named if isinstance(path, str) and path.startswith("/")]


def _yaml(text: str) -> Any:
    """Return the first document of a YAML text; every scalar stays text, and nothing at all is None.

    Built from the parser's events, so that what it costs is bounded: nothing is nested deeply, and nothing is there
    twice through an alias.
    """
    import yaml

    if text.count("\n") > MAX_LINES:
        message = f"more than {MAX_LINES} lines"
        raise CdiError(message)
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    top: list[Any] = []
    open_ones: list[tuple[Any, list[Any]]] = []
    """Around the place that is read: a collection, and what of it is not in it yet (a key)."""
    try:
        for event in yaml.parse(text, Loader=loader):
            if isinstance(event, yaml.DocumentEndEvent):
                break
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
                raise _refusal(event.start_mark, "an anchor is beyond what the toolkit writes")
            if isinstance(event, yaml.ScalarEvent):
                _insert(open_ones, top, event.value or (None if event.implicit[0] else ""), event.start_mark)
            elif isinstance(event, yaml.CollectionStartEvent):
                if len(open_ones) >= MAX_DEPTH:
                    raise _refusal(event.start_mark, "too deep")
                open_ones.append(({} if isinstance(event, yaml.MappingStartEvent) else [], []))
            elif isinstance(event, yaml.CollectionEndEvent):
                _insert(open_ones, top, open_ones.pop()[0], event.start_mark)
    except yaml.MarkedYAMLError as error:
        where = error.context_mark or error.problem_mark
        raise _refusal(where, str(error.problem or error.context or "not YAML")) from error
    except (yaml.YAMLError, ValueError) as error:
        if isinstance(error, CdiError):
            raise
        message = f"not YAML: {error}"
        raise CdiError(message) from error
    if not top or top[0] is None:
        message = "it is empty"
        raise CdiError(message)
    return top[0]


def _insert(open_ones: list[tuple[Any, list[Any]]], top: list[Any], value: Any, mark: Any) -> None:
    """A value into the collection that is open, or the document itself."""
    collection, waiting = open_ones[-1] if open_ones else (top, [])
    if isinstance(collection, list):
        collection.append(value)
    elif waiting:
        collection[waiting.pop()] = value
    elif isinstance(value, str):
        waiting.append(value)
    else:
        raise _refusal(mark, "a key that is no text")


def _refusal(mark: Any, why: str) -> CdiError:
    return CdiError(f"line {mark.line + 1}: {why}" if mark is not None else why)
