/* D = alpha op(A) op(B) + beta C on column-major matrices, of the types that TensorFlow multiplies. Sums are made with
 * doubles; only float, which is most of them, is summed as floats. */
#pragma once
#include <complex.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* cudaDataType's numbers */
enum { R_32F = 0, R_64F = 1, R_16F = 2, R_8I = 3, C_32F = 4, C_64F = 5, R_32I = 10, R_16BF = 14 };

typedef double complex scalar;

static inline size_t width_of(int type) {
    switch (type) {
    case R_32F: case R_32I: return 4;
    case R_64F: case C_32F: return 8;
    case C_64F: return 16;
    case R_16F: case R_16BF: return 2;
    case R_8I: return 1;
    default: return 0;
    }
}

static inline double from_half(uint16_t h) {
    int exponent = h >> 10 & 31, digits = h & 1023;
    double x = exponent == 31 ? (digits ? NAN : INFINITY) : ldexp(exponent ? digits + 1024 : digits, (exponent ? exponent : 1) - 25);
    return h & 0x8000 ? -x : x;
}
static inline uint16_t to_half(double x) { /* to the nearest, of two the even one */
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    double a = fabs(x);
    if (x != x) return 0x7fff;
    if (a >= 65520) return sign | 0x7c00;
    int exponent = a == 0 ? -14 : ilogb(a);
    if (exponent < -14) exponent = -14;
    double scaled = ldexp(a, 10 - exponent), whole = floor(scaled), rest = scaled - whole;
    uint32_t q = (uint32_t)whole;
    q += rest > 0.5 || (rest == 0.5 && (q & 1));
    return sign | (uint16_t)(((uint32_t)(exponent + 14) << 10) + q);
}
static inline float from_bfloat(uint16_t b) {
    uint32_t u = (uint32_t)b << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}
static inline uint16_t to_bfloat(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    if (f != f) return 0x7fff;
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static inline scalar element(const void *p, int64_t i, int type) {
    switch (type) {
    case R_32F: return ((const float *)p)[i];
    case R_64F: return ((const double *)p)[i];
    case C_32F: return ((const float complex *)p)[i];
    case C_64F: return ((const double complex *)p)[i];
    case R_16F: return from_half(((const uint16_t *)p)[i]);
    case R_16BF: return from_bfloat(((const uint16_t *)p)[i]);
    case R_8I: return ((const int8_t *)p)[i];
    default: return ((const int32_t *)p)[i];
    }
}
static inline void set_element(void *p, int64_t i, scalar v, int type) {
    switch (type) {
    case R_32F: ((float *)p)[i] = (float)creal(v); break;
    case R_64F: ((double *)p)[i] = creal(v); break;
    case C_32F: ((float complex *)p)[i] = (float complex)v; break;
    case C_64F: ((double complex *)p)[i] = v; break;
    case R_16F: ((uint16_t *)p)[i] = to_half(creal(v)); break;
    case R_16BF: ((uint16_t *)p)[i] = to_bfloat((float)creal(v)); break;
    default: ((int32_t *)p)[i] = (int32_t)(uint32_t)(int64_t)creal(v); /* as sums of 32 bits wrap */
    }
}

/* op(A)[i, j]: 0 as it is, 1 transposed, 2 and conjugate */
static inline scalar turned(const void *a, int op, int64_t i, int64_t j, int64_t lda, int type) {
    scalar x = element(a, op ? j + i * lda : i + j * lda, type);
    return op == 2 ? conj(x) : x;
}

static inline int is_real(int type) { return type != C_32F && type != C_64F; }

struct product {
    int ta, tb; /* see turned() */
    int64_t m, n, k;
    scalar alpha, beta;
    const void *a, *b, *c;
    void *d;
    int at, bt, dt; /* types; C has D's */
    int64_t lda, ldb, ldc, ldd;
};

/* op(A) as m times k, a column after the other, and op(B) as k times n: what is read most lies side by side. */
#define REAL_PRODUCT(name, T, get)                                                                                                         \
    static inline void name(const struct product *p) {                                                                                     \
        T *a = malloc((size_t)(p->m * p->k) * sizeof *a + 1), *sum = malloc((size_t)p->m * sizeof *sum + 1);                               \
        if (!a || !sum) abort();                                                                                                           \
        for (int64_t l = 0; l < p->k; l++)                                                                                                 \
            for (int64_t i = 0; i < p->m; i++) a[i + l * p->m] = get(p->a, p->ta ? l + i * p->lda : i + l * p->lda, p->at);                \
        for (int64_t j = 0; j < p->n; j++) {                                                                                               \
            for (int64_t i = 0; i < p->m; i++) sum[i] = 0;                                                                                 \
            for (int64_t l = 0; l < p->k; l++) {                                                                                           \
                T v = get(p->b, p->tb ? j + l * p->ldb : l + j * p->ldb, p->bt);                                                           \
                const T *column = a + l * p->m;                                                                                            \
                for (int64_t i = 0; i < p->m; i++) sum[i] += column[i] * v;                                                                \
            }                                                                                                                              \
            T alpha = (T)creal(p->alpha), beta = (T)creal(p->beta);                                                                        \
            for (int64_t i = 0; i < p->m; i++) {                                                                                           \
                T old = beta != 0 ? beta * get(p->c, i + j * p->ldc, p->dt) : 0;                                                           \
                set_element(p->d, i + j * p->ldd, alpha * sum[i] + old, p->dt);                                                            \
            }                                                                                                                              \
        }                                                                                                                                  \
        free(a);                                                                                                                           \
        free(sum);                                                                                                                         \
    }
static inline float float_at(const void *p, int64_t i, int type) { (void)type; return ((const float *)p)[i]; }
static inline double real_at(const void *p, int64_t i, int type) { return creal(element(p, i, type)); }
REAL_PRODUCT(floats, float, float_at)
REAL_PRODUCT(reals, double, real_at)

/* 0, or 15 (CUBLAS_STATUS_NOT_SUPPORTED) where a type is none of these. */
static inline int multiply(const struct product *p) {
    if (!width_of(p->at) || !width_of(p->bt) || !width_of(p->dt) || p->dt == R_8I) return 15;
    if (p->at == R_32F && p->bt == R_32F && p->dt == R_32F) {
        floats(p);
        return 0;
    }
    if (is_real(p->at) && is_real(p->bt) && is_real(p->dt) && cimag(p->alpha) == 0 && cimag(p->beta) == 0) {
        reals(p);
        return 0;
    }
    for (int64_t j = 0; j < p->n; j++) {
        for (int64_t i = 0; i < p->m; i++) {
            scalar sum = 0;
            for (int64_t l = 0; l < p->k; l++) sum += turned(p->a, p->ta, i, l, p->lda, p->at) * turned(p->b, p->tb, l, j, p->ldb, p->bt);
            scalar old = p->beta != 0 ? p->beta * element(p->c, i + j * p->ldc, p->dt) : 0;
            set_element(p->d, i + j * p->ldd, p->alpha * sum + old, p->dt);
        }
    }
    return 0;
}
