"""TensorFlow's registered kernels, asked of its own libraries through its C API, and what they say by operation.

As a program, run by a Python (3.7 or newer) that can load the libraries; they need no GPU and no other package:

    python registered_kernels.py FOLDER FILE    # FOLDER: the wheel's `tensorflow`; FILE gets a serialized KernelList

Releases from 1.13 on have `TF_GetAllRegisteredKernels` (tensorflow/c/c_api.h). The messages are those of
tensorflow/core/framework/kernel_def.proto and attr_value.proto.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    Types = dict[str, set[str]]

__all__ = ["group_by_operation", "read_kernel_list"]

LIBRARIES = ("libtensorflow_framework.so*", "libtensorflow_cc.so*", "python/_pywrap_tensorflow_internal.so")
"""In the order of loading. The last has the kernels that call Python (PyFunc), before libtensorflow_cc all of them."""
TYPES = (
    *("float32", "float64", "int32", "uint8", "int16", "int8", "string", "complex64", "int64", "bool"),
    *(
        "qint8",
        "quint8",
        "qint32",
        "bfloat16",
        "qint16",
        "quint16",
        "uint16",
        "complex128",
        "float16",
        "resource",
    ),
    *("variant", "uint32", "uint64", "float8_e5m2", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e4m3b11fnuz"),
    *("float8_e5m2fnuz", "int4", "uint4", "int2", "uint2", "float4_e2m1fn"),
)
"""By number, from 1: tensorflow/core/framework/types.proto, with the names of tf.dtypes."""
REFERENCE = 100
"""What the number of a reference to a type has more."""


class Buffer(ctypes.Structure):
    """TF_Buffer."""

    _fields_ = (("data", ctypes.c_void_p), ("length", ctypes.c_size_t), ("deallocator", ctypes.c_void_p))


def read_kernel_list(folder: Path) -> bytes:
    """The serialized KernelList of the libraries below `folder`. Raises OSError."""
    paths = [one for pattern in LIBRARIES for one in sorted(folder.glob(pattern))]
    loaded = [ctypes.CDLL(str(one), ctypes.RTLD_GLOBAL) for one in paths]
    library = next(one for one in loaded if hasattr(one, "TF_GetAllRegisteredKernels"))
    library.TF_NewStatus.restype = ctypes.c_void_p
    library.TF_GetAllRegisteredKernels.restype = ctypes.POINTER(Buffer)
    library.TF_GetAllRegisteredKernels.argtypes = [ctypes.c_void_p]
    answer = library.TF_GetAllRegisteredKernels(library.TF_NewStatus()).contents
    return ctypes.string_at(answer.data, answer.length)


def group_by_operation(data: bytes) -> dict[str, dict[str, dict[str, list[str]]]]:
    """Operation → "cpu", "gpu" → attribute → the types that some kernel there takes, of a KernelList.

    An attribute that not every kernel there limits is left out, and so is a device without kernels. Kernels of DEFAULT
    are of both devices; those with a label are for who asks by that label, and count nowhere. Raises ValueError.
    """
    kernels: dict[str, dict[str, list[Types]]] = {}
    for number, value in _fields(data):
        if number == 1 and isinstance(value, bytes):
            operation, device, label, types = _kernel(value)
            for kind in ("cpu", "gpu"):
                if not label and device in (kind.upper(), "DEFAULT"):
                    kernels.setdefault(operation, {}).setdefault(kind, []).append(types)
    return {
        operation: {kind: _merge_constraints(every) for kind, every in sorted(kinds.items())}
        for operation, kinds in sorted(kernels.items())
    }


def _merge_constraints(every: list[Types]) -> dict[str, list[str]]:
    limited = set(every[0]).intersection(*every)
    return {name: sorted(set().union(*(one[name] for one in every))) for name in sorted(limited)}


def _kernel(data: bytes) -> tuple[str, str, str, Types]:
    """(operation, device, label, types by attribute) of a KernelDef."""
    texts = {1: "", 2: "", 5: ""}
    types: Types = {}
    for number, value in _fields(data):
        if isinstance(value, int):
            continue
        if number in texts:
            texts[number] = value.decode()
        elif number == 3:
            parts = {number: inside for number, inside in _fields(value) if isinstance(inside, bytes)}
            found = set(_types(parts.get(2, b"")))
            if found:  # a limit to certain numbers or texts leaves all types
                types[parts[1].decode()] = found
    return texts[1], texts[2], texts[5], types


def _types(data: bytes) -> Iterator[str]:
    """The names of types in the list of an AttrValue."""
    for number, value in _fields(data):
        for part, inside in _fields(value) if number == 1 and isinstance(value, bytes) else ():
            if part == 6:
                for one in [inside] if isinstance(inside, int) else _numbers(inside):
                    yield TYPES[one % REFERENCE - 1]


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(number, value) of each field of a serialized message. Raises ValueError."""
    place = 0
    while place < len(data):
        key, place = _number(data, place)
        value, place = _number(data, place)
        if key & 7 == 2:
            yield key >> 3, data[place : place + value]
            place += value
        elif key & 7 == 0:
            yield key >> 3, value
        else:
            msg = f"wire type {key & 7}"
            raise ValueError(msg)


def _numbers(data: bytes) -> Iterator[int]:
    place = 0
    while place < len(data):
        value, place = _number(data, place)
        yield value


def _number(data: bytes, place: int) -> tuple[int, int]:
    """(number, where it ends)."""
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(read_kernel_list(Path(sys.argv[1])))
