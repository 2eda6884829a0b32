"""Read the logical lines (messages) of a log, each with the line number in the file where it begins.

Users paste logs through terminals, schedulers, notebooks, issue forms and editors. The reader handles encodings,
colours, carriage returns, HTML, Markdown, quotes, prompts, escapes in JSON and container logs, several records on
one line, records that a terminal wrapped, and NULs. It reads a stream, so memory does not grow with the log.

Terms: a row is a line of the file, or a piece of one between carriage returns. The shape of a row is the row with
all its digits replaced by 0. A mark is the text before a message: a quote mark, indentation or a prefix.
"""

from __future__ import annotations

import html
import re
from collections import deque
from collections.abc import Sequence
from functools import cached_property
from itertools import chain, islice, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from tfdoctor.logs.blocks import decode_text, iter_blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Protocol

    class Filter(Protocol):
        """The interface of filters that select which lines of a long log are read."""

        def select_lines(self, rows: Rows) -> Iterable[int]:
            """Yield the indices of the rows that the reader must read. The filter handles all others.

            The caller reads each row before it requests the next index.
            """

        def can_match_block(self, block: bytes) -> bool:
            """Return whether a block of a log that a terminal wrapped can contain a known message."""


__all__ = [
    "DIGITS_TO_ZERO",
    "DIGIT_BYTES_TO_ZERO",
    "MAX_LINE_CHARS",
    "Line",
    "Rows",
    "decode_line",
    "find_record_start",
    "iter_lines",
    "iter_messages",
    "read_lines",
]

MAX_LINE_CHARS = 8192
"""The maximum length of a logical line in characters. A longer line is split."""
_LOOKAHEAD_ROWS = 400
"""The number of rows that are read ahead to determine the width of the terminal."""
_MAX_TERMINAL_CHARS = 1000
"""The width in characters of the widest terminal that is recognized."""
_MIN_TERMINAL_CHARS = 60
"""The width in characters of the narrowest terminal that is recognized."""
_MAX_RECORD_START_CHARS = 500
"""The length within which a prefix, a timestamp and the name of a source file end, in characters."""
_MAX_PREFIX_CHARS = 60
"""The maximum length in characters of a prefix before a message."""
_FULL_READ_BYTES = 1 << 18
"""The size in bytes of the beginning of a log in which every block is read."""
_OVERLAP_CHARS = 400
"""The number of characters that two pieces of a split line share, so that no message is lost."""
_HEAD_BYTES = 200
"""The number of first bytes of a block that `Rows` stores separately."""
_BATCH_LINES = 500
"""The number of joined lines that are passed on together."""
_ROW_TO_SHAPE = bytes.maketrans(b"123456789\r", b"000000000\n")
"""The translation of a block to the shapes of its rows: all digits become 0, carriage returns become newlines.

A training log has few shapes.
"""
DIGIT_BYTES_TO_ZERO = bytes.maketrans(b"123456789", b"000000000")
"""The translation that replaces all digits in bytes by 0."""
DIGITS_TO_ZERO = str.maketrans("123456789", "000000000")
"""The same translation for a str."""
_RETURN_TO_NEWLINE = bytes.maketrans(b"\r", b"\n")
_BACKSPACE = b"\b"
"""The character with which progress bars move the cursor back. It is removed first."""
_MAX_SPARSE_TEXTS = 8
"""The maximum number of rows that are read from a block without splitting it."""
_MESSAGE_BITS = 24
"""The number of low bits of a record number that count the messages of a row. The others are the row's position."""

_ANSI = re.compile(
    r"(?:\x1b|\\u001b|\\x1b|\\033)(?:\[[0-9;?]{0,32}[ -/]?[@-~]|\][^\x07\x1b]{0,200}\x07|[@-Z\\^_-])"
)
_CONTROL_CHARS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]"
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_TAG = re.compile(
    r"</?(?:pre|span|code|p|div|br|li|ul|samp|tt|b|i|em|font|blockquote)(?:\s[^<>]{0,300})?/?>", re.I
)
_ESCAPED = re.compile(
    r"(?P<path>(?:\b[A-Za-z]:|~)(?:\\{1,16}(?![\\\"'`*])[^\\\n\"'*?<>|()]{0,100}){1,60})|\\{1,16}(?P<mark>[\"'_`*])"
)
_ESCAPED_MARKS = tuple(f"\\{mark}" for mark in "\"'_`*")
"""The ends of all escapes that _ESCAPED matches. Only texts that contain them are searched, because the search is slow."""
_ESCAPED_NEWLINE = re.compile(r"\\{1,16}[rn](?:\\{1,16}n)?(?![a-z])")
_QUOTE = re.compile(r"(?:\s{0,12}(?:[>|#`]|[-*](?= ))\s{0,4}){1,6}")
_LAUNCHER_TAG = re.compile(
    r"[>\s]{0,8}(?:\d{1,5}: (?=\s{0,8}\S)(?!(?:Physical|Logical)Device\(|/\w{1,16}:|(?:NVIDIA|Tesla|GeForce|Quadro) )"
    r"|(?:[A-Z][\w :]{0,40})?\[(?:[\w.@-]{1,80},)?\d{1,6}\]\s?<std(?:out|err)>: ?"
    r"|\[[A-Za-z_]{1,30}\d{1,6}\]: ?|\((?:[\w.:<>-]{1,60} )?pid=\d{1,9}(?:, ip=[\d.]{7,15})?\) "
    r"|\[pod/[\w./-]{3,160}\] |[A-Za-z][\w.-]{0,62}(?:[-_]\d{1,4}\s|\s\s)\s{0,60}\| )"
)
"""What srun -l, mpirun --tag-output, torchrun, Ray, kubectl logs --prefix and docker compose print before each line.

A number before a device is the number in a list of devices.
"""
_JSON_STRING = re.compile(r'^\s{0,24}"(.*?)(?:\\n)?",?\s{0,4}$')

_TIMESTAMP_START = re.compile(r"\d\d\d\d-\d\d-\d\d \d\d:\d\d:\d\d\.\d{1,6}:\s{0,2}[IWEFD] ")
_SEVERITY_START = re.compile(
    r"[IWEF](?:\d{4} \d\d:\d\d:\d[\d.]{1,18}\s{1,8}\d{1,20} [\w./-]{1,80}:\d{1,5}\] |"
    r"(?<![\w:] [IWEF])(?<!\w[IWEF]) (?:\./)?(?:tensorflow|external|third_party|[A-Za-z]:[\\/])"
    r"[\w./\\ -]{1,160}\.(?:cc|h|cpp)[: ]\d{1,5}\]?)"
)
"""The beginnings of a record: _TIMESTAMP_START matches a timestamp, _SEVERITY_START a severity letter.

Two patterns are far faster than one, because each is found by its first character.
"""
_LINE_START = re.compile(
    r"\s{0,8}(?:Skipping registering|To enable th|name: |pciBusID|coreClock|major: |totalMemory|Total memory|"
    r"Free memory|Your kernel|Traceback|File \"|>>>|\.\.\. |\[|Epoch|Limit:|InUse:|Please make sure|"
    r"Instructions for|"
    r"[|+=]|WARNING|INFO|ERROR|[Ee]rror: |docker: |nvidia-container-cli: |"
    r"(?:srun|slurmstepd|sbatch|salloc|mpirun|mpiexec|prterun|prun|orted)\b|[\w.-]{1,80}:\d{1,9}:\d{1,9} \[\d{1,3}\] |"
    r"\d{4}-\d\d-\d\d[T ]\d\d:|[A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d:|<\d{1,3}>\d? |"
    r"During handling|[\w.]{1,80}(?:Error|Exception|Warning):|\S{1,60}[$#] |\(\S{1,40}\) )"
)
"""The beginning of a line that does not continue a wrapped line."""


_DOUBLED_BLANK = re.compile(rb"(?<=[a-z]) {2}(?=[a-z])")
"""Two blanks between words, which programs that copy text make of one."""
_PASTED_BYTES = 65536
"""The largest size of a block in which doubled blanks are removed: longer logs are not copied from a page."""


class Line(NamedTuple):
    """A logical line, which is one message."""

    line_number: int
    """The line number in the file where it begins, from 1."""
    text: str
    prefix: str = ""
    """The text before the message, such as a rank, process or container name, or an empty string."""
    message_number: int = 0
    """The position among all messages of the log. Some positions are not used."""
    next_message_number: int = 0
    """The position of the next message among all messages."""


def read_lines(
    chunks: Iterable[bytes],
    on_end: Callable[[int, int], None] | None = None,
    line_filter: Filter | None = None,
) -> Iterator[Line]:
    """Yield the logical lines of a stream of bytes. Malformed content never raises an error.

    `on_end` is called at the end with the numbers of lines and bytes. `line_filter` selects the rows to read, which is
    faster for a long log; None means all rows.
    """
    source = _Source(chunks)
    for rows in source.rows(line_filter):
        for row_index in range(len(rows.shapes)) if line_filter is None else line_filter.select_lines(rows):
            yield from iter_lines(
                rows.texts[row_index], rows.line_numbers[row_index], rows.positions[row_index]
            )
    if on_end is not None:
        on_end(source.number, source.size)


def iter_lines(row: bytes, line_number: int, position: int) -> Iterator[Line]:
    """Yield the messages of a row.

    `line_number` is its line number in the file, and `position` its position among all rows.
    """
    next_record = position << _MESSAGE_BITS
    if len(row) <= MAX_LINE_CHARS:
        messages = list(iter_messages(decode_text(row)))
    else:
        messages = [message for text in decode_line(row) for message in iter_messages(text)]
    for index, (text, prefix) in enumerate(messages, 1):
        record = next_record
        next_record = record + 1 if index < len(messages) else (position + 1) << _MESSAGE_BITS
        if text or prefix:
            yield Line(line_number, text, prefix, record, next_message_number=next_record)


# ---------------------------------------------------------------- rows


class Rows:
    """The rows of a block of a log: its lines, or the pieces of lines between carriage returns.

    All lists have the same order. Each is created on first use.
    """

    def __init__(self, block: bytes, number: int, place: int, *, early: bool) -> None:
        self._block = block
        self._number = number
        self._place = place
        self.is_at_beginning = early
        """Whether the block belongs to the beginning of the log, in which every row is read."""
        self.first_bytes = block[:_HEAD_BYTES]
        """The first bytes of the block."""

    @cached_property
    def row_count(self) -> int:
        """The number of rows."""
        # a list in __dict__ was created before; its length is known, but counting short lines is slow
        if "shapes" in self.__dict__:
            return len(self.shapes)
        ends_with_newline = self._block.endswith(b"\n")
        if "texts" in self.__dict__:
            return len(self.texts) - ends_with_newline
        return self._block.count(b"\n") + self._block.count(b"\r") + (not ends_with_newline)

    @property
    def physical_line_count(self) -> int:
        """The number of lines of the file in this block."""
        if b"\r" not in self._block:  # searching is faster than counting
            return self.row_count
        count, position = 0, self._block.find(b"\n")
        # a progress bar has hardly any newlines, so searching is faster than counting
        while position >= 0 and count < _MAX_SPARSE_TEXTS:
            count, position = count + 1, self._block.find(b"\n", position + 1)
        if position >= 0:
            count += self._block.count(b"\n", position)
        return count + (not self._block.endswith(b"\n"))

    @cached_property
    def shapes(self) -> list[bytes]:
        """The shapes of the rows."""
        shapes = self._block.translate(_ROW_TO_SHAPE, _BACKSPACE).split(b"\n")
        if self._block.endswith(b"\n"):
            shapes.pop()
        return shapes

    @cached_property
    def texts(self) -> Sequence[bytes]:
        """The rows as bytes. If the block ends with a newline, an empty item follows the last row."""
        return self._block.translate(_RETURN_TO_NEWLINE, _BACKSPACE).split(b"\n")

    def limit_texts(self, indices: Sequence[int]) -> None:
        """Declare that only the texts at these indices will be used. If they are few, the block is not split."""
        is_sparse = isinstance(self.__dict__.get("texts"), _SparseTexts)
        if is_sparse and len(indices) > _MAX_SPARSE_TEXTS:
            del self.texts
        elif len(indices) <= _MAX_SPARSE_TEXTS and "texts" not in self.__dict__:
            # this replaces the value of the cached property
            self.texts = _SparseTexts(self._block, self.shapes)

    @cached_property
    def line_numbers(self) -> Sequence[int]:
        """The line number in the file of each row."""
        if b"\r" not in self._block:
            return range(self._number, self._number + self.row_count)
        lines = enumerate(self._block.split(b"\n"), self._number)
        return [number for number, raw in lines for _ in range(raw.count(b"\r") + 1)]

    @cached_property
    def positions(self) -> Sequence[int]:
        """The position of each row among all rows of the log."""
        return range(self._place, self._place + self.row_count)


class _SparseTexts(Sequence[bytes]):
    """The texts of rows, of which only a few are used.

    The block is not split. A text is located by the lengths of the shapes before it.
    """

    def __init__(self, block: bytes, shapes: list[bytes]) -> None:
        self._text = block.translate(None, _BACKSPACE) if _BACKSPACE in block else block
        self._shapes = shapes

    def __len__(self) -> int:
        return len(self._shapes)

    def __getitem__(self, index: Any) -> Any:
        start = sum(map(len, self._shapes[:index])) + index
        return self._text[start : start + len(self._shapes[index])]


class _JoinedRows(Rows):
    """The rows of a log that a terminal wrapped, joined again."""

    def __init__(self, lines: list[tuple[int, int, str]]) -> None:
        self.is_at_beginning = True
        self.first_bytes = b""
        self.texts = [text.encode("utf-8", "replace") for _, _, text in lines]
        self.shapes = [text.translate(_ROW_TO_SHAPE) for text in self.texts]
        self.line_numbers = [number for number, _, _ in lines]
        self.positions = [place for _, place, _ in lines]


class _LinePiece(NamedTuple):
    """A row, or a piece of a row that is too long."""

    line_number: int
    position: int
    text: str


class _Source:
    """The rows of a stream, with a count of lines and bytes."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._blocks = iter_blocks(self._count_bytes(chunks))
        self.size = 0
        self._number = self._place = 0
        self._uncounted_rows: Rows | None = None
        """The last rows, or None if they are counted. Counting is faster once the caller has used their lists."""
        self._begins_line = True
        """Whether the next block begins a new line, and does not continue a line that was split."""

    def rows(self, line_filter: Filter | None) -> Iterator[Rows]:
        """Yield the rows. Of a wrapped log, blocks that `line_filter` does not select are left out."""
        first_blocks: list[bytes] = []
        first_lines: list[str] = []
        for block in self._blocks:
            first_blocks.append(block)
            rows = Rows(block, 0, 0, early=True)
            first_lines += [piece.text for piece in islice(_split_rows(rows), _LOOKAHEAD_ROWS)]
            if len(first_lines) >= _LOOKAHEAD_ROWS or sum(map(len, first_blocks)) >= _FULL_READ_BYTES:
                break
        terminal_width = _detect_width(first_lines[:_LOOKAHEAD_ROWS])
        all_blocks = chain(first_blocks, self._blocks)
        if not terminal_width:
            read_bytes = 0
            for block in all_blocks:
                is_pasted = len(block) <= _PASTED_BYTES
                text = _DOUBLED_BLANK.sub(b" ", block) if is_pasted else block
                yield self._make_rows(text, early=read_bytes <= _FULL_READ_BYTES)
                read_bytes += len(block)
            return
        joined_lines = _join_cut_lines(self._iter_pieces(all_blocks, line_filter), terminal_width)
        while batch := list(islice(joined_lines, _BATCH_LINES)):
            yield _JoinedRows(batch)

    def _count_bytes(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self.size += len(chunk)
            yield chunk

    @property
    def number(self) -> int:
        """The number of the last line that was read."""
        if self._uncounted_rows is not None:
            self._place += self._uncounted_rows.row_count - 1
            self._number += self._uncounted_rows.physical_line_count - 1
            self._uncounted_rows = None
        return self._number

    def _make_rows(self, block: bytes, *, early: bool) -> Rows:
        """Return the rows of the next block."""
        number = self.number + self._begins_line
        self._place += self._begins_line
        self._number, self._begins_line = number, block.endswith(b"\n")
        self._uncounted_rows = Rows(block, number, self._place, early=early)
        return self._uncounted_rows

    def _iter_pieces(self, all_blocks: Iterable[bytes], line_filter: Filter | None) -> Iterator[_LinePiece]:
        """Yield the pieces of the selected blocks of a log that a terminal wrapped.

        The block after a selected one is also included, because a message can continue in it.
        """
        read_bytes = 0
        was_selected = True
        for block in all_blocks:
            rows = self._make_rows(block, early=True)
            is_selected = (
                line_filter is None or read_bytes <= _FULL_READ_BYTES or line_filter.can_match_block(block)
            )
            read_bytes += len(block)
            if is_selected or was_selected:
                yield from _split_rows(rows)
            was_selected = is_selected


def _split_rows(rows: Rows) -> Iterator[_LinePiece]:
    """Yield the pieces of each row, without empty rows after the last carriage return of a line."""
    empty_pieces: list[_LinePiece] = []
    last_number = -1
    for number, place, row in zip(rows.line_numbers, rows.positions, rows.texts, strict=False):
        if not row and number == last_number:
            empty_pieces.append(_LinePiece(number, place, ""))
            continue
        if number == last_number:
            yield from empty_pieces
        empty_pieces.clear()
        last_number = number
        for text in decode_line(row):
            yield _LinePiece(number, place, text)


def decode_line(raw: bytes) -> Iterator[str]:
    """Yield the text of a row, split into overlapping pieces if it is too long."""
    text = decode_text(raw)
    if len(text) <= MAX_LINE_CHARS:
        yield text
        return
    for start in range(0, len(text), MAX_LINE_CHARS - _OVERLAP_CHARS):
        yield text[start : start + MAX_LINE_CHARS]
        if start + MAX_LINE_CHARS >= len(text):
            break


# ---------------------------------------------------------------- cleaning


def clean_text(text: str) -> str:
    """Return the text without colours, control characters, tags and escapes."""
    if "\x1b" in text or "\\u001b" in text or "\\x1b" in text or "\\033" in text:
        text = _ANSI.sub("", text)
    if not text.isprintable():
        text = _SURROGATE.sub("\ufffd", _CONTROL_CHARS.sub("", text.replace("\t", " ").replace("\xa0", " ")))
    if "&" in text and ";" in text:
        text = _CONTROL_CHARS.sub("", html.unescape(text).replace("\xa0", " "))
    if "<" in text:
        text = _TAG.sub("", text)
    if any(mark in text for mark in _ESCAPED_MARKS):
        text = _ESCAPED.sub(lambda match: match["path"] or match["mark"], text)  # a path of Windows stays
    return text


def _iter_unescaped_lines(text: str) -> Iterator[str]:
    """Yield the lines of a JSON string or of a text with escaped newlines, or else the text itself."""
    if '"' in text:
        match = _JSON_STRING.match(text)
        if match is not None and match[1]:
            text = match[1]
    if ("\\n" in text or "\\r" in text) and _ESCAPED_NEWLINE.search(text):
        yield from (part for part in _ESCAPED_NEWLINE.split(text) if part.strip())
    else:
        yield text


# ---------------------------------------------------------------- logical lines


def _detect_width(lines: list[str]) -> int:
    """Return the width at which a terminal wrapped these lines, or 0 if none did.

    Wrapped lines have the same length. One character less also counts, because a space at the wrap is lost. Long
    records of other lengths are evidence that no terminal wrapped the log.
    """
    widest = max((len(line) for line in lines), default=0)
    if not _MIN_TERMINAL_CHARS <= widest <= _MAX_TERMINAL_CHARS:
        return 0
    wrapped_count = long_record_count = 0
    continuation_char = ""
    is_sentence_end = False
    for line, next_line in pairwise(lines):
        if not next_line.strip():
            continue
        next_text = next_line.removeprefix(_find_mark(line))
        if (
            find_record_start(next_text)
            or _LINE_START.match(next_text)
            or line.lstrip().startswith(("|", "+"))
        ):
            continue
        if len(line) == len(next_line) and _is_progress_bar(line, next_line):
            continue
        is_full = widest - 1 <= len(line) <= widest
        wrapped_count += is_full
        if is_full:
            continuation_char = next_text.lstrip()[:1]
            is_sentence_end = line.endswith(("...", "No such file or directory")) or (
                line.endswith(".") and not next_text.startswith("so")
            )
        long_record_count += (
            find_record_start(line) is not None and not is_full and len(line) >= _MIN_TERMINAL_CHARS
        )
    if wrapped_count == 1 and (continuation_char.isupper() or is_sentence_end):
        return 0  # a single long line before a new sentence, which the user's program may have printed
    return widest if wrapped_count and wrapped_count >= long_record_count else 0


def _is_progress_bar(line: str, next_line: str) -> bool:
    """Return whether two lines of the same length have 90 % of their characters in common.

    Lines of a progress bar do, and they are not wrapped. All digits count as the same character.
    """
    equal_chars = sum(a == b or (a.isdigit() and b.isdigit()) for a, b in zip(line, next_line, strict=True))
    return equal_chars * 10 >= len(line) * 9


def _join_cut_lines(pieces: Iterable[_LinePiece], width: int) -> Iterator[tuple[int, int, str]]:
    """Yield (line number, place, text) of each joined line of a wrapped log.

    A joined line has one place, and the places of all lines stay consecutive.
    """
    parts: deque[str] = deque()
    first_piece = last_piece = _LinePiece(0, 0, "")
    last_line = mark = ""
    dropped_places = 0
    for piece in pieces:
        raw = line = piece.text
        continuation = line.removeprefix(mark) if parts and mark else line
        if parts and _is_continuation(last_line, continuation, len(line), width):
            raw = continuation
            space = (
                " "
                if len(last_line) < width and not last_line.endswith(" ") and not raw.startswith(" ")
                else ""
            )
            parts.append(space + raw)
            last_line, last_piece = line, piece
            if sum(map(len, parts)) < MAX_LINE_CHARS:
                continue
            raw = ""  # the record has reached the maximum length: yield it as it is
        if parts:
            yield first_piece.line_number, first_piece.position - dropped_places, "".join(parts)
            dropped_places += last_piece.position - first_piece.position
            parts.clear()
        if raw:
            parts.append(raw)
            first_piece, last_piece, last_line, mark = piece, piece, raw, _find_mark(raw)
    if parts:
        yield first_piece.line_number, first_piece.position - dropped_places, "".join(parts)


def find_record_start(text: str, start: int = 0) -> re.Match[str] | None:
    """Return the first beginning of a record in a text, at or after `start`, or None if there is none."""
    if "]" not in text and ".cc" not in text:
        return None
    time_match, letter_match = _TIMESTAMP_START.search(text, start), _SEVERITY_START.search(text, start)
    if time_match is None or letter_match is None:
        return time_match or letter_match
    return min(time_match, letter_match, key=lambda match: match.start())


def _iter_record_starts(text: str) -> Iterator[int]:
    """Yield the positions where records begin."""
    if "]" not in text and ".cc" not in text:
        return
    time_match, letter_match = _TIMESTAMP_START.search(text), _SEVERITY_START.search(text)
    while time_match is not None or letter_match is not None:
        match = time_match
        if time_match is None or (letter_match is not None and letter_match.start() < time_match.start()):
            match = letter_match
        if match is None:
            return
        yield match.start()
        end = match.end()
        if time_match is not None and time_match.start() < end:
            time_match = _TIMESTAMP_START.search(text, end)
        if letter_match is not None and letter_match.start() < end:
            letter_match = _SEVERITY_START.search(text, end)


def _find_mark(raw: str) -> str:
    """Return the quote mark, indentation or prefix before a message. Continuation lines repeat it."""
    record_start = find_record_start(raw[:_MAX_RECORD_START_CHARS])
    if record_start is not None and record_start.start() <= _MAX_PREFIX_CHARS:
        return raw[: record_start.start()]
    tag = _LAUNCHER_TAG.match(raw)
    if tag is not None:
        return tag[0]
    quote = _QUOTE.match(raw)
    return quote[0] if quote is not None else raw[: len(raw) - len(raw.lstrip())]


def _is_continuation(last_line: str, next_line: str, marked_length: int, width: int) -> bool:
    """Return whether `next_line` is the rest of the wrapped line `last_line`.

    `next_line` has no mark, and `marked_length` is its length with the mark.
    """
    if not width or not width - 1 <= len(last_line) <= width or marked_length > width:
        return False
    if not next_line.strip() or find_record_start(next_line):
        return False
    return not (_LINE_START.match(next_line) or _LAUNCHER_TAG.match(next_line))


def iter_messages(raw: str) -> Iterator[tuple[str, str]]:
    """Yield (message, text before it) for each message of a line.

    A terminal, a web form or a missing newline can put several messages on one line.
    """
    for text in _iter_unescaped_lines(clean_text(raw)):
        starts, tag = list(_iter_record_starts(text)), _LAUNCHER_TAG.match(text)
        if not starts:
            message = text[tag.end() :] if tag is not None else ""
            if tag is not None and message.strip():
                yield message.rstrip("` "), tag[0].strip()
            else:
                yield _strip_quote(text), ""
            continue
        before = text[: starts[0]]
        prefix = before.strip()
        # a long text, or one of several words, is a message of its own rather than a prefix
        if len(prefix) > _MAX_PREFIX_CHARS or " " in prefix.strip("> "):
            yield _strip_quote(before), ""
        if tag is not None and tag.end() <= starts[0]:
            prefix = tag[0].strip()
        for start, end in zip(starts, [*starts[1:], len(text)], strict=False):
            yield text[start:end].rstrip(" `|"), prefix


def _strip_quote(text: str) -> str:
    """Return the text without Markdown's marks for quotes, lists and code."""
    match = _QUOTE.match(text)
    if match is not None and not text.startswith(("#!", ">>>")) and "[" not in match[0]:
        unquoted = text[match.end() :]
        return unquoted.rstrip("` ") if unquoted.strip() else text
    return text.strip("` ")
