"""NVIDIA's wheels are installed, and this TensorFlow does not find them or cannot be installed with them.

What it means
-------------
`tensorflow[and-cuda]` brings CUDA as wheels, and TensorFlow finds them by a search path in its own files. In some
releases this path is wrong (2.16.1, 2.21.0), before 2.14 there is none, and some extras cannot be installed at all
(2.15.0; 2.14 on Python 3.11).

How it is seen
--------------
tfdoctor's tables say which releases; the Dockerfile, whether the wheels' folders are made known to the loader.

What to do
----------
Take a release without this fault, or name the folders: in LD_LIBRARY_PATH, or in a file in /etc/ld.so.conf.d and then
`ldconfig`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.dockerfile.checks.base import DockerfileRule
from tfdoctor.dockerfile.read.libraries import SITE
from tfdoctor.findings import Cause, Remedy, Severity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.dockerfile.checks.base import CheckContext
    from tfdoctor.findings import Finding


def check(context: CheckContext) -> Sequence[Finding]:
    tensorflow, release = context.tensorflow, context.tensorflow.release
    if release is None or tensorflow.installed is None:
        return ()
    extra = "and-cuda" in tensorflow.extras and release.pip_extra == "and-cuda"
    found: list[Finding] = []
    if extra and tensorflow.state == "there":
        for problem in context.compat.problems_of(release.package, release.version):
            if problem.when.get("extra") != "and-cuda" or not _python(context, problem.when.get("python")):
                continue
            path = problem.cause == Cause.LIBS_NOT_ON_PATH.value
            if path and _has_search_path(context):
                continue
            if "capability" in problem.when and "nvidia-cudnn-cu12" in context.subject.packages:
                continue
            # What holds for some cards only is worth knowing, and no fault of the Dockerfile.
            severity = Severity.INFO if "capability" in problem.when else Severity.ERROR
            found.append(
                _finding(context, Cause(problem.cause), severity, problem.title, problem.text, problem.remedy)
            )
    offers = [(one.soname, one.offer) for one in context.libraries if one.found and one.offer is not None]
    served = [soname for soname, offer in offers if offer.path.startswith(SITE)]
    if (
        served
        and not extra
        and not context.compat.has(release.version, "wheels-on-runpath")
        and not _has_search_path(context)
    ):
        names = ", ".join(served[:3])
        found.append(
            _finding(
                context,
                Cause.LIBS_NOT_ON_PATH,
                Severity.ERROR,
                f"{tensorflow.name} does not look in NVIDIA's wheels",
                f"Before 2.14 TensorFlow has no search path into site-packages/nvidia: {names} … are "
                f"installed but not "
                "found.",
                "Name the folders in LD_LIBRARY_PATH, or in /etc/ld.so.conf.d and run ldconfig.",
            )
        )
    return found


def _python(context: CheckContext, condition: str | None) -> bool:
    if condition is None:
        return True
    python = context.tensorflow.python
    return python is not None and versions.satisfies(python, condition)


def _has_search_path(context: CheckContext) -> bool:
    """Return whether the loader is told of the wheels' folders, as far as can be seen."""
    path = context.subject.environment.get("LD_LIBRARY_PATH")
    in_path = path is not None and bool(re.search(r"nvidia/|cusolver|site-packages", path.value or path.text))
    return in_path or bool(context.subject.loader)


def _finding(
    context: CheckContext, cause: Cause, severity: Severity, title: str, why: str, remedy: str
) -> Finding:
    return RULE.finding(
        cause,
        severity,
        why,
        title=title,
        evidence=[context.cite_tensorflow],
        remedies=[Remedy(remedy), context.build()],
    )


RULE = DockerfileRule(
    code="TFD511",
    name="wheels-not-found",
    title="NVIDIA's wheels do not work with this TensorFlow",
    causes=(Cause.LIBS_NOT_ON_PATH, Cause.NO_MATCHING_WHEEL, Cause.GPU_TOO_OLD),
    check=check,
)
