"""What rules about container engines share: whether there is something to judge, and how it is told.

What stands between an engine and the GPUs is judged in `advice.engine` and `advice.engine_state`: commands that build
and run images ask there, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.advice.engine import silence
from tfdoctor.facts import value_of
from tfdoctor.rules.base import CouldNotCheck, NotApplicable, outcome_if_unknown, require_value
from tfdoctor.rules.shared import drivers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.advice.engine import EngineTrouble
    from tfdoctor.facts.containers import ContainerFacts
    from tfdoctor.findings import Finding
    from tfdoctor.rules.base import Rule, RuleContext


def require_engine(context: RuleContext) -> NotApplicable | CouldNotCheck | None:
    """Require an engine whose containers could have this machine's GPUs."""
    facts = context.facts
    if facts.machine.container:
        return NotApplicable("this is a container: the engine stands outside it")
    refused = outcome_if_unknown(facts.containers, "container engines")
    if refused is not None:
        return refused
    if not drivers.list_shown_devices(context):
        return NotApplicable("the driver shows no GPU that a container could be given")
    known = value_of(facts.containers)
    if known is None or (not known.tools and silence(known) is None):
        return NotApplicable("there is no container engine")
    return None


def get_container_facts(context: RuleContext) -> ContainerFacts:
    """Return the container facts, for a rule that needs `require_engine`."""
    return require_value(value_of(context.facts.containers))


def convert_problems(rule: Rule, troubles: Sequence[EngineTrouble]) -> list[Finding]:
    """Convert the troubles to findings of a rule."""
    return [
        rule.finding(
            t.cause, t.severity, t.explanation, title=t.title, evidence=t.evidence, remedies=t.remedies
        )
        for t in troubles
    ]
