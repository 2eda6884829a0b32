"""Edits of a text file, as spans of its bytes: everything outside the spans stays as it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Edit", "EditError", "Source", "apply_edits", "edits_of_text"]


class EditError(Exception):
    """Why a file cannot be edited."""


@dataclass(frozen=True, slots=True)
class Source:
    """The content of a text file, as bytes and decoded."""

    data: bytes
    text: str
    """Without a byte order mark; line endings as in the file."""
    codec: str
    mark: bytes = b""
    """The byte order mark."""


@dataclass(frozen=True, slots=True, order=True)
class Edit:
    """Bytes to replace."""

    start: int
    """The offset of the first byte."""
    old: bytes
    new: bytes


def edits_of_text(source: Source, replacements: Iterable[tuple[int, int, str]]) -> list[Edit]:
    """Return the edits for (start, end, new text), offsets in characters of the text; of overlapping ones the first.

    Raises EditError if the text, encoded again, is not the bytes of the file, or if its encoding cannot hold new text.
    """
    replacements = sorted(set(replacements))
    if not replacements:
        return []
    try:
        exact = source.mark + source.text.encode(source.codec, "surrogatepass") == source.data
    except (UnicodeError, LookupError):
        exact = False
    if not exact:
        msg = f"its encoding ({source.codec}) cannot be written back unchanged"
        raise EditError(msg)
    edits, position, offset = [], 0, len(source.mark)
    expected = []
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
        expected += [source.text[position:start], new]
        position, offset = end, offset + len(old)
    corrected = "".join([*expected, source.text[position:]])
    try:
        changed = apply_edits(source.data, edits)
        exact = changed == source.mark + corrected.encode(source.codec, "surrogatepass")
    except (EditError, UnicodeError):
        exact = False
    if not exact:  # the bytes of a character depend on what stands before it, as in punycode
        msg = f"its encoding ({source.codec}) cannot be edited in part"
        raise EditError(msg)
    return edits


def apply_edits(data: bytes, edits: Iterable[Edit]) -> bytes:
    """Return the bytes with the edits made. Raises EditError if old bytes do not stand there or two edits overlap."""
    parts, position = [], 0
    for edit in sorted(edits):
        end = edit.start + len(edit.old)
        if edit.start < position or data[edit.start : end] != edit.old:
            raise EditError("the text to correct is not where it was found")
        parts += [data[position : edit.start], edit.new]
        position = end
    return b"".join([*parts, data[position:]])
