"""The TensorFlow version is not fixed.

What it means
-------------
Without a version pip takes the newest release that has a wheel for the image's Python, on the day of the build. The
next release may need another CUDA: the same Dockerfile then makes an image without a GPU. In a shell, `tensorflow>=2.4`
without quotes even writes a file called =2.4, and the limit is lost.

How it is seen
--------------
The requirement has no version, or only a lower limit.

What to do
----------
Write the version down: tensorflow==2.20.0, in quotes where there is a `<` or `>`.
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
    return [*_report_lost_limits(context), *_tensorflow(context)]


def _report_lost_limits(context: CheckContext) -> list[Finding]:
    """Limits that the shell takes for redirections."""
    found = []
    for one in context.subject.packages.values():
        want = one.want
        if not want.cut:
            continue
        name = want.cut.lstrip("<>&|").strip()
        reads = want.cut.startswith("<")
        what = f"reads a file called {name}, which stops the build where there is none"
        found.append(
            RULE.finding(
                Cause.INCONCLUSIVE,
                Severity.ERROR if reads else Severity.WARNING,
                f"The shell takes `{want.cut[0]}` for a redirection: pip gets `{want.text}` alone, and the shell "
                f"{what if reads else f'writes a file called {name}'}.",
                title=f"The limit of {want.text} is lost in the shell",
                evidence=[context.make_evidence(want.line, f"{want.text}{want.cut}", want.source)],
                remedies=[Remedy(f"Put it in quotes: '{want.text}{want.cut}'")],
            )
        )
    return found


def _tensorflow(context: CheckContext) -> Sequence[Finding]:
    tensorflow, base = context.tensorflow, context.subject.base
    one = tensorflow.installed
    if one is None:
        if base.kind == "official" and base.tag.startswith("latest") and not base.pinned:
            why = f"{base.reference} is another image after each release; today TensorFlow {base.tensorflow}."
            return [_finding(context, why, "The base image's TensorFlow is not fixed")]
        return ()
    release = tensorflow.release
    if tensorflow.pinned or one.want.cut or tensorflow.state not in ("there", "no-wheel") or release is None:
        return ()
    if one.want.specifier and (
        "<" in one.want.specifier or "~=" in one.want.specifier or ".*" in one.want.specifier
    ):
        return ()
    today = (
        f" For Python {tensorflow.python} that is"
        if tensorflow.python is not None
        else " With the newest Python that is"
    )
    why = f"pip takes the newest release that has a wheel.{today} {release.version} today, for CUDA {release.cuda}."
    extras = f"[{','.join(sorted(tensorflow.extras))}]" if tensorflow.extras else ""
    return [_finding(context, why, "", f"'{one.want.name}{extras}=={release.version}'")]


def _finding(context: CheckContext, why: str, title: str, instead: str = "") -> Finding:
    return RULE.finding(
        Cause.INCONCLUSIVE,
        Severity.WARNING,
        why,
        title=title,
        evidence=[context.cite_tensorflow],
        remedies=[Remedy(f"Write it as {instead}." if instead else "Name the version."), context.build()],
    )


RULE = DockerfileRule(
    code="TFD510",
    name="tensorflow-not-pinned",
    title="The TensorFlow version is not fixed",
    causes=(Cause.INCONCLUSIVE,),
    check=check,
)
