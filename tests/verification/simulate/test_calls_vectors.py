"""The cuBLAS of the software GPU without products: vectors, sums of matrices and triangular systems."""

from __future__ import annotations

import ctypes
import itertools
from typing import TYPE_CHECKING, Any

import pytest

from lab.softcalls import NOISE
from verification.simulate.test_calls import (
    C_32F,
    C_64F,
    R_32F,
    R_64F,
    as_c_array,
    decode_numbers,
    encode_numbers,
    read_element,
)

if TYPE_CHECKING:
    from lab.softcalls import Gpu

pytestmark = pytest.mark.few(0)  # compiling the libraries alone takes ten seconds

LETTERS = {"S": R_32F, "D": R_64F, "C": C_32F, "Z": C_64F}
NOT_READ = complex(float("nan"), 0)


class Blas:
    """cuBLAS functions of one data type; list arguments are numbers in memory."""

    def __init__(self, gpu: Gpu, letter: str) -> None:
        self.gpu, self.letter, self.kind = gpu, letter, LETTERS[letter]
        self.handle = gpu.create_handle("blas", "cublasCreate_v2")

    def numbers(self, count: int) -> list[complex]:
        """Return small integers, so that all sums are exact."""
        is_complex = self.kind in (C_32F, C_64F)
        return [
            complex(NOISE.randint(-8, 8), NOISE.randint(-4, 4) if is_complex else 0) for _ in range(count)
        ]

    def __call__(self, name: str, *arguments: int | list[complex]) -> list[list[complex]]:
        """Call a function and return the contents of each list afterwards."""
        buffers = [encode_numbers(item, self.kind) for item in arguments if isinstance(item, list)]
        remaining = iter(buffers)
        pointers: list[Any] = [
            as_c_array(next(remaining)) if isinstance(item, list) else item for item in arguments
        ]
        function = getattr(self.gpu.blas, f"cublas{self.letter}{name}")
        assert function(self.handle, *pointers) == 0
        return [decode_numbers(item, self.kind) for item in buffers]


@pytest.fixture(params=LETTERS)
def blas(gpu: Gpu, request: pytest.FixtureRequest) -> Blas:
    return Blas(gpu, request.param)


def store_strided(values: list[complex], step: int) -> list[complex]:
    """Return a vector in memory, its elements `step` apart, and backwards if `step` is negative."""
    elements = [NOT_READ] * ((len(values) - 1) * abs(step) + 1)
    for index, value in enumerate(values if step > 0 else values[::-1]):
        elements[index * abs(step)] = value
    return elements


def load_strided(values: list[complex], step: int) -> list[complex]:
    return values[:: abs(step)][:: 1 if step > 0 else -1]


@pytest.mark.parametrize("steps", [(1, 1), (2, 3), (-1, 2), (2, -2)])
def test_vectors(blas: Blas, steps: tuple[int, int]) -> None:
    n, (incx, incy) = 5, steps
    x, y = blas.numbers(n), blas.numbers(n)
    _, _, out = blas("axpy_v2", n, [3], store_strided(x, incx), incx, store_strided(y, incy), incy)
    assert load_strided(out, incy) == [3 * a + b for a, b in zip(x, y, strict=True)]
    _, out = blas("copy_v2", n, store_strided(x, incx), incx, store_strided(y, incy), incy)
    assert load_strided(out, incy) == x
    _, out = blas("scal_v2", n, [-2], store_strided(x, incx), incx)
    assert load_strided(out, incx) == [-2 * a if incx > 0 else a for a in x]


@pytest.mark.parametrize("op", [0, 1, 2])
@pytest.mark.parametrize(("steps", "beta"), [((1, 1), -1), ((2, 1), 0), ((1, 3), 2), ((-1, -2), 1)])
def test_matrix_vector_product(blas: Blas, op: int, steps: tuple[int, int], beta: int) -> None:
    m, n, lda = 3, 4, 5
    rows, columns = (n, m) if op else (m, n)
    a, x, y = blas.numbers(lda * n), blas.numbers(columns), blas.numbers(rows)
    old = store_strided(y, steps[1]) if beta else store_strided([NOT_READ] * rows, steps[1])
    out = blas("gemv_v2", op, m, n, [2], a, lda, store_strided(x, steps[0]), steps[0], [beta], old, steps[1])[
        -1
    ]
    assert load_strided(out, steps[1]) == [
        2 * sum(read_element(a, op, i, j, lda) * x[j] for j in range(columns)) + (beta * y[i] if beta else 0)
        for i in range(rows)
    ]


@pytest.mark.parametrize("ops", list(itertools.product((0, 1, 2), repeat=2)))
@pytest.mark.parametrize("factors", [(2, -1), (1, 0), (0, 3)])
def test_sum_of_matrices(blas: Blas, ops: tuple[int, int], factors: tuple[int, int]) -> None:
    """A matrix whose factor is 0 is not read."""
    m, n, lda, ldb, ldc = 3, 4, 5, 6, 4
    a, b, c = blas.numbers(lda * 4), blas.numbers(ldb * 4), blas.numbers(ldc * n)
    alpha, beta = factors
    inputs = (a if alpha else [NOT_READ] * len(a), b if beta else [NOT_READ] * len(b))
    out = blas("geam", *ops, m, n, [alpha], inputs[0], lda, [beta], inputs[1], ldb, c, ldc)[-1]
    for i, j in itertools.product(range(ldc), range(n)):
        expected = c[i + j * ldc]
        if i < m:
            expected = alpha * read_element(a, ops[0], i, j, lda) + beta * read_element(b, ops[1], i, j, ldb)
        assert out[i + j * ldc] == expected


@pytest.mark.parametrize("op", [0, 1, 2])
@pytest.mark.parametrize(("side", "fill", "unit"), list(itertools.product((0, 1), repeat=3)))
def test_solution_of_a_triangular_system(blas: Blas, side: int, fill: int, unit: int, op: int) -> None:
    """The other triangle is not read, and the diagonal is not read if it is implicitly 1."""
    m, n = 3, 4
    size, lda, ldb = (n if side else m), 5, 4
    triangle = [NOT_READ] * (lda * size)
    for i, j in itertools.product(range(size), repeat=2):
        if i == j and not unit:
            triangle[i + j * lda] = complex(NOISE.choice((1, -2, 4)))
        elif (i < j) if fill else (i > j):
            triangle[i + j * lda] = blas.numbers(1)[0]
    b = blas.numbers(ldb * n)
    flags = (side, fill, op, unit, m, n)
    x = blas("trsm_v2", *flags, [2], triangle, lda, b, ldb)[-1]

    def triangle_element(i: int, j: int) -> complex:
        row, column = (j, i) if op else (i, j)
        if row == column and unit:
            return 1
        if row != column and (row < column) != bool(fill):
            return 0
        return read_element(triangle, op, i, j, lda)

    for i, j in itertools.product(range(m), range(n)):
        if side:
            product = sum(x[i + k * ldb] * triangle_element(k, j) for k in range(size))
        else:
            product = sum(triangle_element(i, k) * x[k + j * ldb] for k in range(size))
        assert product == pytest.approx(2 * b[i + j * ldb], abs=1e-2 if blas.letter in "SC" else 1e-9)
    assert [x[3 + j * ldb] for j in range(n)] == [b[3 + j * ldb] for j in range(n)]


def test_batch_of_triangular_systems(blas: Blas) -> None:
    buffers = [encode_numbers([item], blas.kind) for item in (2, 3, 8, 9, 1)]
    addresses = [ctypes.addressof(as_c_array(item)) for item in buffers]
    arrays = [(ctypes.c_void_p * 2)(*addresses[offset : offset + 2]) for offset in (0, 2)]
    function = getattr(blas.gpu.blas, f"cublas{blas.letter}trsmBatched")
    assert function(blas.handle, 0, 0, 0, 0, 1, 1, as_c_array(buffers[4]), arrays[0], 1, arrays[1], 1, 2) == 0
    assert [decode_numbers(item, blas.kind)[0] for item in buffers[2:4]] == [4, 3]
