"""TFD903, not-known."""

from __future__ import annotations

from dataclasses import replace

from rules import of_hosts
from rules.make_facts import SAW_ONE, finding, healthy, run
from tfdoctor.facts import Unknown
from tfdoctor.findings import OutcomeKind, Severity
from tfdoctor.rules import not_known


def test_not_known():
    facts = replace(healthy(), loader=Unknown("only glibc's loader is modelled"))
    one = finding(not_known.RULE, facts)
    assert "glibc" in one.explanation
    assert run(not_known.RULE, facts, SAW_ONE).kind is OutcomeKind.NOT_APPLICABLE
    assert run(not_known.RULE, healthy()).kind is OutcomeKind.CLEAN


def test_where_time_was_lacking_more_of_it_comes_first():
    slow = replace(healthy(), loader=Unknown("looking at the libraries did not finish in time", "the loader"))
    other = replace(healthy(), loader=Unknown("the loader crashed", "the loader"))
    firsts = [finding(not_known.RULE, facts).remedies[0].commands[0] for facts in (slow, other)]
    again = "tfdoctor check --python /env/bin/python"
    assert firsts == [f"{again} --timeout 60", f"{again} --deep"]


def test_a_slow_start_is_no_fault() -> None:
    told = of_hosts.finding("python-starts-slowly", "TFD903")
    assert of_hosts.commands(told).splitlines()[:2] == [
        "/srv/tf/bin/python -c pass",
        "tfdoctor check --timeout 60",
    ]
    assert told.severity is Severity.WARNING
