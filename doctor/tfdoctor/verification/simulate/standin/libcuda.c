/* A stand-in CUDA driver: it answers what TensorFlow asks before it decides whether to register a
 * GPU, and computes nothing. C99, no NVIDIA header:
 *
 *     cc -std=c99 -shared -fPIC -Wl,-soname,libcuda.so.1 -o libcuda.so.1 libcuda.c
 *
 * Environment, all optional. A list has one element per physical device; the last one goes on for
 * the devices after it:
 *     STANDIN_GPUS=1              how many physical devices (at most 32); compiled with -DGPUS=N: N
 *     STANDIN_CC="80,30"          compute capabilities, without the point
 *     STANDIN_NAME="A;B"          names
 *     STANDIN_MEM_MIB="81920,8"   memory
 *     STANDIN_MP="132,2"          multiprocessor counts
 *     STANDIN_PCI="0000:01:00.0"  PCI ids, where others than those below are wanted
 *     STANDIN_CUDA=12080          cuDriverGetVersion
 *     STANDIN_INIT=0              cuInit's result (100, 999, 803, 804 ...); compiled with -DINIT=N: N
 *     STANDIN_ATTRIBUTE=0         cuDeviceGetAttribute's result (999: the driver fell over)
 *     STANDIN_CTX=0               cuDevicePrimaryCtxRetain's result (2: out of memory, 46: exclusive mode)
 *     STANDIN_TRACE=1             print each call to stderr
 *     CUDA_VISIBLE_DEVICES        read once, in cuInit, as the real driver does
 *
 * Compiled with -DSIMULATED it says what it is (the symbol tfdoctor_stand_in), and without STANDIN_GPUS it is as
 * dead as the toolkit's stub: nobody who meets it by accident takes it for a driver.
 *
 * Physical device i is 0000:(i+1):00.0 and GPU-xxxxxxxx-xxxx-... with every byte i+1; libnvidia-ml.c
 * tells the same story. The real driver sorts by speed unless CUDA_DEVICE_ORDER=PCI_BUS_ID; this one
 * always keeps the order of the PCI ids.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef SIMULATED
const char tfdoctor_stand_in[] = "tfdoctor's stand-in for libcuda.so.1: no driver, and it computes nothing";
#endif

#ifdef COMPUTES
#include "compute/faults.h"
#include <dlfcn.h>
const char tfdoctor_software[] = "tfdoctor's software GPU: it computes on the processor, and its times are no card's";
#endif

typedef int CUresult;
typedef int CUdevice;
enum {
    SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, STUB_LIBRARY = 34, NO_DEVICE = 100, INVALID_DEVICE = 101,
    NOT_FOUND = 500, NOT_SUPPORTED = 801, MOST = 32
};

#ifndef GPUS
#define GPUS 1
#endif
#ifndef INIT
#define INIT 0
#endif
#define TRACE do { if (getenv("STANDIN_TRACE")) fprintf(stderr, "[stand-in] %s\n", __func__); } while (0)

static const char *text(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value && *value ? value : otherwise;
}

static int number(const char *name, int otherwise) {
    return (int)strtol(text(name, ""), NULL, 10) + (*text(name, "") ? 0 : otherwise);
}

/* Where element `index` of a list starts, or its last element; its length goes to *length. */
static const char *element(const char *list, char separator, int index, size_t *length) {
    for (;;) {
        const char *end = strchr(list, separator);
        *length = end ? (size_t)(end - list) : strlen(list);
        if (!end || index-- == 0) return list;
        list = end + 1;
    }
}

static long listed(const char *name, const char *otherwise, int index) {
    size_t length;
    return strtol(element(text(name, otherwise), ',', index, &length), NULL, 10);
}

static int physical(void) {
    int gpus = number("STANDIN_GPUS", GPUS);
    return gpus < 0 ? 0 : gpus > MOST ? MOST : gpus;
}

/* Compute capability of a physical device, 90 for 9.0; 0 where STANDIN_CC is no such number: "9.0" would be 0.9. */
static int capability(int index) {
    size_t length;
    char *end;
    const char *start = element(text("STANDIN_CC", "80"), ',', index, &length);
    long cc = strtol(start, &end, 10);
    return end == start + length && cc >= 10 && cc < 1000 ? (int)cc : 0;
}

/* -- CUDA_VISIBLE_DEVICES ------------------------------------------------------------------- */

static int initialized, count, twice, order[MOST]; /* order[ordinal] is the physical index */

static void uuid_text(char *out, size_t size, int index) {
    unsigned char b = (unsigned char)(index + 1);
    snprintf(out, size, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
             b, b, b, b, b, b, b, b, b, b, b, b, b, b, b, b);
}

/* The one device whose UUID starts with these characters; -1 where there is none, or more. */
static int by_uuid(const char *prefix, size_t length) {
    int found = -1;
    for (int i = 0; i < physical(); i++) {
        char uuid[48];
        uuid_text(uuid, sizeof uuid, i);
        if (length > strlen(uuid) || strncmp(uuid, prefix, length) != 0) continue;
        if (found >= 0) return -1;
        found = i;
    }
    return found;
}

/* The rules are those that PyTorch's torch/cuda/__init__.py (_parse_visible_devices) copies from the
 * driver: numbers are read as strtoul does ("1gpu2" is 1, " 0" is 0), the first element that is not
 * a device ends the list, a device named twice leaves none at all (cuInit then answers INVALID_DEVICE,
 * seen with driver 580 on an H200), and a value that starts with "GPU-" is a list of UUIDs or of
 * unambiguous beginnings of them. */
static void look(void) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    count = twice = 0;
    if (!visible) {
        for (; count < physical(); count++) order[count] = count;
        return;
    }
    int uuids = strncmp(visible, "GPU-", 4) == 0;
    for (const char *at = visible;;) {
        const char *comma = strchr(at, ',');
        size_t length = comma ? (size_t)(comma - at) : strlen(at);
        long index = -1;
        if (uuids) {
            index = strncmp(at, "GPU-", 4) == 0 ? by_uuid(at, length) : -1;
        } else {
            char *end;
            index = strtol(at, &end, 10);
            if (end == at || end > at + length) index = -1;
        }
        if (index < 0 || index >= physical()) return;
        for (int i = 0; i < count; i++) {
            if (order[i] == index) {
                count = 0;
                twice = 1;
                return;
            }
        }
        order[count++] = (int)index;
        if (!comma) return;
        at = comma + 1;
    }
}

#define NEED_INIT do { if (!initialized) return NOT_INITIALIZED; } while (0)
#define NEED_DEVICE(device) do { NEED_INIT; if ((device) < 0 || (device) >= count) return INVALID_DEVICE; } while (0)

/* -- The driver and its devices ------------------------------------------------------------- */

CUresult cuInit(unsigned flags) {
    TRACE; (void)flags;
#ifdef SIMULATED
    if (!getenv("STANDIN_GPUS")) return STUB_LIBRARY;
#endif
    int result = number("STANDIN_INIT", INIT);
    if (result) return result;
    for (int i = 0; i < physical(); i++) {
        if (capability(i)) continue;
        fprintf(stderr, "[stand-in] STANDIN_CC=%s: wanted are compute capabilities without the point, as in 80,90\n", text("STANDIN_CC", ""));
        return INVALID_VALUE;
    }
#ifdef COMPUTES
    struct standin_fault none;
    const char *wrong = NULL;
    standin_asked("", -1, &none, &wrong);
    if (wrong) {
        fprintf(stderr, "[software GPU] STANDIN_FAULT: %.*s is no fault; see compute/faults.h\n", (int)strcspn(wrong, ","), wrong);
        return INVALID_VALUE;
    }
#endif
#ifdef COMPUTES
    /* where the software GPU's libnccl.so.2 is preloaded: NCCL inside TensorFlow's wheel (compute/inside.h) */
    void (*inside)(void) = (void (*)(void))dlsym(NULL, "standin_nccl_inside");
    if (inside) inside();
#endif
    if (!initialized) look();
    if (twice) return INVALID_DEVICE;
    if (!count) return NO_DEVICE; /* also where CUDA_VISIBLE_DEVICES hides them all */
    initialized = 1;
    return SUCCESS;
}

CUresult cuDriverGetVersion(int *version) { TRACE; *version = number("STANDIN_CUDA", 12080); return SUCCESS; }
CUresult cuDeviceGetCount(int *gpus) { TRACE; NEED_INIT; *gpus = count; return SUCCESS; }
CUresult cuDeviceGet(CUdevice *device, int ordinal) { TRACE; NEED_DEVICE(ordinal); *device = ordinal; return SUCCESS; }

CUresult cuDeviceGetName(char *name, int size, CUdevice device) {
    TRACE; NEED_DEVICE(device);
    size_t length;
    const char *start = element(text("STANDIN_NAME", "Stand-in GPU"), ';', order[device], &length);
    snprintf(name, (size_t)size, "%.*s", (int)length, start);
    return SUCCESS;
}

CUresult cuDeviceGetUuid(void *uuid, CUdevice device) { TRACE; NEED_DEVICE(device); memset(uuid, order[device] + 1, 16); return SUCCESS; }
CUresult cuDeviceGetUuid_v2(void *uuid, CUdevice device) { return cuDeviceGetUuid(uuid, device); }

static size_t memory(CUdevice device) { return (size_t)listed("STANDIN_MEM_MIB", "81920", order[device]) << 20; }
CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) { TRACE; NEED_DEVICE(device); *bytes = memory(device); return SUCCESS; }
CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device) { return cuDeviceTotalMem_v2(bytes, device); }

CUresult cuDeviceGetPCIBusId(char *id, int size, CUdevice device) {
    TRACE; NEED_DEVICE(device);
    size_t length;
    const char *start = element(text("STANDIN_PCI", ""), ',', order[device], &length);
    if (length) snprintf(id, (size_t)size, "%.*s", (int)length, start);
    else snprintf(id, (size_t)size, "0000:%02X:00.0", (unsigned)order[device] + 1);
    return SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *id) {
    TRACE; NEED_INIT;
    for (int i = 0; i < count; i++) {
        char known[16];
        cuDeviceGetPCIBusId(known, sizeof known, i);
        if (strcmp(known, id) == 0) { *device = i; return SUCCESS; }
    }
    return INVALID_DEVICE;
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device) {
    TRACE; NEED_DEVICE(device);
    int cc = capability(order[device]);
    *major = cc / 10; *minor = cc % 10;
    return SUCCESS;
}

struct properties { int max_threads, max_block[3], max_grid[3], shared, constant, warp, pitch, registers, clock, texture; };
CUresult cuDeviceGetProperties(struct properties *p, CUdevice device) {
    TRACE; NEED_DEVICE(device);
    struct properties values = {1024, {1024, 1024, 64}, {2147483647, 65535, 65535}, 49152, 65536, 32, 2147483647, 65536, 1980000, 512};
    *p = values;
    return SUCCESS;
}

/* The numbers are CUdevice_attribute's, which CUDA never renumbers. */
CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
    TRACE; NEED_DEVICE(device);
    int result = number("STANDIN_ATTRIBUTE", 0);
    if (result) return result;
    int cc = capability(order[device]);
    switch (attribute) {
    case 75: *value = cc / 10; break;                                        /* COMPUTE_CAPABILITY_MAJOR */
    case 76: *value = cc % 10; break;                                        /* COMPUTE_CAPABILITY_MINOR */
    case 16: *value = (int)listed("STANDIN_MP", "132", order[device]); break; /* MULTIPROCESSOR_COUNT */
    case 13: *value = 1980000; break;                                        /* CLOCK_RATE, kHz */
    case 36: *value = 3201000; break;                                        /* MEMORY_CLOCK_RATE, kHz */
    case 37: *value = 6144; break;                                           /* GLOBAL_MEMORY_BUS_WIDTH, bits */
    case 38: *value = 60 << 20; break;                                       /* L2_CACHE_SIZE, bytes */
    case 10: *value = 32; break;                                             /* WARP_SIZE */
    case 1: case 2: case 3: *value = 1024; break;                            /* MAX_THREADS_PER_BLOCK, MAX_BLOCK_DIM_X, _Y */
    case 4: *value = 64; break;                                              /* MAX_BLOCK_DIM_Z */
    case 5: *value = 2147483647; break;                                      /* MAX_GRID_DIM_X */
    case 6: case 7: *value = 65535; break;                                   /* MAX_GRID_DIM_Y, _Z */
    case 8: *value = 49152; break;                                           /* MAX_SHARED_MEMORY_PER_BLOCK */
    case 97: *value = 232448; break;                                         /* ..._OPTIN */
    case 81: *value = 233472; break;                                         /* ..._PER_MULTIPROCESSOR */
    case 12: case 82: *value = 65536; break;                                 /* MAX_REGISTERS_PER_BLOCK, _MULTIPROCESSOR */
    case 39: *value = 2048; break;                                           /* MAX_THREADS_PER_MULTIPROCESSOR */
    case 32: *value = 1; break;                                              /* ECC_ENABLED */
    case 33: *value = order[device] + 1; break;                              /* PCI_BUS_ID */
    case 41: *value = 1; break;                                              /* UNIFIED_ADDRESSING */
    default: *value = 0;
    }
    return SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice one, CUdevice other) { TRACE; NEED_DEVICE(one); NEED_DEVICE(other); *can = 0; return SUCCESS; }

/* -- Contexts: a handle for each device, and nothing behind it -------------------------------- */

static int contexts[MOST];
static __thread void *current; /* a thread's own, as the driver has it */

static CUdevice device_of(const void *context) {
    return context ? (CUdevice)((const int *)context - contexts) : 0;
}

CUresult cuDevicePrimaryCtxRetain(void **context, CUdevice device) {
    TRACE; NEED_DEVICE(device);
    *context = &contexts[device];
#ifdef COMPUTES
    struct standin_fault held; /* by another process: a context takes memory, too */
    size_t bytes = memory(device);
    if (standin_asked("held", device, &held, NULL) && bytes - bytes / 80 < (size_t)held.value) return OUT_OF_MEMORY;
#endif
    return number("STANDIN_CTX", 0);
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) { TRACE; NEED_DEVICE(device); return SUCCESS; }
CUresult cuDevicePrimaryCtxRelease(CUdevice device) { return cuDevicePrimaryCtxRelease_v2(device); }
CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) { TRACE; (void)flags; NEED_DEVICE(device); return SUCCESS; }
CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags) { return cuDevicePrimaryCtxSetFlags_v2(device, flags); }
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) { TRACE; NEED_DEVICE(device); *flags = 0; *active = 0; return SUCCESS; }
CUresult cuCtxGetCurrent(void **context) { TRACE; *context = current; return SUCCESS; }
CUresult cuCtxSetCurrent(void *context) { TRACE; current = context; return SUCCESS; }
CUresult cuCtxPushCurrent_v2(void *context) { TRACE; current = context; return SUCCESS; }
CUresult cuCtxPopCurrent_v2(void **context) { TRACE; *context = current; current = NULL; return SUCCESS; }
CUresult cuCtxGetDevice(CUdevice *device) { TRACE; *device = device_of(current); return SUCCESS; }
#ifndef COMPUTES /* else in compute/streams.c */
CUresult cuCtxSynchronize(void) { TRACE; return SUCCESS; }
#endif
CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) { TRACE; *least = 0; *greatest = 0; return SUCCESS; }
CUresult cuCtxGetSharedMemConfig(int *config) { TRACE; *config = 1; return SUCCESS; }
#ifndef COMPUTES
CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    TRACE; NEED_INIT;
    *total = memory(device_of(current));
    *free_bytes = *total - *total / 80;
    return SUCCESS;
}
#endif

#ifdef COMPUTES

/* What the computing parts, compute/ beside this file, ask about the device that a thread has chosen. */
int standin_device(void) { return device_of(current); }
void *standin_context(int device) { return &contexts[device]; }
size_t standin_bytes(int device) { return memory(device); }
int standin_capability(int device) { return capability(order[device]); }
void standin_trace(const char *name) { if (getenv("STANDIN_TRACE")) fprintf(stderr, "[stand-in] %s\n", name); }

CUresult cuCtxSetSharedMemConfig(int config) { TRACE; (void)config; return SUCCESS; }
CUresult cuCtxEnablePeerAccess(void *context, unsigned flags) { TRACE; (void)context; (void)flags; return 217; }

#else

/* -- What 1.13 and older link against, and do not call before a session asks for a device ----- */

/* Memory handed out is host memory: enough to make a device object, not to compute. */
CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags) { TRACE; (void)flags; *pointer = malloc(bytes); return SUCCESS; }
CUresult cuMemFreeHost(void *pointer) { TRACE; free(pointer); return SUCCESS; }
CUresult cuMemAlloc_v2(uintptr_t *pointer, size_t bytes) { TRACE; *pointer = (uintptr_t)malloc(bytes); return SUCCESS; }
CUresult cuMemFree_v2(uintptr_t pointer) { TRACE; free((void *)pointer); return SUCCESS; }
CUresult cuStreamCreate(void **stream, unsigned flags) { TRACE; (void)flags; *stream = malloc(1); return SUCCESS; }
CUresult cuStreamCreateWithPriority(void **stream, unsigned flags, int priority) { (void)priority; return cuStreamCreate(stream, flags); }
CUresult cuStreamDestroy_v2(void *stream) { TRACE; free(stream); return SUCCESS; }
CUresult cuEventCreate(void **event, unsigned flags) { TRACE; (void)flags; *event = malloc(1); return SUCCESS; }
CUresult cuEventDestroy_v2(void *event) { TRACE; free(event); return SUCCESS; }

#define DOES_NOTHING(name) CUresult name(void) { TRACE; return SUCCESS; }
#define CANNOT(name) CUresult name(void) { TRACE; return NOT_SUPPORTED; }
DOES_NOTHING(cuCtxSetSharedMemConfig)
DOES_NOTHING(cuEventQuery)
DOES_NOTHING(cuEventRecord)
DOES_NOTHING(cuEventSynchronize)
DOES_NOTHING(cuMemHostRegister_v2)
DOES_NOTHING(cuMemHostUnregister)
DOES_NOTHING(cuMemsetD32Async)
DOES_NOTHING(cuMemsetD32_v2)
DOES_NOTHING(cuMemsetD8Async)
DOES_NOTHING(cuMemsetD8_v2)
DOES_NOTHING(cuStreamQuery)
DOES_NOTHING(cuStreamSynchronize)
DOES_NOTHING(cuStreamWaitEvent)
CANNOT(cuCtxEnablePeerAccess)
CANNOT(cuEventElapsedTime)
CANNOT(cuFuncGetAttribute)
CANNOT(cuFuncSetCacheConfig)
CANNOT(cuLaunchKernel)
CANNOT(cuMemAllocManaged)
CANNOT(cuMemGetAddressRange_v2)
CANNOT(cuMemcpyDtoDAsync_v2)
CANNOT(cuMemcpyDtoD_v2)
CANNOT(cuMemcpyDtoHAsync_v2)
CANNOT(cuMemcpyDtoH_v2)
CANNOT(cuMemcpyHtoDAsync_v2)
CANNOT(cuMemcpyHtoD_v2)
CANNOT(cuModuleGetFunction)
CANNOT(cuModuleGetGlobal_v2)
CANNOT(cuModuleLoadDataEx)
CANNOT(cuModuleLoadFatBinary)
CANNOT(cuModuleUnload)
CANNOT(cuOccupancyMaxActiveBlocksPerMultiprocessor)
CANNOT(cuOccupancyMaxPotentialBlockSize)
CANNOT(cuPointerGetAttribute)
CANNOT(cuStreamAddCallback)

#endif

/* -- Errors ----------------------------------------------------------------------------------- */

static const struct { int code; const char *name, *string; } errors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {4, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {34, "CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library"},
    {35, "CUDA_ERROR_INSUFFICIENT_DRIVER", "CUDA driver version is insufficient for CUDA runtime version"},
    {36, "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER", "API call requires a newer CUDA driver"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {214, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
    {217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported between these two devices"},
    {218, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain."},
    {304, "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {800, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {802, "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"},
    {804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "forward compatibility was attempted on non supported HW"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

CUresult cuGetErrorName(CUresult error, const char **name) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == error) { *name = errors[i].name; return SUCCESS; }
    *name = NULL;
    return INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **string) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == error) { *string = errors[i].string; return SUCCESS; }
    *string = NULL;
    return INVALID_VALUE;
}
