"""What compat/tensorflow.json holds, as frozen dataclasses, and the words that all tables share.

In all tables versions stay text (`tfdoctor.versions` compares them), compute capabilities are text such as
`"8.6"`, sizes are bytes, dates are ISO 8601. A `None` means that nobody measured it and nothing may be
concluded from it.

The models of the other tables have modules of their own, because making a dataclass takes half a
millisecond and most commands need few of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tfdoctor import versions
from tfdoctor.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Evidence", "Linkage", "Nearest", "Platform", "Release"]

Evidence = Literal["measured", "documented", "inferred"]
"""Read from the artefact or run; written by its maker; taken over from a neighbouring row."""

Linkage = Literal["dlopen", "needed", "none"]
"""How TF reaches CUDA: opened when GPUs are listed; linked, so that the import fails; not at all."""

Platform = Literal["linux", "windows"]


@dataclass(frozen=True, slots=True)
class Release:
    """One release of one TensorFlow distribution on the package index (compat/tensorflow.json).

    What is inside is that of the Linux x86-64 wheel `wheel`.
    """

    package: str
    """`tensorflow` or `tensorflow-gpu`."""
    version: str
    released: str
    yanked: bool
    gpu: bool
    """Whether the Linux wheel has GPU code."""
    windows_gpu: bool | None
    """Whether the Windows wheel has; None where there is no Windows wheel."""
    linkage: Linkage
    linux_pythons: tuple[str, ...]
    """Pythons with a Linux x86-64 wheel, `"3.10"`, oldest first."""
    windows_pythons: tuple[str, ...]
    platform_tag: str
    """As in the wheel's name; false for 1.x, where `glibc` tells the truth."""
    wheel: str
    """The file that was read; one Python's stands for all."""
    size: int
    """Bytes of that file."""
    unpacked: int
    """Bytes of what is in it."""
    sha256: str
    cuda: str | None
    """The toolkit it was built with, as cuda_config.h says (documented, where there is none)."""
    cudnn: str | None
    """Major and minor of the cuDNN it was built with; only the major where no more is known."""
    defines: Mapping[str, str]
    """cuda_config.h's `TF_…_VERSION`, without `TF_` and `_VERSION`: `{"CUDART": "11.0"}`."""
    required_libraries: tuple[str, ...]
    """The CUDA sonames without any one of which no GPU is registered (`needed`: the import fails), in the
    order in which they are tried. The driver's are in `driver_libraries`."""
    optional_libraries: tuple[str, ...]
    """Sonames tried at import whose absence only makes a log line (TensorRT)."""
    driver_libraries: tuple[str, ...]
    """The driver's sonames without which no GPU is registered (`needed`, from 1.1 on: the import fails)."""
    libraries_from: str
    """The version that was run, or whose linkage was read, to learn the libraries; its own where it was
    this one."""
    runpath: Mapping[str, tuple[str, ...]]
    """File in the wheel → the folders under `nvidia/…/lib` on its RUNPATH (empty before 2.14)."""
    runpath_misses: tuple[str, ...]
    """Required sonames that `[and-cuda]` installs where the RUNPATH of the file that opens them does not
    look."""
    cubin: tuple[str, ...]
    """Compute capabilities with machine code, lowest first."""
    ptx: tuple[str, ...]
    """Compute capabilities with PTX that newer GPUs can compile."""
    ptx_arch_specific: tuple[str, ...]
    """PTX targets with a suffix (`"9.0a"`), which no other capability can compile."""
    registration_floor: str | None
    """The compute capability below which TF ignores a GPU."""
    registration_floor_evidence: Evidence | None
    glibc: str | None
    """The newest GLIBC_ symbol version needed by its objects."""
    glibcxx: str | None
    cxxabi: str | None
    cpu_instructions: tuple[str, ...] | None
    """What the processor must have beyond x86-64, as /proc/cpuinfo spells it (`"avx"`): without it the import
    ends in an illegal instruction. None: not known."""
    pip_extra: str | None
    """`and-cuda` where the wheel has it."""
    extra_pins: tuple[str, ...]
    """What the extra requires, as written (PEP 508, markers about the extra left out)."""
    requires: tuple[str, ...]
    """Requirements on numpy, protobuf, h5py and keras, as written."""
    evidence: Evidence
    inferred_from: str | None
    """Where `evidence` is inferred: the version whose wheel was read instead."""
    sources: tuple[str, ...]

    @property
    def parsed(self) -> versions.Version:
        """The version, comparable."""
        return versions.parse(self.version)

    @property
    def minor(self) -> str:
        """`"2.15"`."""
        return versions.major_minor(self.version)

    @property
    def is_prerelease(self) -> bool:
        """Whether it is an alpha, beta, candidate or development release."""
        return self.parsed.is_prerelease

    @property
    def has_curand(self) -> bool:
        """Whether cuRAND is opened at registration."""
        return any(name.startswith("libcurand.") for name in self.required_libraries)

    def pythons(self, platform: Platform = "linux") -> tuple[str, ...]:
        """The Pythons that have a wheel on `platform`, oldest first."""
        return self.linux_pythons if platform == "linux" else self.windows_pythons


@dataclass(frozen=True, slots=True)
class Nearest:
    """The row that stands in for a build the table does not have."""

    release: Release
    exact: bool
    """The row is this very version."""
    extrapolated: bool
    """The build is newer than anything in the table: trust its own files, not this row."""
    reason: str
    """Why this row, for the reader; empty where exact."""
