"""The driver, runtime and cuBLAS of the software GPU, called as TensorFlow calls them.

The results are compared with Python's.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import random
import struct
from ctypes import byref, c_int, c_int64, c_size_t, c_uint16, c_uint64, c_void_p
from typing import TYPE_CHECKING, Any

import pytest

from lab.softcalls import NOISE, make_float_array, make_noise
from verification.simulate.kernels import TEXT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lab.softcalls import Gpu

pytestmark = pytest.mark.few(0)  # compiling the libraries alone takes ten seconds

NOT_SUPPORTED = 15


# -- Memory, modules and launches ---------------------------------------------------------------------


def test_memory(gpu: Gpu) -> None:
    address, start, size, memory_type = c_uint64(), c_uint64(), c_size_t(), c_int()
    before, after, total = c_size_t(), c_size_t(), c_size_t()
    gpu.driver.cuMemGetInfo_v2(byref(before), byref(total))
    assert gpu.driver.cuMemAlloc_v2(byref(address), c_size_t(1 << 20)) == 0
    gpu.driver.cuMemGetInfo_v2(byref(after), byref(total))
    assert before.value - after.value == 1 << 20
    inner_address = c_uint64(address.value + 1000)
    assert gpu.driver.cuMemGetAddressRange_v2(byref(start), byref(size), inner_address) == 0
    assert (start.value, size.value) == (address.value, 1 << 20)
    assert gpu.driver.cuPointerGetAttribute(byref(memory_type), 2, inner_address) == 0
    assert memory_type.value == 2
    assert gpu.driver.cuMemsetD32_v2(address, 0x01020304, c_size_t(3)) == 0
    assert gpu.driver.cuMemsetD16_v2(c_uint64(address.value + 12), c_uint16(0xABCD), c_size_t(1)) == 0
    assert gpu.driver.cuMemcpyDtoD_v2(c_uint64(address.value + 64), address, c_size_t(16)) == 0
    copied = ctypes.create_string_buffer(16)
    assert gpu.driver.cuMemcpyDtoH_v2(copied, c_uint64(address.value + 64), c_size_t(16)) == 0
    assert copied.raw == struct.pack("<IIIHH", *[0x01020304] * 3, 0xABCD, 0)
    assert gpu.driver.cuMemFree_v2(address) == 0
    assert gpu.driver.cuMemFree_v2(address) == 1
    assert gpu.driver.cuMemAlloc_v2(byref(address), c_size_t(1 << 50)) == 2


def load_kernel(gpu: Gpu, text: str = TEXT) -> tuple[c_void_p, c_void_p]:
    module = gpu.create_handle("driver", "cuModuleLoadData", text.encode())
    return module, gpu.create_handle("driver", "cuModuleGetFunction", module, b"add")


def test_launch_with_pointers_and_with_a_buffer(gpu: Gpu) -> None:
    module, function = load_kernel(gpu)
    data = (ctypes.c_uint32 * 4)(1, 2, 3, 4)
    address, addend = c_uint64(ctypes.addressof(data)), ctypes.c_uint32(10)
    pointers = (c_void_p * 2)(ctypes.addressof(address), ctypes.addressof(addend))
    shape = (1, 1, 1, 4, 1, 1, 0, None)
    assert gpu.driver.cuLaunchKernel(function, *shape, pointers, None) == 0
    buffer = ctypes.create_string_buffer(struct.pack("<QI", address.value, 100), 12)
    size = c_size_t(12)
    extra = (c_void_p * 5)(1, ctypes.addressof(buffer), 2, ctypes.addressof(size), None)
    assert gpu.driver.cuLaunchKernel(function, *shape, None, extra) == 0
    assert list(data) == [111, 112, 113, 114]
    assert gpu.driver.cuLaunchKernel(function, 1, 1, 1, 65, 1, 1, 0, None, pointers, None) == 1
    variable, bytes_ = c_uint64(), c_size_t()
    assert gpu.driver.cuModuleGetGlobal_v2(byref(variable), byref(bytes_), module, b"state") == 0
    assert (bytes_.value, list((ctypes.c_uint32 * 2).from_address(variable.value))) == (8, [5, 6])
    assert gpu.driver.cuModuleUnload(module) == 0


def test_kernel_reports_its_ptx_version(gpu: Gpu) -> None:
    """CUB chooses the items per block by it; with 90, tf.where of 2.15.1's kernels for 8.0 was wrong."""
    module, function = load_kernel(gpu)
    value, attributes = c_int(), {}
    for attribute in (0, 5, 6):
        assert gpu.driver.cuFuncGetAttribute(byref(value), attribute, function) == 0
        attributes[attribute] = value.value
    assert attributes == {0: 64, 5: 80, 6: 90}
    assert gpu.driver.cuModuleUnload(module) == 0


def make_entry(text: bytes, arch: int, *, packed: bool = False, kind: int = 1) -> bytes:
    """Return one entry of a fat binary: PTX, or machine code if kind is 2.

    `packed` stores it as an LZ4 block of literals only.
    """
    body = text + bytes(-len(text) % 8)
    unpacked_size, flags, compressed = 0, 0, 0
    if packed:
        remaining = len(text) - 15
        data = b"\xf0" + b"\xff" * (remaining // 255) + bytes([remaining % 255]) + text
        unpacked_size, flags, compressed = len(text), 0x2000, len(data)
        body = data + bytes(-len(data) % 8)
    header = struct.pack(
        "<HHIQIIHHIQQQQ", kind, 0x101, 64, len(body), compressed, 0, 0, 7, arch, 0, flags, 0, unpacked_size
    )
    return header[:64] + body


def make_fat_binary(*entries: bytes) -> bytes:
    """Return a fat binary with these entries."""
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


class Dim3(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint) for name in "xyz"]


def test_runtime_launches_a_registered_kernel(gpu: Gpu) -> None:
    code = TEXT.encode() + b"\0"
    image = make_fat_binary(
        make_entry(b".version 7.0\n.target sm_60\n\0", 60),
        make_entry(code, 80, packed=True),
        make_entry(b"?", 100),
    )
    buffer = ctypes.create_string_buffer(image, len(image))
    wrapper = (c_uint64 * 3)(0x1_466243B1, ctypes.addressof(buffer), 0)
    gpu.runtime.__cudaRegisterFatBinary.restype = c_void_p
    host = ctypes.create_string_buffer(16)
    registered = c_void_p(gpu.runtime.__cudaRegisterFatBinary(wrapper))
    gpu.runtime.__cudaRegisterFunction(registered, host, None, b"add", -1, *[None] * 5)
    attributes = (c_uint64 * 32)()
    assert gpu.runtime.cudaFuncGetAttributes(attributes, host) == 0
    threads, _, ptx, binary = struct.unpack_from("<4i", bytes(attributes), 24)
    assert (threads, ptx, binary) == (64, 80, 90)
    data = (ctypes.c_uint32 * 2)(1, 2)
    address, addend = c_uint64(ctypes.addressof(data)), ctypes.c_uint32(5)
    pointers = (c_void_p * 2)(ctypes.addressof(address), ctypes.addressof(addend))
    assert gpu.runtime.cudaLaunchKernel(host, Dim3(1, 1, 1), Dim3(2, 1, 1), pointers, c_size_t(0), None) == 0
    assert list(data) == [6, 7]
    unknown = ctypes.create_string_buffer(16)
    assert (
        gpu.runtime.cudaLaunchKernel(unknown, Dim3(1, 1, 1), Dim3(2, 1, 1), pointers, c_size_t(0), None) == 98
    )


def test_functions_of_a_missing_module_fail(gpu: Gpu) -> None:
    """TensorFlow asks for the kernels of a module even if loading it failed."""
    function = c_void_p()
    assert gpu.driver.cuModuleGetFunction(byref(function), None, b"add") == 400
    assert gpu.driver.cuModuleGetGlobal_v2(None, None, None, b"state") == 400
    assert gpu.driver.cuModuleUnload(None) == 400
    assert gpu.driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None) == 400


@pytest.mark.parametrize("packed", [False, True])
def test_damaged_images_are_rejected_or_run(gpu: Gpu, packed: bool) -> None:
    """No byte of an image leads to an access outside it; the sanitizers detect one if they are enabled."""
    image = make_fat_binary(make_entry(TEXT.encode() + b"\0", 80, packed=packed))
    rng = random.Random(3)
    results = set()
    for _ in range(300):
        broken = bytearray(image)
        for _ in range(rng.randint(1, 3)):
            broken[rng.randrange(16, len(image))] = rng.choice((0, 255, 0x2E, 0x7B, rng.randrange(256)))
        buffer = (ctypes.c_char * len(image)).from_buffer(broken)
        module, function = c_void_p(), c_void_p()
        result = gpu.driver.cuModuleLoadData(byref(module), buffer)
        results.add(result)
        if result == 0:
            gpu.driver.cuModuleGetFunction(byref(function), module, b"add")
            gpu.driver.cuModuleUnload(module)
    assert 0 in results
    assert results <= {0, 209, 222, 801, 999}


@pytest.mark.parametrize(
    ("cuda", "code", "result"),
    [
        ("12020", (), 0),
        ("12010", (), 222),  # PTX 8.2 belongs to CUDA 12.2
        ("12010", (80,), 222),  # machine code for another generation
        ("12010", (90,), 0),  # machine code, which the driver would use instead
        ("11080", (), 222),
    ],
)
def test_ptx_newer_than_the_driver_is_rejected(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, cuda: str, code: tuple[int, ...], result: int
) -> None:
    monkeypatch.setenv("STANDIN_CUDA", cuda)
    text = TEXT.replace(".version 7.0", ".version 8.2").encode() + b"\0"
    image = make_fat_binary(*(make_entry(b"\x7fELF", arch, kind=2) for arch in code), make_entry(text, 80))
    assert gpu.driver.cuModuleLoadData(byref(c_void_p()), image) == result


@pytest.mark.parametrize(
    ("target", "arch", "result"), [("sm_90a", 90, 0), ("sm_80a", 80, 209), ("sm_80f", 80, 209)]
)
def test_ptx_for_one_capability_only(gpu: Gpu, target: str, arch: int, result: int) -> None:
    image = make_fat_binary(make_entry(TEXT.replace("sm_80", target).encode() + b"\0", arch))
    assert gpu.driver.cuModuleLoadData(byref(c_void_p()), image) == result


@pytest.mark.parametrize(("machine", "result"), [(90, 801), (80, 209)])
def test_machine_code_only_is_reported_as_unsupported(
    gpu: Gpu, capfd: pytest.CaptureFixture[str], machine: int, result: int
) -> None:
    image = make_fat_binary(make_entry(b"\x7fELF", machine, kind=2), make_entry(TEXT.encode() + b"\0", 100))
    assert gpu.driver.cuModuleLoadData(byref(c_void_p()), image) == result
    assert ("there is machine code for this card" in capfd.readouterr().err) is (result == 801)


def test_runtime_newer_than_the_driver_is_rejected(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STANDIN_CUDA", "11080")
    count = ctypes.c_int(7)
    assert gpu.runtime.cudaGetDeviceCount(byref(count)) == 35
    monkeypatch.setenv("STANDIN_CUDA", "12000")  # the same major version
    assert gpu.runtime.cudaGetDeviceCount(byref(count)) == 0


# -- Matrix products -----------------------------------------------------------------------------

R_32F, R_64F, R_16F, R_8I, C_32F, C_64F, R_32I, R_16BF = 0, 1, 2, 3, 4, 5, 10, 14
TYPES: dict[int, tuple[str, int]] = {
    R_32F: ("f", 1),
    R_64F: ("d", 1),
    R_16F: ("e", 1),
    R_8I: ("b", 1),
    C_32F: ("f", 2),
    C_64F: ("d", 2),
    R_32I: ("i", 1),
}


def encode_numbers(values: Sequence[complex], kind: int) -> bytearray:
    """Encode numbers as a cuBLAS data type; complex types store the real and the imaginary part."""
    if kind == R_16BF:
        return bytearray(b"".join(struct.pack("<f", number.real)[2:] for number in values))
    code, parts = TYPES[kind]
    flat = [part for number in values for part in (number.real, number.imag)[:parts]]
    return bytearray(
        struct.pack(f"<{len(flat)}{code}", *[int(number) if code in "bi" else number for number in flat])
    )


def decode_numbers(data: bytearray, kind: int) -> list[complex]:
    """Decode the numbers of a cuBLAS data type."""
    if kind == R_16BF:
        return [
            struct.unpack("<f", b"\0\0" + bytes(data[offset : offset + 2]))[0]
            for offset in range(0, len(data), 2)
        ]
    code, parts = TYPES[kind]
    flat = struct.unpack(f"<{len(data) // struct.calcsize(code)}{code}", data)
    return [complex(*flat[offset : offset + parts]) for offset in range(0, len(flat), parts)]


def as_c_array(data: bytearray) -> Any:
    return (ctypes.c_char * len(data)).from_buffer(data)


def read_element(a: Sequence[complex], op: int, i: int, j: int, lda: int) -> complex:
    """Return op(A)[i, j] of a column-major matrix; op is 0 for A, 1 for its transpose, 2 for its adjoint."""
    value = a[j + i * lda] if op else a[i + j * lda]
    return value.conjugate() if op == 2 else value


def product(
    m: int, n: int, k: int, a: list[complex], b: list[complex], ops: tuple[int, int]
) -> list[complex]:
    """Return op(A) op(B), column-major."""
    lda, ldb = k if ops[0] else m, n if ops[1] else k
    return [
        sum(read_element(a, ops[0], i, x, lda) * read_element(b, ops[1], x, j, ldb) for x in range(k))
        for j in range(n)
        for i in range(m)
    ]


@pytest.mark.parametrize("how", list(itertools.product((0, 1, 2), repeat=2)))
@pytest.mark.parametrize(
    ("kind", "out", "compute"),
    [
        (R_32F, R_32F, 68),
        (R_64F, R_64F, 70),
        (C_32F, C_32F, 68),
        (C_64F, C_64F, 70),
        (R_16F, R_16F, 64),
        (R_16F, R_32F, 68),
        (R_16BF, R_16BF, 77),
        (R_8I, R_32I, 72),
        (R_64F, R_64F, R_64F),
    ],
)
def test_matrix_products(gpu: Gpu, kind: int, out: int, compute: int, how: tuple[int, int]) -> None:
    m, n, k, batches = 3, 4, 5, 2
    handle = gpu.create_handle("blas", "cublasCreate_v2")
    is_complex = kind in (C_32F, C_64F)
    is_integer = R_8I in (kind, out) or out == R_32I

    def numbers(count: int) -> list[complex]:
        return [
            complex(
                NOISE.randint(-8, 8) / (1 if is_integer else 2), NOISE.randint(-4, 4) if is_complex else 0
            )
            for _ in range(count)
        ]

    a, b, c = numbers(m * k * batches), numbers(k * n * batches), numbers(m * n * batches)
    scale = {64: R_16F, 70: R_64F, 72: R_32I, R_64F: R_64F}.get(compute, R_32F)
    scale = out if is_complex else scale
    alpha, beta = encode_numbers([2], scale), encode_numbers([-1], scale)
    first, second, result = (
        as_c_array(encode_numbers(a, kind)),
        as_c_array(encode_numbers(b, kind)),
        encode_numbers(c, out),
    )
    lda, ldb = k if how[0] else m, n if how[1] else k
    status = gpu.blas.cublasGemmStridedBatchedEx(
        handle, *how, m, n, k, as_c_array(alpha),
        first, kind, lda, c_int64(m * k), second, kind, ldb, c_int64(k * n),
        as_c_array(beta), as_c_array(result), out, m, c_int64(m * n), batches, compute, 0,
    )  # fmt: skip
    assert status == 0
    expected = []
    for batch in range(batches):
        part = product(m, n, k, a[batch * m * k :][: m * k], b[batch * k * n :][: k * n], how)
        expected += [2 * x - y for x, y in zip(part, c[batch * m * n :][: m * n], strict=True)]
    assert decode_numbers(result, out) == expected
    assert gpu.blas.cublasDestroy_v2(handle) == 0


def test_unsupported_products_are_rejected(gpu: Gpu) -> None:
    handle = gpu.create_handle("blas", "cublasCreate_v2")
    factor, data = make_float_array([1]), make_float_array([1, 2, 3, 4])
    for kind, out, compute in ((R_8I, R_8I, 68), (28, R_32F, 68), (R_32F, R_32F, 76)):
        status = gpu.blas.cublasGemmEx(
            handle, 0, 0, 1, 1, 1, factor, data, kind, 1, data, kind, 1, factor, data, out, 1, compute, 0
        )
        assert status == NOT_SUPPORTED, (kind, out, compute)
    assert list(data) == [1, 2, 3, 4]
    gpu.blas.cublasDestroy_v2(handle)


def gelu(x: float) -> float:
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


@pytest.mark.parametrize(
    ("epilogue", "of"),
    [
        (1, lambda x, _: x),
        (2, lambda x, _: max(x, 0)),
        (4, lambda x, b: x + b),
        (6, lambda x, b: max(x + b, 0)),
        (36, lambda x, b: gelu(x + b)),
    ],
)
def test_product_with_an_epilogue(gpu: Gpu, epilogue: int, of: Callable[[float, float], float]) -> None:
    m, n, k = 3, 2, 4
    a, b, bias = make_noise(m * k), make_noise(k * n), make_noise(m)
    handle = gpu.create_handle("lt", "cublasLtCreate")
    plan = gpu.create_handle("lt", "cublasLtMatmulDescCreate", 68, R_32F)
    shapes = [
        gpu.create_handle(
            "lt", "cublasLtMatrixLayoutCreate", R_32F, c_uint64(rows), c_uint64(columns), c_int64(rows)
        )
        for rows, columns in ((m, k), (k, n), (m, n))
    ]
    biases, result, alpha, beta = (
        make_float_array(bias),
        make_float_array([0] * (m * n)),
        make_float_array([1]),
        make_float_array([0]),
    )
    gpu.lt.cublasLtMatmulDescSetAttribute(plan, 7, byref(c_int(epilogue)), c_size_t(4))
    gpu.lt.cublasLtMatmulDescSetAttribute(plan, 8, byref(c_uint64(ctypes.addressof(biases))), c_size_t(8))

    def run() -> int:
        first, second, third = shapes
        status: int = gpu.lt.cublasLtMatmul(
            handle, plan, alpha, make_float_array(a), first, make_float_array(b), second, beta, result, third, result, third,
            None, None, c_size_t(0), None,
        )  # fmt: skip
        return status

    assert run() == 0
    products = product(m, n, k, [complex(x) for x in a], [complex(x) for x in b], (0, 0))
    assert list(result) == pytest.approx(
        [of(x.real, bias[i % m]) for i, x in enumerate(products)], rel=1e-6, abs=1e-6
    )
    gpu.lt.cublasLtMatmulDescSetAttribute(plan, 2, byref(c_int(2)), c_size_t(4))  # alpha as a vector
    assert run() == NOT_SUPPORTED
    for shape in shapes:
        gpu.lt.cublasLtMatrixLayoutDestroy(shape)
    gpu.lt.cublasLtMatmulDescDestroy(plan)
    gpu.lt.cublasLtDestroy(handle)
