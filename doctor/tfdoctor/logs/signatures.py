"""What is known about log messages: `compat/logs/*.toml`, strictly read, and the engine that matches a line.

Every pattern is linear: repeats are bounded and nothing ambiguous is nested (tests/logs hold them to it). A
signature is only tried on lines that contain one of its literals, which costs next to nothing on all others.
"""

# The annotations of rows are read when this runs (compat/decode.py): they are no texts here.

import re
from collections.abc import Iterable, Iterator
from dataclasses import field, replace
from functools import cached_property, lru_cache
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from tfdoctor.compat.decode import Converted, DataError, ReleaseSet, decode, read_raw
from tfdoctor.compat.folder import data_dir
from tfdoctor.findings import Cause
from tfdoctor.logs.reader import DIGITS, decode_line, messages_of
from tfdoctor.records import dataclass
from tfdoctor.versions import is_version

__all__ = ["BENIGN", "Catalogue", "Match", "Role", "Signature", "load_signatures"]

Role = Literal["decisive", "supporting", "benign"]
BENIGN = ("numa-node", "cudnn-factory", "tensorrt-missing", "avx-info", "onednn-info", "ptxas-fallback")
"""The frightening and harmless, in the words of the JSON contract."""
_PIECE = 5
_PLAIN = bytes(byte for byte in range(32, 127) if byte not in b"\\&<") + b"\n"
"""What cleaning a line leaves as it is."""
_CODES = ((b"\\u000b", b"\x1b"), (b"\\x0b", b"\x1b"), (b"\\000", b"\x1b"))
"""Escapes of colours, as they look in a shape."""
_REMEMBERED = 8192
"""Shapes of lines that are remembered to hold nothing; as many of those in which something can be."""
_REMEMBERED_BYTES = 1 << 22
_MARGIN = 140
"""A line longer than the longest that some signatures take, by this, is too long for them without its quotes, too."""
_ID = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


def _id(text: str) -> str:
    if not _ID.fullmatch(text):
        msg = "must be lower-case words joined by hyphens"
        raise ValueError(msg)
    return text


class Pattern:
    """A regular expression that is compiled when it is first searched for: most logs ask for a few of hundreds."""

    __slots__ = ("_compiled", "pattern")

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._compiled: re.Pattern[str] | None = None

    def search(self, text: str) -> re.Match[str] | None:
        """As re.Pattern.search. Raises re.error where it is none: tests compile each."""
        if self._compiled is None:
            self._compiled = re.compile(self.pattern)
        return self._compiled.search(text)


def _causes(words: tuple[str, ...]) -> tuple[Cause, ...]:
    for word in words:
        if word not in {cause.value for cause in Cause}:
            msg = f"`{word}` is no cause"
            raise ValueError(msg)
    return tuple(Cause(word) for word in words)


def _era(minors: tuple[str, ...]) -> tuple[str, str]:
    if len(minors) != 2 or not any(minors) or not all(is_version(minor) for minor in minors if minor):
        msg = "must be the first and the last minor; one of them can be empty"
        raise ValueError(msg)
    return minors[0], minors[1]


Era = Annotated[tuple[str, str], Converted(tuple[str, ...], _era)]
"""The first and the last minor whose logs have it; empty where that is not known, or it has not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """One message that is known."""

    NAMED: ClassVar = ("id",)
    id: Annotated[str, Converted(str, _id)]
    role: Role
    says: str
    """What the message means, as a sentence."""
    literals: tuple[str, ...]
    """A line with none of these cannot match. Where the pattern takes each digit for every other one, and these have
    none but 0, that stands for any digit."""
    pattern: Annotated[Pattern, Converted(str, Pattern)]
    causes: Annotated[tuple[Cause, ...], Converted(tuple[str, ...], _causes)] = ()
    """The root causes that it can stand for."""
    benign: str | None = None
    versions: ReleaseSet | None = None
    """The TensorFlow releases that print it, as a specification; None: any."""
    era: Era | None = None
    """Where it tells of when a log is: then it needs no `versions`."""
    longest: int | None = None
    """Only lines of at most this many characters are tried."""
    beside: bool = False
    """Whether a line far down in a long log is passed over that has nothing else."""
    match: tuple[str, ...]
    no_match: tuple[str, ...]
    source: str
    blind: bool = field(default=False, metadata={"key": None})
    """Whether it takes one digit for another: a line that it matches, it matches with other digits, too, at the same
    places."""

    def __post_init__(self) -> None:
        wrong = ""
        if not self.literals or not all(self.literals):
            wrong = "`literals` must name at least one text that every matching line contains"
        elif not self.match or not self.no_match:
            wrong = "`match` and `no_match` must each have a line"
        elif (self.role == "benign") != (self.benign is not None):
            wrong = "`benign` belongs to the role `benign`, and to it alone"
        elif self.benign is not None and self.benign not in BENIGN:
            wrong = f"`benign` is `{self.benign}`; it can be {', '.join(BENIGN)}"
        if wrong:
            raise ValueError(wrong)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFolder:
    """Where TensorFlow's sources lay, as its messages say."""

    NAMED: ClassVar = ("part",)
    part: str
    """Part of a path, with `/`."""
    era: Era
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """A text that the messages of some releases have, and of no others."""

    NAMED: ClassVar = ("text",)
    text: str
    era: Era
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Nightly:
    """The number that tf-nightly had in a time; between two rows it is not known when it changed."""

    NAMED: ClassVar = ("minor",)
    minor: str
    first: str
    """The date of the oldest build that was seen with this number: `"2019-01-11"`."""
    last: str
    source: str


@dataclass(frozen=True, slots=True)
class Match:
    """A signature that a line has, with what it captured."""

    signature: Signature
    fields: dict[str, str]
    start: int


class _Shapes:
    """Shapes of lines that are remembered, as many as may be."""

    def __init__(self) -> None:
        self.shapes: set[bytes] = set()
        self._bytes = 0

    def add(self, shapes: Iterable[bytes]) -> None:
        for shape in shapes:
            if len(self.shapes) >= _REMEMBERED or self._bytes >= _REMEMBERED_BYTES:
                return
            self.shapes.add(shape)
            self._bytes += len(shape)


class Catalogue:
    """All signatures, ready to be matched."""

    def __init__(
        self,
        signatures: tuple[Signature, ...],
        places: tuple[SourceFolder, ...] = (),
        wordings: tuple[Wording, ...] = (),
        nightlies: tuple[Nightly, ...] = (),
    ) -> None:
        self.signatures = signatures
        self.places = places
        """The first that fits counts."""
        self.wordings = wordings
        self.nightlies = nightlies
        self._dull = _Shapes()
        self._telling = _Shapes()
        self._candidates: dict[str, tuple[Signature, ...]] = {}
        self._shapes: dict[int, re.Pattern[str]] = {}

    @cached_property
    def dated(self) -> tuple[Signature, ...]:
        """Those that tell of which releases a log is."""
        return tuple(signature for signature in self.signatures if signature.era is not None)

    @cached_property
    def map_ids(self) -> dict[str, Signature]:
        return {signature.id: signature for signature in self.signatures}

    @cached_property
    def literals(self) -> tuple[str, ...]:
        """Every literal, once, but those that nearly any line has."""
        found: dict[str, None] = {}
        for signature in self.signatures:
            if signature.longest is None:
                found.update(dict.fromkeys(signature.literals))
        return tuple(found)

    @cached_property
    def _short(self) -> int:
        return max((s.longest for s in self.signatures if s.longest is not None), default=0)

    @cached_property
    def anchors(self) -> tuple[str, ...]:
        """Few short texts, one of which is in every literal: what has none of them is passed over quickly.

        Greedy: again and again the piece of five characters that most of the remaining literals share.
        """
        chosen = [literal for literal in sorted(self.literals) if len(literal) < _PIECE]
        left = {literal for literal in self.literals if not any(piece in literal for piece in chosen)}
        having: dict[str, set[str]] = {}
        for literal in left:
            for start in range(len(literal) - _PIECE + 1):
                having.setdefault(literal[start : start + _PIECE], set()).add(literal)
        best = [(-len(literals), piece) for piece, literals in having.items()]
        heapify(best)
        while best:
            count, piece = heappop(best)
            if len(having[piece]) < -count:  # others, chosen since, are in some of them
                if having[piece]:
                    heappush(best, (-len(having[piece]), piece))
                continue
            chosen.append(piece)
            for literal in tuple(having[piece]):
                for start in range(len(literal) - _PIECE + 1):
                    having[literal[start : start + _PIECE]].discard(literal)
        return tuple(chosen)

    @cached_property
    def _raw_anchors(self) -> tuple[tuple[bytes, frozenset[int]], ...]:
        return tuple((anchor.encode(), frozenset(anchor.encode())) for anchor in self.anchors)

    def _shape(self, number: int) -> re.Pattern[str]:
        """Return a signature's pattern as it is for lines whose digits are all 0."""
        known = self._shapes.get(number)
        if known is None:
            known = self._shapes[number] = re.compile(digitless(self.signatures[number].pattern.pattern))
        return known

    @cached_property
    def _map_anchors(self) -> tuple[tuple[str, tuple[tuple[str, tuple[int, ...]], ...]], ...]:
        """Anchor → the literals in which it is → the numbers of the signatures that have them; digits are all 0."""
        having = self._map_literals(short=False)
        found: dict[str, list[tuple[str, tuple[int, ...]]]] = {}
        for literal, numbers in having.items():
            anchor = next(anchor for anchor in self._zeroed if anchor in literal)
            found.setdefault(anchor, []).append((literal, numbers))
        return tuple((anchor, tuple(literals)) for anchor, literals in found.items())

    def _map_literals(self, *, short: bool) -> dict[str, tuple[int, ...]]:
        """Literal → the numbers of the signatures that have it: of those for short lines, or of the others."""
        found: dict[str, tuple[int, ...]] = {}
        for number, signature in enumerate(self.signatures):
            if (signature.longest is not None) is short:
                for literal in signature.literals:
                    text = literal.translate(DIGITS)
                    found[text] = (*found.get(text, ()), number)
        return found

    @cached_property
    def _short_literals(self) -> dict[str, tuple[int, ...]]:
        """The literals of what only short lines can have."""
        return self._map_literals(short=True)

    def filter_shapes(self, shapes: list[bytes]) -> frozenset[bytes]:
        """Return those of these lines, their digits all 0, in which a known message can be.

        A training log is the same few lines over and over with other numbers: each shape is looked at once.
        """
        fresh = set(shapes) - self._dull.shapes
        if not fresh:
            return frozenset()
        known = fresh & self._telling.shapes
        fresh -= known
        found = (
            {shape for shape in self._filter_by_anchor(fresh) if self._can_tell(shape)} if fresh else set()
        )
        self._telling.add(found)
        self._dull.add(fresh - found)
        return frozenset(known | found)

    def _filter_by_anchor(self, fresh: set[bytes]) -> set[bytes]:
        """Leave out, a whole heap at a time, what has not even the letters of a literal, and what is plain text without
        any literal. First the anchors are sought in the whole heap, then the literals of those that are there: few are
        left to be sought in each line.
        """
        everything = b"\n".join(fresh)
        letters = frozenset(everything + b" ")  # tabs become blanks, and one is put behind a prefix
        if b"&" not in everything and not any(alphabet <= letters for alphabet in self._alphabets):
            return set()
        if everything.translate(None, _PLAIN):
            return fresh
        long = [
            literal
            for anchor, alphabet, literals in self._raw_literals
            if alphabet <= letters and anchor in everything
            for literal in literals
            if literal in everything
        ]
        short = long + [one for one in map(str.encode, self._short_literals) if one in everything]
        most = _MARGIN + self._short
        return {
            shape for shape in fresh if any(one in shape for one in (short if len(shape) <= most else long))
        }

    @cached_property
    def _raw_literals(self) -> tuple[tuple[bytes, frozenset[int], tuple[bytes, ...]], ...]:
        """Anchor, its letters, and the literals in which it is, for lines whose digits are all 0."""
        return tuple(
            (anchor.encode(), frozenset(anchor.encode()), tuple(literal.encode() for literal, _ in literals))
            for anchor, literals in self._map_anchors
        )

    @cached_property
    def _zeroed_anchors(self) -> tuple[tuple[bytes, frozenset[int]], ...]:
        return tuple((anchor.encode(), frozenset(anchor.encode())) for anchor in self._zeroed)

    @cached_property
    def _alphabets(self) -> tuple[frozenset[int], ...]:
        """The letters of what each line must have some of, fewest first; no set that another one is part of."""
        found: list[frozenset[int]] = []
        texts = [*(text for text, _ in self._zeroed_anchors), *map(str.encode, self._short_literals)]
        for letters in sorted({frozenset(text) for text in texts}, key=lambda one: (len(one), sorted(one))):
            if not any(other <= letters for other in found):
                found.append(letters)
        return tuple(found)

    def _can_tell(self, shape: bytes) -> bool:
        if b"&#" in shape:
            return True
        for code, real in _CODES:
            shape = shape.replace(code, real)
        for text in decode_line(shape):
            for message, prefix in messages_of(text):
                if self._tells(message) or (prefix and self._tells(f"{prefix} ")):
                    return True
        return False

    def _tells(self, line: str) -> bool:
        return any(not signature.beside for signature in self.candidates(line))

    def worth(self, block: bytes) -> bool:
        """Return whether a known message can be in a piece of a log that a terminal cut: it can go over the line's
        end.
        """
        letters = frozenset(block + b" ")
        there = [anchor for anchor, alphabet in self._raw_anchors if alphabet <= letters]
        if not there:
            return False
        text = block.replace(b"\n", b"")
        if any(anchor in text for anchor in there):
            return True
        text = block.replace(b"\n", b" ")
        return any(anchor in text for anchor in there if b" " in anchor)

    def candidates(self, line: str) -> tuple[Signature, ...]:
        """Return the signatures that a line can have, whatever its digits are."""
        shape = line.translate(DIGITS)
        known = self._candidates.get(shape)
        if known is None:
            known = tuple(self._match_shape(shape))
            if len(shape) < 1000:
                if len(self._candidates) >= _REMEMBERED:
                    self._candidates.clear()  # a line is asked about several times, and soon never again
                self._candidates[shape] = known
        return known

    def _match_shape(self, shape: str) -> Iterator[Signature]:
        found: set[int] = set()
        for anchor, literals in self._map_anchors:
            if anchor in shape:
                for literal, numbers in literals:
                    if literal in shape:
                        found.update(numbers)
        if len(shape) <= self._short:
            for literal, numbers in self._short_literals.items():
                if literal in shape:
                    found.update(numbers)
        for number in sorted(found):
            signature = self.signatures[number]
            if signature.longest is not None and len(shape) > signature.longest:
                continue
            if self._shape(number).search(shape):
                yield signature

    def sought(self, signature: Signature, shape: str) -> re.Match[str] | None:
        """Return where a signature's pattern can begin at first in any line of this shape, its digits all 0.

        None: nowhere.
        """
        return self._shape(self._numbers[signature.id]).search(shape)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {signature.id: number for number, signature in enumerate(self.signatures)}

    @cached_property
    def _zeroed(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(anchor.translate(DIGITS) for anchor in self.anchors))

    def matches(self, line: str) -> Iterator[Match]:
        """Yield every signature that this line has."""
        for signature in self.candidates(line):
            found = self.match(signature, line)
            if found is not None:
                yield found

    @staticmethod
    def match(signature: Signature, line: str) -> Match | None:
        """Return what one signature finds in a line."""
        found = signature.pattern.search(line)
        if found is None or not (signature.blind or any(literal in line for literal in signature.literals)):
            return None
        fields = {name: value for name, value in found.groupdict().items() if value is not None}
        return Match(signature, fields, found.start())


def digitless(pattern: str) -> str:
    """Return a pattern that matches every line that `pattern` does, once all digits of the line are 0.

    It may match more: what must not follow is left out, for other digits can have stood there.
    """
    out: list[str] = []
    at = 0
    while at < len(pattern):
        if pattern.startswith(("(?!", "(?<!"), at):
            at = _group_end(pattern, at)
            continue
        text = _token(pattern, at)
        at += len(text)
        if text[0] == "[" and any(re.fullmatch(text, digit) for digit in "123456789"):
            text = text if re.fullmatch(text, "0") else f"(?:{text}|0)"
        elif text.isdigit():
            text = "0"
        out.append(text)
    return "".join(out)


def blind(pattern: str) -> bool:
    """Return whether a pattern takes each digit for every other one."""
    at = 0
    while at < len(pattern):
        text = _token(pattern, at)
        at += len(text)
        if text[0] == "[":
            if len({re.fullmatch(text, digit) is None for digit in "0123456789"}) > 1:
                return False
        elif text[-1].isdigit():  # a digit, or the number of a group
            return False
    return True


_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{\d*(?:,\d*)?\}|\(\?P<\w+>|.", re.DOTALL)


def _token(pattern: str, at: int) -> str:
    found = _TOKEN.match(pattern, at)
    return found[0] if found is not None else pattern[at]


def _group_end(pattern: str, at: int) -> int:
    """Return the place after the parenthesis that closes the one at `at`."""
    depth = 0
    while True:
        text = _token(pattern, at)
        at += len(text)
        depth += text.startswith("(")
        depth -= text == ")"
        if depth == 0:
            return at


@dataclass(frozen=True, slots=True)
class _File:
    signatures: tuple[Signature, ...] = field(metadata={"key": "signature"})
    places: tuple[SourceFolder, ...] = field(default=(), metadata={"key": "place"})
    wordings: tuple[Wording, ...] = field(default=(), metadata={"key": "wording"})
    nightlies: tuple[Nightly, ...] = field(default=(), metadata={"key": "nightly"})


@lru_cache(maxsize=4)
def load_signatures(folder: Path | None = None) -> Catalogue:
    """Read `compat/logs/*.toml`. Raises DataError with the file, the signature and what is wrong."""
    folder = data_dir("compat") / "logs" if folder is None else folder
    signatures: list[Signature] = []
    places: list[SourceFolder] = []
    wordings: list[Wording] = []
    nightlies: list[Nightly] = []
    for path in sorted(folder.glob("*.toml")):
        where = f"compat/logs/{path.name}"
        file = decode(_File, read_raw(path, where), where)
        places += file.places
        wordings += file.wordings
        nightlies += file.nightlies
        for one in file.signatures:
            digits = any(re.search("[1-9]", literal) for literal in one.literals)
            signatures.append(replace(one, blind=blind(one.pattern.pattern) and not digits))
    seen: set[str] = set()
    for signature in signatures:
        if signature.id in seen:
            msg = f"compat/logs: two signatures are called `{signature.id}`"
            raise DataError(msg)
        seen.add(signature.id)
    if not signatures:
        msg = "compat/logs: there are no signatures"
        raise DataError(msg)
    return Catalogue(tuple(signatures), tuple(places), tuple(wordings), tuple(nightlies))
