"""TFD403, no-nvidia-runtime."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rules.engine_facts import NOTHING, docker, engines
from rules.make_facts import COMPAT, healthy
from tfdoctor.facts import Known, Unknown
from tfdoctor.findings import OutcomeKind
from tfdoctor.report.diagnose import BESIDE, diagnose


def outcomes(facts: Any) -> dict[str, OutcomeKind]:
    report = diagnose(facts, COMPAT)
    return {outcome.code: outcome.kind for outcome in report.outcomes if outcome.code in BESIDE}


def test_nothing_is_judged_where_containers_could_have_no_gpu() -> None:
    facts = replace(healthy(), containers=Known(engines(), "x"))
    assert outcomes(facts)["TFD403"] is OutcomeKind.FOUND
    inside = replace(facts, machine=replace(facts.machine, container="docker"))
    blind = replace(facts, driver=replace(facts.driver, cuda=Unknown("hangs"), cuda_unhidden=None))
    bare = replace(facts, containers=Known(engines(tools=(), docker=NOTHING), "x"))
    absent = replace(facts, containers=NOTHING)
    for nothing in (inside, blind, bare, absent):
        assert set(outcomes(nothing).values()) == {OutcomeKind.NOT_APPLICABLE}
    unknown = replace(facts, containers=Unknown("it crashed"))
    assert set(outcomes(unknown).values()) == {OutcomeKind.COULD_NOT_CHECK}


def test_docker_desktop_under_wsl_has_a_toolkit_of_its_own() -> None:
    facts = replace(healthy(), containers=Known(engines(docker=docker(desktop=True)), "x"))
    assert outcomes(facts)["TFD403"] is OutcomeKind.FOUND
    wsl = replace(facts, machine=replace(facts.machine, wsl=2))
    assert outcomes(wsl)["TFD403"] is OutcomeKind.NOT_APPLICABLE
