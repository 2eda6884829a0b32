"""Call tfdoctor's commands in this process, because starting a process for each test would take minutes."""

from __future__ import annotations

import io
import json
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import jsonschema
import pytest

from tfdoctor.cli.startup import run

if TYPE_CHECKING:
    from collections.abc import Mapping

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


def call_tfdoctor(
    *args: str, stdin: bytes | str = b"", env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> CommandResult:
    """Run a command line in this process, with these variables added, in this folder."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    previous_folder = Path.cwd()
    with tempfile.TemporaryFile() as file:  # a real file, because logs are read from its descriptor
        file.write(stdin.encode() if isinstance(stdin, str) else stdin)
        file.seek(0)
        streams = {"stdin": io.TextIOWrapper(file, encoding="utf-8"), "stdout": out, "stderr": err}
        try:
            os.chdir(cwd or previous_folder)
            with (
                mock.patch.multiple(sys, argv=["tfdoctor", *args], **streams),
                mock.patch.dict(os.environ, env or {}),
                mock.patch("threading.active_count", return_value=1),  # else a slow probe ends the tests
                pytest.raises(SystemExit) as end,
            ):
                run()
        finally:
            os.chdir(previous_folder)
    for stream in (out, err):
        stream.flush()
    texts = [stream.buffer.getvalue().decode() for stream in (out, err)]  # type: ignore[attr-defined]
    return CommandResult(int(end.value.code or 0), *texts)


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
