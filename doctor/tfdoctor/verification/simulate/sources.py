"""The paths of the stand-in's C and C++ sources, which are package data next to this module."""

from __future__ import annotations

from pathlib import Path

__all__ = ["COMPUTE_SOURCES", "PTX_SOURCES", "SOURCES", "SOURCE_BY_SONAME"]

SOURCES = Path(__file__).resolve().parent / "standin"
"""The folder with all sources."""
SOURCE_BY_SONAME = {"libcuda.so.1": "libcuda.c", "libnvidia-ml.so.1": "libnvidia-ml.c"}
"""The source of each stand-in library, by soname."""
COMPUTE_SOURCES = SOURCES / "compute"
"""The folder with the sources for computing: the driver's memory, streams and modules, and the CUDA libraries."""
PTX_SOURCES = SOURCES / "ptx"
"""The folder with the PTX interpreter."""
