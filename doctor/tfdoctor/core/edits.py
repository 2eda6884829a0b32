"""Edit a text file by replacing spans of its bytes. Everything outside the spans stays unchanged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Edit", "EditError", "SourceText", "apply_edits", "make_edits"]


class EditError(Exception):
    """A file cannot be edited. The message states the reason."""


@dataclass(frozen=True, slots=True)
class SourceText:
    """The content of a text file, both as bytes and as text."""

    data: bytes
    text: str
    """The text without its byte order mark. Line endings are as in the file."""
    codec: str
    byte_order_mark: bytes = b""
    """The byte order mark, or b"" if there is none."""


@dataclass(frozen=True, slots=True, order=True)
class Edit:
    """A replacement of bytes."""

    start: int
    """The offset of the first byte."""
    old_bytes: bytes
    """The bytes before the replacement."""
    new_bytes: bytes
    """The bytes after the replacement."""


def make_edits(source: SourceText, replacements: Iterable[tuple[int, int, str]]) -> list[Edit]:
    """Return the edits for replacements (start, end, new text), whose offsets count characters.

    Of overlapping replacements, only the first is used. Raise EditError if the encoded text differs from the bytes of
    the file, if the encoding lacks a character of the new text, or if it cannot encode parts of a text separately.
    """
    replacements = sorted(set(replacements))
    if not replacements:
        return []
    try:
        is_exact = source.byte_order_mark + source.text.encode(source.codec, "surrogatepass") == source.data
    except (UnicodeError, LookupError):
        is_exact = False
    if not is_exact:
        msg = f"its encoding ({source.codec}) cannot be written back unchanged"
        raise EditError(msg)
    edits, position, byte_offset = [], 0, len(source.byte_order_mark)
    expected_parts = []
    for start, end, new_text in replacements:
        if start < position:
            continue
        byte_offset += len(source.text[position:start].encode(source.codec, "surrogatepass"))
        old_bytes = source.text[start:end].encode(source.codec, "surrogatepass")
        try:
            edits.append(Edit(byte_offset, old_bytes, new_text.encode(source.codec)))
        except UnicodeEncodeError as error:
            msg = f"its encoding ({source.codec}) has no character {new_text[error.start]!r}"
            raise EditError(msg) from error
        expected_parts += [source.text[position:start], new_text]
        position, byte_offset = end, byte_offset + len(old_bytes)
    expected_text = "".join([*expected_parts, source.text[position:]])
    try:
        edited = apply_edits(source.data, edits)
        is_exact = edited == source.byte_order_mark + expected_text.encode(source.codec, "surrogatepass")
    except (EditError, UnicodeError):
        is_exact = False
    if not is_exact:  # the bytes of a character depend on the text around it, as in punycode
        msg = f"its encoding ({source.codec}) cannot be edited in part"
        raise EditError(msg)
    return edits


def apply_edits(data: bytes, edits: Iterable[Edit]) -> bytes:
    """Apply the edits and return the bytes. Raise EditError if old bytes do not match or edits overlap."""
    parts, position = [], 0
    for edit in sorted(edits):
        end = edit.start + len(edit.old_bytes)
        if edit.start < position or data[edit.start : end] != edit.old_bytes:
            raise EditError("the text to correct is not where it was found")
        parts += [data[position : edit.start], edit.new_bytes]
        position = end
    return b"".join([*parts, data[position:]])
