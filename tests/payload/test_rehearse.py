"""The rehearsal of an import, by real interpreters: what fails is named, and where it came from."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from payload.test_pythons import PYTHONS, on_every_python
from tfdoctor.facts import Absent, Known, Unknown
from tfdoctor.facts.imports import Oddity
from tfdoctor.facts.python import Choice
from tfdoctor.probes import python, rehearsal
from tfdoctor.system import LiveSystem

if TYPE_CHECKING:
    from pathlib import Path

ODD = (Oddity("a", "it is odd"),)


def rehearse(folder: Path, *modules, sources=(), version="", timeout=60, variables=None):
    """The rehearsal in a folder, by one of this machine's Pythons."""
    system = LiveSystem(
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), **(variables or {})}, cwd=str(folder)
    )
    interpreter = PYTHONS[version] if version else sys.executable
    facts, _ = python.probe(system, Choice(str(interpreter), str(interpreter)), asked=True, timeout=60)
    return rehearsal.probe(system, facts.value, modules, sources, ODD, timeout=timeout)


def write(folder: Path, **modules: str) -> None:
    for name, text in modules.items():
        path = folder / f"{name.replace('_in_', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


@on_every_python
def test_every_python_says_what_fails(tmp_path: Path, version: str) -> None:
    write(
        tmp_path,
        good="VALUE = 1\nclass inner:\n    deep = 2\n",
        bad="raise ValueError('numpy.dtype size changed')\n",
        absent="import not_there_at_all\n",
        package_in___init__="",
        package_in_part="X = 1\n",
    )
    found = rehearse(
        tmp_path,
        ("good", ("VALUE", "inner.deep")),
        ("package", ("part.X",)),
        ("good", ("nothing",)),
        ("bad", ()),
        ("absent", ()),
        version=version,
    )
    assert isinstance(found, Known)
    good, package, attribute, bad, absent = found.value.modules
    assert good.ok
    assert package.ok
    assert good.file.endswith(("good.py", "good.pyc"))
    assert attribute.attribute_error
    assert "nothing" in attribute.error
    assert (bad.error_type, bad.error) == ("ValueError", "numpy.dtype size changed")
    assert bad.frames[-1].endswith("bad.py")
    assert absent.import_error
    assert found.value.complete
    assert found.value.oddities == ODD
    assert not list(tmp_path.rglob("*.pyc"))


def test_a_missing_module_is_named(tmp_path: Path) -> None:
    (one,) = rehearse(tmp_path, ("not_there_at_all.deep", ())).value.modules
    assert one.not_found == "not_there_at_all"


def test_the_working_folder_comes_first_as_for_a_program_there(tmp_path: Path) -> None:
    write(tmp_path, colorsys="raise RuntimeError('mine')\n")
    (one,) = rehearse(tmp_path, ("colorsys", ())).value.modules
    assert one.error == "mine"
    if sys.version_info >= (3, 11):
        (safe,) = rehearse(tmp_path, ("colorsys", ()), variables={"PYTHONSAFEPATH": "1"}).value.modules
        assert safe.ok


@pytest.mark.parametrize("name", ["types", "token", "traceback", "json"])
def test_what_the_rehearsal_itself_uses_is_looked_for_as_in_a_program(tmp_path: Path, name: str) -> None:
    write(tmp_path, **{name: "x = 1"})
    answer = rehearse(tmp_path, (name, ()), ("traceback", ())).value.modules
    assert answer[0].file == str(tmp_path / f"{name}.py")
    assert answer[1].ok is (name not in ("types", "token"))


@pytest.mark.parametrize("ending", ["import os; os.abort()", "import os; os._exit(3)"])
def test_a_crash_names_the_module(tmp_path: Path, ending: str) -> None:
    write(tmp_path, bad=ending, good="")
    found = rehearse(tmp_path, ("good", ()), ("bad", ()), ("good", ()))
    assert isinstance(found, Known)
    assert [one.ok for one in found.value.modules] == [True, False]
    assert found.value.modules[-1].error_type == "crash"
    assert not found.value.complete


def test_an_exit_without_an_error_is_not_known(tmp_path: Path) -> None:
    write(tmp_path, bad="import os; os._exit(0)")
    assert isinstance(rehearse(tmp_path, ("bad", ())), Unknown)


def test_an_import_that_hangs_is_not_known(tmp_path: Path) -> None:
    write(tmp_path, bad="import time; time.sleep(60)")
    found = rehearse(tmp_path, ("bad", ()), timeout=3)
    assert isinstance(found, Unknown)
    assert "bad" in found.why


def test_what_modules_print_is_no_answer(tmp_path: Path) -> None:
    write(
        tmp_path,
        loud="print('tfdoctor-payload:{\"done\": 1')\nprint('x' * 100000, end='')\nraise SystemExit(1)\n",
    )
    (one,) = rehearse(tmp_path, ("loud", ())).value.modules
    assert one.error_type == "SystemExit"


def test_a_generated_source_is_executed(tmp_path: Path) -> None:
    write(
        tmp_path, generated="raise TypeError('Descriptors cannot be created directly')\n", fine="VALUE = 1\n"
    )
    found = rehearse(tmp_path, sources=(str(tmp_path / "generated.py"),)).value
    assert found.source is not None
    assert found.source.error_type == "TypeError"
    assert rehearse(tmp_path, sources=(str(tmp_path / "fine.py"),)).value.source.ok


def test_a_recording_without_a_rehearsal_is_no_failure(tmp_path: Path) -> None:
    system = LiveSystem()
    facts, _ = python.probe(system, Choice(str(sys.executable), str(sys.executable)), asked=True, timeout=60)
    gone = replace(facts.value, executable=str(tmp_path / "python"))
    assert isinstance(rehearsal.probe(system, gone, (("a", ()),), (), ODD, timeout=9), Absent)
