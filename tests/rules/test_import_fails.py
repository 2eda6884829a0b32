"""TFD312, import-fails."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rules.make_facts import (
    NOT_FOUND,
    commands,
    context,
    finding,
    healthy,
    make_failed_import,
    make_missing,
    run,
    with_loader,
    with_python,
)
from tfdoctor.core.causes.steps import Install
from tfdoctor.core.facts import Distribution
from tfdoctor.core.findings import OutcomeKind, Severity
from tfdoctor.rules import (
    import_fails,
    numpy_abi,
)


def test_missing_companion_is_installed():
    facts = with_python(healthy("2.15.1"), installed={"numpy": None})
    result = finding(import_fails.RULE, facts)
    assert result.title == "TensorFlow 2.15.1 cannot be imported without numpy"
    assert commands(result)[0].endswith("pip install 'numpy<2'")
    assert run(numpy_abi.RULE, facts).kind is OutcomeKind.CLEAN


@pytest.mark.parametrize("name", ["termcolor", "packaging"])
def test_missing_requirement_is_installed(name):
    facts = healthy("2.20.0")
    assert context(facts).prediction.import_ok is True
    python = facts.python.value
    tensorflow = replace(python.distributions[0], requires=(f"{name} (>=3.10)", "numpy>=1.26"))
    facts = with_python(facts, absent=(name,), distributions=(tensorflow, *python.distributions[1:]))
    assert context(facts).prediction.import_ok is False
    result = finding(import_fails.RULE, facts)
    assert result.title == f"TensorFlow 2.20.0 cannot be imported without {name}"
    assert result.remedies[0].steps == (Install((f"{name}>=3.10",)),)
    assert f"'{name}>=3.10'" in commands(result)[0]
    # No data say that other releases need it.
    older = with_python(healthy("2.3.4", python="3.8.10"), absent=(name,))
    assert context(older).prediction.import_ok is True


def test_h5py_3_is_reported_for_releases_before_2_5():
    facts = healthy("2.4.4", python="3.8.10")
    python = facts.python.value
    h5py = Distribution("h5py", "3.1.0", python.site_packages[0], "pip")
    facts = with_python(facts, distributions=(*python.distributions, h5py))
    result = finding(import_fails.RULE, facts)
    assert result.severity is Severity.WARNING
    assert result.title == "TensorFlow 2.4.4 does not work with h5py 3.1.0"
    assert result.remedies[0].steps == (Install(("h5py<3",)),)
    assert context(facts).prediction.import_ok is True
    newer = with_python(healthy("2.5.3", python="3.8.10"), distributions=(*python.distributions, h5py))
    assert not [item for item in run(import_fails.RULE, newer).findings if "h5py" in item.title]


def test_missing_system_library_is_installed():
    failed = make_failed_import(f"libgomp.so.1: {NOT_FOUND}", ("libgomp.so.1",))
    facts = with_loader(healthy("1.13.1", distribution="tensorflow-gpu"), import_needs=(failed,))
    result = finding(import_fails.RULE, facts)
    assert commands(result)[0] == "sudo apt-get install libgomp1"
    cuda = with_loader(
        healthy("1.13.1", distribution="tensorflow-gpu"), import_needs=(make_missing("libcublas.so.10.0"),)
    )
    assert run(import_fails.RULE, cuda).kind is OutcomeKind.CLEAN
