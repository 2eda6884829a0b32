"""Where a finding stands, told once."""

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

__all__ = ["MAX_FINDINGS", "MAX_STEPS", "MAX_TEXT_CHARS", "Telling"]

MAX_FINDINGS = 500
"""Findings of a file of Python."""
MAX_STEPS = 250_000
"""Statements and expressions of a file that are followed, those of functions each time that they are called."""
ITEMS_PER_STEP = 16
"""Items of a container or characters of a text that cost as much time as one expression."""
MAX_TEXT_CHARS = 100_000
"""Characters of a text that is put together."""
_BLOCK_BYTES = 1024
_CONTINUATION_BYTES = bytes(range(0x80, 0xC0))


@lru_cache(maxsize=4)
def _encode_line(text: str) -> tuple[bytes, list[int]]:
    """Return a line as UTF-8, and how many characters begin before each block of it."""
    data = text.encode("utf-8", "replace")
    blocks = (data[at : at + _BLOCK_BYTES] for at in range(0, len(data), _BLOCK_BYTES))
    return data, [0, *accumulate(len(block.translate(None, _CONTINUATION_BYTES)) for block in blocks)]


class Telling:
    """What all checks of Python have in common."""

    state: WalkState
    look: Any
    run: Any
    value: Any

    def __init__(self, asked: LintTarget, text: str) -> None:
        self.asked = asked
        self.text = text
        self.problems: dict[tuple[Any, ...], LintProblem] = {}
        self.cell_number: int | None = None
        self.lines: list[str] = []
        self.certain = True
        """Whether a correction is certain: not of a dict that only looks like an environment."""
        self.first_line = 0
        """Lines of a notebook before this cell."""
        self.guarded = 0
        """Branches, one within the other, that ask which TensorFlow it is."""
        self.maybe = 0
        """Branches that may not be taken."""
        self.single = False
        """Whether there is one GPU here."""
        self.uncalled = False
        self.graph = False
        self.python_2 = False
        self.devices: list[Any] = []
        self.loops: list[Any] = []
        self.tf_names: set[str] = set()
        self.steps = 0
        """Statements and expressions that were followed."""
        self.cells_loading: Counter[str] = Counter()
        """How many cells of the notebook load each name."""
        self.names_loaded: frozenset[str] = frozenset()
        """The names that this cell loads."""

    @cached_property
    def names(self) -> ApiNames:
        """Which TensorFlow has which names."""
        return Compat.load().api_names

    def is_loaded_elsewhere(self, name: str) -> bool:
        """Return whether another cell of the notebook loads the name."""
        return self.cells_loading[name] > (name in self.names_loaded)

    def spend(self, items: int) -> None:
        """Count the work on so many items or characters, so that all work on a file is bounded by MAX_STEPS."""
        self.steps += items // ITEMS_PER_STEP

    def column(self, line: int, offset: int) -> int:
        """Return a column in characters, from 1; `offset`: bytes of UTF-8."""
        text = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        if text.isascii():
            return offset + 1
        data, characters_before = _encode_line(text)
        block = min(offset, len(data)) // _BLOCK_BYTES
        rest = data[block * _BLOCK_BYTES : offset].translate(None, _CONTINUATION_BYTES)
        return characters_before[block] + len(rest) + 1

    def place(self, node: Any) -> str:
        cell = f"cell {self.cell_number}, " if self.cell_number is not None else ""
        return f"{cell}line {node.lineno}"

    def make_fix(self, line: Any, start: int, end: Any, old: str, new: str) -> Fix | None:
        """Return the fix that replaces `old` between two offsets of a line; None if it does not stand there."""
        if not line or end is None or not 0 < line <= len(self.lines):
            return None
        first, last = self.column(line, start), self.column(line, end)
        if self.lines[line - 1][first - 1 : last - 1] != old:
            return None
        return Fix(line, first, line, last, new, old)

    def tell(
        self, name: str, node: Any, message: str, *, fix: Fix | None = None, at: tuple[Any, int] | None = None
    ) -> None:
        """One finding. The same at the same place is told once."""
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

    def use(self, node: Any) -> None:
        """The GPUs are used here at the latest."""
        if not self.state.used:
            self.state.used, self.state.use_place = node.lineno, self.place(node)
