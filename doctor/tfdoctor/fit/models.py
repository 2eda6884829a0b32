"""A machine as far as a release must fit it, and what speaks for and against a release, as frozen dataclasses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.records import dataclass

if TYPE_CHECKING:
    from tfdoctor.findings import Cause

__all__ = ["Card", "Caveat", "Host", "Reason"]


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU that has to be served."""

    name: str
    """As the user or the driver names it; "compute capability 8.6" where only that was given."""
    capability: str
    others: tuple[str, ...] = ()
    """The other capabilities that cards of this name have; which one is meant was not said."""


@dataclass(frozen=True, slots=True)
class Host:
    """The machine it is for; None and empty: not known, and nothing is concluded from it."""

    cards: tuple[Card, ...] = ()
    driver: str | None = None
    system: str = "Linux"
    machine: str = "x86_64"
    glibc: str | None = None
    python: str | None = None
    """The Python that was examined, `"3.11"`."""
    cpu_flags: frozenset[str] = frozenset()
    wsl: bool = False
    engine: bool | None = None
    """Whether a container engine was seen."""
    shown: bool = False
    """The driver itself shows the cards: it drives them, whatever a table says."""
    no_card: bool = False
    """Its buses were looked at, and no card of NVIDIA's is there."""

    @property
    def options(self) -> list[str]:
        """Return the options that name it in a command for any machine: `["--gpu 8.6", "--driver 535.104.05"]`."""
        words = [
            f"--gpu {capability}" for capability in dict.fromkeys(card.capability for card in self.cards)
        ]
        return words + ([f"--driver {self.driver}"] if self.driver is not None else [])

    def reaches(self, driver: str) -> bool:
        """Return whether its driver is this one or a newer one; a branch means its newest. False if no driver is
        known.

        Everything that follows from the driver's version, except which cards it drives, is decided here.
        """
        return self.driver is not None and versions.driver_at_least(self.driver, driver)

    def lacks_glibc(self, glibc: str) -> bool:
        """Return whether its glibc is known to be older than this one. Everything that follows from glibc is
        decided here.
        """
        return self.glibc is not None and not versions.is_at_least(self.glibc, glibc)


@dataclass(frozen=True, slots=True)
class Reason:
    """Why something is out of the question."""

    cause: Cause
    text: str
    source: str
    """The row of compat/ it rests on: `"tensorflow.json: 2.15.1"`."""


@dataclass(frozen=True, slots=True)
class Caveat:
    """What to know of something that works."""

    cause: Cause
    text: str
    source: str
    serious: bool = True
    """False: worth knowing, and no ground for preferring another option."""
