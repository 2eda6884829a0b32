"""An environment variable is misspelt.

What it means
-------------
A variable is set whose name differs by one or two letters from one that CUDA, TensorFlow or the loader
reads. No program reads it, so it has no effect, and there is no message about that.

How it is seen
--------------
The names in the environment are compared with the known names.

What to do
----------
Set the correct name and unset the misspelt one.
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
    for wrong, correct in context.facts.environment.misspelt:
        both_set = correct in variables
        text = (
            f"{correct} itself is set too, so {wrong} can go."
            if both_set
            else f"If {correct} is meant, give it the value, and unset the other."
        )
        commands = () if both_set else (f'export {correct}="${wrong}"',)
        findings.append(
            RULE.finding(
                Cause.INCONCLUSIVE,
                Severity.WARNING,
                f"The variable {wrong} is set. Nothing reads a variable of that name; {correct} is probably "
                "meant.",
                title=f"{wrong} looks like a misspelt {correct}",
                evidence=[Evidence("the environment", wrong)],
                remedies=[
                    Remedy(
                        text,
                        (*commands, f"unset {wrong}"),
                        steps=_make_steps(wrong, correct, both_set=both_set),
                    )
                ],
            )
        )
    return findings


def _make_steps(wrong: str, correct: str, *, both_set: bool) -> tuple[Step, ...]:
    """Return the steps of the fix; empty for a variable that hides GPUs.

    The user must decide whether the GPUs are to be hidden.
    """
    if both_set:
        return (Unset(wrong),)
    return () if correct == "CUDA_VISIBLE_DEVICES" else (Rename(wrong, correct),)


RULE = Rule(
    "TFD602",
    "misspelt-variable",
    "An environment variable is misspelt",
    (Cause.INCONCLUSIVE,),
    check,
    short_title="a misspelt variable",
)
