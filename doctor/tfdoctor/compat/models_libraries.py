"""What compat/libraries.toml and compat/problems.toml hold (see models)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tfdoctor import versions
from tfdoctor.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdoctor.compat.models import Evidence

__all__ = ["Distribution", "LibraryFamily", "Problem", "PypiWheel"]


@dataclass(frozen=True, slots=True)
class PypiWheel:
    """Where NVIDIA's wheel of one CUDA major puts a library."""

    project: str
    """`"nvidia-cusolver-cu12"`."""
    folder: str
    """Below site-packages: `"nvidia/cusolver/lib"`."""
    cuda_major: int


@dataclass(frozen=True, slots=True)
class LibraryFamily:
    """One library through all CUDA versions (compat/libraries.toml)."""

    stem: str
    """`"cusolver"` of `libcusolver.so.11`."""
    title: str
    role: Literal["registration", "lazy", "dependency", "driver", "optional"]
    """What TF wants it for: at registration, later, through another library, as the driver, if it is
    there."""
    define: str | None
    """cuda_config.h's name for its version: `"CUSOLVER"` for `TF_CUSOLVER_VERSION`."""
    first_tf: str | None
    """The first TF minor that opens it at registration."""
    last_tf: str | None
    """The last one; None: still does."""
    sonames: Mapping[str, str]
    """CUDA minor or major → version in the soname; `"11"` stands for every 11.x not named itself."""
    wheels: Mapping[int, PypiWheel]
    debian: Mapping[str, str]
    """CUDA minor or major → package in NVIDIA's repository; `{dash}` is the CUDA version as `12-5`."""
    distro: Mapping[str, str]
    """Version in the soname → Debian's or Ubuntu's own package."""
    conda: str | None
    """Package on conda-forge, for CUDA 12 and newer; before, `cudatoolkit` has it (cuDNN: `cudnn`)."""
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Distribution:
    """A distribution that is a TensorFlow, or passes for one (`[[distribution]]` of libraries.toml)."""

    name: str
    gpu: bool | None
    """None: depends on the version; ask the release table or the installation's own files."""
    same_as: str | None
    """The distribution whose rows speak for it."""
    note: str
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something known to be wrong with some releases (compat/problems.toml)."""

    id: str
    package: tuple[str, ...]
    """Distributions it is about."""
    versions: str
    """A PEP 440 set of TF versions."""
    cause: str
    """One word of contracts.md."""
    area: Literal["libraries", "python", "gpu", "images", "packaging"]
    severity: Literal["error", "warning", "info"]
    title: str
    text: str
    when: Mapping[str, str]
    """Conditions that narrow it: `capability` (`"<7.5"`), `extra`, `image`, `python`; all must hold."""
    remedy: str
    pins: tuple[str, ...]
    """Requirements that avoid it."""
    seen: str
    """How it is known: the measurement, run or report."""
    evidence: Evidence
    sources: tuple[str, ...]

    def applies(self, package: str, version: str) -> bool:
        """Whether this release has it, conditions aside."""
        return package in self.package and versions.satisfies(version, self.versions)
