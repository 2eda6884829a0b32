"""TFD903, not-known."""

from __future__ import annotations

from dataclasses import replace

from rules import of_hosts
from rules.make_facts import SAW_ONE, finding, healthy, run
from tfdoctor.core.facts import Unknown
from tfdoctor.core.findings import OutcomeKind, Severity
from tfdoctor.rules import not_known


def test_unknown_fact_is_reported():
    facts = replace(healthy(), loader=Unknown("only glibc's loader is modelled"))
    result = finding(not_known.RULE, facts)
    assert "glibc" in result.explanation
    assert run(not_known.RULE, facts, SAW_ONE).kind is OutcomeKind.NOT_APPLICABLE
    assert run(not_known.RULE, healthy()).kind is OutcomeKind.CLEAN


def test_longer_timeout_is_suggested_after_a_timeout():
    timeout = replace(
        healthy(), loader=Unknown("looking at the libraries did not finish in time", "the loader")
    )
    crash = replace(healthy(), loader=Unknown("the loader crashed", "the loader"))
    first_commands = [finding(not_known.RULE, facts).remedies[0].commands[0] for facts in (timeout, crash)]
    check = "tfdoctor check --python /env/bin/python"
    assert first_commands == [f"{check} --timeout 60", f"{check} --deep"]


def test_slow_start_of_python_is_a_warning() -> None:
    result = of_hosts.finding("python-starts-slowly", "TFD903")
    assert of_hosts.commands(result).splitlines()[:2] == [
        "/srv/tf/bin/python -c pass",
        "tfdoctor check --timeout 60",
    ]
    assert result.severity is Severity.WARNING
