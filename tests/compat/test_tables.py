"""The tables of every check are loaded at once, fast, and without the network."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

import tfdoctor.compat
from tfdoctor.compat import (
    Compat,
)

COMPAT = Compat.load()


def test_lazy_names_can_be_imported() -> None:
    for exported in tfdoctor.compat.__all__:
        assert getattr(tfdoctor.compat, exported) is not None
    with pytest.raises(AttributeError, match="nothing_here"):
        _ = tfdoctor.compat.nothing_here


def test_load_is_cached() -> None:
    assert Compat.load() is COMPAT


def test_tables_load_fast() -> None:
    best = min(_seconds_to_load() for _ in range(5))
    assert best < 0.025


def _seconds_to_load() -> float:
    start = time.process_time()
    _ = Compat().releases
    return time.process_time() - start


def test_import_reads_nothing_and_needs_no_network() -> None:
    code = (
        "import sys, tfdoctor.compat as c; c.Compat.load().find_release('2.15.1');"
        "bad = {'socket', 'subprocess', 'tomllib', 'packaging.specifiers', 'requests'} & set(sys.modules);"
        "sys.exit(str(bad) if bad else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_prepare_reads_the_tables_of_every_check(monkeypatch: pytest.MonkeyPatch) -> None:
    compat = Compat()
    compat.prepare()
    monkeypatch.setattr(Path, "read_text", None)  # any later read fails
    assert compat.find_release("2.20.0") is not None
    assert compat.find_required_libraries({"CUDA": "12.5.1", "CUDNN": "9"}, "2.20.0") is None
    assert compat.find_incompatible_packages("2.20.0", {}, {})
    assert compat.list_problems("tensorflow", "2.21.0")
