"""The driver's private tables for TensorFlow 1, called as the CUDA runtime in its wheels calls them.

The calls and results of that runtime were observed in a debugger; test_compute_lab.py runs TensorFlow itself.
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
import subprocess
import sys
from ctypes import CFUNCTYPE, byref, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from typing import TYPE_CHECKING, Any

import pytest

from lab.softgpu import C_FLAGS, COMPUTE_SOURCES
from verification.simulate.kernels import TEXT
from verification.simulate.test_calls import make_entry, make_fat_binary

if TYPE_CHECKING:
    from pathlib import Path

    from lab.softcalls import Gpu

pytestmark = pytest.mark.few(0)  # compiling the libraries alone takes ten seconds

RUNTIME = bytes.fromhex("6bd5fb6c5bf4e74a8987d93912fd9df9")
STORAGE = bytes.fromhex("c693336e1121df11a8c368f355d89593")
HOOKS = bytes.fromhex("a094798c2e742e7493f20800200c0a66")
THREADS = bytes.fromhex("42d85a8123f6cb478298f6e78a3aecdc")
NO_BINARY, NOT_FOUND, NOT_SUPPORTED = 209, 500, 801


def table_function(gpu: Gpu, table: bytes, number: int, *arguments: Any) -> Any:
    """Return a function of a table; `arguments` are the types of its arguments."""
    return CFUNCTYPE(c_int, *arguments)(read_table(gpu, table)[number])


def read_table(gpu: Gpu, table: bytes) -> ctypes.Array[c_uint64]:
    address = c_void_p()
    assert gpu.driver.cuGetExportTable(byref(address), table) == 0
    assert address.value is not None
    return (c_uint64 * 10).from_address(address.value)


def test_unknown_table_is_not_found(gpu: Gpu) -> None:
    address = c_void_p(1)
    assert gpu.driver.cuGetExportTable(byref(address), RUNTIME[::-1]) == NOT_FOUND
    assert address.value is None


def test_tables_have_the_expected_length(gpu: Gpu) -> None:
    assert read_table(gpu, HOOKS)[0] > 0x30
    assert read_table(gpu, RUNTIME)[0] == 80
    assert read_table(gpu, THREADS)[0] == 32


def test_no_profiler_callback_is_enabled(gpu: Gpu) -> None:
    for number, minimum in ((2, 324), (6, 2)):
        flags, count = c_void_p(), c_size_t()
        table_function(gpu, HOOKS, number, c_void_p, c_void_p)(byref(flags), byref(count))
        assert count.value >= minimum
        assert flags.value is not None
        assert not any((c_uint32 * count.value).from_address(flags.value))


def test_context_storage_keeps_values(gpu: Gpu) -> None:
    put = table_function(gpu, STORAGE, 0, c_void_p, c_void_p, c_void_p, c_void_p)
    remove = table_function(gpu, STORAGE, 1, c_void_p, c_void_p)
    find = table_function(gpu, STORAGE, 2, c_void_p, c_void_p, c_void_p)
    first, second, current, value = c_void_p(), c_void_p(), c_void_p(), c_void_p()
    primary = table_function(gpu, RUNTIME, 2, c_void_p, c_int)
    assert (primary(byref(first), 0), primary(byref(second), 1)) == (0, 0)
    gpu.driver.cuCtxGetCurrent(byref(current))
    assert (first.value, second.value) == (
        current.value,
        gpu.create_handle("driver", "cuDevicePrimaryCtxRetain", 1).value,
    )
    assert find(byref(value), first, 7) != 0
    assert [put(None, 7, 70, None), put(second, 7, 71, None), put(first, 8, 80, None)] == [0, 0, 0]
    values = []
    for context, key in ((first, 7), (None, 7), (second, 7), (first, 8)):
        assert find(byref(value), context, key) == 0
        values.append(value.value)
    assert values == [70, 70, 71, 80]
    assert put(first, 7, 72, None) == 0
    assert (find(byref(value), None, 7), value.value) == (0, 72)
    assert (remove(first, 7), remove(first, 7) != 0, find(byref(value), first, 7) != 0) == (0, True, True)
    assert (find(byref(value), second, 7), value.value) == (0, 71)
    for context, key in ((second, 7), (first, 8)):
        assert remove(context, key) == 0


def load_lazily(gpu: Gpu, image: bytes) -> tuple[int, c_void_p, Any]:
    """Load an image; return the status, the module, and the objects that must stay alive."""
    buffer = ctypes.create_string_buffer(image, len(image))
    wrapper = (c_uint64 * 3)(0x1_466243B1, ctypes.addressof(buffer), 0)
    load = table_function(gpu, RUNTIME, 6, c_void_p, c_void_p, c_void_p, c_void_p, ctypes.c_uint)
    module = c_void_p()
    return load(byref(module), wrapper, None, None, 0), module, (buffer, wrapper)


def launch(gpu: Gpu, module: c_void_p, name: bytes) -> tuple[int, list[int]]:
    function = gpu.create_handle("driver", "cuModuleGetFunction", module, name)
    data = (c_uint32 * 2)(1, 2)
    address, addend = c_uint64(ctypes.addressof(data)), c_uint32(5)
    pointers = (c_void_p * 2)(ctypes.addressof(address), ctypes.addressof(addend))
    return gpu.driver.cuLaunchKernel(function, 1, 1, 1, 2, 1, 1, 0, None, pointers, None), list(data)


def test_module_is_read_when_its_kernel_runs(gpu: Gpu, capfd: pytest.CaptureFixture[str]) -> None:
    result, module, buffers = load_lazily(
        gpu, make_fat_binary(make_entry(TEXT.encode() + b"\0", 80, packed=True))
    )
    assert result == 0
    assert launch(gpu, module, b"subtract") == (NOT_FOUND, [1, 2])
    assert "kernel subtract: 500" in capfd.readouterr().err
    assert launch(gpu, module, b"add") == (0, [6, 7])
    assert gpu.driver.cuModuleGetFunction(byref(c_void_p()), module, b"multiply") == NOT_FOUND
    function, threads = gpu.create_handle("driver", "cuModuleGetFunction", module, b"add"), c_int()
    assert gpu.driver.cuFuncGetAttribute(byref(threads), 0, function) == 0
    assert threads.value == 64
    assert gpu.driver.cuModuleUnload(module) == 0
    result, module, buffers = load_lazily(gpu, make_fat_binary(make_entry(TEXT.encode() + b"\0", 80)))
    variable, size = c_uint64(), c_size_t()
    assert gpu.driver.cuModuleGetGlobal_v2(byref(variable), byref(size), module, b"state") == 0
    assert (size.value, list((c_uint32 * 2).from_address(variable.value))) == (8, [5, 6])
    assert gpu.driver.cuModuleUnload(module) == 0
    assert buffers


def test_unusable_module_is_reported_on_first_use(gpu: Gpu, capfd: pytest.CaptureFixture[str]) -> None:
    packed = bytearray(make_entry(TEXT.encode() + b"\0", 80, packed=True))
    struct.pack_into("<I", packed, 16, 1 << 20)  # longer than the data
    code = b"\2\0" + make_entry(b"machine code", 90)[2:]
    for image, reason in (
        (make_fat_binary(bytes(packed)), "a damaged fat binary"),
        (make_fat_binary(code), "there is machine code for this card, and no PTX"),
        (make_fat_binary(make_entry(b".version 7.0\n.target sm_80\nhello\0", 80)), "PTX with hello"),
    ):
        result, module, buffers = load_lazily(gpu, image)
        assert result == 0
        assert launch(gpu, module, b"add") == (NOT_SUPPORTED, [1, 2])
        assert reason in capfd.readouterr().err
        assert gpu.driver.cuModuleGetGlobal_v2(None, None, module, b"state") == NOT_FOUND
        assert gpu.driver.cuModuleUnload(module) == 0
        assert buffers


def test_module_for_other_gpus_is_not_loaded(gpu: Gpu) -> None:
    for_others = b"\2\0" + make_entry(b"machine code", 80)[2:]
    for image in (
        make_fat_binary(make_entry(TEXT.encode() + b"\0", 100)),
        make_fat_binary(for_others),
        make_fat_binary(),
    ):
        assert load_lazily(gpu, image)[0] == NO_BINARY


def test_managed_variables_are_rejected(gpu: Gpu) -> None:
    load = table_function(gpu, RUNTIME, 6, c_void_p, c_void_p, c_void_p, c_void_p, ctypes.c_uint)
    assert load(byref(c_void_p()), make_fat_binary(), None, None, 1) == NOT_SUPPORTED


@pytest.mark.parametrize(
    ("table", "number", "name"),
    [(RUNTIME, 7, "runtime"), (STORAGE, 3, "storage"), (HOOKS, 4, "hooks"), (THREADS, 2, "threads")],
)
def test_unknown_table_function_aborts_with_its_number(
    libraries_of_the_software_gpu: Path, table: bytes, number: int, name: str
) -> None:
    code = (
        "import ctypes, sys\n"
        f"driver, at = ctypes.CDLL({str(libraries_of_the_software_gpu / 'libcuda.so.1')!r}), ctypes.c_void_p()\n"
        f"driver.cuGetExportTable(ctypes.byref(at), {table!r})\n"
        f"ctypes.CFUNCTYPE(None)((ctypes.c_uint64 * 10).from_address(at.value)[{number}])()\n"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert process.returncode == -6
    assert f"place {number} of the driver's private table {name}" in process.stderr


def test_address_of_host_memory_has_no_attributes(gpu: Gpu) -> None:
    """TensorFlow 1 checks them before each copy, and aborts if host memory is reported as device memory."""
    address, kinds = c_uint64(), (c_int * 6)(1, 2, 3, 4, 8, 9)
    assert gpu.driver.cuMemAlloc_v2(byref(address), c_size_t(64)) == 0
    attributes = {}
    for pointer in (address.value, ctypes.addressof(kinds)):
        values = (c_uint64 * 6)(*[0x0101010101010101] * 6)
        pointers = (c_void_p * 6)(*[ctypes.addressof(values) + 8 * n for n in range(6)])
        assert gpu.driver.cuPointerGetAttributes(6, kinds, pointers, c_uint64(pointer)) == 0
        attributes[pointer] = [
            value & 0xFFFFFFFF if n in (1, 4, 5) else value for n, value in enumerate(values)
        ]
    assert attributes[address.value][1:] == [2, address.value, address.value, 0, 0]
    assert attributes[ctypes.addressof(kinds)] == [0] * 6
    assert gpu.driver.cuMemFree_v2(address) == 0


def compile_library(folder: Path, name: str, source: str, *flags: str) -> ctypes.CDLL:
    """Compile and load one of the libraries for CUDA 10.0."""
    path = folder / name
    command = [
        os.environ.get("CC") or "cc",
        *C_FLAGS,
        "-O1",
        "-DCUDART=10000",
        "-DCUDNN=7600",
        "-shared",
        "-fPIC",
    ]
    subprocess.run([*command, "-o", str(path), str(COMPUTE_SOURCES / source), *flags], check=True)
    return ctypes.CDLL(str(path))


def test_device_properties_of_cuda_10(gpu: Gpu, libraries_of_the_software_gpu: Path, tmp_path: Path) -> None:
    """CUDA 10 has the threads per multiprocessor where 11 has another field: read as 0, no block was launched."""
    link_flags = [f"-L{libraries_of_the_software_gpu}", "-l:libcuda.so.1", "-lpthread"]
    runtime_10 = compile_library(tmp_path, "libcudart.so.10.0", "libcudart.c", *link_flags)
    properties_by_version = {}
    for name, call, size in (
        ("10", runtime_10.cudaGetDeviceProperties, 712),
        ("12", gpu.runtime.cudaGetDeviceProperties_v2, 1032),
    ):
        properties = ctypes.create_string_buffer(b"\xee" * 2048, 2048)
        assert call(properties, 0) == 0
        assert properties.raw[size:] == b"\xee" * (2048 - size)
        properties_by_version[name] = properties.raw
    assert (
        struct.unpack_from("<i", properties_by_version["10"], 388)
        == struct.unpack_from("<i", properties_by_version["12"], 388)
        == (132,)
    )
    assert struct.unpack_from("<2i", properties_by_version["10"], 620) == (2048, 0)
    assert struct.unpack_from("<2i", properties_by_version["12"], 620) == (0, 2048)


def test_functions_linked_by_1_13_exist_and_fail(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for name, source, function, status in (
        ("libcudnn.so.7", "libcudnn.c", "cudnnRNNForwardTraining", 9),
        ("libcublas.so.10.0", "libcublas.c", "cublasSgetrfBatched", 15),
        ("libcusolver.so.10.0", "libcusolver.c", "cusolverDnSpotrf_bufferSize", 9),
    ):
        assert getattr(compile_library(tmp_path, name, source, "-lm"), function)() == status
        assert re.search(rf"{function} is not here: it answers {status}", capfd.readouterr().err)
