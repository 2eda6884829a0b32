"""The system's glibc is older than this TensorFlow needs.

What it means
-------------
A wheel is compiled for a system and runs on that and on newer ones, but not on older ones. There, `import tensorflow`
stops with "version `GLIBC_2.27' not found". glibc is a core part of the system and cannot be replaced on its own.

How it is seen
--------------
The symbol versions that TensorFlow's objects require are compared with those that the system's libc
defines, as the loader does.

What to do
----------
Use a release for older systems, a newer system, or a container.
"""

from __future__ import annotations

from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.core.text import make_lazy_pattern
from tfdoctor.remedies.releases import make_best_release_remedies
from tfdoctor.rules.base import CouldNotCheck, Result, Rule, RuleContext, require_known_fact
from tfdoctor.rules.shared import prerequisites

MISSING_GLIBC_PATTERN = make_lazy_pattern(r"version `GLIBC_([\d.]+)'")
"""The loader's error about a missing glibc version."""


def check(context: RuleContext) -> Result:
    if context.loader is None:
        unmet_result = require_known_fact(context.facts.loader, "the loader")
        return CouldNotCheck(
            unmet_result.reason if unmet_result is not None else "the loader could not be followed"
        )
    failures = [
        (failure, match[1])
        for failure in context.loader.import_needs
        if (match := MISSING_GLIBC_PATTERN.search(failure.error))
    ]
    if not failures:
        return ()
    resolution, required_version = failures[0]
    python, build = context.python, context.build
    installed_version = python.glibc if python is not None and python.glibc else "an older one"
    remedies = make_best_release_remedies(
        context.target, "Install {release}, the best that this system and this Python can load."
    )
    remedies.append(Remedy(f"Run it in a container, or on a system, with glibc {required_version} or newer."))
    return [
        RULE.make_finding(
            Cause.GLIBC_TOO_OLD,
            Severity.ERROR,
            f"TensorFlow {build.version if build is not None else ''} needs glibc {required_version}; this system has "
            f"{installed_version}. "
            "glibc cannot be replaced on its own.",
            title=f"TensorFlow needs glibc {required_version}, and this system has {installed_version}",
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
    short_title="glibc is too old",
    needs=(prerequisites.require_tensorflow,),
)
