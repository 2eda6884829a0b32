/* cuBLASLt: descriptors that remember what they are told, one algorithm, and the product. */
#define _GNU_SOURCE
#include "gemm.h"

#include <stdio.h>

typedef int cublasStatus_t;
enum { OK = 0, ALLOC_FAILED = 3, INVALID_VALUE = 7, NOT_SUPPORTED = 15 };
/* The library's numbers of the attributes used here */
enum { D_COMPUTE = 0, D_SCALE = 1, D_POINTERS = 2, D_TRANSA = 3, D_TRANSB = 4, D_TRANSC = 5, D_EPILOGUE = 7, D_BIAS = 8, D_BIAS_STRIDE = 10, D_A_SCALE = 17, D_D_SCALE = 20 };
enum { L_TYPE = 0, L_ORDER = 1, L_ROWS = 2, L_COLS = 3, L_LD = 4, L_BATCH = 5, L_STRIDE = 6 };
enum { PLAIN = 1, RELU = 2, BIAS = 4, GELU = 32 };

enum { MOST = 64, BYTES = 16 };
struct attributes {
    size_t size[MOST];
    char value[MOST][BYTES];
};
static cublasStatus_t set(struct attributes *x, int a, const void *value, size_t bytes) {
    if (a < 0 || a >= MOST || bytes > BYTES) return INVALID_VALUE;
    memcpy(x->value[a], value, bytes);
    x->size[a] = bytes;
    return OK;
}
static cublasStatus_t get(const struct attributes *x, int a, void *value, size_t bytes, size_t *written) {
    if (a < 0 || a >= MOST) return INVALID_VALUE;
    if (written) *written = x->size[a];
    if (value && bytes) {
        memset(value, 0, bytes);
        memcpy(value, x->value[a], bytes < BYTES ? bytes : BYTES);
    }
    return OK;
}
static long long whole(const struct attributes *x, int a) {
    long long v = 0;
    if (x->size[a] == 4) {
        int v4;
        memcpy(&v4, x->value[a], 4);
        return v4;
    }
    memcpy(&v, x->value[a], x->size[a] < 8 ? x->size[a] : 8);
    return v;
}
static void preset(struct attributes *x, int a, long long value, size_t bytes) { set(x, a, &value, bytes); }

cublasStatus_t cublasLtCreate(void **h) { *h = calloc(1, 64); return *h ? OK : ALLOC_FAILED; }
cublasStatus_t cublasLtDestroy(void *h) { free(h); return OK; }
size_t cublasLtGetVersion(void) { return 120804; }
size_t cublasLtGetCudartVersion(void) { return 12080; }
const char *cublasLtGetStatusName(cublasStatus_t s) { return s == OK ? "CUBLAS_STATUS_SUCCESS" : "CUBLAS_STATUS_NOT_SUPPORTED"; }
const char *cublasLtGetStatusString(cublasStatus_t s) { return s == OK ? "success" : "the requested functionality is not supported"; }

cublasStatus_t cublasLtMatmulDescCreate(struct attributes **d, int compute, int scale) {
    if (!(*d = calloc(1, sizeof **d))) return ALLOC_FAILED;
    preset(*d, D_COMPUTE, compute, 4);
    preset(*d, D_SCALE, scale, 4);
    preset(*d, D_EPILOGUE, PLAIN, 4);
    return OK;
}
cublasStatus_t cublasLtMatmulDescDestroy(void *d) { free(d); return OK; }
cublasStatus_t cublasLtMatmulDescSetAttribute(void *d, int a, const void *v, size_t n) { return set(d, a, v, n); }
cublasStatus_t cublasLtMatmulDescGetAttribute(void *d, int a, void *v, size_t n, size_t *w) { return get(d, a, v, n, w); }
cublasStatus_t cublasLtMatrixLayoutCreate(struct attributes **l, int type, uint64_t rows, uint64_t cols, int64_t ld) {
    if (!(*l = calloc(1, sizeof **l))) return ALLOC_FAILED;
    preset(*l, L_TYPE, type, 4);
    preset(*l, L_ROWS, (long long)rows, 8);
    preset(*l, L_COLS, (long long)cols, 8);
    preset(*l, L_LD, ld, 8);
    preset(*l, L_BATCH, 1, 4);
    return OK;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(void *l) { free(l); return OK; }
cublasStatus_t cublasLtMatrixLayoutSetAttribute(void *l, int a, const void *v, size_t n) { return set(l, a, v, n); }
cublasStatus_t cublasLtMatrixLayoutGetAttribute(void *l, int a, void *v, size_t n, size_t *w) { return get(l, a, v, n, w); }
cublasStatus_t cublasLtMatmulPreferenceCreate(struct attributes **p) { *p = calloc(1, sizeof **p); return *p ? OK : ALLOC_FAILED; }
cublasStatus_t cublasLtMatmulPreferenceDestroy(void *p) { free(p); return OK; }
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(void *p, int a, const void *v, size_t n) { return set(p, a, v, n); }

struct found {
    uint64_t algorithm[8];
    size_t workspace;
    cublasStatus_t state;
    float waves;
    int reserved[4];
};
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(void *h, void *d, void *a, void *b, void *c, void *out, void *preference, int wanted, struct found *found, int *count) {
    (void)h; (void)d; (void)a; (void)b; (void)c; (void)out; (void)preference;
    *count = wanted > 0;
    if (wanted > 0) {
        memset(found, 0, sizeof *found);
        found->waves = 1;
    }
    return OK;
}

/* What is done to each element of a product: a bias for its row, then relu or gelu. */
static void finish(char *out, int type, int64_t rows, int64_t cols, int64_t ld, int epilogue, const char *bias) {
    for (int64_t y = 0; y < cols; y++) {
        for (int64_t x = 0; x < rows; x++) {
            double v = creal(element(out, x + y * ld, type));
            if (epilogue & BIAS) v += creal(element(bias, x, type));
            if (epilogue & RELU) v = v > 0 ? v : 0;
            if (epilogue & GELU) v = 0.5 * v * (1 + tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
            set_element(out, x + y * ld, v, type);
        }
    }
}

cublasStatus_t cublasLtMatmul(void *h, const struct attributes *o, const void *alpha, const void *a, const struct attributes *la, const void *b, const struct attributes *lb,
                              const void *beta, const void *c, const struct attributes *lc, void *d, const struct attributes *ld, const void *algorithm, void *workspace,
                              size_t bytes, void *stream) {
    (void)h; (void)algorithm; (void)workspace; (void)bytes; (void)stream;
    int ta = (int)whole(o, D_TRANSA), tb = (int)whole(o, D_TRANSB), epilogue = (int)whole(o, D_EPILOGUE), scale = (int)whole(o, D_SCALE);
    int at = (int)whole(la, L_TYPE), bt = (int)whole(lb, L_TYPE), dt = (int)whole(ld, L_TYPE);
    int columns = !whole(la, L_ORDER) && !whole(lb, L_ORDER) && !whole(lc, L_ORDER) && !whole(ld, L_ORDER);
    int64_t m = whole(ld, L_ROWS), n = whole(ld, L_COLS), k = ta ? whole(la, L_ROWS) : whole(la, L_COLS);
    int plain = whole(o, D_POINTERS) <= 1 && !whole(o, D_TRANSC) && !whole(o, D_BIAS_STRIDE); /* one alpha, C as it is, one bias */
    for (int a = D_A_SCALE; a <= D_D_SCALE; a++) plain &= !whole(o, a);
    if (!plain || (epilogue & ~(PLAIN | RELU | BIAS | GELU)) || !columns || !width_of(scale) || whole(lc, L_TYPE) != dt) {
        fprintf(stderr, "[software GPU] cublasLtMatmul: epilogue %d, or such a layout or scale, is not there\n", epilogue);
        return NOT_SUPPORTED;
    }
    for (int64_t i = 0; i < whole(ld, L_BATCH); i++) {
        char *out = (char *)d + i * whole(ld, L_STRIDE) * (int64_t)width_of(dt);
        struct product p = {ta, tb, m, n, k, element(alpha, 0, scale), element(beta, 0, scale), (const char *)a + i * whole(la, L_STRIDE) * (int64_t)width_of(at),
                            (const char *)b + i * whole(lb, L_STRIDE) * (int64_t)width_of(bt), (const char *)c + i * whole(lc, L_STRIDE) * (int64_t)width_of(dt), out,
                            at, bt, dt, whole(la, L_LD), whole(lb, L_LD), whole(lc, L_LD), whole(ld, L_LD)};
        cublasStatus_t result = multiply(&p);
        if (result) return result;
        if (epilogue != PLAIN) finish(out, dt, m, n, whole(ld, L_LD), epilogue, (const char *)(uintptr_t)whole(o, D_BIAS));
    }
    return OK;
}
