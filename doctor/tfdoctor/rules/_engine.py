"""What rules about container engines share. Not a rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.advice.engine import silence
from tfdoctor.facts import value_of
from tfdoctor.rules import _driver
from tfdoctor.rules.base import CouldNotCheck, NotApplicable, unanswered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.advice.engine import Trouble
    from tfdoctor.facts.containers import ContainerFacts
    from tfdoctor.findings import Finding
    from tfdoctor.rules.base import Context, Rule


def applicable(context: Context) -> ContainerFacts | NotApplicable | CouldNotCheck:
    """The facts, where containers on this machine could have its GPUs; else why there is nothing to judge."""
    facts = context.facts
    if facts.machine.container:
        return NotApplicable("this is a container: the engine stands outside of it")
    refused = unanswered(facts.containers, "container engines")
    if refused is not None:
        return refused
    if not _driver.shown_devices(context):
        return NotApplicable("the driver shows no GPU that a container could be given")
    containers = value_of(facts.containers)
    if containers is None or (not containers.tools and silence(containers) is None):
        return NotApplicable("there is no container engine")
    return containers


def findings(rule: Rule, troubles: Sequence[Trouble]) -> list[Finding]:
    """The troubles as findings of a rule."""
    return [
        rule.finding(
            t.cause, t.severity, t.explanation, title=t.title, evidence=t.evidence, remedies=t.remedies
        )
        for t in troubles
    ]
