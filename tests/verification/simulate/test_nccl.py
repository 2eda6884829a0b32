"""The NCCL of the software GPU: the result of a collective on each rank, called as TensorFlow calls it."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from lab.softgpu import SANITIZED
from tfdoctor.verification.simulate.sources import SOURCES

if TYPE_CHECKING:
    from pathlib import Path

FLOAT, INT32, HALF = 7, 2, 6
SUM, PROD, MAX, MIN, AVG = range(5)
INVALID_ARGUMENT, INVALID_USAGE = 4, 5
JUMP_BYTES = 12  # minimum size in bytes of a function that is replaced
ThreeFloats = ctypes.c_float * 3
SixFloats = ctypes.c_float * 6


pytestmark = pytest.mark.skipif(shutil.which(os.environ.get("CC") or "cc") is None, reason="no C compiler")


@pytest.fixture(scope="module")
def nccl(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    path = tmp_path_factory.mktemp("nccl") / "libnccl.so.2"
    source = SOURCES / "compute" / "libnccl.c"
    command = [
        os.environ.get("CC") or "cc",
        "-std=gnu11",
        "-O0",
        *(SANITIZED if os.environ.get("TFDOCTOR_SANITIZE") else ()),
        "-fPIC",
        "-shared",
        "-o",
        str(path),
        str(source),
    ]
    subprocess.run([*command, "-lm", "-lpthread"], check=True, capture_output=True)
    return ctypes.CDLL(str(path))


@pytest.fixture
def ranks(nccl: ctypes.CDLL) -> list[ctypes.c_void_p]:
    communicators = (ctypes.c_void_p * 2)()
    assert nccl.ncclCommInitAll(communicators, 2, (ctypes.c_int * 2)(0, 1)) == 0
    return [ctypes.c_void_p(communicator) for communicator in communicators]


@pytest.mark.parametrize(
    ("how", "wanted"),
    [(SUM, [11, 18, -1]), (PROD, [10, 32, -2]), (MAX, [10, 16, 1]), (MIN, [1, 2, -2]), (AVG, [5.5, 9, -0.5])],
)
def test_all_reduce_in_a_group(
    nccl: ctypes.CDLL, ranks: list[ctypes.c_void_p], how: int, wanted: list[float]
) -> None:
    inputs, outputs = [ThreeFloats(1, 2, 1), ThreeFloats(10, 16, -2)], [ThreeFloats(), ThreeFloats()]
    nccl.ncclGroupStart()
    for rank, source, target in zip(ranks, inputs, outputs, strict=True):
        assert nccl.ncclAllReduce(source, target, ctypes.c_size_t(3), FLOAT, how, rank, None) == 0
    assert nccl.ncclGroupEnd() == 0
    assert [list(output) for output in outputs] == [wanted, wanted]


def test_all_reduce_by_separate_threads(nccl: ctypes.CDLL, ranks: list[ctypes.c_void_p]) -> None:
    values = [ThreeFloats(1, 2, 3), ThreeFloats(10, 20, 30)]
    results = []

    def work(rank: ctypes.c_void_p, value: ctypes.Array[ctypes.c_float]) -> None:
        # in place, and each call reads the result of the previous one
        results.extend(
            nccl.ncclAllReduce(value, value, ctypes.c_size_t(3), FLOAT, SUM, rank, None) for _ in range(3)
        )

    threads = [threading.Thread(target=work, args=pair) for pair in zip(ranks, values, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert results == [0] * 6
    assert [list(array) for array in values] == [[44, 88, 132]] * 2


def test_gather_scatter_and_broadcast(nccl: ctypes.CDLL, ranks: list[ctypes.c_void_p]) -> None:
    inputs, gathered = [ThreeFloats(1, 2, 3), ThreeFloats(4, 5, 6)], [SixFloats(), SixFloats()]
    parts, received = [ThreeFloats(), ThreeFloats()], [ThreeFloats(), ThreeFloats()]
    nccl.ncclGroupStart()
    for i, rank in enumerate(ranks):
        nccl.ncclAllGather(inputs[i], gathered[i], ctypes.c_size_t(3), FLOAT, rank, None)
        nccl.ncclBroadcast(inputs[i], received[i], ctypes.c_size_t(3), FLOAT, 1, rank, None)
    assert nccl.ncclGroupEnd() == 0
    nccl.ncclGroupStart()
    for i, rank in enumerate(ranks):
        nccl.ncclReduceScatter(gathered[i], parts[i], ctypes.c_size_t(3), FLOAT, SUM, rank, None)
    assert nccl.ncclGroupEnd() == 0
    assert [list(array) for array in gathered] == [[1, 2, 3, 4, 5, 6]] * 2
    assert [list(array) for array in received] == [[4, 5, 6]] * 2
    assert [list(array) for array in parts] == [[2, 4, 6], [8, 10, 12]]


def test_all_reduce_of_half_precision(nccl: ctypes.CDLL, ranks: list[ctypes.c_void_p]) -> None:
    values = [(ctypes.c_uint16 * 1)(0x3C00), (ctypes.c_uint16 * 1)(0x4200)]  # 1 and 3
    nccl.ncclGroupStart()
    for rank, value in zip(ranks, values, strict=True):
        nccl.ncclAllReduce(value, value, ctypes.c_size_t(1), HALF, SUM, rank, None)
    assert nccl.ncclGroupEnd() == 0
    assert [value[0] for value in values] == [0x4400, 0x4400]


def test_mismatched_ranks_are_rejected(nccl: ctypes.CDLL, ranks: list[ctypes.c_void_p]) -> None:
    values = [ThreeFloats(1, 2, 3), ThreeFloats(4, 5, 6)]
    nccl.ncclGroupStart()
    nccl.ncclAllReduce(values[0], values[0], ctypes.c_size_t(3), FLOAT, SUM, ranks[0], None)
    nccl.ncclAllReduce(values[1], values[1], ctypes.c_size_t(2), INT32, SUM, ranks[1], None)
    assert nccl.ncclGroupEnd() == INVALID_USAGE
    assert list(values[0]) == [1, 2, 3]


FUNCTION = 'int __attribute__((noinline)) {0}(void) {{ __asm__ volatile("{1}"); return {2}; }}\n'
NOPS = "nop; " * JUMP_BYTES
WHEEL = (
    f"static {FUNCTION.format('ncclAllReduce', NOPS, 77)}static {FUNCTION.format('ncclOfNobody', NOPS, 78)}"
    "int all_reduce(void) { return ncclAllReduce(); }\nint of_nobody(void) { return ncclOfNobody(); }\n"
)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the jump is x86-64's")
@pytest.mark.parametrize(
    ("name", "strip", "wanted"),
    [
        (
            "_pywrap_tensorflow_internal.so",
            False,
            INVALID_ARGUMENT,
        ),  # the result of the stand-in function without a communicator
        ("_pywrap_tensorflow_internal.so", True, 77),
        ("libother.so", False, 77),
    ],
)
def test_nccl_inside_a_wheel_is_replaced(
    nccl: ctypes.CDLL, tmp_path: Path, name: str, strip: bool, wanted: int
) -> None:
    source, library = tmp_path / "wheel.c", tmp_path / name
    source.write_text(WHEEL)
    command = [os.environ.get("CC") or "cc", "-O1", "-fPIC", "-shared", *(["-s"] if strip else [])]
    subprocess.run([*command, "-o", str(library), str(source)], check=True, capture_output=True)
    script = (
        "import ctypes, sys; wheel, nccl = map(ctypes.CDLL, sys.argv[1:]);"
        "before = wheel.all_reduce(); nccl.standin_nccl_inside();"
        "print(before, wheel.all_reduce(), wheel.of_nobody())"
    )
    command = [sys.executable, "-c", script, str(library), nccl._name]
    process = subprocess.run(command, check=True, capture_output=True, text=True)
    assert process.stdout.split() == ["77", str(wanted), "78"]


@pytest.fixture(scope="module")
def computing_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("driver") / "libcuda.so.1"
    command = [os.environ.get("CC") or "cc", "-std=c99", "-DCOMPUTES", "-O0", "-fPIC", "-shared"]
    subprocess.run([*command, "-o", str(path), str(SOURCES / "libcuda.c")], check=True, capture_output=True)
    return path


@pytest.mark.parametrize(
    ("capability", "result"), [("90", 0), ("80,120", 0), ("9.0", 1), ("80,x", 1), ("9", 1)]
)
def test_mistyped_capability_is_an_error(
    computing_driver: Path, monkeypatch: pytest.MonkeyPatch, capability: str, result: int
) -> None:
    monkeypatch.setenv("STANDIN_CC", capability)
    monkeypatch.setenv("STANDIN_GPUS", "2")
    assert ctypes.CDLL(str(computing_driver)).cuInit(0) == result
