"""The package that causes a failure of a rehearsed import."""

from __future__ import annotations

from prediction.rehearsals import VERSION, make_facts, with_rehearsal
from rules.make_facts import COMPAT, SITE, run, with_python
from tfdoctor.core.causes.steps import Install
from tfdoctor.core.facts import value_of
from tfdoctor.core.facts.imports import FileDifference, ImportResult, RehearsalReason, Shadow
from tfdoctor.prediction.failures import list_import_failures
from tfdoctor.rules import import_fails


def test_missing_namespace_means_the_required_package():
    """PyPI has an unrelated package called google."""
    error = ImportResult(
        "google.protobuf",
        "No module named 'google'",
        "ModuleNotFoundError",
        import_error=True,
        not_found="google",
    )
    facts = with_rehearsal(make_facts({"protobuf": None}), error, oddities=[RehearsalReason("protobuf", "…")])
    (failure,) = list_import_failures(facts, COMPAT)
    assert (failure.package, failure.is_missing) == ("protobuf", True)


def test_shadowed_package_explains_later_failures():
    shadow = Shadow("numpy", "/home/user/code/numpy.py", SITE)
    errors = [
        ImportResult(
            "numpy",
            "module 'numpy' has no attribute 'integer'",
            "AttributeError",
            attribute_error=True,
            file=shadow.taken,
        ),
        ImportResult("ml_dtypes", "numpy._core.umath failed to import", "ImportError", import_error=True),
    ]
    facts = with_rehearsal(
        with_python(make_facts(), shadows=(shadow,)), *errors, oddities=[RehearsalReason("numpy", "…")]
    )
    assert [failure.shadowing_file for failure in list_import_failures(facts, COMPAT)] == [shadow.taken]


def test_known_conflict_is_reported_beside_the_rehearsal():
    error = ImportResult("packaging.version", "…", "SyntaxError", frames=(f"{SITE}/packaging/version.py",))
    facts = with_rehearsal(
        make_facts({"namex": "0.0.3"}), error, oddities=[RehearsalReason("packaging", "…")]
    )
    outcome = run(import_fails.RULE, facts)
    assert [item.title.rpartition(" ")[0] for item in outcome.findings] == [
        "import tensorflow fails with packaging",
        f"TensorFlow {VERSION} cannot be imported with namex",
    ]


def test_damaged_and_unsuitable_packages_are_reinstalled() -> None:
    damaged = {"packaging": {"differs": (FileDifference("packaging/version.py", "empty"),)}}
    errors = [
        ImportResult("packaging.version", "…", "SyntaxError", frames=(f"{SITE}/packaging/version.py",)),
        ImportResult("wrapt", "…", "TypeError", frames=(f"{SITE}/wrapt/__init__.py",)),
    ]
    oddities = [RehearsalReason("packaging", "…"), RehearsalReason("wrapt", "…")]
    facts = with_rehearsal(make_facts({"wrapt": "1.10.11"}, **damaged), *errors, oddities=oddities)
    (item,) = run(import_fails.RULE, facts).findings
    assert "damaged" not in item.title
    (step,) = item.remedies[0].steps
    assert isinstance(step, Install)
    reinstalled, other = step.requirements
    assert reinstalled == f"packaging=={value_of(facts.python).find_distribution('packaging').version}"
    assert other.startswith("wrapt==")
    assert other != "wrapt==1.10.11"
