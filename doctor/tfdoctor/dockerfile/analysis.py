"""A Dockerfile's text → findings and a verdict. Pure but for `read`, which gives the files beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdoctor.dockerfile.checks import DOCKERFILE_RULES
from tfdoctor.dockerfile.checks.base import CheckContext
from tfdoctor.dockerfile.checks.not_seen import unseen_of
from tfdoctor.dockerfile.facts import findings_of
from tfdoctor.dockerfile.read.image_model import subject_of
from tfdoctor.dockerfile.read.reader import read_dockerfile
from tfdoctor.findings import Cause, Severity, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfdoctor.compat import Compat
    from tfdoctor.dockerfile.checks.base import Foresee
    from tfdoctor.dockerfile.read.compose import Start
    from tfdoctor.dockerfile.read.image_model import Subject
    from tfdoctor.dockerfile.read.models import Dockerfile
    from tfdoctor.dockerfile.read.tensorflow import TensorFlow
    from tfdoctor.findings import Finding

__all__ = ["Judged", "judge_dockerfile"]


@dataclass(frozen=True, slots=True)
class Judged:
    """Everything that there is to say of a Dockerfile."""

    name: str
    file: Dockerfile
    subject: Subject
    tensorflow: TensorFlow
    findings: tuple[Finding, ...]
    """The worst first; among equals those about the base image, then those of the rules of `check`."""
    verdict: Verdict


def judge_dockerfile(
    text: str,
    compat: Compat,
    *,
    name: str = "Dockerfile",
    read: Callable[[str], str | None] = lambda _: None,
    start: Start | None = None,
    foresee: Foresee | None = None,
) -> Judged | None:
    """Return what will not work of a Dockerfile.

    None if it has no FROM. `read`: path in the context → text.

    start: how its containers are started, where that is known. foresee: asks the package index.
    """
    file = read_dockerfile(text)
    if not file.stages:
        return None
    context = CheckContext(subject_of(file, compat, read), compat, name, start, foresee)
    of_base = [finding for rule in DOCKERFILE_RULES if rule.first for finding in rule.check(context)]
    others = [finding for rule in DOCKERFILE_RULES if not rule.first for finding in rule.check(context)]
    findings = [*of_base, *findings_of(context), *others]
    findings.sort(key=lambda finding: -finding.severity)
    return Judged(
        name, file, context.subject, context.tensorflow, tuple(findings), _verdict(context, tuple(findings))
    )


def _verdict(context: CheckContext, findings: tuple[Finding, ...]) -> Verdict:
    """No GPU where there is an error; not known where something that decides was not seen."""
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    what = context.tensorflow.name or "TensorFlow"
    if errors:
        more = f" ({len(errors) - 1} more below)" if len(errors) > 1 else ""
        return Verdict(False, errors[0].cause, f"This will not work: {errors[0].title}.{more}")
    unseen = unseen_of(context)
    if unseen or context.tensorflow.state != "there" or any(one.found is None for one in context.libraries):
        why = f": {unseen[0].text}" if unseen else ""
        return Verdict(
            None, Cause.INCONCLUSIVE, f"Found nothing wrong, but not everything could be checked{why}."
        )
    if any(finding.severity is Severity.WARNING for finding in findings):
        return Verdict(
            None,
            Cause.INCONCLUSIVE,
            f"{what} can see a GPU in this image, if the warnings turn out to be harmless.",
        )
    return Verdict(True, Cause.HEALTHY, f"Found nothing in it that keeps {what} from using a GPU.")
