"""Signatures: each matches its own examples and no others, in linear time."""

from __future__ import annotations

import re
import sys
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

from compat.every_row import for_each
from tfdoctor.compat.decode import DataError
from tfdoctor.logs.reader import DIGITS_TO_ZERO, MAX_LINE_CHARS
from tfdoctor.logs.signatures import _MAX_SHAPES, Catalogue, Signature, load_signatures, make_shape_pattern

if TYPE_CHECKING:
    from pathlib import Path

sre: Any = import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")
CATALOGUE = load_signatures()
for_each_signature = for_each(CATALOGUE.signatures, lambda signature: signature.id)


def matches_signature(signature: Signature, line: str) -> bool:
    return any(match.signature is signature for match in CATALOGUE.iter_matches(line))


@for_each_signature
def test_signature_matches_its_examples_alone(signature: Signature) -> None:
    for line in signature.matching_examples:
        assert matches_signature(signature, line), line
    for line in signature.other_examples:
        assert not matches_signature(signature, line), line


@for_each_signature
def test_no_pattern_names_a_source_line(signature: Signature) -> None:
    assert not re.search(r"\.cc:\\?\d", signature.pattern.pattern)


@for_each_signature
def test_repeats_are_bounded(signature: Signature) -> None:
    for kind, (_, maximum, inner) in _find_repeats(sre.parse(signature.pattern.pattern)):
        assert maximum is not sre.MAXREPEAT, kind
        nested = list(_find_repeats(inner))
        assert all(limit * maximum <= 20_000 for _, (_, limit, _) in nested), "a repeat of repeats"


def _find_repeats(tree: Any) -> Any:
    for kind, value in tree:
        if kind in (sre.MAX_REPEAT, sre.MIN_REPEAT):
            yield kind, value
            yield from _find_repeats(value[2])
        elif isinstance(value, (list, tuple)):
            for part in value:
                if isinstance(part, sre.SubPattern):
                    yield from _find_repeats(part)
                elif isinstance(part, list):
                    for branch in part:
                        if isinstance(branch, sre.SubPattern):
                            yield from _find_repeats(branch)


@for_each_signature
def test_pattern_is_fast_on_hostile_lines(signature: Signature) -> None:
    for seed in (
        signature.matching_examples[0],
        signature.matching_examples[0][:30],
        signature.literals[0],
        "a",
        " ",
        "/",
        "'",
    ):
        line = (seed * (MAX_LINE_CHARS // len(seed) + 1))[:MAX_LINE_CHARS]
        start = time.process_time()
        signature.pattern.search(line)
        assert time.process_time() - start < 0.5


@for_each_signature
def test_every_matching_line_has_a_literal(signature: Signature) -> None:
    """Lines without a literal are skipped, so an alternative without one would never be found."""
    tried = 0
    for line in (*signature.matching_examples, *_make_lines(sre.parse(signature.pattern.pattern))):
        if signature.pattern.search(line) and len(line) <= (signature.max_line_chars or MAX_LINE_CHARS):
            tried += 1
            shape = line.translate(DIGITS_TO_ZERO) if signature.ignores_digits else line
            assert any(literal in shape for literal in signature.literals), line
    assert tried


def _make_lines(tree: Any) -> list[str]:
    """Return texts that take every branch of a pattern, with each repeat at its minimum and once."""
    variants: list[list[str]] = []
    for kind, value in tree:
        if kind is sre.LITERAL:
            variants.append([chr(value)])
        elif kind is sre.IN:
            variants.append(_sample_chars(value))
        elif kind in (sre.MAX_REPEAT, sre.MIN_REPEAT):
            minimum, _, inner = value
            texts = _make_lines(inner)
            variants.append(
                [texts[0] * minimum, *texts] if minimum == 0 else [text * minimum for text in texts]
            )
        elif kind is sre.SUBPATTERN:
            variants.append(_make_lines(value[-1]))
        elif kind is sre.BRANCH:
            variants.append([text for branch in value[1] for text in _make_lines(branch)])
        elif kind in (sre.NOT_LITERAL, sre.ANY):
            variants.append(["x"])
    lines = ["".join(texts[0] for texts in variants)]
    for index, texts in enumerate(variants):
        before = "".join(other[0] for other in variants[:index])
        after = "".join(other[0] for other in variants[index + 1 :])
        lines += [before + text + after for text in texts[1:]]
    return lines


def _sample_chars(members: Any) -> list[str]:
    chars = [chr(value) for kind, value in members if kind is sre.LITERAL]
    if members[0][0] is sre.NEGATE:
        return ["x" if "x" not in chars else "y"]
    for kind, value in members:
        if kind is sre.RANGE:
            chars.append(chr(value[0]))
        elif kind is sre.CATEGORY:
            chars.append({sre.CATEGORY_DIGIT: "1", sre.CATEGORY_SPACE: " "}.get(value, "x"))
    return chars


@for_each_signature
def test_shape_of_a_matching_line_matches(signature: Signature) -> None:
    """Long logs are read by shapes, which have 0 for every digit, so a shape must match as well."""
    for line in (*signature.matching_examples, *_make_lines(sre.parse(signature.pattern.pattern))):
        if matches_signature(signature, line) or (
            signature.pattern.search(line) and signature.max_line_chars is None
        ):
            shape = re.sub("[1-9]", "0", line)
            assert re.search(make_shape_pattern(signature.pattern.pattern), shape), line


def test_shape_filter_keeps_messages_alone() -> None:
    dull = [
        b"%04d/0000 [==>...] - ETA: 0s - loss: 0.0000" % 0,
        b"INFO:tensorflow:loss = 0.0, step = 0 (0.0 sec)",
    ]
    assert not CATALOGUE.filter_shapes(dull)
    for signature in CATALOGUE.signatures:
        for line in signature.matching_examples:
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
def test_loader_rejects_invalid_signatures(tmp_path: Path, change: str, message: str) -> None:
    text = (
        "[[signature]]\nid = 'one'\nrole = 'decisive'\nsays = 'x'\nliterals = ['x']\n"
        f"match = ['x']\nno_match = ['y']\nsource = 'x'\n{change}\n"
    )
    (tmp_path / "one.toml").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=re.escape(message)):
        load_signatures(tmp_path)


def test_era_has_a_first_and_a_last_minor(tmp_path: Path) -> None:
    text = (
        "[[signature]]\nid = 'one'\nrole = 'decisive'\nsays = 'x'\nliterals = ['x']\npattern = 'x'\n"
        "match = ['x']\nno_match = ['y']\nsource = 'x'\nera = ['two', '']\n"
    )
    (tmp_path / "one.toml").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match="the first and the last minor"):
        load_signatures(tmp_path)
    assert {signature.id for signature in CATALOGUE.signatures_with_era} >= {
        "dso-failed",
        "dso-failed-old",
        "format-classic-core",
    }
    assert next(
        signature
        for signature in CATALOGUE.source_folders
        if signature.path_part in "external/local_xla/xla/tsl/x.cc"
    ).era == (
        "2.17",
        "",
    )


def test_line_is_matched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    matched: list[str] = []
    monkeypatch.setattr(Catalogue, "_match_shape", lambda _, shape: matched.append(shape) or ())
    catalogue = Catalogue(CATALOGUE.signatures)
    letters = str.maketrans("0123456789", "abcdefghij")
    lines = [f"line {number}".translate(letters) for number in range(_MAX_SHAPES + 100)]
    for line in lines:
        for _ in range(3):
            catalogue.list_candidates(line)
    assert matched == lines
