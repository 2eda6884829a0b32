"""Tests of unpickling what a Dask or Ray worker sends: objects become placeholders and no code runs."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tfdoctor.extensions.fleet.nodes.models import NodeAnswer, parse_answer

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """
import collections, io, os, pickle, sys
from pickle import loads

class Loader(pickle.Unpickler):
    pass

class Evil:
    def __reduce__(self):
        return os.system, (f"touch {sys.argv[1]}",)

class Failure(ValueError):
    pass

evil, failure = pickle.dumps(Evil()), pickle.dumps(Failure("text of the node"))
old = pickle.dumps(Evil(), 0)
from tfdoctor.extensions.fleet.nodes.unpickling import restrict_unpickling
restrict_unpickling()
import _pickle
for data in (evil, old):
    for read in (loads, pickle.loads, _pickle.loads, pickle._loads):
        read(data)
    for kind in (Loader, pickle.Unpickler, _pickle.Unpickler, pickle._Unpickler):
        kind(io.BytesIO(data)).load()
    pickle.load(io.BytesIO(data))
error = loads(failure)
print(type(error).__name__, error, isinstance(error, Exception))
print(loads(pickle.dumps([b"x", {"a": 1.5}, "text", None])), issubclass(loads(pickle.dumps(bytes)), bytes))
try:
    loads(b"cbuiltins\\nbytes\\n(I1000000000000\\ntR.")
except pickle.UnpicklingError as error:
    print(error)
"""


def test_no_pickle_runs_code(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(marker)], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.stderr == ""
    assert result.stdout.splitlines() == [
        "Failure text of the node True",
        "[b'x', {'a': 1.5}, 'text', None] True",
        "a node sent no plain bytes",
    ]
    assert not marker.exists()


def make_header(**changes: object) -> bytes:
    return json.dumps({"ended": "answered", "why": "", "seconds": 1.5, **changes}).encode() + b"\n"


def test_an_answer_is_read() -> None:
    assert parse_answer("h", make_header() + b"{}\n", 10) == NodeAnswer("h", "answered", b"{}\n", "", 1.5)
    timeout_header = make_header(ended="timeout", why="no \x1b[1manswer")
    assert parse_answer("h", timeout_header + b"{}", 10) == NodeAnswer("h", "timeout", b"", "no answer", 1.5)
    assert parse_answer("h", make_header() + b"x" * (2 << 20), 1 << 20).outcome == "flooded"
    assert parse_answer("h", b"x" * 5000, 1 << 20).outcome == "flooded"


@pytest.mark.parametrize(
    "sent",
    [
        *(5, None, "text", {"ended": "answered"}, b"", b"[]\n", b"5\n", b"{}\n", b"[" * 4000 + b"\n"),
        *(
            make_header(ended="fine"),
            make_header(ended=[]),
            make_header(why=None),
            make_header(seconds=float("nan")),
            make_header(seconds=True),
        ),
    ],
)
def test_invalid_answer_fails_the_host(sent: object) -> None:
    assert parse_answer("h", sent, 10) == NodeAnswer(
        "h", "failed", reason="what it sent is no answer of tfdoctor"
    )
