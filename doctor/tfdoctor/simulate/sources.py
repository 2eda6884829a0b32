"""The C sources of the stand-in, package data beside this module."""

from __future__ import annotations

from pathlib import Path

__all__ = ["COMPUTE", "LIBRARIES", "PTX", "SOURCES"]

SOURCES = Path(__file__).resolve().parent / "standin"
"""The folder of the sources."""
LIBRARIES = {"libcuda.so.1": "libcuda.c", "libnvidia-ml.so.1": "libnvidia-ml.c"}
"""The source of each library of the stand-in, by soname."""
COMPUTE = SOURCES / "compute"
"""The folder of the sources that compute: the driver's memory, streams and modules, and CUDA's libraries."""
PTX = SOURCES / "ptx"
"""The folder of the PTX interpreter."""
