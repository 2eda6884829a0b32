"""TFD304, both-packages."""

from __future__ import annotations

from dataclasses import replace

from rules.make_facts import (
    healthy,
    run,
    with_python,
)
from tfdoctor.core.facts import Distribution
from tfdoctor.core.findings import OutcomeKind
from tfdoctor.rules import (
    both_packages,
)


def test_package_that_tensorflow_requires_is_no_conflict():
    facts = healthy("2.10.1", python="3.10.2")
    python = facts.python.value
    intel = Distribution("tensorflow-intel", "2.10.1", python.distributions[0].location, "pip")
    facts = with_python(facts, distributions=(*python.distributions, intel))
    assert run(both_packages.RULE, facts).kind is OutcomeKind.CLEAN
    cpu_package = replace(intel, name="tensorflow-cpu")
    facts = with_python(facts, distributions=(*python.distributions, cpu_package))
    assert run(both_packages.RULE, facts).kind is OutcomeKind.FOUND
