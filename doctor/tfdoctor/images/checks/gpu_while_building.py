"""A command needs a GPU while the image is built.

What it means
-------------
`docker build` gives no GPU to its steps, not even on a host with one. nvidia-smi is not found there, and a training runs on the
CPU or fails.

How it is seen
--------------
A RUN instruction starts nvidia-smi, Python code (`python -c`, or a heredoc) that fails without a GPU, or a Python script whose
name says that it trains or tests a GPU. What a script really does is not known. A command whose failure has no effect
(`|| true`) is not reported.

What to do
----------
Start it with CMD or ENTRYPOINT, or with `docker run --gpus all`.
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
    """Return a finding if a RUN instruction starts a program that needs a GPU."""
    lines = context.image.gpu_programs
    if not lines:
        return ()
    return [
        RULE.make_finding(
            Cause.CONTAINER_NO_GPU,
            Severity.WARNING,
            "`docker build` has no GPU and no driver, so that this runs on the CPU, or fails and ends the build.",
            evidence=[context.cite(line) for line in lines],
            remedies=[Remedy("Put it into CMD, and start a container with `docker run --gpus all`.")],
        )
    ]


RULE = DockerfileRule(
    code="TFD524",
    name="gpu-while-building",
    title="A command needs a GPU while the image is built",
    causes=(Cause.CONTAINER_NO_GPU,),
    check=check,
)
