"""TFD403, no-nvidia-runtime."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rules.engine_facts import NOTHING, docker, engines
from rules.make_facts import COMPAT, healthy
from tfdoctor.core.facts import Known, Unknown
from tfdoctor.core.findings import OutcomeKind
from tfdoctor.diagnosis.report import CONTAINER_RULE_CODES, diagnose


def list_outcomes(facts: Any) -> dict[str, OutcomeKind]:
    report = diagnose(facts, COMPAT)
    return {outcome.code: outcome.kind for outcome in report.outcomes if outcome.code in CONTAINER_RULE_CODES}


def test_check_is_skipped_if_containers_cannot_have_gpus() -> None:
    facts = replace(healthy(), containers=Known(engines(), "x"))
    assert list_outcomes(facts)["TFD403"] is OutcomeKind.FOUND
    inside = replace(facts, machine=replace(facts.machine, container="docker"))
    no_driver = replace(facts, driver=replace(facts.driver, cuda=Unknown("hangs"), cuda_unhidden=None))
    no_engine = replace(facts, containers=Known(engines(tools=(), docker=NOTHING), "x"))
    absent = replace(facts, containers=NOTHING)
    for variant in (inside, no_driver, no_engine, absent):
        assert set(list_outcomes(variant).values()) == {OutcomeKind.NOT_APPLICABLE}
    unknown = replace(facts, containers=Unknown("it crashed"))
    assert set(list_outcomes(unknown).values()) == {OutcomeKind.COULD_NOT_CHECK}


def test_check_of_docker_desktop_under_wsl_is_skipped() -> None:
    facts = replace(healthy(), containers=Known(engines(docker=docker(desktop=True)), "x"))
    assert list_outcomes(facts)["TFD403"] is OutcomeKind.FOUND
    wsl = replace(facts, machine=replace(facts.machine, wsl=2))
    assert list_outcomes(wsl)["TFD403"] is OutcomeKind.NOT_APPLICABLE
