"""There is no such TensorFlow release to install.

What it means
-------------
The version was never published, or it is a tensorflow-gpu of 2.12 or newer. That package is retired: its version 2.12.0
is a source package whose installation stops with a message. Since 2.1, `tensorflow` itself has the GPU code.

How it is seen
--------------
The version is looked up in tfdoctor's table of all releases.

What to do
----------
Install an existing release of the tensorflow package.
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
    """Return a finding if the release does not exist, is retired, or is newer than the table."""
    tensorflow = context.tensorflow
    installed = tensorflow.installed
    if installed is None:
        return ()
    if tensorflow.state == "retired":
        newest_note = (
            "" if installed.requirement.specifier else " Without a version pip takes the newest, 2.12.0."
        )
        return [
            _make_finding(
                context,
                "tensorflow-gpu is retired",
                f"tensorflow-gpu 2.12.0 is an empty package whose installation stops with an error.{newest_note}",
                "Install tensorflow; with CUDA from wheels tensorflow[and-cuda]. 2.11.0 is the last tensorflow-gpu.",
            )
        ]
    if tensorflow.state == "newer":
        return [
            RULE.make_finding(
                Cause.INCONCLUSIVE,
                Severity.WARNING,
                f"The newest release that this tfdoctor knows is {context.compat.newest.version}.",
                title=f"{tensorflow.written_name} is newer than tfdoctor's table",
                evidence=[context.tensorflow_evidence],
            )
        ]
    if tensorflow.state != "no-such":
        return ()
    nearest = context.compat.find_nearest_versions(installed.requirement.specifier.split(",", maxsplit=1)[0])
    return [
        _make_finding(
            context,
            f"There is no {tensorflow.written_name}",
            f"No release of {tensorflow.package} fits `{installed.requirement.specifier}`: pip finds none.",
            f"The nearest are {', '.join(nearest)}." if nearest else "Take a release that exists.",
        )
    ]


def _make_finding(context: CheckContext, title: str, reason: str, remedy: str) -> Finding:
    """Return a finding about a release that cannot be installed."""
    return RULE.make_finding(
        Cause.NO_MATCHING_WHEEL,
        Severity.ERROR,
        reason,
        title=title,
        evidence=[context.tensorflow_evidence],
        remedies=[Remedy(remedy), context.make_build_remedy()],
    )


RULE = DockerfileRule(
    code="TFD508",
    name="no-such-release",
    title="There is no such TensorFlow to install",
    causes=(Cause.NO_MATCHING_WHEEL, Cause.INCONCLUSIVE),
    check=check,
)
