"""The logical lines of a log from its bytes, each with the number of the line in the file on which it begins.

Users paste logs through terminals, schedulers, notebooks, issue forms and editors. The reader undoes
encodings, colours, carriage returns, HTML and Markdown, quotes and prompts, the escapes of JSON and of
container engines, several records on one line, records wrapped at the width of a terminal, and NULs. It
streams: memory does not grow with the log.
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
        """The interface of filters that select the lines of a long log to read."""

        def select_lines(self, rows: Rows) -> Iterable[int]:
            """Yield the indices in `rows` of the lines to read; all others have been handled.

            The caller reads each line before it asks for the next index.
            """

        def can_match_block(self, block: bytes) -> bool:
            """Return whether a block of a log that a terminal wrapped can have a known message."""


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
"""Characters of a logical line; a longer one is split."""
_LOOKAHEAD = 400
"""Physical lines read ahead to determine the width of the terminal."""
_MAX_WIDTH_CHARS = 1000
"""Characters of the widest line that a terminal can wrap."""
_FULL_READ_BYTES = 1 << 18
"""Bytes at the beginning within which every line is read unless it is known."""
_OVERLAP = 400
"""Characters that two pieces of a split line share, so that no message is lost."""
_HEAD_BYTES = 200
"""Bytes of the first line of a block that are inspected before the others."""
_BATCH_LINES = 500
"""Wrapped lines that are passed on together."""
_SHAPE = bytes.maketrans(b"123456789\r", b"000000000\n")
"""The translation of a line to its shape: all digits become 0. A training log has few shapes.

Carriage returns become newlines because they end lines, too.
"""
ZEROED = bytes.maketrans(b"123456789", b"000000000")
DIGITS = str.maketrans("123456789", "000000000")
"""The same translation for texts."""
_LINES = bytes.maketrans(b"\r", b"\n")
_BACKSPACE = b"\b"
"""Progress bars move the cursor back with it; it is removed first."""
_MAX_UNCUT_TEXTS = 8
"""The most lines of a block that are read without splitting the block."""
_MESSAGE_BITS = 24
"""Bits of the place of a message that count the messages of its line."""

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
"""The ends of all matches of _ESCAPED.

Without one in a text, a long run of backslashes need not be searched.
"""
_ESCAPED_NEWLINE = re.compile(r"\\{1,16}[rn](?:\\{1,16}n)?(?![a-z])")
_QUOTE = re.compile(r"(?:\s{0,12}(?:[>|#`]|[-*](?= ))\s{0,4}){1,6}")
_JSON = re.compile(r'^\s{0,24}"(.*?)(?:\\n)?",?\s{0,4}$')

_TIME = re.compile(r"\d\d\d\d-\d\d-\d\d \d\d:\d\d:\d\d\.\d{1,6}:\s{0,2}[IWEFD] ")
_LETTER = re.compile(
    r"[IWEF](?:\d{4} \d\d:\d\d:\d[\d.]{1,18}\s{1,8}\d{1,20} [\w./-]{1,80}:\d{1,5}\] |"
    r"(?<![\w:] [IWEF])(?<!\w[IWEF]) (?:\./)?(?:tensorflow|external|third_party|[A-Za-z]:[\\/])"
    r"[\w./\\ -]{1,160}\.(?:cc|h|cpp)[: ]\d{1,5}\]?)"
)
"""The beginning of a record: _TIME matches a timestamp, _LETTER the letter of the severity.

Two patterns are far faster than one, because each is found by its first character.
"""
_OWN_LINE = re.compile(
    r"\s{0,8}(?:Skipping registering|To enable th|name: |pciBusID|coreClock|major: |totalMemory|Total memory|"
    r"Free memory|Your kernel|Traceback|File \"|>>>|\.\.\. |\[|Epoch|Limit:|InUse:|Please make sure|"
    r"Instructions for|"
    r"[|+=]|WARNING|INFO|ERROR|"
    r"\d{4}-\d\d-\d\d[T ]\d\d:|[A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d:|<\d{1,3}>\d? |"
    r"During handling|[\w.]{1,80}(?:Error|Exception|Warning):|\S{1,60}[$#] |\(\S{1,40}\) )"
)


class Line(NamedTuple):
    """A logical line: one message."""

    number: int
    """The line of the file on which it begins, from 1."""
    text: str
    prefix: str = ""
    """The text before the message, such as a rank, process or container name; empty if there is none."""
    record: int = 0
    """Its place among all messages. Some places have no message."""
    following: int = 0
    """The place of the message directly after it."""


def read_lines(
    chunks: Iterable[bytes],
    count: Callable[[int, int], None] | None = None,
    only: Filter | None = None,
) -> Iterator[Line]:
    """Yield the logical lines of a stream of bytes. Never raises.

    `count` is called with (lines, bytes) at the end. `only` selects the lines to read, which is faster for a
    long log.
    """
    source = _Source(chunks)
    for rows in source.rows(only):
        for index in range(len(rows.shapes)) if only is None else only.select_lines(rows):
            yield from lines_of(rows.texts[index], rows.numbers[index], rows.places[index])
    if count is not None:
        count(source.number, source.size)


def lines_of(row: bytes, number: int, place: int) -> Iterator[Line]:
    """Yield the messages of a physical line. `number`: of the line in the file; `place`: among all rows."""
    following = place << _MESSAGE_BITS
    if len(row) <= MAX_LINE_CHARS:
        messages = list(messages_of(as_text(row)))
    else:
        messages = [message for text in decode_line(row) for message in messages_of(text)]
    for remaining, (text, prefix) in enumerate(messages, 1 - len(messages)):
        record = following
        following = record + 1 if remaining else (place + 1) << _MESSAGE_BITS
        if text or prefix:
            yield Line(number, text, prefix, record, following)


# ---------------------------------------------------------------- physical lines


class Rows:
    """Lines of a log, or the pieces of a line between carriage returns. All lists have the same order.

    Each list is made only when it is first used.
    """

    def __init__(self, block: bytes, number: int, place: int, *, early: bool) -> None:
        self._block = block
        self._number = number
        self._place = place
        self.early = early
        """Whether they are from the beginning of a log."""
        self.head = block[:_HEAD_BYTES]
        """The first bytes of the first line."""

    @cached_property
    def size(self) -> int:
        """The number of rows.

        The length of a list is used if there is one, because counting short lines is slow.
        """
        if "shapes" in self.__dict__:
            return len(self.shapes)
        ended = self._block.endswith(b"\n")
        if "texts" in self.__dict__:
            return len(self.texts) - ended
        return self._block.count(b"\n") + self._block.count(b"\r") + (not ended)

    @property
    def physical(self) -> int:
        """The number of lines of the file."""
        if b"\r" not in self._block:  # searching is faster than counting
            return self.size
        count, at = 0, self._block.find(b"\n")
        # a progress bar has hardly any newlines, so searching is faster than counting
        while at >= 0 and count < _MAX_UNCUT_TEXTS:
            count, at = count + 1, self._block.find(b"\n", at + 1)
        if at >= 0:
            count += self._block.count(b"\n", at)
        return count + (not self._block.endswith(b"\n"))

    @cached_property
    def shapes(self) -> list[bytes]:
        """The rows with all digits 0."""
        shapes = self._block.translate(_SHAPE, _BACKSPACE).split(b"\n")
        if self._block.endswith(b"\n"):
            shapes.pop()
        return shapes

    @cached_property
    def texts(self) -> Sequence[bytes]:
        """The rows themselves."""
        return self._block.translate(_LINES, _BACKSPACE).split(b"\n")

    def select_texts(self, places: Sequence[int]) -> None:
        """Announce that only the texts at these indices will be used.

        If they are few, the block is not split.
        """
        is_uncut = isinstance(self.__dict__.get("texts"), _SparseTexts)
        if is_uncut and len(places) > _MAX_UNCUT_TEXTS:
            del self.texts
        elif len(places) <= _MAX_UNCUT_TEXTS and "texts" not in self.__dict__:
            self.texts = _SparseTexts(self._block, self.shapes)

    @cached_property
    def numbers(self) -> Sequence[int]:
        """The line number of each row in the file."""
        if b"\r" not in self._block:
            return range(self._number, self._number + self.size)
        lines = enumerate(self._block.split(b"\n"), self._number)
        return [number for number, raw in lines for _ in range(raw.count(b"\r") + 1)]

    @cached_property
    def places(self) -> Sequence[int]:
        """The place of each row among all rows."""
        return range(self._place, self._place + self.size)


class _SparseTexts(Sequence[bytes]):
    """Texts of which few are used: each is located by the lengths of the shapes before it."""

    def __init__(self, block: bytes, shapes: list[bytes]) -> None:
        self._text = block.translate(None, _BACKSPACE) if _BACKSPACE in block else block
        self._shapes = shapes

    def __len__(self) -> int:
        return len(self._shapes)

    def __getitem__(self, index: Any) -> Any:
        start = sum(map(len, self._shapes[:index])) + index
        return self._text[start : start + len(self._shapes[index])]


class _JoinedRows(Rows):
    """Lines of a log that a terminal wrapped, joined again."""

    def __init__(self, lines: list[tuple[int, int, str]]) -> None:
        self.early = True
        self.head = b""
        self.texts = [text.encode("utf-8", "replace") for _, _, text in lines]
        self.shapes = [text.translate(_SHAPE) for text in self.texts]
        self.numbers = [number for number, _, _ in lines]
        self.places = [place for _, place, _ in lines]


class _LinePiece(NamedTuple):
    """A physical line, a piece of it between carriage returns, or a piece of a line that is too long."""

    number: int
    place: int
    text: str


class _Source:
    """The lines of a stream, with a count of lines and bytes."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._blocks = blocks(self._count(chunks))
        self.size = 0
        self._number = self._place = 0
        self._last: Rows | None = None
        """The last rows, not counted yet: counting is fast once their lists exist."""
        self._begins_line = True
        """Whether the next block begins a line; false after a line that was split."""

    def rows(self, only: Filter | None) -> Iterator[Rows]:
        """Yield all rows. Of a wrapped log, leave out blocks that `only` does not want."""
        first_blocks: list[bytes] = []
        lines: list[str] = []
        for block in self._blocks:
            first_blocks.append(block)
            rows = Rows(block, 0, 0, early=True)
            lines += [piece.text for piece in islice(_split_rows(rows), _LOOKAHEAD)]
            if len(lines) >= _LOOKAHEAD or sum(map(len, first_blocks)) >= _FULL_READ_BYTES:
                break
        width = _detect_width(lines[:_LOOKAHEAD])
        all_blocks = chain(first_blocks, self._blocks)
        if not width:
            read = 0
            for block in all_blocks:
                yield self._rows(block, early=read <= _FULL_READ_BYTES)
                read += len(block)
            return
        joined = _join_cut_lines(self._iter_pieces(all_blocks, only), width)
        while batch := list(islice(joined, _BATCH_LINES)):
            yield _JoinedRows(batch)

    def _count(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self.size += len(chunk)
            yield chunk

    @property
    def number(self) -> int:
        """The number of the last line that was read."""
        if self._last is not None:
            self._place += self._last.size - 1
            self._number += self._last.physical - 1
            self._last = None
        return self._number

    def _rows(self, block: bytes, *, early: bool) -> Rows:
        number = self.number + self._begins_line
        self._place += self._begins_line
        self._number, self._begins_line = number, block.endswith(b"\n")
        self._last = Rows(block, number, self._place, early=early)
        return self._last

    def _iter_pieces(self, all_blocks: Iterable[bytes], only: Filter | None) -> Iterator[_LinePiece]:
        """Yield the pieces of a log that a terminal wrapped: all of a block, or none.

        A block after a wanted one is included because the rest of a message can be in it.
        """
        read = 0
        was_wanted = True
        for block in all_blocks:
            rows = self._rows(block, early=True)
            is_wanted = only is None or read <= _FULL_READ_BYTES or only.can_match_block(block)
            read += len(block)
            if is_wanted or was_wanted:
                yield from _split_rows(rows)
            was_wanted = is_wanted


def _split_rows(rows: Rows) -> Iterator[_LinePiece]:
    """Yield the pieces of each row, without empty ones after the last carriage return of a line."""
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
    """Yield the text of a physical line, split into overlapping pieces if it is too long."""
    text = as_text(raw)
    if len(text) <= MAX_LINE_CHARS:
        yield text
        return
    for start in range(0, len(text), MAX_LINE_CHARS - _OVERLAP):
        yield text[start : start + MAX_LINE_CHARS]
        if start + MAX_LINE_CHARS >= len(text):
            break


# ---------------------------------------------------------------- cleaning


def clean_text(text: str) -> str:
    """Return the text without colours, control characters, tags and escapes."""
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
    """Yield the lines inside a JSON string, or the text itself if it is not one."""
    if '"' in text:
        match = _JSON.match(text)
        if match is not None and match[1]:
            text = match[1]
    if ("\\n" in text or "\\r" in text) and _ESCAPED_NEWLINE.search(text):
        yield from (part for part in _ESCAPED_NEWLINE.split(text) if part.strip())
    else:
        yield text


# ---------------------------------------------------------------- logical lines


def _detect_width(lines: list[str]) -> int:
    """Return the width at which a terminal wrapped these lines; 0 if none did.

    Wrapped lines share one length; a blank at the wrap is lost, so a length one less counts as well.
    """
    widest = max((len(line) for line in lines), default=0)
    if not 60 <= widest <= _MAX_WIDTH_CHARS:
        return 0
    wrapped = heads = 0
    next_char = ""
    for current, following in pairwise(lines):
        if not following.strip():
            continue
        rest = following.removeprefix(_find_mark(current))
        if find_head(rest) or _OWN_LINE.match(rest) or current.lstrip().startswith(("|", "+")):
            continue
        if len(current) == len(following) and _is_similar(current, following):
            continue
        is_full = widest - 1 <= len(current) <= widest
        wrapped += is_full
        next_char = rest.lstrip()[:1] if is_full else next_char
        heads += find_head(current) is not None and not is_full and len(current) >= 60
    if wrapped == 1 and next_char.isupper():
        return 0  # a single long line and then a new sentence is not enough evidence of wrapping
    return widest if wrapped and wrapped >= heads else 0


def _is_similar(line: str, following: str) -> bool:
    """Return whether two lines of one length are similar, as those of a progress bar: these were not wrapped."""
    same = sum(a == b or (a.isdigit() and b.isdigit()) for a, b in zip(line, following, strict=True))
    return same * 10 >= len(line) * 9


def _join_cut_lines(pieces: Iterable[_LinePiece], width: int) -> Iterator[tuple[int, int, str]]:
    """Yield (number, place, text) of each line of a wrapped log, joined.

    The places stay consecutive: a joined line takes one.
    """
    held: deque[str] = deque()
    first = end = _LinePiece(0, 0, "")
    last = mark = ""
    joined = 0
    for piece in pieces:
        raw = line = piece.text
        rest = line.removeprefix(mark) if held and mark else line
        if held and _is_continuation(last, rest, len(line), width):
            raw = rest
            gap = " " if len(last) < width and not last.endswith(" ") and not raw.startswith(" ") else ""
            held.append(gap + raw)
            last, end = line, piece
            if sum(map(len, held)) < MAX_LINE_CHARS:
                continue
            raw = ""  # the record has the maximum length: yield it as it is
        if held:
            yield first.number, first.place - joined, "".join(held)
            joined += end.place - first.place
            held.clear()
        if raw:
            held.append(raw)
            first, end, last, mark = piece, piece, raw, _find_mark(raw)
    if held:
        yield first.number, first.place - joined, "".join(held)


def find_head(text: str, at: int = 0) -> re.Match[str] | None:
    """Return the match where a record of the TensorFlow log begins, from a position on; None if none does."""
    if "]" not in text and ".cc" not in text:
        return None
    timed, lettered = _TIME.search(text, at), _LETTER.search(text, at)
    if timed is None or lettered is None:
        return timed or lettered
    return min(timed, lettered, key=lambda match: match.start())


def _find_heads(text: str) -> Iterator[int]:
    """Yield the positions where records begin."""
    if "]" not in text and ".cc" not in text:
        return
    timed, lettered = _TIME.search(text), _LETTER.search(text)
    while timed is not None or lettered is not None:
        match = timed
        if timed is None or (lettered is not None and lettered.start() < timed.start()):
            match = lettered
        if match is None:
            return
        yield match.start()
        end = match.end()
        if timed is not None and timed.start() < end:
            timed = _TIME.search(text, end)
        if lettered is not None and lettered.start() < end:
            lettered = _LETTER.search(text, end)


def _find_mark(raw: str) -> str:
    """Return the quote mark, indentation or prefix before a message.

    If the line was wrapped, its rest begins with the same.
    """
    head = find_head(raw[:120])
    if head is not None and head.start() <= 60:
        return raw[: head.start()]
    quote = _QUOTE.match(raw)
    return quote[0] if quote is not None else raw[: len(raw) - len(raw.lstrip())]


def _is_continuation(last: str, following: str, length: int, width: int) -> bool:
    """Return whether a line (without its mark) is the rest of the wrapped line before it."""
    if not width or not width - 1 <= len(last) <= width or length > width:
        return False
    if not following.strip() or find_head(following):
        return False
    return not _OWN_LINE.match(following)


def messages_of(raw: str) -> Iterator[tuple[str, str]]:
    """Yield each message of a line, and the text before it.

    A terminal, a form or a missing newline can put several messages on one line.
    """
    for text in _unwrap_json(clean_text(raw)):
        starts = list(_find_heads(text))
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
    """Return the text without quote, list and fence marks."""
    match = _QUOTE.match(text)
    if match is not None and not text.startswith(("#!", ">>>")) and "[" not in match[0]:
        rest = text[match.end() :]
        return rest.rstrip("` ") if rest.strip() else text
    return text.strip("` ")
