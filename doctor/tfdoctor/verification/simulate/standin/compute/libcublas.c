/* cuBLAS: what TensorFlow asks for, products of matrices above all. What is not here answers CUBLAS_STATUS_NOT_SUPPORTED. */
#define _GNU_SOURCE
#include "faults.h"
#include "gemm.h"
#include "vectors.h"

#include <stdio.h>

typedef int cublasStatus_t;
typedef struct handle { void *stream; int math, pointers, atomics; } *cublasHandle_t;
enum { OK = 0, ALLOC_FAILED = 3, NOT_SUPPORTED = 15 };
#ifndef CUBLAS
#define CUBLAS 120804 /* major * 10000 + minor * 100 + patch */
#endif

cublasStatus_t cublasCreate_v2(cublasHandle_t *h) { int asked = standin_status("cublas"); if (asked) return asked; *h = calloc(1, sizeof **h); return *h ? OK : ALLOC_FAILED; }
cublasStatus_t cublasDestroy_v2(cublasHandle_t h) { free(h); return OK; }
cublasStatus_t cublasSetStream_v2(cublasHandle_t h, void *stream) { h->stream = stream; return OK; }
cublasStatus_t cublasGetStream_v2(cublasHandle_t h, void **stream) { *stream = h->stream; return OK; }
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t h, void *w, size_t n) { (void)h; (void)w; (void)n; return OK; }
cublasStatus_t cublasSetMathMode(cublasHandle_t h, int mode) { h->math = mode; return OK; }
cublasStatus_t cublasGetMathMode(cublasHandle_t h, int *mode) { *mode = h->math; return OK; }
cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t h, int mode) { h->pointers = mode; return OK; }
cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t h, int *mode) { *mode = h->pointers; return OK; }
cublasStatus_t cublasSetAtomicsMode(cublasHandle_t h, int mode) { h->atomics = mode; return OK; }
cublasStatus_t cublasGetAtomicsMode(cublasHandle_t h, int *mode) { *mode = h->atomics; return OK; }
cublasStatus_t cublasGetVersion_v2(cublasHandle_t h, int *version) { (void)h; *version = CUBLAS; return OK; }
cublasStatus_t cublasGetProperty(int which, int *value) { *value = which == 0 ? CUBLAS / 10000 : which == 1 ? CUBLAS / 100 % 100 : CUBLAS % 100; return OK; }
const char *cublasGetStatusName(cublasStatus_t s) { return s == OK ? "CUBLAS_STATUS_SUCCESS" : s == 1 ? "CUBLAS_STATUS_NOT_INITIALIZED" : s == ALLOC_FAILED ? "CUBLAS_STATUS_ALLOC_FAILED" : s == NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED" : "CUBLAS_STATUS_INTERNAL_ERROR"; }
const char *cublasGetStatusString(cublasStatus_t s) { /* cuBLAS's own words, which TensorFlow prints from 2.16 on */
    switch (s) {
    case OK: return "success";
    case 1: return "the library was not initialized";
    case ALLOC_FAILED: return "the resource allocation failed";
    case NOT_SUPPORTED: return "the functionality requested is not supported";
    default: return "an internal operation failed";
    }
}

/* The type of alpha and beta: cublasComputeType_t's numbers, which before CUDA 11 were those of data types. -1: none is known. */
static int scale_of(int compute, int type) {
    switch (compute) {
    case 70: case 71: case R_64F: case C_64F: return type == C_64F ? C_64F : R_64F;
    case 64: case 65: case R_16F: return R_16F;
    case 72: case 73: case R_32I: return R_32I;
    case 68: case 69: case 74: case 75: case 77: case R_32F: case C_32F: return type == C_32F ? C_32F : R_32F;
    default: return -1;
    }
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t h, int ta, int tb, int m, int n, int k, const void *alpha, const void *a, int at, int lda, long long sa, const void *b,
                                          int bt, int ldb, long long sb, const void *beta, void *c, int ct, int ldc, long long sc, int count, int compute, int algorithm) {
    (void)h; (void)algorithm;
    int scale = scale_of(compute, ct), result = scale < 0 ? NOT_SUPPORTED : OK;
    for (long long i = 0; i < count && !result; i++) {
        char *d = (char *)c + i * sc * (long long)width_of(ct);
        struct product p = {ta, tb, m, n, k, element(alpha, 0, scale), element(beta, 0, scale), (const char *)a + i * sa * (long long)width_of(at),
                            (const char *)b + i * sb * (long long)width_of(bt), d, d, at, bt, ct, lda, ldb, ldc, ldc};
        result = multiply(&p);
    }
    return result;
}
cublasStatus_t cublasGemmEx(cublasHandle_t h, int ta, int tb, int m, int n, int k, const void *alpha, const void *a, int at, int lda, const void *b, int bt, int ldb,
                            const void *beta, void *c, int ct, int ldc, int compute, int algorithm) {
    return cublasGemmStridedBatchedEx(h, ta, tb, m, n, k, alpha, a, at, lda, 0, b, bt, ldb, 0, beta, c, ct, ldc, 0, 1, compute, algorithm);
}
cublasStatus_t cublasGemmBatchedEx(cublasHandle_t h, int ta, int tb, int m, int n, int k, const void *alpha, const void *const a[], int at, int lda, const void *const b[],
                                   int bt, int ldb, const void *beta, void *const c[], int ct, int ldc, int count, int compute, int algorithm) {
    int result = OK;
    for (int i = 0; i < count && !result; i++) result = cublasGemmEx(h, ta, tb, m, n, k, alpha, a[i], at, lda, b[i], bt, ldb, beta, c[i], ct, ldc, compute, algorithm);
    return result;
}
cublasStatus_t cublasSgemmEx(cublasHandle_t h, int ta, int tb, int m, int n, int k, const float *alpha, const void *a, int at, int lda, const void *b, int bt, int ldb,
                             const float *beta, void *c, int ct, int ldc) {
    return cublasGemmEx(h, ta, tb, m, n, k, alpha, a, at, lda, b, bt, ldb, beta, c, ct, ldc, 68, 0);
}

#define GEMM(letter, T, type, compute)                                                                                                                              \
    cublasStatus_t cublas##letter##gemm_v2(cublasHandle_t h, int ta, int tb, int m, int n, int k, const T *alpha, const T *a, int lda, const T *b, int ldb,          \
                                           const T *beta, T *c, int ldc) {                                                                                           \
        return cublasGemmEx(h, ta, tb, m, n, k, alpha, a, type, lda, b, type, ldb, beta, c, type, ldc, compute, 0);                                                  \
    }                                                                                                                                                                \
    cublasStatus_t cublas##letter##gemmBatched(cublasHandle_t h, int ta, int tb, int m, int n, int k, const T *alpha, const void *const a[], int lda,                \
                                               const void *const b[], int ldb, const T *beta, void *const c[], int ldc, int count) {                                 \
        return cublasGemmBatchedEx(h, ta, tb, m, n, k, alpha, a, type, lda, b, type, ldb, beta, c, type, ldc, count, compute, 0);                                    \
    }                                                                                                                                                                \
    cublasStatus_t cublas##letter##gemmStridedBatched(cublasHandle_t h, int ta, int tb, int m, int n, int k, const T *alpha, const T *a, int lda, long long sa,       \
                                                      const T *b, int ldb, long long sb, const T *beta, T *c, int ldc, long long sc, int count) {                    \
        return cublasGemmStridedBatchedEx(h, ta, tb, m, n, k, alpha, a, type, lda, sa, b, type, ldb, sb, beta, c, type, ldc, sc, count, compute, 0);                 \
    }
GEMM(S, float, R_32F, 68)
GEMM(D, double, R_64F, 70)
GEMM(C, float complex, C_32F, 68)
GEMM(Z, double complex, C_64F, 70)

/* side: 1 from the right; fill: 1 the upper triangle; diagonal: 1 of ones */
#define VECTORS(letter, T, type)                                                                                                                                     \
    cublasStatus_t cublas##letter##axpy_v2(cublasHandle_t h, int n, const T *alpha, const T *x, int incx, T *y, int incy) {                                          \
        (void)h;                                                                                                                                                     \
        add_vector(n, *alpha, x, incx, y, incy, type);                                                                                                               \
        return OK;                                                                                                                                                   \
    }                                                                                                                                                                \
    cublasStatus_t cublas##letter##copy_v2(cublasHandle_t h, int n, const T *x, int incx, T *y, int incy) {                                                          \
        (void)h;                                                                                                                                                     \
        copy_vector(n, x, incx, y, incy, type);                                                                                                                      \
        return OK;                                                                                                                                                   \
    }                                                                                                                                                                \
    cublasStatus_t cublas##letter##scal_v2(cublasHandle_t h, int n, const T *alpha, T *x, int incx) {                                                                \
        (void)h;                                                                                                                                                     \
        scale_vector(n, *alpha, x, incx, type);                                                                                                                      \
        return OK;                                                                                                                                                   \
    }                                                                                                                                                                \
    cublasStatus_t cublas##letter##gemv_v2(cublasHandle_t h, int op, int m, int n, const T *alpha, const T *a, int lda, const T *x, int incx, const T *beta, T *y,   \
                                           int incy) {                                                                                                               \
        (void)h;                                                                                                                                                     \
        multiply_vector(op, m, n, *alpha, a, lda, x, incx, *beta, y, incy, type);                                                                                    \
        return OK;                                                                                                                                                   \
    }                                                                                                                                                                \
    cublasStatus_t cublas##letter##geam(cublasHandle_t h, int ta, int tb, int m, int n, const T *alpha, const T *a, int lda, const T *beta, const T *b, int ldb, T *c, \
                                        int ldc) {                                                                                                                   \
        (void)h;                                                                                                                                                     \
        add_matrices(ta, tb, m, n, *alpha, a, lda, *beta, b, ldb, c, ldc, type);                                                                                     \
        return OK;                                                                                                                                                   \
    }                                                                                                                                                                \
    cublasStatus_t cublas##letter##trsm_v2(cublasHandle_t h, int side, int fill, int op, int diagonal, int m, int n, const T *alpha, const T *a, int lda, T *b,      \
                                           int ldb) {                                                                                                                \
        (void)h;                                                                                                                                                     \
        solve_triangle(side, fill, op, diagonal, m, n, *alpha, a, lda, b, ldb, type);                                                                                \
        return OK;                                                                                                                                                   \
    }                                                                                                                                                                \
    cublasStatus_t cublas##letter##trsmBatched(cublasHandle_t h, int side, int fill, int op, int diagonal, int m, int n, const T *alpha, const T *const a[], int lda, \
                                               T *const b[], int ldb, int count) {                                                                                   \
        for (int i = 0; i < count; i++) cublas##letter##trsm_v2(h, side, fill, op, diagonal, m, n, alpha, a[i], lda, b[i], ldb);                                     \
        return OK;                                                                                                                                                   \
    }
VECTORS(S, float, R_32F)
VECTORS(D, double, R_64F)
VECTORS(C, float complex, C_32F)
VECTORS(Z, double complex, C_64F)

#if defined CUDART && CUDART < 10010 /* see refused.h */
#include "refused.h"
#define REFUSED_TYPES(name) REFUSED(cublasS##name, NOT_SUPPORTED) REFUSED(cublasD##name, NOT_SUPPORTED) REFUSED(cublasC##name, NOT_SUPPORTED) REFUSED(cublasZ##name, NOT_SUPPORTED)
REFUSED_TYPES(getrfBatched)
REFUSED_TYPES(getriBatched)
REFUSED_TYPES(getrsBatched)
REFUSED_TYPES(matinvBatched)
#endif
