"""The image that FROM names no longer exists.

What it means
-------------
NVIDIA deletes images of nvidia/cuda some time after their end of life: those of CUDA 10 and older, and each
release that a later patch replaced. There is no tag `latest`. The build stops at its first line with `manifest
unknown` or `not found`.

How it is seen
--------------
The tag is looked up in tfdoctor's list of releases whose tags are all deleted.

What to do
----------
Use the tag that replaced it, if there is one. If TensorFlow needs a CUDA version that no longer has images,
`tfdoctor build` builds an image for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.findings import Cause, Remedy, Severity
from tfdoctor.images.checks.base import DockerfileRule
from tfdoctor.images.read.bases import explain_deleted_tag
from tfdoctor.remedies.image import make_base_image_remedies

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.core.findings import Finding
    from tfdoctor.images.checks.base import CheckContext


def check(context: CheckContext) -> Sequence[Finding]:
    """Return a finding if the base image's tag is deleted."""
    base = context.image.base
    if base.kind != "cuda" or base.is_pinned:
        return ()
    if base.tag == "latest":
        reason = (
            "NVIDIA removed the tag `latest` of nvidia/cuda in January 2021; without a tag, `latest` is used."
        )
    elif (note := explain_deleted_tag(context.compat, base)) is not None:
        reason = f"No tag of CUDA {base.cuda} is left: {note}"
    else:
        return ()
    if base.is_mirror:
        reason += " This registry may have kept it."
    return [
        RULE.make_finding(
            Cause.INCONCLUSIVE,
            Severity.WARNING if base.is_mirror else Severity.ERROR,
            reason,
            title=f"{base.image_name} no longer exists",
            evidence=[context.base_evidence],
            remedies=_make_remedies(context),
        )
    ]


def _make_remedies(context: CheckContext) -> list[Remedy]:
    """Return remedies that name another base image, and the remedy to run `tfdoctor build`."""
    base, tensorflow = context.image.base, context.tensorflow
    if tensorflow.release is not None:
        replacements = make_base_image_remedies(context.compat, tensorflow.release, tensorflow.python)
        if replacements:
            return [*replacements, context.make_build_remedy("Or build the image.")]
    if tensorflow.release is None and base.cuda is not None:
        minor = versions.major_minor(base.cuda)
        tags = context.compat.images.list_tags(minor, flavour="runtime")
        if tags:
            return [
                Remedy(f"Of CUDA {minor} there is {tags[0].name}."),
                context.make_build_remedy("Or build an image."),
            ]
    return [
        context.make_build_remedy("There is no image of this CUDA to take its place: build one another way.")
    ]


RULE = DockerfileRule(
    code="TFD501",
    name="image-deleted",
    title="The base image no longer exists",
    causes=(Cause.INCONCLUSIVE,),
    check=check,
    is_about_base=True,
)
