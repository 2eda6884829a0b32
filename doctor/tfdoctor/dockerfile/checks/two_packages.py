"""Two TensorFlow packages are installed over each other.

What it means
-------------
tensorflow, tensorflow-gpu, tensorflow-cpu and tf-nightly put their files into the same folder. Which of them wins
depends on the order of installation, and what is left is a mixture of both.

How it is seen
--------------
The requirements of all pip commands in the Dockerfile and of the files that could be read.

What to do
----------
Install one of them: the one with GPU code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.dockerfile.checks.base import DockerfileRule
from tfdoctor.findings import Cause, Remedy, Severity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.dockerfile.checks.base import Context
    from tfdoctor.findings import Finding


def check(context: Context) -> Sequence[Finding]:
    both = context.subject.both
    if len(both) < 2:
        return ()
    names = " and ".join(dict.fromkeys(one.want.name for one in both))
    return [
        RULE.finding(
            Cause.BOTH_PACKAGES,
            Severity.ERROR,
            f"{names} have the same files: what is installed last overwrites the other's.",
            title=f"{names} are installed over each other",
            evidence=[context.at(one.want.line, one.want.text, one.want.source) for one in both],
            remedies=[
                Remedy("Install one of them: from 2.1 on tensorflow, before tensorflow-gpu."),
                context.build(),
            ],
        )
    ]


RULE = DockerfileRule(
    code="TFD512",
    name="two-packages",
    title="Two TensorFlow packages are installed over each other",
    causes=(Cause.BOTH_PACKAGES,),
    check=check,
)
