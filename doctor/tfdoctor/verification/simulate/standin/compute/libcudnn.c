/* cuDNN's API of descriptors, which every release has: convolutions, pooling, batch normalization, activations. From 2.9 on
 * TensorFlow can convolve by the graph API of graph.h instead (TF_CUDNN_USE_FRONTEND), and 2.20 does so alone. A function that is missing is named by TensorFlow. Sums are made with doubles; a tensor is walked by its strides, so NCHW and NHWC are one. */
#define _GNU_SOURCE
#include "faults.h"
#include "gemm.h"

#include <stdio.h>

#ifndef CUDNN
#define CUDNN 90300 /* CUDNN_VERSION: from 9 on major * 10000, before major * 1000 */
#endif
#define MAJOR (CUDNN >= 90000 ? CUDNN / 10000 : CUDNN / 1000)
typedef int cudnnStatus_t;
enum {
    OK = 0, ALLOC_FAILED = CUDNN >= 90000 ? 1003 : 2, BAD_PARAM = CUDNN >= 90000 ? 2000 : 3, NOT_SUPPORTED = CUDNN >= 90000 ? 3000 : 9,
    MOST = 8, AXES = 5 /* N, C, depth, height, width */
};
typedef struct handle { void *stream; } *cudnnHandle_t;
typedef struct tensor { int type, n, dim[MOST], stride[MOST]; } *tensor_t;
typedef struct convolution { int n, pad[MOST], stride[MOST], dilation[MOST], mode, groups, math; } *convolution_t;
typedef struct pooling { int mode, nan, n, window[MOST], pad[MOST], stride[MOST]; } *pooling_t;
typedef struct activation { int mode; double bound; } *activation_t;

static int version(void) { int asked = standin_status("cudnn-version"); return asked ? asked : CUDNN; }
size_t cudnnGetVersion(void) { return (size_t)version(); }
size_t cudnnGetCudartVersion(void) { return MAJOR >= 9 ? 12050 : 11080; }
cudnnStatus_t cudnnGetProperty(int which, int *value) {
    int v = version(), nine = v >= 90000;
    *value = which == 0 ? v / (nine ? 10000 : 1000) : which == 1 ? v / 100 % (nine ? 100 : 10) : v % 100;
    return OK;
}
const char *cudnnGetErrorString(cudnnStatus_t s) {
    if (s == (MAJOR >= 9 ? 1001 : 1)) return "CUDNN_STATUS_NOT_INITIALIZED";
    return s == OK ? "CUDNN_STATUS_SUCCESS" : s == ALLOC_FAILED ? "CUDNN_STATUS_ALLOC_FAILED" : s == NOT_SUPPORTED ? "CUDNN_STATUS_NOT_SUPPORTED" : s == BAD_PARAM ? "CUDNN_STATUS_BAD_PARAM" : "CUDNN_STATUS_INTERNAL_ERROR";
}
void cudnnGetLastErrorString(char *text, size_t size) {
    if (size) text[0] = 0;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t h, void *stream) { h->stream = stream; return OK; }
cudnnStatus_t cudnnGetStream(cudnnHandle_t h, void **stream) { *stream = h->stream; return OK; }

#define OBJECT(name, type)                                                                                     \
    cudnnStatus_t cudnnCreate##name(struct type **o) { *o = calloc(1, sizeof **o); return *o ? OK : ALLOC_FAILED; } \
    cudnnStatus_t cudnnDestroy##name(struct type *o) { free(o); return OK; }
cudnnStatus_t cudnnCreate(struct handle **o) { int asked = standin_status("cudnn"); if (asked) return asked; *o = calloc(1, sizeof **o); return *o ? OK : ALLOC_FAILED; }
cudnnStatus_t cudnnDestroy(struct handle *o) { free(o); return OK; }
OBJECT(TensorDescriptor, tensor)
OBJECT(FilterDescriptor, tensor)
OBJECT(ConvolutionDescriptor, convolution)
OBJECT(PoolingDescriptor, pooling)
OBJECT(ActivationDescriptor, activation)

/* cudnnDataType_t as gemm.h's types; -1: none of them */
static int type_of(tensor_t t) {
    switch (t->type) {
    case 0: return R_32F;
    case 1: return R_64F;
    case 2: return R_16F;
    case 9: return R_16BF;
    default: return -1;
    }
}
static double scale(const void *value, tensor_t t) { return t->type == 1 ? *(const double *)value : *(const float *)value; }

/* -- Descriptors ------------------------------------------------------------------------------ */

cudnnStatus_t cudnnSetTensorNdDescriptor(tensor_t t, int type, int n, const int *dim, const int *stride) {
    if (n < 1 || n > MOST) return BAD_PARAM;
    t->type = type;
    t->n = n;
    memcpy(t->dim, dim, sizeof(int) * (size_t)n);
    memcpy(t->stride, stride, sizeof(int) * (size_t)n);
    return OK;
}
static cudnnStatus_t packed(tensor_t t, int type, int format, int n, const int *dim) { /* format 0: NCHW, 1: NHWC */
    int stride[MOST], size = 1;
    if (n < 2 || n > MOST || format > 1) return format > 1 ? NOT_SUPPORTED : BAD_PARAM;
    if (format) {
        stride[1] = 1;
        size = dim[1];
    }
    for (int i = n - 1; i > format; i--) {
        stride[i] = size;
        size *= dim[i];
    }
    stride[0] = size;
    return cudnnSetTensorNdDescriptor(t, type, n, dim, stride);
}
cudnnStatus_t cudnnSetTensor4dDescriptor(tensor_t t, int format, int type, int n, int c, int h, int w) { return packed(t, type, format, 4, (const int[]){n, c, h, w}); }
cudnnStatus_t cudnnSetFilterNdDescriptor(tensor_t t, int type, int format, int n, const int *dim) { return packed(t, type, format, n, dim); }
cudnnStatus_t cudnnSetFilter4dDescriptor(tensor_t t, int type, int format, int k, int c, int h, int w) { return packed(t, type, format, 4, (const int[]){k, c, h, w}); }
cudnnStatus_t cudnnSetConvolutionNdDescriptor(convolution_t c, int n, const int *pad, const int *stride, const int *dilation, int mode, int compute) {
    (void)compute;
    if (n < 1 || n > 3) return NOT_SUPPORTED;
    c->n = n;
    memcpy(c->pad, pad, sizeof(int) * (size_t)n);
    memcpy(c->stride, stride, sizeof(int) * (size_t)n);
    memcpy(c->dilation, dilation, sizeof(int) * (size_t)n);
    c->mode = mode;
    return OK;
}
cudnnStatus_t cudnnSetConvolutionGroupCount(convolution_t c, int groups) { c->groups = groups; return OK; }
cudnnStatus_t cudnnSetConvolutionMathType(convolution_t c, int math) { c->math = math; return OK; }
cudnnStatus_t cudnnGetConvolutionMathType(convolution_t c, int *math) { *math = c->math; return OK; }
cudnnStatus_t cudnnSetConvolutionReorderType(convolution_t c, int type) { (void)c; (void)type; return OK; }
cudnnStatus_t cudnnSetPoolingNdDescriptor(pooling_t p, int mode, int nan, int n, const int *window, const int *pad, const int *stride) {
    if (n < 1 || n > 3) return NOT_SUPPORTED;
    p->mode = mode;
    p->nan = nan;
    p->n = n;
    memcpy(p->window, window, sizeof(int) * (size_t)n);
    memcpy(p->pad, pad, sizeof(int) * (size_t)n);
    memcpy(p->stride, stride, sizeof(int) * (size_t)n);
    return OK;
}
cudnnStatus_t cudnnSetActivationDescriptor(activation_t a, int mode, int nan, double bound) {
    (void)nan;
    a->mode = mode;
    a->bound = bound;
    return OK;
}

/* -- Walking ---------------------------------------------------------------------------------- */

struct walk { /* a tensor as N, C, depth, height, width: what it does not have is 1 long */
    int64_t dim[AXES], stride[AXES], size;
    int type;
};
static int walk_of(tensor_t t, struct walk *w) {
    if (t->n < 2 || t->n > AXES || type_of(t) < 0) return NOT_SUPPORTED;
    *w = (struct walk){{1, 1, 1, 1, 1}, {0}, 1, type_of(t)};
    for (int i = 0; i < t->n; i++) {
        int axis = i < 2 ? i : i + AXES - t->n;
        w->dim[axis] = t->dim[i];
        w->stride[axis] = t->stride[i];
        w->size *= t->dim[i];
    }
    return OK;
}
/* The place of element i, counted as if it were packed; its indices. */
static int64_t place(const struct walk *w, int64_t i, int64_t at[AXES]) {
    int64_t offset = 0;
    for (int axis = AXES - 1; axis >= 0; axis--) {
        at[axis] = i % w->dim[axis];
        i /= w->dim[axis];
        offset += at[axis] * w->stride[axis];
    }
    return offset;
}
static int64_t offset_of(const struct walk *w, const int64_t at[AXES]) {
    int64_t offset = 0;
    for (int axis = 0; axis < AXES; axis++) offset += at[axis] * w->stride[axis];
    return offset;
}
static int64_t index_of(const struct walk *w, const int64_t at[AXES]) {
    int64_t index = 0;
    for (int axis = 0; axis < AXES; axis++) index = index * w->dim[axis] + at[axis];
    return index;
}
/* out = alpha * sums + beta * out; the sums are freed. */
static cudnnStatus_t keep(const struct walk *w, double *sums, double alpha, double beta, void *out) {
    int64_t at[AXES];
    for (int64_t i = 0; i < w->size; i++) {
        int64_t o = place(w, i, at);
        double old = beta != 0 ? beta * creal(element(out, o, w->type)) : 0;
        set_element(out, o, alpha * sums[i] + old, w->type);
    }
    free(sums);
    return OK;
}
static void spread(int n, const int *given, int missing, int64_t full[3]) {
    for (int i = 0; i < 3; i++) full[i] = i < 3 - n ? missing : given[i - (3 - n)];
}

/* -- Convolution ------------------------------------------------------------------------------ */

enum way { FORWARD, TO_DATA, TO_FILTER };

/* All products of a convolution, summed into what is wanted; NULL sums where it cannot be done. */
static cudnnStatus_t convolved(enum way way, tensor_t xt, const void *x, tensor_t wt, const void *w, convolution_t c, tensor_t yt, const void *y, double **sums) {
    struct walk X, W, Y;
    int64_t pad[3], stride[3], dilation[3], a[AXES], f[AXES], b[AXES];
    if (walk_of(xt, &X) || walk_of(wt, &W) || walk_of(yt, &Y)) return NOT_SUPPORTED;
    int64_t groups = c->groups ? c->groups : 1, each = W.dim[0] / groups;
    if (xt->n != c->n + 2 || W.dim[0] % groups || X.dim[1] != W.dim[1] * groups || Y.dim[1] != W.dim[0] || Y.dim[0] != X.dim[0]) return BAD_PARAM;
    spread(c->n, c->pad, 0, pad);
    spread(c->n, c->stride, 1, stride);
    spread(c->n, c->dilation, 1, dilation);
    const struct walk *wanted = way == FORWARD ? &Y : way == TO_DATA ? &X : &W;
    double *sum = calloc((size_t)wanted->size + 1, sizeof *sum);
    if (!sum) return ALLOC_FAILED;
    for (int64_t i = 0; i < Y.size; i++) {
        int64_t yo = place(&Y, i, b), first = b[1] / each * W.dim[1];
        double dy = way == FORWARD ? 0 : creal(element(y, yo, Y.type)), total = 0;
        int64_t filter = W.size / W.dim[0];
        for (int64_t j = 0; j < filter; j++) {
            int64_t wo = place(&W, b[1] * filter + j, f), inside = 1;
            a[0] = b[0];
            a[1] = first + f[1];
            for (int s = 0; s < 3; s++) { /* mode 0 is a true convolution: its filter is turned round */
                int64_t tap = c->mode == 0 ? W.dim[s + 2] - 1 - f[s + 2] : f[s + 2];
                a[s + 2] = b[s + 2] * stride[s] - pad[s] + tap * dilation[s];
                inside &= a[s + 2] >= 0 && a[s + 2] < X.dim[s + 2];
            }
            if (!inside) continue;
            if (way == FORWARD) total += creal(element(x, offset_of(&X, a), X.type)) * creal(element(w, wo, W.type));
            else if (way == TO_DATA) sum[index_of(&X, a)] += dy * creal(element(w, wo, W.type));
            else sum[b[1] * filter + j] += dy * creal(element(x, offset_of(&X, a), X.type));
        }
        if (way == FORWARD) sum[i] = total;
    }
    *sums = sum;
    return OK;
}
static cudnnStatus_t convolve(enum way way, const void *alpha, const void *beta, tensor_t xt, void *x, tensor_t wt, void *w, convolution_t c, tensor_t yt, void *y) {
    double *sums;
    struct walk out;
    tensor_t wanted = way == FORWARD ? yt : way == TO_DATA ? xt : wt;
    cudnnStatus_t s = convolved(way, xt, x, wt, w, c, yt, y, &sums);
    if (s || walk_of(wanted, &out)) return s;
    return keep(&out, sums, scale(alpha, xt), scale(beta, xt), way == FORWARD ? y : way == TO_DATA ? x : w);
}
cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t h, const void *alpha, tensor_t xt, void *x, tensor_t wt, void *w, convolution_t c, int algorithm, void *space, size_t n,
                                      const void *beta, tensor_t yt, void *y) {
    (void)h; (void)algorithm; (void)space; (void)n;
    return convolve(FORWARD, alpha, beta, xt, x, wt, w, c, yt, y);
}
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t h, const void *alpha, tensor_t wt, void *w, tensor_t yt, void *y, convolution_t c, int algorithm, void *space, size_t n,
                                           const void *beta, tensor_t xt, void *x) {
    (void)h; (void)algorithm; (void)space; (void)n;
    return convolve(TO_DATA, alpha, beta, xt, x, wt, w, c, yt, y);
}
cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t h, const void *alpha, tensor_t xt, void *x, tensor_t yt, void *y, convolution_t c, int algorithm, void *space, size_t n,
                                             const void *beta, tensor_t wt, void *w) {
    (void)h; (void)algorithm; (void)space; (void)n;
    return convolve(TO_FILTER, alpha, beta, xt, x, wt, w, c, yt, y);
}
static double activated(activation_t a, double v, int *known) {
    switch (a->mode) {
    case 0: return 1 / (1 + exp(-v));
    case 1: return v < 0 ? 0 : v;
    case 2: return tanh(v);
    case 3: return v < 0 ? 0 : v > a->bound ? a->bound : v;
    case 4: return v < 0 ? a->bound * expm1(v) : v;
    case 5: return v;
    default: *known = 0; return v;
    }
}
cudnnStatus_t cudnnConvolutionBiasActivationForward(cudnnHandle_t h, const void *alpha, tensor_t xt, void *x, tensor_t wt, void *w, convolution_t c, int algorithm, void *space,
                                                    size_t n, const void *more, tensor_t zt, void *z, tensor_t bt, void *bias, activation_t a, tensor_t yt, void *y) {
    (void)h; (void)algorithm; (void)space; (void)n;
    double *sums, by = scale(alpha, xt), with = scale(more, xt);
    struct walk Y, Z, B;
    int64_t at[AXES];
    int known = 1;
    activated(a, 0, &known);
    if (!known || walk_of(yt, &Y) || walk_of(zt, &Z) || walk_of(bt, &B)) return NOT_SUPPORTED;
    cudnnStatus_t s = convolved(FORWARD, xt, x, wt, w, c, yt, y, &sums);
    for (int64_t i = 0; !s && i < Y.size; i++) {
        place(&Y, i, at);
        double v = by * sums[i] + creal(element(bias, at[1] * B.stride[1], B.type));
        if (with != 0) v += with * creal(element(z, offset_of(&Z, at), Z.type));
        sums[i] = activated(a, v, &known);
    }
    return s ? s : keep(&Y, sums, 1, 0, y);
}

#include "graph.h"

/* One algorithm, number 1, that needs no memory. */
struct performance { int algorithm, status; float time; size_t memory; int determinism, math, reserved[3]; };
#define ALGORITHMS(way)                                                                                                                                       \
    cudnnStatus_t cudnnGetConvolution##way##WorkspaceSize(cudnnHandle_t h, void *a, void *b, void *c, void *d, int algorithm, size_t *bytes) {                 \
        (void)h; (void)a; (void)b; (void)c; (void)d;                                                                                                          \
        *bytes = 0;                                                                                                                                           \
        return algorithm == 1 ? OK : NOT_SUPPORTED;                                                                                                           \
    }                                                                                                                                                         \
    cudnnStatus_t cudnnGetConvolution##way##Algorithm_v7(cudnnHandle_t h, void *a, void *b, void *c, void *d, int want, int *got, struct performance *p) {     \
        (void)h; (void)a; (void)b; (void)c; (void)d;                                                                                                          \
        *got = want > 0;                                                                                                                                      \
        if (want > 0) *p = (struct performance){.algorithm = 1, .determinism = 1};                                                                            \
        return OK;                                                                                                                                            \
    }                                                                                                                                                         \
    cudnnStatus_t cudnnGetConvolution##way##Algorithm(cudnnHandle_t h, void *a, void *b, void *c, void *d, int preference, size_t limit, int *algorithm) {     \
        (void)h; (void)a; (void)b; (void)c; (void)d; (void)preference; (void)limit;                                                                            \
        *algorithm = 1;                                                                                                                                       \
        return OK;                                                                                                                                            \
    }
ALGORITHMS(Forward)
ALGORITHMS(BackwardData)
ALGORITHMS(BackwardFilter)

/* -- Pooling ---------------------------------------------------------------------------------- */

/* Modes: 0 and 3 the greatest, 1 and 2 the mean, with and without the padding. dy: backward, into dx. */
static cudnnStatus_t pool(pooling_t p, const void *alpha, const void *beta, tensor_t xt, const void *x, tensor_t yt, void *y, const void *dy, void *dx) {
    struct walk X, Y;
    int64_t pad[3], stride[3], window[3], a[AXES], b[AXES];
    if (walk_of(xt, &X) || walk_of(yt, &Y) || xt->n != p->n + 2 || p->mode < 0 || p->mode > 3) return NOT_SUPPORTED;
    if (X.dim[0] != Y.dim[0] || X.dim[1] != Y.dim[1]) return BAD_PARAM;
    spread(p->n, p->pad, 0, pad);
    spread(p->n, p->stride, 1, stride);
    spread(p->n, p->window, 1, window);
    int64_t all = window[0] * window[1] * window[2];
    double *sums = calloc((size_t)(dy ? X.size : Y.size) + 1, sizeof *sums);
    if (!sums) return ALLOC_FAILED;
    for (int64_t i = 0; i < Y.size; i++) {
        int64_t count = 0, where = -1, o = place(&Y, i, b);
        double best = 0, sum = 0, g = dy ? creal(element(dy, o, Y.type)) : 0;
        for (int turn = 0; turn < 2; turn++) /* the second one shares a mean out */
            for (int64_t j = 0; j < all; j++) {
                int64_t inside = 1, rest = j;
                a[0] = b[0];
                a[1] = b[1];
                for (int s = 2; s >= 0; s--) {
                    a[s + 2] = b[s + 2] * stride[s] - pad[s] + rest % window[s];
                    rest /= window[s];
                    inside &= a[s + 2] >= 0 && a[s + 2] < X.dim[s + 2];
                }
                if (!inside) continue;
                if (turn) {
                    if (dy && (p->mode == 1 || p->mode == 2)) sums[index_of(&X, a)] += g / (double)(p->mode == 1 ? all : count);
                    continue;
                }
                double v = creal(element(x, offset_of(&X, a), X.type));
                count++;
                sum += v;
                if (where < 0 || v > best || (p->nan ? v != v : best != best)) { /* nan 0: the greatest that is a number */
                    best = v;
                    where = index_of(&X, a);
                }
            }
        if (!dy) sums[i] = p->mode == 0 || p->mode == 3 ? best : sum / (double)(p->mode == 1 ? all : count);
        else if (where >= 0 && (p->mode == 0 || p->mode == 3)) sums[where] += g;
    }
    return keep(dy ? &X : &Y, sums, scale(alpha, xt), scale(beta, xt), dy ? dx : y);
}
cudnnStatus_t cudnnPoolingForward(cudnnHandle_t h, pooling_t p, const void *alpha, tensor_t xt, void *x, const void *beta, tensor_t yt, void *y) {
    (void)h;
    return pool(p, alpha, beta, xt, x, yt, y, NULL, NULL);
}
cudnnStatus_t cudnnPoolingBackward(cudnnHandle_t h, pooling_t p, const void *alpha, tensor_t yt, void *y, tensor_t dyt, void *dy, tensor_t xt, void *x, const void *beta,
                                   tensor_t dxt, void *dx) {
    (void)h; (void)yt; (void)y; (void)dxt;
    return pool(p, alpha, beta, xt, x, dyt, NULL, dy, dx);
}

/* -- Activation ------------------------------------------------------------------------------- */

cudnnStatus_t cudnnActivationForward(cudnnHandle_t h, activation_t a, const void *alpha, tensor_t xt, void *x, const void *beta, tensor_t yt, void *y) {
    (void)h;
    struct walk X, Y;
    int64_t at[AXES];
    int known = 1;
    if (walk_of(xt, &X) || walk_of(yt, &Y) || memcmp(X.dim, Y.dim, sizeof X.dim)) return NOT_SUPPORTED;
    double *sums = calloc((size_t)Y.size + 1, sizeof *sums);
    if (!sums) return ALLOC_FAILED;
    for (int64_t i = 0; i < X.size; i++) sums[i] = activated(a, creal(element(x, place(&X, i, at), X.type)), &known);
    if (known) return keep(&Y, sums, scale(alpha, xt), scale(beta, xt), y);
    free(sums);
    return NOT_SUPPORTED;
}

/* -- Batch normalization: a mean for each channel (mode 0, one for each place, is not here); its parameters are floats -- */

cudnnStatus_t cudnnDeriveBNTensorDescriptor(tensor_t out, tensor_t x, int mode) {
    if (mode == 0) return NOT_SUPPORTED;
    return packed(out, x->type == 1 ? 1 : 0, 0, 4, (const int[]){1, x->dim[1], 1, 1});
}
struct channel { double mean, variance, count; };
static void measure(const struct walk *X, const void *x, int64_t channel, struct channel *c) {
    int64_t at[AXES];
    double sum = 0, squares = 0;
    c->count = (double)(X->size / X->dim[1]);
    for (int turn = 0; turn < 2; turn++) {
        for (int64_t i = 0; i < X->size; i++) {
            int64_t o = place(X, i, at);
            if (at[1] != channel) continue;
            double v = creal(element(x, o, X->type));
            if (turn) squares += (v - c->mean) * (v - c->mean);
            else sum += v;
        }
        c->mean = sum / c->count;
    }
    c->variance = squares / c->count;
}
static cudnnStatus_t normalize(int mode, const void *alpha, const void *beta, tensor_t xt, const void *x, tensor_t yt, void *y, tensor_t bt, const void *by, const void *bias,
                               int training, double factor, void *means, void *variances, double epsilon, void *saved, void *inverses) {
    struct walk X, Y, B;
    int64_t at[AXES];
    if (mode == 0 || walk_of(xt, &X) || walk_of(yt, &Y) || walk_of(bt, &B)) return NOT_SUPPORTED;
    if (memcmp(X.dim, Y.dim, sizeof X.dim) || B.size != X.dim[1]) return BAD_PARAM;
    double *sums = calloc((size_t)Y.size + 1, sizeof *sums);
    if (!sums) return ALLOC_FAILED;
    for (int64_t c = 0; c < X.dim[1]; c++) {
        struct channel of = {0, 0, 0};
        if (training) measure(&X, x, c, &of);
        else of = (struct channel){creal(element(means, c, B.type)), creal(element(variances, c, B.type)), 0};
        double inverse = 1 / sqrt(of.variance + epsilon);
        if (training && means && variances) {
            double whole = of.count > 1 ? of.variance * of.count / (of.count - 1) : of.variance; /* of the population that it is a sample of */
            double mean = factor < 1 ? creal(element(means, c, B.type)) * (1 - factor) : 0, variance = factor < 1 ? creal(element(variances, c, B.type)) * (1 - factor) : 0;
            set_element(means, c, mean + factor * of.mean, B.type);
            set_element(variances, c, variance + factor * whole, B.type);
        }
        if (saved) set_element(saved, c, of.mean, B.type);
        if (inverses) set_element(inverses, c, inverse, B.type);
        double slope = creal(element(by, c, B.type)) * inverse, start = creal(element(bias, c, B.type));
        for (int64_t i = 0; i < X.size; i++) {
            int64_t o = place(&X, i, at);
            if (at[1] == c) sums[i] = (creal(element(x, o, X.type)) - of.mean) * slope + start;
        }
    }
    return keep(&Y, sums, scale(alpha, xt), scale(beta, xt), y);
}
cudnnStatus_t cudnnBatchNormalizationForwardInference(cudnnHandle_t h, int mode, const void *alpha, const void *beta, tensor_t xt, void *x, tensor_t yt, void *y, tensor_t bt,
                                                      void *by, void *bias, void *means, void *variances, double epsilon) {
    (void)h;
    return normalize(mode, alpha, beta, xt, x, yt, y, bt, by, bias, 0, 0, means, variances, epsilon, NULL, NULL);
}
cudnnStatus_t cudnnBatchNormalizationForwardTraining(cudnnHandle_t h, int mode, const void *alpha, const void *beta, tensor_t xt, void *x, tensor_t yt, void *y, tensor_t bt,
                                                     void *by, void *bias, double factor, void *means, void *variances, double epsilon, void *saved, void *inverses) {
    (void)h;
    return normalize(mode, alpha, beta, xt, x, yt, y, bt, by, bias, 1, factor, means, variances, epsilon, saved, inverses);
}
cudnnStatus_t cudnnBatchNormalizationBackward(cudnnHandle_t h, int mode, const void *alpha, const void *beta, const void *alpha2, const void *beta2, tensor_t xt, void *x,
                                              tensor_t dyt, void *dy, tensor_t dxt, void *dx, tensor_t bt, void *by, void *dby, void *dbias, double epsilon, void *saved,
                                              void *inverses) {
    (void)h;
    struct walk X, G, D, B;
    int64_t at[AXES];
    if (mode == 0 || walk_of(xt, &X) || walk_of(dyt, &G) || walk_of(dxt, &D) || walk_of(bt, &B)) return NOT_SUPPORTED;
    if (memcmp(X.dim, G.dim, sizeof X.dim) || memcmp(X.dim, D.dim, sizeof X.dim) || B.size != X.dim[1]) return BAD_PARAM;
    double *sums = calloc((size_t)D.size + 1, sizeof *sums), old = scale(beta2, xt);
    if (!sums) return ALLOC_FAILED;
    for (int64_t c = 0; c < X.dim[1]; c++) {
        struct channel of;
        measure(&X, x, c, &of);
        if (saved) of.mean = creal(element(saved, c, B.type));
        double inverse = inverses ? creal(element(inverses, c, B.type)) : 1 / sqrt(of.variance + epsilon), total = 0, along = 0;
        double slope = creal(element(by, c, B.type)) * inverse;
        for (int turn = 0; turn < 2; turn++)
            for (int64_t i = 0; i < X.size; i++) {
                int64_t o = place(&X, i, at);
                if (at[1] != c) continue;
                double g = creal(element(dy, offset_of(&G, at), G.type)), v = (creal(element(x, o, X.type)) - of.mean) * inverse;
                if (turn) sums[i] = slope * (g - total / of.count - v * along / of.count);
                else total += g, along += g * v;
            }
        set_element(dby, c, scale(alpha2, xt) * along + (old != 0 ? old * creal(element(dby, c, B.type)) : 0), B.type);
        set_element(dbias, c, scale(alpha2, xt) * total + (old != 0 ? old * creal(element(dbias, c, B.type)) : 0), B.type);
    }
    return keep(&D, sums, scale(alpha, xt), scale(beta, xt), dx);
}

/* The same with an operation after it (0: none, which is the only one here). */
cudnnStatus_t cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(cudnnHandle_t h, int mode, int then, void *x, void *z, void *y, void *b, void *a, size_t *bytes) {
    (void)h; (void)mode; (void)x; (void)z; (void)y; (void)b; (void)a;
    *bytes = 0;
    return then ? NOT_SUPPORTED : OK;
}
cudnnStatus_t cudnnGetBatchNormalizationBackwardExWorkspaceSize(cudnnHandle_t h, int mode, int then, void *x, void *y, void *dy, void *dz, void *dx, void *b, void *a,
                                                                size_t *bytes) {
    (void)h; (void)mode; (void)x; (void)y; (void)dy; (void)dz; (void)dx; (void)b; (void)a;
    *bytes = 0;
    return then ? NOT_SUPPORTED : OK;
}
cudnnStatus_t cudnnGetBatchNormalizationTrainingExReserveSpaceSize(cudnnHandle_t h, int mode, int then, void *a, void *x, size_t *bytes) {
    (void)h; (void)mode; (void)a; (void)x;
    *bytes = 0;
    return then ? NOT_SUPPORTED : OK;
}
cudnnStatus_t cudnnBatchNormalizationForwardTrainingEx(cudnnHandle_t h, int mode, int then, const void *alpha, const void *beta, tensor_t xt, void *x, tensor_t zt, void *z,
                                                       tensor_t yt, void *y, tensor_t bt, void *by, void *bias, double factor, void *means, void *variances, double epsilon,
                                                       void *saved, void *inverses, void *a, void *space, size_t n, void *reserve, size_t m) {
    (void)h; (void)zt; (void)z; (void)a; (void)space; (void)n; (void)reserve; (void)m;
    return then ? NOT_SUPPORTED : normalize(mode, alpha, beta, xt, x, yt, y, bt, by, bias, 1, factor, means, variances, epsilon, saved, inverses);
}
cudnnStatus_t cudnnBatchNormalizationBackwardEx(cudnnHandle_t h, int mode, int then, const void *alpha, const void *beta, const void *alpha2, const void *beta2, tensor_t xt,
                                                void *x, tensor_t yt, void *y, tensor_t dyt, void *dy, tensor_t dzt, void *dz, tensor_t dxt, void *dx, tensor_t bt, void *by,
                                                void *bias, void *dby, void *dbias, double epsilon, void *saved, void *inverses, void *a, void *space, size_t n, void *reserve,
                                                size_t m) {
    (void)yt; (void)y; (void)dzt; (void)dz; (void)bias; (void)a; (void)space; (void)n; (void)reserve; (void)m;
    return then ? NOT_SUPPORTED : cudnnBatchNormalizationBackward(h, mode, alpha, beta, alpha2, beta2, xt, x, dyt, dy, dxt, dx, bt, by, dby, dbias, epsilon, saved, inverses);
}

#if defined CUDART && CUDART < 10010 /* see refused.h */
#include "refused.h"
REFUSED(cudnnAddTensor, NOT_SUPPORTED)
REFUSED(cudnnConvolutionBackwardBias, NOT_SUPPORTED)
REFUSED(cudnnCreateDropoutDescriptor, NOT_SUPPORTED)
REFUSED(cudnnCreateLRNDescriptor, NOT_SUPPORTED)
REFUSED(cudnnCreatePersistentRNNPlan, NOT_SUPPORTED)
REFUSED(cudnnCreateRNNDescriptor, NOT_SUPPORTED)
REFUSED(cudnnDestroyDropoutDescriptor, NOT_SUPPORTED)
REFUSED(cudnnDestroyLRNDescriptor, NOT_SUPPORTED)
REFUSED(cudnnDestroyPersistentRNNPlan, NOT_SUPPORTED)
REFUSED(cudnnDestroyRNNDescriptor, NOT_SUPPORTED)
REFUSED(cudnnDropoutGetStatesSize, NOT_SUPPORTED)
REFUSED(cudnnGetConvolutionNdForwardOutputDim, NOT_SUPPORTED)
REFUSED(cudnnGetFilterNdDescriptor, NOT_SUPPORTED)
REFUSED(cudnnGetRNNLinLayerBiasParams, NOT_SUPPORTED)
REFUSED(cudnnGetRNNLinLayerMatrixParams, NOT_SUPPORTED)
REFUSED(cudnnGetRNNParamsSize, NOT_SUPPORTED)
REFUSED(cudnnGetRNNTrainingReserveSize, NOT_SUPPORTED)
REFUSED(cudnnGetRNNWorkspaceSize, NOT_SUPPORTED)
REFUSED(cudnnLRNCrossChannelBackward, NOT_SUPPORTED)
REFUSED(cudnnLRNCrossChannelForward, NOT_SUPPORTED)
REFUSED(cudnnRNNBackwardData, NOT_SUPPORTED)
REFUSED(cudnnRNNBackwardWeights, NOT_SUPPORTED)
REFUSED(cudnnRNNForwardInference, NOT_SUPPORTED)
REFUSED(cudnnRNNForwardTraining, NOT_SUPPORTED)
REFUSED(cudnnSetDropoutDescriptor, NOT_SUPPORTED)
REFUSED(cudnnSetLRNDescriptor, NOT_SUPPORTED)
REFUSED(cudnnSetPersistentRNNPlan, NOT_SUPPORTED)
REFUSED(cudnnSetRNNDescriptor_v6, NOT_SUPPORTED)
REFUSED(cudnnSetRNNMatrixMathType, NOT_SUPPORTED)
REFUSED(cudnnTransformTensor, NOT_SUPPORTED)
#endif
