"""Helpers for the rules about container engines.

`remedies.engine` and `remedies.engine_state` find the problems, because the commands that build and run images need
them as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.facts import value_of
from tfdoctor.remedies.engine import get_unreachable_engine
from tfdoctor.rules.base import CouldNotCheck, NotApplicable, get_required_value, require_known_fact
from tfdoctor.rules.shared import drivers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.core.facts.containers import ContainerFacts
    from tfdoctor.core.findings import Finding
    from tfdoctor.remedies.engine import EngineProblem
    from tfdoctor.rules.base import Rule, RuleContext


def require_container_engine(context: RuleContext) -> NotApplicable | CouldNotCheck | None:
    """Require a machine with GPUs and a container engine that could give them to containers."""
    facts = context.facts
    if facts.machine.container:
        return NotApplicable("this is a container: the engine stands outside it")
    unmet_result = require_known_fact(facts.containers, "container engines")
    if unmet_result is not None:
        return unmet_result
    if not drivers.list_shown_devices(context):
        return NotApplicable("the driver shows no GPU that a container could be given")
    containers = value_of(facts.containers)
    if containers is None or (not containers.tools and get_unreachable_engine(containers) is None):
        return NotApplicable("there is no container engine")
    return None


def get_container_facts(context: RuleContext) -> ContainerFacts:
    """Return the container facts, for a rule whose `needs` contain `require_container_engine`."""
    return get_required_value(value_of(context.facts.containers))


def make_problem_findings(rule: Rule, problems: Sequence[EngineProblem]) -> list[Finding]:
    """Return the findings of a rule, one for each of these engine problems."""
    return [
        rule.make_finding(
            problem.cause,
            problem.severity,
            problem.explanation,
            title=problem.title,
            evidence=problem.evidence,
            remedies=problem.remedies,
        )
        for problem in problems
    ]
