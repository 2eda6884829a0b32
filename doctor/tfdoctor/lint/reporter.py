"""The base class of all checks of Python: it collects findings, each place once."""

from __future__ import annotations

from collections import Counter
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from tfdoctor.compat import Compat
from tfdoctor.lint.models import Fix, LintProblem, LintTarget

if TYPE_CHECKING:
    from tfdoctor.compat.api_names import ApiNames
    from tfdoctor.lint.values import WalkState

__all__ = ["MAX_FINDINGS", "MAX_STEPS", "MAX_TEXT_CHARS", "Reporter"]

MAX_FINDINGS = 500
"""Findings of one Python file."""
MAX_STEPS = 250_000
"""Statements and expressions evaluated in a file; those of a function count at each call."""
ITEMS_PER_STEP = 16
"""Items of a container, or characters of a text, that take as much time as one expression."""
MAX_TEXT_CHARS = 100_000
"""Characters of the longest text that is composed."""
_BLOCK_BYTES = 1024
_CONTINUATION_BYTES = bytes(range(0x80, 0xC0))


@lru_cache(maxsize=4)
def _encode_line(text: str) -> tuple[bytes, list[int]]:
    """Return a line in UTF-8, and the number of characters before each block of it."""
    data = text.encode("utf-8", "replace")
    blocks = (data[start : start + _BLOCK_BYTES] for start in range(0, len(data), _BLOCK_BYTES))
    return data, [0, *accumulate(len(block.translate(None, _CONTINUATION_BYTES)) for block in blocks)]


class Reporter:
    """The state and functions that all checks of Python share."""

    state: WalkState
    look: Any
    run: Any
    value: Any

    def __init__(self, target: LintTarget, text: str) -> None:
        self.target = target
        self.text = text
        self.problems: dict[tuple[Any, ...], LintProblem] = {}
        self.cell_number: int | None = None
        self.lines: list[str] = []
        self.certain = True
        """Whether a correction is certain; false for a dict that only looks like an environment."""
        self.first_line = 0
        """Lines of the notebook before this cell."""
        self.guarded = 0
        """Depth of nested branches that test the version of TensorFlow."""
        self.maybe = 0
        """Depth of nested branches that may not run."""
        self.single = False
        """Whether the code runs only if there is one GPU."""
        self.uncalled = False
        self.graph = False
        self.python_2 = False
        self.devices: list[Any] = []
        self.loops: list[Any] = []
        self.tf_names: set[str] = set()
        self.steps = 0
        """Statements and expressions evaluated so far."""
        self.cells_loading: Counter[str] = Counter()
        """The number of cells of the notebook that load each name."""
        self.names_loaded: frozenset[str] = frozenset()
        """Names that this cell loads."""

    @cached_property
    def names(self) -> ApiNames:
        """The names of the API by release of TensorFlow."""
        return Compat.load().api_names

    def is_loaded_elsewhere(self, name: str) -> bool:
        """Return whether another cell of the notebook loads the name."""
        return self.cells_loading[name] > (name in self.names_loaded)

    def spend(self, items: int) -> None:
        """Count the work on items or characters, so that MAX_STEPS bounds all work on a file."""
        self.steps += items // ITEMS_PER_STEP

    def column(self, line: int, offset: int) -> int:
        """Return the column in characters, from 1, of an offset in UTF-8 bytes."""
        text = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        if text.isascii():
            return offset + 1
        data, characters_before = _encode_line(text)
        block = min(offset, len(data)) // _BLOCK_BYTES
        rest = data[block * _BLOCK_BYTES : offset].translate(None, _CONTINUATION_BYTES)
        return characters_before[block] + len(rest) + 1

    def format_position(self, node: Any) -> str:
        """Return the position of a node for messages: "cell 2, line 5" or "line 5"."""
        cell = f"cell {self.cell_number}, " if self.cell_number is not None else ""
        return f"{cell}line {node.lineno}"

    def make_fix(self, line: Any, start: int, end: Any, old: str, new: str) -> Fix | None:
        """Return the fix that replaces `old` between two offsets of a line; None if the text there differs."""
        if not line or end is None or not 0 < line <= len(self.lines):
            return None
        first, last = self.column(line, start), self.column(line, end)
        if self.lines[line - 1][first - 1 : last - 1] != old:
            return None
        return Fix(line, first, line, last, new, old)

    def report(
        self, name: str, node: Any, message: str, *, fix: Fix | None = None, at: tuple[Any, int] | None = None
    ) -> None:
        """Add a finding, unless the place has one of this kind already or the file has too many."""
        line, offset = at if at is not None and at[0] else (node.lineno, node.col_offset)
        key = (name, self.cell_number, line, offset)
        if key not in self.problems and len(self.problems) < MAX_FINDINGS:
            self.problems[key] = LintProblem(
                name,
                message,
                line,
                self.column(line, offset),
                cell=self.cell_number,
                fix=fix if self.certain else None,
            )

    def note_gpu_use(self, node: Any) -> None:
        """Note that the GPUs are used here at the latest."""
        if not self.state.used:
            self.state.used, self.state.use_place = node.lineno, self.format_position(node)
