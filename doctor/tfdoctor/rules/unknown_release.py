"""This TensorFlow build is not in tfdoctor's table.

What it means
-------------
The build is a nightly, your own or a vendor's build, or a release newer than this tfdoctor. tfdoctor reads
its requirements from its files and takes the rest from the nearest release. This is usually right, but not
certain.

How it is seen
--------------
The installed version is not in the release table.

What to do
----------
Nothing, if everything works. A newer tfdoctor may know the release.
"""

from __future__ import annotations

from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.rules.base import NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import prerequisites


def check(context: RuleContext) -> Result:
    build, tensorflow = context.build, context.tensorflow
    if build is None or tensorflow is None:
        return NotApplicable("there is no TensorFlow")
    if build.is_exact_release or build.has_gpu_code is False:
        return ()
    name = f"{tensorflow.distribution or 'TensorFlow'} {tensorflow.version or 'of unknown version'}"
    descriptions = []
    if tensorflow.cuda_config:
        descriptions.append(f"CUDA {build.cuda} and its library names from cuda_config.h")
    if tensorflow.build_info:
        descriptions.append("what build_info.py says")
    nearest = context.compat.find_nearest(build.version, tensorflow.distribution) if build.version else None
    if nearest is not None:
        nearest_text = f"{nearest.release.version}{f' ({nearest.reason})' if nearest.reason else ''}"
        nearest_sentence = f"The rest is taken from {nearest_text}."
    else:
        nearest_sentence = "There is no release to compare it with."
    descriptions_text = ", ".join(descriptions) or "nothing"
    return [
        RULE.make_finding(
            Cause.INCONCLUSIVE,
            Severity.INFO,
            f"From its own files: {descriptions_text}. {nearest_sentence}",
            title=f"{name} is not in tfdoctor's table of releases",
            evidence=[
                Evidence(tensorflow.package_dir, name),
                Evidence("the release table", f"as of {context.compat.as_of}"),
            ],
            remedies=[Remedy("To see what it really does, run it.", ("tfdoctor check --deep",))],
        )
    ]


RULE = Rule(
    "TFD902",
    "unknown-release",
    "This TensorFlow is not in the release table",
    (Cause.INCONCLUSIVE,),
    check,
    needs=(prerequisites.require_tensorflow,),
)
