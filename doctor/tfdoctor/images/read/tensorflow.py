"""Determine the TensorFlow release in an image, which pip installs or the base image contains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from tfdoctor.core import versions

if TYPE_CHECKING:
    from tfdoctor.compat import Compat, Release
    from tfdoctor.images.read.image_model import ImageModel, InstalledDistribution

__all__ = ["ImageTensorFlow", "find_tensorflow", "resolve_tensorflow"]

TensorFlowState = Literal["there", "unknown", "newer", "no-such", "no-wheel", "retired", "cpu", "none"]
"""What is known about the TensorFlow in an image.

* there: the release is in the table.
* unknown: the release cannot be determined.
* newer: the release is newer than the table.
* no-such: the release does not exist.
* no-wheel: the release has no wheel for this Python.
* retired: the release is tensorflow-gpu 2.12.0, which is empty.
* cpu: the package has no GPU code.
* none: there is no TensorFlow.
"""


@dataclass(frozen=True, slots=True)
class ImageTensorFlow:
    """The TensorFlow in an image: the last one that is installed, or else the one in the base image."""

    state: TensorFlowState
    package: str
    release: Release | None
    """The installed release, or the required one if it has no wheel for this Python. None if unknown."""
    python: str | None
    """The version of the Python that it is installed for. None if unknown."""
    installed: InstalledDistribution | None
    """The installation. None if TensorFlow comes with the base image, or if there is none."""
    is_pinned: bool
    """Whether the requirement or the base image's tag allows only one version."""
    written_name: str
    """The requirement or the base image, as written."""
    line: int
    source: str = ""
    """The name of the file with that line. Empty for the Dockerfile."""

    @property
    def extras(self) -> frozenset[str]:
        return self.installed.requirement.extras if self.installed is not None else frozenset()

    @property
    def version(self) -> str:
        """The version. Empty if unknown."""
        if self.release is not None:
            return self.release.version
        text = self.installed.requirement.specifier.removeprefix("==") if self.installed is not None else ""
        return text if versions.is_version(text) else ""

    @property
    def name(self) -> str:
        """The name for messages, such as `TensorFlow 2.4.1`, or the requirement as written if that is unknown."""
        return f"TensorFlow {self.release.version}" if self.release is not None else self.written_name


def find_tensorflow(subject: ImageModel, compat: Compat) -> ImageTensorFlow:
    """Return the TensorFlow that is installed last, or the one in the base image."""
    if subject.tensorflow_installations:
        return resolve_tensorflow(subject.tensorflow_installations[-1], subject, compat)
    base = subject.base
    if base.kind in ("official", "ngc"):
        release = compat.find_release(base.tensorflow_version) if base.tensorflow_version else None
        if base.kind == "official" and base.tensorflow_version:
            release = compat.find_release(base.tensorflow_version, base.tensorflow_package) or release
        is_pinned = not base.tag.startswith("latest")
        state: TensorFlowState = "there" if release is not None else "unknown"
        if base.kind == "official" and base.is_for_gpu is False:
            state = "cpu"
        return ImageTensorFlow(
            state=state,
            package=base.tensorflow_package,
            release=release,
            python=base.python,
            installed=None,
            is_pinned=is_pinned,
            written_name=base.image_name,
            line=base.line,
        )
    return ImageTensorFlow(
        state="none",
        package="tensorflow",
        release=None,
        python=base.python,
        installed=None,
        is_pinned=False,
        written_name="",
        line=base.line,
    )


def resolve_tensorflow(
    installed: InstalledDistribution, subject: ImageModel, compat: Compat
) -> ImageTensorFlow:
    """Return the TensorFlow that a requirement installs, limited by the constraints for its package."""
    requirement = installed.requirement
    specifier = ",".join(
        (
            requirement.specifier,
            *(text for text in subject.list_specifiers(requirement.name) if text != requirement.specifier),
        )
    )
    specifier = specifier.strip(",") if not requirement.redirected_part else ""
    is_pinned = requirement.is_known and _allows_one_version(specifier)

    def make_tensorflow(state: TensorFlowState, release: Release | None = None) -> ImageTensorFlow:
        """Return the TensorFlow of this requirement with the given state."""
        return ImageTensorFlow(
            state=state,
            package=requirement.name,
            release=release,
            python=installed.python,
            installed=installed,
            is_pinned=is_pinned,
            written_name=requirement.text + requirement.redirected_part,
            line=requirement.line,
            source=requirement.source,
        )

    distribution = compat.find_distribution(requirement.name)
    if distribution is not None and distribution.gpu is False:
        return make_tensorflow("cpu")
    if requirement.name not in ("tensorflow", "tensorflow-gpu") or not requirement.is_known:
        return make_tensorflow("unknown")
    releases = [candidate for candidate in compat.releases if candidate.package == requirement.name]
    try:
        matching_releases = _list_matching_releases(specifier, releases)
    except (InvalidSpecifier, versions.VersionSyntaxError, ValueError):
        return make_tensorflow("unknown")
    if (
        distribution is not None
        and distribution.retired_version
        and _is_allowed(specifier, distribution.retired_version)
    ):
        return make_tensorflow("retired")
    if not matching_releases:
        is_newer = not specifier or any(
            condition.operator in ("==", "===", ">=", ">", "~=")
            and _is_newer_than_table(condition.version, releases, compat)
            for condition in SpecifierSet(specifier)
        )
        is_older = any(
            _is_older_than_table(condition.version, releases) for condition in SpecifierSet(specifier)
        )
        return make_tensorflow("newer" if is_newer else "unknown" if is_older else "no-such")
    installable_releases = [
        candidate
        for candidate in matching_releases
        if installed.python is None or installed.python in candidate.linux_pythons
    ]
    if not installable_releases:
        return make_tensorflow("no-wheel", matching_releases[0])
    return make_tensorflow("there", installable_releases[0])


def _allows_one_version(specifier: str) -> bool:
    """Return whether a specifier allows only one version."""
    try:
        specifiers = SpecifierSet(specifier)
    except InvalidSpecifier:
        return False
    return any(item.operator in ("==", "===") and not item.version.endswith(".*") for item in specifiers)


def _list_matching_releases(specifier: str, releases: list[Release]) -> list[Release]:
    """Return the releases that match a specifier, newest first."""
    specifiers = SpecifierSet(specifier)
    candidates = {
        release.version for release in releases if not release.yanked or _allows_one_version(specifier)
    }
    matching = (
        set(specifiers.filter(candidates))
        if specifier
        else {version for version in candidates if not versions.parse(version).is_prerelease}
    )
    return sorted(
        (release for release in releases if release.version in matching),
        key=lambda release: release.parsed,
        reverse=True,
    )


def _is_allowed(specifier: str, version: str) -> bool:
    return SpecifierSet(specifier).contains(version)


def _is_newer_than_table(text: str, releases: list[Release], compat: Compat) -> bool:
    """Return whether a version is newer than all releases in the table."""
    # No version of the retired tensorflow-gpu counts as newer than the table, hence a number above all releases.
    newest = (
        compat.newest.parsed if releases and releases[0].package == "tensorflow" else versions.parse("999")
    )
    return versions.is_version(text.removesuffix(".*")) and versions.parse(text.removesuffix(".*")) > newest


def _is_older_than_table(text: str, releases: list[Release]) -> bool:
    """Return whether a version is older than all releases in the table."""
    text = text.removesuffix(".*")
    return versions.is_version(text) and bool(releases) and versions.parse(text) < releases[0].parsed
