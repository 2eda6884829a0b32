"""What holds for some TensorFlow releases and not for others, where no other table tells it: compat/traits.toml."""

# The annotations of rows are read when this runs (compat/decode.py): they are no texts here.

from dataclasses import field
from pathlib import Path
from typing import ClassVar, Literal, get_args

from tfdoctor import versions
from tfdoctor.compat.decode import Evidence, Sources, read
from tfdoctor.records import dataclass

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
"""What the code asks for; each has its row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trait:
    """One thing that some releases do (`[[trait]]`)."""

    NAMED: ClassVar = ("name",)
    name: TraitName
    since: str | None = None
    """The first minor; None: from the first release on."""
    until: str | None = None
    """The last minor; None: still."""
    what: str
    evidence: Evidence
    sources: Sources

    def holds(self, minor: tuple[int, ...]) -> bool:
        """Return whether it is so in this minor, `(2, 16)`.

        Never where that is not known (`()`) and there is a `since`.
        """
        return versions.is_minor_in_range(minor, self.since, self.until)


@dataclass(frozen=True, slots=True)
class Traits:
    """The whole table."""

    as_of: str
    traits: tuple[Trait, ...] = field(metadata={"key": "trait"})

    def __post_init__(self) -> None:
        lost = {*get_args(TraitName)} - {row.name for row in self.traits}
        if lost:
            msg = f"no row for {', '.join(sorted(lost))}"
            raise ValueError(msg)

    def get_trait(self, name: TraitName) -> Trait:
        """Return the row of this name."""
        return next(row for row in self.traits if row.name == name)


def load_traits(folder: Path) -> Traits:
    """Load compat/traits.toml. Raises DataError."""
    return read(Traits, folder / "traits.toml")
