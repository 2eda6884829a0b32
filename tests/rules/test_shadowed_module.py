"""TFD701, shadowed-module."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rules.hiding_facts import FOREIGN, first, foreign
from rules.make_facts import SITE
from tfdoctor.causes.steps import Drop, Install, TakeOut
from tfdoctor.facts import (
    MODULE_PATH,
    Distribution,
    EnvironmentFacts,
    Facts,
    Known,
    Origin,
    value_of,
)
from tfdoctor.findings import Cause, Severity

OWN_NUMPY = Distribution("numpy", "2.4.6", SITE, "pip")


@pytest.mark.parametrize("error", ["", "No module named 'numpy._core._multiarray_umath'"])
def test_a_numpy_of_pythonpath_is_no_fault_of_numpy(error: str) -> None:
    """Whether a table knows of its version, or a child of that Python stopped at it."""
    report, one = first(foreign(OWN_NUMPY, error=error))
    assert (one.code, report.verdict.cause) == ("TFD701", Cause.SHADOWED_MODULE)
    assert [f.code for f in report.findings if f.severity is Severity.ERROR] == ["TFD701"]
    assert "PYTHONPATH" in one.title
    assert FOREIGN in one.title
    assert "Python 3.10's" in one.explanation
    (remedy,) = one.remedies
    assert remedy.commands == ("export PYTHONPATH=/mine", "tfdoctor check --python /env/bin/python")
    assert remedy.steps == (Drop("PYTHONPATH", (f"{FOREIGN}/",)),)


def match_start(facts: Facts, line: str = f"import sys; sys.path.insert(0, '{FOREIGN}')") -> Facts:
    """The same folder, put there by a .pth file."""
    origin = Origin(
        MODULE_PATH, "start", FOREIGN, f"{SITE}/zz.pth" if line else "", 1 if line else None, line
    )
    return replace(facts, environment=EnvironmentFacts({}, (), None, (origin,)))


def test_a_pth_file_that_puts_a_numpy_first_is_named() -> None:
    report, one = first(match_start(foreign(OWN_NUMPY)))
    assert (one.code, report.verdict.cause) == ("TFD701", Cause.SHADOWED_MODULE)
    assert f"{SITE}/zz.pth, line 1 puts {FOREIGN}" in one.explanation
    (remedy,) = one.remedies
    assert remedy.commands[0] == f"sed -i '1{{/sys.path/s/^/# /}}' {SITE}/zz.pth"
    assert isinstance(remedy.steps[0], TakeOut)
    _, one = first(match_start(foreign(OWN_NUMPY), ""))
    assert one.remedies[0].commands[0].startswith("grep -rn ")
    assert one.remedies[0].steps == ()


def test_a_folder_that_the_start_puts_last_hides_nothing() -> None:
    facts = match_start(foreign(OWN_NUMPY))
    python = value_of(facts.python)
    assert python is not None
    last = replace(python, sys_path=(*(one for one in python.sys_path if one != FOREIGN), FOREIGN))
    _, one = first(replace(facts, python=Known(last, "x")))
    assert one.code != "TFD701"


def test_what_is_nowhere_else_is_installed_besides() -> None:
    _, one = first(foreign(error="No module named 'numpy._core._multiarray_umath'"))
    (remedy,) = one.remedies
    assert remedy.commands[0] == "export PYTHONPATH=/mine"
    assert " install " in remedy.commands[1]
    assert "numpy" in remedy.commands[1]
    assert remedy.steps[0] == Drop("PYTHONPATH", (f"{FOREIGN}/",))
    assert isinstance(remedy.steps[1], Install)
