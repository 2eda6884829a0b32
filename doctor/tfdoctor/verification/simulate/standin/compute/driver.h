/* What the parts of the computing driver share, and what libcudart.c calls of it. Own declarations: no NVIDIA header.
 * Every call is done when it returns: a stream has nothing in it that is not finished. Device memory is host memory. */
#pragma once
#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef uintptr_t CUdeviceptr;
enum {
    OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_IMAGE = 200, INVALID_CONTEXT = 201, NO_BINARY = 209, INVALID_HANDLE = 400, NOT_FOUND = 500,
    PEER_UNSUPPORTED = 217, PTX_TOO_NEW = 222, NOT_SUPPORTED = 801
};

/* libcuda.c */
int standin_device(void);            /* of the current context; 0 where there is none */
void *standin_context(int device);
size_t standin_bytes(int device);    /* its memory */
int standin_capability(int device);  /* 90: 9.0 */
void standin_trace(const char *name);
#define TRACE standin_trace(__func__)

/* modules.c */
CUresult standin_load_later(void **module, const void *image);
CUresult standin_broken(void);       /* what every call answers once the current device is broken; OK before */

/* memory.c */
size_t standin_used(int device);

CUresult cuDriverGetVersion(int *version);
CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes);
CUresult cuMemFree_v2(CUdeviceptr pointer);
CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags);
CUresult cuMemFreeHost(void *pointer);
CUresult cuPointerGetAttribute(void *value, int attribute, CUdeviceptr pointer);
CUresult cuStreamCreateWithPriority(void **stream, unsigned flags, int priority);
CUresult cuStreamDestroy_v2(void *stream);
CUresult cuStreamGetPriority(void *stream, int *priority);
CUresult cuStreamGetFlags(void *stream, unsigned *flags);
CUresult cuEventCreate(void **event, unsigned flags);
CUresult cuEventRecord(void *event, void *stream);
CUresult cuEventDestroy_v2(void *event);
CUresult cuEventElapsedTime(float *milliseconds, void *from, void *to);
CUresult cuModuleLoadData(void **module, const void *image);
CUresult cuModuleGetFunction(void **function, void *module, const char *name);
CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, void *module, const char *name);
CUresult cuFuncGetAttribute(int *value, int attribute, void *function);
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *function, int threads, size_t shared);
CUresult cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream, void **parameters, void **extra);
