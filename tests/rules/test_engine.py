"""Container engines: what could keep GPUs from containers, and that it never explains this Python's trouble."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rules.engine_facts import (
    engines,
)
from rules.make_facts import COMPAT, healthy
from tfdoctor.examine.collect import survey
from tfdoctor.facts import Absent, Known, Unknown
from tfdoctor.facts.containers import (
    EngineSilence,
)
from tfdoctor.findings import Cause, OutcomeKind, Severity
from tfdoctor.report.diagnose import BESIDE, diagnose
from tfdoctor.rules import ALL_RULES
from tfdoctor.rules.shared import engines as shared
from tfdoctor.system import RecordedSystem

HOSTS = Path(__file__).parents[1] / "hosts"


def test_it_is_never_the_root_cause() -> None:
    """Not even where the prediction has no better word than one of theirs."""
    assert {rule.code for rule in ALL_RULES if rule.check.__module__ in _modules()} == BESIDE
    facts = replace(
        healthy(), containers=Known(engines(docker=Known(EngineSilence("timeout", "3 s"), "x")), "x")
    )
    for cause in (Cause.INCONCLUSIVE, Cause.NO_NVIDIA_RUNTIME, Cause.CONTAINER_NVML_LOST):
        found = diagnose(facts, COMPAT)
        findings = [replace(f, cause=cause) for f in found.findings]
        assert findings
        prediction = replace(found.prediction, gpu_registered=False, cause=cause)
        from tfdoctor.report.diagnose import _find_root

        assert _find_root([f for f in findings if f.code in BESIDE], prediction) is None


def _modules() -> set[str]:
    """Those that judge through `shared.engines`."""
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
def test_no_rule_crashes_where_parts_are_unknown(folder: Path) -> None:
    facts = survey(RecordedSystem(folder), COMPAT)
    assert isinstance(facts.containers, Known)
    for nothing in (Unknown("not looked at"), Absent("somewhere")):
        for name in ("docker", "daemon_config", "toolkit"):
            part = replace(facts.containers.value, **{name: nothing})
            report = diagnose(replace(facts, containers=Known(part, "x")), COMPAT)
            assert not [o for o in report.outcomes if o.kind is OutcomeKind.CRASHED]
            assert all(f.severity < Severity.ERROR for f in report.findings if f.code in BESIDE)
