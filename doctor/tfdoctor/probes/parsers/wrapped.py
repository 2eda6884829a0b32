"""Extract a tool's output from JSON, JSON lines, a notebook, a Markdown list or a sentence."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["unwrap"]

_MAX_JSON_CHARS = 16 << 20
"""Longer texts are not parsed as JSON."""
_MAX_JSON_DEPTH = 40
_RECORD_KEYS = ("log", "message", "msg", "text", "line")
"""Keys of a log record that can contain a program's output."""
_JSON_STRING_LINE = re.compile(r'[ \t]*("(?:[^"\\]|\\.)*"),?[ \t]*')
_BULLET = re.compile(r"[-*+] ")
_LIST_NUMBER = re.compile(r"([0-9]{1,4})[.)] ")
_INTRODUCTION = re.compile(
    r"^([A-Za-z`'*](?:[^\n|:,.]|\.(?! )){0,100} "
    r"(?:says|said|gave|(?:print|show|give|output|return)(?:s|ed))(?: me| this)?:?)[ \t]+(?=[^\n]{8})",
    re.MULTILINE,
)
"""A phrase such as "nvidia-smi shows" that an author writes before an output, on the same line."""


def unwrap(text: str) -> str:
    """Return the wrapped output, or the text itself if it is not wrapped. Never raise an exception."""
    first_char = text.lstrip("\ufeff \t\r\n")[:1]
    if first_char and first_char in '{["' and len(text) <= _MAX_JSON_CHARS:
        return _unwrap_document(text) or _unwrap_records(text) or text
    return _strip_bullets(_INTRODUCTION.sub(r"\1\n", text))


def _unwrap_document(text: str) -> str:
    """Return the output in a text that is a JSON document, or "" if there is none."""
    try:
        outputs = list(_iter_outputs(json.loads(text.lstrip("\ufeff")), 0))
    except (ValueError, RecursionError):
        return ""
    return "\n".join(outputs)


def _iter_outputs(value: Any, depth: int) -> Iterator[str]:
    """Yield the strings with several lines, and the lists of lines as one string.

    The JSON output of tools contains neither, so they are wrapped outputs.
    """
    if depth > _MAX_JSON_DEPTH:
        return
    if isinstance(value, str):
        if depth == 0 or "\n" in value:
            yield value.rstrip("\n")
    elif isinstance(value, list):
        if value and all(isinstance(item, str) for item in value):
            joined = "".join(value)
            if "\n" in joined:
                yield joined.rstrip("\n")
            return
        for item in value:
            yield from _iter_outputs(item, depth + 1)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _iter_outputs(item, depth + 1)


def _unwrap_records(text: str) -> str:
    """Return the texts in JSON lines (records or strings), or "" if too few lines are JSON.

    At least two lines and more than 60 % of all lines must be JSON.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    texts = [_unwrap_line(line) for line in lines]
    valid_texts = [content for content in texts if content is not None]
    return "\n".join(valid_texts) if len(valid_texts) >= 2 and len(valid_texts) * 10 > len(lines) * 6 else ""


def _unwrap_line(line: str) -> str | None:
    string_match = _JSON_STRING_LINE.fullmatch(line)
    try:
        value = json.loads(string_match[1] if string_match is not None else line)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, dict):
        value = next((value[key] for key in _RECORD_KEYS if isinstance(value.get(key), str)), None)
    return value.rstrip("\r\n") if isinstance(value, str) else None


def _strip_bullets(text: str) -> str:
    """Return the text without bullets or numbers if every line is a list item, else the text unchanged."""
    lines = text.splitlines()
    items = [line for line in lines if line.strip()]
    if len(items) < 2:
        return text
    if all(_BULLET.match(line) for line in items):
        return "\n".join(line[2:] for line in lines)
    number_matches = [_LIST_NUMBER.match(line) for line in items]
    numbers = [int(match[1]) for match in number_matches if match is not None]
    if len(numbers) == len(items) and numbers == list(range(numbers[0], numbers[0] + len(numbers))):
        return "\n".join(_LIST_NUMBER.sub("", line, count=1) for line in lines)
    return text
