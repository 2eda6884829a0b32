"""Run the `check` rules on the image of a Dockerfile, and cite Dockerfile lines in their findings.

The image is converted to `Facts`. Unknown parts are assumed to be correct; the `not-seen` check reports them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from tfdoctor.core import versions
from tfdoctor.core.facts import FoundElsewhere
from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.core.text import join_first
from tfdoctor.images.read.tensorflow import resolve_tensorflow
from tfdoctor.planning.hypothetical_facts import EnvironmentSketch, make_facts_from_sketch
from tfdoctor.prediction.fit.images import list_fitting_tags
from tfdoctor.prediction.stages import predict
from tfdoctor.remedies import image
from tfdoctor.remedies.pip import quote
from tfdoctor.remedies.releases import list_companion_pins
from tfdoctor.remedies.target import TargetImage
from tfdoctor.rules import ALL_RULES
from tfdoctor.rules.base import RuleContext

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdoctor.compat import Release
    from tfdoctor.compat.companions import UnlimitedVersions
    from tfdoctor.core.findings import Finding
    from tfdoctor.images.checks.base import CheckContext
    from tfdoctor.images.read.libraries import ImageLibrary

__all__ = ["list_rule_findings"]

_NON_LIMITING_PACKAGES = frozenset({"pip", "setuptools", "wheel", "numpy", "protobuf"})
"""Packages whose requirements do not limit the versions of other packages."""
_GPU_SELECTION_VARIABLE = "CUDA_VISIBLE_DEVICES"
"""A variable that is omitted from the facts, because the `gpu-not-given` check reports it."""


@dataclass(slots=True)
class _Citations:
    """The Dockerfile lines that replace the evidence of the rules."""

    line_by_name: dict[str, Evidence] = field(default_factory=dict)
    """The line that brings a file, a distribution or a variable, by path, "NAME VERSION" or variable name."""
    uncertain: set[Evidence] = field(default_factory=set)
    """Evidence that does not hold if an unknown requirement of another package limits the version."""


def list_rule_findings(context: CheckContext) -> list[Finding]:
    """Return the findings of the `check` rules on the image, with Dockerfile lines as evidence.

    The result is empty if the image has no TensorFlow, if no TensorFlow can use a GPU in it, or if its TensorFlow is
    unknown. Several TensorFlow packages that are installed over each other are checked even if they are unknown.
    """
    state = context.tensorflow.state
    if context.image.base.has_musl or context.is_arm_wheel:
        return []  # no library would help
    if state not in ("there", "cpu") and (
        state != "unknown" or len(context.image.tensorflow_installations) < 2
    ):
        return []
    citations = _Citations()
    facts = make_facts_from_sketch(context.compat, _make_sketch(context, citations))
    rule_context = RuleContext(facts, context.compat, predict(facts, context.compat), image=TargetImage(""))
    return [
        _cite_dockerfile(context, citations, image.adapt_image_finding(rule_context.target, finding))
        for rule in ALL_RULES
        if rule.summary_area is not None  # the other rules are about the report itself
        for finding in rule.run(rule_context).findings
    ]


# ---------------------------------------------------------------- facts


def _make_sketch(context: CheckContext, citations: _Citations) -> EnvironmentSketch:
    """Return the image as a sketch of facts, and record the line of each fact in `citations`."""
    subject, tensorflow, release = context.image, context.tensorflow, context.tensorflow.release
    tensorflows = [
        resolve_tensorflow(entry, subject, context.compat) for entry in subject.tensorflow_installations
    ] or [tensorflow]
    distributions = {entry.package: entry.version for entry in tensorflows}
    installation_evidence = [
        context.cite(entry.requirement.source_line) for entry in subject.tensorflow_installations
    ] or [context.tensorflow_evidence]
    citations.line_by_name = {
        f"{entry.package} {entry.version}": line
        for entry, line in zip(tensorflows, installation_evidence, strict=True)
    }
    citations.line_by_name["the loader"] = context.tensorflow_evidence
    for name, version, evidence in _iter_companions(context, citations):
        distributions[name] = version
        citations.line_by_name[f"{name} {version}"] = evidence
    wrong_libraries = [
        entry.image_library
        for entry in context.libraries
        if entry.is_found is False and entry.image_library is not None
    ]
    for library in context.libraries:
        if library.image_library is not None:
            citations.line_by_name[library.image_library.path] = _cite_library(
                context, library.image_library, wrong_libraries
            )
    for name, setting in subject.environment.items():
        citations.line_by_name[name] = context.make_evidence(setting.line, f"ENV {name}={setting.text}")
    settings = subject.environment.items()
    image_libraries = [
        (entry.soname, entry.image_library, entry.is_found)
        for entry in context.libraries
        if entry.image_library is not None
    ]
    return EnvironmentSketch(
        tensorflow.version or None,
        tensorflow.package,
        tensorflow.python or (release.linux_pythons[-1] if release is not None else "3"),
        tuple(distributions.items()),
        has_gpu_code=_has_gpu_build(context),
        path_by_soname={
            **{entry.soname: None for entry in context.libraries if entry.is_found is False},
            **{soname: image_library.path for soname, image_library, is_found in image_libraries if is_found},
        },
        version_by_soname={
            soname: image_library.version
            for soname, image_library, is_found in image_libraries
            if is_found and image_library.version
        },
        unused_libraries=tuple(
            FoundElsewhere(soname.partition(".so")[0], image_library.name, image_library.path)
            for soname, image_library, is_found in image_libraries
            if is_found is False
        ),
        unversioned_packages=tuple(companion.package for companion in context.compat.companions),
        variables={
            variable: entry.value
            for variable, entry in settings
            if entry.value is not None and variable != _GPU_SELECTION_VARIABLE
        },
    )


def _cite_library(
    context: CheckContext, library: ImageLibrary, wrong_libraries: list[ImageLibrary]
) -> Evidence:
    """Return the line that installs a library as evidence.

    If the library has a wrong version, the evidence names all wrong libraries from that line.
    """
    evidence = context.cite(library.source_line)
    names = (
        [
            wrong_library.name
            for wrong_library in wrong_libraries
            if wrong_library.source_line == library.source_line
        ]
        if library in wrong_libraries
        else []
    )
    return replace(evidence, text=f"{evidence.text} has {join_first(names, 4)}") if names else evidence


def _has_gpu_build(context: CheckContext) -> bool | None:
    """Return whether the TensorFlow build has GPU code, or None if the release table decides."""
    if context.tensorflow.state == "cpu":
        return False
    return True if context.tensorflow.installed is None and context.image.base.kind == "ngc" else None


def _iter_companions(context: CheckContext, citations: _Citations) -> Iterator[tuple[str, str, Evidence]]:
    """Yield (name, version, evidence) for NumPy and protobuf.

    The version is the one that the Dockerfile pins, or else the one that pip chooses today.
    """
    tensorflow, subject = context.tensorflow, context.image
    if subject.skips_dependencies or tensorflow.release is None or not tensorflow.release.gpu:
        return
    for unlimited in context.compat.unlimited_versions:
        name = unlimited.package
        evidence = context.tensorflow_evidence
        if name in subject.packages:
            evidence = context.cite(subject.packages[name].requirement.source_line)
        version = next(
            iter(_iter_pinned_versions(subject.list_specifiers(name))), None
        ) or _find_replacement_version(context, unlimited)
        if version is None and tensorflow.installed is not None:
            version = _choose_newest(context, unlimited)
            text = f"{evidence.text}: nothing holds {name} back, so pip takes {version} on Python {tensorflow.python}"
            evidence = replace(evidence, text=text)
            other_packages = [
                project
                for project in subject.packages
                if project not in _NON_LIMITING_PACKAGES and project != tensorflow.package
            ]
            if other_packages or subject.unnamed_count or subject.unknown_lines:
                evidence = replace(evidence, text=f"{text}, unless another package's own limit does")
                citations.uncertain.add(evidence)
        if version is not None:
            yield name, version, evidence


def _iter_pinned_versions(limits: tuple[str, ...]) -> Iterator[str]:
    """Yield the versions that the limits pin."""
    for text in limits:
        for specifier in SpecifierSet(text):
            if specifier.operator in ("==", "===") and versions.is_version(specifier.version):
                yield specifier.version


def _find_replacement_version(context: CheckContext, unlimited: UnlimitedVersions) -> str | None:
    """Return the version that a later `pip install` installs instead of the one that TensorFlow requires.

    pip only warns about such a replacement. Return None if some version satisfies both, or if the same or a later
    command installs TensorFlow.
    """
    subject, name = context.image, unlimited.package
    installed = context.tensorflow.installed
    tensorflow_name = installed.requirement.name if installed is not None else ""
    last_call_by_project = {
        requirement.name: index
        for index, call in enumerate(subject.pip_calls)
        for requirement in call.requirements
    }
    if name not in subject.packages or last_call_by_project.get(name, -1) <= last_call_by_project.get(
        tensorflow_name, -1
    ):
        return None
    return (
        _choose_newest_for_limits(context, unlimited, subject.list_specifiers(name))
        if _choose_newest(context, unlimited) is None
        else None
    )


def _choose_newest(context: CheckContext, unlimited: UnlimitedVersions) -> str | None:
    """Return the newest version that all known limits and the Python version allow.

    Return None if there is none, or if the Python version or the release is unknown.
    """
    python, release = context.tensorflow.python, context.tensorflow.release
    if python is None or release is None or not versions.is_version(python):
        return None
    environment = {"python_version": python, "sys_platform": "linux"}
    requirements = [
        requirement
        for text in release.requirements
        if (requirement := versions.parse_requirement_or_none(text)) is not None
    ]
    limits = [
        str(requirement.specifier)
        for requirement in requirements
        if requirement.name.lower() == unlimited.package
        and (requirement.marker is None or requirement.marker.evaluate(environment))
    ]
    return _choose_newest_for_limits(
        context, unlimited, (*context.image.list_specifiers(unlimited.package), *limits)
    )


def _choose_newest_for_limits(
    context: CheckContext, unlimited: UnlimitedVersions, limits: tuple[str, ...]
) -> str | None:
    """Return the newest version that meets the limits and supports the image's Python, or None."""
    python = context.tensorflow.python
    if python is None or not versions.is_version(python):
        return None
    try:
        specifiers = SpecifierSet(",".join(limit for limit in limits if limit))
    except InvalidSpecifier:
        return None
    candidates = [
        version
        for version, oldest in unlimited.oldest_python.items()
        if versions.is_at_least(python, oldest) and specifiers.contains(version)
    ]
    return candidates[-1] if candidates else None


# ---------------------------------------------------------------- findings


def _cite_dockerfile(context: CheckContext, citations: _Citations, finding: Finding) -> Finding:
    """Return the finding with Dockerfile lines instead of host facts as evidence."""
    # A rule names the fact in the source of its evidence (a path, a variable) or in its text ("NAME VERSION").
    lines = [
        citations.line_by_name.get(item.source) or citations.line_by_name.get(item.text)
        for item in finding.evidence
    ]
    evidence = list(dict.fromkeys(item for item in lines if item is not None)) or [
        context.tensorflow_evidence
    ]
    if finding.cause in image.BASE_IMAGE_CAUSES:
        evidence = _cite_base_image(context, evidence)
    severity = Severity.WARNING if citations.uncertain.intersection(evidence) else finding.severity
    remedies = finding.remedies
    if finding.cause in image.BASE_IMAGE_CAUSES and context.image.base.kind == "python":
        remedies = _keep_python_image(context, remedies)
    if context.tensorflow.installed is None and context.tensorflow.state == "cpu":
        version = context.image.base.tensorflow_version
        official = context.compat.images.find_official(version) if version else None
        remedies = (context.make_build_remedy(),)
        if official is not None and official.recipe.has_working_libraries:
            tag = f"FROM {context.image.base.image_name.partition('@')[0]}-gpu"
            remedies = (Remedy("Take the image for GPUs.", (tag,)), *remedies)
    if finding.cause is Cause.CPU_ONLY_BUILD and context.image.base.kind == "cuda":
        remedies = tuple(_add_fitting_base(context, remedy) for remedy in remedies)
    return replace(finding, severity=severity, evidence=tuple(evidence), remedies=remedies)


def _keep_python_image(context: CheckContext, remedies: tuple[Remedy, ...]) -> tuple[Remedy, ...]:
    """Return the remedies for an image that has its Python from `python`. Those that keep it come first.

    An image of nvidia/cuda has no Python, so that another FROM alone would let the next `pip install` fail.
    """
    kept: list[Remedy] = []
    other_bases: list[Remedy] = []
    for remedy in remedies:
        if any(line.startswith("FROM nvidia/cuda:") for line in remedy.commands):
            text = f"{remedy.text} It has no Python: install Python and pip in it."
            other_bases.append(replace(remedy, text=text))
        else:
            kept.append(remedy)
    release = _find_release_with_extra(context)
    if release is not None and not any(
        line.startswith("RUN ") for remedy in kept for line in remedy.commands
    ):
        text = (
            f"Install TensorFlow {release.version} with NVIDIA's wheels. It finds them by itself, which "
            f"{context.tensorflow.version} does not."
        )
        requirements = (
            f"{release.package}[{release.pip_extra}]=={release.version}",
            *list_companion_pins(context.compat, release),
        )
        kept.insert(0, Remedy(text, (f"RUN pip install {' '.join(map(quote, requirements))}",)))
    return (*kept, *other_bases)


def _find_release_with_extra(context: CheckContext) -> Release | None:
    """Return the nearest release whose CUDA extra works on the image's Python, the newest of its minor release.

    Return None if a pinned version is more than one minor release away from it, or if something is not known.
    """
    python, current = context.tensorflow.python, context.tensorflow.release
    if python is None or current is None:
        return None

    def has_working_extra(release: Release) -> bool:
        problems = context.compat.list_problems(release.package, release.version)
        return (
            release.pip_extra is not None
            and not release.is_prerelease
            and python in release.linux_pythons
            and not any(
                problem.conditions.get("extra") == release.pip_extra
                and "capability" not in problem.conditions
                and versions.satisfies(python, problem.conditions.get("python", ""))
                for problem in problems
            )
        )

    def get_distance(release: Release) -> int:
        first, second = versions.parse_numbers(release.minor), versions.parse_numbers(current.minor)
        return abs(first[1] - second[1]) if first[0] == second[0] else 1000

    candidates = [release for release in reversed(context.compat.gpu_releases) if has_working_extra(release)]
    nearest = min(candidates, key=get_distance, default=None)
    if nearest is not None and context.tensorflow.is_pinned and get_distance(nearest) > 1:
        return None
    return nearest


def _add_fitting_base(context: CheckContext, remedy: Remedy) -> Remedy:
    """Return a remedy that installs the GPU build, with the FROM line that it also needs, unless the base image fits."""
    version, base = context.tensorflow.version, context.image.base
    release = context.compat.find_release(version, "tensorflow") if version else None
    if release is None or not any(line.startswith("RUN ") for line in remedy.commands):
        return remedy
    tags = list_fitting_tags(context.compat, release, context.tensorflow.python)
    if not tags or base.image_name.partition("@")[0] in {
        tag.name.replace("-runtime", kind) for tag in tags for kind in ("-runtime", "-devel")
    }:
        return remedy
    text = f"{remedy.text} That release needs another base image, too."
    return replace(remedy, text=text, commands=(f"FROM {tags[0].name}", *remedy.commands))


def _cite_base_image(context: CheckContext, evidence: list[Evidence]) -> list[Evidence]:
    """Return the evidence with the FROM line, and with notes on why CUDA libraries are missing."""
    base_evidence, note_by_evidence = context.base_evidence, {}
    if "and-cuda" in context.tensorflow.extras:
        note_by_evidence[context.tensorflow_evidence] = (
            ": this release has no such extra, and pip only warns about it"
        )
    if context.image.base.flavour == "base":
        note_by_evidence[base_evidence] = ": a `base` image has the CUDA runtime and none of its libraries"
    if not any((item.source, item.line) == (base_evidence.source, base_evidence.line) for item in evidence):
        evidence = [*evidence, base_evidence]
    return [replace(item, text=f"{item.text}{note_by_evidence.get(item, '')}") for item in evidence]
