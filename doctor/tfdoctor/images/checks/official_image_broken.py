"""The official TensorFlow image lacks the libraries that its own TensorFlow opens.

What it means
-------------
Some images of tensorflow/tensorflow were built with the CUDA or cuDNN of an earlier release: 2.18.0-gpu and newer
(and so latest-gpu) have cuDNN 8, but TensorFlow opens cuDNN 9. In these images TensorFlow runs on the CPU.

How it is seen
--------------
The tag is looked up in tfdoctor's table of these images, which is based on their recipes.

What to do
----------
Use another tag or another base image, or install the missing library in your own layer. `tfdoctor build` does this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.findings import Cause, Remedy, Severity
from tfdoctor.images.checks.base import DockerfileRule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.core.findings import Finding
    from tfdoctor.images.checks.base import CheckContext


def check(context: CheckContext) -> Sequence[Finding]:
    """Return a finding if the official image lacks libraries that its TensorFlow opens."""
    base = context.image.base
    if (
        base.kind != "official"
        or not base.is_for_gpu
        or base.tensorflow_version is None
        or context.image.tensorflow_installations
    ):
        return ()
    image = context.compat.images.find_official(base.tensorflow_version)
    if image is None or image.recipe.has_working_libraries:
        return ()
    if any(name.startswith("nvidia-cudnn-") for name in context.image.packages):
        return ()  # the cuda-library-versions and cudnn rules check an installed cuDNN
    problem = next(
        (
            candidate
            for candidate in context.compat.list_problems(
                "tensorflow", base.tensorflow_version, area="images"
            )
            if candidate.severity == "error"
        ),
        None,
    )
    latest_note = (
        f" {base.image_name} is {base.tensorflow_version} today." if base.tag.startswith("latest") else ""
    )
    return [
        RULE.make_finding(
            Cause(problem.cause) if problem is not None else Cause.LIBS_WRONG_VERSION,
            Severity.ERROR,
            image.recipe.failure_reason + latest_note,
            title=f"{base.image_name} does not find its own CUDA libraries",
            evidence=[context.base_evidence],
            remedies=[
                context.make_build_remedy(_describe_build(context)),
                *([Remedy(problem.remedy)] if problem is not None else []),
            ],
        )
    ]


def _describe_build(context: CheckContext) -> str:
    """Return the sentence about the image that `tfdoctor build` makes for the release."""
    release = context.tensorflow.release
    if release is None or release.cuda is None or release.cudnn is None:
        return "Build an image of this release that has the libraries it opens."
    return (
        f"Build an image of TensorFlow {release.version} that has the libraries it opens: CUDA "
        f"{versions.major_minor(release.cuda)} and cuDNN {versions.major(release.cudnn)}."
    )


RULE = DockerfileRule(
    code="TFD503",
    name="official-image-broken",
    title="This official image does not find its own CUDA libraries",
    causes=(Cause.CUDNN_VERSION_MISMATCH, Cause.LIBS_WRONG_VERSION),
    check=check,
    is_about_base=True,
)
