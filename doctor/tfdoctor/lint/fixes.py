"""From findings with a certain correction to edits of the file's bytes."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

from tfdoctor.lint.notebooks import code_cells
from tfdoctor.parse.edits import Edit, EditError, Source, edits_of_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.lint.models import Fix, Problem

__all__ = ["format_diff", "plan_edits"]

_LINE_ENDING = re.compile(r"\r\n|\r|\n")


def plan_edits(source: Source, problems: Sequence[Problem], kind: str) -> list[Edit]:
    """Return the edits for all certain corrections of a file. Raises EditError if it cannot be edited exactly."""
    fixes: dict[int | None, list[Fix]] = {}
    for one in problems:
        if one.fix is not None and one.fix.safe:
            fixes.setdefault(one.cell, []).append(one.fix)
    if not fixes:
        return []
    if kind != "notebook":
        return edits_of_text(source, _replacements(source.text, fixes.get(None, [])))
    return edits_of_text(
        source,
        [
            piece
            for cell in code_cells(source.text)
            for piece in cell.locate(_replacements(cell.source, fixes.get(cell.number, [])))
        ],
    )


def _replacements(text: str, fixes: Sequence[Fix]) -> list[tuple[int, int, str]]:
    """Return (start, end, new text) of each fix. Raises EditError if something else stands there."""
    starts = [0, *(match.end() for match in _LINE_ENDING.finditer(text))] if fixes else []
    out = []
    for fix in fixes:
        start = starts[fix.line - 1] + fix.column - 1 if 0 < fix.line <= len(starts) else -1
        end = start + len(fix.old)
        if start < 0 or text[start:end] != fix.old:
            raise EditError("the text to correct is not where it was found")
        out.append((start, end, fix.text))
    return out


def format_diff(path: str, before: str, after: str) -> str:
    """Return a unified diff; empty if nothing differs."""
    name = path.replace("\n", "?")
    rows = difflib.unified_diff(
        before.splitlines(), after.splitlines(), f"a/{name}", f"b/{name}", lineterm=""
    )
    return "".join(f"{row}\n" for row in rows)
