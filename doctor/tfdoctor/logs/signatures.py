"""Load the catalogue of known log messages from `compat/logs/*.toml`, and match log lines against it.

Every pattern runs in linear time: repeats are bounded, and ambiguous ones are not nested (tests/logs verify this).
A signature is tried only on lines that contain one of its literals, so other lines cost almost nothing.
The shape of a line, used below, is the line with all its digits replaced by 0.
"""

# compat/decode.py reads the annotations of the dataclasses at run time, so they must not be strings.

import re
from collections.abc import Iterable, Iterator
from dataclasses import field, replace
from functools import cached_property, lru_cache
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from tfdoctor.compat.decode import Converted, DataError, ReleaseSet, decode, read_raw
from tfdoctor.compat.folder import data_dir
from tfdoctor.core.findings import Cause
from tfdoctor.core.records import dataclass
from tfdoctor.core.versions import is_version
from tfdoctor.logs.reader import DIGITS_TO_ZERO, decode_line, iter_messages

__all__ = ["BENIGN_CODES", "OTHER_BENIGN", "Catalogue", "Match", "Role", "Signature", "load_signatures"]

Role = Literal["decisive", "supporting", "benign"]
BENIGN_CODES = ("numa-node", "cudnn-factory", "tensorrt-missing", "avx-info", "onednn-info", "ptxas-fallback")
"""Codes of messages that look alarming and are harmless, as in the JSON output."""
OTHER_BENIGN = "other"
"""The code of all other harmless messages, which the JSON output does not list."""
_ANCHOR_CHARS = 5
"""The length of an anchor in characters."""
_PLAIN_BYTES = bytes(byte for byte in range(32, 127) if byte not in b"\\&<") + b"\n"
"""Bytes that `reader.clean_text` leaves unchanged."""
_ESCAPE_SHAPES = ((b"\\u000b", b"\x1b"), (b"\\x0b", b"\x1b"), (b"\\000", b"\x1b"))
"""Escape sequences of terminal colours as they appear in a shape, and the escape character."""
_MAX_SHAPES = 8192
"""The maximum number of shapes in one cache."""
_MAX_SHAPE_BYTES = 1 << 22
"""The maximum total size in bytes of the shapes in one cache."""
_CLEANING_CHARS = 140
"""The maximum number of characters that cleaning a line removes."""
_ID_PATTERN = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_ELEMENT = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{\d*(?:,\d*)?\}|\(\?P<\w+>|.", re.DOTALL)
"""An element of a regular expression: an escape, a class, a repeat, the start of a named group, or a character."""


def _parse_id(text: str) -> str:
    """Return a signature id. Raise ValueError unless it is lower-case words joined by hyphens."""
    if not _ID_PATTERN.fullmatch(text):
        msg = "must be lower-case words joined by hyphens"
        raise ValueError(msg)
    return text


class Pattern:
    """A regular expression that is compiled at its first search.

    The catalogue has hundreds of patterns, and most logs need only a few.
    """

    __slots__ = ("_compiled", "pattern")

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._compiled: re.Pattern[str] | None = None

    def search(self, text: str) -> re.Match[str] | None:
        """Search like `re.Pattern.search`. Tests ensure that every pattern can be compiled."""
        if self._compiled is None:
            self._compiled = re.compile(self.pattern)
        return self._compiled.search(text)


def _parse_causes(values: tuple[str, ...]) -> tuple[Cause, ...]:
    """Convert words such as "libs-not-installed" to causes. Raise ValueError if one is unknown."""
    for value in values:
        if value not in {cause.value for cause in Cause}:
            msg = f"`{value}` is no cause"
            raise ValueError(msg)
    return tuple(Cause(value) for value in values)


def _parse_era(minors: tuple[str, ...]) -> tuple[str, str]:
    """Return the first and the last minor release. Raise ValueError unless there are two valid ones."""
    if len(minors) != 2 or not any(minors) or not all(is_version(minor) for minor in minors if minor):
        msg = "must be the first and the last minor; one of them can be empty"
        raise ValueError(msg)
    return minors[0], minors[1]


Era = Annotated[tuple[str, str], Converted(tuple[str, ...], _parse_era)]
"""The first and the last minor release whose logs have the message. An empty string means no bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """A known log message."""

    NAMED: ClassVar = ("id",)
    id: Annotated[str, Converted(str, _parse_id)]
    role: Role
    meaning: str = field(metadata={"key": "says"})
    """The meaning of the message, as a sentence."""
    literals: tuple[str, ...]
    """Every matching line contains at least one of these texts.

    If the pattern treats all digits alike and the only digit in the literals is 0, a 0 stands for any digit.
    """
    pattern: Annotated[Pattern, Converted(str, Pattern)]
    causes: Annotated[tuple[Cause, ...], Converted(tuple[str, ...], _parse_causes)] = ()
    """Root causes that the message can indicate."""
    benign_code: str | None = field(default=None, metadata={"key": "benign"})
    """The code of a harmless message, one of BENIGN, or None for other messages."""
    versions: ReleaseSet | None = None
    """The TensorFlow releases that print the message. None means all releases."""
    era: Era | None = None
    """The minor releases whose logs have this message, or None if it does not narrow the release down.

    A signature with an era needs no `versions`.
    """
    max_line_chars: int | None = field(default=None, metadata={"key": "longest"})
    """The maximum length in characters of a matching line. None means any length."""
    is_incidental: bool = field(default=False, metadata={"key": "beside"})
    """Whether the signature is ignored far down in a long log, unless another signature matches the line, too."""
    matching_examples: tuple[str, ...] = field(metadata={"key": "match"})
    """Examples of lines that match."""
    other_examples: tuple[str, ...] = field(metadata={"key": "no_match"})
    """Examples of lines that do not match."""
    source: str
    """The source of the message, such as a file of TensorFlow."""
    ignores_digits: bool = field(default=False, metadata={"key": None})
    """Whether the pattern also matches a line with different digits in the same positions."""

    def __post_init__(self) -> None:
        error = ""
        if not self.literals or not all(self.literals):
            error = "`literals` must name at least one text that every matching line contains"
        elif not self.matching_examples or not self.other_examples:
            error = "`match` and `no_match` must each have a line"
        elif (self.role == "benign") != (self.benign_code is not None):
            error = "`benign` belongs to the role `benign`, and to it alone"
        elif self.benign_code is not None and self.benign_code not in (*BENIGN_CODES, OTHER_BENIGN):
            error = f"`benign` is `{self.benign_code}`; it can be {', '.join(BENIGN_CODES)}"
        if error:
            raise ValueError(error)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFolder:
    """A TensorFlow source folder, as messages name it."""

    NAMED: ClassVar = ("part",)
    path_part: str = field(metadata={"key": "part"})
    """A part of the path, with forward slashes."""
    era: Era
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """A text that appears only in the messages of some releases."""

    NAMED: ClassVar = ("text",)
    text: str
    era: Era
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Nightly:
    """A period in which builds of tf-nightly had the number of this minor release.

    The number changed at an unknown date between two periods.
    """

    NAMED: ClassVar = ("minor",)
    minor: str
    first_date: str = field(metadata={"key": "first"})
    """The date of the oldest observed build with this number, such as "2019-01-11"."""
    last_date: str = field(metadata={"key": "last"})
    """The date of the newest observed build with this number."""
    source: str


@dataclass(frozen=True, slots=True)
class Match:
    """A match of a signature in a line."""

    signature: Signature
    captures: dict[str, str]
    """The captured texts, by group name."""
    start: int
    """The position of the match in the line."""


class _ShapeCache:
    """A set of shapes with a limited size."""

    def __init__(self) -> None:
        self.shapes: set[bytes] = set()
        self._bytes = 0

    def add(self, shapes: Iterable[bytes]) -> None:
        """Add shapes until the cache is full."""
        for shape in shapes:
            if len(self.shapes) >= _MAX_SHAPES or self._bytes >= _MAX_SHAPE_BYTES:
                return
            self.shapes.add(shape)
            self._bytes += len(shape)


class Catalogue:
    """All signatures, with indices that find the ones that can match a line."""

    def __init__(
        self,
        signatures: tuple[Signature, ...],
        places: tuple[SourceFolder, ...] = (),
        wordings: tuple[Wording, ...] = (),
        nightlies: tuple[Nightly, ...] = (),
    ) -> None:
        self.signatures = signatures
        self.source_folders = places
        """The source folders. The first that is part of a path counts."""
        self.wordings = wordings
        self.nightlies = nightlies
        self._unmatched_shape_cache = _ShapeCache()
        self._matching_shape_cache = _ShapeCache()
        self._candidates_by_shape: dict[str, tuple[Signature, ...]] = {}
        self._shape_patterns: dict[int, re.Pattern[str]] = {}

    @cached_property
    def signatures_with_era(self) -> tuple[Signature, ...]:
        """The signatures that have an era."""
        return tuple(signature for signature in self.signatures if signature.era is not None)

    @cached_property
    def signatures_by_id(self) -> dict[str, Signature]:
        return {signature.id: signature for signature in self.signatures}

    @cached_property
    def literals(self) -> tuple[str, ...]:
        """The literals, each once.

        The literals of signatures with a maximum line length are not included, because nearly any line contains them.
        """
        literals: dict[str, None] = {}
        for signature in self.signatures:
            if signature.max_line_chars is None:
                literals.update(dict.fromkeys(signature.literals))
        return tuple(literals)

    @cached_property
    def _max_short_line_chars(self) -> int:
        """The largest maximum line length of all signatures, or 0 if none has a maximum."""
        return max(
            (
                signature.max_line_chars
                for signature in self.signatures
                if signature.max_line_chars is not None
            ),
            default=0,
        )

    @cached_property
    def anchors(self) -> tuple[str, ...]:
        """A few short texts. Every literal contains one of them, so lines without any are skipped quickly.

        They are chosen greedily: the next one is the five characters that most of the remaining literals share.
        """
        chosen = [literal for literal in sorted(self.literals) if len(literal) < _ANCHOR_CHARS]
        remaining = {literal for literal in self.literals if not any(piece in literal for piece in chosen)}
        literals_by_piece: dict[str, set[str]] = {}
        for literal in remaining:
            for start in range(len(literal) - _ANCHOR_CHARS + 1):
                literals_by_piece.setdefault(literal[start : start + _ANCHOR_CHARS], set()).add(literal)
        # heapq has the smallest item first, so the counts are negative
        heap = [(-len(literals), piece) for piece, literals in literals_by_piece.items()]
        heapify(heap)
        while heap:
            count, piece = heappop(heap)
            if len(literals_by_piece[piece]) < -count:  # some literals contain pieces that were chosen since
                if literals_by_piece[piece]:
                    heappush(heap, (-len(literals_by_piece[piece]), piece))
                continue
            chosen.append(piece)
            for literal in tuple(literals_by_piece[piece]):
                for start in range(len(literal) - _ANCHOR_CHARS + 1):
                    literals_by_piece[literal[start : start + _ANCHOR_CHARS]].discard(literal)
        return tuple(chosen)

    @cached_property
    def _anchor_bytes(self) -> tuple[tuple[bytes, frozenset[int]], ...]:
        """(anchor, set of its bytes) for each anchor."""
        return tuple((anchor.encode(), frozenset(anchor.encode())) for anchor in self.anchors)

    def _get_shape_pattern(self, index: int) -> re.Pattern[str]:
        """Return the pattern of a signature, given by its index, for shapes."""
        pattern = self._shape_patterns.get(index)
        if pattern is None:
            pattern = self._shape_patterns[index] = re.compile(
                make_shape_pattern(self.signatures[index].pattern.pattern)
            )
        return pattern

    @cached_property
    def _literals_by_anchor(self) -> tuple[tuple[str, tuple[tuple[str, tuple[int, ...]], ...]], ...]:
        """(anchor, its literals with the indices of their signatures) for each anchor. All digits are 0."""
        indices_by_literal = self._map_literals_to_indices(short_lines=False)
        literals_by_anchor: dict[str, list[tuple[str, tuple[int, ...]]]] = {}
        for literal, indices in indices_by_literal.items():
            anchor = next(anchor for anchor in self._zeroed_anchors if anchor in literal)
            literals_by_anchor.setdefault(anchor, []).append((literal, indices))
        return tuple((anchor, tuple(literals)) for anchor, literals in literals_by_anchor.items())

    def _map_literals_to_indices(self, *, short_lines: bool) -> dict[str, tuple[int, ...]]:
        """Map each literal, with all digits 0, to the indices of its signatures.

        If `short_lines` is true, only signatures with a maximum line length are included, else only the others.
        """
        indices_by_literal: dict[str, tuple[int, ...]] = {}
        for index, signature in enumerate(self.signatures):
            if (signature.max_line_chars is not None) is short_lines:
                for literal in signature.literals:
                    text = literal.translate(DIGITS_TO_ZERO)
                    indices_by_literal[text] = (*indices_by_literal.get(text, ()), index)
        return indices_by_literal

    @cached_property
    def _short_line_literals(self) -> dict[str, tuple[int, ...]]:
        """The literals of signatures with a maximum line length, and the indices of these signatures."""
        return self._map_literals_to_indices(short_lines=True)

    def filter_shapes(self, shapes: list[bytes]) -> frozenset[bytes]:
        """Return the shapes that can contain a known message.

        A training log repeats a few lines with different numbers, so the result for each shape is cached.
        """
        new_shapes = set(shapes) - self._unmatched_shape_cache.shapes
        if not new_shapes:
            return frozenset()
        cached = new_shapes & self._matching_shape_cache.shapes
        new_shapes -= cached
        matching = (
            {shape for shape in self._filter_by_anchor(new_shapes) if self._can_match(shape)}
            if new_shapes
            else set()
        )
        self._matching_shape_cache.add(matching)
        self._unmatched_shape_cache.add(new_shapes - matching)
        return frozenset(cached | matching)

    def _filter_by_anchor(self, new_shapes: set[bytes]) -> set[bytes]:
        """Return the shapes that can contain a literal.

        First all shapes together are searched for the bytes of the anchors, then for the anchors, then for the
        literals of the anchors that were found. Then each shape is searched for the literals that were found. If
        any shape needs cleaning, all shapes are returned.
        """
        joined = b"\n".join(new_shapes)
        bytes_used = frozenset(joined + b" ")  # tabs become blanks, and a blank is added after a prefix
        if b"&" not in joined and not any(
            required_bytes <= bytes_used for required_bytes in self._required_byte_sets
        ):
            return set()
        if joined.translate(None, _PLAIN_BYTES):
            return new_shapes
        literals = [
            literal
            for anchor, required_bytes, anchor_literals in self._literal_bytes_by_anchor
            if required_bytes <= bytes_used and anchor in joined
            for literal in anchor_literals
            if literal in joined
        ]
        short_line_literals = [text for text in map(str.encode, self._short_line_literals) if text in joined]
        max_short_bytes = _CLEANING_CHARS + self._max_short_line_chars
        return {
            shape
            for shape in new_shapes
            if any(literal in shape for literal in literals)
            or (len(shape) <= max_short_bytes and any(literal in shape for literal in short_line_literals))
        }

    @cached_property
    def _literal_bytes_by_anchor(self) -> tuple[tuple[bytes, frozenset[int], tuple[bytes, ...]], ...]:
        """(anchor, set of its bytes, its literals) for each anchor, as bytes with all digits 0."""
        return tuple(
            (anchor.encode(), frozenset(anchor.encode()), tuple(literal.encode() for literal, _ in literals))
            for anchor, literals in self._literals_by_anchor
        )

    @cached_property
    def _zeroed_anchor_bytes(self) -> tuple[tuple[bytes, frozenset[int]], ...]:
        """(anchor, set of its bytes) for each anchor with all digits 0."""
        return tuple((anchor.encode(), frozenset(anchor.encode())) for anchor in self._zeroed_anchors)

    @cached_property
    def _required_byte_sets(self) -> tuple[frozenset[int], ...]:
        """The sets of bytes of the anchors and short literals, the smallest first.

        Every line with a match contains all bytes of one of these sets. Supersets of other sets are left out.
        """
        byte_sets: list[frozenset[int]] = []
        texts = [
            *(text for text, _ in self._zeroed_anchor_bytes),
            *map(str.encode, self._short_line_literals),
        ]
        for candidate in sorted(
            {frozenset(text) for text in texts}, key=lambda byte_set: (len(byte_set), sorted(byte_set))
        ):
            if not any(byte_set <= candidate for byte_set in byte_sets):
                byte_sets.append(candidate)
        return tuple(byte_sets)

    def _can_match(self, shape: bytes) -> bool:
        """Return whether a line of this shape can contain a known message."""
        if b"&#" in shape:  # the digits of an HTML entity decide which character it is
            return True
        for code, escape in _ESCAPE_SHAPES:
            shape = shape.replace(code, escape)
        for text in decode_line(shape):
            for message, prefix in iter_messages(text):
                if self._has_candidate(message) or (prefix and self._has_candidate(f"{prefix} ")):
                    return True
        return False

    def _has_candidate(self, line: str) -> bool:
        """Return whether a signature can match the line. Those that are ignored far down do not count."""
        return any(not signature.is_incidental for signature in self.list_candidates(line))

    def can_match_block(self, block: bytes) -> bool:
        """Return whether a block of a log that a terminal wrapped can contain a known message.

        The message may continue on the next line.
        """
        bytes_used = frozenset(block + b" ")
        possible_anchors = [
            anchor for anchor, required_bytes in self._anchor_bytes if required_bytes <= bytes_used
        ]
        if not possible_anchors:
            return False
        # the terminal may have broken the message within a word, or at a space
        text = block.replace(b"\n", b"")
        if any(anchor in text for anchor in possible_anchors):
            return True
        text = block.replace(b"\n", b" ")
        return any(anchor in text for anchor in possible_anchors if b" " in anchor)

    def list_candidates(self, line: str) -> tuple[Signature, ...]:
        """Return the signatures that can match a line, because they match its shape."""
        shape = line.translate(DIGITS_TO_ZERO)
        signatures = self._candidates_by_shape.get(shape)
        if signatures is None:
            signatures = tuple(self._match_shape(shape))
            if len(shape) < 1000:
                if len(self._candidates_by_shape) >= _MAX_SHAPES:
                    self._candidates_by_shape.clear()  # a line is looked up several times in a row, then never again
                self._candidates_by_shape[shape] = signatures
        return signatures

    def _match_shape(self, shape: str) -> Iterator[Signature]:
        """Yield the signatures whose patterns match this shape."""
        candidate_indices: set[int] = set()
        for anchor, literals in self._literals_by_anchor:
            if anchor in shape:
                for literal, indices in literals:
                    if literal in shape:
                        candidate_indices.update(indices)
        if len(shape) <= self._max_short_line_chars:
            for literal, indices in self._short_line_literals.items():
                if literal in shape:
                    candidate_indices.update(indices)
        for index in sorted(candidate_indices):
            signature = self.signatures[index]
            if signature.max_line_chars is not None and len(shape) > signature.max_line_chars:
                continue
            if self._get_shape_pattern(index).search(shape):
                yield signature

    def search_shape(self, signature: Signature, shape: str) -> re.Match[str] | None:
        """Return the first match of the signature's pattern in this shape, or None if there is none."""
        return self._get_shape_pattern(self._index_by_id[signature.id]).search(shape)

    @cached_property
    def _index_by_id(self) -> dict[str, int]:
        return {signature.id: index for index, signature in enumerate(self.signatures)}

    @cached_property
    def _zeroed_anchors(self) -> tuple[str, ...]:
        """The anchors with all digits 0, each once."""
        return tuple(dict.fromkeys(anchor.translate(DIGITS_TO_ZERO) for anchor in self.anchors))

    def iter_matches(self, line: str) -> Iterator[Match]:
        """Yield the match of every signature in this line."""
        for signature in self.list_candidates(line):
            match = self.match_signature(signature, line)
            if match is not None:
                yield match

    @staticmethod
    def match_signature(signature: Signature, line: str) -> Match | None:
        """Return the match of one signature in a line, or None if there is none."""
        match = signature.pattern.search(line)
        if match is None or not (
            signature.ignores_digits or any(literal in line for literal in signature.literals)
        ):
            return None
        fields = {name: value for name, value in match.groupdict().items() if value is not None}
        return Match(signature, fields, match.start())


def make_shape_pattern(pattern: str) -> str:
    """Return a pattern that matches the shape of every line that `pattern` matches.

    It may match more shapes. Negative assertions are dropped, because the digits of the line are not known.
    """
    elements: list[str] = []
    position = 0
    while position < len(pattern):
        if pattern.startswith(("(?!", "(?<!"), position):
            position = _find_group_end(pattern, position)
            continue
        element = _get_element(pattern, position)
        position += len(element)
        # a class that matches another digit must match 0, too
        if element[0] == "[" and any(re.fullmatch(element, digit) for digit in "123456789"):
            element = element if re.fullmatch(element, "0") else f"(?:{element}|0)"
        elif element.isdigit():
            element = "0"
        elements.append(element)
    return "".join(elements)


def treats_digits_alike(pattern: str) -> bool:
    """Return whether a pattern matches either every digit or no digit at each position."""
    position = 0
    while position < len(pattern):
        element = _get_element(pattern, position)
        position += len(element)
        if element[0] == "[":
            if len({re.fullmatch(element, digit) is None for digit in "0123456789"}) > 1:
                return False
        elif element[-1].isdigit():  # a digit or a back-reference
            return False
    return True


def _get_element(pattern: str, position: int) -> str:
    """Return the element of a regular expression that begins at `position`."""
    match = _ELEMENT.match(pattern, position)
    return match[0] if match is not None else pattern[position]


def _find_group_end(pattern: str, position: int) -> int:
    """Return the position after the parenthesis that closes the one at `position`."""
    depth = 0
    while True:
        element = _get_element(pattern, position)
        position += len(element)
        depth += element.startswith("(")
        depth -= element == ")"
        if depth == 0:
            return position


@dataclass(frozen=True, slots=True)
class _SignatureFile:
    """One file in `compat/logs`."""

    signatures: tuple[Signature, ...] = field(metadata={"key": "signature"})
    source_folders: tuple[SourceFolder, ...] = field(default=(), metadata={"key": "place"})
    wordings: tuple[Wording, ...] = field(default=(), metadata={"key": "wording"})
    nightlies: tuple[Nightly, ...] = field(default=(), metadata={"key": "nightly"})


@lru_cache(maxsize=4)
def load_signatures(folder: Path | None = None) -> Catalogue:
    """Read `compat/logs/*.toml`. Raise DataError if a file is invalid or an id is not unique."""
    folder = data_dir("compat") / "logs" if folder is None else folder
    signatures: list[Signature] = []
    source_folders: list[SourceFolder] = []
    wordings: list[Wording] = []
    nightlies: list[Nightly] = []
    for path in sorted(folder.glob("*.toml")):
        label = f"compat/logs/{path.name}"
        file = decode(_SignatureFile, read_raw(path, label), label)
        source_folders += file.source_folders
        wordings += file.wordings
        nightlies += file.nightlies
        for entry in file.signatures:
            # the only digit in the literals may be 0, as in shapes (see `Signature.literals`)
            has_digits = any(re.search("[1-9]", literal) for literal in entry.literals)
            signatures.append(
                replace(entry, ignores_digits=treats_digits_alike(entry.pattern.pattern) and not has_digits)
            )
    ids: set[str] = set()
    for signature in signatures:
        if signature.id in ids:
            msg = f"compat/logs: two signatures are called `{signature.id}`"
            raise DataError(msg)
        ids.add(signature.id)
    if not signatures:
        msg = "compat/logs: there are no signatures"
        raise DataError(msg)
    return Catalogue(tuple(signatures), tuple(source_folders), tuple(wordings), tuple(nightlies))
