"""Notebooks: their cells in order, and the lines in them that are IPython's."""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = ["cells", "plain"]

_ENV = re.compile(r"(\s*)%(?:env|set_env)\s+([A-Za-z_]\w{0,60})(?:\s*=\s*|\s+)(.*)\Z")
_SHELL = re.compile(r"(\s*)(?:[\w, ]+=\s*)?!{1,2}(.*)\Z")
_MAGIC = re.compile(r"(\s*)(?:[\w, ]+=\s*)?%|(\s*)\?|[^#'\"]*\w\?{1,2}\s*\Z")
_CELL = re.compile(r"\s*%%(\w+)")


def cells(text: str) -> list[tuple[int, str]]:
    """(number from 1, the text) of each code cell. Raises ValueError."""
    try:
        raw = json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    if not isinstance(raw, dict):
        msg = "it is not a notebook"
        raise ValueError(msg)  # noqa: TRY004 - a file, not an argument
    found: Any = raw.get("cells") or []
    if not found and isinstance(raw.get("worksheets"), list):
        found = [
            one for sheet in raw["worksheets"] if isinstance(sheet, dict) for one in sheet.get("cells") or ()
        ]
    out = []
    for number, cell in enumerate(found if isinstance(found, list) else [], 1):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        source = cell.get("source", cell.get("input", ""))
        if isinstance(source, list):
            source = "".join(one for one in source if isinstance(one, str))
        if isinstance(source, str):
            out.append((number, source))
    return out


def plain(source: str) -> str:
    """A cell as Python: its magics become calls that the checks know, or nothing."""
    first = _CELL.match(source)
    if first is not None:
        kind = first[1]
        if kind in ("bash", "sh", "script", "shell"):
            body = source.partition("\n")[2]
            return f"__tfdoctor_shell({body!r})"
        if kind in ("time", "timeit", "capture", "prun"):
            return "\n" + plain(source.partition("\n")[2])
        return ""
    if not re.search(r"[%!?]", source):
        return source
    lines = source.split("\n")
    for number, line in enumerate(lines):
        if match := _ENV.match(line):
            lines[number] = f"{match[1]}__tfdoctor_env({match[2]!r}, {match[3].strip()!r})"
        elif match := _SHELL.match(line):
            lines[number] = f"{match[1]}__tfdoctor_shell({match[2]!r})"
        elif match := _MAGIC.match(line):
            lines[number] = f"{line[: len(line) - len(line.lstrip())]}pass"
    return "\n".join(lines)
