"""Which package is to blame for what a rehearsal met."""

from __future__ import annotations

from predict.rehearsals import VERSION, make_facts, rehearse
from rules.make_facts import COMPAT, SITE, run, with_python
from tfdoctor.causes.steps import Install
from tfdoctor.facts import value_of
from tfdoctor.facts.imports import FileDifference, Oddity, Rehearsed, Shadow
from tfdoctor.predict.failures import failures
from tfdoctor.rules import import_fails


def test_a_namespace_without_any_of_its_parts_is_the_package_that_was_wanted():
    """There is a package called google, and it has nothing to do with this."""
    error = Rehearsed(
        "google.protobuf",
        "No module named 'google'",
        "ModuleNotFoundError",
        import_error=True,
        not_found="google",
    )
    facts = rehearse(make_facts({"protobuf": None}), error, oddities=[Oddity("protobuf", "…")])
    (one,) = failures(facts, COMPAT)
    assert (one.package, one.missing) == ("protobuf", True)


def test_what_fails_by_a_hidden_package_is_not_a_matter_of_its_version():
    shadow = Shadow("numpy", "/home/user/code/numpy.py", SITE)
    errors = [
        Rehearsed(
            "numpy",
            "module 'numpy' has no attribute 'integer'",
            "AttributeError",
            attribute_error=True,
            file=shadow.taken,
        ),
        Rehearsed("ml_dtypes", "numpy._core.umath failed to import", "ImportError", import_error=True),
    ]
    facts = rehearse(with_python(make_facts(), shadows=(shadow,)), *errors, oddities=[Oddity("numpy", "…")])
    assert [one.shadow for one in failures(facts, COMPAT)] == [shadow.taken]


def test_what_the_table_knows_is_told_beside_what_was_rehearsed():
    error = Rehearsed("packaging.version", "…", "SyntaxError", frames=(f"{SITE}/packaging/version.py",))
    facts = rehearse(make_facts({"namex": "0.0.3"}), error, oddities=[Oddity("packaging", "…")])
    outcome = run(import_fails.RULE, facts)
    assert [one.title.rpartition(" ")[0] for one in outcome.findings] == [
        "import tensorflow fails with packaging",
        f"TensorFlow {VERSION} cannot be imported with namex",
    ]


def test_what_is_damaged_is_installed_again_and_what_does_not_fit_in_a_version_that_does() -> None:
    damaged = {"packaging": {"differs": (FileDifference("packaging/version.py", "empty"),)}}
    errors = [
        Rehearsed("packaging.version", "…", "SyntaxError", frames=(f"{SITE}/packaging/version.py",)),
        Rehearsed("wrapt", "…", "TypeError", frames=(f"{SITE}/wrapt/__init__.py",)),
    ]
    odd = [Oddity("packaging", "…"), Oddity("wrapt", "…")]
    facts = rehearse(make_facts({"wrapt": "1.10.11"}, **damaged), *errors, oddities=odd)
    (one,) = run(import_fails.RULE, facts).findings
    assert "damaged" not in one.title
    (step,) = one.remedies[0].steps
    assert isinstance(step, Install)
    again, other = step.requirements
    assert again == f"packaging=={value_of(facts.python).distribution('packaging').version}"
    assert other.startswith("wrapt==")
    assert other != "wrapt==1.10.11"
