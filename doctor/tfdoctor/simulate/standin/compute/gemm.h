/* D = alpha op(A) op(B) + beta C on column-major matrices, of the types that TensorFlow multiplies. Sums are made with
 * doubles; only float, which is most of them, has a loop of its own. */
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

struct product {
    int ta, tb; /* 0: as it is, 1: transposed, 2: and conjugate */
    int64_t m, n, k;
    scalar alpha, beta;
    const void *a, *b, *c;
    void *d;
    int at, bt, dt; /* types; C has D's */
    int64_t lda, ldb, ldc, ldd;
};

static inline void floats(const struct product *p) {
    const float *a = p->a, *b = p->b, *c = p->c;
    float *d = p->d, alpha = (float)creal(p->alpha), beta = (float)creal(p->beta), *sum = malloc((size_t)p->m * sizeof *sum + 1);
    if (!sum) abort();
    for (int64_t j = 0; j < p->n; j++) {
        memset(sum, 0, (size_t)p->m * sizeof *sum);
        for (int64_t l = 0; l < p->k; l++) {
            float v = p->tb ? b[j + l * p->ldb] : b[l + j * p->ldb];
            if (p->ta)
                for (int64_t i = 0; i < p->m; i++) sum[i] += a[l + i * p->lda] * v;
            else
                for (int64_t i = 0; i < p->m; i++) sum[i] += a[i + l * p->lda] * v;
        }
        for (int64_t i = 0; i < p->m; i++) d[i + j * p->ldd] = alpha * sum[i] + (beta != 0 ? beta * c[i + j * p->ldc] : 0);
    }
    free(sum);
}

/* 0, or 15 (CUBLAS_STATUS_NOT_SUPPORTED) where a type is none of these. */
static inline int multiply(const struct product *p) {
    if (!width_of(p->at) || !width_of(p->bt) || !width_of(p->dt) || p->dt == R_8I) return 15;
    if (p->at == R_32F && p->bt == R_32F && p->dt == R_32F) {
        floats(p);
        return 0;
    }
    for (int64_t j = 0; j < p->n; j++) {
        for (int64_t i = 0; i < p->m; i++) {
            scalar sum = 0;
            for (int64_t l = 0; l < p->k; l++) {
                scalar x = element(p->a, p->ta ? l + i * p->lda : i + l * p->lda, p->at), y = element(p->b, p->tb ? j + l * p->ldb : l + j * p->ldb, p->bt);
                sum += (p->ta == 2 ? conj(x) : x) * (p->tb == 2 ? conj(y) : y);
            }
            scalar old = p->beta != 0 ? p->beta * element(p->c, i + j * p->ldc, p->dt) : 0;
            set_element(p->d, i + j * p->ldd, p->alpha * sum + old, p->dt);
        }
    }
    return 0;
}
