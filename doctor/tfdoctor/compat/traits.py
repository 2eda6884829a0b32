"""Behaviors that differ between TensorFlow releases and are in no other table: compat/traits.toml."""

# compat/decode.py reads the annotations of the dataclasses at run time: they must not be strings here.

from dataclasses import field
from pathlib import Path
from typing import ClassVar, Literal, get_args

from tfdoctor.compat.decode import Evidence, Sources, read_table
from tfdoctor.core import versions
from tfdoctor.core.records import dataclass

__all__ = ["Trait", "TraitName", "Traits", "load_traits"]

TraitName = Literal[
    "attributes-queried",
    "avx",
    "cuda-in-own-folder",
    "enabled-device-types",
    "first-api",
    "images-of-two-pythons",
    "keras-3",
    "keras-apart",
    "keras-optimizers",
    "keras-optimizers-twice",
    "legacy-keras-variable",
    "libdevice-of-versioned-toolkit",
    "libdevice-of-wheels",
    "opened-by-pywrap",
    "runtime-at-import",
    "runtime-first",
    "same-files",
    "shown-symbols",
    "silent-without-libcuda",
    "silent-without-nvml",
    "wheels-on-runpath",
    "windows-without-gpu",
    "xla-by-itself",
]
"""The names that the code uses. Each must have a row in the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trait:
    """A behavior of some releases (`[[trait]]`)."""

    NAMED: ClassVar = ("name",)
    name: TraitName
    since: str | None = None
    """First minor with the behavior; None if it is the first release."""
    until: str | None = None
    """Last minor with the behavior; None if current releases have it."""
    description: str = field(metadata={"key": "what"})
    evidence: Evidence
    sources: Sources

    def applies_to(self, minor: tuple[int, ...]) -> bool:
        """Return whether a minor release, such as `(2, 16)`, has the behavior.

        For `()`, an unknown minor, the result is False if there is a `since`.
        """
        return versions.is_minor_in_range(minor, self.since, self.until)


@dataclass(frozen=True, slots=True)
class Traits:
    """All behaviors in the file."""

    as_of: str
    traits: tuple[Trait, ...] = field(metadata={"key": "trait"})

    def __post_init__(self) -> None:
        missing = {*get_args(TraitName)} - {trait.name for trait in self.traits}
        if missing:
            msg = f"no row for {', '.join(sorted(missing))}"
            raise ValueError(msg)

    def get_trait(self, name: TraitName) -> Trait:
        """Return the trait with this name."""
        return next(trait for trait in self.traits if trait.name == name)


def load_traits(folder: Path) -> Traits:
    """Load compat/traits.toml. Raise DataError if it is invalid."""
    return read_table(Traits, folder / "traits.toml")
