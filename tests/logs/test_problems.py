"""Problems from public threads: the cause, and advice that ends the problem.

Each folder has an input, its source (meta.json) and an oracle: acceptable causes, groups of expressions of which one must
match the screen entirely, and expressions that must not match it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from cli.planner import Tfdoctor

PROBLEMS = sorted(path for path in (Path(__file__).parent / "problems").iterdir() if path.is_dir())
HARMLESS = {"benign", "healthy"}
"""Words of the oracles for messages that `explain` calls harmless."""


@pytest.mark.parametrize("folder", PROBLEMS, ids=lambda path: path.name)
def test_cause_and_advice(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "100")
    tfdoctor = Tfdoctor(monkeypatch, capsys)
    command = read_json(folder / "meta.json")["cmd"]
    oracle = read_json(folder / "oracle.json")
    result = tfdoctor(*command)
    screen = " ".join(re.sub(r"\\\n\s*|[│]", " ", result.out + result.err).split())
    groups = oracle["screen_any"]
    assert not groups or any(all(re.search(text, screen, re.I) for text in group) for group in groups), screen
    assert not [text for text in oracle["screen_none"] if re.search(text, screen, re.I)], screen
    if oracle["cause"]:
        assert find_causes(tfdoctor(*command, "--json").json) & set(oracle["cause"])


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def find_causes(answer: Any) -> set[str]:
    """Return the cause of a log, or the causes and the names of the pages of an explanation."""
    if "verdict" in answer:
        return {answer["verdict"]["cause"]}
    names = {rule["name"] for rule in answer["rules"]}
    return (
        names
        | {entry["cause"] for entry in answer["causes"]}
        | {cause for rule in answer["rules"] for cause in rule["causes"]}
        | (HARMLESS if "harmless-messages" in names else set())
    )
