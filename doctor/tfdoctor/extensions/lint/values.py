"""The values of expressions, as far as they are known without running the code. None is an unknown value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "ClassValue",
    "ConstantValue",
    "DictValue",
    "ExecutionState",
    "FunctionValue",
    "MultipleValues",
    "ObjectValue",
    "QualifiedName",
    "SequenceValue",
    "get_constant",
    "merge_states",
]


@dataclass(slots=True)
class QualifiedName:
    """A module or its member, such as "os.environ" or "tensorflow.config.list_physical_devices"."""

    name: str
    is_certain: bool = True
    """Whether the name certainly comes from this module. False if another import may bind it."""


@dataclass(slots=True)
class ConstantValue:
    """A constant."""

    value: Any


@dataclass(slots=True)
class SequenceValue:
    """A list, tuple or set with a known number of items."""

    items: list[Any]
    """The values of the items."""
    nodes: list[Any]
    """The nodes of the items, in the same order."""


@dataclass(slots=True)
class DictValue:
    """A dict."""

    entries: list[tuple[Any, Any, Any, Any]]
    """(key, value, key node, value node) for each entry, in the order of assignment."""
    is_complete: bool = True
    """Whether all entries are known."""
    is_environ_copy: bool = False
    """Whether it began as a copy of os.environ."""


@dataclass(slots=True)
class MultipleValues:
    """Several values, which a variable has in turn, as in a loop."""

    values: list[Any]


@dataclass(slots=True)
class ObjectValue:
    """Any other object, such as one that a call returned."""

    kind: str
    """The kind of object: gpus, gpu, config, options, cluster, model, sub (a part of a config), text, …."""
    data: Any = None
    """What is known about the object. Its type depends on the kind.

    For "gpus" it says which GPUs: None for all, 0 for the first, "some" for others. For "gpu" it is an index, "each" for
    a loop variable that stands for all GPUs, "some", or None if it is unknown.
    """
    node: Any = None
    """The node of the call that created it. None if it is not needed."""


@dataclass(slots=True)
class FunctionValue:
    """A function that the file defines."""

    node: Any
    is_method: bool = False
    """Whether it is a method whose first argument is the object or class."""
    is_graph: bool = False
    """Whether tf.function decorates it, so that its operations form a graph."""
    cell_number: int | None = None
    """The number of the notebook cell that defines it. None if it is not in a notebook."""
    lines: list[str] = field(default_factory=list)
    """The lines of the cell or file that defines it."""


@dataclass(slots=True)
class ClassValue:
    """A class that the file defines, with its methods by name."""

    methods: dict[str, FunctionValue] = field(default_factory=dict)


@dataclass(slots=True)
class ExecutionState:
    """The events that have certainly happened before a statement runs."""

    import_line: int = 0
    """The line that imports TensorFlow, or 0 if it is not certain that a line did."""
    first_use_line: int = 0
    """The line that first uses the GPUs, or 0 if it is not certain that a line did."""
    import_position: str = ""
    """The position of the import for messages: "cell 2, line 5" or "line 5"."""
    first_use_position: str = ""
    """The position of the first use of the GPUs for messages."""
    is_unreachable: bool = False
    """Whether the statement does not run, because of a return, raise, break or continue before it."""

    def copy(self) -> ExecutionState:
        return ExecutionState(
            self.import_line,
            self.first_use_line,
            self.import_position,
            self.first_use_position,
            self.is_unreachable,
        )

    def assign(self, other: ExecutionState) -> None:
        """Replace this state by another one."""
        self.import_line, self.first_use_line, self.is_unreachable = (
            other.import_line,
            other.first_use_line,
            other.is_unreachable,
        )
        self.import_position, self.first_use_position = other.import_position, other.first_use_position


def get_constant(value: Any) -> Any:
    """Return the Python value of a `ConstantValue`, or None for any other value."""
    return value.value if isinstance(value, ConstantValue) else None


def is_same_value(left: Any, right: Any) -> bool:
    """Return whether two values are certainly the same object or equal constants."""
    return left is right or (
        type(left) is type(right) and isinstance(left, (QualifiedName, ConstantValue)) and left == right
    )


def merge_states(left: ExecutionState, right: ExecutionState) -> ExecutionState:
    """Return the state after two branches, of which one ran: the events that happened in both.

    A branch whose end is unreachable does not count.
    """
    if left.is_unreachable:
        return right.copy()
    if right.is_unreachable:
        return left.copy()
    merged = left.copy()
    if not right.import_line:
        merged.import_line, merged.import_position = 0, ""
    if not right.first_use_line:
        merged.first_use_line, merged.first_use_position = 0, ""
    return merged
