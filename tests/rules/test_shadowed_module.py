"""TFD701, shadowed-module."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rules.hiding_facts import FOREIGN, diagnose_root, with_foreign_numpy
from rules.make_facts import SITE
from tfdoctor.core.causes.steps import CommentOutLine, Install, RemoveEntries
from tfdoctor.core.facts import (
    MODULE_PATH,
    Distribution,
    EnvironmentFacts,
    Facts,
    Known,
    Origin,
    value_of,
)
from tfdoctor.core.findings import Cause, Severity

OWN_NUMPY = Distribution("numpy", "2.4.6", SITE, "pip")


@pytest.mark.parametrize("error", ["", "No module named 'numpy._core._multiarray_umath'"])
def test_numpy_on_pythonpath_is_a_shadowed_module(error: str) -> None:
    """This holds if the data know the version, and if the import failed in the rehearsal."""
    report, result = diagnose_root(with_foreign_numpy(OWN_NUMPY, error=error))
    assert (result.code, report.verdict.cause) == ("TFD701", Cause.SHADOWED_MODULE)
    assert [other.code for other in report.findings if other.severity is Severity.ERROR] == ["TFD701"]
    assert "PYTHONPATH" in result.title
    assert FOREIGN in result.title
    assert "Python 3.10's" in result.explanation
    (remedy,) = result.remedies
    assert remedy.commands == ("export PYTHONPATH=/mine", "tfdoctor check --python /env/bin/python")
    assert remedy.steps == (RemoveEntries("PYTHONPATH", (f"{FOREIGN}/",)),)


def with_pth_folder(facts: Facts, line: str = f"import sys; sys.path.insert(0, '{FOREIGN}')") -> Facts:
    """Return the facts with the folder added by a .pth file instead of PYTHONPATH."""
    origin = Origin(
        MODULE_PATH, "start", FOREIGN, f"{SITE}/zz.pth" if line else "", 1 if line else None, line
    )
    return replace(facts, environment=EnvironmentFacts({}, (), None, (origin,)))


def test_pth_file_that_adds_the_folder_is_named() -> None:
    report, result = diagnose_root(with_pth_folder(with_foreign_numpy(OWN_NUMPY)))
    assert (result.code, report.verdict.cause) == ("TFD701", Cause.SHADOWED_MODULE)
    assert f"{SITE}/zz.pth, line 1 puts {FOREIGN}" in result.explanation
    (remedy,) = result.remedies
    assert remedy.commands[0] == f"sed -i '1{{/sys.path/s/^/# /}}' {SITE}/zz.pth"
    assert isinstance(remedy.steps[0], CommentOutLine)
    _, result = diagnose_root(with_pth_folder(with_foreign_numpy(OWN_NUMPY), ""))
    assert result.remedies[0].commands[0].startswith("grep -rn ")
    assert result.remedies[0].steps == ()


def test_folder_at_the_end_of_the_path_shadows_nothing() -> None:
    facts = with_pth_folder(with_foreign_numpy(OWN_NUMPY))
    python = value_of(facts.python)
    assert python is not None
    changed = replace(python, sys_path=(*(one for one in python.sys_path if one != FOREIGN), FOREIGN))
    _, one = diagnose_root(replace(facts, python=Known(changed, "x")))
    assert one.code != "TFD701"


def test_module_missing_elsewhere_is_also_installed() -> None:
    _, result = diagnose_root(with_foreign_numpy(error="No module named 'numpy._core._multiarray_umath'"))
    (remedy,) = result.remedies
    assert remedy.commands[0] == "export PYTHONPATH=/mine"
    assert " install " in remedy.commands[1]
    assert "numpy" in remedy.commands[1]
    assert remedy.steps[0] == RemoveEntries("PYTHONPATH", (f"{FOREIGN}/",))
    assert isinstance(remedy.steps[1], Install)
