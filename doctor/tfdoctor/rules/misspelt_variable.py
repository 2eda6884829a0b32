"""An environment variable is misspelt.

What it means
-------------
A name that is one or two letters off a variable which CUDA, TensorFlow or the loader reads is set. Nobody
reads it: what it was meant to do does not happen, and nothing says so.

How it is seen
--------------
The names of the environment are compared with the known ones.

What to do
----------
Set the right name and unset the wrong one.
"""

from __future__ import annotations

from tfdoctor.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.rules.base import Context, Result, Rule
from tfdoctor.steps import Rename, Unset


def check(context: Context) -> Result:
    variables = context.facts.environment.variables
    findings = []
    for wrong, meant in context.facts.environment.misspelt:
        both = meant in variables
        text = (
            f"{meant} itself is set too, so that {wrong} can go."
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
                        steps=(Unset(wrong) if both else Rename(wrong, meant),),
                    )
                ],
            )
        )
    return findings


RULE = Rule(
    "TFD602", "misspelt-variable", "An environment variable is misspelt", (Cause.INCONCLUSIVE,), check
)
