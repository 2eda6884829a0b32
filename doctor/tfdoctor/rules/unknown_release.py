"""This TensorFlow build is not in tfdoctor's table.

What it means
-------------
It is a nightly, your own build, a vendor's build, or a release newer than this tfdoctor. Its requirements
are read from its own files, and the rest is taken from the nearest release: that is usually right but not
certain.

How it is seen
--------------
The installed version is not in the release table.

What to do
----------
Nothing, if everything works. A newer tfdoctor may know the release.
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
    read_from_files = []
    if tensorflow.cuda_config:
        read_from_files.append(f"CUDA {build.cuda} and its library names from cuda_config.h")
    if tensorflow.build_info:
        read_from_files.append("what build_info.py says")
    nearest = context.compat.nearest(build.version, tensorflow.distribution) if build.version else None
    if nearest is not None:
        reason = f"{nearest.release.version}{f' ({nearest.reason})' if nearest.reason else ''}"
        remainder = f"The rest is taken from {reason}."
    else:
        remainder = "There is no release to compare it with."
    read_text = ", ".join(read_from_files) or "nothing"
    return [
        RULE.finding(
            Cause.INCONCLUSIVE,
            Severity.INFO,
            f"From its own files: {read_text}. {remainder}",
            title=f"{name} is not in tfdoctor's table of releases",
            evidence=[
                Evidence(tensorflow.package_dir, name),
                Evidence("the release table", f"as of {_get_table_date(context)}"),
            ],
            remedies=[Remedy("To see what it really does, run it.", ("tfdoctor check --deep",))],
        )
    ]


def _get_table_date(context: RuleContext) -> str:
    return context.compat.as_of


RULE = Rule(
    "TFD902",
    "unknown-release",
    "This TensorFlow is not in the release table",
    (Cause.INCONCLUSIVE,),
    check,
    needs=(prerequisites.require_tensorflow,),
)
