"""There is no such TensorFlow release to install.

What it means
-------------
The version was never published, or it is a tensorflow-gpu from 2.12 on: that name is retired, and its 2.12.0 is a
source package whose installation stops with a message. From 2.1 on `tensorflow` itself has the GPU code.

How it is seen
--------------
The version is looked up in tfdoctor's table of every release.

What to do
----------
Install a release that exists, under the name tensorflow.
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
    tensorflow = context.tensorflow
    one = tensorflow.installed
    if one is None:
        return ()
    if tensorflow.state == "retired":
        any_version = "" if one.want.specifier else " Without a version pip takes the newest, 2.12.0."
        return [
            _finding(
                context,
                "tensorflow-gpu is retired",
                f"tensorflow-gpu 2.12.0 is an empty package whose installation stops with an error.{any_version}",
                "Install tensorflow; with CUDA from wheels tensorflow[and-cuda]. 2.11.0 is the last tensorflow-gpu.",
            )
        ]
    if tensorflow.state == "newer":
        return [
            RULE.finding(
                Cause.INCONCLUSIVE,
                Severity.WARNING,
                f"The newest release that this tfdoctor knows is {context.compat.newest.version}.",
                title=f"{tensorflow.text} is newer than tfdoctor's table",
                evidence=[context.cite_tensorflow],
            )
        ]
    if tensorflow.state != "no-such":
        return ()
    near = context.compat.nearest_versions(one.want.specifier.split(",", maxsplit=1)[0])
    return [
        _finding(
            context,
            f"There is no {tensorflow.text}",
            f"No release of {tensorflow.package} fits `{one.want.specifier}`: pip finds none.",
            f"The nearest are {', '.join(near)}." if near else "Take a release that exists.",
        )
    ]


def _finding(context: CheckContext, title: str, why: str, instead: str) -> Finding:
    return RULE.finding(
        Cause.NO_MATCHING_WHEEL,
        Severity.ERROR,
        why,
        title=title,
        evidence=[context.cite_tensorflow],
        remedies=[Remedy(instead), context.build()],
    )


RULE = DockerfileRule(
    code="TFD508",
    name="no-such-release",
    title="There is no such TensorFlow to install",
    causes=(Cause.NO_MATCHING_WHEEL, Cause.INCONCLUSIVE),
    check=check,
)
