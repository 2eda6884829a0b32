"""The image has another CUDA than the one whose libraries this TensorFlow opens.

What it means
-------------
Each TensorFlow opens libraries by fixed file names, such as libcudart.so.10.0: CUDA 10.1 has no file of that name.
Without any one of them no GPU is registered (1.13 and older: the import fails).

How it is seen
--------------
The names that the release opens, seen in its wheel, against those of the CUDA in the base image, in NVIDIA's apt
packages and in NVIDIA's wheels.

What to do
----------
Build on the CUDA that this TensorFlow was built with, or install the TensorFlow that goes with this CUDA.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.dockerfile.checks.base import DockerfileRule
from tfdoctor.dockerfile.read.bases import fitting_tag
from tfdoctor.findings import Cause, Remedy, Severity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.dockerfile.checks.base import Context
    from tfdoctor.findings import Finding


def check(context: Context) -> Sequence[Finding]:
    tensorflow, release = context.tensorflow, context.tensorflow.release
    wrong = [
        one
        for one in context.libraries
        if one.found is False and one.other is not None and "cudnn" not in one.soname
    ]
    if not wrong or release is None:
        return ()
    linked = release.linkage == "needed"
    pairs = ", ".join(f"{one.soname} (there is {one.other})" for one in wrong[:4])
    more = f" and {len(wrong) - 4} more" if len(wrong) > 4 else ""
    by = wrong[0].by
    end = "The import fails." if linked else "No GPU is registered."
    tag = fitting_tag(context.compat, release, tensorflow.python)
    remedies = [Remedy(f"Build on {tag.name}, which has them: FROM {tag.name}")] if tag is not None else []
    return [
        RULE.finding(
            Cause.IMPORT_MISSING_CUDA_LIB if linked else Cause.LIBS_WRONG_VERSION,
            Severity.ERROR,
            f"{tensorflow.name} opens the libraries of CUDA {release.cuda}: {pairs}{more}. {end}",
            title=f"{by} does not have the CUDA that {tensorflow.name} opens",
            evidence=[context.about_base, context.about_tensorflow],
            remedies=[*remedies, context.build()],
        )
    ]


RULE = DockerfileRule(
    code="TFD504",
    name="cuda-does-not-fit",
    title="The image has another CUDA than this TensorFlow opens",
    causes=(Cause.LIBS_WRONG_VERSION, Cause.IMPORT_MISSING_CUDA_LIB),
    check=check,
)
