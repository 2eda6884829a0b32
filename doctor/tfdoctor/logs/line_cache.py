"""Cache log lines that differ only in digits and mean the same, so that only one of them is read.

The shape of a line is the line with all its digits replaced by 0. In most shapes no digit matters (they are "plain"),
and all lines of a block with one of these shapes are counted at once. In other shapes some digits matter, and they divide
the lines of the shape into kinds:

* digits that name the process or thread (the source of the line),
* digits that a signature captures, as long as more events of it are stored,
* digits that can change whether a signature matches.

The repetitions of each kind are counted, and its last line is stored.
"""

from __future__ import annotations

import re
from collections import Counter
from operator import itemgetter
from typing import TYPE_CHECKING, Any, cast

from tfdoctor.core.text import clean_line
from tfdoctor.logs.blocks import decode_text
from tfdoctor.logs.processes import find_process_label_spans, find_process_labels
from tfdoctor.logs.reader import DIGIT_BYTES_TO_ZERO, DIGITS_TO_ZERO, iter_lines, iter_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tfdoctor.logs.events import Log
    from tfdoctor.logs.processes import ProcessSplitter
    from tfdoctor.logs.reader import Line, Rows
    from tfdoctor.logs.signatures import Catalogue, Signature

__all__ = ["LineCache"]

MAX_CACHED_BYTES = 1 << 23
"""The approximate maximum size of the cache in bytes."""
_KIND_BYTES = 1000
"""The approximate size of one kind in bytes, without its line and its shape."""
_MAX_CACHED_LINE_BYTES = 2048
"""The size in bytes from which a line is not cached."""
_MAX_UNMATCHED_SHAPES = 4096
"""The maximum number of cached shapes without a match."""
_MAX_ENDS = 64
"""The maximum number of different line ends that are cached for one shape."""
_MAX_REST_BYTES = 600
"""The size in bytes from which the rest of a line after its timestamp is not cached."""
_MAX_DIFFERING_BLOCKS = 8
"""The number of blocks with many new rests (see `_blocks_with_new_rests`) above which rests are not looked up."""
_MAX_RESTS = 4096
"""The maximum number of different rests after a timestamp that are cached."""
_LINE_END_BYTES = 150
"""The approximate size of a line end in bytes, without its text."""
_ESCAPES = re.compile(rb"&.*;|\\(?:u000b|x0b|000)")
"""HTML and terminal escapes in a shape, of which digits can be part."""
_DIGIT = re.compile("[0-9]")
_TIMESTAMP_SHAPE = re.compile(rb"0000-00-00[ T]00:00:00\.0{1,9}|[IWEF]0000 00:00:0{2,10}\.0{1,9}")
_DIGIT_TO_OTHER = bytes.maketrans(b"0123456789", b"1234567890")
"""The translation of each digit to a different one."""


class _LineKind:
    """The lines of one kind: the number of repetitions that are not in the log yet, and the last line."""

    __slots__ = ("last_row", "number", "position", "times")

    def __init__(self) -> None:
        self.times = 0
        self.last_row = b""
        self.number = self.position = 0


class _MessageSource:
    """The kinds of lines of one shape that one process or thread wrote."""

    __slots__ = ("get_key", "kinds", "spans")

    def __init__(self, spans: object, get_key: Callable[[Any], object] | None) -> None:
        self.spans = spans
        self.get_key = get_key
        """A function that returns what determines the kind of a line, or None if all lines are of one kind."""
        self.kinds: dict[object, _LineKind] = {}


class _Shape:
    """The cached kinds of lines of one shape."""

    __slots__ = ("first_digit", "get_source_name", "get_text", "is_thread_only", "kinds_by_end", "sources")

    def __init__(
        self,
        get_text: Callable[[bytes], str] | None,
        get_source_name: Callable[[Any], Any] | None,
        is_thread_only: bool,
    ) -> None:
        self.get_text = get_text
        """A function that returns the text to which spans refer. None means that they refer to the line itself.

        For a line that had to be cleaned, the text consists of its messages (see `_flatten`).
        """
        self.get_source_name = get_source_name
        """A function that returns the process or thread name in a line, or None if the name has no digit."""
        self.is_thread_only = is_thread_only
        """Whether only a thread number names the source of a line."""
        self.sources: dict[object, _MessageSource] = {}
        """The sources of the lines by the name of the process or thread. All unnamed sources have the key None."""
        self.first_digit = -1
        """The position of the first digit that can determine the kind, or -1 if unknown or if there are too many ends.

        Lines with the same end from this position on are of one kind.
        """
        self.kinds_by_end: dict[bytes, _LineKind] = {}
        """The kinds by line end."""


class _Message:
    """A message of a line, with the positions of its text and prefix and with its signatures."""

    __slots__ = (
        "digit_dependent_signatures",
        "label",
        "matched_signatures",
        "prefix",
        "prefix_position",
        "text",
        "text_position",
        "thread",
    )

    def __init__(self, text: str, prefix: str, text_position: int, prefix_position: int) -> None:
        self.text, self.prefix, self.text_position, self.prefix_position = (
            text,
            prefix,
            text_position,
            prefix_position,
        )
        self.label, self.thread = find_process_labels(prefix, clean_line(text))
        self.matched_signatures: list[tuple[Signature, re.Match[str], int]] = []
        """(signature, match, offset in the line) for each matching signature that treats all digits alike."""
        self.digit_dependent_signatures: list[tuple[Signature, slice]] = []
        """(signature, part of the line to search) for each other signature that may match."""

    def names(self) -> list[str]:
        """Return the ids of the signatures that match the message or may match it."""
        return [signature.id for signature, _, _ in self.matched_signatures] + [
            signature.id for signature, _ in self.digit_dependent_signatures
        ]


class LineCache:
    """A line filter (see `reader.Filter`) that adds the repetitions of cached lines to the log."""

    def __init__(
        self,
        catalogue: Catalogue,
        log: Log,
        splitter: ProcessSplitter | None,
        add_repetitions: Callable[[Line, int], None],
    ) -> None:
        self._catalogue = catalogue
        self._log = log
        self._splitter = splitter
        self._add_repetitions = add_repetitions
        """A function that is called with the last line of a kind and the number of its repetitions."""
        self.has_added_event = False
        """Whether the last line that was read added a new event. The scanner sets this."""
        self._unmatched_shapes: set[bytes] = {b""}
        """The shapes without any match."""
        self._shapes: dict[bytes, _Shape] = {}
        self._plain_kinds: dict[bytes, _LineKind] = {}
        """The kinds of the shapes in which no digit matters."""
        self._shapes_by_signature: dict[str, set[bytes]] = {}
        """The cached shapes that each signature can match, by signature id."""
        self._cached_bytes = self._forget_count = 0
        """The approximate size of the cache in bytes, and the number of calls of `forget`."""
        self._kinds_by_rest: dict[bytes, _LineKind] = {}
        """The kinds of lines that begin with the shape `_time_shape`, by the rest of the line."""
        self._time_shape = b""
        """The shape of a line up to the end of its timestamp."""
        self._blocks_with_new_rests = 0
        """The number of blocks in which more than a quarter of the rests were new, minus the number of others."""
        self._unmatched_kind = _LineKind()
        """The kind of all lines without a match."""
        self._last_indices: dict[_LineKind, int] = {}
        """The index of the last line in the current rows, for each kind that they repeat."""
        self._pending: list[_LineKind] = []
        """The kinds with repetitions that are not added to the log yet."""
        self._thread_numbers: frozenset[bytes | str] | None = None
        """The numbers of the threads that the splitter distinguishes, or None if it can still add more."""
        self._rows: Rows | None = None
        """The rows that are being selected. None between two blocks."""
        self._is_steady = False
        """Whether no line of the previous rows had to be read."""
        self._counted_end = self._current_index = 0
        """Indices in the current rows: the end of the counted lines, and the line that is being read."""

    def select_lines(self, rows: Rows) -> Iterator[int]:
        """Yield the indices of the rows to read (see `reader.Filter`)."""
        if self._is_steady and not rows.is_at_beginning and self._match_timestamped(rows):
            return
        shapes = rows.shapes
        matching_shapes = frozenset(shapes) if rows.is_at_beginning else self._catalogue.filter_shapes(shapes)
        matching_shapes -= self._unmatched_shapes
        if not matching_shapes:
            self._is_steady = True
            return
        self._rows, self._counted_end, self._current_index = rows, 0, -1
        last_indices = self._last_indices
        while unknown_shapes := matching_shapes - self._plain_kinds.keys():
            forget_count, shape_cache, plain_kinds = self._forget_count, self._shapes, self._plain_kinds
            indices = [
                row for row in range(self._current_index + 1, len(shapes)) if shapes[row] in unknown_shapes
            ]
            rows.limit_texts(indices)
            if self._is_steady and self._count_all(rows, indices):
                break
            self._is_steady = True
            texts = rows.texts
            for index in indices:
                shape = shapes[index]
                if shape in plain_kinds:  # it became plain when the previous line was read
                    continue
                cached_shape = shape_cache.get(shape)
                if cached_shape is not None:
                    text = texts[index]
                    kind = cached_shape.kinds_by_end.get(text[cached_shape.first_digit :]) or self._find_kind(
                        cached_shape, text
                    )
                    if kind is not None:
                        kind.times += 1
                        last_indices[kind] = index
                        continue
                self.has_added_event, self._current_index, self._is_steady = False, index, False
                yield index
                if not self.has_added_event:
                    self._cache_line(shape, texts[index])
                if self._forget_count != forget_count:
                    break
            else:
                break
        self._count_plain_lines(len(shapes))
        self._rows = None

    def _match_timestamped(self, rows: Rows) -> bool:
        """Count these lines if all begin with timestamps of one shape and are of known kinds.

        Return whether they were counted.
        """
        if (
            self._blocks_with_new_rests > _MAX_DIFFERING_BLOCKS
            or _find_timestamp_end(rows.first_bytes.translate(DIGIT_BYTES_TO_ZERO)) < 0
        ):
            return False
        texts = rows.texts if len(rows.texts) == rows.row_count else rows.texts[: rows.row_count]
        shape = texts[0].translate(DIGIT_BYTES_TO_ZERO)
        end = _find_timestamp_end(shape)
        beginnings = b"".join([text[:end] for text in texts]) if end > 0 else b""
        if not beginnings or beginnings.translate(DIGIT_BYTES_TO_ZERO) != shape[:end] * len(texts):
            return False
        if shape[:end] != self._time_shape or len(self._kinds_by_rest) >= _MAX_RESTS:
            self._kinds_by_rest.clear()
            self._time_shape = shape[:end]
        rests = self._kinds_by_rest
        kinds = [rests.get(text[end:]) for text in texts]
        unknown_count = kinds.count(None)
        self._blocks_with_new_rests += (
            1 if unknown_count * 4 > len(kinds) else -(self._blocks_with_new_rests > 0)
        )
        if unknown_count:
            for index, kind in enumerate(kinds):
                if kind is None:
                    new_kind = self._find_by_rest(texts[index], end)
                    if new_kind is None:
                        return False
                    kinds[index] = new_kind
        all_kinds = cast("list[_LineKind]", kinds)
        for known_kind, times in Counter(all_kinds).items():
            known_kind.times += times
        self._last_indices.update(zip(all_kinds, range(len(all_kinds)), strict=True))
        self._last_indices.pop(self._unmatched_kind, None)
        self._rows, self._counted_end = rows, len(all_kinds)
        self._count_plain_lines(len(all_kinds))
        self._rows = None
        return True

    def _find_by_rest(self, text: bytes, end: int) -> _LineKind | None:
        """Return the kind of this line, and cache it by the rest of the line after position `end`.

        Return None if the kind is unknown, or the line is too long.
        """
        shape = text.translate(DIGIT_BYTES_TO_ZERO)
        if len(text) >= _MAX_CACHED_LINE_BYTES:
            return None
        if shape in self._unmatched_shapes or not self._catalogue.filter_shapes([shape]):
            kind: _LineKind | None = self._unmatched_kind
        elif shape in self._plain_kinds:
            kind = self._plain_kinds[shape]
        elif shape in self._shapes:
            cached_shape = self._shapes[shape]
            kind = cached_shape.kinds_by_end.get(text[cached_shape.first_digit :]) or self._find_kind(
                cached_shape, text
            )
            if cached_shape.first_digit < end:  # a digit before the rest matters, too
                return kind
        else:
            return None
        if kind is not None and len(text) < _MAX_REST_BYTES:
            self._kinds_by_rest[text[end:]] = kind
        return kind

    def _count_all(self, rows: Rows, indices: Sequence[int]) -> bool:
        """Count the lines at these indices if all are of known kinds. Return whether that was done."""
        shapes, texts, shape_cache = rows.shapes, rows.texts, self._shapes
        try:
            cached_shapes = [shape_cache[shapes[index]] for index in indices]
        except KeyError:
            return False
        kinds = self._find_kinds(cached_shapes[0], texts, indices) if len(set(cached_shapes)) == 1 else None
        if kinds is None:
            kinds = [
                shape.kinds_by_end.get(texts[index][shape.first_digit :])
                or self._find_kind(shape, texts[index])
                for shape, index in zip(cached_shapes, indices, strict=True)
            ]
        if None in kinds:
            return False
        all_kinds = cast("list[_LineKind]", kinds)
        for kind, times in Counter(all_kinds).items():
            kind.times += times
        self._last_indices.update(zip(all_kinds, indices, strict=True))
        return True

    def _find_kinds(
        self, shape: _Shape, texts: Sequence[bytes], indices: Sequence[int]
    ) -> list[_LineKind | None] | None:
        """Return the kinds of these lines of one shape, all at once.

        Return None if any of them may come from a distinguished thread, or if spans do not refer to the line itself.
        """
        source = shape.sources.get(None)
        if (
            self._thread_numbers is None
            or source is None
            or shape.get_source_name is None
            or shape.get_text is not None
            or not shape.is_thread_only
        ):
            return None
        lines = itemgetter(*indices)(texts) if len(indices) > 1 else [texts[index] for index in indices]
        names = set(map(shape.get_source_name, lines))
        if not (self._thread_numbers.isdisjoint(names) and shape.sources.keys().isdisjoint(names)):
            return None
        if source.get_key is None:
            return [source.kinds.get(None)] * len(lines)
        return list(map(source.kinds.get, map(source.get_key, lines)))

    def flush(self) -> None:
        """Add the pending repetitions to the log."""
        if self._rows is not None:
            self._count_plain_lines(self._current_index)
        for kind in self._pending:
            for line in iter_lines(kind.last_row, kind.number, kind.position):
                self._add_repetitions(line, kind.times)
            kind.times, kind.last_row = 0, b""
        self._pending.clear()

    def forget(self, signature_ids: Iterable[str] = ()) -> None:
        """Add the pending repetitions, and drop the shapes with these signatures, or else all shapes.

        Call this before an event that can change the meaning of later lines.
        """
        self.flush()
        self._kinds_by_rest.clear()
        self._counted_end = self._current_index + 1  # the line at the current index was read
        self._forget_count += 1
        for signature_id in signature_ids:
            for shape in self._shapes_by_signature.pop(signature_id, ()):
                cached_shape = self._shapes.pop(shape, None)
                if cached_shape is not None:
                    self._forget_line_ends(cached_shape)
                self._plain_kinds.pop(shape, None)
        if not signature_ids:
            self._shapes.clear()
            self._plain_kinds.clear()
            self._shapes_by_signature.clear()
            self._cached_bytes = 0

    def _count_plain_lines(self, end: int) -> None:
        """Count the plain lines before index `end`, and store the last line of each repeated kind."""
        rows, start = self._rows, self._counted_end
        if rows is None:
            return
        if self._plain_kinds and start < end:
            shapes = rows.shapes if end - start == len(rows.shapes) else rows.shapes[start:end]
            counts = Counter(shapes)
            last_indices = dict(zip(shapes, range(start, end), strict=True))
            for shape in counts.keys() & self._plain_kinds.keys():
                kind = self._plain_kinds[shape]
                kind.times += counts[shape]
                self._last_indices[kind] = last_indices[shape]
        self._counted_end = max(start, end)
        texts, numbers, places = rows.texts, rows.line_numbers, rows.positions
        for kind, index in self._last_indices.items():
            if not kind.last_row:
                self._pending.append(kind)
            kind.last_row, kind.number, kind.position = texts[index], numbers[index], places[index]
        self._last_indices.clear()

    def _find_kind(self, shape: _Shape, text: bytes) -> _LineKind | None:
        """Return the kind of this line, or None if no line of its kind was read yet."""
        row: Any = text if shape.get_text is None else shape.get_text(text)
        if shape.get_source_name is None:
            source = shape.sources.get(None)
        else:
            name = shape.get_source_name(row)
            source = shape.sources.get(name)
            if source is None:
                if shape.is_thread_only and self._is_unknown_thread(name):
                    source = shape.sources.get(None)
                return self._find_by_source(source, row)
        kind = self._find_by_source(source, row)
        if kind is not None and shape.first_digit >= 0:
            if len(shape.kinds_by_end) < _MAX_ENDS and self._cached_bytes < MAX_CACHED_BYTES:
                end = text[shape.first_digit :]
                shape.kinds_by_end[end] = kind
                self._cached_bytes += _LINE_END_BYTES + len(end)
            else:
                self._forget_line_ends(shape)
                shape.first_digit = -1
        return kind

    @staticmethod
    def _find_by_source(source: _MessageSource | None, row: bytes | str) -> _LineKind | None:
        """Return the kind of a row from this source, or None if it is unknown."""
        return (
            None
            if source is None
            else source.kinds.get(source.get_key(row) if source.get_key is not None else None)
        )

    def _forget_line_ends(self, shape: _Shape) -> None:
        self._cached_bytes -= sum(_LINE_END_BYTES + len(end) for end in shape.kinds_by_end)
        shape.kinds_by_end.clear()

    def _is_unknown_thread(self, name: bytes | str) -> bool:
        """Return whether the splitter certainly does not distinguish this thread from others.

        Return False while the splitter can still add threads.
        """
        if self._thread_numbers is None:
            numbers = self._splitter.list_thread_numbers() if self._splitter is not None else None
            if numbers is None:
                return False
            self._thread_numbers = numbers | {number.encode() for number in numbers}
        return name not in self._thread_numbers

    # ------------------------------------------------------------ learning kinds

    def _cache_line(self, shape: bytes, row: bytes) -> None:
        """Cache the kind of a line that was read and added no new event."""
        self._kinds_by_rest.clear()
        if len(row) >= _MAX_CACHED_LINE_BYTES or _ESCAPES.search(shape):
            return
        contents = list(iter_messages(decode_text(row)))
        positions = _locate_messages(shape, contents)
        get_text = None if positions is not None else _flatten
        messages = [
            _Message(*content, *position)
            for content, position in zip(contents, positions or _locate_flat(contents), strict=True)
        ]
        for message in messages:
            self._match_message(message)
        if not any(message.matched_signatures or message.digit_dependent_signatures for message in messages):
            if len(self._unmatched_shapes) < _MAX_UNMATCHED_SHAPES:
                self._unmatched_shapes.add(shape)
            return
        source_spans: list[tuple[int, int]] = []
        for message in messages:
            spans = self._find_source_spans(message)
            if spans is None:
                return
            source_spans += spans
        self._store_kind(shape, row, get_text, messages, source_spans)

    def _match_message(self, message: _Message) -> None:
        """Fill the lists of signatures that match a message or may match it."""
        for text, offset in (
            (message.text, message.text_position),
            (f"{message.prefix} ", message.prefix_position),
        ):
            for signature in self._catalogue.list_candidates(text) if text != " " else ():
                if not signature.ignores_digits:
                    message.digit_dependent_signatures.append((signature, slice(offset, offset + len(text))))
                    continue
                match = signature.pattern.search(text)
                if match is not None:
                    message.matched_signatures.append((signature, match, offset))

    def _find_source_spans(self, message: _Message) -> list[tuple[int, int]] | None:
        """Return the spans of the line that name its process or thread.

        Return None if the line must not be cached, because the next line of its kind can begin another process, or
        because cleaning changes the names.
        """
        if self._splitter is None or not (message.matched_signatures or message.digit_dependent_signatures):
            return []
        if self._splitter.may_start_process(message.label, message.names()):
            return None
        if (message.label, message.thread) != find_process_labels(message.prefix, message.text):
            return None
        if self._splitter.is_closed and not message.label:
            return []  # the splitter stores no more events of threads
        return [
            (start + offset, end + offset)
            for in_text, start, end in find_process_label_spans(message.prefix, message.text)
            for offset in [message.text_position if in_text else message.prefix_position]
        ]

    def _find_capture_spans(self, message: _Message) -> Iterator[tuple[int, int]]:
        """Yield the spans of captures with digits that can still make an event new."""
        for signature, match, offset in message.matched_signatures:
            if self._log.is_saturated(signature.id) and (
                self._splitter is None
                or self._splitter.is_saturated(message.label, message.thread, signature.id)
            ):
                continue
            for name, value in match.groupdict().items():
                if value is not None and _DIGIT.search(value):
                    yield match.start(name) + offset, match.end(name) + offset

    def _find_match_span(self, signature: Signature, part: slice, line: bytes | str) -> tuple[int, int]:
        """Return the span of a line in which digits can affect the match of a signature.

        `part` is the part of the line that the signature searches.
        """
        text = line if isinstance(line, str) else line.decode()
        if "(?<" in signature.pattern.pattern:  # a look-behind also reads the characters before the match
            return part.start, part.stop
        match = self._catalogue.search_shape(signature, text[part].translate(DIGITS_TO_ZERO))
        return part.start + (match.start() if match is not None else 0), part.stop

    def _store_kind(
        self,
        shape: bytes,
        row: bytes,
        get_text: Callable[[bytes], str] | None,
        messages: list[_Message],
        source_spans: list[tuple[int, int]],
    ) -> None:
        """Add the kind of a line to the cache.

        `source_spans` are the spans of the line that name its process or thread.
        """
        if self._cached_bytes >= MAX_CACHED_BYTES:
            self.forget()
        for message in messages:
            for signature_id in message.names():
                self._shapes_by_signature.setdefault(signature_id, set()).add(shape)
        line: Any = row if get_text is None else get_text(row)
        cached_shape = self._shapes.get(shape)
        if cached_shape is None:
            spans = sorted({span for span in source_spans if _has_digit(line, span)})
            is_single = len(messages) == 1 and not messages[0].label
            cached_shape = self._shapes[shape] = _Shape(get_text, _make_span_getter(spans), is_single)
            cached_shape.first_digit = len(row) if get_text is None else _find_timestamp_end(shape)
        source_name = cached_shape.get_source_name(line) if cached_shape.get_source_name is not None else None
        if cached_shape.is_thread_only and source_name is not None and self._is_unknown_thread(source_name):
            source_name = None
        capture_spans = sorted({span for message in messages for span in self._find_capture_spans(message)})
        digit_dependent = [
            signature_and_part
            for message in messages
            for signature_and_part in message.digit_dependent_signatures
        ]
        if cached_shape.first_digit >= 0:
            spans = [
                *source_spans,
                *capture_spans,
                *(self._find_match_span(*signature_and_part, line) for signature_and_part in digit_dependent),
            ]
            if get_text is None:
                cached_shape.first_digit = min([cached_shape.first_digit, *(start for start, _ in spans)])
            elif _depends_on_beginning(row, cached_shape.first_digit, spans):
                cached_shape.first_digit = -1
        self._forget_line_ends(cached_shape)
        source = cached_shape.sources.get(source_name)
        if source is None or source.spans != capture_spans:
            source = cached_shape.sources[source_name] = _MessageSource(
                capture_spans, _make_kind_key(capture_spans, digit_dependent)
            )
        kind = source.kinds[source.get_key(line) if source.get_key is not None else None] = _LineKind()
        self._cached_bytes += _KIND_BYTES + 2 * len(row)
        if cached_shape.get_source_name is None and source.get_key is None:
            self._count_plain_lines(self._current_index)
            self._counted_end = self._current_index + 1  # the line at the current index was read
            self._plain_kinds[shape] = kind


def _locate_messages(shape: bytes, messages: Sequence[tuple[str, str]]) -> list[tuple[int, int]] | None:
    """Return (position of the message, position of its prefix) in a line of this shape for each message.

    Return None if a position is not certain, or if cleaning changed a message.
    """
    positions: list[tuple[int, int]] = []
    last_prefix = None
    for text, prefix in messages:
        position = _find_unique(shape, text)
        head = shape[: max(position, 0)]
        prefix_shape = prefix.encode("utf-8", "replace").translate(DIGIT_BYTES_TO_ZERO)
        if prefix == last_prefix:  # one prefix precedes several messages
            prefix_position = positions[-1][1]
        elif head.rstrip().endswith(prefix_shape):
            prefix_position = len(head.rstrip()) - len(prefix_shape)
        else:
            prefix_position = _find_unique(head, prefix)
        if position < 0 or prefix_position < 0 or not prefix.isascii():
            return None
        positions.append((position, prefix_position))
        last_prefix = prefix
    return positions


def _find_unique(shape: bytes, text: str) -> int:
    """Return the position of a text in a shape.

    Return -1 if it does not appear exactly once, or if it is not ASCII, so that its characters are not bytes.
    """
    raw = text.encode("utf-8", "replace").translate(DIGIT_BYTES_TO_ZERO)
    return shape.find(raw) if text.isascii() and shape.count(raw) == 1 else -1


def _flatten(row: bytes) -> str:
    """Return the prefixes and messages of a line as one text, with a NUL after each prefix and message."""
    return "".join(f"{prefix}\0{text}\0" for text, prefix in iter_messages(decode_text(row)))


def _locate_flat(messages: Sequence[tuple[str, str]]) -> Iterator[tuple[int, int]]:
    """Yield (position of the message, position of its prefix) in the text of `_flatten` for each message."""
    position = 0
    for message, prefix in messages:
        yield position + len(prefix) + 1, position
        position += len(prefix) + len(message) + 2


def _find_timestamp_end(shape: bytes) -> int:
    """Return the end of the first timestamp in a line of this shape, or -1 if it has none."""
    match = _TIMESTAMP_SHAPE.search(shape)
    return match.end() if match is not None else -1


def _depends_on_beginning(row: bytes, end: int, spans: Sequence[tuple[int, int]]) -> bool:
    """Return whether a span of the flattened line contains a digit from before position `end` of the line.

    The test changes these digits, and compares the spans.
    """
    text, changed_text = _flatten(row), _flatten(row[:end].translate(_DIGIT_TO_OTHER) + row[end:])
    if len(text) != len(changed_text):
        return True
    return any(text[slice(*span)] != changed_text[slice(*span)] for span in spans)


def _has_digit(line: bytes | str, span: tuple[int, int]) -> bool:
    part = line[slice(*span)]
    return _DIGIT.search(part if isinstance(part, str) else part.decode()) is not None


def _make_span_getter(spans: list[tuple[int, int]]) -> Callable[[Any], Any] | None:
    """Return a function that extracts these spans of a line, or None if there are no spans."""
    return itemgetter(*(slice(*span) for span in spans)) if spans else None


def _make_kind_key(
    spans: list[tuple[int, int]], digit_dependent: list[tuple[Signature, slice]]
) -> Callable[[Any], object] | None:
    """Return a function that extracts what determines the kind of a line of one shape and source.

    `digit_dependent` are (signature, part of the line to search) for the signatures that do not treat all digits
    alike. Return None if all lines are of one kind.
    """
    get_digits = _make_span_getter(spans)
    if not digit_dependent:
        return get_digits

    def get_key(line: bytes | str) -> object:
        # the digits, and the position and groups of each match
        text = line if isinstance(line, str) else line.decode()
        matches = []
        for signature, part in digit_dependent:
            match = signature.pattern.search(text[part])
            matches.append(match and (match.start(), match.groups()))
        return get_digits and get_digits(line), tuple(matches)

    return get_key
