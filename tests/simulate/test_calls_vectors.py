"""The software GPU's cuBLAS beside products: vectors, sums of matrices, triangular systems; beside sums made here."""

from __future__ import annotations

import ctypes
import itertools
from typing import TYPE_CHECKING, Any

import pytest

from lab.softcalls import NOISE
from simulate.test_calls import C_32F, C_64F, R_32F, R_64F, count_turns, memory, read, store_result

if TYPE_CHECKING:
    from lab.softcalls import Gpu

pytestmark = pytest.mark.few(0)  # compiling the libraries alone takes ten seconds

LETTERS = {"S": R_32F, "D": R_64F, "C": C_32F, "Z": C_64F}
NOT_READ = complex(float("nan"), 0)


class Blas:
    """cuBLAS's functions of one type; arguments that are lists are numbers in memory."""

    def __init__(self, gpu: Gpu, letter: str) -> None:
        self.gpu, self.letter, self.kind = gpu, letter, LETTERS[letter]
        self.handle = gpu.made("blas", "cublasCreate_v2")

    def numbers(self, count: int) -> list[complex]:
        """Small and whole, so that all sums are exact."""
        several = self.kind in (C_32F, C_64F)
        return [complex(NOISE.randint(-8, 8), NOISE.randint(-4, 4) if several else 0) for _ in range(count)]

    def __call__(self, name: str, *arguments: int | list[complex]) -> list[list[complex]]:
        """What each list holds afterwards."""
        held = [store_result(one, self.kind) for one in arguments if isinstance(one, list)]
        given = iter(held)
        passed: list[Any] = [memory(next(given)) if isinstance(one, list) else one for one in arguments]
        function = getattr(self.gpu.blas, f"cublas{self.letter}{name}")
        assert function(self.handle, *passed) == 0
        return [read(one, self.kind) for one in held]


@pytest.fixture(params=LETTERS)
def blas(gpu: Gpu, request: pytest.FixtureRequest) -> Blas:
    return Blas(gpu, request.param)


def spread(values: list[complex], step: int) -> list[complex]:
    """A vector in memory: its elements `step` apart, backwards with a negative step."""
    out = [NOT_READ] * ((len(values) - 1) * abs(step) + 1)
    for place, value in enumerate(values if step > 0 else values[::-1]):
        out[place * abs(step)] = value
    return out


def gather_results(values: list[complex], step: int) -> list[complex]:
    return values[:: abs(step)][:: 1 if step > 0 else -1]


@pytest.mark.parametrize("steps", [(1, 1), (2, 3), (-1, 2), (2, -2)])
def test_vectors(blas: Blas, steps: tuple[int, int]) -> None:
    n, (incx, incy) = 5, steps
    x, y = blas.numbers(n), blas.numbers(n)
    _, _, out = blas("axpy_v2", n, [3], spread(x, incx), incx, spread(y, incy), incy)
    assert gather_results(out, incy) == [3 * a + b for a, b in zip(x, y, strict=True)]
    _, out = blas("copy_v2", n, spread(x, incx), incx, spread(y, incy), incy)
    assert gather_results(out, incy) == x
    _, out = blas("scal_v2", n, [-2], spread(x, incx), incx)
    assert gather_results(out, incx) == [-2 * a if incx > 0 else a for a in x]


@pytest.mark.parametrize("op", [0, 1, 2])
@pytest.mark.parametrize(("steps", "beta"), [((1, 1), -1), ((2, 1), 0), ((1, 3), 2), ((-1, -2), 1)])
def test_a_matrix_and_a_vector(blas: Blas, op: int, steps: tuple[int, int], beta: int) -> None:
    m, n, lda = 3, 4, 5
    rows, columns = (n, m) if op else (m, n)
    a, x, y = blas.numbers(lda * n), blas.numbers(columns), blas.numbers(rows)
    old = spread(y, steps[1]) if beta else spread([NOT_READ] * rows, steps[1])
    out = blas("gemv_v2", op, m, n, [2], a, lda, spread(x, steps[0]), steps[0], [beta], old, steps[1])[-1]
    assert gather_results(out, steps[1]) == [
        2 * sum(count_turns(a, op, i, j, lda) * x[j] for j in range(columns)) + (beta * y[i] if beta else 0)
        for i in range(rows)
    ]


@pytest.mark.parametrize("ops", list(itertools.product((0, 1, 2), repeat=2)))
@pytest.mark.parametrize("factors", [(2, -1), (1, 0), (0, 3)])
def test_a_sum_of_matrices(blas: Blas, ops: tuple[int, int], factors: tuple[int, int]) -> None:
    """A matrix whose factor is 0 is not read."""
    m, n, lda, ldb, ldc = 3, 4, 5, 6, 4
    a, b, c = blas.numbers(lda * 4), blas.numbers(ldb * 4), blas.numbers(ldc * n)
    alpha, beta = factors
    given = (a if alpha else [NOT_READ] * len(a), b if beta else [NOT_READ] * len(b))
    out = blas("geam", *ops, m, n, [alpha], given[0], lda, [beta], given[1], ldb, c, ldc)[-1]
    for i, j in itertools.product(range(ldc), range(n)):
        wanted = c[i + j * ldc]
        if i < m:
            wanted = alpha * count_turns(a, ops[0], i, j, lda) + beta * count_turns(b, ops[1], i, j, ldb)
        assert out[i + j * ldc] == wanted


@pytest.mark.parametrize("op", [0, 1, 2])
@pytest.mark.parametrize(("side", "fill", "unit"), list(itertools.product((0, 1), repeat=3)))
def test_a_triangle_times_what_is_solved_is_what_was_given(
    blas: Blas, side: int, fill: int, unit: int, op: int
) -> None:
    """The other triangle is not read, nor is the diagonal where it is of ones."""
    m, n = 3, 4
    size, lda, ldb = (n if side else m), 5, 4
    triangle = [NOT_READ] * (lda * size)
    for i, j in itertools.product(range(size), repeat=2):
        if i == j and not unit:
            triangle[i + j * lda] = complex(NOISE.choice((1, -2, 4)))
        elif (i < j) if fill else (i > j):
            triangle[i + j * lda] = blas.numbers(1)[0]
    b = blas.numbers(ldb * n)
    words = (side, fill, op, unit, m, n)
    x = blas("trsm_v2", *words, [2], triangle, lda, b, ldb)[-1]

    def make_triangle(i: int, j: int) -> complex:
        row, column = (j, i) if op else (i, j)
        if row == column and unit:
            return 1
        if row != column and (row < column) != bool(fill):
            return 0
        return count_turns(triangle, op, i, j, lda)

    for i, j in itertools.product(range(m), range(n)):
        if side:
            got = sum(x[i + k * ldb] * make_triangle(k, j) for k in range(size))
        else:
            got = sum(make_triangle(i, k) * x[k + j * ldb] for k in range(size))
        assert got == pytest.approx(2 * b[i + j * ldb], abs=1e-2 if blas.letter in "SC" else 1e-9)
    assert [x[3 + j * ldb] for j in range(n)] == [b[3 + j * ldb] for j in range(n)]


def test_several_triangles(blas: Blas) -> None:
    held = [store_result([one], blas.kind) for one in (2, 3, 8, 9, 1)]
    places = [ctypes.addressof(memory(one)) for one in held]
    arrays = [(ctypes.c_void_p * 2)(*places[at : at + 2]) for at in (0, 2)]
    function = getattr(blas.gpu.blas, f"cublas{blas.letter}trsmBatched")
    assert function(blas.handle, 0, 0, 0, 0, 1, 1, memory(held[4]), arrays[0], 1, arrays[1], 1, 2) == 0
    assert [read(one, blas.kind)[0] for one in held[2:4]] == [4, 3]
