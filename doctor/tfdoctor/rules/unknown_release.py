"""This TensorFlow build is not in tfdoctor's table.

What it means
-------------
It is a nightly, your own build, a vendor's build, or a release newer than this tfdoctor. What it needs is then read
from its own files, and the rest taken from the nearest release: that is usually right but not certain.

How it is seen
--------------
The installed version is looked up in the release table.

What to do
----------
Nothing, if all is well. A newer tfdoctor may know the release.
"""

from __future__ import annotations

from tfdoctor.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.rules.base import NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import prerequisites


def check(context: RuleContext) -> Result:
    build, tensorflow = context.build, context.tensorflow
    if build is None or tensorflow is None:
        return NotApplicable("there is no TensorFlow")
    if build.exact or build.gpu is False:
        return ()
    name = f"{tensorflow.distribution or 'TensorFlow'} {tensorflow.version or 'of unknown version'}"
    own = []
    if tensorflow.cuda_config:
        own.append(f"CUDA {build.cuda} and its library names from cuda_config.h")
    if tensorflow.build_info:
        own.append("what build_info.py says")
    nearest = context.compat.nearest(build.version, tensorflow.distribution) if build.version else None
    if nearest is not None:
        reason = f"{nearest.release.version}{f' ({nearest.reason})' if nearest.reason else ''}"
        taken = f"The rest is taken from {reason}."
    else:
        taken = "There is no release to compare it with."
    known = ", ".join(own) or "nothing"
    return [
        RULE.finding(
            Cause.INCONCLUSIVE,
            Severity.INFO,
            f"From its own files: {known}. {taken}",
            title=f"{name} is not in tfdoctor's table of releases",
            evidence=[
                Evidence(tensorflow.package_dir, name),
                Evidence("the release table", f"as of {_as_of(context)}"),
            ],
            remedies=[Remedy("To see what it really does, run it.", ("tfdoctor check --deep",))],
        )
    ]


def _as_of(context: RuleContext) -> str:
    return context.compat.as_of


RULE = Rule(
    "TFD902",
    "unknown-release",
    "This TensorFlow is not in the release table",
    (Cause.INCONCLUSIVE,),
    check,
    needs=(prerequisites.require_tensorflow,),
)
