"""Call tfdoctor's commands in this process, because starting a process for each test would take minutes."""

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
class CommandResult:
    """The result of a command."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Tfdoctor:
    """A callable that runs the command line: `tfdoctor("recommend", "--json")`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *args: str) -> CommandResult:
        self._monkeypatch.setattr(sys, "argv", ["tfdoctor", *args])
        with pytest.raises(SystemExit) as end:
            run()
        streams = self._capsys.readouterr()
        return CommandResult(int(end.value.code or 0), streams.out, streams.err)


def validate(answer: Any, name: str) -> None:
    """Validate an answer against a schema of docs/schemas."""
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(answer)


def is_clean(text: str) -> bool:
    """Return whether the text has no control characters except line feeds."""
    return all(char == "\n" or char.isprintable() for char in text)
