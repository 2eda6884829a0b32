"""The image has no cuDNN, or one that this TensorFlow does not take.

What it means
-------------
TensorFlow opens cuDNN in one major version: libcudnn.so.8, libcudnn.so.9. Without it no GPU is registered. Of that
major it takes the minor it was built with and newer; with an older one the GPU is registered and convolutions fail.
Images of nvidia/cuda have cuDNN only where their tag says so.

How it is seen
--------------
The base image's tag and tfdoctor's table of what is in it, NVIDIA's apt packages and wheels in the Dockerfile.

What to do
----------
Use the base image's tag with cuDNN in that version, or install cuDNN in a layer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.dockerfile.checks.base import DockerfileRule
from tfdoctor.dockerfile.read.bases import fitting_tag
from tfdoctor.dockerfile.read.libraries import cudnn_version
from tfdoctor.findings import Cause, Remedy, Severity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.dockerfile.checks.base import Context
    from tfdoctor.findings import Finding


def check(context: Context) -> Sequence[Finding]:
    tensorflow, release = context.tensorflow, context.tensorflow.release
    library = next((one for one in context.libraries if "cudnn" in one.soname), None)
    if library is None or release is None:
        return ()
    base = context.subject.base
    if library.found is False and base.kind == "official" and not context.subject.both:
        return ()  # official-image-broken says it
    if library.found:
        own = base.kind in ("official", "ngc") and base.tensorflow == release.version
        return () if own else _minor(context, library.soname)
    if library.found is None:
        return ()
    others = [one for one in context.libraries if one.found is False and one.other is None]
    if library.other is None and len(others) == len(context.libraries):
        return ()  # there is no CUDA at all: cuda-not-installed says it
    if library.other is not None:
        why = f"{tensorflow.name} opens {library.soname}; {library.by} has {library.other}. No GPU is registered."
        return [_finding(context, Cause.CUDNN_VERSION_MISMATCH, "another cuDNN than it opens", why)]
    why = f"{tensorflow.name} opens {library.soname}, and nothing in the Dockerfile brings it"
    why += ": the base image's tag has no cuDNN in it. " if base.kind == "cuda" else ". "
    return [_finding(context, Cause.CUDNN_MISSING, "no cuDNN", f"{why}No GPU is registered.")]


def _minor(context: Context, soname: str) -> Sequence[Finding]:
    release = context.tensorflow.release
    found = cudnn_version(context.subject, soname)
    if release is None or release.cudnn is None or found is None or "." not in release.cudnn:
        return ()
    have, by = found
    if "." not in have or versions.at_least(versions.major_minor(have), versions.major_minor(release.cudnn)):
        return ()
    why = (
        f"{context.tensorflow.name} was built with cuDNN {release.cudnn} and takes that and newer; {by} has {have}. "
        "The GPU is registered, and the first convolution fails."
    )
    return [_finding(context, Cause.CUDNN_VERSION_MISMATCH, "a cuDNN that is too old", why)]


def _finding(context: Context, cause: Cause, what: str, why: str) -> Finding:
    release = context.tensorflow.release
    tag = fitting_tag(context.compat, release, context.tensorflow.python) if release is not None else None
    return RULE.finding(
        cause,
        Severity.ERROR,
        why,
        title=f"There is {what} for {context.tensorflow.name}",
        evidence=[context.about_base, context.about_tensorflow],
        remedies=[
            *([Remedy(f"Build on {tag.name}: FROM {tag.name}")] if tag is not None else []),
            context.build(),
        ],
    )


RULE = DockerfileRule(
    code="TFD506",
    name="cudnn-does-not-fit",
    title="The image has no cuDNN that this TensorFlow takes",
    causes=(Cause.CUDNN_MISSING, Cause.CUDNN_VERSION_MISMATCH),
    check=check,
)
