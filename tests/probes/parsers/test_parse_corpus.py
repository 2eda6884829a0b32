"""Real outputs from the shared corpus, if it is available, scored as the unpublished outputs are."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tfdoctor.probes.parsers.registry import parse

if TYPE_CHECKING:
    from collections.abc import Iterator

OUTPUTS = Path(__file__).resolve().parents[4] / "shared" / "corpus" / "outputs"


def flatten(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every scalar with its path, and the length of every list."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from flatten(inner, f"{path}.{key}")
    elif isinstance(value, list):
        yield f"{path}.#", len(value)
        for index, inner in enumerate(value):
            yield from flatten(inner, f"{path}[{index}]")
    else:
        yield path, value


@pytest.mark.skipif(not OUTPUTS.is_dir(), reason="the corpus of real outputs is not beside this checkout")
def test_real_outputs() -> None:
    fields: Counter[bool] = Counter()
    files: Counter[bool] = Counter()
    wrong: list[str] = []
    for entry in json.loads((OUTPUTS / "index.json").read_text(encoding="utf-8")):
        text = (OUTPUTS / entry["file"]).read_bytes().decode("utf-8", errors="replace")
        parsed, expected = dict(flatten(parse(entry["group"], text))), dict(flatten(entry["truth"]))
        mismatches = sorted(key for key, value in expected.items() if parsed.get(key) != value)
        fields[True] += len(expected) - len(mismatches)
        fields[False] += len(mismatches)
        files[not mismatches] += 1
        wrong += [f"{entry['id']}: {mismatches[0]}"] if mismatches else []
    assert fields[True] / fields.total() >= 0.99, wrong
    assert files[True] / files.total() >= 0.92, wrong
