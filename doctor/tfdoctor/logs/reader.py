"""Bytes of a log → the lines that were meant, each with the number of the line it began on.

People paste logs through terminals, schedulers, notebooks, issue forms and editors. Undone here: encodings, colours,
carriage returns, HTML and Markdown, quotes and prompts, escapes of JSON and of container engines, records that run
together on one line, records that a terminal cut at its width. Streams: memory does not grow with the log.
"""

from __future__ import annotations

import codecs
import html
import re
from collections import deque
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["LONGEST", "Line", "is_binary", "read_lines"]

LONGEST = 8192
"""Characters of a logical line; what is longer is cut into pieces."""
_LOOKAHEAD = 400
"""Physical lines that are looked at before the first is given out, to learn a terminal's width."""
_BLOCK = 1 << 16
_HUGE = 1 << 20
_WHOLE = 1 << 18
"""Bytes of the beginning that are always read line by line."""
_OVERLAP = 400
"""Characters that two pieces of a cut line share, so that no message is lost at the cut."""

_ANSI = re.compile(
    r"(?:\x1b|\\u001b|\\x1b|\\033)(?:\[[0-9;?]{0,32}[ -/]?[@-~]|\][^\x07\x1b]{0,200}\x07|[@-Z\\^_-])"
)
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]"
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_TAG = re.compile(
    r"</?(?:pre|span|code|p|div|br|li|ul|samp|tt|b|i|em|font|blockquote)(?:\s[^<>]{0,300})?/?>", re.I
)
_ESCAPED = re.compile(r"\\{1,16}([\"'_`*])")
_ESCAPED_NEWLINE = re.compile(r"\\{1,16}[rn](?:\\{1,16}n)?(?![a-z])")
_QUOTE = re.compile(r"(?:\s{0,12}(?:[>|#`]|[-*](?= ))\s{0,4}){1,6}")
_JSON = re.compile(r'^\s{0,24}"(.*?)(?:\\n)?",?\s{0,4}$')

_TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{1,6}:\s{0,2}[IWEFD] "
_ABSL = r"[IWEF]\d{4} \d\d:\d\d:\d[\d.]{1,18}\s{1,8}\d{1,20} [\w./-]{1,80}:\d{1,5}\] "
_OLD = r"[IWEF] (?:\./)?(?:tensorflow|external|third_party|[A-Za-z]:[\\/])[\w./\\ -]{1,160}\.(?:cc|h|cpp)[: ]\d{1,5}\]?"
_HEAD = re.compile(rf"(?:{_TIME}|{_ABSL}|(?<![\w:] )\b{_OLD})")
_OWN_LINE = re.compile(
    r"\s{0,8}(?:Skipping registering|To enable th|name: |pciBusID|coreClock|major: |totalMemory|Total memory|"
    r"Free memory|Your kernel|Traceback|File \"|>>>|\.\.\. |\[|Epoch|Limit:|InUse:|Please make sure|"
    r"Instructions for|"
    r"[|+=]|WARNING|INFO|ERROR|During handling|\w{1,40}(?:Error|Exception|Warning):|\S{1,60}[$#] |\(\S{1,40}\) )"
)


@dataclass(frozen=True, slots=True)
class Line:
    """One message, as it was meant."""

    number: int
    """The line in the file on which it begins, from 1."""
    text: str
    prefix: str = ""
    """What stood before the message: a rank, a process, a container's name. Empty where nothing did."""


def read_lines(
    chunks: Iterable[bytes],
    count: Callable[[int, int], None] | None = None,
    worth: Callable[[bytes], bool] | None = None,
) -> Iterator[Line]:
    """The logical lines of a stream of bytes. Never raises.

    `count` is told (lines, bytes) at the end. `worth` says of a piece of a long log whether anything in it can
    matter; where not, it is counted and passed over.
    """
    physical = _physical(chunks, count, worth)
    first = list(islice(physical, _LOOKAHEAD))
    width = _terminal_width([text for _, text in first])
    yield from _logical(chain(first, physical), width)


def is_binary(sample: bytes) -> bool:
    """Whether the first bytes of a file are no text at all."""
    if sample.startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return False
    if not sample or _utf16(sample):
        return False
    odd = sum(byte < 9 or 13 < byte < 27 or 27 < byte < 32 for byte in sample)
    return odd * 20 > len(sample)


# ---------------------------------------------------------------- bytes → physical lines


def _physical(
    chunks: Iterable[bytes], count: Callable[[int, int], None] | None, worth: Callable[[bytes], bool] | None
) -> Iterator[tuple[int, str]]:
    """(number, text) of each line; parts between carriage returns are lines with the same number."""
    number = size = 0
    for block in _blocks(chunks):
        size += len(block)
        if worth is not None and size > _WHOLE and not worth(block):
            number += block.count(b"\n")
            continue
        lines = block.split(b"\n")
        if not lines[-1]:
            lines.pop()
        for raw in lines:
            number += 1
            for piece in _decode(raw).rstrip("\r").split("\r"):
                for start in range(0, max(len(piece), 1), LONGEST - _OVERLAP):
                    yield number, piece[start : start + LONGEST]
                    if start + LONGEST >= len(piece):
                        break
    if count is not None:
        count(number, size)


def _blocks(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Pieces of some tens of KiB that end where a line ends; a line that is far longer is cut."""
    rest = b""
    for data in _as_utf8(chunks):
        start = 0
        whole = rest + data
        while len(whole) - start > _BLOCK:
            end = whole.rfind(b"\n", start, start + _BLOCK) + 1
            if end <= 0:
                end = whole.find(b"\n", start, start + _HUGE) + 1 or start + _HUGE
                if end > len(whole):
                    break
            yield whole[start:end]
            start = end
        rest = whole[start:]
    if rest:
        yield rest


def _as_utf8(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The bytes without a byte-order mark, and UTF-16 as UTF-8."""
    decoder: codecs.IncrementalDecoder | None = None
    for number, chunk in enumerate(chunks):
        data = chunk
        if number == 0:
            kind = _utf16(data)
            if kind is not None:
                decoder = codecs.getincrementaldecoder(kind)("replace")
            elif data.startswith(codecs.BOM_UTF8):
                data = data[3:]
        yield decoder.decode(data).encode("utf-8", "replace") if decoder is not None else data


def _utf16(data: bytes) -> str | None:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    sample = data[:400]
    if len(sample) >= 8 and sample[1::2].count(0) * 10 > len(sample) * 4:
        return "utf-16-le"
    if len(sample) >= 8 and sample[0::2].count(0) * 10 > len(sample) * 4:
        return "utf-16-be"
    return None


def _decode(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


# ---------------------------------------------------------------- cleaning one line


def clean_text(text: str) -> str:
    """A line without colours, control characters, tags and escapes."""
    if "\x1b" in text or "\\u001b" in text or "\\x1b" in text or "\\033" in text:
        text = _ANSI.sub("", text)
    if not text.isprintable():
        text = _SURROGATE.sub("\ufffd", _CONTROL.sub("", text.replace("\t", " ").replace("\xa0", " ")))
    if "&" in text and ";" in text:
        text = _CONTROL.sub("", html.unescape(text).replace("\xa0", " "))
    if "<" in text:
        text = _TAG.sub("", text)
    if "\\" in text:
        text = _ESCAPED.sub(r"\1", text)
    return text


def _unwrapped(text: str) -> Iterator[str]:
    """The lines inside a JSON string; the line itself where it is none."""
    if '"' in text:
        found = _JSON.match(text)
        if found is not None and found[1]:
            text = found[1]
    if "\\" in text and _ESCAPED_NEWLINE.search(text):
        yield from (part for part in _ESCAPED_NEWLINE.split(text) if part.strip())
    else:
        yield text


# ---------------------------------------------------------------- physical → logical


def _terminal_width(lines: list[str]) -> int:
    """The width at which a terminal cut these lines; 0 where none did.

    Cut lines share one length; a blank at the cut is lost, so one less counts as well.
    """
    widest = max((len(line) for line in lines), default=0)
    if widest < 60:
        return 0
    cut = heads = 0
    for this, following in pairwise(lines):
        if not following.strip():
            continue
        rest = following.removeprefix(_mark_of(this))
        if _head(rest) or _OWN_LINE.match(rest) or this.lstrip().startswith(("|", "+")):
            continue
        full = widest - 1 <= len(this) <= widest
        cut += full
        heads += _head(this) is not None and not full and len(this) >= 60
    return widest if cut and cut >= heads else 0


def _logical(lines: Iterable[tuple[int, str]], width: int) -> Iterator[Line]:
    """Join what was cut, split what ran together."""
    held: deque[str] = deque()
    began = 0
    last = mark = ""
    for number, line in lines:
        raw = line
        rest = line.removeprefix(mark) if held and mark else line
        if held and _goes_on(last, rest, len(line), width):
            raw = rest
            gap = " " if len(last) < width and not last.endswith(" ") and not raw.startswith(" ") else ""
            held.append(gap + raw)
            last = line
            if sum(map(len, held)) < LONGEST:
                continue
            raw = ""  # the record is full and is given out as it is
        if held:
            yield from _records(began, "".join(held))
            held.clear()
        if raw:
            held.append(raw)
            began, last, mark = number, raw, _mark_of(raw)
    if held:
        yield from _records(began, "".join(held))


def _head(text: str) -> re.Match[str] | None:
    """Where a record of TensorFlow's log begins."""
    return _HEAD.search(text) if "]" in text or ".cc" in text else None


def _mark_of(raw: str) -> str:
    """What quoting, indenting or a launcher put before a message: the rest of it, where cut, has it, too."""
    found = _head(raw[:120])
    if found is not None and found.start() <= 60:
        return raw[: found.start()]
    quote = _QUOTE.match(raw)
    return quote[0] if quote is not None else raw[: len(raw) - len(raw.lstrip())]


def _goes_on(last: str, following: str, length: int, width: int) -> bool:
    """Whether a line (without its mark) is the rest of the one before it, cut by a terminal."""
    if not width or not width - 1 <= len(last) <= width or length > width:
        return False
    if not following.strip() or _head(following):
        return False
    return not _OWN_LINE.match(following)


def _records(number: int, raw: str) -> Iterator[Line]:
    """The messages of one line: a terminal, a form or a missing newline can put several on it."""
    for text in _unwrapped(clean_text(raw)):
        starts = [found.start() for found in _HEAD.finditer(text)] if "]" in text or ".cc" in text else []
        if not starts:
            yield Line(number, _without_quote(text))
            continue
        before = text[: starts[0]]
        prefix = before.strip()
        if len(prefix) > 60 or " " in prefix.strip("> "):
            yield Line(number, _without_quote(before))
        for start, end in zip(starts, [*starts[1:], len(text)], strict=False):
            yield Line(number, text[start:end].rstrip(" `|"), prefix)


def _without_quote(text: str) -> str:
    """A line without the marks that quoting, listing and fencing put before it."""
    found = _QUOTE.match(text)
    if found is not None and not text.startswith(("#!", ">>>")) and "[" not in found[0]:
        rest = text[found.end() :]
        return rest.rstrip("` ") if rest.strip() else text
    return text.strip("` ")
