"""The image contains a part of NVIDIA's driver.

What it means
-------------
The kernel module of the host and the driver's libraries in a container must have the same version. The libraries of the host are
mounted when a container starts. Those of the image are of another version on most hosts, and if the loader finds them
first, CUDA and NVML fail (`Driver/library version mismatch`).

How it is seen
--------------
An apt command installs a package of the driver: nvidia-driver-*, nvidia-utils-*, libnvidia-compute-*, libcuda1,
cuda-drivers, or the metapackage cuda, which requires it.

What to do
----------
Remove the package from the list. nvidia-smi comes with the host's driver if NVIDIA_DRIVER_CAPABILITIES has `utility`.
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
    """Return a finding if an apt command installs a part of the driver."""
    packages = context.image.driver_packages
    if not packages:
        return ()
    names = ", ".join(dict.fromkeys(line.text for line in packages))
    return [
        RULE.make_finding(
            Cause.DRIVER_LIB_MISMATCH,
            Severity.WARNING,
            f"{names}: the driver belongs to the host, whose libraries are mounted when a container starts. On a host with "
            "another version, CUDA or NVML fails if the loader finds those of the image first.",
            evidence=[context.cite(line) for line in packages],
            remedies=[
                Remedy(
                    "Take the packages off the line. For nvidia-smi set this variable; it comes from the host.",
                    ("ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility",),
                )
            ],
        )
    ]


RULE = DockerfileRule(
    code="TFD522",
    name="driver-in-image",
    title="The image contains a part of NVIDIA's driver",
    causes=(Cause.DRIVER_LIB_MISMATCH,),
    check=check,
)
