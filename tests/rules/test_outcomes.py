"""What each rule says about every machine, compared with the file expected/CODE.txt.

The machines are the recorded ones and those of `machines.py`. A heading such as `## HOST: driver.cuda.version = None`
in a file is a case: the machine with these fields of its facts changed. Below it are the lines that the outcome
gains and loses. `pytest tests/rules/test_outcomes.py --refresh` writes the files and keeps the cases.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from difflib import unified_diff
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tfdoctor.core.facts
import tfdoctor.core.facts.files
import tfdoctor.core.facts.imports
import tfdoctor.core.facts.python
from recorded import FOLDERS, load_facts
from rules.machines import make_machines
from rules.make_facts import context
from tfdoctor.core.facts import Known
from tfdoctor.core.findings import Observation
from tfdoctor.remedies.target import TargetImage
from tfdoctor.rules import ALL_RULES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdoctor.core.findings import Finding, Outcome, Remedy
    from tfdoctor.rules.base import Rule, RuleContext

EXPECTED = Path(__file__).with_name("expected")
VALUE_NAMES = {
    **vars(tfdoctor.core.facts),
    **vars(tfdoctor.core.facts.files),
    **vars(tfdoctor.core.facts.imports),
    **vars(tfdoctor.core.facts.python),
    "Observation": Observation,
    "TargetImage": TargetImage,
}
"""What the value of a case may name."""


@cache
def load_contexts() -> dict[str, RuleContext]:
    machines = {folder.name: load_facts(folder) for folder in FOLDERS} | make_machines()
    return {name: context(facts) for name, facts in machines.items()}


@pytest.mark.parametrize("rule", ALL_RULES, ids=lambda rule: rule.code)
def test_outcomes(rule: Rule, *, refresh: bool) -> None:
    path = EXPECTED / f"{rule.code}.txt"
    expected = path.read_text(encoding="utf-8") if path.exists() else ""
    cases = [line[3:] for line in expected.splitlines() if line.startswith("## ")]
    lines = [f"{rule.code} {rule.name}", *format_outcomes(rule), *format_cases(rule, cases)]
    text = "\n".join(lines) + "\n"
    if refresh:
        path.write_text(text, encoding="utf-8")
    else:
        assert text == expected


def test_no_expected_file_is_left_over() -> None:
    assert {path.stem for path in EXPECTED.iterdir()} == {rule.code for rule in ALL_RULES}


def change_machine(machine: RuleContext, changes: str) -> RuleContext:
    """Return the machine with fields changed, such as `driver.cuda.devices.0.name = None; machine.root = True`.

    `+=` adds items to a tuple.
    """
    for change in re.split(r"; (?=[\w.-]+ \+?= )", changes):
        path, operator, text = change.split(" ", 2)
        value = eval(text, dict(VALUE_NAMES))  # noqa: S307 - from a file of this folder
        if path in ("image", "observation"):
            machine = replace(machine, **{path: value})
        else:
            facts = change_field(machine.facts, path.split("."), value, adds=operator == "+=")
            machine = replace(context(facts, machine.observation), image=machine.image)
    return machine


def change_field(node: Any, path: list[str], value: Any, *, adds: bool) -> Any:
    if isinstance(node, Known) and (path or adds):
        return replace(node, value=change_field(node.value, path, value, adds=adds))
    if not path:
        return node + value if adds else value
    name, *rest = path
    if isinstance(node, dict):
        return {**node, name: change_field(node.get(name), rest, value, adds=adds)}
    if isinstance(node, tuple):
        items = list(node)
        items[int(name)] = change_field(items[int(name)], rest, value, adds=adds)
        return tuple(items)
    return replace(node, **{name: change_field(getattr(node, name), rest, value, adds=adds)})


def format_outcomes(rule: Rule) -> Iterator[str]:
    names_by_outcome: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, machine in load_contexts().items():
        names_by_outcome[tuple(format_outcome(rule.run(machine)))].append(name)
    usual_outcome = max(names_by_outcome, key=lambda outcome: len(names_by_outcome[outcome]))
    yield from ("", "# all other machines", *usual_outcome)
    for outcome, names in names_by_outcome.items():
        if outcome != usual_outcome:
            yield from ("", *(f"# {name}" for name in names), *outcome)


def format_cases(rule: Rule, cases: list[str]) -> Iterator[str]:
    for case in cases:
        name, _, changes = case.partition(": ")
        machine = load_contexts()[name]
        old, new = (
            list(format_outcome(rule.run(each))) for each in (machine, change_machine(machine, changes))
        )
        difference = list(unified_diff(old, new, n=0, lineterm=""))[2:]
        is_short = new[0].startswith("found") and old[0].startswith("found")
        yield from ("", f"## {case}")
        yield from (line for line in difference if not line.startswith("@@")) if is_short else new


def format_outcome(outcome: Outcome) -> Iterator[str]:
    yield f"{outcome.kind.value}: {outcome.reason}" if outcome.reason else outcome.kind.value
    for finding in outcome.findings:
        yield from format_finding(finding)


def format_finding(finding: Finding) -> Iterator[str]:
    yield f"{finding.severity.name} {finding.cause.value}: {finding.title} [{finding.short_title}]"
    yield f"  {finding.explanation}"
    for evidence in finding.evidence:
        line = "" if evidence.line is None else f":{evidence.line}"
        yield f"  - {evidence.source}{line}: {evidence.text}"
    for remedy in finding.remedies:
        yield from format_remedy(remedy)


def format_remedy(remedy: Remedy) -> Iterator[str]:
    flags = [name for name in ("changes_system", "replaces") if getattr(remedy, name)]
    yield " ".join(["  >", remedy.full_text, *(f"({flag})" for flag in flags)])
    yield from (f"    $ {command}" for command in remedy.commands)
    yield from (f"    {step}" for step in remedy.steps)
