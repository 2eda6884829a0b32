"""Bytes of a log → the lines that were meant, each with the number of the line it began on.

People paste logs through terminals, schedulers, notebooks, issue forms and editors. Undone here: encodings, colours,
carriage returns, HTML and Markdown, quotes and prompts, escapes of JSON and of container engines, records that run
together on one line, records that a terminal cut at its width, NULs. Streams: memory does not grow with the log.
"""

from __future__ import annotations

import html
import re
from collections import deque
from collections.abc import Sequence
from functools import cached_property
from itertools import chain, islice, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from tfdoctor.logs.blocks import as_text, blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Protocol

    class Filter(Protocol):
        """What says which lines of a long log are read."""

        def unread(self, rows: Rows) -> Iterable[int]:
            """Yield the places in `rows` of those whose messages are wanted; all others were dealt with.

            Before the next place is asked for, what was wanted of the last one is read.
            """

        def worth(self, block: bytes) -> bool:
            """Return whether a known message can be in a piece of a log that a terminal cut."""


__all__ = [
    "DIGITS",
    "MAX_LINE_CHARS",
    "ZEROED",
    "Line",
    "Rows",
    "decode_line",
    "find_head",
    "lines_of",
    "messages_of",
    "read_lines",
]

MAX_LINE_CHARS = 8192
"""Characters of a logical line; what is longer is cut into pieces."""
_LOOKAHEAD = 400
"""Physical lines that are looked at before the first is given out, to learn a terminal's width."""
_WIDEST = 1000
"""Characters that no terminal shows on one line."""
_FULL_READ_BYTES = 1 << 18
"""Bytes of the beginning of which every line is read that says something new."""
_OVERLAP = 400
"""Characters that two pieces of a cut line share, so that no message is lost at the cut."""
_HEAD = 200
"""Bytes of the first line that are looked at before the others."""
_BATCH = 500
"""Lines that a terminal cut and that are handed on together."""
_SHAPE = bytes.maketrans(b"123456789\r", b"000000000\n")
"""A line's shape is the line with its digits all 0: a training log has few. Carriage returns end lines, too."""
ZEROED = bytes.maketrans(b"123456789", b"000000000")
DIGITS = str.maketrans("123456789", "000000000")
"""The same for texts."""
_LINES = bytes.maketrans(b"\r", b"\n")
_BACK = b"\b"
"""Progress bars go back with it; it is dropped before all else."""
_MAX_UNCUT_TEXTS = 8
"""Texts up to which a block of lines is not cut apart for them."""
_MESSAGES = 24
"""Bits of a message's place that count the messages of its line."""

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
_ESCAPED_MARKS = tuple(f"\\{mark}" for mark in "\"'_`*")
"""What every match of _ESCAPED ends with; without one a long row of backslashes need not be searched at each place."""
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
_OWN_LINE = re.compile(
    r"\s{0,8}(?:Skipping registering|To enable th|name: |pciBusID|coreClock|major: |totalMemory|Total memory|"
    r"Free memory|Your kernel|Traceback|File \"|>>>|\.\.\. |\[|Epoch|Limit:|InUse:|Please make sure|"
    r"Instructions for|"
    r"[|+=]|WARNING|INFO|ERROR|"
    r"\d{4}-\d\d-\d\d[T ]\d\d:|[A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d:|<\d{1,3}>\d? |"
    r"During handling|[\w.]{1,80}(?:Error|Exception|Warning):|\S{1,60}[$#] |\(\S{1,40}\) )"
)


class Line(NamedTuple):
    """One message, as it was meant."""

    number: int
    """The line in the file on which it begins, from 1."""
    text: str
    prefix: str = ""
    """What stood before the message: a rank, a process, a container's name. Empty where nothing did."""
    record: int = 0
    """Its place among all messages. Not every number is a message's."""
    following: int = 0
    """The place of the message behind it, where nothing stands between them."""


def read_lines(
    chunks: Iterable[bytes],
    count: Callable[[int, int], None] | None = None,
    only: Filter | None = None,
) -> Iterator[Line]:
    """Yield the logical lines of a stream of bytes. Never raises.

    `count` is told (lines, bytes) at the end. `only` lets a long log be read faster: it says which lines are read.
    """
    source = _Source(chunks)
    for rows in source.rows(only):
        for index in range(len(rows.shapes)) if only is None else only.unread(rows):
            yield from lines_of(rows.texts[index], rows.numbers[index], rows.places[index])
    if count is not None:
        count(source.number, source.size)


def lines_of(row: bytes, number: int, place: int) -> Iterator[Line]:
    """Yield the messages of one line: the line's number, and its place among all."""
    following = place << _MESSAGES
    if len(row) <= MAX_LINE_CHARS:
        messages = list(messages_of(as_text(row)))
    else:
        messages = [message for text in decode_line(row) for message in messages_of(text)]
    for left, (text, prefix) in enumerate(messages, 1 - len(messages)):
        record = following
        following = record + 1 if left else (place + 1) << _MESSAGES
        if text or prefix:
            yield Line(number, text, prefix, record, following)


# ---------------------------------------------------------------- bytes → physical lines


class Rows:
    """Lines as they stand in a log, or what stands between two carriage returns of one. The lists belong together."""

    def __init__(self, block: bytes, number: int, place: int, *, early: bool) -> None:
        self._block = block
        self._number = number
        self._place = place
        self.early = early
        """Whether they are of the beginning of a log."""
        self.head = block[:_HEAD]
        """How the first of them begins."""

    @cached_property
    def size(self) -> int:
        """How many they are: by the lists where one is there, for counting short lines takes longer than all else."""
        if "shapes" in self.__dict__:
            return len(self.shapes)
        ended = self._block.endswith(b"\n")
        if "texts" in self.__dict__:
            return len(self.texts) - ended
        return self._block.count(b"\n") + self._block.count(b"\r") + (not ended)

    @property
    def physical(self) -> int:
        """How many lines of the file they are."""
        if b"\r" not in self._block:  # looking costs less than counting
            return self.size
        count, at = 0, self._block.find(b"\n")
        # a progress bar has hardly any, and is sought through faster than counted
        while at >= 0 and count < _MAX_UNCUT_TEXTS:
            count, at = count + 1, self._block.find(b"\n", at + 1)
        if at >= 0:
            count += self._block.count(b"\n", at)
        return count + (not self._block.endswith(b"\n"))

    @cached_property
    def shapes(self) -> list[bytes]:
        """Each with its digits all 0."""
        shapes = self._block.translate(_SHAPE, _BACK).split(b"\n")
        if self._block.endswith(b"\n"):
            shapes.pop()
        return shapes

    @cached_property
    def texts(self) -> Sequence[bytes]:
        """They themselves."""
        return self._block.translate(_LINES, _BACK).split(b"\n")

    def ask_for(self, places: Sequence[int]) -> None:
        """Only these texts will be asked for: where they are few, the others are not even cut apart."""
        few = isinstance(self.__dict__.get("texts"), _Some)
        if few and len(places) > _MAX_UNCUT_TEXTS:
            del self.texts
        elif len(places) <= _MAX_UNCUT_TEXTS and "texts" not in self.__dict__:
            self.texts = _Some(self._block, self.shapes)

    @cached_property
    def numbers(self) -> Sequence[int]:
        """Of the lines in the file."""
        if b"\r" not in self._block:
            return range(self._number, self._number + self.size)
        lines = enumerate(self._block.split(b"\n"), self._number)
        return [number for number, raw in lines for _ in range(raw.count(b"\r") + 1)]

    @cached_property
    def places(self) -> Sequence[int]:
        """Their places among all."""
        return range(self._place, self._place + self.size)


class _Some(Sequence[bytes]):
    """Texts of which few are asked for: each is found by its place, by how long the shapes before it are."""

    def __init__(self, block: bytes, shapes: list[bytes]) -> None:
        self._text = block.translate(None, _BACK) if _BACK in block else block
        self._shapes = shapes

    def __len__(self) -> int:
        return len(self._shapes)

    def __getitem__(self, index: Any) -> Any:
        start = sum(map(len, self._shapes[:index])) + index
        return self._text[start : start + len(self._shapes[index])]


class _Joined(Rows):
    """Lines that a terminal cut, joined."""

    def __init__(self, lines: list[tuple[int, int, str]]) -> None:
        self.early = True
        self.head = b""
        self.texts = [text.encode("utf-8", "replace") for _, _, text in lines]
        self.shapes = [text.translate(_SHAPE) for text in self.texts]
        self.numbers = [number for number, _, _ in lines]
        self.places = [place for _, place, _ in lines]


class _LinePiece(NamedTuple):
    """A physical line, or what stands between two carriage returns of one, or a part of what is far too long."""

    number: int
    place: int
    text: str


class _Source:
    """The lines of a stream, and how much was read of it."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._blocks = blocks(self._count(chunks))
        self.size = 0
        self._number = self._place = 0
        self._last: Rows | None = None
        """What is not yet counted: it is quick once somebody has read it."""
        self._begins = True
        """Whether the next block begins a line; it does not where a far too long one was cut."""

    def rows(self, only: Filter | None) -> Iterator[Rows]:
        """Yield all lines. Where a terminal cut them, without what `only` does not want."""
        beginning: list[bytes] = []
        lines: list[str] = []
        for block in self._blocks:
            beginning.append(block)
            rows = Rows(block, 0, 0, early=True)
            lines += [piece.text for piece in islice(_pieces(rows), _LOOKAHEAD)]
            if len(lines) >= _LOOKAHEAD or sum(map(len, beginning)) >= _FULL_READ_BYTES:
                break
        width = _terminal_width(lines[:_LOOKAHEAD])
        everything = chain(beginning, self._blocks)
        if not width:
            read = 0
            for block in everything:
                yield self._rows(block, early=read <= _FULL_READ_BYTES)
                read += len(block)
            return
        joined = _join_cut_lines(self._cut(everything, only), width)
        while lines_ := list(islice(joined, _BATCH)):
            yield _Joined(lines_)

    def _count(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self.size += len(chunk)
            yield chunk

    @property
    def number(self) -> int:
        """Of the last line that was read."""
        if self._last is not None:
            self._place += self._last.size - 1
            self._number += self._last.physical - 1
            self._last = None
        return self._number

    def _rows(self, block: bytes, *, early: bool) -> Rows:
        number = self.number + self._begins
        self._place += self._begins
        self._number, self._begins = number, block.endswith(b"\n")
        self._last = Rows(block, number, self._place, early=early)
        return self._last

    def _cut(self, everything: Iterable[bytes], only: Filter | None) -> Iterator[_LinePiece]:
        """Yield a log that a terminal cut: all of a block or nothing.

        The rest of a message can be in the next.
        """
        read = 0
        last = True
        for block in everything:
            rows = self._rows(block, early=True)
            worth = only is None or read <= _FULL_READ_BYTES or only.worth(block)
            read += len(block)
            if worth or last:
                yield from _pieces(rows)
            last = worth


def _pieces(rows: Rows) -> Iterator[_LinePiece]:
    """Yield each of these lines. Nothing behind the last carriage return of a line is none."""
    blank: list[_LinePiece] = []
    last = -1
    for number, place, row in zip(rows.numbers, rows.places, rows.texts, strict=False):
        if not row and number == last:
            blank.append(_LinePiece(number, place, ""))
            continue
        if number == last:
            yield from blank
        blank.clear()
        last = number
        for text in decode_line(row):
            yield _LinePiece(number, place, text)


def decode_line(raw: bytes) -> Iterator[str]:
    """Yield the text of a physical line, cut into pieces where it is far too long."""
    text = as_text(raw)
    if len(text) <= MAX_LINE_CHARS:
        yield text
        return
    for start in range(0, len(text), MAX_LINE_CHARS - _OVERLAP):
        yield text[start : start + MAX_LINE_CHARS]
        if start + MAX_LINE_CHARS >= len(text):
            break


# ---------------------------------------------------------------- cleaning one line


def clean_text(text: str) -> str:
    """Return a line without colours, control characters, tags and escapes."""
    if "\x1b" in text or "\\u001b" in text or "\\x1b" in text or "\\033" in text:
        text = _ANSI.sub("", text)
    if not text.isprintable():
        text = _SURROGATE.sub("\ufffd", _CONTROL.sub("", text.replace("\t", " ").replace("\xa0", " ")))
    if "&" in text and ";" in text:
        text = _CONTROL.sub("", html.unescape(text).replace("\xa0", " "))
    if "<" in text:
        text = _TAG.sub("", text)
    if any(mark in text for mark in _ESCAPED_MARKS):
        text = _ESCAPED.sub(r"\1", text)
    return text


def _unwrap_json(text: str) -> Iterator[str]:
    """Yield the lines inside a JSON string; the line itself where it is none."""
    if '"' in text:
        found = _JSON.match(text)
        if found is not None and found[1]:
            text = found[1]
    if ("\\n" in text or "\\r" in text) and _ESCAPED_NEWLINE.search(text):
        yield from (part for part in _ESCAPED_NEWLINE.split(text) if part.strip())
    else:
        yield text


# ---------------------------------------------------------------- physical → logical


def _terminal_width(lines: list[str]) -> int:
    """Return the width at which a terminal cut these lines; 0 where none did.

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
        if find_head(rest) or _OWN_LINE.match(rest) or this.lstrip().startswith(("|", "+")):
            continue
        if len(this) == len(following) and _alike(this, following):
            continue
        full = widest - 1 <= len(this) <= widest
        cut += full
        begins = rest.lstrip()[:1] if full else begins
        heads += find_head(this) is not None and not full and len(this) >= 60
    if cut == 1 and begins.isupper():
        return 0  # the longest line of a few, and the next sentence: nothing else speaks for a cut
    return widest if cut and cut >= heads else 0


def _alike(this: str, following: str) -> bool:
    """Return whether two lines of one length are two of a kind, as a progress bar's: nothing was cut there."""
    same = sum(a == b or (a.isdigit() and b.isdigit()) for a, b in zip(this, following, strict=True))
    return same * 10 >= len(this) * 9


def _join_cut_lines(pieces: Iterable[_LinePiece], width: int) -> Iterator[tuple[int, int, str]]:
    """Yield the lines that a terminal cut: the number, the place and the text of each.

    No place is left out for what was joined.
    """
    held: deque[str] = deque()
    began = end = _LinePiece(0, 0, "")
    last = mark = ""
    gone = 0
    for piece in pieces:
        raw = line = piece.text
        rest = line.removeprefix(mark) if held and mark else line
        if held and _goes_on(last, rest, len(line), width):
            raw = rest
            gap = " " if len(last) < width and not last.endswith(" ") and not raw.startswith(" ") else ""
            held.append(gap + raw)
            last, end = line, piece
            if sum(map(len, held)) < MAX_LINE_CHARS:
                continue
            raw = ""  # the record is full and is given out as it is
        if held:
            yield began.number, began.place - gone, "".join(held)
            gone += end.place - began.place
            held.clear()
        if raw:
            held.append(raw)
            began, end, last, mark = piece, piece, raw, _mark_of(raw)
    if held:
        yield began.number, began.place - gone, "".join(held)


def find_head(text: str, at: int = 0) -> re.Match[str] | None:
    """Return where a record of TensorFlow's log begins, from a place on."""
    if "]" not in text and ".cc" not in text:
        return None
    timed, lettered = _TIME.search(text, at), _LETTER.search(text, at)
    if timed is None or lettered is None:
        return timed or lettered
    return min(timed, lettered, key=lambda found: found.start())


def _heads(text: str) -> Iterator[int]:
    """Yield the places where records begin."""
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
    """Return what quoting, indenting or a launcher put before a message: the rest of it, where cut, has it, too."""
    found = find_head(raw[:120])
    if found is not None and found.start() <= 60:
        return raw[: found.start()]
    quote = _QUOTE.match(raw)
    return quote[0] if quote is not None else raw[: len(raw) - len(raw.lstrip())]


def _goes_on(last: str, following: str, length: int, width: int) -> bool:
    """Return whether a line (without its mark) is the rest of the one before it, cut by a terminal."""
    if not width or not width - 1 <= len(last) <= width or length > width:
        return False
    if not following.strip() or find_head(following):
        return False
    return not _OWN_LINE.match(following)


def messages_of(raw: str) -> Iterator[tuple[str, str]]:
    """Yield the messages of one line, and what stood before each: a terminal, a form or a missing newline can put
    several on it.
    """
    for text in _unwrap_json(clean_text(raw)):
        starts = list(_heads(text))
        if not starts:
            yield _strip_quote(text), ""
            continue
        before = text[: starts[0]]
        prefix = before.strip()
        if len(prefix) > 60 or " " in prefix.strip("> "):
            yield _strip_quote(before), ""
        for start, end in zip(starts, [*starts[1:], len(text)], strict=False):
            yield text[start:end].rstrip(" `|"), prefix


def _strip_quote(text: str) -> str:
    """Return a line without the marks that quoting, listing and fencing put before it."""
    found = _QUOTE.match(text)
    if found is not None and not text.startswith(("#!", ">>>")) and "[" not in found[0]:
        rest = text[found.end() :]
        return rest.rstrip("` ") if rest.strip() else text
    return text.strip("` ")
