"""TFD306, numpy-abi."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rules.hiding_facts import FOREIGN, diagnose_root, with_foreign_numpy
from rules.make_facts import (
    commands,
    context,
    finding,
    healthy,
    run,
    with_python,
)
from tfdoctor.core.facts import (
    Known,
    value_of,
)
from tfdoctor.core.findings import Cause, OutcomeKind, Severity
from tfdoctor.rules import (
    numpy_abi,
    protobuf_conflict,
)


def test_numpy_of_the_environment_is_the_cause() -> None:
    facts = with_foreign_numpy(value="/mine")
    report, result = diagnose_root(facts)
    assert (result.code, report.verdict.cause) == ("TFD306", Cause.NUMPY_ABI)


def test_environment_on_pythonpath_is_not_a_shadow() -> None:
    """TensorFlow is in that folder, too, so its NumPy is the cause."""
    facts = with_foreign_numpy()
    tensorflow = value_of(facts.tensorflow)
    assert tensorflow is not None
    moved = replace(tensorflow, package_dir=f"{FOREIGN}/tensorflow", core_dir=f"{FOREIGN}/tensorflow")
    _, result = diagnose_root(replace(facts, tensorflow=Known(moved, "x")))
    assert result.code == "TFD306"


@pytest.mark.parametrize(
    ("version", "installed", "requirement", "cause"),
    [
        ("2.15.1", {"numpy": "2.0.2"}, "'numpy<2'", Cause.NUMPY_ABI),
        ("2.10.1", {"numpy": "2.0.2"}, "'numpy<2'", Cause.NUMPY_ABI),
        (
            "2.4.4",
            {"numpy": "1.24.4"},
            "'numpy<1.20'",
            Cause.NUMPY_ABI,
        ),  # NumPy 1.20 to 1.23 fails after the import
        ("2.6.5", {"numpy": "1.24.4"}, "'numpy<1.24'", Cause.NUMPY_ABI),
        ("2.4.4", {"numpy": "2.0.2"}, "'numpy<1.20'", Cause.NUMPY_ABI),
        ("2.10.1", {"protobuf": "4.25.3"}, "'protobuf<3.21'", Cause.PROTOBUF_CONFLICT),
        ("2.15.1", {"protobuf": "3.19.6"}, "'protobuf>=3.20.3,<5'", Cause.PROTOBUF_CONFLICT),
        ("2.20.0", {"protobuf": "5.28.0"}, "'protobuf>=5.28.3'", Cause.PROTOBUF_CONFLICT),
        ("2.21.0", {"protobuf": "6.31.0"}, "'protobuf>=6.31.1,<8'", Cause.PROTOBUF_CONFLICT),
    ],
)
def test_companion_that_breaks_the_import(version, installed, requirement, cause):
    facts = with_python(healthy(version), installed=installed)
    rule = numpy_abi.RULE if cause is Cause.NUMPY_ABI else protobuf_conflict.RULE
    result = finding(rule, facts)
    assert result.severity is Severity.ERROR
    assert commands(result)[0].endswith(requirement)
    prediction = context(facts).prediction
    assert (prediction.import_ok, prediction.gpu_registered, prediction.cause) == (False, False, cause)


@pytest.mark.parametrize(
    ("version", "installed"),
    [
        ("2.10.1", {"numpy": "1.26.4"}),  # NumPy 1.24 breaks only releases before 2.7
        ("2.7.4", {"numpy": "1.24.4"}),
        ("2.18.1", {"numpy": "2.3.2"}),
        ("2.18.1", {"numpy": "1.26.4"}),
        ("2.15.1", {"protobuf": "6.33.0"}),
        ("2.12.1", {"protobuf": "3.20.3"}),
        ("2.21.0", {"protobuf": "7.36.2"}),
    ],
)
def test_companion_that_works(version, installed):
    facts = with_python(healthy(version), installed=installed)
    assert run(numpy_abi.RULE, facts).kind is OutcomeKind.CLEAN
    assert run(protobuf_conflict.RULE, facts).kind is OutcomeKind.CLEAN
    assert context(facts).prediction.import_ok
