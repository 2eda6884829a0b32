"""Findings with a certain correction → the corrected text, and the difference."""

from __future__ import annotations

import difflib
import json
from typing import TYPE_CHECKING

from tfdoctor.lint.notebooks import cells

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.lint.models import Fix, Problem

__all__ = ["difference", "fixed"]


def fixed(text: str, problems: Sequence[Problem], kind: str) -> str:
    """The text with every safe fix in it. What cannot be placed for sure stays as it is."""
    safe = [one for one in problems if one.fix is not None and one.fix.safe]
    if not safe:
        return text
    if kind != "notebook":
        end = "\r\n" if "\r\n" in text else "\n"
        lines = text.split(end)
        if text.startswith("\ufeff"):
            lines[0] = lines[0][1:]
        _apply(lines, [one.fix for one in safe if one.fix is not None])
        return ("\ufeff" if text.startswith("\ufeff") else "") + end.join(lines)
    sources = dict(cells(text))
    for number in {one.cell for one in safe}:
        if number is None or number not in sources:
            continue
        before = sources[number].split("\n")
        after = list(before)
        _apply(after, [one.fix for one in safe if one.fix is not None and one.cell == number])
        for old, new in zip(before, after, strict=True):
            for ascii_only in (False, True):
                spelled, becomes = (json.dumps(one, ensure_ascii=ascii_only)[1:-1] for one in (old, new))
                if old != new and text.count(f'"{spelled}') == 1:
                    text = text.replace(f'"{spelled}', f'"{becomes}')
                    break
    return text


def _apply(lines: list[str], fixes: Sequence[Fix]) -> None:
    taken: set[int] = set()
    for fix in sorted(fixes, key=lambda one: (one.line, one.column), reverse=True):
        if fix.line != fix.end_line or not 0 < fix.line <= len(lines):
            continue
        line = lines[fix.line - 1]
        if not 0 < fix.column <= fix.end_column <= len(line) + 1:
            continue
        places = {fix.line * 100_000 + place for place in range(fix.column, fix.end_column)}
        if places & taken:
            continue
        taken |= places
        lines[fix.line - 1] = line[: fix.column - 1] + fix.text + line[fix.end_column - 1 :]


def difference(path: str, before: str, after: str) -> str:
    """A unified diff; empty where nothing differs."""
    name = path.replace("\n", "?")
    rows = difflib.unified_diff(
        before.splitlines(), after.splitlines(), f"a/{name}", f"b/{name}", lineterm=""
    )
    return "".join(f"{row}\n" for row in rows)
