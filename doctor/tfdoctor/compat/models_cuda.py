"""What compat/cuda.toml and compat/cudnn.toml hold, and the answers made from them (see models)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tfdoctor.compat.models import Evidence, Platform

__all__ = [
    "CudaFamily",
    "CudaRelease",
    "CudaSeries",
    "CudnnRange",
    "CudnnSupport",
    "DriverMinimum",
    "ForwardCompatibility",
]


@dataclass(frozen=True, slots=True)
class CudaFamily:
    """All toolkits of one major: the floor of minor-version compatibility (compat/cuda.toml,
    `[[family]]`)."""

    major: int
    linux: str | None
    windows: str | None
    minor_version_compatibility: bool
    note: str
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CudaRelease:
    """One toolkit release and the driver that came with it (`[[release]]`)."""

    version: str
    name: str
    """As NVIDIA calls it: `"12.5 Update 1"`."""
    linux: str | None
    windows: str | None
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CudaSeries:
    """What one toolkit minor can compile for (`[[series]]`)."""

    version: str
    capabilities: tuple[str, ...]
    """Lowest first."""
    driver_branch: str | None
    evidence: Evidence
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ForwardCompatibility:
    """When a `cuda-compat` package can stand in for a newer driver (`[forward_compatibility]`)."""

    package: str
    since: str
    only_for: tuple[str, ...]
    errors: tuple[int, ...]
    """CUDA's error numbers where it cannot."""
    note: str
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DriverMinimum:
    """The driver that a CUDA version needs on one system, and why."""

    cuda: str
    os: Platform
    minimum: str | None
    """The one that counts: the family's floor where minor-version compatibility holds, else the toolkit's
    own."""
    family_floor: str | None
    own: str | None
    """The driver that came with this very toolkit: needed for everything it can do, PTX compilation
    included."""
    minor_version_compatibility: bool
    explanation: str
    evidence: Evidence
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CudnnRange:
    """A run of cuDNN versions with the same reach (compat/cudnn.toml, `[[range]]`)."""

    first: str
    """The first version that is known to belong to it."""
    below: str
    """The first version known to be different, or the end of what is known."""
    cuda: tuple[int, ...]
    """CUDA majors it is made for."""
    lowest: str
    """The lowest compute capability that its core libraries have code for."""
    highest: str
    """The highest one with machine code."""
    ptx: str | None
    """The highest PTX inside: newer GPUs can compile it."""
    glibc: str | None
    evidence: Evidence
    measured: tuple[str, ...]
    """Versions whose files were read."""
    note: str
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CudnnSupport:
    """Whether a cuDNN has code for a compute capability."""

    version: str
    capability: str
    verdict: Literal["native", "jit", "dropped", "too-new", "unknown"]
    """Machine code; only PTX; support was removed; newer than this cuDNN; the table does not say."""
    range: CudnnRange | None
    explanation: str
