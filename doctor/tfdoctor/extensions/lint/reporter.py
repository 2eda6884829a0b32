"""The base class of all Python checks, which collects the findings."""

from __future__ import annotations

from collections import Counter
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from tfdoctor.compat import Compat
from tfdoctor.extensions.lint.models import Fix, LintProblem, LintTarget

if TYPE_CHECKING:
    from tfdoctor.compat.api_names import ApiNames
    from tfdoctor.extensions.lint.values import ExecutionState

__all__ = ["MAX_FINDINGS", "MAX_STEPS", "MAX_TEXT_CHARS", "Reporter"]

MAX_FINDINGS = 500
"""The most findings of one Python file."""
MAX_STEPS = 250_000
"""The most evaluated statements and expressions of a file. Those of a function count at each call."""
ITEMS_PER_STEP = 16
"""The number of container items or characters that take as much time as one expression."""
MAX_TEXT_CHARS = 100_000
"""The maximum length in characters of a composed text."""
_BLOCK_BYTES = 1024
"""The size in bytes of the blocks in which the characters of a line are counted."""
_CONTINUATION_BYTES = bytes(range(0x80, 0xC0))
"""The bytes of UTF-8 that do not begin a character."""


@lru_cache(maxsize=4)
def _encode_line(text: str) -> tuple[bytes, list[int]]:
    """Return (line in UTF-8, number of characters before each of its blocks)."""
    data = text.encode("utf-8", "replace")
    blocks = (data[start : start + _BLOCK_BYTES] for start in range(0, len(data), _BLOCK_BYTES))
    return data, [0, *accumulate(len(block.translate(None, _CONTINUATION_BYTES)) for block in blocks)]


class Reporter:
    """The state and functions that all Python checks share."""

    state: ExecutionState
    # methods of the subclass `Evaluator`, which the checks call
    look_up: Any
    evaluate_function: Any
    evaluate: Any

    def __init__(self, target: LintTarget, text: str) -> None:
        self.target = target
        self.text = text
        self.problems: dict[tuple[Any, ...], LintProblem] = {}
        """The findings, by (kind, cell number, line, byte offset)."""
        self.cell_number: int | None = None
        self.lines: list[str] = []
        self.offers_fixes = True
        """Whether fixes are certain. False for a dict that only seems to be an environment."""
        self.lines_before_cell = 0
        """The number of lines in the cells before this one."""
        self.guard_depth = 0
        """The depth of nested branches that test the TensorFlow version or handle a missing name."""
        self.branch_depth = 0
        """The depth of nested branches that may not run."""
        self.has_single_gpu = False
        """Whether the code runs only if there is one GPU."""
        self.is_uncalled = False
        """Whether the code belongs to a function that the file never calls."""
        self.is_graph_mode = False
        """Whether operations are added to a graph instead of run."""
        self.is_python_2 = False
        """Whether the file is Python 2."""
        self.open_devices: list[Any] = []
        """The values of the open tf.device contexts, outermost first."""
        self.open_loops: list[Any] = []
        """The nodes of the open loops, outermost first."""
        self.tf_names: set[str] = set()
        """The names by which the text refers to TensorFlow or to something imported from it."""
        self.step_count = 0
        """The number of statements and expressions evaluated so far."""
        self.cell_counts_by_name: Counter[str] = Counter()
        """The number of cells of the notebook that load each name."""
        self.loaded_names: frozenset[str] = frozenset()
        """The names that this cell loads."""

    @cached_property
    def api_names(self) -> ApiNames:
        """The names that TensorFlow releases added and removed."""
        return Compat.load().api_names

    def is_loaded_elsewhere(self, name: str) -> bool:
        """Return whether another cell of the notebook loads the name."""
        return self.cell_counts_by_name[name] > (name in self.loaded_names)  # without this cell itself

    def count_work(self, item_count: int) -> None:
        """Count the work on items or characters as steps, so that MAX_STEPS limits all work on a file.

        Callers pass ITEMS_PER_STEP (16) for an item that takes as much time as a step.
        """
        self.step_count += item_count // ITEMS_PER_STEP

    def find_column(self, line: int, offset: int) -> int:
        """Return the column in characters, from 1, of an offset in UTF-8 bytes on a line."""
        text = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        if text.isascii():
            return offset + 1
        data, characters_before = _encode_line(text)
        block = min(offset, len(data)) // _BLOCK_BYTES
        block_prefix = data[block * _BLOCK_BYTES : offset].translate(None, _CONTINUATION_BYTES)
        return characters_before[block] + len(block_prefix) + 1

    def format_position(self, node: Any) -> str:
        """Return the position of a node for messages: "cell 2, line 5" or "line 5"."""
        cell = f"cell {self.cell_number}, " if self.cell_number is not None else ""
        return f"{cell}line {node.lineno}"

    def make_fix(
        self, line: Any, start_offset: int, end_offset: Any, old_text: str, new_text: str
    ) -> Fix | None:
        """Return the fix that replaces `old_text` at two byte offsets of a line, or None if it is not there."""
        if not line or end_offset is None or not 0 < line <= len(self.lines):
            return None
        start_column, end_column = self.find_column(line, start_offset), self.find_column(line, end_offset)
        if self.lines[line - 1][start_column - 1 : end_column - 1] != old_text:
            return None
        return Fix(
            line=line,
            column=start_column,
            end_line=line,
            end_column=end_column,
            new_text=new_text,
            old_text=old_text,
        )

    def report(
        self,
        name: str,
        node: Any,
        message: str,
        *,
        fix: Fix | None = None,
        position: tuple[Any, int] | None = None,
    ) -> None:
        """Add a finding of the kind `name` at a node, or at the (line, byte offset) `position`.

        It is not added if this position already has a finding of this kind, or if the file already has MAX_FINDINGS.
        """
        line, offset = position if position is not None and position[0] else (node.lineno, node.col_offset)
        key = (name, self.cell_number, line, offset)
        if key not in self.problems and len(self.problems) < MAX_FINDINGS:
            self.problems[key] = LintProblem(
                kind_name=name,
                message=message,
                line=line,
                column=self.find_column(line, offset),
                cell_number=self.cell_number,
                fix=fix if self.offers_fixes else None,
            )

    def record_gpu_use(self, node: Any) -> None:
        """Record this node as the first use of the GPUs, unless they were used before."""
        if not self.state.first_use_line:
            self.state.first_use_line, self.state.first_use_position = node.lineno, self.format_position(node)
