"""Where a shared object for x86-64 logs, without running it: source file, line, severity and text of each message.

`LOG(INFO) << "text"` makes a `LogMessage(file, line, severity)`: in machine code the address of the file's name goes
into one register, and beside it stands the line as a constant that goes into edx:

    lea  rsi, [rip + file]
    xor  ecx, ecx              severity: 0 is information
    mov  edx, 1663
    call LogMessage::LogMessage
    lea  rsi, [rip + text]

Compilers order these as they like; what can stand between them is few and short. A message whose line comes from
elsewhere (branches that were folded into one) is not seen: nothing follows from its absence.
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
"""What such a name can begin with where the byte before it looks like a letter."""
TEXT = re.compile(rb"[\t\n\x20-\x7e]{3,}")
WINDOW = 64
"""Bytes before and behind the name of the file in which the line can stand."""
AFTER = 240
"""Bytes behind in which the address of the message's text can stand."""
LONGEST = 80
"""Characters of a text that are kept."""

_MODRM = (
    rb"(?:[\x40-\x43\x45-\x4b\x4d-\x53\x55-\x5b\x5d-\x63\x65-\x6b\x6d-\x73\x75-\x7b\x7d-\x7f][\0-\xff]"
    rb"|[\x44\x4c\x54\x5c\x64\x6c\x74\x7c][\0-\xff]{2}"
    rb"|[\x80-\x83\x85-\x8b\x8d-\x93\x95-\x9b\x9d-\xa3\xa5-\xab\xad-\xb3\xb5-\xbb\xbd-\xbf][\0-\xff]{4}"
    rb"|[\x84\x8c\x94\x9c\xa4\xac\xb4\xbc][\0-\xff]{5}"
    rb"|[\x04\x0c\x14\x1c\x24\x2c\x34\x3c][\0-\xff]"
    rb"|[\x05\x0d\x15\x1d\x25\x2d\x35\x3d][\0-\xff]{4}"
    rb"|[\x00-\x03\x06-\x0b\x0e-\x13\x16-\x1b\x1e-\x23\x26-\x2b\x2e-\x33\x36-\x3b\x3e\x3f\xc0-\xff])"
)
"""What follows an operation code: registers, or an address."""
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
"""Instructions that stand between: moves, addresses, sums, stores. Conditional short jumps: what follows
is where they do not go. No other jump and no call."""
LEA = b"\x48\x8d\x35"
"""`lea rsi, [rip + …]`: the file is what a LogMessage is given first."""
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
    """As the compiler was given it: `tensorflow/core/common_runtime/gpu/gpu_device.cc`."""
    line: int
    severity: str
    """`I`, `W`, `E`, `F`; empty where the code does not say it as a constant."""
    text: str
    """What its text begins with, or has as its first constant part; empty where none was found."""


class Section(NamedTuple):
    """A part of the file."""

    name: str
    address: int
    offset: int
    size: int
    executable: bool


def list_messages(data: Data) -> list[Logged]:
    """Every message of a shared object, sorted. Raises ValueError where it is none for x86-64."""
    sections = list(_sections(data))
    names = _names(data, sections)
    found: set[Logged] = set()
    for section in sections:
        if section.executable:
            for place, name in _references(data, section, names):
                one = _message(data, section, sections, place)
                if one is not None:
                    found.add(Logged(name, *one))
    return sorted(found)


def _sections(data: Data) -> Iterator[Section]:
    if data[:5] != b"\x7fELF\x02" or struct.unpack_from("<H", data, 18)[0] != 62:
        msg = "no shared object for x86-64"
        raise ValueError(msg)
    start = struct.unpack_from("<Q", data, 40)[0]
    count, strings = struct.unpack_from("<HH", data, 60)
    rows = [struct.unpack_from("<IIQQQQ", data, start + 64 * i) for i in range(count)]
    table = rows[strings][4]
    for name, kind, flags, address, offset, size in rows:
        if kind == 1 and flags & 2:  # PROGBITS that are loaded
            end = data.find(b"\0", table + name)
            yield Section(data[table + name : end].decode(), address, offset, size, bool(flags & 4))


def _names(data: Data, sections: list[Section]) -> dict[int, str]:
    """Address → the name of a source file."""
    found = {}
    for section in sections:
        if "rodata" in section.name:
            for match in FILE.finditer(data[section.offset : section.offset + section.size]):
                name = match[0][:-1]
                for start in {0, *(root.start() for root in ROOT.finditer(name))}:
                    found[section.address + match.start() + start] = name[start:].decode()
    return found


def _references(data: Data, section: Section, names: dict[int, str]) -> Iterator[tuple[int, str]]:
    """(offset in the file, source file) of each `lea rsi, [rip + …]` that takes the address of a source file's name."""
    code = data[section.offset : section.offset + section.size]
    start = section.address + 7
    at = code.find(LEA)
    while 0 <= at <= section.size - 7:
        name = names.get(start + at + int.from_bytes(code[at + 3 : at + 7], "little", signed=True))
        if name is not None:
            yield section.offset + at, name
        at = code.find(LEA, at + 1)


def _message(
    data: Data, section: Section, sections: list[Section], place: int
) -> tuple[int, str, str] | None:
    """Line, severity and text of the message whose file is named at `place`; None where it is no message."""
    start = place + 7
    behind = data[start : start + WINDOW]
    ahead = data[max(section.offset, place - WINDOW) : place]
    match = BEHIND.match(behind)
    if match is not None:
        end = match.end()
        said = ahead[-5:] + match["before"] + match["after"]
    else:
        match = AHEAD.search(ahead)
        rest = AFTER_IT.match(behind)
        if match is None or rest is None:
            return None
        end = rest.end()
        said = match["before"] + rest[0]
    line = int.from_bytes(match["line"], "little")
    if not line:
        return None
    severity = SEVERITY.search(said)
    word = "" if severity is None else "IWEF"[severity[1][0]] if severity[1] else "I"
    return line, word, _text(data, section, sections, start + end)


def _text(data: Data, section: Section, sections: list[Section], start: int) -> str:
    """The first text whose address is taken from here on."""
    code = data[start : start + AFTER]
    for match in re.finditer(
        rb"[\x48\x4c]\x8d[\x05\x0d\x15\x1d\x25\x2d\x35\x3d]([\0-\xff]{4})", code, re.DOTALL
    ):
        at = section.address + start - section.offset + match.end()
        target = at + int.from_bytes(match[1], "little", signed=True)
        for one in sections:
            if "rodata" in one.name and one.address <= target < one.address + one.size:
                offset = target - one.address + one.offset
                text = TEXT.match(data[offset : offset + LONGEST])
                if text is None or FILE.match(data[offset : offset + 208]):
                    break
                return text[0].decode()
    return ""
