"""NVIDIA's wheels are installed, and this TensorFlow does not find them or cannot be installed with them.

What it means
-------------
`tensorflow[and-cuda]` installs CUDA as wheels, and TensorFlow finds them by a search path in its own libraries. This
path is wrong in some releases (2.16.1, 2.21.0) and missing before 2.14. Some extras cannot be installed at all (2.15.0;
2.14 on Python 3.11).

How it is seen
--------------
tfdoctor's tables list these releases. The Dockerfile shows whether the loader knows the wheels' folders.

What to do
----------
Use a release without this defect. Or name the folders in LD_LIBRARY_PATH, or in a file in /etc/ld.so.conf.d, and then
run `ldconfig`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.findings import Cause, Remedy, Severity
from tfdoctor.images.checks.base import DockerfileRule
from tfdoctor.images.read.libraries import SITE_FOLDER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.core.findings import Finding
    from tfdoctor.images.checks.base import CheckContext


def check(context: CheckContext) -> Sequence[Finding]:
    """Return findings about problems of the `and-cuda` extra and wheels that the loader does not find."""
    tensorflow, release = context.tensorflow, context.tensorflow.release
    if release is None or tensorflow.installed is None:
        return ()
    has_extra = "and-cuda" in tensorflow.extras and release.pip_extra == "and-cuda"
    findings: list[Finding] = []
    if has_extra and tensorflow.state == "there":
        for problem in context.compat.list_problems(release.package, release.version):
            if problem.conditions.get("extra") != "and-cuda" or not _matches_python(
                context, problem.conditions.get("python")
            ):
                continue
            is_path_problem = problem.cause == Cause.LIBS_NOT_ON_PATH.value
            if is_path_problem and _has_search_path(context):
                continue
            if "capability" in problem.conditions and "nvidia-cudnn-cu12" in context.image.packages:
                continue
            # A problem that depends on the GPU is worth reporting, but it is not an error in the Dockerfile.
            severity = Severity.INFO if "capability" in problem.conditions else Severity.ERROR
            findings.append(
                _make_finding(
                    context, Cause(problem.cause), severity, problem.title, problem.text, problem.remedy
                )
            )
    found_libraries = [
        (library.soname, library.image_library)
        for library in context.libraries
        if library.is_found and library.image_library is not None
    ]
    wheel_libraries = [
        soname for soname, image_library in found_libraries if image_library.path.startswith(SITE_FOLDER)
    ]
    if (
        wheel_libraries
        and not has_extra
        and not context.compat.has_trait(release.version, "wheels-on-runpath")
        and not _has_search_path(context)
    ):
        names = ", ".join(wheel_libraries[:3])
        findings.append(
            _make_finding(
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
    return findings


def _matches_python(context: CheckContext, condition: str | None) -> bool:
    """Return whether a condition on the Python version is met. It is not if the version is unknown."""
    if condition is None:
        return True
    python = context.tensorflow.python
    return python is not None and versions.satisfies(python, condition)


def _has_search_path(context: CheckContext) -> bool:
    """Return whether the Dockerfile adds folders to the loader's search path that may have the wheels."""
    path = context.image.environment.get("LD_LIBRARY_PATH")
    is_in_variable = path is not None and bool(
        re.search(r"nvidia/|cusolver|site-packages", path.value or path.text)
    )
    return is_in_variable or bool(context.image.loader_lines)


def _make_finding(
    context: CheckContext, cause: Cause, severity: Severity, title: str, reason: str, remedy: str
) -> Finding:
    """Return a finding about NVIDIA's wheels."""
    return RULE.make_finding(
        cause,
        severity,
        reason,
        title=title,
        evidence=[context.tensorflow_evidence],
        remedies=[Remedy(remedy), context.make_build_remedy()],
    )


RULE = DockerfileRule(
    code="TFD511",
    name="wheels-not-found",
    title="NVIDIA's wheels do not work with this TensorFlow",
    causes=(Cause.LIBS_NOT_ON_PATH, Cause.NO_MATCHING_WHEEL, Cause.GPU_TOO_OLD),
    check=check,
)
