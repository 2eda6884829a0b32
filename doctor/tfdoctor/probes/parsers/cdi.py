"""Parse CDI specifications in JSON or in the YAML that `nvidia-ctk cdi generate` writes.

The YAML library is imported only if it is needed. Documents that are too long or nested too deeply are rejected.
Anchors are rejected, too, because the toolkit never writes them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tfdoctor.core.text import make_lazy_pattern

MAX_DEPTH = 24
"""The maximum depth of nested collections in YAML."""
MAX_LINES = 50_000
"""The maximum number of lines in YAML."""
_LIBCUDA_FILE = make_lazy_pattern(r"/libcuda\.so\.(\d{3}\.\d{1,4}(?:\.\d{1,4})?)\Z")


class CdiError(ValueError):
    """The text is not a supported CDI specification."""


@dataclass(frozen=True, slots=True)
class CdiSpecification:
    """The devices and files that a specification makes available to containers."""

    version: str
    kind: str
    devices: tuple[str, ...]
    paths: tuple[str, ...] = field(default=())
    """The paths that must exist on the host: device nodes, mounts and hook programs. They have no duplicates."""

    @property
    def driver_version(self) -> str | None:
        """The driver version in the file name of libcuda, or None if no path is a libcuda with a version."""
        matches = (_LIBCUDA_FILE.search(path) for path in self.paths)
        return next((match[1] for match in matches if match is not None), None)


def parse_cdi(text: str) -> CdiSpecification:
    """Parse a specification. Raise CdiError if it is invalid, with the line number if it is known."""
    if text.lstrip("\ufeff \t\r\n").startswith("{"):
        try:
            document = json.loads(text.lstrip("\ufeff"))
        except (ValueError, RecursionError) as error:
            message = f"not JSON: {error}"
            raise CdiError(message) from error
    else:
        document = _parse_yaml(text.lstrip("\ufeff"))
    if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
        message = "it names no `kind`"
        raise CdiError(message)
    devices = [device for device in _as_list(document.get("devices")) if isinstance(device, dict)]
    edits = [document.get("containerEdits"), *(device.get("containerEdits") for device in devices)]
    paths = [path for edit in edits if isinstance(edit, dict) for path in _list_host_paths(edit)]
    return CdiSpecification(
        version=str(document.get("cdiVersion", "")),
        kind=document["kind"],
        devices=tuple(str(device.get("name", "")) for device in devices),
        paths=tuple(dict.fromkeys(paths)),
    )


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _list_host_paths(edit: dict[str, Any]) -> list[str]:
    """Return the host paths in a `containerEdits` object."""
    nodes = [node for node in _as_list(edit.get("deviceNodes")) if isinstance(node, dict)]
    candidates: list[Any] = [node.get("hostPath") or node.get("path") for node in nodes]
    candidates += [mount.get("hostPath") for mount in _as_list(edit.get("mounts")) if isinstance(mount, dict)]
    candidates += [hook.get("path") for hook in _as_list(edit.get("hooks")) if isinstance(hook, dict)]
    return [path for path in candidates if isinstance(path, str) and path.startswith("/")]


def _parse_yaml(text: str) -> Any:
    """Return the first document of a YAML text. Scalars are strings, and an empty plain scalar is None.

    The document is built from the parser's events so that its cost is bounded: the depth is limited, and no
    alias can repeat a value. Raise CdiError if the text is not YAML, is empty or exceeds a limit.
    """
    import yaml

    if text.count("\n") > MAX_LINES:
        message = f"more than {MAX_LINES} lines"
        raise CdiError(message)
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    documents: list[Any] = []
    open_collections: list[tuple[Any, list[Any]]] = []
    """(collection, its pending key as a list of at most one item) for each open collection, the innermost last."""
    try:
        for event in yaml.parse(text, Loader=loader):
            if isinstance(event, yaml.DocumentEndEvent):
                break
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
                raise _make_line_error(event.start_mark, "an anchor is beyond what the toolkit writes")
            if isinstance(event, yaml.ScalarEvent):
                is_plain, _ = event.implicit
                value = event.value or (None if is_plain else "")
                _insert(open_collections, documents, value, event.start_mark)
            elif isinstance(event, yaml.CollectionStartEvent):
                if len(open_collections) >= MAX_DEPTH:
                    raise _make_line_error(event.start_mark, "too deep")
                open_collections.append(({} if isinstance(event, yaml.MappingStartEvent) else [], []))
            elif isinstance(event, yaml.CollectionEndEvent):
                collection, _ = open_collections.pop()
                _insert(open_collections, documents, collection, event.start_mark)
    except yaml.MarkedYAMLError as error:
        position = error.context_mark or error.problem_mark
        raise _make_line_error(position, str(error.problem or error.context or "not YAML")) from error
    except (yaml.YAMLError, ValueError) as error:
        if isinstance(error, CdiError):  # it was raised above, and is a ValueError
            raise
        message = f"not YAML: {error}"
        raise CdiError(message) from error
    if not documents or documents[0] is None:
        message = "it is empty"
        raise CdiError(message)
    return documents[0]


def _insert(
    open_collections: list[tuple[Any, list[Any]]], documents: list[Any], value: Any, mark: Any
) -> None:
    """Add a value to the innermost open collection, or to `documents` if there is none.

    In a mapping, keys and values alternate. Raise CdiError if a key is not a string.
    """
    collection, pending_key = open_collections[-1] if open_collections else (documents, [])
    if isinstance(collection, list):
        collection.append(value)
    elif pending_key:
        collection[pending_key.pop()] = value
    elif isinstance(value, str):
        pending_key.append(value)
    else:
        raise _make_line_error(mark, "a key that is no text")


def _make_line_error(mark: Any, reason: str) -> CdiError:
    return CdiError(f"line {mark.line + 1}: {reason}" if mark is not None else reason)
