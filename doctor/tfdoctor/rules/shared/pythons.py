"""What rules about the choice of the Python share: pure questions to the facts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor import advice
from tfdoctor.findings import Evidence, Remedy

if TYPE_CHECKING:
    from tfdoctor.rules.base import RuleContext


def describe_python_choice(context: RuleContext) -> str:
    """Return how the examined Python was found: "the active virtual environment", "python3 on PATH"."""
    choice = context.facts.choice
    if choice is not None and choice.why:
        return choice.why
    return context.python.requested if context.python is not None else "as asked"


def evidence_of_other_pythons(context: RuleContext) -> list[Evidence]:
    """List the other available Pythons that have a TensorFlow."""
    choice = context.facts.choice
    return [
        Evidence(
            other.path, f"has TensorFlow{f' {other.tensorflow}' if other.tensorflow else ''} ({other.how})"
        )
        for other in (choice.others if choice is not None else ())
    ]


def examine_others(context: RuleContext) -> list[Remedy]:
    """Return the remedy that examines another Python: the known ones, else in general."""
    choice = context.facts.choice
    known = choice.others if choice is not None else ()
    if not known:
        return [Remedy("Examine the Python that your program runs with.", ("tfdoctor check --python PATH",))]
    return [
        Remedy(
            "Examine the Python that your program runs with"
            + (": this one has a TensorFlow." if len(known) == 1 else ": each of these has a TensorFlow."),
            tuple(f"tfdoctor check --python {advice.quote(other.path)}" for other in known[:5]),
        )
    ]
