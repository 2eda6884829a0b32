"""Every signature does what it says, on its own examples, and in linear time."""

from __future__ import annotations

import re
import sys
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

from tfdoctor.compat.loader import DataError
from tfdoctor.logs.reader import LONGEST
from tfdoctor.logs.signatures import Signature, load_signatures

if TYPE_CHECKING:
    from pathlib import Path

sre: Any = import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")
CATALOGUE = load_signatures()
each = pytest.mark.parametrize("signature", CATALOGUE.signatures, ids=lambda signature: signature.id)


def found(signature: Signature, line: str) -> bool:
    return any(match.signature is signature for match in CATALOGUE.matches(line))


@each
def test_examples(signature: Signature) -> None:
    for line in signature.match:
        assert found(signature, line), line
    for line in signature.no_match:
        assert not found(signature, line), line


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
        line = (seed * (LONGEST // len(seed) + 1))[:LONGEST]
        began = time.perf_counter()
        signature.pattern.search(line)
        assert time.perf_counter() - began < 0.5


def test_a_long_log_of_nothing_is_passed_over_and_a_message_in_it_is_not() -> None:
    dull = b"".join(b"%d/1534 [==>...] - ETA: 5s - loss: 0.%04d\n" % (n, n) for n in range(1000))
    assert not CATALOGUE.worth(dull)
    for signature in CATALOGUE.signatures:
        if signature.longest is None and any(re.search("[A-Za-z]{4}", lit) for lit in signature.literals):
            assert CATALOGUE.worth(dull + signature.match[0].encode() + b"\n"), signature.id


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("pattrn = 'x'", "unknown key `pattrn`, did you mean `pattern`"),
        ("pattern = '('", "not a regular expression"),
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
