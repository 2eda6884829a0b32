"""An environment variable is misspelt.

What it means
-------------
The name of a variable differs by one or two letters from the name of one that CUDA, TensorFlow or the loader
reads. The misspelt variable has no effect, and there is no message about that.

How it is seen
--------------
The names in the environment are compared with the known names.

What to do
----------
Set the correct name and unset the misspelt one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.causes.steps import RenameVariable, UnsetVariable
from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.rules.base import Result, Rule, RuleContext

if TYPE_CHECKING:
    from tfdoctor.core.causes.steps import Step


def check(context: RuleContext) -> Result:
    variables = context.facts.environment.variables
    findings = []
    for misspelt_name, correct_name in context.facts.environment.misspelt:
        both_set = correct_name in variables
        text = (
            f"{correct_name} itself is set too, so {misspelt_name} can go."
            if both_set
            else f"If you meant {correct_name}, give it the value, and unset the other."
        )
        commands = () if both_set else (f'export {correct_name}="${misspelt_name}"',)
        findings.append(
            RULE.make_finding(
                Cause.INCONCLUSIVE,
                Severity.WARNING,
                f"The variable {misspelt_name} is set. Nothing reads a variable of that name; {correct_name} is probably "
                "meant.",
                title=f"{misspelt_name} looks like a misspelt {correct_name}",
                evidence=[Evidence("the environment", misspelt_name)],
                remedies=[
                    Remedy(
                        text,
                        (*commands, f"unset {misspelt_name}"),
                        steps=_make_steps(misspelt_name, correct_name, both_set=both_set),
                    )
                ],
            )
        )
    return findings


def _make_steps(misspelt_name: str, correct_name: str, *, both_set: bool) -> tuple[Step, ...]:
    """Return the steps of the fix.

    A variable is not renamed to CUDA_VISIBLE_DEVICES, which may hide GPUs: the user has to decide that.
    """
    if both_set:
        return (UnsetVariable(misspelt_name),)
    return () if correct_name == "CUDA_VISIBLE_DEVICES" else (RenameVariable(misspelt_name, correct_name),)


RULE = Rule(
    "TFD602",
    "misspelt-variable",
    "An environment variable is misspelt",
    (Cause.INCONCLUSIVE,),
    check,
    short_title="a misspelt variable",
)
