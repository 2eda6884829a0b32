"""Archives that somebody takes for a log: what they are, and what to type to get at the log in them."""

from __future__ import annotations

import contextlib
import re
import shlex

from tfdoctor.errors import UsageError

__all__ = ["LONGEST_HEADER", "refuse"]

LONGEST_HEADER = 512
"""Bytes of the beginning that tell an archive."""
_OTHERS = (
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", "7z e -so {file}"),
    (b"Rar!\x1a\x07", "a RAR archive", "unrar p -inul {file}"),
    (b"\x1f\x9d", "packed with compress", "uncompress -c {file}"),
    (b"\x04\x22\x4d\x18", "packed with lz4", "lz4 -dc {file}"),
    (b"\x89LZO\0\r\n", "packed with lzop", "lzop -dc {file}"),
    (b"LZIP\x01", "packed with lzip", "lzip -dc {file}"),
)
_MEMBER = re.compile(r"[\w./@%+=:, -]{1,200}")


def refuse(head: bytes, shown: str, file: str | None) -> None:
    """Raise UsageError where these first bytes, unpacked, are those of an archive.

    `shown`: what it is called, safe to print. `file`: its name as it is typed; None where it came through a pipe.
    """
    name = shlex.quote(file) if file is not None and file.isprintable() else "FILE"
    if _is_tar(head):
        plain = head[156:157] in b"0\0" and not head[345:346].strip(b"\0")
        member = _quote_name(head[:100].split(b"\0")[0]) if plain else None
        msg = f"{shown} is a tar archive, not a log."
        raise UsageError(msg, hint=_hint(f"tar -xOf {name} {member or 'MEMBER'}", f"tar -tf {name}"))
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        member = _quote_name(head[30 : 30 + int.from_bytes(head[26:28], "little")]) if head[2] == 3 else None
        msg = f"{shown} is a zip archive, not a log."
        raise UsageError(msg, hint=_hint(f"unzip -p {name} {member or 'MEMBER'}", f"unzip -l {name}"))
    for magic, what, command in _OTHERS:
        if head.startswith(magic):
            msg = f"{shown} is {what}."
            raise UsageError(msg, hint=f"Unpack it: `{command.format(file=name)} | tfdoctor diagnose -`")


def _hint(reads: str, lists: str) -> str:
    return f"Read the log in it: `{reads} | tfdoctor diagnose -`; `{lists}` lists what is in it."


def _is_tar(head: bytes) -> bool:
    """Return whether a block is the header of a tar archive: it holds the sum of its own bytes."""
    field = head[148:156]
    if len(head) < 512 or not head[0]:
        return False
    with contextlib.suppress(ValueError):
        return int(field.strip(b" \0"), 8) == sum(head[:512]) - sum(field) + 8 * 32
    return False


def _quote_name(name: bytes) -> str | None:
    """Return the name of a file in an archive as it is typed; None for a folder and for unsafe names."""
    text = name.decode("utf-8", "replace")
    if not _MEMBER.fullmatch(text) or text.endswith("/") or text.startswith("-"):
        return None
    return shlex.quote(text)
