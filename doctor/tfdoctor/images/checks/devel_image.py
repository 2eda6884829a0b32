"""The image is built on a development image of CUDA.

What it means
-------------
A `devel` image works, but has several gigabytes of compilers, headers and static libraries that TensorFlow does not
use.

How it is seen
--------------
The tag of the last stage's base image is a `devel` tag.

What to do
----------
If nothing is compiled against CUDA, use the `runtime` tag. Otherwise compile in a separate stage and copy the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.findings import Cause, Remedy, Severity
from tfdoctor.images.checks.base import DockerfileRule
from tfdoctor.images.read.bases import describe_base, explain_deleted_tag, is_known_tag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.core.findings import Finding
    from tfdoctor.images.checks.base import CheckContext


def check(context: CheckContext) -> Sequence[Finding]:
    """Return a finding if the base image is a `devel` image that still exists."""
    base = context.image.base
    # The `image-deleted` check reports a release whose tags are all deleted, and says what to build on.
    if (
        base.kind != "cuda"
        or base.flavour != "devel"
        or explain_deleted_tag(context.compat, base) is not None
    ):
        return ()
    runtime_reference = base.image_name.partition("@")[0].replace("-devel", "-runtime")
    runtime = describe_base(runtime_reference, runtime_reference, base.line, context.compat)
    has_image = any(image.version == base.cuda for image in context.compat.images.cuda_images)
    if not has_image or is_known_tag(context.compat, runtime) is False:
        return ()  # image-not-known reports the tag, and names tags that exist
    return [
        RULE.make_finding(
            Cause.HEALTHY,
            Severity.INFO,
            "It has compilers, headers and static libraries, several gigabytes that TensorFlow does not use.",
            evidence=[context.base_evidence],
            remedies=[Remedy(f"Where nothing is compiled against CUDA: FROM {runtime_reference}")],
        )
    ]


RULE = DockerfileRule(
    code="TFD517",
    name="devel-image",
    title="A `devel` image is larger than TensorFlow needs",
    causes=(Cause.HEALTHY,),
    check=check,
)
