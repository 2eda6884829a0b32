"""A package does not have the version that TensorFlow or its dependencies require; the import still works.

What it means
-------------
Packages state which versions of others they were made for. pip keeps to that when it installs TensorFlow, and breaks
it when something else is installed later. Often all works; what TensorFlow does with that package later was not tried.

How it is seen
--------------
Requires-Dist of TensorFlow and of everything that it requires, with their markers for this Python, compared with
what is installed; what is unlike what is known to work was imported by a child.

What to do
----------
Nothing, as long as your program works. Otherwise install the version that is asked for.
"""

from __future__ import annotations

from tfdoctor import advice
from tfdoctor.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.predict.rehearsal import unmet
from tfdoctor.rules.base import CouldNotCheck, NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import prerequisites


def check(context: RuleContext) -> Result:
    if context.python is None:
        return CouldNotCheck("which distributions are installed is not known")
    if context.prediction.import_ok is False:
        return NotApplicable("import tensorflow fails, which other checks explain")
    if context.tensorflow is not None and context.tensorflow.conda_build:
        return NotApplicable("conda's packages have conda's own requirements")
    left = [one for one in unmet(context.python) if one.have is not None and one.package != "keras"]
    if not left:
        return ()
    wanted = [one.requirement for one in left]
    names = ", ".join(f"{one.package} {one.have}" for one in left)
    return [
        RULE.finding(
            Cause.PACKAGE_CONFLICT,
            Severity.INFO,
            f"{names}: another version is asked for. The import of TensorFlow works with it.",
            title=f"{left[0].by} asks for {left[0].requirement}, and {left[0].have} is installed"
            + (f" (and {len(left) - 1} more like it)" if len(left) > 1 else ""),
            evidence=[
                Evidence(one.by, f"asks for {one.requirement}; {one.package} {one.have} is there")
                for one in left
            ],
            remedies=[
                Remedy(
                    "If your program fails with it, install the required version.",
                    (
                        advice.pip_install(context.target, list(dict.fromkeys(wanted))),
                        advice.check_again(context.target),
                    ),
                )
            ],
        )
    ]


RULE = Rule(
    "TFD322",
    "requirement-not-met",
    "A package does not have the version that TensorFlow requires",
    (Cause.PACKAGE_CONFLICT,),
    check,
    row="a package has a wrong version",
    needs=(prerequisites.require_tensorflow,),
)
