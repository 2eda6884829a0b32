"""Helpers for the rules about the choice of the examined Python. They only read the facts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.findings import Evidence, Remedy
from tfdoctor.remedies.pip import quote

if TYPE_CHECKING:
    from tfdoctor.rules.base import RuleContext


def describe_python_choice(context: RuleContext) -> str:
    """Return how the examined Python was chosen, such as "the active virtual environment"."""
    choice = context.facts.choice
    if choice is not None and choice.why:
        return choice.why
    return context.python.requested if context.python is not None else "as asked"


def list_other_python_evidence(context: RuleContext) -> list[Evidence]:
    """Return evidence of the other Pythons that have a TensorFlow."""
    choice = context.facts.choice
    return [
        Evidence(
            other.path, f"has TensorFlow{f' {other.tensorflow}' if other.tensorflow else ''} ({other.how})"
        )
        for other in (choice.others if choice is not None else ())
    ]


def make_other_python_remedies(context: RuleContext) -> list[Remedy]:
    """Return the remedy to examine the other known Pythons. If there are none, the user names one."""
    choice = context.facts.choice
    others = choice.others if choice is not None else ()
    if not others:
        return [Remedy("Examine the Python that your program runs with.", ("tfdoctor check --python PATH",))]
    return [
        Remedy(
            "Examine the Python that your program runs with"
            + (": this one has a TensorFlow." if len(others) == 1 else ": each of these has a TensorFlow."),
            tuple(f"tfdoctor check --python {quote(other.path)}" for other in others[:5]),
        )
    ]
