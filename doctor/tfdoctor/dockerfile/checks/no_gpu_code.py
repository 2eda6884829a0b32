"""The TensorFlow in the image has no GPU code.

What it means
-------------
tensorflow-cpu and images of tensorflow/tensorflow without `-gpu` in their tag are for the CPU, and so are the plain
`tensorflow` 1.15.2 to 1.15.5, and `tensorflow` before 1.15 and 2.0, whose GPU code is in tensorflow-gpu.

How it is seen
--------------
The package's name, and tfdoctor's table, where each wheel was looked into.

What to do
----------
Install the package with GPU code, or take the image's tag with `-gpu`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.dockerfile.checks.base import DockerfileRule
from tfdoctor.findings import Cause, Remedy, Severity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.dockerfile.checks.base import Context
    from tfdoctor.findings import Finding


def check(context: Context) -> Sequence[Finding]:
    tensorflow, release = context.tensorflow, context.tensorflow.release
    plain = tensorflow.state == "there" and release is not None and not release.gpu
    ours = tensorflow.installed is None and context.subject.base.kind == "ngc"  # NVIDIA's own build
    if ours or (not plain and tensorflow.state != "cpu"):
        return ()
    if any(one.want.name == "tensorflow-gpu" for one in context.subject.both):
        return ()  # two-packages says it
    if tensorflow.installed is None:
        why = f"{context.subject.base.reference} is the image for the CPU: the one for GPUs has `-gpu` in its tag."
        remedy = Remedy(
            f"FROM {context.subject.base.reference.partition('@')[0]}-gpu, where that one exists and works."
        )
    elif plain and release is not None:
        why = f"{release.package} {release.version} is a CPU build: the GPU code is in tensorflow-gpu."
        remedy = Remedy(
            "Install the package with GPU code.", (f"pip install tensorflow-gpu=={release.version}",)
        )
        if context.compat.release(release.version, "tensorflow-gpu") is None:
            why = f"The wheels of {release.package} {release.version} for Linux have no GPU code."
            remedy = Remedy("Take another release.")
    else:
        why = f"{tensorflow.package} has no GPU code in any version."
        remedy = Remedy("Install tensorflow instead; with CUDA from wheels tensorflow[and-cuda].")
    return [
        RULE.finding(
            Cause.CPU_ONLY_BUILD,
            Severity.ERROR,
            why,
            evidence=[context.about_tensorflow],
            remedies=[remedy, context.build()],
        )
    ]


RULE = DockerfileRule(
    code="TFD509",
    name="no-gpu-code",
    title="The TensorFlow in this image has no GPU code",
    causes=(Cause.CPU_ONLY_BUILD,),
    check=check,
)
