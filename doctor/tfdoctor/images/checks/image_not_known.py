"""The tag of the base image is not in tfdoctor's tables.

What it means
-------------
tfdoctor knows the tags of nvidia/cuda for Ubuntu, the GPU images of tensorflow/tensorflow and some of NVIDIA's own
TensorFlow images. Any other tag may be misspelt, newer than this tfdoctor, or of a kind that the tables do not cover.
The content of your own images cannot be determined.

How it is seen
--------------
The tag is looked up in the tables. No registry is queried.

What to do
----------
Compare the tag with the registry's list. A CUDA tag has a version of three numbers: 12.5.1-cudnn-runtime-ubuntu22.04.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.findings import Cause, Remedy, Severity
from tfdoctor.images.checks.base import DockerfileRule
from tfdoctor.images.read.bases import explain_deleted_tag, is_known_tag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.compat.images import Flavour
    from tfdoctor.core.findings import Finding
    from tfdoctor.images.checks.base import CheckContext


def check(context: CheckContext) -> Sequence[Finding]:
    """Return a finding if the tag of the base image is unknown."""
    base = context.image.base
    if base.is_pinned:
        return ()
    if base.kind == "cuda":
        return _find_unknown_cuda_tag(context)
    is_unknown = base.kind == "ngc" and base.cuda is None
    if base.kind == "official":
        release = context.compat.find_release(base.tensorflow_version) if base.tensorflow_version else None
        is_unknown = release is None
    if not is_unknown:
        return ()
    return [
        _make_finding(
            context, Severity.INFO, "What is in it, and whether it exists, is not known to this tfdoctor."
        )
    ]


def _find_unknown_cuda_tag(context: CheckContext) -> Sequence[Finding]:
    """Return a finding if an nvidia/cuda tag is unknown."""
    base, images = context.image.base, context.compat.images
    if base.tag == "latest" or explain_deleted_tag(context.compat, base) is not None:
        return ()  # the image-deleted check reports it
    if base.cuda is None:
        return [_make_finding(context, Severity.INFO, "The tag has no CUDA version that could be read.")]
    is_known = is_known_tag(context.compat, base)  # None: the table does not cover such tags
    if is_known:
        return ()
    if is_known is None and any(image.version == base.cuda for image in images.cuda_images):
        reason = (
            "tfdoctor knows the tags for Ubuntu only; what follows is judged by the CUDA that the tag names."
        )
        return [_make_finding(context, Severity.INFO, reason)]
    nearest = images.list_tags(versions.major_minor(base.cuda), flavour=_parse_flavour(base.flavour))
    nearest = tuple(tag for tag in nearest if base.ubuntu_release in (None, tag.system)) or nearest
    if is_known is False or any(
        versions.has_prefix(image.version, base.cuda) for image in images.cuda_images
    ):
        reason = (
            "It is not among the tags of this CUDA that tfdoctor knows, which has all of them for Ubuntu."
        )
        text = f"Known are {', '.join(tag.name.partition(':')[2] for tag in nearest[:3])}." if nearest else ""
        remedy = [Remedy(f"Compare it with the registry's list. {text}".strip())]
        return [_make_finding(context, Severity.WARNING, reason, remedy)]
    return [
        _make_finding(
            context, Severity.INFO, f"CUDA {base.cuda} is not in the table of images ({images.as_of})."
        )
    ]


def _parse_flavour(text: str | None) -> Flavour | None:
    """Return a flavour of nvidia/cuda unchanged, but with the type `Flavour`; None for other texts."""
    return (
        "base" if text == "base" else "runtime" if text == "runtime" else "devel" if text == "devel" else None
    )


def _make_finding(
    context: CheckContext, severity: Severity, reason: str, remedies: Sequence[Remedy] = ()
) -> Finding:
    """Return a finding about the base image."""
    return RULE.make_finding(
        Cause.INCONCLUSIVE,
        severity,
        reason,
        title=f"{context.image.base.image_name} is not in tfdoctor's tables",
        evidence=[context.base_evidence],
        remedies=remedies,
    )


RULE = DockerfileRule(
    code="TFD502",
    name="image-not-known",
    title="The base image is not in tfdoctor's tables",
    causes=(Cause.INCONCLUSIVE,),
    check=check,
    is_about_base=True,
)
