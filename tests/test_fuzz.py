"""The targets of scripts/fuzz: they keep every promise on the available inputs, and a broken promise is noticed.

Here hypothesis changes the real texts, without atheris.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tfdoctor.probes.parsers.registry import PARSERS

if TYPE_CHECKING:
    from collections.abc import Sequence

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="fuzzing is done on Linux")


def load_module(name: str, path: Path) -> Any:
    loader = importlib.machinery.SourceFileLoader(name, str(path))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    loader.exec_module(module)
    return module


targets = load_module("fuzz_targets", SCRIPTS / "fuzz_targets.py")
fuzz = load_module("fuzz_script", SCRIPTS / "fuzz")
TARGETS: dict[str, Any] = targets.TARGETS
SLOW_TARGETS = {"machine", "recording"}
"""Targets that need about 20 ms per input, which is too slow for many inputs."""


def list_seeds(name: str, most: int = 40) -> list[bytes]:
    """Return at most `most` inputs of a target, spread over all of them."""
    inputs = list(TARGETS[name].seeds())
    return [seed[: TARGETS[name].largest] for seed in inputs[:: len(inputs) // most + 1]]


def test_every_parser_is_a_target() -> None:
    modules = {path.stem for path in Path(targets.parse_package.__path__[0]).glob("[a-z]*.py")}
    covered = {*TARGETS, *(function.__module__.rpartition(".")[2] for function in PARSERS.values())}
    assert {*PARSERS} <= {*TARGETS}
    assert modules - {"detect", "edits", "registry"} <= covered
    assert all(targets.find_other_readers().values()), "a module with no public function of one text"


@pytest.mark.few(6)
@pytest.mark.parametrize("name", TARGETS)
def test_seeds_break_no_promise(name: str) -> None:
    inputs = list_seeds(name)
    assert inputs
    for seed in inputs:
        TARGETS[name].run(seed)


NESTED = (
    "[" * 20_000,
    '{"a":' * 20_000,
    "<gpu>" * 20_000,
    "a = " + "[" * 20_000,
    "tfdoctor-payload:" + "[" * 20_000,
)


@pytest.mark.few(5)
@pytest.mark.parametrize("name", TARGETS)
def test_deep_nesting_breaks_no_promise(name: str) -> None:
    for text in NESTED:
        TARGETS[name].run(text.encode()[: 1 << 14 if name == "capture" else None])


def edit_seeds(source: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """Return a strategy that edits the seeds.

    Lines are removed, repeated, moved, cut and mixed, and a byte or a word is changed.
    """
    lines = sorted({line for seed in source for line in seed.splitlines(keepends=True)})
    odd_values = (
        b"N/A",
        b"-1",
        b"9" * 30,
        b"\xed\xa0\x80",
        b"\xd9\xa3",
        b"\0",
        b"\r",
        b"\x1b[",
        b"",
        b"\\n",
        b"]>",
    )
    edit = st.tuples(
        st.integers(0, 4),
        st.integers(0, 1 << 16),
        st.sampled_from(lines or [b"\n"]),
        st.sampled_from(odd_values),
    )

    def apply(drawn: tuple[bytes, list[tuple[int, int, bytes, bytes]]]) -> bytes:
        data, edits = drawn
        for kind, number, line, value in edits:
            data_lines = data.splitlines(keepends=True) or [b""]
            index = number % len(data_lines)
            if kind == 0:
                del data_lines[index]
            elif kind == 1:
                data_lines.insert(index, line)
            elif kind == 2:
                data_lines[index] = (
                    data_lines[index][: number % (len(data_lines[index]) + 1)]
                    + value
                    + line[number % (len(line) + 1) :]
                )
            elif kind == 3:
                data_lines = data_lines[:index]
            else:
                data_lines[index] *= 2 + number % 20
            data = b"".join(data_lines)
        return data[: 1 << 16]

    return st.tuples(st.sampled_from(source), st.lists(edit, max_size=8)).map(apply)


@pytest.mark.few(3)
@pytest.mark.parametrize("name", sorted({*TARGETS} - SLOW_TARGETS))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_changed_real_texts_break_no_promise(name: str, data: st.DataObject) -> None:
    TARGETS[name].run(data.draw(STRATEGIES[name]))


STRATEGIES = {name: st.deferred(lambda name=name: edit_seeds(list_seeds(name))) for name in TARGETS}


# ---------------------------------------------------------------- detection of broken promises


@pytest.mark.parametrize(
    ("value", "data"), [({"a": "x" * 20_000}, b"a"), ({1: 2}, b"a"), ({"a": (1, 2)}, b"a")]
)
def test_broken_promise_is_raised(value: Any, data: bytes) -> None:
    with pytest.raises(targets.BrokenPromiseError):
        targets.check_json(value, data)


def test_crash_of_a_probe_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object, **__: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr("tfdoctor.diagnosis.collect.driver.probe_smi", crash)
    with pytest.raises(targets.BrokenPromiseError, match="nvidia-smi crashed"):
        TARGETS["machine"].run(next(iter(TARGETS["machine"].seeds())))


class Raising:
    """A target with two defects."""

    name = "raising"

    @staticmethod
    def run(data: bytes) -> None:
        if data.startswith(b"a"):
            raise ValueError("one")
        if data.startswith(b"b"):
            raise KeyError(data)


def test_defect_is_recorded_once_with_its_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "ROOT", tmp_path)
    monkeypatch.setattr(fuzz, "BUILD", tmp_path / "build")
    session = fuzz.Session(Raising, 60.0, tmp_path / "state.json")
    for data in (b"a1", b"a2", b"ok", b"b1", b"b2"):
        session(data)
    session.write(session.deadline + 1)
    figures = json.loads((tmp_path / "state.json").read_text(encoding="utf-8"))
    assert (figures["executions"], figures["findings"], len(figures["new"])) == (5, 4, 2)
    saved = sorted(path for path in (tmp_path / "build" / "findings").iterdir() if path.suffix != ".txt")
    assert sorted(path.read_bytes() for path in saved) == [b"a1", b"b1"]
    assert "ValueError: one" in saved[0].with_suffix(".txt").read_text(encoding="utf-8") + saved[
        1
    ].with_suffix(".txt").read_text(encoding="utf-8")


def test_slow_input_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "ROOT", tmp_path)
    monkeypatch.setattr(fuzz, "BUILD", tmp_path / "build")
    monkeypatch.setattr(fuzz, "INPUT_TIMEOUT_S", 0.01)
    slow = SimpleNamespace(name="slow", run=lambda _: sum(range(20_000_000)))
    session = fuzz.Session(slow, 60.0, tmp_path / "state.json")
    session(b"x")
    assert session.new
    assert "TimeoutError" in session.new[0]


@pytest.mark.parametrize("form", ["text", "bytes", "json", "headed"])
def test_mutations_keep_the_size_limit(form: str) -> None:
    source = [
        b'{"a": {"b": ["/usr", 1, "12.4"]}, "c": "x"}\n',
        b"host\tfiles\t/x\ntext 1.2\nmore\n",
        b"\n",
        b"",
    ]
    atheris = SimpleNamespace(Mutate=lambda data, largest: (data + data)[:largest])
    mutate = fuzz.Mutator(atheris, SimpleNamespace(form=form), source)
    mutated = {mutate(source[n % len(source)], 300, n) for n in range(600)}
    assert max(map(len, mutated)) <= 300
    assert len(mutated) > 30
    if form == "headed":
        assert sum(output.startswith(b"host\tfiles\t/x\n") for output in mutated) > 20
    if form == "json":
        assert sum(output.startswith((b"{", b"[")) for output in mutated) > 20
