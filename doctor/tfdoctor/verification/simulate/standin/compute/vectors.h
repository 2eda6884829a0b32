/* What TensorFlow asks of cuBLAS beside products of matrices: vectors, sums of matrices, and triangular systems. Matrices
 * are column-major; all sums are made with doubles. Included by libcublas.c. */
#pragma once
#include "gemm.h"

/* Where element `i` of a vector of n stands; with a negative step the first one is the last in memory. */
static inline int64_t place(int64_t i, int64_t n, int64_t step) { return step < 0 ? (i - n + 1) * step : i * step; }

/* y = alpha op(A) x + beta y, A of m rows and n columns */
static inline void multiply_vector(int op, int64_t m, int64_t n, scalar alpha, const void *a, int64_t lda, const void *x, int64_t incx, scalar beta, void *y, int64_t incy, int type) {
    int64_t rows = op ? n : m, columns = op ? m : n;
    for (int64_t i = 0; i < rows; i++) {
        scalar sum = 0;
        for (int64_t j = 0; j < columns; j++) sum += turned(a, op, i, j, lda, type) * element(x, place(j, columns, incx), type);
        int64_t to = place(i, rows, incy);
        set_element(y, to, alpha * sum + (beta != 0 ? beta * element(y, to, type) : 0), type);
    }
}

/* y = alpha x + y */
static inline void add_vector(int64_t n, scalar alpha, const void *x, int64_t incx, void *y, int64_t incy, int type) {
    for (int64_t i = 0; i < n; i++) set_element(y, place(i, n, incy), alpha * element(x, place(i, n, incx), type) + element(y, place(i, n, incy), type), type);
}

/* x = alpha x; of a step that is not positive nothing */
static inline void scale_vector(int64_t n, scalar alpha, void *x, int64_t incx, int type) {
    for (int64_t i = 0; incx > 0 && i < n; i++) set_element(x, i * incx, alpha * element(x, i * incx, type), type);
}

static inline void copy_vector(int64_t n, const void *x, int64_t incx, void *y, int64_t incy, int type) {
    for (int64_t i = 0; i < n; i++) set_element(y, place(i, n, incy), element(x, place(i, n, incx), type), type);
}

/* C = alpha op(A) + beta op(B), of m rows and n columns; a matrix whose factor is 0 is not read */
static inline void add_matrices(int opa, int opb, int64_t m, int64_t n, scalar alpha, const void *a, int64_t lda, scalar beta, const void *b, int64_t ldb, void *c, int64_t ldc, int type) {
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < m; i++)
            set_element(c, i + j * ldc, (alpha != 0 ? alpha * turned(a, opa, i, j, lda, type) : 0) + (beta != 0 ? beta * turned(b, opb, i, j, ldb, type) : 0), type);
}

/* op(A) X = alpha B, or from the right X op(A) = alpha B; A is a triangle, and B, of m rows and n columns, becomes X.
 * From the right it is the same system transposed. */
static inline void solve_triangle(int right, int upper, int op, int unit, int64_t m, int64_t n, scalar alpha, const void *a, int64_t lda, void *b, int64_t ldb, int type) {
    int64_t size = right ? n : m, count = right ? m : n;
    int forward = !upper ^ (op != 0) ^ right;
    for (int64_t j = 0; j < count; j++) {
        for (int64_t step = 0; step < size; step++) {
            int64_t i = forward ? step : size - 1 - step, at = right ? j + i * ldb : i + j * ldb;
            scalar sum = alpha * element(b, at, type);
            for (int64_t done = 0; done < step; done++) {
                int64_t l = forward ? done : size - 1 - done;
                scalar factor = right ? turned(a, op, l, i, lda, type) : turned(a, op, i, l, lda, type);
                sum -= factor * element(b, right ? j + l * ldb : l + j * ldb, type);
            }
            set_element(b, at, unit ? sum : sum / turned(a, op, i, i, lda, type), type);
        }
    }
}
