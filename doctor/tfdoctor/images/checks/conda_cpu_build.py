"""conda installs the CPU build of TensorFlow, because no GPU is visible while an image is built.

What it means
-------------
conda chooses the build by the virtual package `__cuda`, which exists only if a driver answers. In `docker build` none does,
so that `tensorflow` is the build for the CPU.

How it is seen
--------------
A conda command installs `tensorflow` without a build string, and neither the command nor ENV sets CONDA_OVERRIDE_CUDA.

What to do
----------
Set CONDA_OVERRIDE_CUDA for the command, or name the build.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.findings import Cause, Remedy, Severity
from tfdoctor.images.checks.base import DockerfileRule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.core.findings import Finding
    from tfdoctor.images.checks.base import CheckContext


def check(context: CheckContext) -> Sequence[Finding]:
    """Return a finding if conda installs the CPU build and pip does not install TensorFlow."""
    lines = context.image.cpu_conda_lines
    if not lines or context.image.tensorflow_installations:
        return ()
    return [
        RULE.make_finding(
            Cause.CPU_ONLY_BUILD,
            Severity.ERROR,
            "conda takes a CUDA build only if a driver answers, and `docker build` has none.",
            evidence=[context.cite(line) for line in lines],
            remedies=[
                Remedy(
                    "Tell conda for which CUDA the image is, with the version that your hosts' drivers support.",
                    ("ENV CONDA_OVERRIDE_CUDA=12.0",),
                ),
                context.make_build_remedy(),
            ],
        )
    ]


RULE = DockerfileRule(
    code="TFD523",
    name="conda-cpu-build",
    title="conda installs the CPU build of TensorFlow in this image",
    causes=(Cause.CPU_ONLY_BUILD,),
    check=check,
)
