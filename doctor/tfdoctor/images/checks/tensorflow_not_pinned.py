"""The TensorFlow version is not fixed.

What it means
-------------
Without a version, pip installs the newest release that has a wheel for the image's Python on the day of the build. The
next release may need another CUDA version, and then TensorFlow finds no GPU in an image from the same Dockerfile. In a
shell, `tensorflow>=2.4` without quotes even writes to a file called =2.4, and the limit is lost.

How it is seen
--------------
The requirement has no version, or only a lower limit.

What to do
----------
Pin the version: tensorflow==2.20.0. Use quotes if there is a `<` or `>`.
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
    """Return findings about limits that the shell removes and about a version that is not pinned."""
    return [*_find_redirected_limits(context), *_find_unpinned_release(context)]


def _find_redirected_limits(context: CheckContext) -> list[Finding]:
    """Return a finding for each version limit that the shell interprets as a redirection."""
    findings = []
    for installed in context.image.packages.values():
        requirement = installed.requirement
        if not requirement.redirected_part:
            continue
        file_name = requirement.redirected_part.lstrip("<>&|").strip()
        is_input_redirection = requirement.redirected_part.startswith("<")
        input_effect = f"reads a file called {file_name}, which stops the build where there is none"
        findings.append(
            RULE.make_finding(
                Cause.INCONCLUSIVE,
                Severity.ERROR if is_input_redirection else Severity.WARNING,
                f"The shell takes `{requirement.redirected_part[0]}` for a redirection: pip gets `{requirement.text}` alone, "
                f"and the shell {input_effect if is_input_redirection else f'writes a file called {file_name}'}.",
                title=f"The limit of {requirement.text} is lost in the shell",
                evidence=[
                    context.make_evidence(
                        requirement.line,
                        f"{requirement.text}{requirement.redirected_part}",
                        requirement.source,
                    )
                ],
                remedies=[Remedy(f"Put it in quotes: '{requirement.text}{requirement.redirected_part}'")],
            )
        )
    return findings


def _find_unpinned_release(context: CheckContext) -> Sequence[Finding]:
    """Return a finding if the TensorFlow version is not limited from above."""
    tensorflow, base = context.tensorflow, context.image.base
    installed = tensorflow.installed
    if installed is None:
        if base.kind == "official" and base.tag.startswith("latest") and not base.is_pinned:
            reason = f"{base.image_name} is another image after each release; today TensorFlow {base.tensorflow_version}."
            return [_make_finding(context, reason, title="The base image's TensorFlow is not fixed")]
        return ()
    release = tensorflow.release
    if (
        tensorflow.is_pinned
        or installed.requirement.redirected_part
        or tensorflow.state not in ("there", "no-wheel")
        or release is None
    ):
        return ()
    if installed.requirement.specifier and (
        "<" in installed.requirement.specifier
        or "~=" in installed.requirement.specifier
        or ".*" in installed.requirement.specifier
    ):
        return ()
    release_intro = (
        f" For Python {tensorflow.python} that is"
        if tensorflow.python is not None
        else " With the newest Python that is"
    )
    reason = f"pip takes the newest release that has a wheel.{release_intro} {release.version} today, for CUDA {release.cuda}."
    extras = f"[{','.join(sorted(tensorflow.extras))}]" if tensorflow.extras else ""
    pinned_requirement = f"'{installed.requirement.name}{extras}=={release.version}'"
    return [_make_finding(context, reason, title="", pinned_requirement=pinned_requirement)]


def _make_finding(context: CheckContext, reason: str, title: str, pinned_requirement: str = "") -> Finding:
    """Return a finding with the remedy to pin the version.

    An empty `title` means the title of the check. If `pinned_requirement` is not empty, the remedy names it.
    """
    return RULE.make_finding(
        Cause.INCONCLUSIVE,
        Severity.WARNING,
        reason,
        title=title,
        evidence=[context.tensorflow_evidence],
        remedies=[
            Remedy(f"Write it as {pinned_requirement}." if pinned_requirement else "Name the version."),
            context.make_build_remedy(),
        ],
    )


RULE = DockerfileRule(
    code="TFD510",
    name="tensorflow-not-pinned",
    title="The TensorFlow version is not fixed",
    causes=(Cause.INCONCLUSIVE,),
    check=check,
)
