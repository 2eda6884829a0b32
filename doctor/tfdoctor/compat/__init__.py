"""Data about TensorFlow releases, CUDA, cuDNN, GPUs and libraries: queries of the tables in `compat/`.

`Compat.load()` returns the tables. The other classes are imported lazily, because most commands need few of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from tfdoctor.compat.decode import DataError
from tfdoctor.compat.releases import Nearest, Platform, Release, UnknownReleaseError
from tfdoctor.compat.tables import Compat

if TYPE_CHECKING:
    from tfdoctor.compat.cuda import DriverMinimum
    from tfdoctor.compat.gpus import Gpu, GpuMatch, UnknownGpuError
    from tfdoctor.compat.libraries import LibraryFamily, TfDistribution, normalize_defines, split_soname
    from tfdoctor.compat.problems import Problem, capability_matches

__all__ = [
    "Compat",
    "DataError",
    "DriverMinimum",
    "Gpu",
    "GpuMatch",
    "LibraryFamily",
    "Nearest",
    "Platform",
    "Problem",
    "Release",
    "TfDistribution",
    "UnknownGpuError",
    "UnknownReleaseError",
    "capability_matches",
    "normalize_defines",
    "split_soname",
]

_LAZY = {
    "DriverMinimum": "cuda",
    "Gpu": "gpus",
    "GpuMatch": "gpus",
    "UnknownGpuError": "gpus",
    "TfDistribution": "libraries",
    "LibraryFamily": "libraries",
    "normalize_defines": "libraries",
    "split_soname": "libraries",
    "Problem": "problems",
    "capability_matches": "problems",
}


def __getattr__(name: str) -> object:
    if name in _LAZY:
        return getattr(importlib.import_module(f"tfdoctor.compat.{_LAZY[name]}"), name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
