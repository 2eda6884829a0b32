"""pip is told to install into the Python that the image's system manages, and refuses.

What it means
-------------
Debian 12 and Ubuntu 23.04, and newer ones, mark their Python as managed by the system (PEP 668). pip then ends with
`error: externally-managed-environment`, in an image as on any host, and the build stops there.

How it is seen
--------------
The pip in a RUN instruction is the system's, no virtual environment is in use, and nothing allows pip to change the
system's packages.

What to do
----------
Make a virtual environment in the image and put it first on PATH, or allow pip to change the system's packages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.dockerfile.checks.base import DockerfileRule
from tfdoctor.findings import Cause, Remedy, Severity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.dockerfile.checks.base import CheckContext
    from tfdoctor.findings import Finding


def check(context: CheckContext) -> Sequence[Finding]:
    """Return a finding with every line on which pip refuses to install."""
    refused = context.subject.refused_lines
    if not refused:
        return ()
    return [
        RULE.finding(
            Cause.INCONCLUSIVE,
            Severity.ERROR,
            f"The Python of {context.subject.base.reference} is its system's own, and pip ends with "
            "`error: externally-managed-environment`.",
            evidence=[context.cite(line) for line in refused],
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
                context.build(),
            ],
        )
    ]


RULE = DockerfileRule(
    code="TFD520",
    name="pip-refused",
    title="pip refuses to install into the system's Python of this image",
    causes=(Cause.INCONCLUSIVE,),
    check=check,
    about_base=True,
)
