"""TensorFlow is not installed in this Python.

What it means
-------------
There is no `tensorflow` package where the examined Python looks. It may be installed in another one: a
virtual environment that is not active, conda, the system's Python.

How it is seen
--------------
The Python that is examined lists its path and its distributions; nothing is imported. Other Pythons on the
machine are not searched: name one with `--python`.

What to do
----------
Examine the Python that runs your program, or install a TensorFlow with its CUDA libraries into this one.
"""

from __future__ import annotations

from tfdoctor import versions
from tfdoctor.facts import Absent, Unknown
from tfdoctor.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.predict import registered_without_files
from tfdoctor.rules import advice
from tfdoctor.rules.base import Context, CouldNotCheck, NotApplicable, Result, Rule
from tfdoctor.rules.no_matching_wheel import reason


def check(context: Context) -> Result:
    fact, python = context.facts.tensorflow, context.python
    if isinstance(fact, Unknown):
        return CouldNotCheck(f"TensorFlow: {fact.why}")
    if not isinstance(fact, Absent):
        return ()
    if python is None:
        return CouldNotCheck("this Python did not answer")
    if registered_without_files(context.facts):
        return NotApplicable("its distribution is registered and its files are gone: TFD311 tells of it")
    no_wheel = reason(context)
    return [
        RULE.finding(
            Cause.INCONCLUSIVE,
            Severity.WARNING if no_wheel else Severity.ERROR,
            f"{python.executable} (Python {python.version}) has no TensorFlow. Other Pythons on this "
            "machine were "
            "not searched: if your program runs with another one, name it with --python.",
            evidence=[Evidence(fact.source, fact.why)],
            remedies=_remedies(context, no_wheel=bool(no_wheel)),
        )
    ]


def _remedies(context: Context, *, no_wheel: bool) -> list[Remedy]:
    remedies = [
        Remedy(
            "Examine the Python that your program runs with.",
            ("tfdoctor check --python PATH",),
        )
    ]
    release = None if no_wheel else advice.best_release(context)
    if release is not None and context.facts.machine.system == "Linux":
        python = versions.major_minor(context.python.version) if context.python is not None else ""
        remedies.append(
            advice.install_release(
                context,
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
    (Cause.INCONCLUSIVE,),
    check,
)
