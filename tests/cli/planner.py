"""The commands of the planner, called in this process: a second for each would be a minute for all."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tfdoctor.cli.startup import run

SCHEMAS = Path(__file__).resolve().parents[2] / "docs" / "schemas"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Tfdoctor:
    """`tfdoctor("recommend", "--json")`, as the shell would have it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *args: str) -> Ended:
        self._monkeypatch.setattr(sys, "argv", ["tfdoctor", *args])
        with pytest.raises(SystemExit) as end:
            run()
        told = self._capsys.readouterr()
        return Ended(int(end.value.code or 0), told.out, told.err)


def validate(answer: Any, name: str) -> None:
    """Against docs/schemas."""
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(answer)


def is_clean(text: str) -> bool:
    """No control characters but the ends of lines."""
    return all(char == "\n" or char.isprintable() for char in text)
