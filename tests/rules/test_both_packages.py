"""TFD304, both-packages."""

from __future__ import annotations

from dataclasses import replace

from rules.make_facts import (
    SITE,
    commands,
    context,
    cpu,
    finding,
    healthy,
    run,
    with_python,
)
from tfdoctor.facts import Distribution
from tfdoctor.findings import Cause, OutcomeKind, Severity
from tfdoctor.rules import (
    both_packages,
    cpu_only_build,
)


def test_two_packages_of_the_same_files_are_only_worth_knowing():
    facts = with_python(healthy("2.10.1"), installed={"tensorflow-gpu": "2.10.1"})
    one = finding(both_packages.RULE, facts)
    assert one.severity is Severity.INFO
    assert "pip uninstall -y tensorflow tensorflow-gpu" in commands(one)[0]


def test_two_packages_of_different_builds():
    facts = with_python(cpu("2.18.1"), installed={"tensorflow-cpu": "2.18.1"})
    one = finding(both_packages.RULE, facts)
    assert one.severity is Severity.ERROR
    assert context(facts).prediction.cause is Cause.BOTH_PACKAGES
    assert run(cpu_only_build.RULE, facts).kind is OutcomeKind.NOT_APPLICABLE
    mixed = with_python(healthy(), installed={"tf-nightly": "2.22.0.dev20260101"})
    assert finding(both_packages.RULE, mixed).severity is Severity.WARNING


def test_a_leftover_of_pip():
    one = finding(both_packages.RULE, with_python(healthy(), installed={"~ensorflow": "2.10.1"}))
    assert one.severity is Severity.INFO
    assert commands(one) == [f"rm -rf {SITE}/~*ensorflow*"]


def test_what_tensorflow_itself_requires_is_no_second_tensorflow():
    facts = healthy("2.10.1", python="3.10.2")
    python = facts.python.value
    brought = Distribution("tensorflow-intel", "2.10.1", python.distributions[0].location, "pip")
    facts = with_python(facts, distributions=(*python.distributions, brought))
    assert run(both_packages.RULE, facts).kind is OutcomeKind.CLEAN
    other = replace(brought, name="tensorflow-cpu")
    facts = with_python(facts, distributions=(*python.distributions, other))
    assert run(both_packages.RULE, facts).kind is OutcomeKind.FOUND
