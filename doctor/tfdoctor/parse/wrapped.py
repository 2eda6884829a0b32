"""Outputs inside something else: a string of JSON, a record a line, a notebook, a list of Markdown, a sentence."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["unwrap"]

_MAX_JSON_CHARS = 16 << 20
"""Characters of JSON that are read."""
_MAX_DEPTH = 40
_KEYS = ("log", "message", "msg", "text", "line")
"""Where records have what a program printed."""
_QUOTED = re.compile(r'[ \t]*("(?:[^"\\]|\\.)*"),?[ \t]*')
_BULLET = re.compile(r"[-*+] ")
_NUMBER = re.compile(r"([0-9]{1,4})[.)] ")
_SAYS = re.compile(
    r"^([A-Za-z`'*](?:[^\n|:,.]|\.(?! )){0,100} "
    r"(?:says|said|gave|(?:print|show|give|output|return)(?:s|ed))(?: me| this)?:?)[ \t]+(?=[^\n]{8})",
    re.MULTILINE,
)
"""What somebody writes before an output on its first line. No program begins a line so."""


def unwrap(text: str) -> str:
    """Return what was printed; the text itself where it is not inside anything. Never raises."""
    begins = text.lstrip("\ufeff \t\r\n")[:1]
    if begins and begins in '{["' and len(text) <= _MAX_JSON_CHARS:
        return _document(text) or _records(text) or text
    return _strip_bullets(_SAYS.sub(r"\1\n", text))


def _document(text: str) -> str:
    try:
        found = list(_list_printed(json.loads(text.lstrip("\ufeff")), 0))
    except (ValueError, RecursionError):
        return ""
    return "\n".join(found)


def _list_printed(value: Any, depth: int) -> Iterator[str]:
    """Yield the strings of several lines, and the lists of lines.

    Tools that print JSON themselves have none.
    """
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, str):
        if depth == 0 or "\n" in value:
            yield value.rstrip("\n")
    elif isinstance(value, list):
        if value and all(isinstance(one, str) for one in value):
            joined = "".join(value)
            if "\n" in joined:
                yield joined.rstrip("\n")
            return
        for one in value:
            yield from _list_printed(one, depth + 1)
    elif isinstance(value, dict):
        for one in value.values():
            yield from _list_printed(one, depth + 1)


def _records(text: str) -> str:
    """Return one record or one string a line."""
    lines = [line for line in text.splitlines() if line.strip()]
    said = [_unwrap_line(line) for line in lines]
    kept = [one for one in said if one is not None]
    return "\n".join(kept) if len(kept) >= 2 and len(kept) * 10 > len(lines) * 6 else ""


def _unwrap_line(line: str) -> str | None:
    quoted = _QUOTED.fullmatch(line)
    try:
        value = json.loads(quoted[1] if quoted is not None else line)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, dict):
        value = next((value[key] for key in _KEYS if isinstance(value.get(key), str)), None)
    return value.rstrip("\r\n") if isinstance(value, str) else None


def _strip_bullets(text: str) -> str:
    """Without the bullets or numbers of a list of which every line is an item. The lists of YAML are conda's."""
    lines = text.splitlines()
    filled = [line for line in lines if line.strip()]
    if len(filled) < 2:
        return text
    if all(_BULLET.match(line) for line in filled):
        return "\n".join(line[2:] for line in lines)
    numbers = [_NUMBER.match(line) for line in filled]
    counted = [int(one[1]) for one in numbers if one is not None]
    if len(counted) == len(filled) and counted == list(range(counted[0], counted[0] + len(counted))):
        return "\n".join(_NUMBER.sub("", line, count=1) for line in lines)
    return text
