"""The system's glibc is older than this TensorFlow needs.

What it means
-------------
A wheel is compiled for a system and runs on newer ones, not on older. `import tensorflow` then stops with "version
`GLIBC_2.27' not found". glibc is a core part of the system and cannot be replaced on its own.

How it is seen
--------------
The symbol versions that TensorFlow's objects ask for are compared with those that the system's libc
defines, as the loader does it.

What to do
----------
Use a release for older systems, a newer system, or a container.
"""

from __future__ import annotations

from tfdoctor import advice
from tfdoctor.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.rules.base import CouldNotCheck, Result, Rule, RuleContext, outcome_if_unknown
from tfdoctor.rules.shared import prerequisites
from tfdoctor.text import lazy_pattern

WANTED = lazy_pattern(r"version `GLIBC_([\d.]+)'")


def check(context: RuleContext) -> Result:
    if context.loader is None:
        refused = outcome_if_unknown(context.facts.loader, "the loader")
        return CouldNotCheck(refused.why if refused is not None else "the loader could not be followed")
    failed = [(r, m[1]) for r in context.loader.import_needs if (m := WANTED.search(r.error))]
    if not failed:
        return ()
    resolution, wanted = failed[0]
    python, build = context.python, context.build
    have = python.glibc if python is not None and python.glibc else "an older one"
    remedies = advice.suggest_release(
        context.target, "Install {release}, the best that this system and this Python can load."
    )
    remedies.append(Remedy(f"Run it in a container, or on a system, with glibc {wanted} or newer."))
    return [
        RULE.finding(
            Cause.GLIBC_TOO_OLD,
            Severity.ERROR,
            f"TensorFlow {build.version if build is not None else ''} needs glibc {wanted}; this system has "
            f"{have}. "
            "glibc cannot be replaced on its own.",
            title=f"TensorFlow needs glibc {wanted}, and this system has {have}",
            evidence=[Evidence("the loader", resolution.error)],
            remedies=remedies,
        )
    ]


RULE = Rule(
    "TFD308",
    "glibc-too-old",
    "The system's glibc is too old for this TensorFlow",
    (Cause.GLIBC_TOO_OLD,),
    check,
    row="glibc is too old",
    needs=(prerequisites.require_tensorflow,),
)
