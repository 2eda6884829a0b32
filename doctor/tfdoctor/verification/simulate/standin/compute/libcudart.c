/* A CUDA runtime on top of the computing driver. NVIDIA's own asks the driver for private tables and refuses one
 * without them. Each call makes a context first where there is none, as the real one does. */
#define _GNU_SOURCE
#include "driver.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int cudaError_t; /* the driver's numbers, for all that are returned here */
enum { INSUFFICIENT_DRIVER = 35, NO_DEVICE = 100, INVALID_DEVICE = 101, UNKNOWN = 999, INVALID_SYMBOL = 13, MISSING_CONFIGURATION = 52, INVALID_FUNCTION = 98, DEVICES = 32 };

CUresult cuInit(unsigned), cuDeviceGetCount(int *), cuCtxGetCurrent(void **), cuCtxSetCurrent(void *), cuCtxGetDevice(int *),
    cuDevicePrimaryCtxRetain(void **, int), cuDeviceGetAttribute(int *, int, int), cuDeviceGetPCIBusId(char *, int, int), cuDeviceGetByPCIBusId(int *, const char *),
    cuDeviceCanAccessPeer(int *, int, int), cuDeviceGetName(char *, int, int), cuDeviceTotalMem_v2(size_t *, int), cuDeviceComputeCapability(int *, int *, int),
    cuMemGetInfo_v2(size_t *, size_t *), cuGetErrorName(CUresult, const char **), cuGetErrorString(CUresult, const char **);

static __thread cudaError_t last;
static __thread int device;
static void *contexts[DEVICES];

#ifndef CUDART
#define CUDART 12080 /* as the toolkit's CUDART_VERSION */
#endif
/* The runtime's numbers are the driver's from CUDA 10.1 on; before that it had its own. */
static cudaError_t result(CUresult r) {
    static const struct { CUresult driver; cudaError_t runtime; } old[] = {
        {INVALID_VALUE, 11}, {INVALID_FUNCTION, 8}, {NO_DEVICE, 38}, {INVALID_DEVICE, 10}, {NO_BINARY, 48}, {INVALID_HANDLE, 33}, {NOT_SUPPORTED, 71}, {UNKNOWN, 30}};
    if (CUDART < 10010)
        for (size_t i = 0; i < sizeof old / sizeof *old; i++)
            if (old[i].driver == r) {
                last = old[i].runtime;
                return last;
            }
    if (r) last = r;
    return r;
}
static CUresult use(int number) {
    if (!contexts[number]) {
        CUresult r = cuDevicePrimaryCtxRetain(&contexts[number], number);
        if (r) return r;
    }
    return cuCtxSetCurrent(contexts[number]);
}
/* A driver serves the runtimes of its CUDA and older, and from 11 on all those of its major number. */
static CUresult begin(void) {
    int driver = 0;
    cuDriverGetVersion(&driver);
    if (CUDART < 11000 ? driver < CUDART : driver / 1000 < CUDART / 1000) return INSUFFICIENT_DRIVER;
    return cuInit(0);
}
static cudaError_t ready(void) {
    void *context = NULL;
    CUresult r = begin();
    if (r) return result(r);
    cuCtxGetCurrent(&context);
    return context ? OK : result(use(device));
}
#define READY do { cudaError_t e_ = ready(); if (e_) return e_; } while (0)

/* -- Devices ---------------------------------------------------------------------------------- */

cudaError_t cudaGetDeviceCount(int *count) {
    CUresult r = begin();
    if (r) *count = 0;
    return result(r ? r : cuDeviceGetCount(count));
}
cudaError_t cudaGetDevice(int *number) {
    void *context = NULL;
    cuCtxGetCurrent(&context);
    if (context) cuCtxGetDevice(&device);
    *number = device;
    return OK;
}
cudaError_t cudaSetDevice(int number) {
    int count;
    cudaError_t e = cudaGetDeviceCount(&count);
    if (e) return e;
    if (number < 0 || number >= count) return result(INVALID_DEVICE);
    device = number;
    return result(use(number));
}
cudaError_t cudaSetDeviceFlags(unsigned flags) { (void)flags; return OK; }
cudaError_t cudaGetDeviceFlags(unsigned *flags) { *flags = 0; return OK; }
cudaError_t cudaDeviceGetAttribute(int *value, int attribute, int number) { cuInit(0); return result(cuDeviceGetAttribute(value, attribute, number)); }
cudaError_t cudaDeviceGetPCIBusId(char *id, int size, int number) { cuInit(0); return result(cuDeviceGetPCIBusId(id, size, number)); }
cudaError_t cudaDeviceGetByPCIBusId(int *number, const char *id) { cuInit(0); return result(cuDeviceGetByPCIBusId(number, id)); }
cudaError_t cudaDeviceCanAccessPeer(int *can, int one, int other) { return result(cuDeviceCanAccessPeer(can, one, other)); }
cudaError_t cudaDeviceSynchronize(void) { return result(standin_broken()); }
cudaError_t cudaDeviceReset(void) { return OK; }
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { *least = 0; *greatest = -5; return OK; }
cudaError_t cudaDeviceSetSharedMemConfig(int config) { (void)config; return OK; }
cudaError_t cudaDeviceSetLimit(int limit, size_t value) { (void)limit; (void)value; return OK; }
cudaError_t cudaDriverGetVersion(int *version) { return result(cuDriverGetVersion(version)); }
cudaError_t cudaRuntimeGetVersion(int *version) { *version = CUDART; return OK; }

/* cudaDeviceProp by the places of its members, which are the same from CUDA 10 to 12 but for one: 11 put a member before
 * maxThreadsPerMultiProcessor, into a gap. Nothing is written past the end of the older ones, 712 bytes of CUDA 10 and 728 of 11. */
static cudaError_t properties(char *p, size_t size, int number) {
    static const struct { int attribute; size_t place; } members[] = {
        {12, 304}, {10, 308}, {1, 320}, {2, 324}, {3, 328}, {4, 332}, {5, 336}, {6, 340}, {7, 344}, {13, 348}, {75, 360}, {76, 364}, {16, 388}, {31, 576}, {32, 580},
        {33, 584}, {40, 600}, {41, 604}, {36, 608}, {37, 612}, {38, 616}, {39, CUDART < 11000 ? 620 : 624}, {82, 648}, {106, 712}};
    static const struct { int attribute; size_t place; } sizes[] = {{8, 296}, {11, 312}, {9, 352}, {81, 640}, {97, 696}};
    CUresult r = cuInit(0);
    if (!r) r = cuDeviceGetName(p, 256, number);
    if (r) return result(r);
    memset(p + 256, 0, size - 256);
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        if (members[i].place + sizeof(int) <= size) cuDeviceGetAttribute((int *)(p + members[i].place), members[i].attribute, number);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int value = 0;
        cuDeviceGetAttribute(&value, sizes[i].attribute, number);
        *(size_t *)(p + sizes[i].place) = (size_t)value;
    }
    return result(cuDeviceTotalMem_v2((size_t *)(p + 288), number));
}
cudaError_t cudaGetDeviceProperties_v2(void *p, int number) { return properties(p, 1032, number); } /* from CUDA 12 on */
cudaError_t cudaGetDeviceProperties(void *p, int number) { return properties(p, CUDART < 11000 ? 712 : 728, number); }

/* -- Memory ----------------------------------------------------------------------------------- */

cudaError_t cudaMalloc(void **p, size_t n) { READY; return result(cuMemAlloc_v2((CUdeviceptr *)p, n)); }
cudaError_t cudaMallocManaged(void **p, size_t n, unsigned flags) { (void)flags; return cudaMalloc(p, n); }
cudaError_t cudaMallocAsync(void **p, size_t n, void *stream) { (void)stream; return cudaMalloc(p, n); }
cudaError_t cudaFree(void *p) { READY; return result(cuMemFree_v2((CUdeviceptr)p)); }
cudaError_t cudaFreeAsync(void *p, void *stream) { (void)stream; return cudaFree(p); }
cudaError_t cudaHostAlloc(void **p, size_t n, unsigned flags) { READY; return result(cuMemHostAlloc(p, n, flags)); }
cudaError_t cudaMallocHost(void **p, size_t n) { return cudaHostAlloc(p, n, 0); }
cudaError_t cudaFreeHost(void *p) { READY; return result(cuMemFreeHost(p)); }
cudaError_t cudaHostRegister(void *p, size_t n, unsigned flags) { (void)p; (void)n; (void)flags; return OK; }
cudaError_t cudaHostUnregister(void *p) { (void)p; return OK; }
cudaError_t cudaHostGetDevicePointer(void **d, void *p, unsigned flags) { (void)flags; *d = p; return OK; }
cudaError_t cudaMemGetInfo(size_t *left, size_t *total) { READY; return result(cuMemGetInfo_v2(left, total)); }
cudaError_t cudaMemcpy(void *d, const void *s, size_t n, int kind) {
    READY; (void)kind;
    CUresult broken = standin_broken();
    if (!broken) memmove(d, s, n);
    return result(broken);
}
cudaError_t cudaMemcpyAsync(void *d, const void *s, size_t n, int kind, void *stream) { (void)stream; return cudaMemcpy(d, s, n, kind); }
cudaError_t cudaMemcpyPeerAsync(void *d, int to, const void *s, int from, size_t n, void *stream) { (void)stream; (void)to; (void)from; return cudaMemcpy(d, s, n, 0); }
cudaError_t cudaMemset(void *d, int value, size_t n) {
    READY;
    CUresult broken = standin_broken();
    if (!broken) memset(d, value, n);
    return result(broken);
}
cudaError_t cudaMemsetAsync(void *d, int value, size_t n, void *stream) { (void)stream; return cudaMemset(d, value, n); }
struct pointer_attributes {
#if CUDART < 11000
    int kind; /* what `type` is called before CUDA 10 */
#endif
    int type, device;
    void *on_device, *on_host;
#if CUDART < 11000
    int managed;
#endif
};
cudaError_t cudaPointerGetAttributes(struct pointer_attributes *a, const void *p) {
    int type = 0;
    memset(a, 0, sizeof *a);
    if (cuPointerGetAttribute(&type, 2, (CUdeviceptr)p)) return CUDART < 11000 ? result(INVALID_VALUE) : OK; /* type 0: not registered */
    cuPointerGetAttribute(&a->device, 9, (CUdeviceptr)p);
    a->type = type;
#if CUDART < 11000
    a->kind = type;
#endif
    a->on_device = (void *)p;
    a->on_host = type == 1 ? (void *)p : NULL;
    return OK;
}

/* -- Streams and events ----------------------------------------------------------------------- */

cudaError_t cudaStreamCreate(void **s) { READY; return result(cuStreamCreateWithPriority(s, 0, 0)); }
cudaError_t cudaStreamCreateWithFlags(void **s, unsigned flags) { READY; return result(cuStreamCreateWithPriority(s, flags, 0)); }
cudaError_t cudaStreamCreateWithPriority(void **s, unsigned flags, int priority) { READY; return result(cuStreamCreateWithPriority(s, flags, priority)); }
cudaError_t cudaStreamDestroy(void *s) { return result(cuStreamDestroy_v2(s)); }
cudaError_t cudaStreamSynchronize(void *s) { (void)s; return result(standin_broken()); }
cudaError_t cudaStreamQuery(void *s) { (void)s; return result(standin_broken()); }
cudaError_t cudaStreamWaitEvent(void *s, void *e, unsigned flags) { (void)s; (void)e; (void)flags; return OK; }
cudaError_t cudaStreamIsCapturing(void *s, int *status) { (void)s; *status = 0; return OK; }
cudaError_t cudaStreamGetCaptureInfo(void *s, int *status, unsigned long long *id) { (void)s; (void)id; *status = 0; return OK; }
cudaError_t cudaStreamGetCaptureInfo_v2(void *s, int *status, void *id, void *graph, void *nodes, void *count) {
    (void)s; (void)id; (void)graph; (void)nodes; (void)count;
    *status = 0;
    return OK;
}
cudaError_t cudaStreamGetPriority(void *s, int *priority) { return result(cuStreamGetPriority(s, priority)); }
cudaError_t cudaStreamGetFlags(void *s, unsigned *flags) { return result(cuStreamGetFlags(s, flags)); }
cudaError_t cudaLaunchHostFunc(void *s, void (*call)(void *), void *data) { (void)s; call(data); return OK; }
cudaError_t cudaStreamAddCallback(void *s, void (*call)(void *, cudaError_t, void *), void *data, unsigned flags) { (void)flags; call(s, OK, data); return OK; }
cudaError_t cudaThreadExchangeStreamCaptureMode(int *mode) { *mode = 0; return OK; }
cudaError_t cudaEventCreate(void **e) { return result(cuEventCreate(e, 0)); }
cudaError_t cudaEventCreateWithFlags(void **e, unsigned flags) { return result(cuEventCreate(e, flags)); }
cudaError_t cudaEventRecord(void *e, void *s) { return result(cuEventRecord(e, s)); }
cudaError_t cudaEventQuery(void *e) { (void)e; return result(standin_broken()); }
cudaError_t cudaEventSynchronize(void *e) { (void)e; return result(standin_broken()); }
cudaError_t cudaEventDestroy(void *e) { return result(cuEventDestroy_v2(e)); }
cudaError_t cudaEventElapsedTime(float *ms, void *from, void *to) { return result(cuEventElapsedTime(ms, from, to)); }

/* -- Kernels: a function of the host stands for the kernel that was registered with it ---------- */

struct image {
    const void *fat;
    void *module;
};
struct entry {
    const void *host;
    struct image *image;
    const char *name;
    void *function;
    int is_variable;
};
static struct entry *table; /* open addressing, at most half full */
static size_t used, room;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static size_t slot(const void *host) {
    size_t i = ((uintptr_t)host >> 4) % room;
    while (table[i].host && table[i].host != host) i = (i + 1) % room;
    return i;
}
static void put(struct entry e) {
    pthread_mutex_lock(&lock);
    if (used * 2 >= room) {
        struct entry *old = table;
        size_t count = room;
        room = room ? room * 2 : 1 << 16;
        table = calloc(room, sizeof *table);
        if (!table) abort();
        for (size_t i = 0; i < count; i++)
            if (old[i].host) table[slot(old[i].host)] = old[i];
        free(old);
    }
    size_t i = slot(e.host);
    used += !table[i].host;
    table[i] = e;
    pthread_mutex_unlock(&lock);
}
/* The entry with its module loaded and its kernel found; NULL where nobody registered it. */
static struct entry *find(const void *host, CUresult *why) {
    struct entry *e = NULL;
    *why = INVALID_FUNCTION;
    pthread_mutex_lock(&lock);
    if (room && table[slot(host)].host) e = &table[slot(host)];
    if (e) {
        *why = e->image->module ? OK : cuModuleLoadData(&e->image->module, e->image->fat);
        if (!*why && !e->function && !e->is_variable) *why = cuModuleGetFunction(&e->function, e->image->module, e->name);
    }
    pthread_mutex_unlock(&lock);
    return e;
}

void **__cudaRegisterFatBinary(void *fat) {
    struct image *image = calloc(1, sizeof *image);
    if (!image) abort();
    image->fat = fat;
    return (void **)image;
}
void __cudaRegisterFatBinaryEnd(void **image) { (void)image; }
void __cudaUnregisterFatBinary(void **image) { (void)image; }
void __cudaRegisterFunction(void **image, const char *host, char *unused, const char *name, int limit, void *tid, void *bid, void *bdim, void *gdim, int *warp) {
    (void)unused; (void)limit; (void)tid; (void)bid; (void)bdim; (void)gdim; (void)warp;
    put((struct entry){host, (struct image *)image, name, NULL, 0});
}
void __cudaRegisterVar(void **image, char *host, char *unused, const char *name, int external, size_t size, int constant, int global) {
    (void)unused; (void)external; (void)size; (void)constant; (void)global;
    put((struct entry){host, (struct image *)image, name, NULL, 1});
}
struct dim3 { unsigned x, y, z; };
static __thread struct { struct dim3 grid, block; size_t shared; void *stream; } configured[8];
static __thread unsigned configurations;
unsigned __cudaPushCallConfiguration(struct dim3 grid, struct dim3 block, size_t shared, void *stream) {
    if (configurations == 8) return MISSING_CONFIGURATION;
    configured[configurations].grid = grid;
    configured[configurations].block = block;
    configured[configurations].shared = shared;
    configured[configurations++].stream = stream;
    return OK;
}
cudaError_t __cudaPopCallConfiguration(struct dim3 *grid, struct dim3 *block, size_t *shared, void *stream) {
    if (!configurations) return result(MISSING_CONFIGURATION);
    configurations--;
    *grid = configured[configurations].grid;
    *block = configured[configurations].block;
    *shared = configured[configurations].shared;
    *(void **)stream = configured[configurations].stream;
    return OK;
}
cudaError_t cudaLaunchKernel(const void *host, struct dim3 g, struct dim3 b, void **arguments, size_t shared, void *stream) {
    READY;
    CUresult why;
    struct entry *e = find(host, &why);
    if (why) return result(why);
    return result(cuLaunchKernel(e->function, g.x, g.y, g.z, b.x, b.y, b.z, (unsigned)shared, stream, arguments, NULL));
}
struct launch_config { struct dim3 grid, block; size_t shared; void *stream, *attributes; unsigned count; };
cudaError_t cudaLaunchKernelExC(const struct launch_config *c, const void *host, void **arguments) { return cudaLaunchKernel(host, c->grid, c->block, arguments, c->shared, c->stream); }
cudaError_t cudaGetFuncBySymbol(void **function, const void *host) {
    READY;
    CUresult why;
    struct entry *e = find(host, &why);
    *function = e ? e->function : NULL;
    return result(why);
}
cudaError_t cudaGetKernel(void **kernel, const void *host) { return cudaGetFuncBySymbol(kernel, host); }
struct function_attributes { size_t shared, constant, local; int threads, registers, ptx, binary, cache_mode, dynamic_shared, carveout; };
cudaError_t cudaFuncGetAttributes(struct function_attributes *a, const void *host) {
    READY;
    CUresult why;
    struct entry *e = find(host, &why);
    int shared = 0;
    if (why) return result(why);
    memset(a, 0, sizeof *a);
    cuFuncGetAttribute(&shared, 1, e->function);
    a->shared = (size_t)shared;
    cuFuncGetAttribute(&a->threads, 0, e->function);
    a->registers = 32;
    cuFuncGetAttribute(&a->ptx, 5, e->function);
    cuFuncGetAttribute(&a->binary, 6, e->function);
    a->dynamic_shared = 49152;
    return OK;
}
cudaError_t cudaFuncSetAttribute(const void *host, int attribute, int value) { (void)host; (void)attribute; (void)value; return OK; }
cudaError_t cudaFuncSetCacheConfig(const void *host, int config) { (void)host; (void)config; return OK; }
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *host, int threads, size_t shared, unsigned flags) {
    (void)host; (void)flags;
    return result(cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, NULL, threads, shared));
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *host, int threads, size_t shared) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, host, threads, shared, 0);
}
static cudaError_t symbol(const void *host, CUdeviceptr *at, size_t *bytes) {
    READY;
    CUresult why;
    struct entry *e = find(host, &why);
    return result(!e || cuModuleGetGlobal_v2(at, bytes, e->image->module, e->name) ? INVALID_SYMBOL : OK);
}
cudaError_t cudaGetSymbolAddress(void **address, const void *host) { size_t n; return symbol(host, (CUdeviceptr *)address, &n); }
cudaError_t cudaGetSymbolSize(size_t *bytes, const void *host) { CUdeviceptr at; return symbol(host, &at, bytes); }
cudaError_t cudaMemcpyToSymbol(const void *host, const void *from, size_t n, size_t offset, int kind) {
    CUdeviceptr at;
    size_t bytes;
    cudaError_t e = symbol(host, &at, &bytes);
    (void)kind;
    if (!e && (offset > bytes || n > bytes - offset)) e = result(INVALID_VALUE);
    if (!e) memmove((char *)at + offset, from, n);
    return e;
}

/* -- Errors ----------------------------------------------------------------------------------- */

cudaError_t cudaGetLastError(void) { cudaError_t e = last; last = OK; return e; }
cudaError_t cudaPeekAtLastError(void) { return last; }
const char *cudaGetErrorString(cudaError_t e) { const char *s = NULL; cuGetErrorString(e, &s); return s ? s : "unrecognized error code"; }
const char *cudaGetErrorName(cudaError_t e) { const char *s = NULL; cuGetErrorName(e, &s); return s ? s : "unrecognized error code"; }
cudaError_t cudaProfilerStart(void) { return OK; }
cudaError_t cudaProfilerStop(void) { return OK; }
