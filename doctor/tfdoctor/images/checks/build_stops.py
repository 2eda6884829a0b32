"""A RUN instruction certainly fails, so that the build stops.

What it means
-------------
The image is never built.

How it is seen
--------------
A pip command has a typographic dash in place of a hyphen, or it reads a requirements file before any line could have
brought it into the image.

What to do
----------
Type the hyphen, or add `COPY requirements.txt .` before the line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.findings import Cause, Remedy, Severity
from tfdoctor.core.text import upper_first
from tfdoctor.images.checks.base import DockerfileRule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.core.findings import Finding
    from tfdoctor.images.checks.base import CheckContext


def check(context: CheckContext) -> Sequence[Finding]:
    """Return a finding for each command that certainly fails."""
    return [
        RULE.make_finding(
            Cause.INCONCLUSIVE,
            Severity.ERROR,
            f"{upper_first(reason)}.",
            evidence=[context.cite(line)],
            remedies=[
                Remedy(
                    "Type a hyphen." if "dash" in reason else "Copy the file first: `COPY requirements.txt .`"
                )
            ],
        )
        for line, reason in context.image.impossible_lines
    ]


RULE = DockerfileRule(
    code="TFD525",
    name="build-stops",
    title="The build stops at this line",
    causes=(Cause.INCONCLUSIVE,),
    check=check,
)
