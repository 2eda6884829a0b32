"""Container engines: what can keep GPUs from containers, which is never the root cause of a finding on the host."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rules.engine_facts import (
    engines,
)
from rules.make_facts import COMPAT, healthy
from tfdoctor.core.facts import Absent, Known, Unknown
from tfdoctor.core.facts.containers import (
    UnreachableEngine,
)
from tfdoctor.core.findings import Cause, OutcomeKind, Severity
from tfdoctor.diagnosis.collect import run_probes
from tfdoctor.diagnosis.report import CONTAINER_RULE_CODES, diagnose
from tfdoctor.rules import ALL_RULES
from tfdoctor.rules.shared import engines as shared
from tfdoctor.system import RecordedSystem

HOSTS = Path(__file__).parents[1] / "hosts"


def test_engine_rule_is_never_the_root_cause() -> None:
    """This holds even if the prediction has the cause of an engine rule."""
    assert {
        rule.code for rule in ALL_RULES if rule.check.__module__ in _list_engine_modules()
    } == CONTAINER_RULE_CODES
    facts = replace(
        healthy(), containers=Known(engines(docker=Known(UnreachableEngine("timeout", "3 s"), "x")), "x")
    )
    for cause in (Cause.INCONCLUSIVE, Cause.NO_NVIDIA_RUNTIME, Cause.CONTAINER_NVML_LOST):
        report = diagnose(facts, COMPAT)
        findings = [replace(finding, cause=cause) for finding in report.findings]
        assert findings
        prediction = replace(report.prediction, gpu_registered=False, cause=cause)
        from tfdoctor.diagnosis.report import _find_root

        assert (
            _find_root([finding for finding in findings if finding.code in CONTAINER_RULE_CODES], prediction)
            is None
        )


def _list_engine_modules() -> set[str]:
    """Return the modules of the rules that use `shared.engines`."""
    import sys

    return {
        rule.check.__module__
        for rule in ALL_RULES
        if getattr(sys.modules[rule.check.__module__], "engines", None) is shared
    }


@pytest.mark.parametrize(
    "folder", sorted(p.parent for p in HOSTS.glob("*/host.json") if p.parent.name.startswith(("docker-", "podman-"))),
    ids=lambda path: path.name,
)  # fmt: skip
def test_no_rule_crashes_on_unknown_parts(folder: Path) -> None:
    facts = run_probes(RecordedSystem(folder), COMPAT)
    assert isinstance(facts.containers, Known)
    for fact in (Unknown("not looked at"), Absent("somewhere")):
        for name in ("docker", "daemon_config", "toolkit"):
            part = replace(facts.containers.value, **{name: fact})
            report = diagnose(replace(facts, containers=Known(part, "x")), COMPAT)
            assert not [outcome for outcome in report.outcomes if outcome.kind is OutcomeKind.CRASHED]
            assert all(
                finding.severity < Severity.ERROR
                for finding in report.findings
                if finding.code in CONTAINER_RULE_CODES
            )
