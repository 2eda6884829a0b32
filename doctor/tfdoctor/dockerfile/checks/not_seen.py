"""Something that decides could not be seen in the Dockerfile.

What it means
-------------
An image of your own, a requirements file that is not beside the Dockerfile, a version that the build is given with
--build-arg, a lock of another tool, CUDA from a runfile: what they bring is not known, and nothing is guessed.

How it is seen
--------------
The reader notes what it could not read.

What to do
----------
Keep the requirements beside the Dockerfile, give an ARG a default, or examine the image itself: `tfdoctor verify`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.dockerfile.checks.base import DockerfileRule
from tfdoctor.findings import Cause, Remedy, Severity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.dockerfile.checks.base import CheckContext
    from tfdoctor.findings import Evidence, Finding

MAX_EVIDENCE = 8
"""Pieces of evidence that are shown."""


def check(context: CheckContext) -> Sequence[Finding]:
    unseen = unseen_of(context)
    if not unseen:
        return ()
    return [
        RULE.finding(
            Cause.INCONCLUSIVE,
            Severity.INFO,
            "; ".join(one.text for one in unseen[:MAX_EVIDENCE]) + ".",
            evidence=unseen[:MAX_EVIDENCE],
            remedies=[Remedy("Build the image and examine it.", ("tfdoctor verify IMAGE",))],
        )
    ]


def unseen_of(context: CheckContext) -> list[Evidence]:
    """Return what would have to be known to be sure, each as a piece of evidence."""
    subject, tensorflow = context.subject, context.tensorflow
    found: list[Evidence] = []
    if subject.base.kind == "unknown":
        found.append(context.make_evidence(subject.base.line, subject.base.why_unknown))
    found += [context.make_evidence(one.line, one.text) for one in subject.unseen]
    if tensorflow.state == "unknown" and tensorflow.installed is not None:
        found.append(
            context.make_evidence(tensorflow.line, f"which release `{tensorflow.text}` is", tensorflow.source)
        )
    elif tensorflow.state == "unknown":
        found.append(
            context.make_evidence(subject.base.line, f"which TensorFlow is in {subject.base.reference}")
        )
    if tensorflow.state == "none" and subject.base.kind != "unknown":
        names = [name for name in subject.conda if name.startswith("tensorflow")]
        if names:
            line = subject.conda[names[0]][1]
            found.append(context.make_evidence(line, f"conda's {names[0]} brings what conda chooses"))
        elif not subject.unseen:
            found.append(
                context.make_evidence(
                    subject.base.line, "no TensorFlow is installed in it, as far as can be seen"
                )
            )
    unsure = [one.soname for one in context.libraries if one.found is None]
    if unsure and subject.base.kind != "unknown":
        for one in subject.cuda_elsewhere[:2]:
            found.append(context.make_evidence(one.line, f"whether `{one.text[:80]}` brings {unsure[0]}"))
    if tensorflow.state == "there" and tensorflow.python is None and tensorflow.installed is not None:
        found.append(context.make_evidence(tensorflow.line, "which Python pip installs for"))
    return found


RULE = DockerfileRule(
    code="TFD518",
    name="not-seen",
    title="Something that decides could not be seen in the Dockerfile",
    causes=(Cause.INCONCLUSIVE,),
    check=check,
)
