"""Lines that differ in digits alone and mean the same: each kind of them is read once, and its last line.

A line's shape is the line with its digits all 0. Of most shapes no digit matters: then a whole block of lines is
counted at once. Else the digits that matter tell the kinds of a shape apart: those that name who says it, those that a
signature takes from it while there is room for more, and whatever a signature finds that does not take one digit for
another.
"""

from __future__ import annotations

import re
from collections import Counter
from operator import itemgetter
from typing import TYPE_CHECKING, Any, cast

from tfdoctor.logs.blocks import as_text
from tfdoctor.logs.processes import find_speaker, find_speaker_spans
from tfdoctor.logs.reader import DIGITS, ZEROED, lines_of, messages_of
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tfdoctor.logs.events import Log
    from tfdoctor.logs.processes import Splitter
    from tfdoctor.logs.reader import Line, Rows
    from tfdoctor.logs.signatures import Catalogue, Signature

__all__ = ["Kinds"]

REMEMBERED = 1 << 23
"""Bytes that the kinds may take that are remembered, about."""
_TAKEN = 1000
"""Bytes of one kind, beside its line and its shape, about."""
_MAX_CACHED_LINE_BYTES = 2048
"""Bytes of a line from which on it is read each time."""
_SILENT = 4096
"""Shapes of lines that are remembered to say nothing."""
_ENDS = 64
"""Different ends of lines that are remembered of one shape."""
_MAX_REST_BYTES = 600
"""Bytes of a line up to which its rest is remembered."""
_DIFFERING = 8
"""Blocks of lines with other rests after which no more are remembered."""
_RESTS = 4096
"""Different rests of lines that are remembered of a log whose lines begin with the time."""
_END = 150
"""Bytes of an end, beside its text, about."""
_UNSTEADY = re.compile(rb"&.*;|\\(?:u000b|x0b|000)")
"""What a shape has where digits can be a part of an escape."""
_DIGIT = re.compile("[0-9]")
_STAMP = re.compile(rb"0000-00-00[ T]00:00:00\.0{1,9}|[IWEF]0000 00:00:0{2,10}\.0{1,9}")
_OTHERS = bytes.maketrans(b"0123456789", b"1234567890")


class _Said:
    """What one kind of lines said since it was read."""

    __slots__ = ("number", "place", "row", "times")

    def __init__(self) -> None:
        self.times = 0
        self.row = b""
        self.number = self.place = 0


class _Voice:
    """What is said in one shape by one process and thread."""

    __slots__ = ("key", "said", "spans")

    def __init__(self, spans: object, key: Callable[[Any], object] | None) -> None:
        self.spans = spans
        self.key = key
        """What of a line tells its kind; None: nothing, all are of one."""
        self.said: dict[object, _Said] = {}


class _Shape:
    """Lines of one shape."""

    __slots__ = ("ends", "flat", "lone", "told", "voices", "who")

    def __init__(
        self, flat: Callable[[bytes], str] | None, who: Callable[[Any], Any] | None, lone: bool
    ) -> None:
        self.flat = flat
        """What of a line the places are counted in: its messages; None: the line itself."""
        self.who = who
        self.lone = lone
        """Whether a thread's number is all that tells who speaks."""
        self.voices: dict[object, _Voice] = {}
        self.told = -1
        """Where in a line the first digit can stand that tells its kind: lines with the same end from there on are of
        one kind. -1: that is not known, or too many ends differ."""
        self.ends: dict[bytes, _Said] = {}


class _Message:
    """A message of a line, and where it is."""

    __slots__ = ("label", "matched", "prefix", "prefix_at", "sighted", "text", "text_at", "thread")

    def __init__(self, text: str, prefix: str, text_at: int, prefix_at: int) -> None:
        self.text, self.prefix, self.text_at, self.prefix_at = text, prefix, text_at, prefix_at
        self.label, self.thread = find_speaker(prefix, clean_line(text))
        self.matched: list[tuple[Signature, re.Match[str], int]] = []
        """Signatures that take one digit for another, what they find, and where in the line that is counted from."""
        self.sighted: list[tuple[Signature, slice]] = []
        """Those that do not, and where they look."""

    def names(self) -> list[str]:
        """Return the signatures that it has, or can have."""
        return [one.id for one, _, _ in self.matched] + [one.id for one, _ in self.sighted]


class Kinds:
    """Says which lines are to be read, and adds what the others say to what is known."""

    def __init__(
        self, catalogue: Catalogue, log: Log, splitter: Splitter | None, again: Callable[[Line, int], None]
    ) -> None:
        self._catalogue = catalogue
        self._log = log
        self._splitter = splitter
        self._again = again
        """Takes a message that is known, and how often it was said."""
        self.changed = False
        """Set where a message that was read said something new."""
        self._silent: set[bytes] = {b""}
        self._shapes: dict[bytes, _Shape] = {}
        self._plain: dict[bytes, _Said] = {}
        """Shapes of which no digit matters."""
        self._having: dict[str, set[bytes]] = {}
        """Signature → the shapes that can have it."""
        self._kept = self._forgotten = 0
        """How much is remembered; how often some of it was forgotten."""
        self._rests: dict[bytes, _Said] = {}
        """What follows the time in lines that begin with one and say nothing new, all with a time of one shape."""
        self._time = b""
        """The shape of what such lines begin with, the time at its end."""
        self._differing = 0
        """Blocks of lines of which most had another rest, less those that had not."""
        self._nobody = _Said()
        """What lines say in which there is nothing."""
        self._heard: dict[_Said, int] = {}
        """What was said again in these rows, and where the last time."""
        self._waiting: list[_Said] = []
        """What was said again, and is not yet added."""
        self._numbers: frozenset[bytes | str] | None = None
        """Of the threads that are told apart; None where others can still come."""
        self._rows: Rows | None = None
        self._steady = False
        """Whether nothing was read of the rows before."""
        self._from = self._at = 0
        """In these rows: up to where plain lines were counted; the line that is read."""

    def unread(self, rows: Rows) -> Iterator[int]:
        """As `reader.Filter`."""
        if self._steady and not rows.early and self._alike(rows):
            return
        shapes = rows.shapes
        telling = frozenset(shapes) if rows.early else self._catalogue.filter_shapes(shapes)
        telling -= self._silent
        if not telling:
            self._steady = True
            return
        self._rows, self._from, self._at = rows, 0, -1
        heard = self._heard
        while wanted := telling - self._plain.keys():
            forgotten, known, plain = self._forgotten, self._shapes, self._plain
            places = [at for at in range(self._at + 1, len(shapes)) if shapes[at] in wanted]
            rows.ask_for(places)
            if self._steady and self._count_all(rows, places):
                break
            self._steady = True
            texts = rows.texts
            for index in places:
                shape = shapes[index]
                if shape in plain:  # since the line before
                    continue
                one = known.get(shape)
                if one is not None:
                    text = texts[index]
                    said = one.ends.get(text[one.told :]) or self._find_kind(one, text)
                    if said is not None:
                        said.times += 1
                        heard[said] = index
                        continue
                self.changed, self._at, self._steady = False, index, False
                yield index
                if not self.changed:
                    self._learn(shape, texts[index])
                if self._forgotten != forgotten:
                    break
            else:
                break
        self._count(len(shapes))
        self._rows = None

    def _alike(self, rows: Rows) -> bool:
        """Count these lines where each begins with a time of one shape and says what was said before; False where that
        is not so, and nothing is counted."""
        if self._differing > _DIFFERING or _find_stamp_end(rows.head.translate(ZEROED)) < 0:
            return False
        texts = rows.texts if len(rows.texts) == rows.size else rows.texts[: rows.size]
        shape = texts[0].translate(ZEROED)
        end = _find_stamp_end(shape)
        heads = b"".join([text[:end] for text in texts]) if end > 0 else b""
        if not heads or heads.translate(ZEROED) != shape[:end] * len(texts):
            return False
        if shape[:end] != self._time or len(self._rests) >= _RESTS:
            self._rests.clear()
            self._time = shape[:end]
        rests = self._rests
        found = [rests.get(text[end:]) for text in texts]
        missing = found.count(None)
        self._differing += 1 if missing * 4 > len(found) else -(self._differing > 0)
        if missing:
            for index, one in enumerate(found):
                if one is None:
                    found[index] = said = self._rest(texts[index], end)
                    if said is None:
                        return False
        heard = cast("list[_Said]", found)
        for one, times in Counter(heard).items():
            one.times += times
        self._heard.update(zip(heard, range(len(heard)), strict=True))
        self._heard.pop(self._nobody, None)
        self._rows, self._from = rows, len(heard)
        self._count(len(heard))
        self._rows = None
        return True

    def _rest(self, text: bytes, end: int) -> _Said | None:
        """Return the kind of which this line is; None if it was never said, or is far too long."""
        shape = text.translate(ZEROED)
        if len(text) >= _MAX_CACHED_LINE_BYTES:
            return None
        if shape in self._silent or not self._catalogue.filter_shapes([shape]):
            said: _Said | None = self._nobody
        elif shape in self._plain:
            said = self._plain[shape]
        elif shape in self._shapes:
            known = self._shapes[shape]
            said = known.ends.get(text[known.told :]) or self._find_kind(known, text)
            if known.told < end:
                return said
        else:
            return None
        if said is not None and len(text) < _MAX_REST_BYTES:
            self._rests[text[end:]] = said
        return said

    def _count_all(self, rows: Rows, places: Sequence[int]) -> bool:
        """Count these lines all at once; False where one of them was never said, and nothing is counted."""
        shapes, texts, known = rows.shapes, rows.texts, self._shapes
        try:
            ones = [known[shapes[at]] for at in places]
        except KeyError:
            return False
        found = self._find_kinds(ones[0], texts, places) if len(set(ones)) == 1 else None
        if found is None:
            found = [
                one.ends.get(texts[at][one.told :]) or self._find_kind(one, texts[at])
                for one, at in zip(ones, places, strict=True)
            ]
        if None in found:
            return False
        heard = cast("list[_Said]", found)
        for said, times in Counter(heard).items():
            said.times += times
        self._heard.update(zip(heard, places, strict=True))
        return True

    def _find_kinds(
        self, known: _Shape, texts: Sequence[bytes], places: Sequence[int]
    ) -> list[_Said | None] | None:
        """Return the kinds of these lines of one shape, all at once.

        None if not all are of threads that nobody knows.
        """
        voice = known.voices.get(None)
        if (
            self._numbers is None
            or voice is None
            or known.who is None
            or known.flat is not None
            or not known.lone
        ):
            return None
        rows = itemgetter(*places)(texts) if len(places) > 1 else [texts[at] for at in places]
        names = set(map(known.who, rows))
        if not (self._numbers.isdisjoint(names) and known.voices.keys().isdisjoint(names)):
            return None
        if voice.key is None:
            return [voice.said.get(None)] * len(rows)
        return list(map(voice.said.get, map(voice.key, rows)))

    def settle(self) -> None:
        """Add what was said again."""
        if self._rows is not None:
            self._count(self._at)
        for said in self._waiting:
            for line in lines_of(said.row, said.number, said.place):
                self._again(line, said.times)
            said.times, said.row = 0, b""
        self._waiting.clear()

    def forget(self, names: Iterable[str] = ()) -> None:
        """Add what was said again; from here on it can mean something else: what has these signatures, or all."""
        self.settle()
        self._rests.clear()
        self._from = self._at + 1  # that line is read
        self._forgotten += 1
        for name in names:
            for shape in self._having.pop(name, ()):
                known = self._shapes.pop(shape, None)
                if known is not None:
                    self._forget_ends(known)
                self._plain.pop(shape, None)
        if not names:
            self._shapes.clear()
            self._plain.clear()
            self._having.clear()
            self._kept = 0

    def _count(self, end: int) -> None:
        """Count the plain lines up to here, and note the last of each kind that was heard."""
        rows, start = self._rows, self._from
        if rows is None:
            return
        if self._plain and start < end:
            shapes = rows.shapes if end - start == len(rows.shapes) else rows.shapes[start:end]
            counts = Counter(shapes)
            last = dict(zip(shapes, range(start, end), strict=True))
            for shape in counts.keys() & self._plain.keys():
                said = self._plain[shape]
                said.times += counts[shape]
                self._heard[said] = last[shape]
        self._from = max(start, end)
        texts, numbers, places = rows.texts, rows.numbers, rows.places
        for said, index in self._heard.items():
            if not said.row:
                self._waiting.append(said)
            said.row, said.number, said.place = texts[index], numbers[index], places[index]
        self._heard.clear()

    def _find_kind(self, known: _Shape, text: bytes) -> _Said | None:
        """Return the kind of which this line is, where such a one was read."""
        row: Any = text if known.flat is None else known.flat(text)
        if known.who is None:
            voice = known.voices.get(None)
        else:
            name = known.who(row)
            voice = known.voices.get(name)
            if voice is None:
                if known.lone and self._strange(name):
                    voice = known.voices.get(None)
                return self._find_by_source(voice, row)
        said = self._find_by_source(voice, row)
        if said is not None and known.told >= 0:
            if len(known.ends) < _ENDS and self._kept < REMEMBERED:
                end = text[known.told :]
                known.ends[end] = said
                self._kept += _END + len(end)
            else:
                self._forget_ends(known)
                known.told = -1
        return said

    @staticmethod
    def _find_by_source(voice: _Voice | None, row: bytes | str) -> _Said | None:
        return None if voice is None else voice.said.get(voice.key(row) if voice.key is not None else None)

    def _forget_ends(self, known: _Shape) -> None:
        self._kept -= sum(_END + len(end) for end in known.ends)
        known.ends.clear()

    def _strange(self, name: bytes | str) -> bool:
        """Return whether this is one thread more than are told apart: from when on one is, nobody becomes known."""
        if self._numbers is None:
            numbers = self._splitter.numbers() if self._splitter is not None else None
            if numbers is None:
                return False
            self._numbers = numbers | {number.encode() for number in numbers}
        return name not in self._numbers

    # ------------------------------------------------------------ learning a kind

    def _learn(self, shape: bytes, row: bytes) -> None:
        """A line of this shape was read, and said nothing new: so will those of its kind."""
        self._rests.clear()
        if len(row) >= _MAX_CACHED_LINE_BYTES or _UNSTEADY.search(shape):
            return
        found = list(messages_of(as_text(row)))
        places = _locate_messages(shape, found)
        flat = None if places is not None else _flat
        messages = [_Message(*one, *at) for one, at in zip(found, places or _flat_places(found), strict=True)]
        for message in messages:
            self._match(message)
        if not any(message.matched or message.sighted for message in messages):
            if len(self._silent) < _SILENT:
                self._silent.add(shape)
            return
        people: list[tuple[int, int]] = []
        for message in messages:
            spans = self._find_source(message)
            if spans is None:
                return
            people += spans
        self._add(shape, row, flat, messages, people)

    def _match(self, message: _Message) -> None:
        for text, at in ((message.text, message.text_at), (f"{message.prefix} ", message.prefix_at)):
            for signature in self._catalogue.candidates(text) if text != " " else ():
                if not signature.blind:
                    message.sighted.append((signature, slice(at, at + len(text))))
                    continue
                found = signature.pattern.search(text)
                if found is not None:
                    message.matched.append((signature, found, at))

    def _find_source(self, message: _Message) -> list[tuple[int, int]] | None:
        """Return where in the line it is told who says this; None if the next one who says it can be another."""
        if self._splitter is None or not (message.matched or message.sighted):
            return []
        if self._splitter.turns(message.label, message.names()):
            return None
        if (message.label, message.thread) != find_speaker(message.prefix, message.text):
            return None
        if self._splitter.closed and not message.label:
            return []  # nothing is kept of threads any more
        return [
            (start + at, end + at)
            for inside, start, end in find_speaker_spans(message.prefix, message.text)
            for at in [message.text_at if inside else message.prefix_at]
        ]

    def _spans(self, message: _Message) -> Iterator[tuple[int, int]]:
        """Yield where the digits are that signatures take from it and that can be new."""
        for signature, found, at in message.matched:
            if self._log.full(signature.id) and (
                self._splitter is None or self._splitter.deaf(message.label, message.thread, signature.id)
            ):
                continue
            for name, value in found.groupdict().items():
                if value is not None and _DIGIT.search(value):
                    yield found.start(name) + at, found.end(name) + at

    def _span(self, signature: Signature, where: slice, line: bytes | str) -> tuple[int, int]:
        """Return where in a line of this shape the digits can stand that change what a signature finds."""
        text = line if isinstance(line, str) else line.decode()
        if "(?<" in signature.pattern.pattern:
            return where.start, where.stop
        found = self._catalogue.sought(signature, text[where].translate(DIGITS))
        return where.start + (found.start() if found is not None else 0), where.stop

    def _add(
        self,
        shape: bytes,
        row: bytes,
        flat: Callable[[bytes], str] | None,
        messages: list[_Message],
        people: list[tuple[int, int]],
    ) -> None:
        if self._kept >= REMEMBERED:
            self.forget()
        for message in messages:
            for signature_id in message.names():
                self._having.setdefault(signature_id, set()).add(shape)
        line: Any = row if flat is None else flat(row)
        known = self._shapes.get(shape)
        if known is None:
            spans = sorted({span for span in people if _has_digit(line, span)})
            lone = len(messages) == 1 and not messages[0].label
            known = self._shapes[shape] = _Shape(flat, _getter(spans), lone)
            known.told = len(row) if flat is None else _find_stamp_end(shape)
        name = known.who(line) if known.who is not None else None
        if known.lone and name is not None and self._strange(name):
            name = None
        digits = sorted({span for message in messages for span in self._spans(message)})
        sighted = [one for message in messages for one in message.sighted]
        if known.told >= 0:
            spans = [*people, *digits, *(self._span(*one, line) for one in sighted)]
            if flat is None:
                known.told = min([known.told, *(start for start, _ in spans)])
            elif _has_moved(row, known.told, spans):
                known.told = -1
        self._forget_ends(known)
        voice = known.voices.get(name)
        if voice is None or voice.spans != digits:
            voice = known.voices[name] = _Voice(digits, _key(digits, sighted))
        said = voice.said[voice.key(line) if voice.key is not None else None] = _Said()
        self._kept += _TAKEN + 2 * len(row)
        if known.who is None and voice.key is None:
            self._count(self._at)
            self._from = self._at + 1  # that line is read
            self._plain[shape] = said


def _locate_messages(shape: bytes, messages: Sequence[tuple[str, str]]) -> list[tuple[int, int]] | None:
    """Return where in a line of this shape the texts of its messages stand, and what stands before them.

    None if that is not sure, or not so in one piece.
    """
    found: list[tuple[int, int]] = []
    last = None
    for text, prefix in messages:
        at = _find_single(shape, text)
        head, mark = shape[: max(at, 0)], prefix.encode("utf-8", "replace").translate(ZEROED)
        if prefix == last:
            before = found[-1][1]
        elif head.rstrip().endswith(mark):
            before = len(head.rstrip()) - len(mark)
        else:
            before = _find_single(head, prefix)
        if at < 0 or before < 0 or not prefix.isascii():
            return None
        found.append((at, before))
        last = prefix
    return found


def _find_single(shape: bytes, text: str) -> int:
    """Return where a text stands that is there once.

    -1 where it does not, or its places cannot be counted in bytes.
    """
    raw = text.encode("utf-8", "replace").translate(ZEROED)
    return shape.find(raw) if text.isascii() and shape.count(raw) == 1 else -1


def _flat(row: bytes) -> str:
    """Return the messages of a line, one behind the other, each behind what stands before it."""
    return "".join(f"{prefix}\0{text}\0" for text, prefix in messages_of(as_text(row)))


def _flat_places(messages: Sequence[tuple[str, str]]) -> Iterator[tuple[int, int]]:
    """Yield where in that the texts stand, and what stands before them."""
    at = 0
    for text, prefix in messages:
        yield at + len(prefix) + 1, at
        at += len(prefix) + len(text) + 2


def _find_stamp_end(shape: bytes) -> int:
    """Return where in a line of this shape its first time ends; -1 where it has none."""
    found = _STAMP.search(shape)
    return found.end() if found is not None else -1


def _has_moved(row: bytes, end: int, spans: Sequence[tuple[int, int]]) -> bool:
    """Return whether any of these spans of a line's messages has a digit of what stands before this place in the
    line.
    """
    this, other = _flat(row), _flat(row[:end].translate(_OTHERS) + row[end:])
    if len(this) != len(other):
        return True
    return any(this[slice(*span)] != other[slice(*span)] for span in spans)


def _has_digit(line: bytes | str, span: tuple[int, int]) -> bool:
    part = line[slice(*span)]
    return _DIGIT.search(part if isinstance(part, str) else part.decode()) is not None


def _getter(spans: list[tuple[int, int]]) -> Callable[[Any], Any] | None:
    return itemgetter(*(slice(*span) for span in spans)) if spans else None


def _key(
    spans: list[tuple[int, int]], sighted: list[tuple[Signature, slice]]
) -> Callable[[Any], object] | None:
    """Return what of a line tells its kind, those of its shape and of who says it."""
    digits = _getter(spans)
    if not sighted:
        return digits

    def key(line: bytes | str) -> object:
        text = line if isinstance(line, str) else line.decode()
        found = []
        for signature, where in sighted:
            match = signature.pattern.search(text[where])
            found.append(match and (match.start(), match.groups()))
        return digits and digits(line), tuple(found)

    return key
