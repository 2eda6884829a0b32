"""The stand-in's C sources, package data beside this module."""

from __future__ import annotations

from pathlib import Path

__all__ = ["COMPUTE", "LIBRARIES", "PTX", "SOURCES"]

SOURCES = Path(__file__).resolve().parent / "standin"
"""The folder of the sources."""
LIBRARIES = {"libcuda.so.1": "libcuda.c", "libnvidia-ml.so.1": "libnvidia-ml.c"}
"""The stand-in's libraries: the soname, and the source that it is built from."""
COMPUTE = SOURCES / "compute"
"""What computes beside it: the driver's memory, streams and modules, and CUDA's libraries."""
PTX = SOURCES / "ptx"
"""The interpreter."""
