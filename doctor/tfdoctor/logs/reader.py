"""Bytes of a log → the lines that were meant, each with the number of the line it began on.

People paste logs through terminals, schedulers, notebooks, issue forms and editors. Undone here: encodings, colours,
carriage returns, HTML and Markdown, quotes and prompts, escapes of JSON and of container engines, records that run
together on one line, records that a terminal cut at its width, NULs. Streams: memory does not grow with the log.
"""

from __future__ import annotations

import html
import re
from collections import deque
from itertools import chain, pairwise
from typing import TYPE_CHECKING, NamedTuple

from tfdoctor.logs.blocks import as_text, blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Protocol

    class Filter(Protocol):
        """What says which lines of a long log are read."""

        def telling(self, shapes: list[bytes]) -> frozenset[bytes]:
            """Those of these lines, their digits all 0, in which a known message can be."""

        def worth(self, block: bytes) -> bool:
            """Whether a known message can be in a piece of a log that a terminal cut."""


__all__ = [
    "DIGITS",
    "LONGEST",
    "Line",
    "decoded",
    "folded",
    "messages_of",
    "read_lines",
]

LONGEST = 8192
"""Characters of a logical line; what is longer is cut into pieces."""
_LOOKAHEAD = 400
"""Physical lines that are looked at before the first is given out, to learn a terminal's width."""
_WIDEST = 1000
"""Characters that no terminal shows on one line."""
_REMEMBERED = 2048
"""Different lines of which is remembered what they say; shorter ones than this many characters."""
_WHOLE = 1 << 18
"""Bytes of the beginning that are always read line by line."""
_OVERLAP = 400
"""Characters that two pieces of a cut line share, so that no message is lost at the cut."""
_SHAPE = bytes.maketrans(b"123456789\r", b"000000000\n")
"""A line's shape is the line with its digits all 0: a training log has few. Carriage returns end lines, too."""
DIGITS = str.maketrans("123456789", "000000000")
"""The same for texts."""
_ZEROED = bytes.maketrans(b"123456789", b"000000000")
_LINES = bytes.maketrans(b"\r", b"\n")
_BACK = b"\b"
"""Progress bars go back with it; it is dropped before all else."""

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

_TIME = re.compile(r"\d\d\d\d-\d\d-\d\d \d\d:\d\d:\d\d\.\d{1,6}:\s{0,2}[IWEFD] ")
_LETTER = re.compile(
    r"[IWEF](?:\d{4} \d\d:\d\d:\d[\d.]{1,18}\s{1,8}\d{1,20} [\w./-]{1,80}:\d{1,5}\] |"
    r"(?<![\w:] [IWEF])(?<!\w[IWEF]) (?:\./)?(?:tensorflow|external|third_party|[A-Za-z]:[\\/])"
    r"[\w./\\ -]{1,160}\.(?:cc|h|cpp)[: ]\d{1,5}\]?)"
)
"""Where a record begins: with the time, or with the letter of its severity. Apart, each is found by its first
character, which is far quicker than both together."""
_STAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}: |[IWEF]\d{4} \d\d:\d\d:\d[\d.]{1,18}(?=\s)")
"""When a message was logged: what alone differs where it is said again."""
_OWN_LINE = re.compile(
    r"\s{0,8}(?:Skipping registering|To enable th|name: |pciBusID|coreClock|major: |totalMemory|Total memory|"
    r"Free memory|Your kernel|Traceback|File \"|>>>|\.\.\. |\[|Epoch|Limit:|InUse:|Please make sure|"
    r"Instructions for|"
    r"[|+=]|WARNING|INFO|ERROR|During handling|[\w.]{1,80}(?:Error|Exception|Warning):|\S{1,60}[$#] |\(\S{1,40}\) )"
)


class Line(NamedTuple):
    """One message, as it was meant."""

    number: int
    """The line in the file on which it begins, from 1."""
    text: str
    prefix: str = ""
    """What stood before the message: a rank, a process, a container's name. Empty where nothing did."""
    place: int = 0
    """The place of its physical line among all, parts between carriage returns counted."""
    end: int = 0
    """The place of the last physical line that belongs to it."""
    said: str = ""
    """The end of `text`: without the time that it begins with, where it does."""


def read_lines(
    chunks: Iterable[bytes],
    count: Callable[[int, int], None] | None = None,
    only: Filter | None = None,
) -> Iterator[Line]:
    """The logical lines of a stream of bytes. Never raises.

    `count` is told (lines, bytes) at the end. `only` lets a long log be read faster: lines in which it sees nothing
    are counted and passed over. What is found is the same (tests/logs).
    """
    source = _Source(chunks, only)
    physical = iter(source)
    first = list(_beginning(physical))
    width = source.width = _terminal_width([piece.text for piece in first])
    yield from _logical(chain(first, physical), width)
    if count is not None:
        count(source.number, source.size)


# ---------------------------------------------------------------- bytes → physical lines


class _Piece(NamedTuple):
    """A physical line, or what stands between two carriage returns of one, or a part of what is far too long."""

    number: int
    place: int
    text: str


class _Source:
    """The physical lines of a stream, and how much was read of it."""

    def __init__(self, chunks: Iterable[bytes], only: Filter | None) -> None:
        self.chunks = chunks
        self.only = only
        self.width: int | None = None
        """The terminal's width, once it is known; nothing is passed over before."""
        self.number = self.place = self.size = 0
        self._begins = True
        """Whether the next block begins a line; it does not where a far too long one was cut."""
        self._last_worth = False

    def __iter__(self) -> Iterator[_Piece]:
        read = 0
        for block in blocks(self._counted()):
            only = self.only if self.width is not None and read > _WHOLE else None
            read += len(block)
            if only is None:
                yield from self._all(block)
            else:
                yield from self._cut(block, only) if self.width else self._telling(block, only)

    def _counted(self) -> Iterator[bytes]:
        for chunk in self.chunks:
            self.size += len(chunk)
            yield chunk

    def _start(self, block: bytes) -> tuple[int, int]:
        """The number and the place of the first piece of a block."""
        begins, self._begins = self._begins, block.endswith(b"\n")
        return self.number + begins, self.place + begins

    def _all(self, block: bytes) -> Iterator[_Piece]:
        number, place = self._start(block)
        lines = block.replace(_BACK, b"").removesuffix(b"\n").split(b"\n")
        self.number = number + len(lines) - 1
        self.place = place + len(lines) - 1 + block.count(b"\r")
        for raw in lines:
            parts = raw.split(b"\r")
            following = place + len(parts)
            while len(parts) > 1 and not parts[-1]:
                parts.pop()
            for part in parts:
                for text in decoded(part):
                    yield _Piece(number, place, text)
                place += 1
            number, place = number + 1, following

    def _telling(self, block: bytes, only: Filter) -> Iterator[_Piece]:
        """Only the lines in which something can be: without a terminal's cuts, each line stands for itself."""
        number, place = self._start(block)
        shapes = block.translate(_SHAPE, _BACK).split(b"\n")
        if block.endswith(b"\n"):
            shapes.pop()
        returns = block.count(b"\r") if b"\r" in block else 0  # counting costs more than looking
        self.number = number + len(shapes) - 1 - returns
        self.place = place + len(shapes) - 1
        telling = only.telling(shapes)
        if not telling:
            return
        pieces = block.translate(_LINES, _BACK).split(b"\n")
        numbers: Iterable[int] = range(number, number + len(shapes))
        if returns:
            numbers = [n for n, raw in enumerate(block.split(b"\n"), number) for _ in raw.split(b"\r")]
        for n, at, shape, part in zip(numbers, range(place, self.place + 1), shapes, pieces, strict=False):
            if shape in telling:
                if len(part) <= LONGEST:
                    yield _Piece(n, at, as_text(part))
                    continue
                for text in decoded(part):
                    yield _Piece(n, at, text)

    def _cut(self, block: bytes, only: Filter) -> Iterator[_Piece]:
        """A log that a terminal cut: all of a block or nothing; the rest of a message can be in the next."""
        worth = only.worth(block)
        if worth or self._last_worth:
            self._last_worth = worth
            yield from self._all(block)
            return
        number, place = self._start(block)
        lines = block.count(b"\n") - block.endswith(b"\n")
        self.number = number + lines
        self.place = place + lines + block.count(b"\r")


def folded(text: str) -> bytes:
    """What is the same for all texts that differ in digits alone. Several times as fast as `translate(DIGITS)`."""
    return text.encode("utf-8", "surrogatepass").translate(_ZEROED)


def decoded(raw: bytes) -> Iterator[str]:
    """The text of a physical line, cut into pieces where it is far too long."""
    text = as_text(raw)
    if len(text) <= LONGEST:
        yield text
        return
    for start in range(0, len(text), LONGEST - _OVERLAP):
        yield text[start : start + LONGEST]
        if start + LONGEST >= len(text):
            break


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


def _beginning(physical: Iterator[_Piece]) -> Iterator[_Piece]:
    """The first lines, few enough to be held."""
    size = 0
    for number, piece in enumerate(physical, 1):
        yield piece
        size += len(piece.text)
        if number >= _LOOKAHEAD or size >= _WHOLE:
            return


def _terminal_width(lines: list[str]) -> int:
    """The width at which a terminal cut these lines; 0 where none did.

    Cut lines share one length; a blank at the cut is lost, so one less counts as well.
    """
    widest = max((len(line) for line in lines), default=0)
    if not 60 <= widest <= _WIDEST:
        return 0
    cut = heads = 0
    begins = ""
    for this, following in pairwise(lines):
        if not following.strip():
            continue
        rest = following.removeprefix(_mark_of(this))
        if _head(rest) or _OWN_LINE.match(rest) or this.lstrip().startswith(("|", "+")):
            continue
        if len(this) == len(following) and _alike(this, following):
            continue
        full = widest - 1 <= len(this) <= widest
        cut += full
        begins = rest.lstrip()[:1] if full else begins
        heads += _head(this) is not None and not full and len(this) >= 60
    if cut == 1 and begins.isupper():
        return 0  # the longest line of a few, and the next sentence: nothing else speaks for a cut
    return widest if cut and cut >= heads else 0


def _alike(this: str, following: str) -> bool:
    """Whether two lines of one length are two of a kind, as a progress bar's: nothing was cut there."""
    same = sum(a == b or (a.isdigit() and b.isdigit()) for a, b in zip(this, following, strict=True))
    return same * 10 >= len(this) * 9


def _logical(pieces: Iterable[_Piece], width: int) -> Iterator[Line]:
    """Join what was cut, split what ran together."""
    records = _Records()
    if not width:
        for piece in pieces:
            if piece.text:
                yield from records.of(piece, piece.place, piece.text)
        return
    held: deque[str] = deque()
    began = end = _Piece(0, 0, "")
    last = mark = ""
    for piece in pieces:
        raw = line = piece.text
        rest = line.removeprefix(mark) if held and mark else line
        if held and _goes_on(last, rest, len(line), width):
            raw = rest
            gap = " " if len(last) < width and not last.endswith(" ") and not raw.startswith(" ") else ""
            held.append(gap + raw)
            last, end = line, piece
            if sum(map(len, held)) < LONGEST:
                continue
            raw = ""  # the record is full and is given out as it is
        if held:
            yield from records.of(began, end.place, "".join(held))
            held.clear()
        if raw:
            held.append(raw)
            began, end, last, mark = piece, piece, raw, _mark_of(raw)
    if held:
        yield from records.of(began, end.place, "".join(held))


def _head(text: str, at: int = 0) -> re.Match[str] | None:
    """Where a record of TensorFlow's log begins, from a place on."""
    if "]" not in text and ".cc" not in text:
        return None
    timed, lettered = _TIME.search(text, at), _LETTER.search(text, at)
    if timed is None or lettered is None:
        return timed or lettered
    return min(timed, lettered, key=lambda found: found.start())


def _heads(text: str) -> Iterator[int]:
    """The places where records begin."""
    if "]" not in text and ".cc" not in text:
        return
    timed, lettered = _TIME.search(text), _LETTER.search(text)
    while timed is not None or lettered is not None:
        found = timed
        if timed is None or (lettered is not None and lettered.start() < timed.start()):
            found = lettered
        if found is None:
            return
        yield found.start()
        end = found.end()
        if timed is not None and timed.start() < end:
            timed = _TIME.search(text, end)
        if lettered is not None and lettered.start() < end:
            lettered = _LETTER.search(text, end)


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


class _Message(NamedTuple):
    """A message of a record that was met before."""

    timed: bool
    """Whether the record's time begins it."""
    time: str
    """The time that begins it, where that is another."""
    said: str
    prefix: str


class _Layout(NamedTuple):
    """Where the one message of a record is: the same in each that differs in digits alone."""

    start: int
    end: int
    said: int
    """Where it goes on after its time."""
    prefix: int
    prefix_end: int


def _layout(raw: str) -> _Layout | None:
    """None where the record has several messages, or none that begins as TensorFlow's do, or a digit could be part of
    an escape."""
    if "\\" in raw or "&" in raw or clean_text(raw) != raw:
        return None
    starts, found = list(_heads(raw)), _STAMP.search(raw, 0, 120)
    if len(starts) != 1 or (found is not None and found.start() != starts[0]):
        return None
    start = starts[0]
    prefix = raw[:start].strip()
    at = start - len(raw[:start].lstrip())
    end = len(raw.rstrip(" `|"))
    if list(messages_of(raw)) != [(raw[start:end], prefix)]:
        return None
    return _Layout(start, end, found.end() if found is not None else start, at, at + len(prefix))


class _Records:
    """The messages of records. What was said before, at another time or with other digits, is known."""

    def __init__(self) -> None:
        self._layouts: dict[bytes, _Layout | None] = {}
        """Records whose digits are all 0."""
        self._known: dict[tuple[str, int, str], tuple[_Message, ...]] = {}
        """What stands before the time of a record, the time's length, what stands behind it → its messages."""

    def of(self, began: _Piece, end: int, raw: str) -> Iterator[Line]:
        layout = self._layout(raw)
        if layout is not None:
            text, prefix = raw[layout.start : layout.end], raw[layout.prefix : layout.prefix_end]
            yield Line(began.number, text, prefix, began.place, end, raw[layout.said : layout.end])
            return
        found = _STAMP.search(raw, 0, 120)
        before, time, rest = "", "", raw
        if found is not None:
            before, time, rest = raw[: found.start()], found[0], raw[found.end() :]
        messages = self._known.get((before, len(time), rest))
        if messages is None:
            messages = tuple(_message(text, prefix, time) for text, prefix in messages_of(raw))
            once = [message.timed for message in messages].count(True) == bool(time)
            if len(raw) < _REMEMBERED and once and not (time and any(time in m.prefix for m in messages)):
                if len(self._known) >= _REMEMBERED:
                    self._known.clear()
                self._known[before, len(time), rest] = messages
        for timed, own, said, prefix in messages:
            yield Line(began.number, f"{time if timed else own}{said}", prefix, began.place, end, said)

    def _layout(self, raw: str) -> _Layout | None:
        if len(raw) >= _REMEMBERED:
            return None
        shape = folded(raw)
        if shape in self._layouts:
            return self._layouts[shape]
        if len(self._layouts) >= _REMEMBERED:
            self._layouts.clear()
        layout = self._layouts[shape] = _layout(raw)
        return layout


def _message(text: str, prefix: str, time: str) -> _Message:
    if time and text.startswith(time):
        return _Message(True, "", text[len(time) :], prefix)
    found = _STAMP.match(text)
    at = found.end() if found is not None else 0
    return _Message(False, text[:at], text[at:], prefix)


def messages_of(raw: str) -> Iterator[tuple[str, str]]:
    """The messages of one line, and what stood before each: a terminal, a form or a missing newline can put several
    on it."""
    for text in _unwrapped(clean_text(raw)):
        starts = list(_heads(text))
        if not starts:
            yield _without_quote(text), ""
            continue
        before = text[: starts[0]]
        prefix = before.strip()
        if len(prefix) > 60 or " " in prefix.strip("> "):
            yield _without_quote(before), ""
        for start, end in zip(starts, [*starts[1:], len(text)], strict=False):
            yield text[start:end].rstrip(" `|"), prefix


def _without_quote(text: str) -> str:
    """A line without the marks that quoting, listing and fencing put before it."""
    found = _QUOTE.match(text)
    if found is not None and not text.startswith(("#!", ">>>")) and "[" not in found[0]:
        rest = text[found.end() :]
        return rest.rstrip("` ") if rest.strip() else text
    return text.strip("` ")
