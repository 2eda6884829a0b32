"""Could not determine whether TensorFlow will register a GPU.

What it means
-------------
A required fact could not be determined: the Python did not answer in time, the driver hung, a file could
not be read, or tfdoctor has no model of this system's loader. tfdoctor reports this instead of guessing.

How it is seen
--------------
TensorFlow must pass several stages to register a GPU, and the result of one of them is not known.

What to do
----------
Run TensorFlow itself with --deep, or give the probes more time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.facts import Absent, Unknown
from tfdoctor.core.facts.python import UnusablePython
from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.remedies.pip import format_check_command, quote
from tfdoctor.rules.base import NotApplicable, Result, Rule, RuleContext

if TYPE_CHECKING:
    from collections.abc import Sequence


def check(context: RuleContext) -> Result:
    prediction = context.prediction
    if isinstance(context.facts.tensorflow, Absent):
        return NotApplicable("TensorFlow is not installed")
    if prediction.gpu_registered is not None:
        return ()
    if isinstance(context.facts.python, UnusablePython):
        return NotApplicable("the Python does not work, which TFD317 explains")
    reason = prediction.reasons[-1] if prediction.reasons else "Something on the way could not be looked at."
    if context.observation is not None and context.observation.gpu_registered is not None:
        return NotApplicable("TensorFlow was run, which answers this")
    return [
        RULE.make_finding(
            Cause.INCONCLUSIVE,
            Severity.WARNING,
            reason,
            title="Could not determine whether TensorFlow will register a GPU",
            evidence=[Evidence("the prediction", stage_reason) for stage_reason in prediction.reasons],
            remedies=[*_make_slow_start_remedies(context), *_list_remedies(context, prediction.reasons)],
        )
    ]


def _list_remedies(context: RuleContext, reasons: Sequence[str]) -> list[Remedy]:
    """Return the remedies to run TensorFlow and to allow more time. After a timeout, the latter comes first."""
    check_command = format_check_command(context.target)
    run_remedy = Remedy("Run TensorFlow itself to find out.", (f"{check_command} --deep",))
    if any("in time" in reason for reason in reasons):  # "did not end in time" and the like
        return [
            Remedy("The machine was slow or busy: allow more time.", (f"{check_command} --timeout 60",)),
            run_remedy,
        ]
    return [
        run_remedy,
        Remedy("Where something took too long, allow more time.", (f"{check_command} --timeout 60",)),
    ]


def _make_slow_start_remedies(context: RuleContext) -> list[Remedy]:
    """Return the remedy for a Python that did not respond; an empty list for any other reason.

    The remedy starts the Python twice: files on a network or a slow disk are read faster the second time.
    """
    fact, choice = context.facts.python, context.facts.choice
    if not isinstance(fact, Unknown) or choice is None:
        return []
    command = f"{quote(choice.path)} -c pass"
    return [
        Remedy(
            "The Python starts slowly. Start it once by hand, so that its files are in memory, and look again.",
            (command, f"{format_check_command(context.target)} --timeout 60"),
        )
    ]


RULE = Rule(
    "TFD903",
    "not-known",
    "Could not determine whether a GPU will be registered",
    (Cause.INCONCLUSIVE,),
    check,
)
