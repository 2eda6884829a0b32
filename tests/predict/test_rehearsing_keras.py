"""Keras, imported with something in the place of TensorFlow: when, and what is made of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from predict.rehearsals import keras_asked, make_facts, rehearse
from rules.make_facts import COMPAT, SITE, context, finding, with_environment
from tfdoctor.facts.imports import FileDifference, Oddity, Rehearsed
from tfdoctor.findings import Cause, Severity
from tfdoctor.predict.failures import failures
from tfdoctor.rules import import_fails, keras_fails

KERAS = ("keras.src.optimizers", "keras._tf_keras.keras")
GONE = (FileDifference("keras/src/layers/core/dense.py", "missing"),)


def test_keras_is_imported_only_where_something_speaks_against_it():
    """It is most of a rehearsal's time, and packages newer than those that were tried are usual."""
    assert keras_asked(make_facts()) == ()
    assert keras_asked(make_facts({"optree": "99.0", "rich": "99.0"})) == ()
    assert (
        keras_asked(make_facts({"numpy": "1.0.1"})) == ()
    )  # TensorFlow takes it, too: its modules say enough
    assert keras_asked(make_facts({"optree": "0.0.1"})) == KERAS
    assert keras_asked(make_facts(keras={"differs": GONE})) == KERAS
    assert keras_asked(make_facts(namex={"differs": (FileDifference("namex/__init__.py", "changed"),)})) == ()


def test_keras_is_imported_as_this_release_does():
    legacy = with_environment(
        make_facts({"tf-keras": "0.1"}, **{"tf-keras": {"differs": GONE}}), TF_USE_LEGACY_KERAS="1"
    )
    assert keras_asked(legacy) == ("tf_keras.src.optimizers", "tf_keras.api._v2.keras")
    damaged = {"keras": {"differs": GONE}}
    assert keras_asked(make_facts(version="2.12.1", **damaged)) == ("keras.api._v2.keras",)
    assert keras_asked(make_facts(version="2.13.1", **damaged))[:2] == (
        "keras.optimizers",
        "keras.src.optimizers",
    )
    assert keras_asked(make_facts(version="2.15.1", **damaged)) == (
        "keras.src.optimizers",
        "keras.api._v2.keras",
    )


ODD_KERAS = (Oddity("keras", "files of keras are not as it was installed with"),)


@pytest.mark.parametrize(
    ("kind", "where", "stops"),
    [
        ("SyntaxError", KERAS[0], True),
        ("ImportError", KERAS[0], False),
        ("AttributeError", KERAS[0], False),
        ("SyntaxError", KERAS[1], False),  # only the first use of tf.keras loads that
    ],
)
def test_what_keras_fails_with_stops_the_import_or_tf_keras_alone(kind: str, where: str, *, stops: bool):
    error = Rehearsed(
        where,
        "…",
        kind,
        import_error=kind == "ImportError",
        attribute_error=kind == "AttributeError",
        frames=(f"{SITE}/keras/src/layers/core/dense.py",),
    )
    answers = [error if name == where else Rehearsed(name) for name in KERAS]
    facts = rehearse(make_facts(keras={"differs": GONE}), keras=answers, oddities=ODD_KERAS)
    assert context(facts).prediction.import_ok is not stops
    rule = import_fails.RULE if stops else keras_fails.RULE
    one = finding(rule, facts)
    assert (one.cause, one.severity) == (Cause.DAMAGED_FILE, Severity.ERROR if stops else Severity.WARNING)
    assert "dense.py is not there" in one.title


def test_what_keras_lacks_of_the_stand_in_is_no_failure():
    one = Rehearsed(KERAS[0], "expected a class, got <rehearse_keras.Anything object>", "TypeError")
    other = replace(one, error="…", frames=(f"{SITE}/keras/x.py", "/somewhere/rehearse_keras.py"))
    for answer in (one, other):
        facts = rehearse(make_facts(keras={"differs": GONE}), keras=[answer], oddities=ODD_KERAS)
        assert failures(facts, COMPAT) == ()
    unknown = replace(other, frames=(f"{SITE}/keras/x.py",))  # a Keras nobody tried, and nothing else is odd
    assert failures(rehearse(make_facts({"keras": "99"}), keras=[unknown], oddities=ODD_KERAS), COMPAT) == ()


@pytest.mark.parametrize(
    "answer",
    [
        Rehearsed(
            KERAS[0],
            "No module named 'tensorflow.python.trackable'",
            "ModuleNotFoundError",
            import_error=True,
            not_found="tensorflow.python.trackable",
            frames=(f"{SITE}/keras/x.py",),
        ),
        Rehearsed(
            KERAS[0],
            "cannot import name 'dtensor' from 'tensorflow.compat.v2.experimental' (unknown location)",
            "ImportError",
            import_error=True,
            frames=(f"{SITE}/keras/x.py",),
        ),
        Rehearsed(  # of a package whose name is another than the module's
            KERAS[0],
            "No module named 'tree'",
            "ModuleNotFoundError",
            import_error=True,
            not_found="tree",
            frames=(f"{SITE}/keras/x.py",),
        ),
    ],
)
def test_a_keras_that_asks_for_what_is_not_there_is_to_blame(answer: Rehearsed):
    (failure,) = failures(rehearse(make_facts({"keras": "99"}), keras=[answer], oddities=ODD_KERAS), COMPAT)
    assert (failure.package, failure.missing) == ("keras", False)
