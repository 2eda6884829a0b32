"""Find the log messages in a shared object for x86-64 without running it: source file, line, severity and text.

`LOG(INFO) << "text"` creates a `LogMessage(file, line, severity)`. In machine code, the address of the file name is
loaded into one register, and nearby the line is loaded as a constant into edx:

    lea  rsi, [rip + file]
    xor  ecx, ecx              severity: 0 is information
    mov  edx, 1663
    call LogMessage::LogMessage
    lea  rsi, [rip + text]

Compilers use any order, but only a few short instructions can come between. Messages whose line is not a constant
there (merged branches) are not found, so a missing message proves nothing.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import mmap
    from collections.abc import Iterator

    Data = bytes | mmap.mmap

__all__ = ["Logged", "list_messages"]

FILE = re.compile(rb"[\w./+-]{3,200}\.(?:cc|cpp)\0")
ROOT = re.compile(rb"(?:tensorflow|external|third_party)/")
"""Possible beginning of a file name if the byte before it looks like a letter."""
TEXT = re.compile(rb"[\t\n\x20-\x7e]{3,}")
LINE_WINDOW_BYTES = 64
"""Bytes before and after the reference to the file name in which the line can be."""
TEXT_WINDOW_BYTES = 240
"""Bytes after the call in which the address of the message's text can be."""
MAX_TEXT_CHARS = 80
"""Maximum characters of a text that are kept."""

_MODRM = (
    rb"(?:[\x40-\x43\x45-\x4b\x4d-\x53\x55-\x5b\x5d-\x63\x65-\x6b\x6d-\x73\x75-\x7b\x7d-\x7f][\0-\xff]"
    rb"|[\x44\x4c\x54\x5c\x64\x6c\x74\x7c][\0-\xff]{2}"
    rb"|[\x80-\x83\x85-\x8b\x8d-\x93\x95-\x9b\x9d-\xa3\xa5-\xab\xad-\xb3\xb5-\xbb\xbd-\xbf][\0-\xff]{4}"
    rb"|[\x84\x8c\x94\x9c\xa4\xac\xb4\xbc][\0-\xff]{5}"
    rb"|[\x04\x0c\x14\x1c\x24\x2c\x34\x3c][\0-\xff]"
    rb"|[\x05\x0d\x15\x1d\x25\x2d\x35\x3d][\0-\xff]{4}"
    rb"|[\x00-\x03\x06-\x0b\x0e-\x13\x16-\x1b\x1e-\x23\x26-\x2b\x2e-\x33\x36-\x3b\x3e\x3f\xc0-\xff])"
)
"""Pattern of what follows an operation code: registers, or an address."""
_BETWEEN = (
    rb"(?:[\x40-\x4f]?(?:[\x01\x03\x09\x0b\x21\x23\x29\x2b\x31\x33\x39\x3b\x63\x84\x85\x88-\x8b\x8d]"
    + _MODRM
    + rb"|"
    rb"[\xb8\xb9\xbb-\xbf][\0-\xff]{4}|\x83[\xc0-\xff][\0-\xff]|\xc7" + _MODRM + rb"[\0-\xff]{4}|"
    rb"[\xc1\xc6]"
    + _MODRM
    + rb"[\0-\xff]|\x81[\xc0-\xff][\0-\xff]{4}|[\xd1\xf7]"
    + _MODRM
    + rb"|[\x70-\x7f][\0-\xff]|[\x50-\x57]|\x90|\x0f[\x10\x11\x28\x29\x40-\x4f\x57\xb6\xb7]"
    + _MODRM
    + rb")|"
    rb"[\x66\xf2\xf3]\x0f[\x10\x11\x28\x29\x57\x6e\x6f\x7e\x7f\xd6\xef]" + _MODRM + rb"|"
    rb"\xc5[\0-\xff][\x10\x11\x28\x29\x57\x6e\x6f\x7e\x7f\xd6\xef]" + _MODRM + rb"|"
    rb"\xc4[\0-\xff]{2}[\x10\x11\x28\x29\x57\x6e\x6f\x7e\x7f\xd6\xef]" + _MODRM + rb")"
)
"""Pattern of the instructions that may come between: moves, addresses, sums, stores.

Conditional short jumps are included, because the code after them runs if they are not taken. Other jumps and calls
are not.
"""
LEA = b"\x48\x8d\x35"
"""The bytes of `lea rsi, [rip + …]`: the file name is the first argument of LogMessage."""
BEHIND = re.compile(
    rb"(?P<before>" + _BETWEEN + rb"{0,8}?)\xba(?P<line>[\0-\xff]{2})\0\0(?P<after>" + _BETWEEN + rb"{0,8})",
    re.DOTALL,
)
AHEAD = re.compile(rb"\xba(?P<line>[\0-\xff]{2})\0\0(?P<before>" + _BETWEEN + rb"{0,8})\Z", re.DOTALL)
AFTER_IT = re.compile(_BETWEEN + rb"{0,8}", re.DOTALL)
SEVERITY = re.compile(rb"\x31\xc9|\x33\xc9|\xb9([\x01\x02\x03])\0\0\0")


class Logged(NamedTuple):
    """One message that the code can print."""

    file: str
    """The path as the compiler got it: `tensorflow/core/common_runtime/gpu/gpu_device.cc`."""
    line: int
    severity: str
    """`I`, `W`, `E`, `F`; empty if it is not a constant in the code."""
    text: str
    """The first constant part of its text; empty if none was found."""


class Section(NamedTuple):
    """A section of the file."""

    name: str
    address: int
    offset: int
    size: int
    executable: bool


def list_messages(data: Data) -> list[Logged]:
    """Return every message of a shared object, sorted. Raise ValueError if it is not for x86-64."""
    sections = list(_list_sections(data))
    names = _find_file_names(data, sections)
    messages: set[Logged] = set()
    for section in sections:
        if section.executable:
            for offset, name in _find_references(data, section, names):
                message = _parse_message(data, section, sections, offset)
                if message is not None:
                    messages.add(Logged(name, *message))
    return sorted(messages)


def _list_sections(data: Data) -> Iterator[Section]:
    if data[:5] != b"\x7fELF\x02" or struct.unpack_from("<H", data, 18)[0] != 62:
        msg = "no shared object for x86-64"
        raise ValueError(msg)
    start = struct.unpack_from("<Q", data, 40)[0]
    count, strings = struct.unpack_from("<HH", data, 60)
    rows = [struct.unpack_from("<IIQQQQ", data, start + 64 * i) for i in range(count)]
    table = rows[strings][4]
    for name, kind, flags, address, offset, size in rows:
        if kind == 1 and flags & 2:  # PROGBITS sections that are loaded
            end = data.find(b"\0", table + name)
            yield Section(data[table + name : end].decode(), address, offset, size, bool(flags & 4))


def _find_file_names(data: Data, sections: list[Section]) -> dict[int, str]:
    """Return the name of a source file by its address."""
    name_by_address = {}
    for section in sections:
        if "rodata" in section.name:
            for match in FILE.finditer(data[section.offset : section.offset + section.size]):
                name = match[0][:-1]
                for start in {0, *(root.start() for root in ROOT.finditer(name))}:
                    name_by_address[section.address + match.start() + start] = name[start:].decode()
    return name_by_address


def _find_references(data: Data, section: Section, names: dict[int, str]) -> Iterator[tuple[int, str]]:
    """Yield (offset in the file, source file) of each `lea rsi, [rip + …]` with the address of a source
    file's name.
    """
    code = data[section.offset : section.offset + section.size]
    start = section.address + 7
    position = code.find(LEA)
    while 0 <= position <= section.size - 7:
        name = names.get(
            start + position + int.from_bytes(code[position + 3 : position + 7], "little", signed=True)
        )
        if name is not None:
            yield section.offset + position, name
        position = code.find(LEA, position + 1)


def _parse_message(
    data: Data, section: Section, sections: list[Section], place: int
) -> tuple[int, str, str] | None:
    """Return line, severity and text of the message whose file name is loaded at `place`; None if there is none."""
    start = place + 7
    behind = data[start : start + LINE_WINDOW_BYTES]
    ahead = data[max(section.offset, place - LINE_WINDOW_BYTES) : place]
    match = BEHIND.match(behind)
    if match is not None:
        end = match.end()
        instructions = ahead[-5:] + match["before"] + match["after"]
    else:
        match = AHEAD.search(ahead)
        following = AFTER_IT.match(behind)
        if match is None or following is None:
            return None
        end = following.end()
        instructions = match["before"] + following[0]
    line = int.from_bytes(match["line"], "little")
    if not line:
        return None
    severity = SEVERITY.search(instructions)
    letter = "" if severity is None else "IWEF"[severity[1][0]] if severity[1] else "I"
    return line, letter, _find_text(data, section, sections, start + end)


def _find_text(data: Data, section: Section, sections: list[Section], start: int) -> str:
    """Return the first text whose address is loaded after this offset."""
    code = data[start : start + TEXT_WINDOW_BYTES]
    for match in re.finditer(
        rb"[\x48\x4c]\x8d[\x05\x0d\x15\x1d\x25\x2d\x35\x3d]([\0-\xff]{4})", code, re.DOTALL
    ):
        next_address = section.address + start - section.offset + match.end()
        target = next_address + int.from_bytes(match[1], "little", signed=True)
        for candidate in sections:
            if (
                "rodata" in candidate.name
                and candidate.address <= target < candidate.address + candidate.size
            ):
                offset = target - candidate.address + candidate.offset
                text = TEXT.match(data[offset : offset + MAX_TEXT_CHARS])
                if text is None or FILE.match(data[offset : offset + 208]):
                    break
                return text[0].decode()
    return ""
