"""Packages that break TensorFlow in some versions, or if they are missing: compat/imports.toml.

Entries with the evidence "run" were tested by importing real wheels with package versions inside and outside the range.
"""

# compat/decode.py reads the annotations of the dataclasses at run time: they must not be strings here.

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import ClassVar, Literal

from tfdoctor.compat.decode import ReleaseSet, Sources, read_table
from tfdoctor.core import versions
from tfdoctor.core.records import dataclass

__all__ = ["Companion", "CompanionTable", "UnlimitedVersions", "load_companions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Companion:
    """Package versions that are incompatible with some TensorFlow releases."""

    NAMED: ClassVar = ("id",)
    id: str
    package: str
    """Normalized name of its distribution, such as "numpy"."""
    tensorflow: ReleaseSet
    """Affected TensorFlow versions, as a PEP 440 specifier set."""
    broken_versions: ReleaseSet = field(default="", metadata={"key": "breaks"})
    """Incompatible versions as a PEP 440 specifier set. Empty if the problem is that the package is missing."""
    effect: Literal["import", "use"]
    """Whether `import tensorflow` fails, or only something after it."""
    cause: Literal["numpy-abi", "protobuf-conflict", "package-conflict", "inconclusive"]
    """Value of `findings.Cause`."""
    error: str
    """Python's error message."""
    text: str
    requirement: str
    """Requirement that avoids the problem, such as "numpy<2"."""
    workaround_variables: Mapping[str, str] = field(default_factory=dict, metadata={"key": "unless"})
    """Environment variables with values that avoid the problem. One of them is enough."""
    evidence: Literal["run", "inferred"]
    working_runs: tuple[str, ...] = field(default=(), metadata={"key": "works"})
    """Tested combinations that work, such as "2.10.1 with 1.26.4"."""
    failing_runs: tuple[str, ...] = field(default=(), metadata={"key": "fails"})
    """Tested combinations that fail."""
    needs_requirement: bool = field(default=False, metadata={"key": "listed"})
    """Whether the missing package is reported only if TensorFlow's own requirements name it."""

    def __post_init__(self) -> None:
        if self.evidence == "run" and not self.failing_runs:
            msg = "`evidence` is run, and `fails` names no run"
            raise ValueError(msg)

    def breaks_environment(
        self, tensorflow: str, installed_version: str | None, environment: Mapping[str, str]
    ) -> bool:
        """Return whether this TensorFlow is incompatible with the installed version of the package.

        `installed_version` is None if the package is not installed. `environment` contains environment variables.
        """
        if not versions.satisfies(_strip_local(tensorflow), self.tensorflow):
            return False
        if any(environment.get(name) == value for name, value in self.workaround_variables.items()):
            return False
        if installed_version is None or not self.broken_versions:
            return installed_version is None and not self.broken_versions
        return versions.is_version(installed_version) and versions.satisfies(
            installed_version, self.broken_versions
        )


def _strip_local(version: str) -> str:
    """Return the version without its local part: "1.15.5+nv23.03" becomes "1.15.5"."""
    return version.partition("+")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnlimitedVersions:
    """The versions of a package that pip selects if no requirement limits them (`[[ladder]]`)."""

    NAMED: ClassVar = ("package",)
    package: str
    oldest_python: Mapping[str, str]
    """The oldest Python that each version supports, the oldest version first."""
    sources: Sources


@dataclass(frozen=True, slots=True)
class CompanionTable:
    """The incompatible packages, in the order of the file."""

    as_of: str
    companions: tuple[Companion, ...] = field(metadata={"key": "companion"})
    unlimited_versions: tuple[UnlimitedVersions, ...] = field(metadata={"key": "ladder"})

    def list_limits(self, tensorflow: str, requires: Sequence[str] = ()) -> dict[str, str]:
        """Return a requirement for each package that excludes its versions that break this TensorFlow.

        `requires` are the requirements of the TensorFlow wheel. Packages that they already limit enough are omitted.
        """
        requirements = [
            requirement
            for text in requires
            if (requirement := versions.parse_requirement_or_none(text)) is not None
        ]
        limits: dict[str, str] = {}
        for entry in self.companions:
            if not entry.broken_versions.startswith(">=") or not versions.satisfies(
                _strip_local(tensorflow), entry.tensorflow
            ):
                continue
            first_broken = entry.broken_versions[2:].partition(",")[0]
            specifiers = [
                requirement.specifier
                for requirement in requirements
                if requirement.name.lower() == entry.package
            ]
            if specifiers and not any(
                specifier.contains(first_broken, prereleases=True) for specifier in specifiers
            ):
                continue
            # If several entries limit a package, the lowest limit is used.
            present_limit = versions.find_upper_limit(limits.get(entry.package, ""))
            limit = versions.find_upper_limit(entry.requirement)
            if limit is not None and (present_limit is None or versions.compare(limit, present_limit) < 0):
                limits[entry.package] = entry.requirement
        return limits

    def find_incompatible_packages(
        self,
        tensorflow: str | None,
        distributions: Mapping[str, str],
        environment: Mapping[str, str],
        absent: Collection[str] = (),
    ) -> tuple[Companion, ...]:
        """Return the entries that apply to an environment; empty if TensorFlow's version is not known.

        `distributions` maps normalized names to installed versions, and `environment` contains environment variables.
        `absent` are the packages that TensorFlow requires and that are not installed.
        """
        if tensorflow is None or not versions.is_version(tensorflow):
            return ()
        return tuple(
            companion
            for companion in self.companions
            if companion.breaks_environment(tensorflow, distributions.get(companion.package), environment)
            and (not companion.needs_requirement or companion.package in absent)
        )


def load_companions(folder: Path) -> CompanionTable:
    """Load compat/imports.toml. Raise DataError if it is invalid."""
    return read_table(CompanionTable, folder / "imports.toml")
