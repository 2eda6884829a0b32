"""What is known to be wrong with the very release that wrote a log (compat/problems.toml), where that can be why."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfdoctor.causes import Cause
from tfdoctor.causes.steps import Remedy
from tfdoctor.compat.problems import capability_matches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdoctor.compat.problems import Problem
    from tfdoctor.logs.log_context import Case, Decision

__all__ = ["describe_known_problems"]

_PACKAGES = ("tensorflow", "tensorflow-gpu")
_LIBRARY = re.compile(r"lib(?!tensorflow)\w{2,40}\.so(?:\.\d{1,4}){1,3}")
_MAX_PROBLEMS = 2
_WITHOUT_NEWS = frozenset({Cause.WINDOWS_NATIVE_UNSUPPORTED, Cause.NVML_MISSING})
"""What the cause itself tells of the release."""


def describe_known_problems(case: Case, decision: Decision) -> tuple[str, tuple[Remedy, ...]]:
    """Sentences and what to do; both empty where the log does not name its release, or nothing is known of it."""
    said = []
    remedies = []
    for problem in list(_list_problems(case, decision))[:_MAX_PROBLEMS]:
        where = {
            "and-cuda": " (as tensorflow[and-cuda])",
            "tensorflow/tensorflow": " (in the image tensorflow/tensorflow)",
        }.get(problem.when.get("extra") or problem.when.get("image") or "", "")
        said.append(f"Known of this release{where}: {problem.title}. {problem.text}")
        remedies.append(Remedy(f"If that is it: {problem.remedy}"))
    return " ".join(said), tuple(remedies)


def _list_problems(case: Case, decision: Decision) -> Iterator[Problem]:
    version = case.origin.version
    if (
        version is None
        or decision.cause in _WITHOUT_NEWS
        or decision.cause in (Cause.HEALTHY, Cause.INCONCLUSIVE)
    ):
        return
    rows = [
        row
        for row in case.compat.releases
        if row.package in _PACKAGES and not row.is_prerelease and version in (row.version, row.minor)
    ]
    gpu = [row for row in rows if row.gpu] or rows
    causes = {decision.cause.value, *(cause.value for cause in decision.maybe)}
    for problem in case.compat.problems:
        concerned = [row for row in gpu if row.package in problem.package]
        if (
            concerned
            and problem.severity != "info"
            and problem.cause in causes
            and all(problem.applies(row.package, row.version) for row in concerned)
            and _fits(case, problem)
        ):
            yield problem


def _fits(case: Case, problem: Problem) -> bool:
    """Return whether the log does not speak against it, and says what cannot be left open: the card, the system."""
    when = problem.when
    if "python" in when or ("platform" in when and not case.windows):
        return False
    if "capability" in when:
        capability = case.capability()
        if capability is None or not capability_matches(capability, when["capability"]):
            return False
    if "image" in when and not case.in_container():
        return False
    if case.windows and "platform" not in when and problem.area in ("libraries", "images"):
        return False
    about = _LIBRARY.search(problem.text)
    missing = {one.soname for one in case.toolkit}
    return not (about and missing) or missing == {about[0]}  # where others are missing, too, that is not why
