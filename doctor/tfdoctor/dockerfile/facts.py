"""A Dockerfile's image as Facts: the rules of `check` judge it, and what they find is told in lines of the Dockerfile.

What could not be seen is assumed to fit: the check `not-seen` tells of it. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from tfdoctor import versions
from tfdoctor.advice import image
from tfdoctor.advice.target import InImage
from tfdoctor.dockerfile.read.tensorflow import tensorflow_from
from tfdoctor.facts import FoundElsewhere
from tfdoctor.findings import Evidence, Remedy, Severity
from tfdoctor.plan.hypothetical_facts import Sketch, make_sketched_facts
from tfdoctor.predict import predict
from tfdoctor.rules import ALL_RULES
from tfdoctor.rules.base import RuleContext

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdoctor.compat.companions import Ladder
    from tfdoctor.dockerfile.checks.base import CheckContext
    from tfdoctor.dockerfile.read.libraries import LibraryOffer
    from tfdoctor.findings import Finding

__all__ = ["findings_of"]

_PLAIN = frozenset({"pip", "setuptools", "wheel", "numpy", "protobuf"})
"""Packages that put no limit on others."""


_OF_CARDS = "CUDA_VISIBLE_DEVICES"
"""Which cards there will be is not known: the check `gpu-not-given` tells what hides any."""


@dataclass(slots=True)
class _Places:
    """Where in the Dockerfile that comes from what the rules name as evidence."""

    of: dict[str, Evidence] = field(default_factory=dict)
    """A file, a distribution with its version, a variable → the line that brings it."""
    unsure: set[Evidence] = field(default_factory=set)
    """Those that something else may change."""


def findings_of(context: CheckContext) -> list[Finding]:
    """Return what the rules of `check` find in the image: told with lines of the Dockerfile, and with what to write
    into it.

    Nothing where none gets into it, or where it is not known which, but for several over each other.
    """
    state = context.tensorflow.state
    if state not in ("there", "cpu") and (state != "unknown" or len(context.subject.both) < 2):
        return []
    places = _Places()
    facts = make_sketched_facts(context.compat, _sketch(context, places))
    judging = RuleContext(facts, context.compat, predict(facts, context.compat), image=InImage(""))
    return [
        _add_lines(context, places, image.adapt_image_finding(judging.target, finding))
        for rule in ALL_RULES
        if rule.shown_in is not None  # the others are about the report
        for finding in rule.run(judging).findings
    ]


# ---------------------------------------------------------------- facts


def _sketch(context: CheckContext, places: _Places) -> Sketch:
    subject, tensorflow, release = context.subject, context.tensorflow, context.tensorflow.release
    own = [tensorflow_from(one, subject, context.compat) for one in subject.both] or [tensorflow]
    distributions = {one.package: one.version for one in own}
    seen = [context.cite(one.want.seen) for one in subject.both] or [context.cite_tensorflow]
    places.of = {f"{one.package} {one.version}": at for one, at in zip(own, seen, strict=True)}
    places.of["the loader"] = context.cite_tensorflow
    for name, version, evidence in _companions(context, places):
        distributions[name] = version
        places.of[f"{name} {version}"] = evidence
    others = [one.offer for one in context.libraries if one.found is False and one.offer is not None]
    for library in context.libraries:
        if library.offer is not None:
            places.of[library.offer.path] = _cite_offer(context, library.offer, others)
    for name, setting in subject.environment.items():
        places.of[name] = context.make_evidence(setting.line, f"ENV {name}={setting.text}")
    settings = subject.environment.items()
    known = [(one.soname, one.offer, one.found) for one in context.libraries if one.offer is not None]
    return Sketch(
        tensorflow.version or None,
        tensorflow.package,
        tensorflow.python or (release.linux_pythons[-1] if release is not None else "3"),
        tuple(distributions.items()),
        gpu=_gpu(context),
        paths={
            **{one.soname: None for one in context.libraries if one.found is False},
            **{soname: offer.path for soname, offer, found in known if found},
        },
        versions={soname: offer.version for soname, offer, found in known if found and offer.version},
        found=tuple(
            FoundElsewhere(soname.partition(".so")[0], offer.name, offer.path)
            for soname, offer, found in known
            if found is False
        ),
        modules=tuple(row.package for row in context.compat.companions),
        variables={k: one.value for k, one in settings if one.value is not None and k != _OF_CARDS},
    )


def _cite_offer(context: CheckContext, offer: LibraryOffer, others: list[LibraryOffer]) -> Evidence:
    """Return the line that brings a library, with what else it brings in another version than is wanted."""
    at = context.cite(offer.by)
    names = [other.name for other in others if other.by == offer.by] if offer in others else []
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return replace(at, text=f"{at.text} has {', '.join(names[:4])}{more}") if names else at


def _gpu(context: CheckContext) -> bool | None:
    """Return whether the build has GPU code; None: the release table says."""
    if context.tensorflow.state == "cpu":
        return False
    return True if context.tensorflow.installed is None and context.subject.base.kind == "ngc" else None


def _companions(context: CheckContext, places: _Places) -> Iterator[tuple[str, str, Evidence]]:
    """(name, version, the line that brings it) of NumPy and protobuf: as written, or what pip takes today."""
    tensorflow, subject = context.tensorflow, context.subject
    if subject.no_deps or tensorflow.release is None or not tensorflow.release.gpu:
        return
    for ladder in context.compat.ladders:
        name = ladder.package
        at = context.cite_tensorflow
        if name in subject.packages:
            at = context.cite(subject.packages[name].want.seen)
        version = next(iter(_exact(subject.list_limits(name))), None) or _describe_replacement(
            context, ladder
        )
        if version is None and tensorflow.installed is not None:
            version = _today(context, ladder)
            text = (
                f"{at.text}: nothing holds {name} back, so pip takes {version} on Python {tensorflow.python}"
            )
            at = replace(at, text=text)
            others = [one for one in subject.packages if one not in _PLAIN and one != tensorflow.package]
            if others or subject.others or subject.unseen:
                at = replace(at, text=f"{text}, unless another package's own limit does")
                places.unsure.add(at)
        if version is not None:
            yield name, version, at


def _exact(limits: tuple[str, ...]) -> Iterator[str]:
    """Yield the versions that the Dockerfile fixes."""
    for text in limits:
        for one in SpecifierSet(text):
            if one.operator in ("==", "===") and versions.is_version(one.version):
                yield one.version


def _describe_replacement(context: CheckContext, ladder: Ladder) -> str | None:
    """Return what a `pip install` after TensorFlow's puts in the place of the version that it asks for: pip only
    tells so.

    None if the one that is there will do, and of both at once, which pip refuses.
    """
    subject, name = context.subject, ladder.package
    installed = context.tensorflow.installed
    ours = installed.want.name if installed is not None else ""
    last = {one.name: place for place, call in enumerate(subject.calls) for one in call.wants}
    if name not in subject.packages or last.get(name, -1) <= last.get(ours, -1):
        return None
    return _newest(context, ladder, subject.list_limits(name)) if _today(context, ladder) is None else None


def _today(context: CheckContext, ladder: Ladder) -> str | None:
    """Return the newest version that every known limit and the Python let through.

    None if the Python is not known.
    """
    python, release = context.tensorflow.python, context.tensorflow.release
    if python is None or release is None or not versions.is_version(python):
        return None
    marks = {"python_version": python, "sys_platform": "linux"}
    own = [one for text in release.requires if (one := versions.parse_requirement_or_none(text)) is not None]
    limits = [
        str(one.specifier)
        for one in own
        if one.name.lower() == ladder.package and (one.marker is None or one.marker.evaluate(marks))
    ]
    return _newest(context, ladder, (*context.subject.list_limits(ladder.package), *limits))


def _newest(context: CheckContext, ladder: Ladder, limits: tuple[str, ...]) -> str | None:
    """Return the newest version within the limits that this Python takes."""
    python = context.tensorflow.python
    if python is None or not versions.is_version(python):
        return None
    try:
        wanted = SpecifierSet(",".join(one for one in limits if one))
    except InvalidSpecifier:
        return None
    fitting = [
        version
        for version, least in ladder.oldest_python.items()
        if versions.is_at_least(python, least) and wanted.contains(version)
    ]
    return fitting[-1] if fitting else None


# ---------------------------------------------------------------- findings


def _add_lines(context: CheckContext, places: _Places, finding: Finding) -> Finding:
    """Return the finding with lines of the Dockerfile for what of a machine it names."""
    lines = [places.of.get(one.source) or places.of.get(one.text) for one in finding.evidence]
    evidence = list(dict.fromkeys(one for one in lines if one is not None)) or [context.cite_tensorflow]
    if finding.cause in image.OF_BASE:
        evidence = _cite_libraries(context, evidence)
    severity = Severity.WARNING if places.unsure.intersection(evidence) else finding.severity
    remedies = finding.remedies
    if context.tensorflow.installed is None and context.tensorflow.state == "cpu":
        tag = f"FROM {context.subject.base.reference.partition('@')[0]}-gpu"
        remedies = (Remedy("The image for GPUs, where that one exists and works.", (tag,)), context.build())
    return replace(finding, severity=severity, evidence=tuple(evidence), remedies=remedies)


def _cite_libraries(context: CheckContext, evidence: list[Evidence]) -> list[Evidence]:
    """With the base image, and why neither that nor an extra brings what one thinks."""
    base, notes = context.cite_base, {}
    if "and-cuda" in context.tensorflow.extras:
        notes[context.cite_tensorflow] = ": this release has no such extra, and pip only warns about it"
    if context.subject.base.flavour == "base":
        notes[base] = ": a `base` image has the CUDA runtime and none of its libraries"
    if not any((one.source, one.line) == (base.source, base.line) for one in evidence):
        evidence = [*evidence, base]
    return [replace(one, text=f"{one.text}{notes.get(one, '')}") for one in evidence]
