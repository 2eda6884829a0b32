"""Something that decides could not be seen in the Dockerfile.

What it means
-------------
A part of the image is unknown: your own base image, a requirements file that is not beside the Dockerfile, a version
that --build-arg sets, the lock file of another tool, or CUDA from a runfile. tfdoctor does not guess the content.

How it is seen
--------------
tfdoctor records each part that it could not read.

What to do
----------
Keep the requirements beside the Dockerfile, give each ARG a default, or examine the image itself: `tfdoctor verify`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.findings import Cause, Remedy, Severity
from tfdoctor.images.checks.base import DockerfileRule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.core.findings import Evidence, Finding
    from tfdoctor.images.checks.base import CheckContext

MAX_EVIDENCE = 8
"""The largest number of unknown parts in the finding."""


def check(context: CheckContext) -> Sequence[Finding]:
    """Return a finding that lists the unknown parts, if there are any."""
    unknowns = list_unknown_parts(context)
    if not unknowns:
        return ()
    return [
        RULE.make_finding(
            Cause.INCONCLUSIVE,
            Severity.INFO,
            "; ".join(evidence.text for evidence in unknowns[:MAX_EVIDENCE]) + ".",
            evidence=unknowns[:MAX_EVIDENCE],
            remedies=[Remedy("Build the image and examine it.", ("tfdoctor verify IMAGE",))],
        )
    ]


def list_unknown_parts(context: CheckContext) -> list[Evidence]:
    """Return evidence for each unknown part that may change the result."""
    subject, tensorflow = context.image, context.tensorflow
    evidence: list[Evidence] = []
    if subject.base.kind == "unknown":
        evidence.append(context.make_evidence(subject.base.line, subject.base.unknown_reason))
    evidence += [context.make_evidence(line.line, line.text) for line in subject.unknown_lines]
    if tensorflow.state == "unknown" and tensorflow.installed is not None:
        evidence.append(
            context.make_evidence(
                tensorflow.line, f"which release `{tensorflow.written_name}` is", tensorflow.source
            )
        )
    elif tensorflow.state == "unknown":
        evidence.append(
            context.make_evidence(subject.base.line, f"which TensorFlow is in {subject.base.image_name}")
        )
    if tensorflow.state == "none" and subject.base.kind != "unknown":
        names = [name for name in subject.conda_packages if name.startswith("tensorflow")]
        if names:
            _, line = subject.conda_packages[names[0]]
            evidence.append(context.make_evidence(line, f"conda's {names[0]} brings what conda chooses"))
        elif not subject.unknown_lines:
            evidence.append(
                context.make_evidence(
                    subject.base.line, "no TensorFlow is installed in it, as far as can be seen"
                )
            )
    unknown_sonames = [library.soname for library in context.libraries if library.is_found is None]
    if unknown_sonames and subject.base.kind != "unknown":
        for source_line in subject.cuda_from_other_sources[:2]:
            evidence.append(
                context.make_evidence(
                    source_line.line, f"whether `{source_line.text[:80]}` brings {unknown_sonames[0]}"
                )
            )
    if tensorflow.state == "there" and tensorflow.python is None and tensorflow.installed is not None:
        evidence.append(context.make_evidence(tensorflow.line, "which Python pip installs for"))
    return evidence


RULE = DockerfileRule(
    code="TFD518",
    name="not-seen",
    title="Something that decides could not be seen in the Dockerfile",
    causes=(Cause.INCONCLUSIVE,),
    check=check,
)
