"""What one `pip install` is told cannot be installed together.

What it means
-------------
pip looks for versions that meet everything it is told at once, and everything that those require. Where there are
none it ends with `ResolutionImpossible`, after it has fetched what it needed to find that out, and the build stops.

How it is seen
--------------
What the named release of TensorFlow requires is in tfdoctor's tables. Whatever else is named is asked of the package
index, from metadata alone, by uv or pip; without the network, or where another index is used, that is said.

What to do
----------
Loosen the limit that is named, or take the release of TensorFlow that goes with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from tfdoctor import versions
from tfdoctor.dockerfile.checks.base import DockerfileRule
from tfdoctor.findings import Cause, Remedy, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfdoctor.compat import Release
    from tfdoctor.dockerfile.checks.base import CheckContext
    from tfdoctor.dockerfile.read.image_model import Call
    from tfdoctor.dockerfile.read.installs import WantedDistribution
    from tfdoctor.findings import Finding

RESOLVES_SINCE = "22.04"
"""The first Ubuntu of those that images are made of whose pip refuses what does not go together."""
ABOVE = ".0.0.0.1"
"""What makes a version the next one above it."""


def check(context: CheckContext) -> Sequence[Finding]:
    if _has_old_pip(context):
        return ()
    found = []
    for call in context.subject.calls:
        conflict = next(_find_known_conflicts(context, call), None)
        found += [conflict] if conflict is not None else _ask_index(context, call)
    return found


def _has_old_pip(context: CheckContext) -> bool:
    """Return whether the image's pip may be older than 20.3, which installs what does not go together: what comes of
    that is judged by the checks of a machine.
    """
    subject = context.subject
    if "pip" in subject.packages:
        return False
    system, python = subject.base.system, context.tensorflow.python
    if system is not None and not versions.is_at_least(system, RESOLVES_SINCE):
        return True
    return subject.base.kind == "plain" and python is not None and not versions.is_at_least(python, "3.9")


def _find_known_conflicts(context: CheckContext, call: Call) -> Iterator[Finding]:
    """Yield what excludes each other by the words alone, and by what TensorFlow's own wheel requires."""
    own = next((one for one in call.wants if _is_ours(context, one)), None)
    release = context.tensorflow.release
    required = dict(_list_limits(release, call.python)) if own is not None and release is not None else {}
    for one in call.wants:
        limits = [text for other in call.limits if other.name == one.name and (text := other.specifier)]
        for text, who in (
            *((text, "the constraints ask") for text in limits),
            *_find_release_conflicts(required, one, release),
        ):
            if one.known and not _can_both_hold(one.specifier, text):
                yield _finding(
                    context, one, f"{one.name}{one.specifier} is asked for, and {who} for {one.name}{text}."
                )


def _is_ours(context: CheckContext, one: WantedDistribution) -> bool:
    installed = context.tensorflow.installed
    return installed is not None and one.name == installed.want.name and context.tensorflow.state == "there"


def _find_release_conflicts(
    required: dict[str, str], one: WantedDistribution, release: Release | None
) -> Iterator[tuple[str, str]]:
    text = required.get(one.name, "")
    if text and release is not None:
        yield text, f"TensorFlow {release.version} asks"


def _list_limits(release: Release, python: str | None) -> Iterator[tuple[str, str]]:
    """Yield project → the limit that the wheel puts on it, without what belongs to an extra."""
    marks = {
        "python_version": python or "",
        "sys_platform": "linux",
        "platform_machine": "x86_64",
        "extra": "",
    }
    marks |= {"platform_system": "Linux"}
    if python is not None:
        marks["python_full_version"] = f"{python}.0"
    for text in release.requires:
        one = versions.parse_requirement_or_none(text)
        if one is None or (one.marker is not None and python is None):
            continue
        if one.marker is None or one.marker.evaluate(marks):
            yield canonicalize_name(one.name), str(one.specifier)


def _can_both_hold(left: str, right: str) -> bool:
    """Return whether any version can meet both: the least one that does is a limit itself, or right above one."""
    try:
        both = SpecifierSet(f"{left},{right}".strip(","))
    except InvalidSpecifier:
        return True
    edges = [one.version.removesuffix(".*") for one in both]
    edges = [edge for edge in edges if versions.is_version(edge)]
    return any(both.contains(edge, prereleases=True) for edge in ["0", *edges, *(e + ABOVE for e in edges)])


def _ask_index(context: CheckContext, call: Call) -> list[Finding]:
    """Return what the package index says, where somebody asks it."""
    told = [one for one in call.wants if one.name not in ("pip", "setuptools", "wheel")]
    if context.foresee is None or len(told) + len(call.limits) < 2:
        return []
    if not any(_is_ours(context, one) for one in call.wants) or not call.whole or call.python is None:
        return []
    said = context.foresee([_line(one) for one in told], [_line(one) for one in call.limits], call.python)
    if said.conflict:
        return [_finding(context, told[-1], said.conflict)]
    if said.unknown:
        why = f"Whether pip can install all of it together could not be asked: {said.unknown}"
        return [
            RULE.finding(
                Cause.INCONCLUSIVE,
                Severity.INFO,
                why,
                title="Whether the requirements go together could not be asked",
                evidence=[context.cite(one.seen) for one in told[:4]],
            )
        ]
    return []


def _line(one: WantedDistribution) -> str:
    extras = f"[{','.join(sorted(one.extras))}]" if one.extras else ""
    return f"{one.name}{extras}{one.specifier}" + (f"; {one.marker}" if one.marker else "")


def _finding(context: CheckContext, one: WantedDistribution, why: str) -> Finding:
    return RULE.finding(
        Cause.PACKAGE_CONFLICT,
        Severity.ERROR,
        why,
        evidence=[context.cite(one.seen), context.cite_tensorflow],
        remedies=[
            Remedy("Loosen the requirement named here, or use the TensorFlow that matches it."),
            context.build(),
        ],
    )


RULE = DockerfileRule(
    code="TFD519",
    name="requirements-conflict",
    title="What pip is told cannot be installed together",
    causes=(Cause.PACKAGE_CONFLICT, Cause.INCONCLUSIVE),
    check=check,
)
