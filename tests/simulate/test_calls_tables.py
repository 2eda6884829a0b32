"""What the software GPU has for TensorFlow 1: the driver's private tables, called as the runtime in its wheels does.

What that runtime asks and expects was seen in a debugger; TensorFlow itself is in test_compute_lab.py.
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

from lab.softgpu import C_FLAGS, COMPUTE
from simulate.kernels import TEXT
from simulate.test_calls import entry, fat

if TYPE_CHECKING:
    from pathlib import Path

    from lab.softcalls import Gpu

pytestmark = pytest.mark.few(0)  # compiling the libraries alone takes ten seconds

RUNTIME = bytes.fromhex("6bd5fb6c5bf4e74a8987d93912fd9df9")
STORAGE = bytes.fromhex("c693336e1121df11a8c368f355d89593")
HOOKS = bytes.fromhex("a094798c2e742e7493f20800200c0a66")
THREADS = bytes.fromhex("42d85a8123f6cb478298f6e78a3aecdc")
NO_BINARY, NOT_FOUND, NOT_SUPPORTED = 209, 500, 801


def place(gpu: Gpu, table: bytes, number: int, *arguments: Any) -> Any:
    """A function of a table; `arguments`: the types of what it is given."""
    return CFUNCTYPE(c_int, *arguments)(places(gpu, table)[number])


def places(gpu: Gpu, table: bytes) -> ctypes.Array[c_uint64]:
    at = c_void_p()
    assert gpu.driver.cuGetExportTable(byref(at), table) == 0
    assert at.value is not None
    return (c_uint64 * 10).from_address(at.value)


def test_a_table_that_is_not_known_is_not_there(gpu: Gpu) -> None:
    at = c_void_p(1)
    assert gpu.driver.cuGetExportTable(byref(at), RUNTIME[::-1]) == NOT_FOUND
    assert at.value is None


def test_each_table_is_as_long_as_the_runtime_wants(gpu: Gpu) -> None:
    assert places(gpu, HOOKS)[0] > 0x30
    assert places(gpu, RUNTIME)[0] == 80
    assert places(gpu, THREADS)[0] == 32


def test_no_profiler_wants_to_be_told_of_a_call(gpu: Gpu) -> None:
    for number, least in ((2, 324), (6, 2)):
        flags, count = c_void_p(), c_size_t()
        place(gpu, HOOKS, number, c_void_p, c_void_p)(byref(flags), byref(count))
        assert count.value >= least
        assert flags.value is not None
        assert not any((c_uint32 * count.value).from_address(flags.value))


def test_each_context_keeps_what_the_runtime_puts_into_it(gpu: Gpu) -> None:
    keep = place(gpu, STORAGE, 0, c_void_p, c_void_p, c_void_p, c_void_p)
    forget = place(gpu, STORAGE, 1, c_void_p, c_void_p)
    find = place(gpu, STORAGE, 2, c_void_p, c_void_p, c_void_p)
    first, second, current, value = c_void_p(), c_void_p(), c_void_p(), c_void_p()
    primary = place(gpu, RUNTIME, 2, c_void_p, c_int)
    assert (primary(byref(first), 0), primary(byref(second), 1)) == (0, 0)
    gpu.driver.cuCtxGetCurrent(byref(current))
    assert (first.value, second.value) == (
        current.value,
        gpu.made("driver", "cuDevicePrimaryCtxRetain", 1).value,
    )
    assert find(byref(value), first, 7) != 0
    assert [keep(None, 7, 70, None), keep(second, 7, 71, None), keep(first, 8, 80, None)] == [0, 0, 0]
    got = []
    for context, key in ((first, 7), (None, 7), (second, 7), (first, 8)):
        assert find(byref(value), context, key) == 0
        got.append(value.value)
    assert got == [70, 70, 71, 80]
    assert keep(first, 7, 72, None) == 0
    assert (find(byref(value), None, 7), value.value) == (0, 72)
    assert (forget(first, 7), forget(first, 7) != 0, find(byref(value), first, 7) != 0) == (0, True, True)
    assert (find(byref(value), second, 7), value.value) == (0, 71)
    for context, key in ((second, 7), (first, 8)):
        assert forget(context, key) == 0


def later(gpu: Gpu, image: bytes) -> tuple[int, c_void_p, Any]:
    """What loading it answers, the module, and what has to stay alive."""
    kept = ctypes.create_string_buffer(image, len(image))
    wrapper = (c_uint64 * 3)(0x1_466243B1, ctypes.addressof(kept), 0)
    load = place(gpu, RUNTIME, 6, c_void_p, c_void_p, c_void_p, c_void_p, ctypes.c_uint)
    module = c_void_p()
    return load(byref(module), wrapper, None, None, 0), module, (kept, wrapper)


def launch(gpu: Gpu, module: c_void_p, name: bytes) -> tuple[int, list[int]]:
    function = gpu.made("driver", "cuModuleGetFunction", module, name)
    data = (c_uint32 * 2)(1, 2)
    at, by = c_uint64(ctypes.addressof(data)), c_uint32(5)
    pointers = (c_void_p * 2)(ctypes.addressof(at), ctypes.addressof(by))
    return gpu.driver.cuLaunchKernel(function, 1, 1, 1, 2, 1, 1, 0, None, pointers, None), list(data)


def test_a_module_that_is_read_when_a_kernel_of_it_runs(gpu: Gpu, capfd: pytest.CaptureFixture[str]) -> None:
    result, module, kept = later(gpu, fat(entry(TEXT.encode() + b"\0", 80, packed=True)))
    assert result == 0
    assert launch(gpu, module, b"subtract") == (NOT_FOUND, [1, 2])
    assert "kernel subtract: 500" in capfd.readouterr().err
    assert launch(gpu, module, b"add") == (0, [6, 7])
    assert gpu.driver.cuModuleGetFunction(byref(c_void_p()), module, b"multiply") == NOT_FOUND
    function, threads = gpu.made("driver", "cuModuleGetFunction", module, b"add"), c_int()
    assert gpu.driver.cuFuncGetAttribute(byref(threads), 0, function) == 0
    assert threads.value == 64
    assert gpu.driver.cuModuleUnload(module) == 0
    result, module, kept = later(gpu, fat(entry(TEXT.encode() + b"\0", 80)))
    variable, size = c_uint64(), c_size_t()
    assert gpu.driver.cuModuleGetGlobal_v2(byref(variable), byref(size), module, b"state") == 0
    assert (size.value, list((c_uint32 * 2).from_address(variable.value))) == (8, [5, 6])
    assert gpu.driver.cuModuleUnload(module) == 0
    assert kept


def test_a_module_that_cannot_run_is_told_when_it_is_used(
    gpu: Gpu, capfd: pytest.CaptureFixture[str]
) -> None:
    packed = bytearray(entry(TEXT.encode() + b"\0", 80, packed=True))
    struct.pack_into("<I", packed, 16, 1 << 20)  # longer than what is there
    code = b"\2\0" + entry(b"machine code", 90)[2:]
    for image, why in (
        (fat(bytes(packed)), "a damaged fat binary"),
        (fat(code), "there is machine code for this card, and no PTX"),
        (fat(entry(b".version 7.0\n.target sm_80\nhello\0", 80)), "PTX with hello"),
    ):
        result, module, kept = later(gpu, image)
        assert result == 0
        assert launch(gpu, module, b"add") == (NOT_SUPPORTED, [1, 2])
        assert why in capfd.readouterr().err
        assert gpu.driver.cuModuleGetGlobal_v2(None, None, module, b"state") == NOT_FOUND
        assert gpu.driver.cuModuleUnload(module) == 0
        assert kept


def test_a_module_for_other_cards_is_not_loaded(gpu: Gpu) -> None:
    for_others = b"\2\0" + entry(b"machine code", 80)[2:]
    for image in (fat(entry(TEXT.encode() + b"\0", 100)), fat(for_others), fat()):
        assert later(gpu, image)[0] == NO_BINARY


def test_managed_variables_are_refused(gpu: Gpu) -> None:
    load = place(gpu, RUNTIME, 6, c_void_p, c_void_p, c_void_p, c_void_p, ctypes.c_uint)
    assert load(byref(c_void_p()), fat(), None, None, 1) == NOT_SUPPORTED


@pytest.mark.parametrize(
    ("table", "number", "name"),
    [(RUNTIME, 7, "runtime"), (STORAGE, 3, "storage"), (HOOKS, 4, "hooks"), (THREADS, 2, "threads")],
)
def test_a_place_that_nobody_knows_ends_the_process_with_its_number(
    libraries_of_the_software_gpu: Path, table: bytes, number: int, name: str
) -> None:
    code = (
        "import ctypes, sys\n"
        f"driver, at = ctypes.CDLL({str(libraries_of_the_software_gpu / 'libcuda.so.1')!r}), ctypes.c_void_p()\n"
        f"driver.cuGetExportTable(ctypes.byref(at), {table!r})\n"
        f"ctypes.CFUNCTYPE(None)((ctypes.c_uint64 * 10).from_address(at.value)[{number}])()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == -6
    assert f"place {number} of the driver's private table {name}" in done.stderr


def test_an_address_that_was_not_handed_out_has_no_attributes(gpu: Gpu) -> None:
    """TensorFlow 1 looks at them before each copy, and ends where the host's memory is said to be the device's."""
    at, kinds = c_uint64(), (c_int * 6)(1, 2, 3, 4, 8, 9)
    assert gpu.driver.cuMemAlloc_v2(byref(at), c_size_t(64)) == 0
    got = {}
    for address in (at.value, ctypes.addressof(kinds)):
        values = (c_uint64 * 6)(*[0x0101010101010101] * 6)
        each = (c_void_p * 6)(*[ctypes.addressof(values) + 8 * n for n in range(6)])
        assert gpu.driver.cuPointerGetAttributes(6, kinds, each, c_uint64(address)) == 0
        got[address] = [value & 0xFFFFFFFF if n in (1, 4, 5) else value for n, value in enumerate(values)]
    assert got[at.value][1:] == [2, at.value, at.value, 0, 0]
    assert got[ctypes.addressof(kinds)] == [0] * 6
    assert gpu.driver.cuMemFree_v2(at) == 0


def library(folder: Path, name: str, source: str, *flags: str) -> ctypes.CDLL:
    """One of the libraries for CUDA 10.0, compiled here."""
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
    subprocess.run([*command, "-o", str(path), str(COMPUTE / source), *flags], check=True)
    return ctypes.CDLL(str(path))


def test_the_properties_of_a_device_in_cuda_10(
    gpu: Gpu, libraries_of_the_software_gpu: Path, tmp_path: Path
) -> None:
    """Where 10 has how many threads a multiprocessor holds, 11 has another member: 0 threads made no blocks at all."""
    there = [f"-L{libraries_of_the_software_gpu}", "-l:libcuda.so.1", "-lpthread"]
    ten = library(tmp_path, "libcudart.so.10.0", "libcudart.c", *there)
    got = {}
    for name, call, size in (
        ("10", ten.cudaGetDeviceProperties, 712),
        ("12", gpu.runtime.cudaGetDeviceProperties_v2, 1032),
    ):
        properties = ctypes.create_string_buffer(b"\xee" * 2048, 2048)
        assert call(properties, 0) == 0
        assert properties.raw[size:] == b"\xee" * (2048 - size)
        got[name] = properties.raw
    assert struct.unpack_from("<i", got["10"], 388) == struct.unpack_from("<i", got["12"], 388) == (132,)
    assert struct.unpack_from("<2i", got["10"], 620) == (2048, 0)
    assert struct.unpack_from("<2i", got["12"], 620) == (0, 2048)


def test_what_1_13_is_linked_against_is_there_and_refuses(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, source, function, status in (
        ("libcudnn.so.7", "libcudnn.c", "cudnnRNNForwardTraining", 9),
        ("libcublas.so.10.0", "libcublas.c", "cublasSgetrfBatched", 15),
        ("libcusolver.so.10.0", "libcusolver.c", "cusolverDnSpotrf_bufferSize", 9),
    ):
        assert getattr(library(tmp_path, name, source, "-lm"), function)() == status
        assert re.search(rf"{function} is not here: it answers {status}", capfd.readouterr().err)
