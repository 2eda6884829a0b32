"""pip is told to install into the Python that the image's system manages, and refuses.

What it means
-------------
Since Debian 12 and Ubuntu 23.04, the system's Python is marked as externally managed (PEP 668). pip then stops with
`error: externally-managed-environment`, and so does the build.

How it is seen
--------------
A RUN instruction uses the system's pip, no virtual environment is active, and nothing allows pip to change the
system's packages.

What to do
----------
Create a virtual environment in the image and put it first on PATH, or allow pip to change the system's packages.
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
    """Return a finding with every line on which pip refuses to install, if there is any."""
    refused_lines = context.image.refused_pip_lines
    if not refused_lines:
        return ()
    return [
        RULE.make_finding(
            Cause.INCONCLUSIVE,
            Severity.ERROR,
            f"The Python of {context.image.base.image_name} is its system's own, and pip ends with "
            "`error: externally-managed-environment`.",
            evidence=[context.cite(line) for line in refused_lines],
            remedies=[
                Remedy(
                    "Before that line, make a virtual environment and put it first.",
                    (
                        (
                            "RUN apt-get update && apt-get install -y --no-install-recommends python3-venv && "
                            "python3 -m venv /opt/venv"
                        ),
                        "ENV PATH=/opt/venv/bin:$PATH",
                    ),
                ),
                Remedy("Or say that the image is yours alone.", ("ENV PIP_BREAK_SYSTEM_PACKAGES=1",)),
                context.make_build_remedy(),
            ],
        )
    ]


RULE = DockerfileRule(
    code="TFD520",
    name="pip-refused",
    title="pip refuses to install into the system's Python of this image",
    causes=(Cause.INCONCLUSIVE,),
    check=check,
    is_about_base=True,
)
