"""TFD701, shadowed-module."""

from __future__ import annotations

from dataclasses import replace

from rules.hiding_facts import FOREIGN, diagnose_root, with_foreign_numpy
from rules.make_facts import SITE
from tfdoctor.core.facts import (
    MODULE_PATH,
    Distribution,
    EnvironmentFacts,
    Facts,
    Known,
    Origin,
    value_of,
)

OWN_NUMPY = Distribution("numpy", "2.4.6", SITE, "pip")


def with_pth_folder(facts: Facts, line: str = f"import sys; sys.path.insert(0, '{FOREIGN}')") -> Facts:
    """Return the facts with the folder added by a .pth file instead of PYTHONPATH."""
    origin = Origin(
        MODULE_PATH, "start", FOREIGN, f"{SITE}/zz.pth" if line else "", 1 if line else None, line
    )
    return replace(facts, environment=EnvironmentFacts({}, (), None, (origin,)))


def test_folder_at_the_end_of_the_path_shadows_nothing() -> None:
    facts = with_pth_folder(with_foreign_numpy(OWN_NUMPY))
    python = value_of(facts.python)
    assert python is not None
    changed = replace(python, sys_path=(*(one for one in python.sys_path if one != FOREIGN), FOREIGN))
    _, one = diagnose_root(replace(facts, python=Known(changed, "x")))
    assert one.code != "TFD701"


def test_package_that_fails_for_two_reasons_is_named_once() -> None:
    rehearsal = with_foreign_numpy(OWN_NUMPY, error="No module named x").rehearsal
    _, finding = diagnose_root(replace(with_foreign_numpy(OWN_NUMPY), rehearsal=rehearsal))
    assert finding.code == "TFD701"
    assert f"{finding.title} {finding.explanation}".count("numpy 1.24.3") == 2
