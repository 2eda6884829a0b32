"""The recorded machines: each folder of tests/hosts gives exactly its expected codes, cause and prediction."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import re
import sys
from typing import TYPE_CHECKING, Any

import pytest

from compat.every_row import for_each
from recorded import FOLDERS, HOSTS, load_facts, load_report
from tfdoctor.compat import Compat
from tfdoctor.core.facts import Absent, Unknown
from tfdoctor.core.findings import OutcomeKind
from tfdoctor.diagnosis.report import diagnose
from tfdoctor.rules import ALL_RULES

if TYPE_CHECKING:
    from pathlib import Path

    from tfdoctor.core.findings import Report

HEALTHY = ("healthy-one-gpu", "healthy-two-gpus", "healthy-tf221", "wsl2-healthy", "mig-instance")
HOST_RULE_PREFIXES = ("TFD1", "TFD4", "TFD6", "TFD7")
"""Prefixes of rules that are tried on the recorded machines; the others have their own tests."""
FACTS = ("pci", "kernel_module", "modules", "nodes", "smi", "cuda", "cuda_unhidden", "nvml")
COMMAND_NAMES = {
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


def list_codes(result: Report) -> list[str]:
    return sorted({finding.code for finding in result.findings})


def list_crashes(result: Report) -> list[str]:
    return [
        f"{outcome.code}: {outcome.reason}"
        for outcome in result.outcomes
        if outcome.kind is OutcomeKind.CRASHED
    ]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_host_gives_the_expected_result(folder: Path) -> None:
    expected: dict[str, Any] = json.loads((folder / "expect.json").read_text(encoding="utf-8"))
    result = load_report(folder)
    cause = result.verdict.cause
    assert not list_crashes(result)
    assert {
        "codes": list_codes(result),
        "cause": cause.value if cause is not None else None,
        "gpu_registered": result.prediction.gpu_registered,
    } == {key: expected[key] for key in ("codes", "cause", "gpu_registered")}


def test_generated_hosts_are_fresh() -> None:
    spec = importlib.util.spec_from_file_location("make_hosts", HOSTS / "make.py")
    assert spec is not None
    assert spec.loader is not None
    make = importlib.util.module_from_spec(spec)
    sys.modules["make_hosts"] = make  # dataclasses look up their module
    spec.loader.exec_module(make)
    contents: dict[str, str] = make.rendered()
    assert len(contents) >= 100
    stale = [
        name
        for name, text in contents.items()
        if not (HOSTS / name).is_file() or (HOSTS / name).read_text(encoding="utf-8") != text
    ]
    assert not stale, "run: python tests/hosts/make.py"


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_machine_has_no_warning(name: str) -> None:
    assert not [finding for finding in load_report(HOSTS / name).findings if finding.severity > 0]


@for_each(FOLDERS, lambda path: path.name)
def test_finding_has_a_cause_of_its_rule(folder: Path) -> None:
    causes = {rule.code: rule.causes for rule in ALL_RULES}
    for finding in load_report(folder).findings:
        assert finding.cause in causes[finding.code], finding.code
        assert finding.title
        if not finding.code.startswith(HOST_RULE_PREFIXES):
            continue
        assert finding.explanation.endswith((".", "!", "?", ")")), finding.explanation


@for_each(FOLDERS, lambda path: path.name)
def test_remedies_name_existing_commands(folder: Path) -> None:
    for finding in load_report(folder).findings:
        for remedy in finding.remedies:
            assert remedy.text.endswith((".", ":", ")")), remedy.text
            for command in remedy.commands:
                commands_named = re.findall(r"\btfdoctor (\w+)", command)
                assert set(commands_named) <= COMMAND_NAMES, command


@pytest.mark.few(8)
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_no_rule_crashes_on_missing_facts(folder: Path) -> None:
    facts = load_facts(folder)
    for missing in (Unknown("not looked at"), Absent("somewhere")):
        for name in FACTS:
            driver = dataclasses.replace(facts.driver, **{name: missing})
            assert not list_crashes(diagnose(dataclasses.replace(facts, driver=driver), Compat.load())), name
        for name in ("python", "tensorflow", "loader"):
            assert not list_crashes(diagnose(dataclasses.replace(facts, **{name: missing}), Compat.load())), (
                name
            )
        blank = dataclasses.replace(facts.driver, **dict.fromkeys(FACTS, missing))
        assert not list_crashes(
            diagnose(dataclasses.replace(facts, driver=blank, loader=missing), Compat.load())
        )


ALLOWED_UNKNOWN = {"TFD116": "sudo dmesg"}
"""Rules that a healthy machine may be unable to check, and what the reason must then mention."""


@for_each(FOLDERS, lambda path: path.name)
def test_unknown_on_a_healthy_machine_names_a_remedy(folder: Path) -> None:
    result = load_report(folder)
    if not result.verdict.gpu_usable:
        return
    for outcome in result.outcomes:
        if outcome.kind is OutcomeKind.COULD_NOT_CHECK:
            assert ALLOWED_UNKNOWN.get(outcome.code, "\0") in outcome.reason, outcome
