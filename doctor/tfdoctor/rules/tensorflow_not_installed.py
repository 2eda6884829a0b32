"""TensorFlow is not installed in this Python.

What it means
-------------
There is no `tensorflow` package on the path of the examined Python. It may be installed in another Python:
a virtual environment that is not active, conda, the system's Python.

How it is seen
--------------
The examined Python lists its path and its distributions; nothing is imported. Other Pythons that have a
TensorFlow (an environment in the working folder, Jupyter's kernels, conda's and pyenv's) are named; they
are examined only if you name one with `--python`.

What to do
----------
Examine the Python that runs your program, or install a TensorFlow with its CUDA libraries into this one.
"""

from __future__ import annotations

from tfdoctor.core import versions
from tfdoctor.core.facts import Absent, Unknown
from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.prediction.build import find_distributions_without_package, find_unreadable_package
from tfdoctor.remedies.releases import find_best_release, make_recommend_remedy, make_release_remedy
from tfdoctor.rules.base import CouldNotCheck, NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.no_matching_wheel import explain_missing_wheel
from tfdoctor.rules.shared.pythons import (
    describe_python_choice,
    list_other_python_evidence,
    make_other_python_remedies,
)


def check(context: RuleContext) -> Result:
    fact, python = context.facts.tensorflow, context.python
    if isinstance(fact, Unknown):
        return CouldNotCheck(f"TensorFlow: {fact.why}")
    if not isinstance(fact, Absent):
        return ()
    if python is None:
        return CouldNotCheck("this Python did not answer")
    if find_distributions_without_package(context.facts):
        return NotApplicable("its distribution is registered and its files are gone: TFD311 reports it")
    if find_unreadable_package(context.facts) is not None:
        return NotApplicable("it may be there: this user may not look, which TFD319 explains")
    no_wheel_reason = explain_missing_wheel(context)
    choice = context.facts.choice
    lost_environments = choice.lost if choice is not None else ()
    others_note = (
        "Others that have one are named below."
        if choice is not None and choice.others
        else "No other Python with TensorFlow was found in the usual places."
    )
    return [
        RULE.make_finding(
            Cause.TENSORFLOW_MISSING,
            Severity.WARNING if no_wheel_reason or lost_environments else Severity.ERROR,
            f"{python.executable} (Python {python.version}; {describe_python_choice(context)}) has no "
            f"TensorFlow. {others_note} If your "
            "program runs with another Python, name it with --python.",
            evidence=[Evidence(fact.source, fact.why), *list_other_python_evidence(context)],
            remedies=_list_remedies(
                context, has_no_wheel=bool(no_wheel_reason), is_chosen_python=not lost_environments
            ),
        )
    ]


def _list_remedies(context: RuleContext, *, has_no_wheel: bool, is_chosen_python: bool) -> list[Remedy]:
    remedies = make_other_python_remedies(context)
    # if the user's own environment is lost, this Python is only its replacement: install nothing into it
    if not is_chosen_python:
        return remedies
    if has_no_wheel or context.facts.machine.system != "Linux":
        return remedies
    release = find_best_release(context.target)
    if release is None:
        remedies.append(make_recommend_remedy())
    else:
        python = versions.major_minor(context.python.version) if context.python is not None else ""
        remedies.append(
            make_release_remedy(
                context.target,
                release,
                f"Install TensorFlow {release.version} with its CUDA libraries, which suits this Python"
                f" {python}, and the cards and driver as far as they are known.",
            )
        )
    return remedies


RULE = Rule(
    "TFD301",
    "tensorflow-not-installed",
    "TensorFlow is not installed in this Python",
    (Cause.TENSORFLOW_MISSING,),
    check,
    short_title="not installed",
)
