"""What an expression may be when a program runs, as far as its text says it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "Const",
    "Func",
    "Many",
    "Map",
    "ModuleValue",
    "Obj",
    "Path",
    "Seq",
    "WalkState",
    "constant",
    "merge_states",
]


@dataclass(slots=True)
class Path:
    """A module or what is in it: "tensorflow.config.list_physical_devices", "os.environ"."""

    name: str
    sure: bool = True
    """False: one of several imports gives it, and another one may have been taken."""


@dataclass(slots=True)
class Const:
    value: Any


@dataclass(slots=True)
class Seq:
    items: list[Any]
    nodes: list[Any]


@dataclass(slots=True)
class Map:
    entries: list[tuple[Any, Any, Any, Any]]
    """(key, value, the key's node, the value's)."""
    whole: bool = True
    environment: bool = False
    """Begun as a copy of os.environ."""


@dataclass(slots=True)
class Many:
    """One after the other of these, in a loop."""

    values: list[Any]


@dataclass(slots=True)
class Obj:
    """An object made by a call."""

    kind: str
    """gpus, gpu, config, options, cluster, model, sub (a part of a config)."""
    data: Any = None
    node: Any = None


@dataclass(slots=True)
class Func:
    node: Any
    bound: bool = False
    graph: bool = False
    cell: int | None = None
    lines: list[str] = field(default_factory=list)
    """The cell that it stands in, and its lines."""


@dataclass(slots=True)
class ModuleValue:
    """A class of the file."""

    functions: dict[str, Func] = field(default_factory=dict)


@dataclass(slots=True)
class WalkState:
    """What has surely happened when a line runs."""

    imported: int = 0
    """The line that imports TensorFlow; 0: none for sure."""
    used: int = 0
    """The line that uses the GPUs first."""
    import_place: str = ""
    use_place: str = ""
    dead: bool = False
    """A return, raise, break or continue came before."""

    def copy(self) -> WalkState:
        return WalkState(self.imported, self.used, self.import_place, self.use_place, self.dead)

    def take(self, other: WalkState) -> None:
        self.imported, self.used, self.dead = other.imported, other.used, other.dead
        self.import_place, self.use_place = other.import_place, other.use_place


def constant(value: Any) -> Any:
    """Return the value of a constant; None for anything else."""
    return value.value if isinstance(value, Const) else None


def is_same(left: Any, right: Any) -> bool:
    return left is right or (type(left) is type(right) and isinstance(left, (Path, Const)) and left == right)


def merge_states(one: WalkState, two: WalkState) -> WalkState:
    """Return what has happened whichever way was taken."""
    if one.dead:
        return two.copy()
    if two.dead:
        return one.copy()
    out = one.copy()
    if not two.imported:
        out.imported, out.import_place = 0, ""
    if not two.used:
        out.used, out.use_place = 0, ""
    return out
