"""What is known about TensorFlow releases, CUDA, cuDNN, GPUs and libraries: the tables of `compat/`, asked.

`Compat.load()` is the way in. The models are re-exported lazily: most commands need few of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from tfdoctor.compat.decode import DataError
from tfdoctor.compat.models import Evidence, Linkage, Nearest, Platform, Release
from tfdoctor.compat.queries import (
    Compat,
    UnknownGpuError,
    UnknownReleaseError,
    capability_matches,
    era_stems,
    normalize_defines,
    split_soname,
)

if TYPE_CHECKING:
    from tfdoctor.compat.models_cuda import (
        CudaFamily,
        CudaRelease,
        CudaSeries,
        CudnnRange,
        CudnnSupport,
        DriverMinimum,
        ForwardCompatibility,
    )
    from tfdoctor.compat.models_gpus import Gpu, GpuMatch
    from tfdoctor.compat.models_libraries import Distribution, LibraryFamily, Problem, PypiWheel

__all__ = [
    "Compat",
    "CudaFamily",
    "CudaRelease",
    "CudaSeries",
    "CudnnRange",
    "CudnnSupport",
    "DataError",
    "Distribution",
    "DriverMinimum",
    "Evidence",
    "ForwardCompatibility",
    "Gpu",
    "GpuMatch",
    "LibraryFamily",
    "Linkage",
    "Nearest",
    "Platform",
    "Problem",
    "PypiWheel",
    "Release",
    "UnknownGpuError",
    "UnknownReleaseError",
    "capability_matches",
    "era_stems",
    "normalize_defines",
    "split_soname",
]

_LAZY = {
    "models_cuda": (
        "CudaFamily",
        "CudaRelease",
        "CudaSeries",
        "CudnnRange",
        "CudnnSupport",
        "DriverMinimum",
        "ForwardCompatibility",
    ),
    "models_gpus": ("Gpu", "GpuMatch"),
    "models_libraries": ("Distribution", "LibraryFamily", "Problem", "PypiWheel"),
}


def __getattr__(name: str) -> object:
    for module, names in _LAZY.items():
        if name in names:
            return getattr(importlib.import_module(f"tfdoctor.compat.{module}"), name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
