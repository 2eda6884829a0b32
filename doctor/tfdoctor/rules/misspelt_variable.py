"""An environment variable is misspelt.

What it means
-------------
A name that is one or two letters off a variable which CUDA, TensorFlow or the loader reads is set. Nothing reads
it: what it was meant to do does not happen, without any message.

How it is seen
--------------
The names of the environment are compared with the known ones.

What to do
----------
Set the right name and unset the wrong one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.causes.steps import Rename, Unset
from tfdoctor.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.rules.base import Result, Rule, RuleContext

if TYPE_CHECKING:
    from tfdoctor.causes.steps import Step


def check(context: RuleContext) -> Result:
    variables = context.facts.environment.variables
    findings = []
    for wrong, meant in context.facts.environment.misspelt:
        both = meant in variables
        text = (
            f"{meant} itself is set too, so {wrong} can go."
            if both
            else f"If {meant} is meant, give it the value, and unset the other."
        )
        commands = () if both else (f'export {meant}="${wrong}"',)
        findings.append(
            RULE.finding(
                Cause.INCONCLUSIVE,
                Severity.WARNING,
                f"The variable {wrong} is set. Nothing reads a variable of that name; {meant} is probably "
                "meant.",
                title=f"{wrong} looks like a misspelt {meant}",
                evidence=[Evidence("the environment", wrong)],
                remedies=[
                    Remedy(
                        text,
                        (*commands, f"unset {wrong}"),
                        steps=_steps(wrong, meant, both=both),
                    )
                ],
            )
        )
    return findings


def _steps(wrong: str, meant: str, *, both: bool) -> tuple[Step, ...]:
    """Return the steps of the fix; none for a variable that hides cards.

    A person must decide whether the cards are to be hidden.
    """
    if both:
        return (Unset(wrong),)
    return () if meant == "CUDA_VISIBLE_DEVICES" else (Rename(wrong, meant),)


RULE = Rule(
    "TFD602",
    "misspelt-variable",
    "An environment variable is misspelt",
    (Cause.INCONCLUSIVE,),
    check,
    row="a misspelt variable",
)
