"""Values that an expression can have at run time, as far as the source code shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "ClassValue",
    "Const",
    "Func",
    "Many",
    "Map",
    "Obj",
    "Path",
    "Seq",
    "WalkState",
    "constant",
    "merge_states",
]


@dataclass(slots=True)
class Path:
    """A module or a member of one: "tensorflow.config.list_physical_devices", "os.environ"."""

    name: str
    sure: bool = True
    """Whether this is certain; false if one of several imports provides it."""


@dataclass(slots=True)
class Const:
    """A constant."""

    value: Any


@dataclass(slots=True)
class Seq:
    """A list, tuple or set with known items."""

    items: list[Any]
    nodes: list[Any]


@dataclass(slots=True)
class Map:
    """A dict."""

    entries: list[tuple[Any, Any, Any, Any]]
    """(key, value, node of the key, node of the value)."""
    whole: bool = True
    """Whether all entries are known."""
    environment: bool = False
    """Whether it began as a copy of os.environ."""


@dataclass(slots=True)
class Many:
    """One of these values after the other, in a loop."""

    values: list[Any]


@dataclass(slots=True)
class Obj:
    """An object that a call returned."""

    kind: str
    """For example gpus, gpu, config, options, cluster, model, or sub (a part of a config)."""
    data: Any = None
    node: Any = None


@dataclass(slots=True)
class Func:
    """A function of the file."""

    node: Any
    bound: bool = False
    graph: bool = False
    cell: int | None = None
    lines: list[str] = field(default_factory=list)
    """The lines of the cell or file that defines it."""


@dataclass(slots=True)
class ClassValue:
    """A class of the file, with its methods."""

    functions: dict[str, Func] = field(default_factory=dict)


@dataclass(slots=True)
class WalkState:
    """What has certainly happened before a line runs."""

    imported: int = 0
    """The line that imports TensorFlow; 0: not certain."""
    used: int = 0
    """The line that first uses the GPUs; 0: not certain."""
    import_place: str = ""
    use_place: str = ""
    unreachable: bool = False
    """Whether a return, raise, break or continue precedes."""

    def copy(self) -> WalkState:
        return WalkState(self.imported, self.used, self.import_place, self.use_place, self.unreachable)

    def assign(self, other: WalkState) -> None:
        self.imported, self.used, self.unreachable = other.imported, other.used, other.unreachable
        self.import_place, self.use_place = other.import_place, other.use_place


def constant(value: Any) -> Any:
    """Return the value of a constant; None for any other value."""
    return value.value if isinstance(value, Const) else None


def is_same(left: Any, right: Any) -> bool:
    """Return whether two values are certainly the same."""
    return left is right or (type(left) is type(right) and isinstance(left, (Path, Const)) and left == right)


def merge_states(one: WalkState, two: WalkState) -> WalkState:
    """Return what has certainly happened after either of two branches."""
    if one.unreachable:
        return two.copy()
    if two.unreachable:
        return one.copy()
    merged = one.copy()
    if not two.imported:
        merged.imported, merged.import_place = 0, ""
    if not two.used:
        merged.used, merged.use_place = 0, ""
    return merged
