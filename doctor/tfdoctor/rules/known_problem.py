"""Something is known to be wrong with this release.

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
from tfdoctor.facts import Known
from tfdoctor.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.predict import cudnn_version
from tfdoctor.rules.base import Context, CouldNotCheck, NotApplicable, Result, Rule, unanswered
from tfdoctor.steps import Install

if TYPE_CHECKING:
    from tfdoctor.compat import Problem

OTHERS = frozenset(
    {
        "runpath-without-cusolver",
        "runpath-almost-empty",
        "no-runpath-for-pip-cuda",
        "cusolver-10-only",
        "missing-library-not-named",
        "nvml-required",
        "and-cuda-uninstallable",
        "and-cuda-not-on-python-311",
        "tensorflow-gpu-removed",
        "cpu-only-patch-releases",
        "windows-without-gpu",
        "protobuf-too-new",
        "numpy-too-new-1-20",
        "numpy-too-new-1-24",
        "numpy-2",
        "manylinux1-tag-is-false",
        "only-capability-37",
        "no-code-for-capability-50",
        "ptx-sm90a-on-blackwell",
        "cudnn-unpinned",
        "impossible-jit-message",
    }
)
"""What other rules tell, from the machine itself and not from the table."""


def check(context: Context) -> Result:
    refused = unanswered(context.facts.tensorflow, "TensorFlow")
    if refused is not None:
        return refused
    build, tensorflow = context.build, context.tensorflow
    if build is None or tensorflow is None or build.version is None or not build.exact:
        return CouldNotCheck("this release is not in the table")
    if build.gpu is False:
        return NotApplicable("this TensorFlow has no GPU code")
    problems = context.compat.problems_of(tensorflow.distribution or "tensorflow", build.version)
    found = [p for p in problems if p.id not in OTHERS and applies(context, p)]
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


def applies(context: Context, problem: Problem) -> bool:
    """Whether all conditions are known to hold here."""
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
    return _still_wrong(context, problem)


def matches(capability: str, condition: str) -> bool:
    """A capability against "<7.5"; False where either cannot be read."""
    from tfdoctor.compat import capability_matches

    try:
        return capability_matches(capability, condition)
    except ValueError:
        return False


def _still_wrong(context: Context, problem: Problem) -> bool:
    """Two problems are gone where the right package is installed."""
    if problem.id == "cudnn-unpinned" and context.python is not None:
        used = cudnn_version(context.facts)
        wheels = [d.version for d in context.python.distributions if d.name.startswith("nvidia-cudnn-")]
        there = [used.version] if used is not None else wheels
        return any(versions.is_version(one) and versions.at_least(one, "9.11") for one in there)
    if problem.id == "libcublas10-update-breaks":
        found = context.loader.found if context.loader is not None else ()
        return any(f.name.startswith("libcublas.so.10.2.2") for f in found)
    return isinstance(context.facts.tensorflow, Known)


def _remedy(context: Context, problem: Problem) -> Remedy:
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
    "Something is known to be wrong with this release",
    tuple(Cause),
    check,
)
