"""Keras, imported with a stand-in for TensorFlow: when it is done, and what the result means."""

from __future__ import annotations

from dataclasses import replace

import pytest

from prediction.rehearsals import list_keras_modules, make_facts, with_rehearsal
from rules.make_facts import COMPAT, SITE, context, finding, with_environment
from tfdoctor.core.facts.imports import FileDifference, ImportResult, RehearsalReason
from tfdoctor.core.findings import Cause, Severity
from tfdoctor.prediction.failures import list_import_failures
from tfdoctor.rules import import_fails, keras_fails

KERAS = ("keras.src.optimizers", "keras._tf_keras.keras")
MISSING_FILE = (FileDifference("keras/src/layers/core/dense.py", "missing"),)


def test_keras_is_rehearsed_only_if_something_is_odd():
    """It takes most of the time of a rehearsal, and packages newer than the tested ones are common."""
    assert list_keras_modules(make_facts()) == ()
    assert list_keras_modules(make_facts({"optree": "99.0", "rich": "99.0"})) == ()
    assert (
        list_keras_modules(make_facts({"numpy": "1.0.1"})) == ()
    )  # TensorFlow imports NumPy too, so its own modules are enough
    assert list_keras_modules(make_facts({"optree": "0.0.1"})) == KERAS
    assert list_keras_modules(make_facts(keras={"differs": MISSING_FILE})) == KERAS
    assert (
        list_keras_modules(make_facts(namex={"differs": (FileDifference("namex/__init__.py", "changed"),)}))
        == ()
    )


def test_keras_modules_depend_on_the_release():
    legacy = with_environment(
        make_facts({"tf-keras": "0.1"}, **{"tf-keras": {"differs": MISSING_FILE}}), TF_USE_LEGACY_KERAS="1"
    )
    assert list_keras_modules(legacy) == ("tf_keras.src.optimizers", "tf_keras.api._v2.keras")
    damaged = {"keras": {"differs": MISSING_FILE}}
    assert list_keras_modules(make_facts(version="2.12.1", **damaged)) == ("keras.api._v2.keras",)
    assert list_keras_modules(make_facts(version="2.13.1", **damaged))[:2] == (
        "keras.optimizers",
        "keras.src.optimizers",
    )
    assert list_keras_modules(make_facts(version="2.15.1", **damaged)) == (
        "keras.src.optimizers",
        "keras.api._v2.keras",
    )


ODD_KERAS = (RehearsalReason("keras", "files of keras are not as it was installed with"),)


@pytest.mark.parametrize(
    ("kind", "where", "stops"),
    [
        ("SyntaxError", KERAS[0], True),
        ("ImportError", KERAS[0], False),
        ("AttributeError", KERAS[0], False),
        ("SyntaxError", KERAS[1], False),  # only the first use of tf.keras loads this module
    ],
)
def test_kind_of_keras_failure_decides_what_fails(kind: str, where: str, *, stops: bool):
    error = ImportResult(
        where,
        "…",
        kind,
        import_error=kind == "ImportError",
        attribute_error=kind == "AttributeError",
        frames=(f"{SITE}/keras/src/layers/core/dense.py",),
    )
    answers = [error if name == where else ImportResult(name) for name in KERAS]
    facts = with_rehearsal(make_facts(keras={"differs": MISSING_FILE}), keras=answers, oddities=ODD_KERAS)
    assert context(facts).prediction.import_ok is not stops
    rule = import_fails.RULE if stops else keras_fails.RULE
    problem = finding(rule, facts)
    assert (problem.cause, problem.severity) == (
        Cause.DAMAGED_FILE,
        Severity.ERROR if stops else Severity.WARNING,
    )
    assert "dense.py is not there" in problem.title


def test_limit_of_the_stand_in_is_no_failure():
    by_message = ImportResult(KERAS[0], "expected a class, got <rehearse_keras.Anything object>", "TypeError")
    by_frames = replace(by_message, error="…", frames=(f"{SITE}/keras/x.py", "/somewhere/rehearse_keras.py"))
    for answer in (by_message, by_frames):
        facts = with_rehearsal(
            make_facts(keras={"differs": MISSING_FILE}), keras=[answer], oddities=ODD_KERAS
        )
        assert list_import_failures(facts, COMPAT) == ()
    unknown = replace(
        by_frames, frames=(f"{SITE}/keras/x.py",)
    )  # this Keras was never tested, and nothing else is odd
    assert (
        list_import_failures(
            with_rehearsal(make_facts({"keras": "99"}), keras=[unknown], oddities=ODD_KERAS), COMPAT
        )
        == ()
    )


@pytest.mark.parametrize(
    "answer",
    [
        ImportResult(
            KERAS[0],
            "No module named 'tensorflow.python.trackable'",
            "ModuleNotFoundError",
            import_error=True,
            not_found="tensorflow.python.trackable",
            frames=(f"{SITE}/keras/x.py",),
        ),
        ImportResult(
            KERAS[0],
            "cannot import name 'dtensor' from 'tensorflow.compat.v2.experimental' (unknown location)",
            "ImportError",
            import_error=True,
            frames=(f"{SITE}/keras/x.py",),
        ),
        ImportResult(  # the package has another name than the module
            KERAS[0],
            "No module named 'tree'",
            "ModuleNotFoundError",
            import_error=True,
            not_found="tree",
            frames=(f"{SITE}/keras/x.py",),
        ),
    ],
)
def test_keras_that_needs_a_missing_module_is_the_cause(answer: ImportResult):
    (failure,) = list_import_failures(
        with_rehearsal(make_facts({"keras": "99"}), keras=[answer], oddities=ODD_KERAS), COMPAT
    )
    assert (failure.package, failure.is_missing) == ("keras", False)
