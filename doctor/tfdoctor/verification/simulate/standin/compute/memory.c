/* Memory: what was handed out, copies and fills. Pages are the system's own, taken when they are first written:
 * TensorFlow asks for most of a card at once. */
#define _GNU_SOURCE
#include "driver.h"
#include "faults.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { DEVICES = 32 };
struct block {
    uintptr_t start;
    size_t bytes;
    int device, host;
    struct block *next;
};
static struct block *blocks;
static size_t used[DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

size_t standin_used(int device) {
    pthread_mutex_lock(&lock);
    size_t bytes = used[device];
    pthread_mutex_unlock(&lock);
    return bytes;
}

/* What a process can take of a card: less where another one holds some, or memory is to be out before its end. */
static size_t room(int device) {
    size_t bytes = standin_bytes(device);
    struct standin_fault fault;
    if (standin_asked("held", device, &fault, NULL)) {
        size_t taken = (size_t)fault.value + bytes / 80; /* and what the driver keeps for itself */
        bytes = taken < bytes ? bytes - taken : 0;
    }
    if (standin_asked("oom", device, &fault, NULL) && (size_t)fault.value < bytes) bytes = (size_t)fault.value;
    return bytes;
}

static CUresult take(uintptr_t *pointer, size_t bytes, int host) {
    int device = standin_device();
    CUresult result = standin_broken();
    if (result) return result;
    result = OUT_OF_MEMORY;
    if (!bytes) return INVALID_VALUE;
    size_t most = room(device);
    pthread_mutex_lock(&lock);
    if (host || (used[device] <= most && bytes <= most - used[device])) {
        void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        struct block *b = start == MAP_FAILED ? NULL : malloc(sizeof *b);
        if (b) {
            *b = (struct block){(uintptr_t)start, bytes, device, host, blocks};
            blocks = b;
            if (!host) used[device] += bytes;
            *pointer = b->start;
            result = OK;
        }
    }
    pthread_mutex_unlock(&lock);
    return result;
}

static CUresult give_back(uintptr_t pointer) {
    CUresult result = pointer ? INVALID_VALUE : OK;
    pthread_mutex_lock(&lock);
    for (struct block **at = &blocks; *at; at = &(*at)->next) {
        struct block *b = *at;
        if (b->start != pointer) continue;
        *at = b->next;
        if (!b->host) used[b->device] -= b->bytes;
        munmap((void *)b->start, b->bytes);
        free(b);
        result = OK;
        break;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

static int find(uintptr_t pointer, struct block *found) {
    int there = 0;
    pthread_mutex_lock(&lock);
    for (struct block *b = blocks; b && !there; b = b->next) {
        if (pointer >= b->start && pointer - b->start < b->bytes) {
            *found = *b;
            there = 1;
        }
    }
    pthread_mutex_unlock(&lock);
    return there;
}

CUresult cuMemGetInfo_v2(size_t *left, size_t *total) {
    TRACE;
    int device = standin_device();
    *total = standin_bytes(device);
    *left = *total - *total / 80; /* what a driver keeps for itself */
    struct standin_fault fault;
    size_t taken = standin_used(device);
    if (standin_asked("held", device, &fault, NULL)) taken += (size_t)fault.value;
    *left = taken < *left ? *left - taken : 0;
    return OK;
}
CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t n) { TRACE; return take(p, n, 0); }
CUresult cuMemAllocManaged(CUdeviceptr *p, size_t n, unsigned flags) { TRACE; (void)flags; return take(p, n, 0); }
CUresult cuMemAllocAsync(CUdeviceptr *p, size_t n, void *stream) { TRACE; (void)stream; return take(p, n, 0); }
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *p, size_t n, void *pool, void *stream) { TRACE; (void)pool; (void)stream; return take(p, n, 0); }
CUresult cuMemFree_v2(CUdeviceptr p) { TRACE; return give_back(p); }
CUresult cuMemFreeAsync(CUdeviceptr p, void *stream) { TRACE; (void)stream; return give_back(p); }
CUresult cuMemHostAlloc(void **p, size_t n, unsigned flags) { TRACE; (void)flags; return take((uintptr_t *)p, n, 1); }
CUresult cuMemAllocHost_v2(void **p, size_t n) { TRACE; return take((uintptr_t *)p, n, 1); }
CUresult cuMemFreeHost(void *p) { TRACE; return give_back((uintptr_t)p); }
CUresult cuMemHostRegister_v2(void *p, size_t n, unsigned flags) { TRACE; (void)p; (void)n; (void)flags; return OK; }
CUresult cuMemHostUnregister(void *p) { TRACE; (void)p; return OK; }
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *d, void *p, unsigned flags) { TRACE; (void)flags; *d = (CUdeviceptr)p; return OK; }

CUresult cuMemGetAddressRange_v2(CUdeviceptr *start, size_t *bytes, CUdeviceptr p) {
    TRACE;
    struct block b;
    if (!find(p, &b)) return NOT_FOUND;
    if (start) *start = b.start;
    if (bytes) *bytes = b.bytes;
    return OK;
}

CUresult cuPointerGetAttribute(void *value, int attribute, CUdeviceptr p) {
    TRACE;
    struct block b;
    if (!find(p, &b)) return INVALID_VALUE;
    switch (attribute) {
    case 1: *(void **)value = standin_context(b.device); break; /* CONTEXT */
    case 2: *(int *)value = b.host ? 1 : 2; break;              /* MEMORY_TYPE: host, device */
    case 3: case 4: *(uintptr_t *)value = p; break;             /* DEVICE_POINTER, HOST_POINTER */
    case 8: *(int *)value = 0; break;                           /* IS_MANAGED */
    case 9: *(int *)value = b.device; break;                    /* DEVICE_ORDINAL */
    case 11: *(uintptr_t *)value = b.start; break;              /* RANGE_START_ADDR */
    case 12: *(size_t *)value = b.bytes; break;                 /* RANGE_SIZE */
    default: return INVALID_VALUE;
    }
    return OK;
}
/* Of an address that was not handed out each of them is zero, and that is no error. */
CUresult cuPointerGetAttributes(unsigned count, int *attributes, void **values, CUdeviceptr p) {
    TRACE;
    for (unsigned i = 0; i < count; i++) {
        int small = attributes[i] == 2 || attributes[i] == 8 || attributes[i] == 9;
        if (cuPointerGetAttribute(values[i], attributes[i], p)) memset(values[i], 0, small ? sizeof(int) : sizeof(void *));
    }
    return OK;
}

/* Copies: all addresses are this process's. */
#define COPY(name, to, from)                                                                                                               \
    CUresult name##_v2(to d, from s, size_t n) {                                                                                           \
        TRACE;                                                                                                                             \
        CUresult broken = standin_broken();                                                                                                \
        if (!broken) memmove((void *)d, (const void *)s, n);                                                                               \
        return broken;                                                                                                                     \
    }                                                                                                                                      \
    CUresult name##Async_v2(to d, from s, size_t n, void *stream) { (void)stream; return name##_v2(d, s, n); }
COPY(cuMemcpyHtoD, CUdeviceptr, const void *)
COPY(cuMemcpyDtoH, void *, CUdeviceptr)
COPY(cuMemcpyDtoD, CUdeviceptr, CUdeviceptr)
CUresult cuMemcpy(CUdeviceptr d, CUdeviceptr s, size_t n) { return cuMemcpyDtoD_v2(d, s, n); }
CUresult cuMemcpyAsync(CUdeviceptr d, CUdeviceptr s, size_t n, void *stream) { (void)stream; return cuMemcpy(d, s, n); }
CUresult cuMemcpyPeer(CUdeviceptr d, void *to, CUdeviceptr s, void *from, size_t n) { (void)to; (void)from; return cuMemcpy(d, s, n); }
CUresult cuMemcpyPeerAsync(CUdeviceptr d, void *to, CUdeviceptr s, void *from, size_t n, void *stream) { (void)to; (void)from; (void)stream; return cuMemcpy(d, s, n); }

#define FILL(name, type)                                                                                                                   \
    CUresult name##_v2(CUdeviceptr d, type value, size_t n) {                                                                              \
        TRACE;                                                                                                                             \
        CUresult broken = standin_broken();                                                                                                \
        for (size_t i = 0; i < n && !broken; i++) ((type *)d)[i] = value;                                                                  \
        return broken;                                                                                                                     \
    }                                                                                                                                      \
    CUresult name##Async(CUdeviceptr d, type value, size_t n, void *stream) { (void)stream; return name##_v2(d, value, n); }
FILL(cuMemsetD8, uint8_t)
FILL(cuMemsetD16, uint16_t)
FILL(cuMemsetD32, uint32_t)

/* Pools: nothing is kept in them. */
static int pools[DEVICES];
CUresult cuDeviceGetDefaultMemPool(void **pool, int device) { TRACE; *pool = &pools[device]; return OK; }
CUresult cuDeviceGetMemPool(void **pool, int device) { TRACE; *pool = &pools[device]; return OK; }
CUresult cuDeviceSetMemPool(int device, void *pool) { TRACE; (void)device; (void)pool; return OK; }
CUresult cuMemPoolCreate(void **pool, const void *properties) { TRACE; (void)properties; *pool = pools; return OK; }
CUresult cuMemPoolDestroy(void *pool) { TRACE; (void)pool; return OK; }
CUresult cuMemPoolSetAttribute(void *pool, int attribute, void *value) { TRACE; (void)pool; (void)attribute; (void)value; return OK; }
CUresult cuMemPoolGetAttribute(void *pool, int attribute, void *value) { TRACE; (void)pool; (void)attribute; *(uint64_t *)value = 0; return OK; }
CUresult cuMemPoolSetAccess(void *pool, const void *access, size_t n) { TRACE; (void)pool; (void)access; (void)n; return OK; }
CUresult cuMemPoolTrimTo(void *pool, size_t n) { TRACE; (void)pool; (void)n; return OK; }
