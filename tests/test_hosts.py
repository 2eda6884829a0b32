"""Recorded machines: each folder of tests/hosts must give exactly the codes, cause and prediction it says."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import re
import sys
from typing import TYPE_CHECKING, Any

import pytest

from recorded import FOLDERS, HOSTS, list_events, report
from tfdoctor.compat import Compat
from tfdoctor.facts import Absent, Unknown
from tfdoctor.findings import OutcomeKind
from tfdoctor.report.diagnose import diagnose
from tfdoctor.rules import ALL_RULES

if TYPE_CHECKING:
    from pathlib import Path

    from tfdoctor.findings import Report

HEALTHY = ("healthy-one-gpu", "healthy-two-gpus", "healthy-tf221", "wsl2-healthy", "mig-instance")
NEED_A_HOST = ("TFD1", "TFD4", "TFD6", "TFD7")
"""Rules whose code begins so are tried on machines; the others have tests of their own."""
NEED_TENSORFLOW_TO_RUN = ("TFD115",)
"""Of these, the rules about what `--deep` saw: no recording has it."""
FACTS = ("pci", "kernel_module", "modules", "nodes", "smi", "cuda", "cuda_unhidden", "nvml")
COMMANDS_THERE_ARE = {
    "build",
    "check",
    "diagnose",
    "explain",
    "fix",
    "install",
    "matrix",
    "recommend",
    "run",
    "verify",
}


def codes(found: Report) -> list[str]:
    return sorted({finding.code for finding in found.findings})


def crashes(found: Report) -> list[str]:
    return [f"{o.code}: {o.why}" for o in found.outcomes if o.kind is OutcomeKind.CRASHED]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_host_gives_what_it_says(folder: Path) -> None:
    expected: dict[str, Any] = json.loads((folder / "expect.json").read_text(encoding="utf-8"))
    found = report(folder)
    cause = found.verdict.cause
    assert not crashes(found)
    assert {
        "codes": codes(found),
        "cause": cause.value if cause is not None else None,
        "gpu_registered": found.prediction.gpu_registered,
    } == {key: expected[key] for key in ("codes", "cause", "gpu_registered")}


def test_generated_hosts_are_as_make_makes_them() -> None:
    spec = importlib.util.spec_from_file_location("make_hosts", HOSTS / "make.py")
    assert spec is not None
    assert spec.loader is not None
    make = importlib.util.module_from_spec(spec)
    sys.modules["make_hosts"] = make  # dataclasses look their module up
    spec.loader.exec_module(make)
    rendered: dict[str, str] = make.rendered()
    assert len(rendered) >= 100
    stale = [
        name
        for name, text in rendered.items()
        if not (HOSTS / name).is_file() or (HOSTS / name).read_text(encoding="utf-8") != text
    ]
    assert not stale, "run: python tests/hosts/make.py"


@pytest.mark.parametrize(
    "rule",
    [r for r in ALL_RULES if r.code.startswith(NEED_A_HOST) and r.code not in NEED_TENSORFLOW_TO_RUN],
    ids=lambda r: r.code,
)
def test_rule_fires_somewhere_and_is_quiet_on_healthy_machines(rule: Any) -> None:
    assert any(rule.code in codes(report(folder)) for folder in FOLDERS)
    for name in HEALTHY:
        loud = [f for f in report(HOSTS / name).findings if f.code == rule.code and f.severity > 0]
        assert not loud, name


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_finding_is_of_a_cause_of_its_rule(folder: Path) -> None:
    causes = {rule.code: rule.causes for rule in ALL_RULES}
    for finding in report(folder).findings:
        assert finding.cause in causes[finding.code], finding.code
        assert finding.title
        if not finding.code.startswith(NEED_A_HOST):
            continue
        assert finding.explanation.endswith((".", "!", "?", ")")), finding.explanation


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_remedies_name_only_commands_there_are(folder: Path) -> None:
    for finding in report(folder).findings:
        for remedy in finding.remedies:
            assert remedy.text.endswith((".", ":", ")")), remedy.text
            for command in remedy.commands:
                named = re.findall(r"\btfdoctor (\w+)", command)
                assert set(named) <= COMMANDS_THERE_ARE, command


@pytest.mark.few(25)
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_no_rule_crashes_where_facts_are_missing(folder: Path) -> None:
    facts = list_events(folder)
    for nothing in (Unknown("not looked at"), Absent("somewhere")):
        for name in FACTS:
            driver = dataclasses.replace(facts.driver, **{name: nothing})
            assert not crashes(diagnose(dataclasses.replace(facts, driver=driver), Compat.load())), name
        for name in ("python", "tensorflow", "loader"):
            assert not crashes(diagnose(dataclasses.replace(facts, **{name: nothing}), Compat.load())), name
        blank = dataclasses.replace(facts.driver, **dict.fromkeys(FACTS, nothing))
        assert not crashes(diagnose(dataclasses.replace(facts, driver=blank, loader=nothing), Compat.load()))


LOG_NOT_FOR_THIS_USER = {"TFD116": "sudo dmesg"}
"""What a healthy machine may leave unknown → what its reason must say to do."""


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_a_healthy_machine_leaves_nothing_unknown_without_a_way_to_know_it(folder: Path) -> None:
    found = report(folder)
    if not found.verdict.gpu_usable:
        return
    for outcome in found.outcomes:
        if outcome.kind is OutcomeKind.COULD_NOT_CHECK:
            assert LOG_NOT_FOR_THIS_USER.get(outcome.code, "\0") in outcome.why, outcome
