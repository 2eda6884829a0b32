"""The real outputs beside the checkout, where they are: scored as the closed ones are."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tfdoctor.parse.registry import parse

if TYPE_CHECKING:
    from collections.abc import Iterator

OUTPUTS = Path(__file__).resolve().parents[3] / "shared" / "corpus" / "outputs"


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every scalar with its path, and every list's length."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}")
    elif isinstance(value, list):
        yield f"{path}.#", len(value)
        for index, inner in enumerate(value):
            yield from leaves(inner, f"{path}[{index}]")
    else:
        yield path, value


@pytest.mark.skipif(not OUTPUTS.is_dir(), reason="the corpus of real outputs is not beside this checkout")
def test_real_outputs() -> None:
    fields: Counter[bool] = Counter()
    files: Counter[bool] = Counter()
    wrong: list[str] = []
    for entry in json.loads((OUTPUTS / "index.json").read_text(encoding="utf-8")):
        text = (OUTPUTS / entry["file"]).read_bytes().decode("utf-8", errors="replace")
        got, want = dict(leaves(parse(entry["group"], text))), dict(leaves(entry["truth"]))
        missed = sorted(key for key, value in want.items() if got.get(key) != value)
        fields[True] += len(want) - len(missed)
        fields[False] += len(missed)
        files[not missed] += 1
        wrong += [f"{entry['id']}: {missed[0]}"] if missed else []
    assert fields[True] / fields.total() >= 0.99, wrong
    assert files[True] / files.total() >= 0.92, wrong
