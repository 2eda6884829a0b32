"""TensorFlow's registered kernels by operation, read from its own libraries through its C API.

As a program, for a Python (3.7 or newer) that can load the libraries; no GPU and no other package is needed:

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

__all__ = ["group_by_operation", "load_kernel_list"]

LIBRARIES = ("libtensorflow_framework.so*", "libtensorflow_cc.so*", "python/_pywrap_tensorflow_internal.so")
"""Patterns of the libraries in the order of loading.

The last one has the kernels that call Python (PyFunc) and, in releases without libtensorflow_cc, all kernels.
"""
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
"""Names of tf.dtypes by number from 1, as in tensorflow/core/framework/types.proto."""
REFERENCE = 100
"""Offset of the number of a reference to a type."""


class Buffer(ctypes.Structure):
    """TF_Buffer."""

    _fields_ = (("data", ctypes.c_void_p), ("length", ctypes.c_size_t), ("deallocator", ctypes.c_void_p))


def load_kernel_list(folder: Path) -> bytes:
    """Return the serialized KernelList of the libraries below `folder`. Raise OSError."""
    paths = [item for pattern in LIBRARIES for item in sorted(folder.glob(pattern))]
    loaded = [ctypes.CDLL(str(item), ctypes.RTLD_GLOBAL) for item in paths]
    library = next(item for item in loaded if hasattr(item, "TF_GetAllRegisteredKernels"))
    library.TF_NewStatus.restype = ctypes.c_void_p
    library.TF_GetAllRegisteredKernels.restype = ctypes.POINTER(Buffer)
    library.TF_GetAllRegisteredKernels.argtypes = [ctypes.c_void_p]
    buffer = library.TF_GetAllRegisteredKernels(library.TF_NewStatus()).contents
    return ctypes.string_at(buffer.data, buffer.length)


def group_by_operation(data: bytes) -> dict[str, dict[str, dict[str, list[str]]]]:
    """Return the types that any kernel accepts, of a KernelList: by operation, "cpu" or "gpu", and attribute.

    An attribute that some kernel does not constrain is left out, and so is a device without kernels. Kernels for
    DEFAULT count for both devices. Kernels with a label are ignored, because only code that names the label uses
    them. Raise ValueError.
    """
    kernels: dict[str, dict[str, list[Types]]] = {}
    for number, value in _parse_fields(data):
        if number == 1 and isinstance(value, bytes):
            operation, device, label, types = _parse_kernel(value)
            for kind in ("cpu", "gpu"):
                if not label and device in (kind.upper(), "DEFAULT"):
                    kernels.setdefault(operation, {}).setdefault(kind, []).append(types)
    return {
        operation: {kind: _merge_constraints(definitions) for kind, definitions in sorted(kinds.items())}
        for operation, kinds in sorted(kernels.items())
    }


def _merge_constraints(definitions: list[Types]) -> dict[str, list[str]]:
    constrained = set(definitions[0]).intersection(*definitions)
    return {
        name: sorted(set().union(*(types[name] for types in definitions))) for name in sorted(constrained)
    }


def _parse_kernel(data: bytes) -> tuple[str, str, str, Types]:
    """Return (operation, device, label, types by attribute) of a KernelDef."""
    texts = {1: "", 2: "", 5: ""}
    types: Types = {}
    for number, value in _parse_fields(data):
        if isinstance(value, int):
            continue
        if number in texts:
            texts[number] = value.decode()
        elif number == 3:
            parts = {number: inside for number, inside in _parse_fields(value) if isinstance(inside, bytes)}
            allowed = set(_parse_types(parts.get(2, b"")))
            if allowed:  # a constraint on numbers or texts does not restrict types
                types[parts[1].decode()] = allowed
    return texts[1], texts[2], texts[5], types


def _parse_types(data: bytes) -> Iterator[str]:
    """Yield the names of the types in the list of an AttrValue."""
    for number, value in _parse_fields(data):
        for part, inside in _parse_fields(value) if number == 1 and isinstance(value, bytes) else ():
            if part == 6:
                for type_number in [inside] if isinstance(inside, int) else _parse_numbers(inside):
                    yield TYPES[type_number % REFERENCE - 1]


def _parse_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield (number, value) of each field of a serialized message. Raise ValueError."""
    position = 0
    while position < len(data):
        key, position = _parse_number(data, position)
        value, position = _parse_number(data, position)
        if key & 7 == 2:
            yield key >> 3, data[position : position + value]
            position += value
        elif key & 7 == 0:
            yield key >> 3, value
        else:
            msg = f"wire type {key & 7}"
            raise ValueError(msg)


def _parse_numbers(data: bytes) -> Iterator[int]:
    position = 0
    while position < len(data):
        value, position = _parse_number(data, position)
        yield value


def _parse_number(data: bytes, position: int) -> tuple[int, int]:
    """Return (number, end position)."""
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
        if byte < 128:
            return value, position


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(load_kernel_list(Path(sys.argv[1])))
