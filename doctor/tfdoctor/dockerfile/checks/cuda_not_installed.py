"""CUDA libraries that this TensorFlow opens are not in the image.

What it means
-------------
`pip install tensorflow` brings no CUDA. It has to come from the base image (a `base` image of nvidia/cuda has hardly
any of it, a `runtime` image all but cuDNN), from NVIDIA's packages, or from `tensorflow[and-cuda]`, from 2.14 on.
NVIDIA's container toolkit brings the driver, and no CUDA.

How it is seen
--------------
Everything in the Dockerfile that can bring them is looked at. Where one comes in a way that cannot be read from the
Dockerfile, this is not said.

What to do
----------
Install `tensorflow[and-cuda]`, or build on a runtime image of nvidia/cuda with cuDNN.
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
    missing = [
        one
        for one in context.libraries
        if one.found is False and one.other is None and "cudnn" not in one.soname
    ]
    if not missing or release is None:
        return ()
    base = context.subject.base
    linked = release.linkage == "needed"
    names = ", ".join(one.soname for one in missing[:4]) + (" …" if len(missing) > 4 else "")
    where = f"{base.reference} has no CUDA"
    if base.kind == "cuda" and base.flavour == "base":
        where = f"{base.reference} is a `base` image, which has the CUDA runtime and none of its libraries"
    elif base.cuda is not None:
        where = f"{base.reference} does not have them"
    end = "the import fails" if linked else "no GPU is registered"
    extra = "and-cuda" in tensorflow.extras and release.pip_extra is None
    no_extra = f" {tensorflow.name} has no extra `and-cuda`: pip only warns of it." if extra else ""
    return [
        RULE.finding(
            Cause.IMPORT_MISSING_CUDA_LIB if linked else Cause.LIBS_NOT_INSTALLED,
            Severity.ERROR,
            f"{where}, and nothing else in the Dockerfile brings {names}: {end}.{no_extra}",
            title=f"The CUDA libraries that {tensorflow.name} opens are not in the image",
            evidence=[context.about_tensorflow, context.about_base],
            remedies=[*_remedies(context), context.build()],
        )
    ]


def _remedies(context: Context) -> list[Remedy]:
    tensorflow, release = context.tensorflow, context.tensorflow.release
    found: list[Remedy] = []
    if release is None:
        return found
    problems = context.compat.problems_of(release.package, release.version)
    broken = any(one.when.get("extra") == "and-cuda" and set(one.when) == {"extra"} for one in problems)
    if release.pip_extra == "and-cuda" and not broken:
        found.append(
            Remedy("Install CUDA with it.", (f"pip install 'tensorflow[and-cuda]=={release.version}'",))
        )
    tag = fitting_tag(context.compat, release, tensorflow.python)
    if tag is not None:
        found.append(Remedy(f"Build on {tag.name}: FROM {tag.name}"))
    return found


RULE = DockerfileRule(
    code="TFD505",
    name="cuda-not-installed",
    title="The CUDA libraries that this TensorFlow opens are not in the image",
    causes=(Cause.LIBS_NOT_INSTALLED, Cause.IMPORT_MISSING_CUDA_LIB),
    check=check,
)
