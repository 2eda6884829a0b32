"""What one `pip install` is told cannot be installed together.

What it means
-------------
pip searches for versions that satisfy all requirements of one command and of the packages that it installs. If there
are none, pip stops with `ResolutionImpossible`, often after long downloads, and so does the build.

How it is seen
--------------
The requirements of the TensorFlow release are in tfdoctor's tables. For other packages, uv or pip requests the metadata
from the package index. If that is not possible, as without a network,
`tfdoctor build --check` has a finding that says so, and `tfdoctor lint` a line that calls the file incompletely checked.

What to do
----------
Loosen the limit that the finding names, or use a TensorFlow release that is compatible with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from tfdoctor.core import versions
from tfdoctor.core.findings import Cause, Remedy, Severity
from tfdoctor.images.checks.base import DockerfileRule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfdoctor.compat import Release
    from tfdoctor.core.findings import Finding
    from tfdoctor.images.checks.base import CheckContext
    from tfdoctor.images.read.image_model import PipInstall
    from tfdoctor.images.read.installs import PipRequirement

FIRST_STRICT_UBUNTU = "22.04"
"""The first Ubuntu LTS release whose pip refuses conflicting requirements."""
JUST_ABOVE_SUFFIX = ".0.0.0.1"
"""A suffix that makes a version that is just above another one, such as 2.4.0.0.0.1."""


def check(context: CheckContext) -> Sequence[Finding]:
    """Return at most one finding for each pip command, unless the image's pip ignores conflicts."""
    if _has_old_pip(context):
        return ()
    findings = []
    for call in context.image.pip_calls:
        conflict = next(_find_known_conflicts(context, call), None)
        findings += [conflict] if conflict is not None else _query_index(context, call)
    return findings


def _has_old_pip(context: CheckContext) -> bool:
    """Return whether the image's pip may be older than 20.3. Such a pip installs conflicting requirements.

    The `check` rules then examine the versions that it installs.
    """
    subject = context.image
    if "pip" in subject.packages:
        return False
    system, python = subject.base.ubuntu_release, context.tensorflow.python
    if system is not None and not versions.is_at_least(system, FIRST_STRICT_UBUNTU):
        return True
    # Debian 11, the first release with Python 3.9, is also the first with pip 20.3.
    return subject.base.kind == "plain" and python is not None and not versions.is_at_least(python, "3.9")


def _find_known_conflicts(context: CheckContext, call: PipInstall) -> Iterator[Finding]:
    """Yield findings: a requirement of the call conflicts with a constraint or with TensorFlow."""
    tensorflow_requirement = next(
        (requirement for requirement in call.requirements if _is_tensorflow(context, requirement)), None
    )
    release = context.tensorflow.release
    specifier_by_project = (
        dict(_iter_release_limits(release, call.python))
        if tensorflow_requirement is not None and release is not None
        else {}
    )
    for requirement in call.requirements:
        constraint_specifiers = [
            constraint.specifier
            for constraint in call.constraints
            if constraint.name == requirement.name and constraint.specifier
        ]
        for specifier, source_phrase in (
            *((specifier, "the constraints ask") for specifier in constraint_specifiers),
            *_find_release_limit(specifier_by_project, requirement, release),
        ):
            if requirement.is_known and not _can_both_hold(requirement.specifier, specifier):
                yield _make_finding(
                    context,
                    requirement,
                    f"{requirement.name}{requirement.specifier} is asked for, and {source_phrase} for "
                    f"{requirement.name}{specifier}.",
                )


def _is_tensorflow(context: CheckContext, requirement: PipRequirement) -> bool:
    """Return whether a requirement is the one that installs the image's TensorFlow."""
    installed, release = context.tensorflow.installed, context.tensorflow.release
    if context.tensorflow.state != "there" or release is None:
        return False
    if installed is not None:
        return requirement.name == installed.requirement.name
    # The base has it, and the command pins the same version. Without a pin, pip would replace it.
    return (requirement.name, requirement.specifier) == (release.package, f"=={release.version}")


def _find_release_limit(
    specifier_by_project: dict[str, str], requirement: PipRequirement, release: Release | None
) -> Iterator[tuple[str, str]]:
    """Yield the specifier that the release requires for a package, with a phrase for the message.

    Nothing is yielded if the release does not require the package. `specifier_by_project` contains its requirements.
    """
    specifier = specifier_by_project.get(requirement.name, "")
    if specifier and release is not None:
        yield specifier, f"TensorFlow {release.version} asks"


def _iter_release_limits(release: Release, python: str | None) -> Iterator[tuple[str, str]]:
    """Yield (project, specifier) for each requirement of a release on this Python, except those of extras."""
    environment = versions.make_marker_environment(python) if python is not None else {}
    for text in release.requirements:
        requirement = versions.parse_requirement_or_none(text)
        if requirement is None or (requirement.marker is not None and python is None):
            continue
        if requirement.marker is None or requirement.marker.evaluate(environment):
            yield canonicalize_name(requirement.name), str(requirement.specifier)


def _can_both_hold(first: str, second: str) -> bool:
    """Return whether any version meets both specifiers, or whether this is unknown.

    It is enough to try 0, the versions in the specifiers, and a version just above each of them.
    """
    try:
        combined = SpecifierSet(f"{first},{second}".strip(","))
    except InvalidSpecifier:
        return True
    limit_versions = [specifier.version.removesuffix(".*") for specifier in combined]
    limit_versions = [version for version in limit_versions if versions.is_version(version)]
    return any(
        combined.contains(version, prereleases=True)
        for version in ["0", *limit_versions, *(limit + JUST_ABOVE_SUFFIX for limit in limit_versions)]
    )


def _query_index(context: CheckContext, call: PipInstall) -> list[Finding]:
    """Query the package index about a call, and return at most one finding.

    The index is queried only if that is allowed, and if the call installs the image's TensorFlow, has at least one
    other requirement or constraint, and is completely known.
    """
    requirements = [
        requirement
        for requirement in call.requirements
        if requirement.name not in ("pip", "setuptools", "wheel")
    ]
    if context.query_index is None or len(requirements) + len(call.constraints) < 2:
        return []
    if (
        not any(_is_tensorflow(context, requirement) for requirement in call.requirements)
        or not call.is_complete
        or call.python is None
    ):
        return []
    reply = context.query_index(
        [_format_requirement(requirement) for requirement in requirements],
        [_format_requirement(requirement) for requirement in call.constraints],
        call.python,
    )
    if reply.conflict_reason:
        others = [requirement for requirement in requirements if not _is_tensorflow(context, requirement)]
        return [_make_finding(context, (others or requirements)[-1], reply.conflict_reason)]
    if reply.unknown_reason:
        reason = f"Whether pip can install all of it together could not be checked: {reply.unknown_reason}"
        return [
            RULE.make_finding(
                Cause.INCONCLUSIVE,
                Severity.INFO,
                reason,
                title="Whether the requirements can be installed together could not be checked",
                evidence=[context.cite(requirement.source_line) for requirement in requirements[:4]],
            )
        ]
    return []


def _format_requirement(requirement: PipRequirement) -> str:
    """Return a requirement in the syntax of a requirements file."""
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return f"{requirement.name}{extras}{requirement.specifier}" + (
        f"; {requirement.marker}" if requirement.marker else ""
    )


def _make_finding(context: CheckContext, requirement: PipRequirement, reason: str) -> Finding:
    """Return a finding about a requirement that conflicts with others."""
    return RULE.make_finding(
        Cause.PACKAGE_CONFLICT,
        Severity.ERROR,
        reason,
        evidence=[context.cite(requirement.source_line), context.tensorflow_evidence],
        remedies=[
            Remedy(
                f"Loosen {_format_requirement(requirement)}, or replace {context.tensorflow.written_name} with a "
                "TensorFlow that accepts it."
            ),
            context.make_build_remedy(),
        ],
    )


RULE = DockerfileRule(
    code="TFD519",
    name="requirements-conflict",
    title="The requirements cannot be installed together",
    causes=(Cause.PACKAGE_CONFLICT, Cause.INCONCLUSIVE),
    check=check,
)
