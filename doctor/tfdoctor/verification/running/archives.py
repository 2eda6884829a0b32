"""Recognize archives that are given instead of a log, and suggest commands to read the log in them."""

from __future__ import annotations

import contextlib
import re
import shlex

from tfdoctor.core.errors import UsageError

__all__ = ["HEADER_BYTES", "refuse_archive"]

HEADER_BYTES = 512
"""The number of first bytes that are enough to recognize an archive. A tar header has this size."""
_ARCHIVE_FORMATS = (
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", "7z e -so {file}"),
    (b"Rar!\x1a\x07", "a RAR archive", "unrar p -inul {file}"),
    (b"\x1f\x9d", "packed with compress", "uncompress -c {file}"),
    (b"\x04\x22\x4d\x18", "packed with lz4", "lz4 -dc {file}"),
    (b"\x89LZO\0\r\n", "packed with lzop", "lzop -dc {file}"),
    (b"LZIP\x01", "packed with lzip", "lzip -dc {file}"),
)
_SAFE_MEMBER_NAME = re.compile(r"[\w./@%+=:, -]{1,200}")


def refuse_archive(head: bytes, display_name: str, path: str | None) -> None:
    """Raise UsageError if the data begin like an archive.

    `head` are the first `HEADER_BYTES` of the data. `display_name` is the name for messages. `path` is the name as the
    user typed it; None if the data come through a pipe.
    """
    quoted_path = shlex.quote(path) if path is not None and path.isprintable() else "FILE"
    if _is_tar(head):
        # A plain member is a regular file (type flag at 156), and its name does not continue in the prefix field (at 345).
        is_plain = head[156:157] in b"0\0" and not head[345:346].strip(b"\0")
        member = _quote_name(head[:100].split(b"\0")[0]) if is_plain else None
        msg = f"{display_name} is a tar archive, not a log."
        raise UsageError(
            msg, hint=_format_hint(f"tar -xOf {quoted_path} {member or 'MEMBER'}", f"tar -tf {quoted_path}")
        )
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        # A local file header (PK\3\4) has the length of the member's name at 26, and the name at 30.
        member = _quote_name(head[30 : 30 + int.from_bytes(head[26:28], "little")]) if head[2] == 3 else None
        msg = f"{display_name} is a zip archive, not a log."
        raise UsageError(
            msg, hint=_format_hint(f"unzip -p {quoted_path} {member or 'MEMBER'}", f"unzip -l {quoted_path}")
        )
    for magic, kind, command in _ARCHIVE_FORMATS:
        if head.startswith(magic):
            msg = f"{display_name} is {kind}."
            raise UsageError(
                msg, hint=f"Unpack it: `{command.format(file=quoted_path)} | tfdoctor diagnose -`"
            )


def _format_hint(read_command: str, list_command: str) -> str:
    return (
        f"Read the log in it: `{read_command} | tfdoctor diagnose -`; `{list_command}` lists what is in it."
    )


def _is_tar(head: bytes) -> bool:
    """Return whether data begin with a tar header, which contains the sum of its bytes."""
    checksum_field = head[148:156]  # an octal number
    if len(head) < HEADER_BYTES or not head[0]:
        return False
    with contextlib.suppress(ValueError):
        # The sum is computed as if the checksum field had eight spaces.
        return int(checksum_field.strip(b" \0"), 8) == sum(head[:HEADER_BYTES]) - sum(checksum_field) + 8 * 32
    return False


def _quote_name(name: bytes) -> str | None:
    """Return the name of a member, quoted for a shell; None if it is a folder or the name is unsafe."""
    text = name.decode("utf-8", "replace")
    if not _SAFE_MEMBER_NAME.fullmatch(text) or text.endswith("/") or text.startswith("-"):
        return None
    return shlex.quote(text)
