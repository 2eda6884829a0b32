"""What stands beside TensorFlow and breaks its import: compat/imports.toml, read strictly, and asked.

Each row was run: real wheels were imported with a version of the companion on either side of the bracket.
"""

# The annotations of rows are read when this runs (compat/decode.py): they are no texts here.

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import ClassVar, Literal

from tfdoctor import versions
from tfdoctor.compat.decode import ReleaseSet, Sources, read
from tfdoctor.records import dataclass

__all__ = ["Companion", "CompanionTable", "Ladder", "load_companions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Companion:
    """One companion package in versions that one set of TensorFlow releases does not stand."""

    NAMED: ClassVar = ("id",)
    id: str
    package: str
    """Its distribution's normalised name: "numpy"."""
    tensorflow: ReleaseSet
    """A PEP 440 set of TensorFlow versions."""
    breaks: ReleaseSet = ""
    """A PEP 440 set of the companion's versions; empty: where it is missing altogether."""
    effect: Literal["import", "use"]
    """Whether `import tensorflow` fails, or only something afterwards."""
    cause: Literal["numpy-abi", "protobuf-conflict", "package-conflict", "inconclusive"]
    """One word of `findings.Cause`."""
    error: str
    """What Python prints."""
    text: str
    requirement: str
    """What to install instead: "numpy<2"."""
    unless: Mapping[str, str] = field(default_factory=dict)
    """Environment variables with which the import works all the same."""
    evidence: Literal["run", "inferred"]
    works: tuple[str, ...] = ()
    """ "2.10.1 with 1.26.4": what was run and works."""
    fails: tuple[str, ...] = ()
    listed: bool = False
    """A missing one is only known as such where TensorFlow's own requirements were compared."""

    def __post_init__(self) -> None:
        if self.evidence == "run" and not self.fails:
            msg = "`evidence` is run, and `fails` names no run"
            raise ValueError(msg)

    def applies(self, tensorflow: str, have: str | None, environment: Mapping[str, str]) -> bool:
        """Return whether this TensorFlow does not stand the companion in this version (None: it is not there)."""
        if not versions.satisfies(_public(tensorflow), self.tensorflow):
            return False
        if any(environment.get(name) == value for name, value in self.unless.items()):
            return False
        if have is None or not self.breaks:
            return have is None and not self.breaks
        return versions.is_version(have) and versions.satisfies(have, self.breaks)


def _public(version: str) -> str:
    """Return the version without what a builder adds: "1.15.5+nv23.03" → "1.15.5"."""
    return version.partition("+")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """What pip takes of a companion that nothing holds back (`[[ladder]]`)."""

    NAMED: ClassVar = ("package",)
    package: str
    oldest_python: Mapping[str, str]
    """Version, oldest first → the oldest Python that takes it."""
    sources: Sources


@dataclass(frozen=True, slots=True)
class CompanionTable:
    """The whole table, in the file's order."""

    as_of: str
    companions: tuple[Companion, ...] = field(metadata={"key": "companion"})
    ladders: tuple[Ladder, ...] = field(metadata={"key": "ladder"})

    def limits(self, tensorflow: str, requires: Sequence[str] = ()) -> dict[str, str]:
        """Return package → what pip is asked for, so that it stays below every version that this release does not
        stand.

        `requires`: TensorFlow's own requirements; a row that those keep away says nothing.
        """
        own = [one for text in requires if (one := versions.parse_requirement_or_none(text)) is not None]
        found: dict[str, str] = {}
        for row in self.companions:
            if not row.breaks.startswith(">=") or not versions.satisfies(_public(tensorflow), row.tensorflow):
                continue
            first = row.breaks[2:].partition(",")[0]
            asked = [one.specifier for one in own if one.name.lower() == row.package]
            if asked and not any(one.contains(first, prereleases=True) for one in asked):
                continue
            known, limit = (
                versions.upper_limit(found.get(row.package, "")),
                versions.upper_limit(row.requirement),
            )
            if limit is not None and (known is None or versions.compare(limit, known) < 0):
                found[row.package] = row.requirement
        return found

    def find_breaking(
        self,
        tensorflow: str | None,
        distributions: Mapping[str, str],
        environment: Mapping[str, str],
        absent: Collection[str] = (),
    ) -> tuple[Companion, ...]:
        """Return the rows that apply. `distributions`: normalised name → installed version.

        `absent`: what TensorFlow's own distribution requires and what was looked for and is not there.
        """
        if tensorflow is None or not versions.is_version(tensorflow):
            return ()
        return tuple(
            row
            for row in self.companions
            if row.applies(tensorflow, distributions.get(row.package), environment)
            and (not row.listed or row.package in absent)
        )


def load_companions(folder: Path) -> CompanionTable:
    """Load compat/imports.toml. Raises DataError."""
    return read(CompanionTable, folder / "imports.toml")
