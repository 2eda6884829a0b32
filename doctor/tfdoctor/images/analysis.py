"""Check a Dockerfile, and return findings and a verdict.

This module reads no files and no network by itself: the caller passes functions that do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdoctor.core.findings import Cause, Severity, Verdict
from tfdoctor.images.checks import DOCKERFILE_RULES
from tfdoctor.images.checks.base import CheckContext
from tfdoctor.images.checks.not_seen import list_unknown_parts
from tfdoctor.images.facts import list_rule_findings
from tfdoctor.images.read.image_model import parse_image
from tfdoctor.images.read.reader import parse_dockerfile

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfdoctor.compat import Compat
    from tfdoctor.core.findings import Finding
    from tfdoctor.images.checks.base import IndexQuery
    from tfdoctor.images.read.compose import ContainerStart
    from tfdoctor.images.read.image_model import ImageModel
    from tfdoctor.images.read.models import Dockerfile
    from tfdoctor.images.read.tensorflow import ImageTensorFlow

__all__ = ["DockerfileReport", "check_dockerfile"]


@dataclass(frozen=True, slots=True)
class DockerfileReport:
    """The result of a Dockerfile check."""

    name: str
    """The name of the Dockerfile, for messages."""
    dockerfile: Dockerfile
    image: ImageModel
    tensorflow: ImageTensorFlow
    findings: tuple[Finding, ...]
    """Sorted by severity. Equally severe findings: about the base image, of the `check` rules, others."""
    verdict: Verdict


def check_dockerfile(
    text: str,
    compat: Compat,
    *,
    name: str = "Dockerfile",
    read: Callable[[str], str | None] = lambda _: None,
    start: ContainerStart | None = None,
    query_index: IndexQuery | None = None,
) -> DockerfileReport | None:
    """Check a Dockerfile, and return the report, or None if it has no FROM.

    `read` returns the text of a path in the build context, or None. `start` describes how the container is started; None
    if that is not known. `query_index` asks the package index whether requirements can be installed together.
    """
    file = parse_dockerfile(text)
    if not file.stages:
        return None
    image = parse_image(file, compat, read)
    if start is not None:
        image.platform = image.platform or start.platform
    context = CheckContext(image, compat, name, start, query_index)
    base_findings = [
        finding for rule in DOCKERFILE_RULES if rule.is_about_base for finding in rule.check(context)
    ]
    other_findings = [
        finding for rule in DOCKERFILE_RULES if not rule.is_about_base for finding in rule.check(context)
    ]
    findings = [*base_findings, *list_rule_findings(context), *other_findings]
    findings.sort(key=lambda finding: -finding.severity)
    return DockerfileReport(
        name,
        file,
        context.image,
        context.tensorflow,
        tuple(findings),
        _make_verdict(context, tuple(findings)),
    )


def _make_verdict(context: CheckContext, findings: tuple[Finding, ...]) -> Verdict:
    """Return the verdict for the findings.

    An error means that TensorFlow will not use the GPU. A warning or an unknown part makes the verdict unknown.
    """
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    name = context.tensorflow.name or "TensorFlow"
    if errors:
        rest_note = f" ({len(errors) - 1} more below)" if len(errors) > 1 else ""
        return Verdict(False, errors[0].cause, f"This will not work: {errors[0].title}.{rest_note}")
    unknowns = list_unknown_parts(context)
    if (
        unknowns
        or context.tensorflow.state != "there"
        or any(library.is_found is None for library in context.libraries)
    ):
        reason = f": {unknowns[0].text}" if unknowns else ""
        return Verdict(
            None, Cause.INCONCLUSIVE, f"Found nothing wrong, but not everything could be checked{reason}."
        )
    if any(finding.severity is Severity.WARNING for finding in findings):
        return Verdict(
            None,
            Cause.INCONCLUSIVE,
            f"{name} can see a GPU in this image, if the warnings turn out to be harmless.",
        )
    return Verdict(True, Cause.HEALTHY, f"Found nothing in it that keeps {name} from using a GPU.")
