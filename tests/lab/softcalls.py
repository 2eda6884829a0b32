"""The libraries of the software GPU, loaded into this process and called as TensorFlow calls them."""

from __future__ import annotations

import ctypes
import random
from ctypes import byref, c_float, c_int, c_void_p
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

NOISE = random.Random(7)


class Gpu:
    """The libraries for TensorFlow 2.15.1, with two GPUs of compute capability 9.0."""

    def __init__(self, folder: Path) -> None:
        self.driver, self.runtime, self.blas, self.lt, self.dnn = (
            ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL)
            for name in (
                "libcuda.so.1",
                "libcudart.so.12",
                "libcublas.so.12",
                "libcublasLt.so.12",
                "libcudnn.so.8",
            )
        )

    def create_handle(self, library: str, name: str, *arguments: Any) -> c_void_p:
        """Call a function that returns a handle through its first argument, and return the handle."""
        handle = c_void_p()
        assert getattr(getattr(self, library), name)(byref(handle), *arguments) == 0
        return handle


def make_int_array(*values: int) -> ctypes.Array[c_int]:
    """Return a C array of int."""
    return (c_int * len(values))(*values)


def make_float_array(values: Sequence[float]) -> ctypes.Array[c_float]:
    """Return a C array of float."""
    return (c_float * len(values))(*values)


def make_noise(count: int) -> list[float]:
    """Return random numbers that half precision can represent exactly."""
    return [NOISE.randint(-64, 64) / 16 for _ in range(count)]
