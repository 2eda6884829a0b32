"""Every signature does what it says, on its own examples, and in linear time."""

from __future__ import annotations

import re
import sys
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

from tfdoctor.compat.decode import DataError
from tfdoctor.logs.reader import DIGITS, MAX_LINE_CHARS
from tfdoctor.logs.signatures import _REMEMBERED, Catalogue, Signature, digitless, load_signatures

if TYPE_CHECKING:
    from pathlib import Path

sre: Any = import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")
CATALOGUE = load_signatures()
each = pytest.mark.parametrize("signature", CATALOGUE.signatures, ids=lambda signature: signature.id)


def find_matches(signature: Signature, line: str) -> bool:
    return any(match.signature is signature for match in CATALOGUE.matches(line))


@each
def test_examples(signature: Signature) -> None:
    for line in signature.match:
        assert find_matches(signature, line), line
    for line in signature.no_match:
        assert not find_matches(signature, line), line


@each
def test_no_signature_knows_a_line_of_a_source_file(signature: Signature) -> None:
    assert not re.search(r"\.cc:\\?\d", signature.pattern.pattern)


@each
def test_repeats_are_bounded(signature: Signature) -> None:
    for kind, (_, most, inner) in _repeats(sre.parse(signature.pattern.pattern)):
        assert most is not sre.MAXREPEAT, kind
        nested = list(_repeats(inner))
        assert all(limit * most <= 20_000 for _, (_, limit, _) in nested), "a repeat of repeats"


def _repeats(tree: Any) -> Any:
    for kind, value in tree:
        if kind in (sre.MAX_REPEAT, sre.MIN_REPEAT):
            yield kind, value
            yield from _repeats(value[2])
        elif isinstance(value, (list, tuple)):
            for part in value:
                if isinstance(part, sre.SubPattern):
                    yield from _repeats(part)
                elif isinstance(part, list):
                    for one in part:
                        if isinstance(one, sre.SubPattern):
                            yield from _repeats(one)


@each
def test_an_adversary_cannot_make_it_slow(signature: Signature) -> None:
    for seed in (signature.match[0], signature.match[0][:30], signature.literals[0], "a", " ", "/", "'"):
        line = (seed * (MAX_LINE_CHARS // len(seed) + 1))[:MAX_LINE_CHARS]
        began = time.process_time()
        signature.pattern.search(line)
        assert time.process_time() - began < 0.5


@each
def test_whatever_the_pattern_matches_has_a_literal(signature: Signature) -> None:
    """A line without any literal is not tried: an alternative of the pattern that has none is never found."""
    tried = 0
    for line in (*signature.match, *_lines_for(sre.parse(signature.pattern.pattern))):
        if signature.pattern.search(line) and len(line) <= (signature.longest or MAX_LINE_CHARS):
            tried += 1
            shape = line.translate(DIGITS) if signature.blind else line
            assert any(literal in shape for literal in signature.literals), line
    assert tried


def _lines_for(tree: Any) -> list[str]:
    """Texts that take every branch of a pattern at least once, each repeat as seldom as it may and once."""
    variants: list[list[str]] = []
    for kind, value in tree:
        if kind is sre.LITERAL:
            variants.append([chr(value)])
        elif kind is sre.IN:
            variants.append(_chars_of(value))
        elif kind in (sre.MAX_REPEAT, sre.MIN_REPEAT):
            least, _, inner = value
            texts = _lines_for(inner)
            variants.append([texts[0] * least, *texts] if least == 0 else [text * least for text in texts])
        elif kind is sre.SUBPATTERN:
            variants.append(_lines_for(value[-1]))
        elif kind is sre.BRANCH:
            variants.append([text for branch in value[1] for text in _lines_for(branch)])
        elif kind in (sre.NOT_LITERAL, sre.ANY):
            variants.append(["x"])
    found = ["".join(texts[0] for texts in variants)]
    for place, texts in enumerate(variants):
        before = "".join(one[0] for one in variants[:place])
        after = "".join(one[0] for one in variants[place + 1 :])
        found += [before + text + after for text in texts[1:]]
    return found


def _chars_of(members: Any) -> list[str]:
    listed = [chr(value) for kind, value in members if kind is sre.LITERAL]
    if members[0][0] is sre.NEGATE:
        return ["x" if "x" not in listed else "y"]
    for kind, value in members:
        if kind is sre.RANGE:
            listed.append(chr(value[0]))
        elif kind is sre.CATEGORY:
            listed.append({sre.CATEGORY_DIGIT: "1", sre.CATEGORY_SPACE: " "}.get(value, "x"))
    return listed


@each
def test_a_line_is_known_by_its_shape(signature: Signature) -> None:
    """Long logs are read by shapes, which have 0 for every digit: whatever matches must match there, too."""
    for line in (*signature.match, *_lines_for(sre.parse(signature.pattern.pattern))):
        if find_matches(signature, line) or (signature.pattern.search(line) and signature.longest is None):
            shape = re.sub("[1-9]", "0", line)
            assert re.search(digitless(signature.pattern.pattern), shape), line


def test_a_long_log_of_nothing_is_passed_over_and_a_message_in_it_is_not() -> None:
    dull = [
        b"%04d/0000 [==>...] - ETA: 0s - loss: 0.0000" % 0,
        b"INFO:tensorflow:loss = 0.0, step = 0 (0.0 sec)",
    ]
    assert not CATALOGUE.filter_shapes(dull)
    for signature in CATALOGUE.signatures:
        for line in signature.match:
            shape = re.sub("[1-9]", "0", line).encode()
            assert CATALOGUE.filter_shapes([*dull, shape]) == {shape}, line


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("pattrn = 'x'", "unknown key `pattrn`, did you mean `pattern`"),
        ("pattern = 'x'\ncauses = ['no-drivers']", "`no-drivers` is no cause"),
        ("pattern = 'x'\nversions = 'two'", "`versions`"),
        ("pattern = 'x'\nbenign = 'numa-node'", "`benign` belongs to the role"),
    ],
)
def test_the_loader_is_strict(tmp_path: Path, change: str, message: str) -> None:
    text = (
        "[[signature]]\nid = 'one'\nrole = 'decisive'\nsays = 'x'\nliterals = ['x']\n"
        f"match = ['x']\nno_match = ['y']\nsource = 'x'\n{change}\n"
    )
    (tmp_path / "one.toml").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=re.escape(message)):
        load_signatures(tmp_path)


def test_an_era_is_bracketed_by_minors(tmp_path: Path) -> None:
    text = (
        "[[signature]]\nid = 'one'\nrole = 'decisive'\nsays = 'x'\nliterals = ['x']\npattern = 'x'\n"
        "match = ['x']\nno_match = ['y']\nsource = 'x'\nera = ['two', '']\n"
    )
    (tmp_path / "one.toml").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match="the first and the last minor"):
        load_signatures(tmp_path)
    assert {one.id for one in CATALOGUE.dated} >= {"dso-failed", "dso-failed-old", "format-classic-core"}
    assert next(one for one in CATALOGUE.places if one.part in "external/local_xla/xla/tsl/x.cc").era == (
        "2.17",
        "",
    )


def test_a_line_is_looked_at_once_however_many_came_before(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    monkeypatch.setattr(Catalogue, "_match_shape", lambda _, shape: looked.append(shape) or ())
    catalogue = Catalogue(CATALOGUE.signatures)
    letters = str.maketrans("0123456789", "abcdefghij")
    lines = [f"line {number}".translate(letters) for number in range(_REMEMBERED + 100)]
    for line in lines:
        for _ in range(3):
            catalogue.candidates(line)
    assert looked == lines
