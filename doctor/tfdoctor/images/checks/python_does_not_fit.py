"""There is no wheel of this TensorFlow for the image's Python.

What it means
-------------
TensorFlow has no source package. Each release has wheels for a few Python versions, and for all others pip reports `No
matching distribution found`. The base image determines the version: python:3.12 has 3.12, Ubuntu 22.04 has 3.10. There
are no wheels for Alpine, and those for arm64 have no GPU code. The images tensorflow/tensorflow for GPUs exist for x86-64 only.

How it is seen
--------------
The Python version of `pip` on that line, as far as the Dockerfile shows, is compared with the wheels of the release.

What to do
----------
Use a Python version that the release has a wheel for, or a release that has a wheel for this Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.findings import Cause, Remedy, Severity
from tfdoctor.images.checks.base import DockerfileRule
from tfdoctor.planning import Method, Request, recommend
from tfdoctor.prediction.fit.models import Host

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.core.findings import Finding
    from tfdoctor.images.checks.base import CheckContext


def check(context: CheckContext) -> Sequence[Finding]:
    """Return a finding if the image is Alpine or for arm64, or if the release has no wheel for its Python."""
    tensorflow, release = context.tensorflow, context.tensorflow.release
    if context.image.base.has_musl and tensorflow.installed is not None:
        return [
            RULE.make_finding(
                Cause.NO_MATCHING_WHEEL,
                Severity.ERROR,
                "Alpine has musl, TensorFlow's wheels need glibc: pip finds none.",
                title="There is no TensorFlow for Alpine",
                evidence=[context.base_evidence, context.tensorflow_evidence],
                remedies=[
                    Remedy("Build on a slim image of Debian, such as python:3.11-slim-bookworm."),
                    context.make_build_remedy(),
                ],
            )
        ]
    base = context.image.base
    is_arm_image = context.is_arm and base.kind == "official" and base.is_for_gpu is True
    if context.is_arm_wheel or is_arm_image:
        title, reason = "The wheels for arm64 have no GPU code", context.compat.arm64.index.note
        evidence = [context.tensorflow_evidence, context.base_evidence]
        if is_arm_image:
            title = f"{base.image_name} is not for arm64"
            reason = f"TensorFlow's images for GPUs are for linux/amd64 only: there is no {base.image_name} for arm64."
            evidence = [context.base_evidence]
        return [
            RULE.make_finding(
                Cause.CPU_ONLY_BUILD,
                Severity.ERROR,
                reason,
                title=title,
                evidence=evidence,
                remedies=[
                    Remedy(
                        "For a machine with an x86-64 processor, use the platform linux/amd64. For NVIDIA's arm64 machines, "
                        "use NVIDIA's own image.",
                        ("tfdoctor recommend --gpu GH200",),
                    )
                ],
            )
        ]
    if tensorflow.state != "no-wheel" or release is None or tensorflow.python is None:
        return ()
    supported = ", ".join(release.linux_pythons)
    remedies = [Remedy(f"Take one of the Pythons that it has wheels for: {supported}.")]
    best_options = recommend(
        context.compat, Request(python=tensorflow.python, method=Method.CONTAINER), Host()
    ).options
    if best_options:
        remedies.append(
            Remedy(
                f"The best release for Python {tensorflow.python} is {best_options[0].tensorflow}.",
                (f"tfdoctor build --tf {best_options[0].tensorflow} --python-version {tensorflow.python}",),
            )
        )
    return [
        RULE.make_finding(
            Cause.NO_MATCHING_WHEEL,
            Severity.ERROR,
            f"{tensorflow.name} has wheels for Python {supported}; pip installs for {tensorflow.python} "
            "and finds none.",
            title=f"{tensorflow.name} has no wheel for Python {tensorflow.python}",
            evidence=[context.tensorflow_evidence, context.base_evidence],
            remedies=[*remedies, context.make_build_remedy()],
        )
    ]


RULE = DockerfileRule(
    code="TFD507",
    name="python-does-not-fit",
    title="This TensorFlow has no wheel for the image's Python",
    causes=(Cause.NO_MATCHING_WHEEL, Cause.CPU_ONLY_BUILD),
    check=check,
)
