"""Dataclasses for the machine that a release must fit, and for the reasons and caveats of a release."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.records import dataclass

if TYPE_CHECKING:
    from tfdoctor.core.findings import Cause

__all__ = ["Caveat", "Host", "HostGpu", "Reason"]


@dataclass(frozen=True, slots=True)
class HostGpu:
    """A GPU that the release must support."""

    name: str
    """The name from the user or the driver, or "compute capability 8.6" if only the capability is known."""
    capability: str
    """The compute capability, such as "8.6"."""
    other_capabilities: tuple[str, ...] = ()
    """Other compute capabilities of GPUs with this name, if the name is ambiguous."""


@dataclass(frozen=True, slots=True)
class Host:
    """The machine that must run the release. Values that are not known are None or empty."""

    cards: tuple[HostGpu, ...] = ()
    driver: str | None = None
    """The driver version, or a driver branch such as "550"."""
    system: str = "Linux"
    machine: str = "x86_64"
    glibc: str | None = None
    python: str | None = None
    """The minor version of the examined Python, such as `"3.11"`."""
    cpu_flags: frozenset[str] = frozenset()
    is_wsl: bool = False
    has_engine: bool | None = None
    """Whether a container engine is available; None if that is not known."""
    has_driver_gpus: bool = False
    """Whether the driver itself reports the GPUs, and therefore supports them even if the tables deny it."""
    has_no_gpu: bool = False
    """Whether the PCI bus was examined and has no NVIDIA GPU."""

    has_data_center_gpus: bool | None = None
    """Whether all GPUs are data-centre GPUs, for which NVIDIA supports forward compatibility; None if not known."""
    assumption: str = ""
    """What was assumed about a machine that the user described, as part of a sentence; "" if nothing."""

    @property
    def options(self) -> list[str]:
        """The command-line options that describe this host, such as ["--gpu 8.6", "--driver 535.104.05"]."""
        options = [
            f"--gpu {capability}" for capability in dict.fromkeys(gpu.capability for gpu in self.cards)
        ]
        return options + ([f"--driver {self.driver}"] if self.driver is not None else [])

    def has_driver_at_least(self, driver: str) -> bool:
        """Return whether the host's driver is at least this version; False if it is not known.

        A driver branch stands for its newest driver. All decisions about the driver version use this method, except those
        about supported GPUs.
        """
        return self.driver is not None and versions.is_driver_at_least(self.driver, driver)

    def lacks_glibc(self, glibc: str) -> bool:
        """Return whether the host's glibc is known to be older than this version."""
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
    is_serious: bool = True
    """Whether the caveat is a reason to prefer another option."""
