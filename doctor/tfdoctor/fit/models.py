"""Dataclasses for a machine that a release must fit, and for the reasons and caveats of a release."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.records import dataclass

if TYPE_CHECKING:
    from tfdoctor.findings import Cause

__all__ = ["Card", "Caveat", "Host", "Reason"]


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU that the release must support."""

    name: str
    """The name that the user or the driver gives; "compute capability 8.6" if only that was given."""
    capability: str
    others: tuple[str, ...] = ()
    """Other compute capabilities of GPUs with this name, if the user did not say which one is meant."""


@dataclass(frozen=True, slots=True)
class Host:
    """The machine that must run the release.

    None and empty values are not known, and nothing is concluded from them.
    """

    cards: tuple[Card, ...] = ()
    driver: str | None = None
    system: str = "Linux"
    machine: str = "x86_64"
    glibc: str | None = None
    python: str | None = None
    """The minor version of the examined Python, such as `"3.11"`."""
    cpu_flags: frozenset[str] = frozenset()
    wsl: bool = False
    engine: bool | None = None
    """Whether a container engine is available; None if that is not known."""
    shown: bool = False
    """Whether the driver itself reports the GPUs, and so supports them whatever the tables say."""
    no_card: bool = False
    """Whether the PCI bus was examined and has no NVIDIA GPU."""

    @property
    def options(self) -> list[str]:
        """The command-line options that describe this host: `["--gpu 8.6", "--driver 535.104.05"]`."""
        options = [
            f"--gpu {capability}" for capability in dict.fromkeys(card.capability for card in self.cards)
        ]
        return options + ([f"--driver {self.driver}"] if self.driver is not None else [])

    def reaches(self, driver: str) -> bool:
        """Return whether its driver is this one or a newer one; False if its driver is not known.

        A branch number stands for the newest driver of the branch. All decisions that depend on the driver's
        version, except the supported GPUs, are made here.
        """
        return self.driver is not None and versions.is_driver_at_least(self.driver, driver)

    def lacks_glibc(self, glibc: str) -> bool:
        """Return whether its glibc is known to be older than this one.

        All decisions that depend on the version of glibc are made here.
        """
        return self.glibc is not None and not versions.is_at_least(self.glibc, glibc)


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason why a release or an image cannot be used."""

    cause: Cause
    text: str
    source: str
    """The entry of compat/ that proves it: `"tensorflow.json: tensorflow 2.15.1"`."""


@dataclass(frozen=True, slots=True)
class Caveat:
    """A disadvantage of a release that can be used."""

    cause: Cause
    text: str
    source: str
    serious: bool = True
    """Whether it is a reason to prefer another option."""
