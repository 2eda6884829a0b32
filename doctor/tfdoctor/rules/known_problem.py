"""This release has known problems.

What it means
-------------
Some releases have faults of their own: a library that they do not find, kernels that a card cannot run, a
package that cannot be installed. They are collected, each with how it was seen.

How it is seen
--------------
The installed release, the cards' compute capabilities and this Python are compared with the table
(compat/problems.toml).

What to do
----------
What the table says: mostly another release, or one pinned package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor import advice, versions
from tfdoctor.causes.steps import Install
from tfdoctor.facts import Known
from tfdoctor.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.predict import cudnn_version
from tfdoctor.rules.base import CouldNotCheck, NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import prerequisites

if TYPE_CHECKING:
    from tfdoctor.compat import Problem


def check(context: RuleContext) -> Result:
    build, tensorflow = context.build, context.tensorflow
    if build is None or tensorflow is None or build.version is None or not build.exact:
        return CouldNotCheck("this release is not in the table")
    if build.gpu is False:
        return NotApplicable("this TensorFlow has no GPU code")
    problems = context.compat.problems_of(tensorflow.distribution or "tensorflow", build.version)
    found = [p for p in problems if not p.told_by_rules and applies(context, p)]
    return [
        RULE.finding(
            Cause(problem.cause),
            Severity.WARNING if problem.severity == "error" else Severity.INFO,
            problem.text,
            title=problem.title,
            evidence=[Evidence("compat/problems.toml", f"{problem.id}: {problem.seen}")],
            remedies=[_remedy(context, problem)],
        )
        for problem in found
    ]


def applies(context: RuleContext, problem: Problem) -> bool:
    """Return whether all conditions are known to hold here."""
    for condition, wanted in problem.when.items():
        if condition == "capability":
            cards = [card.capability for card in context.target.host.cards]
            if not any(matches(card, wanted) for card in cards):
                return False
        elif condition == "python":
            if context.python is None or not versions.satisfies(context.python.version, wanted):
                return False
        elif condition == "extra":
            names = {d.name for d in context.python.distributions} if context.python is not None else set()
            if not any(name.startswith("nvidia-cudnn-") for name in names):
                return False
        elif condition == "platform":
            if context.facts.machine.system.lower() != wanted:
                return False
        else:
            return False
    return _is_still_present(context, problem)


def matches(capability: str, condition: str) -> bool:
    """Return whether a capability meets a condition such as "<7.5".

    False if either cannot be read.
    """
    from tfdoctor.compat import capability_matches

    try:
        return capability_matches(capability, condition)
    except ValueError:
        return False


def _is_still_present(context: RuleContext, problem: Problem) -> bool:
    """Return whether the problem is still present.

    Two problems are gone if the right package is installed.
    """
    if problem.id == "cudnn-unpinned" and context.python is not None:
        used = cudnn_version(context.facts)
        wheels = [d.version for d in context.python.distributions if d.name.startswith("nvidia-cudnn-")]
        there = [used.version] if used is not None else wheels
        end = context.compat.cudnn_end("5.0", 9)
        return any(
            versions.is_version(one) and end is not None and versions.is_at_least(one, end) for one in there
        )
    if problem.id == "libcublas10-update-breaks":
        found = context.loader.found if context.loader is not None else ()
        return any(f.name.startswith("libcublas.so.10.2.2") for f in found)
    return isinstance(context.facts.tensorflow, Known)


def _remedy(context: RuleContext, problem: Problem) -> Remedy:
    only = [pin for pin in problem.pins if pin.startswith("nvidia-")]
    if only:
        command = advice.pip_install(context.target, only)
        return Remedy(
            problem.remedy, (command, advice.check_again(context.target)), steps=(Install(tuple(only)),)
        )
    return Remedy(problem.remedy)


RULE = Rule(
    "TFD313",
    "known-problem",
    "This release has known problems",
    tuple(Cause),
    check,
    row="known problems",
    needs=(prerequisites.require_tensorflow,),
)
