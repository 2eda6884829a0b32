"""Edit a text file by replacing spans of its bytes. Everything outside the spans stays unchanged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Edit", "EditError", "Source", "apply_edits", "make_edits"]


class EditError(Exception):
    """A file cannot be edited. The message states the reason."""


@dataclass(frozen=True, slots=True)
class Source:
    """The content of a text file, both as bytes and as text."""

    data: bytes
    text: str
    """The text without its byte order mark. Line endings are as in the file."""
    codec: str
    mark: bytes = b""
    """The byte order mark, or b"" if there is none."""


@dataclass(frozen=True, slots=True, order=True)
class Edit:
    """A replacement of bytes."""

    start: int
    """The offset of the first byte."""
    old: bytes
    new: bytes


def make_edits(source: Source, replacements: Iterable[tuple[int, int, str]]) -> list[Edit]:
    """Return the edits for replacements (start, end, new text), whose offsets count characters.

    Only the first of overlapping replacements is used. Raise EditError if encoding the text does not result in the
    bytes of the file, if the encoding lacks a character of the new text, or if it cannot encode a part of a text
    separately.
    """
    replacements = sorted(set(replacements))
    if not replacements:
        return []
    try:
        is_exact = source.mark + source.text.encode(source.codec, "surrogatepass") == source.data
    except (UnicodeError, LookupError):
        is_exact = False
    if not is_exact:
        msg = f"its encoding ({source.codec}) cannot be written back unchanged"
        raise EditError(msg)
    edits, position, offset = [], 0, len(source.mark)
    expected_parts = []
    for start, end, new in replacements:
        if start < position:
            continue
        offset += len(source.text[position:start].encode(source.codec, "surrogatepass"))
        old = source.text[start:end].encode(source.codec, "surrogatepass")
        try:
            edits.append(Edit(offset, old, new.encode(source.codec)))
        except UnicodeEncodeError as error:
            msg = f"its encoding ({source.codec}) has no character {new[error.start]!r}"
            raise EditError(msg) from error
        expected_parts += [source.text[position:start], new]
        position, offset = end, offset + len(old)
    expected_text = "".join([*expected_parts, source.text[position:]])
    try:
        edited = apply_edits(source.data, edits)
        is_exact = edited == source.mark + expected_text.encode(source.codec, "surrogatepass")
    except (EditError, UnicodeError):
        is_exact = False
    if not is_exact:  # the encoding has state, like punycode
        msg = f"its encoding ({source.codec}) cannot be edited in part"
        raise EditError(msg)
    return edits


def apply_edits(data: bytes, edits: Iterable[Edit]) -> bytes:
    """Apply the edits and return the bytes. Raise EditError if old bytes do not match or edits overlap."""
    parts, position = [], 0
    for edit in sorted(edits):
        end = edit.start + len(edit.old)
        if edit.start < position or data[edit.start : end] != edit.old:
            raise EditError("the text to correct is not where it was found")
        parts += [data[position : edit.start], edit.new]
        position = end
    return b"".join([*parts, data[position:]])
