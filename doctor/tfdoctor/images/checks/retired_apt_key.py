"""apt-get update fails, because the image has NVIDIA's retired repository key.

What it means
-------------
On 2022-04-27 NVIDIA replaced the key of its apt repositories. Older images have the old key (7fa2af80), so
`apt-get update` ends with `NO_PUBKEY A4B469963BF863CC` and stops the build.

How it is seen
--------------
The release in the base image is older than the new key, and the Dockerfile neither removes the source list of the
repository nor renews the key before the first `apt-get update`.

What to do
----------
Remove the source lists first: rm -f /etc/apt/sources.list.d/cuda*.list /etc/apt/sources.list.d/nvidia-ml.list
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
    """Return a finding if the first `apt-get update` uses the retired key."""
    base = context.image.base
    if base.kind != "official" or not base.is_for_gpu or base.tensorflow_version is None:
        return ()
    problem = context.compat.find_problem("image-with-retired-apt-key")
    if problem is None or not problem.affects_release(base.tensorflow_package, base.tensorflow_version):
        return ()
    update = next((line for line, is_fixed in context.image.apt_updates if not is_fixed), None)
    if update is None:
        return ()
    return [
        RULE.make_finding(
            Cause.INCONCLUSIVE,
            Severity.WARNING,
            f"{base.image_name} is from before 2022-04-27 and carries NVIDIA's retired repository key: apt-get update "
            "fails, unless the image was rebuilt since.",
            evidence=[context.base_evidence, context.make_evidence(update.line, update.text)],
            remedies=[
                Remedy(
                    "Take NVIDIA's lists away before.",
                    ("RUN rm -f /etc/apt/sources.list.d/cuda*.list /etc/apt/sources.list.d/nvidia-ml.list",),
                ),
                context.make_build_remedy(),
            ],
        )
    ]


RULE = DockerfileRule(
    code="TFD513",
    name="retired-apt-key",
    title="apt-get update fails with this image's retired key",
    causes=(Cause.INCONCLUSIVE,),
    check=check,
)
