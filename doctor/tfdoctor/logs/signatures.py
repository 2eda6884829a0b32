"""What is known about log messages: `compat/logs/*.toml`, strictly read, and the engine that matches a line.

Every pattern is linear: repeats are bounded and nothing ambiguous is nested (tests/logs hold them to it). A
signature is only tried on lines that contain one of its literals, which costs next to nothing on all others.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Literal

from tfdoctor.compat.loader import DataError, Table, read_toml
from tfdoctor.findings import Cause
from tfdoctor.resources import data_dir
from tfdoctor.versions import VersionSyntaxError, satisfies

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["BENIGN", "Catalogue", "Match", "Role", "Signature", "load_signatures"]

Role = Literal["decisive", "supporting", "benign"]
ROLES = ("decisive", "supporting", "benign")
BENIGN = ("numa-node", "cudnn-factory", "tensorrt-missing", "avx-info", "onednn-info", "ptxas-fallback")
"""The frightening and harmless, in the words of the JSON contract."""
_PIECE = 5
_NUMBERS = b"0123456789.=>-"
_REMEMBERED = 4096
"""Different lines, without their numbers, that are remembered to hold nothing."""
_ID = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class Signature:
    """One message that is known."""

    id: str
    role: Role
    says: str
    """What the message means, as a sentence."""
    literals: tuple[str, ...]
    """A line with none of these cannot match."""
    pattern: re.Pattern[str]
    causes: tuple[Cause, ...]
    """The root causes that it can stand for."""
    benign: str | None
    versions: str | None
    """The TensorFlow releases that print it, as a specification; None: any."""
    longest: int | None
    """Only lines of at most this many characters are tried."""
    match: tuple[str, ...]
    no_match: tuple[str, ...]
    source: str


@dataclass(frozen=True, slots=True)
class Match:
    """A signature that a line has, with what it captured."""

    signature: Signature
    fields: dict[str, str]
    start: int


class Catalogue:
    """All signatures, ready to be matched."""

    def __init__(self, signatures: tuple[Signature, ...]) -> None:
        self.signatures = signatures
        self._dull: set[bytes] = set()

    @cached_property
    def by_id(self) -> dict[str, Signature]:
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
        left = set(self.literals)
        chosen = [literal for literal in sorted(left) if len(literal) < _PIECE]
        while left := {literal for literal in left if not any(piece in literal for piece in chosen)}:
            pieces = Counter(
                piece
                for literal in left
                for piece in {literal[i : i + _PIECE] for i in range(len(literal) - _PIECE + 1)}
            )
            chosen.append(max(pieces, key=lambda piece: (pieces[piece], piece)))
        return tuple(chosen)

    @cached_property
    def _raw_anchors(self) -> tuple[bytes, ...]:
        raw = (anchor.encode().translate(None, _NUMBERS) for anchor in self.anchors)
        return tuple(anchor for anchor in raw if re.search(rb"[A-Za-z\x80-\xff]{2}", anchor))

    def worth(self, block: bytes) -> bool:
        """Whether a piece of a long log can hold any message that is known.

        A training log is the same few lines over and over with other numbers: without these, each is looked at once.
        """
        lines = set(block.translate(None, _NUMBERS).split(b"\n")) - self._dull
        text = b"\n".join(lines)
        if any(anchor in text for anchor in self._raw_anchors):
            return True
        if len(self._dull) + len(lines) < _REMEMBERED and len(text) < _REMEMBERED * 40:
            self._dull |= lines
        return False

    def interesting(self, line: str) -> bool:
        """Whether any signature could match: everything else is not looked at again."""
        return len(line) <= self._short or any(anchor in line for anchor in self.anchors)

    def matches(self, line: str) -> Iterator[Match]:
        """Every signature that this line has."""
        if not self.interesting(line):
            return
        for signature in self.signatures:
            if signature.longest is not None and len(line) > signature.longest:
                continue
            if not any(literal in line for literal in signature.literals):
                continue
            found = signature.pattern.search(line)
            if found is not None:
                fields = {name: value for name, value in found.groupdict().items() if value is not None}
                yield Match(signature, fields, found.start())


@lru_cache(maxsize=4)
def load_signatures(folder: Path | None = None) -> Catalogue:
    """Read `compat/logs/*.toml`. Raises DataError with the file, the signature and what is wrong."""
    folder = data_dir("compat") / "logs" if folder is None else folder
    signatures: list[Signature] = []
    for path in sorted(folder.glob("*.toml")):
        top = read_toml(path)
        for number, raw in enumerate(top.tables("signature"), 1):
            signatures.append(_signature(raw, f"compat/logs/{path.name}: signature {number}"))
        top.done()
    seen: set[str] = set()
    for signature in signatures:
        if signature.id in seen:
            msg = f"compat/logs: two signatures are called `{signature.id}`"
            raise DataError(msg)
        seen.add(signature.id)
    if not signatures:
        msg = "compat/logs: there are no signatures"
        raise DataError(msg)
    return Catalogue(tuple(signatures))


def _signature(raw: object, where: str) -> Signature:
    table = Table(raw, where)
    name = table.text("id")
    table.where = f"{where} ({name})"
    if not _ID.fullmatch(name):
        raise table.fail("`id` must be lower-case words joined by hyphens")
    benign = table.opt_text("benign")
    result = Signature(
        id=name,
        role=table.choice("role", ROLES),
        says=table.text("says"),
        literals=table.texts("literals"),
        pattern=_pattern(table),
        causes=tuple(Cause(table_cause(table, cause)) for cause in table.texts("causes", optional=True)),
        benign=benign,
        versions=table.opt_text("versions"),
        longest=table.whole("longest") if "longest" in table.raw else None,
        match=table.texts("match"),
        no_match=table.texts("no_match"),
        source=table.text("source"),
    )
    table.done()
    _sound(table, result)
    return result


def _sound(table: Table, signature: Signature) -> None:
    if not signature.literals or not all(signature.literals):
        raise table.fail("`literals` must name at least one text that every matching line contains")
    if not signature.match or not signature.no_match:
        raise table.fail("`match` and `no_match` must each have a line")
    if (signature.role == "benign") != (signature.benign is not None):
        raise table.fail("`benign` belongs to the role `benign`, and to it alone")
    if signature.benign is not None and signature.benign not in BENIGN:
        msg = f"`benign` is `{signature.benign}`; it can be {', '.join(BENIGN)}"
        raise table.fail(msg)
    if signature.versions is not None:
        try:
            satisfies("2.0", signature.versions)
        except VersionSyntaxError as error:
            msg = f"`versions`: {error}"
            raise table.fail(msg) from error


def _pattern(table: Table) -> re.Pattern[str]:
    text = table.text("pattern")
    try:
        return re.compile(text)
    except re.error as error:
        msg = f"`pattern` is not a regular expression: {error}"
        raise table.fail(msg) from error


def table_cause(table: Table, word: str) -> str:
    """A word of the vocabulary of causes, or DataError."""
    if word not in {cause.value for cause in Cause}:
        msg = f"`causes`: `{word}` is no cause"
        raise table.fail(msg)
    return word
