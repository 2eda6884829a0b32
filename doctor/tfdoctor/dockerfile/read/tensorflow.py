"""Which TensorFlow ends up in the image: what pip makes of what it is told, on that Python. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from tfdoctor import versions

if TYPE_CHECKING:
    from tfdoctor.compat import Compat, Release
    from tfdoctor.dockerfile.read.image_model import InstalledDistribution, Subject

__all__ = ["TensorFlow", "tensorflow_from", "tensorflow_of"]

State = Literal["there", "unknown", "newer", "no-such", "no-wheel", "retired", "cpu", "none"]
"""A release of the table; not known which; newer than the table; no such release; none for that Python; the empty
tensorflow-gpu 2.12.0; a package without GPU code; none at all."""


@dataclass(frozen=True, slots=True)
class TensorFlow:
    """The TensorFlow that counts: the last one that is installed, else the base image's own."""

    state: State
    package: str
    release: Release | None
    """What is meant; where no wheel fits, what pip is asked for."""
    python: str | None
    installed: InstalledDistribution | None
    """None: it comes with the base image."""
    pinned: bool
    """To one version."""
    text: str
    line: int
    source: str = ""

    @property
    def extras(self) -> frozenset[str]:
        return self.installed.want.extras if self.installed is not None else frozenset()

    @property
    def version(self) -> str:
        """Empty where it is not known."""
        if self.release is not None:
            return self.release.version
        own = self.installed.want.specifier.removeprefix("==") if self.installed is not None else ""
        return own if versions.is_version(own) else ""

    @property
    def name(self) -> str:
        """`"TensorFlow 2.4.1"`."""
        return f"TensorFlow {self.release.version}" if self.release is not None else self.text


def tensorflow_of(subject: Subject, compat: Compat) -> TensorFlow:
    """Return what is installed last, or what the base image brings."""
    if subject.both:
        return tensorflow_from(subject.both[-1], subject, compat)
    base = subject.base
    if base.kind in ("official", "ngc"):
        release = compat.release(base.tensorflow) if base.tensorflow else None
        if base.kind == "official" and base.tensorflow:
            release = compat.release(base.tensorflow, base.package) or release
        pinned = not base.tag.startswith("latest")
        state: State = "there" if release is not None else "unknown"
        if base.kind == "official" and base.gpu is False:
            state = "cpu"
        return TensorFlow(state, base.package, release, base.python, None, pinned, base.reference, base.line)
    return TensorFlow("none", "tensorflow", None, base.python, None, False, "", base.line)


def tensorflow_from(one: InstalledDistribution, subject: Subject, compat: Compat) -> TensorFlow:
    """Return the TensorFlow that a requirement brings."""
    want = one.want
    specifier = ",".join(
        (want.specifier, *(text for text in subject.list_limits(want.name) if text != want.specifier))
    )
    specifier = specifier.strip(",") if not want.cut else ""
    pinned = want.known and _is_exact(specifier)

    def make_tensorflow(state: State, release: Release | None = None) -> TensorFlow:
        return TensorFlow(
            state, want.name, release, one.python, one, pinned, want.text + want.cut, want.line, want.source
        )

    distribution = compat.distribution(want.name)
    if distribution is not None and distribution.gpu is False:
        return make_tensorflow("cpu")
    if want.name not in ("tensorflow", "tensorflow-gpu") or not want.known:
        return make_tensorflow("unknown")
    rows = [row for row in compat.releases if row.package == want.name]
    try:
        chosen = _list_matching(specifier, rows)
    except (InvalidSpecifier, versions.VersionSyntaxError, ValueError):
        return make_tensorflow("unknown")
    if distribution is not None and distribution.retired and _takes(specifier, distribution.retired):
        return make_tensorflow("retired")
    if not chosen:
        beyond = not specifier or any(
            spec.operator in ("==", "===", ">=", ">", "~=") and _newer(spec.version, rows, compat)
            for spec in SpecifierSet(specifier)
        )
        below = any(_older(spec.version, rows) for spec in SpecifierSet(specifier))
        return make_tensorflow("newer" if beyond else "unknown" if below else "no-such")
    fitting = [row for row in chosen if one.python is None or one.python in row.linux_pythons]
    if not fitting:
        return make_tensorflow("no-wheel", chosen[0])
    return make_tensorflow("there", fitting[0])


def _is_exact(specifier: str) -> bool:
    try:
        found = SpecifierSet(specifier)
    except InvalidSpecifier:
        return False
    return any(one.operator in ("==", "===") and not one.version.endswith(".*") for one in found)


def _list_matching(specifier: str, rows: list[Release]) -> list[Release]:
    """Return the releases that a specifier lets through, newest first."""
    wanted = SpecifierSet(specifier)
    names = {row.version for row in rows if not row.yanked or _is_exact(specifier)}
    good = (
        set(wanted.filter(names))
        if specifier
        else {name for name in names if not versions.parse(name).is_prerelease}
    )
    return sorted((row for row in rows if row.version in good), key=lambda row: row.parsed, reverse=True)


def _takes(specifier: str, version: str) -> bool:
    return SpecifierSet(specifier).contains(version)


def _newer(text: str, rows: list[Release], compat: Compat) -> bool:
    newest = compat.newest.parsed if rows and rows[0].package == "tensorflow" else versions.parse("999")
    return versions.is_version(text.removesuffix(".*")) and versions.parse(text.removesuffix(".*")) > newest


def _older(text: str, rows: list[Release]) -> bool:
    text = text.removesuffix(".*")
    return versions.is_version(text) and bool(rows) and versions.parse(text) < rows[0].parsed
