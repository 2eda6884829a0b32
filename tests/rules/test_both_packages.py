"""TFD304, both-packages."""

from __future__ import annotations

from dataclasses import replace

from rules.make_facts import (
    SITE,
    commands,
    context,
    cpu_only,
    finding,
    healthy,
    run,
    with_python,
)
from tfdoctor.core.facts import Distribution
from tfdoctor.core.findings import Cause, OutcomeKind, Severity
from tfdoctor.rules import (
    both_packages,
    cpu_only_build,
)


def test_two_packages_with_the_same_files_are_an_info():
    facts = with_python(healthy("2.10.1"), installed={"tensorflow-gpu": "2.10.1"})
    result = finding(both_packages.RULE, facts)
    assert result.severity is Severity.INFO
    assert "pip uninstall -y tensorflow tensorflow-gpu" in commands(result)[0]


def test_two_packages_with_different_builds_are_an_error():
    facts = with_python(cpu_only("2.18.1"), installed={"tensorflow-cpu": "2.18.1"})
    result = finding(both_packages.RULE, facts)
    assert result.severity is Severity.ERROR
    assert context(facts).prediction.cause is Cause.BOTH_PACKAGES
    assert run(cpu_only_build.RULE, facts).kind is OutcomeKind.NOT_APPLICABLE
    mixed = with_python(healthy(), installed={"tf-nightly": "2.22.0.dev20260101"})
    assert finding(both_packages.RULE, mixed).severity is Severity.WARNING


def test_leftover_of_pip_is_removed():
    result = finding(both_packages.RULE, with_python(healthy(), installed={"~ensorflow": "2.10.1"}))
    assert result.severity is Severity.INFO
    assert commands(result) == [f"rm -rf {SITE}/~*ensorflow*"]


def test_package_that_tensorflow_requires_is_no_conflict():
    facts = healthy("2.10.1", python="3.10.2")
    python = facts.python.value
    intel = Distribution("tensorflow-intel", "2.10.1", python.distributions[0].location, "pip")
    facts = with_python(facts, distributions=(*python.distributions, intel))
    assert run(both_packages.RULE, facts).kind is OutcomeKind.CLEAN
    cpu_package = replace(intel, name="tensorflow-cpu")
    facts = with_python(facts, distributions=(*python.distributions, cpu_package))
    assert run(both_packages.RULE, facts).kind is OutcomeKind.FOUND
