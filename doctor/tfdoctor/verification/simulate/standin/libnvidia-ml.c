/* A stand-in NVML, the companion of libcuda.c: TensorFlow from 2.21 on registers no GPU where
 * libnvidia-ml.so.1 cannot be opened. C99, no NVIDIA header:
 *
 *     cc -std=c99 -shared -fPIC -Wl,-soname,libnvidia-ml.so.1 -o libnvidia-ml.so.1 libnvidia-ml.c
 *
 * Environment, all optional: libcuda.c's STANDIN_GPUS, STANDIN_CC, STANDIN_NAME, STANDIN_MEM_MIB and
 * STANDIN_CUDA, and
 *     STANDIN_DRIVER=570.86.15   the driver's version
 *     STANDIN_NVML_INIT=0        nvmlInit's result (9 driver not loaded, 18 library/driver mismatch,
 *                                999 unknown ...)
 * CUDA_VISIBLE_DEVICES means nothing to NVML. -DSIMULATED: as in libcuda.c; without STANDIN_GPUS no driver is loaded.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef COMPUTES
#include "compute/faults.h"
#endif
#ifdef SIMULATED
const char tfdoctor_stand_in[] = "tfdoctor's stand-in for libnvidia-ml.so.1: no driver, and no card behind it";
#endif

typedef void *Device;
enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
       DRIVER_NOT_LOADED = 9, MOST = 32 };

#ifndef GPUS
#define GPUS 1
#endif
static int initialized;

static const char *text(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value && *value ? value : otherwise;
}

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
    const char *asked = text("STANDIN_GPUS", "");
    long gpus = *asked ? strtol(asked, NULL, 10) : GPUS;
    return gpus < 0 ? 0 : gpus > MOST ? MOST : (int)gpus;
}

static int copy(char *buffer, unsigned size, const char *value, size_t length) {
    if (length >= size) return INSUFFICIENT_SIZE;
    memcpy(buffer, value, length);
    buffer[length] = 0;
    return SUCCESS;
}

/* A handle is the device's index plus one. */
static int index_of(Device device) { return (int)(intptr_t)device - 1; }
#define NEED_INIT do { if (!initialized) return UNINITIALIZED; } while (0)
#define NEED_DEVICE(device) do { NEED_INIT; if (index_of(device) < 0 || index_of(device) >= physical()) return INVALID_ARGUMENT; } while (0)

int nvmlInit_v2(void) {
#ifdef SIMULATED
    if (!getenv("STANDIN_GPUS")) return DRIVER_NOT_LOADED;
#endif
    int result = (int)strtol(text("STANDIN_NVML_INIT", "0"), NULL, 10);
    if (!result) initialized = 1;
    return result;
}
int nvmlInit(void) { return nvmlInit_v2(); }
int nvmlInitWithFlags(unsigned flags) { (void)flags; return nvmlInit_v2(); }
int nvmlShutdown(void) { NEED_INIT; return SUCCESS; }

const char *nvmlErrorString(int error) {
    switch (error) {
    case 0: return "Success";
    case 1: return "Uninitialized";
    case 2: return "Invalid Argument";
    case 3: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case 6: return "Not Found";
    case 7: return "Insufficient Size";
    case 9: return "Driver Not Loaded";
    case 10: return "Timeout";
    case 12: return "NVML Shared Library Not Found";
    case 13: return "Function Not Found";
    case 15: return "GPU is lost";
    case 17: return "The operating system has blocked the request";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

int nvmlSystemGetDriverVersion(char *b, unsigned n) { NEED_INIT; const char *v = text("STANDIN_DRIVER", "570.86.15"); return copy(b, n, v, strlen(v)); }
int nvmlSystemGetNVMLVersion(char *b, unsigned n) {
    char version[96];
    NEED_INIT;
    snprintf(version, sizeof version, "%ld.%s", listed("STANDIN_CUDA", "12080", 0) / 1000, text("STANDIN_DRIVER", "570.86.15"));
    return copy(b, n, version, strlen(version));
}
int nvmlSystemGetCudaDriverVersion_v2(int *v) { NEED_INIT; *v = (int)listed("STANDIN_CUDA", "12080", 0); return SUCCESS; }
int nvmlSystemGetCudaDriverVersion(int *v) { return nvmlSystemGetCudaDriverVersion_v2(v); }

int nvmlDeviceGetCount_v2(unsigned *count) { NEED_INIT; *count = (unsigned)physical(); return SUCCESS; }
int nvmlDeviceGetCount(unsigned *count) { return nvmlDeviceGetCount_v2(count); }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *device) {
    NEED_INIT;
    if (index >= (unsigned)physical()) return INVALID_ARGUMENT;
    *device = (Device)(intptr_t)(index + 1);
    return SUCCESS;
}
int nvmlDeviceGetHandleByIndex(unsigned index, Device *device) { return nvmlDeviceGetHandleByIndex_v2(index, device); }

static void uuid_text(char *out, size_t size, int index) {
    unsigned char b = (unsigned char)(index + 1);
    snprintf(out, size, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
             b, b, b, b, b, b, b, b, b, b, b, b, b, b, b, b);
}

int nvmlDeviceGetHandleByUUID(const char *uuid, Device *device) {
    NEED_INIT;
    for (int i = 0; i < physical(); i++) {
        char known[48];
        uuid_text(known, sizeof known, i);
        if (strcmp(known, uuid) == 0) return nvmlDeviceGetHandleByIndex_v2((unsigned)i, device);
    }
    return NOT_FOUND;
}

/* "0000:01:00.0" and "00000000:01:00.0" are the same. */
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, Device *device) {
    unsigned domain, bus;
    NEED_INIT;
    if (sscanf(id, "%x:%x:", &domain, &bus) != 2 || bus < 1 || bus > (unsigned)physical()) return NOT_FOUND;
    return nvmlDeviceGetHandleByIndex_v2(bus - 1, device);
}
int nvmlDeviceGetHandleByPciBusId(const char *id, Device *device) { return nvmlDeviceGetHandleByPciBusId_v2(id, device); }

int nvmlDeviceGetIndex(Device device, unsigned *index) { NEED_DEVICE(device); *index = (unsigned)index_of(device); return SUCCESS; }
int nvmlDeviceGetName(Device device, char *b, unsigned n) {
    size_t length;
    NEED_DEVICE(device);
    const char *name = element(text("STANDIN_NAME", "Stand-in GPU"), ';', index_of(device), &length);
    return copy(b, n, name, length);
}
int nvmlDeviceGetUUID(Device device, char *b, unsigned n) {
    char uuid[48];
    NEED_DEVICE(device);
    uuid_text(uuid, sizeof uuid, index_of(device));
    return copy(b, n, uuid, strlen(uuid));
}

struct pci { char legacy[16]; unsigned domain, bus, device, device_id, subsystem_id; char id[32]; };
int nvmlDeviceGetPciInfo_v3(Device device, struct pci *info) {
    NEED_DEVICE(device);
    unsigned bus = (unsigned)index_of(device) + 1;
    memset(info, 0, sizeof *info);
    info->bus = bus;
    info->device_id = 0x20b010de; /* an A100's */
    snprintf(info->legacy, sizeof info->legacy, "0000:%02X:00.0", bus);
    snprintf(info->id, sizeof info->id, "00000000:%02X:00.0", bus);
    return SUCCESS;
}
int nvmlDeviceGetPciInfo_v2(Device device, struct pci *info) { return nvmlDeviceGetPciInfo_v3(device, info); }
int nvmlDeviceGetPciInfo(Device device, struct pci *info) { return nvmlDeviceGetPciInfo_v3(device, info); }

struct memory { unsigned long long total, free, used; };
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo(Device device, struct memory *memory) {
    NEED_DEVICE(device);
    memory->total = (unsigned long long)listed("STANDIN_MEM_MIB", "81920", index_of(device)) << 20;
    memory->used = memory->total / 80;
#ifdef COMPUTES
    struct standin_fault held;
    if (standin_asked("held", index_of(device), &held, NULL)) memory->used += (unsigned long long)held.value;
    if (memory->used > memory->total) memory->used = memory->total;
#endif
    memory->free = memory->total - memory->used;
    return SUCCESS;
}
int nvmlDeviceGetMemoryInfo_v2(Device device, struct memory_v2 *memory) {
    struct memory plain;
    int result = nvmlDeviceGetMemoryInfo(device, &plain);
    if (result) return result;
    memory->total = plain.total;
    memory->reserved = 0;
    memory->free = plain.free;
    memory->used = plain.used;
    return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(Device device, int *major, int *minor) {
    NEED_DEVICE(device);
    int cc = (int)listed("STANDIN_CC", "80", index_of(device));
    *major = cc / 10; *minor = cc % 10;
    return SUCCESS;
}
/* Default mode, no MIG (a card without it says "not supported"), PCIe 4 x16, nobody computing. */
int nvmlDeviceGetComputeMode(Device device, int *mode) { NEED_DEVICE(device); *mode = 0; return SUCCESS; }
int nvmlDeviceGetMigMode(Device device, unsigned *now, unsigned *pending) { NEED_DEVICE(device); *now = *pending = 0; return NOT_SUPPORTED; }
int nvmlDeviceGetNvLinkState(Device device, unsigned link, int *active) { NEED_DEVICE(device); (void)link; *active = 0; return NOT_SUPPORTED; }
/* Card to card: 1 is "the chipset does not do it". NCCL calls this without looking whether it is there. */
int nvmlDeviceGetP2PStatus(Device one, Device other, int what, int *status) { NEED_DEVICE(one); NEED_DEVICE(other); (void)what; *status = 1; return SUCCESS; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(Device device, unsigned link, struct pci *info) { NEED_DEVICE(device); (void)link; (void)info; return NOT_SUPPORTED; }
int nvmlDeviceGetNvLinkRemotePciInfo(Device device, unsigned link, struct pci *info) { return nvmlDeviceGetNvLinkRemotePciInfo_v2(device, link, info); }
int nvmlDeviceGetNvLinkCapability(Device device, unsigned link, int what, unsigned *can) { NEED_DEVICE(device); (void)link; (void)what; (void)can; return NOT_SUPPORTED; }
int nvmlDeviceGetGpuFabricInfoV(Device device, void *info) { NEED_DEVICE(device); (void)info; return NOT_SUPPORTED; }
int nvmlDeviceGetCurrPcieLinkGeneration(Device device, unsigned *generation) { NEED_DEVICE(device); *generation = 4; return SUCCESS; }
int nvmlDeviceGetMaxPcieLinkGeneration(Device device, unsigned *generation) { NEED_DEVICE(device); *generation = 4; return SUCCESS; }
int nvmlDeviceGetCurrPcieLinkWidth(Device device, unsigned *width) { NEED_DEVICE(device); *width = 16; return SUCCESS; }
int nvmlDeviceGetMaxPcieLinkWidth(Device device, unsigned *width) { NEED_DEVICE(device); *width = 16; return SUCCESS; }
int nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned *count, void *processes) { NEED_DEVICE(device); (void)processes; *count = 0; return SUCCESS; }
int nvmlDeviceGetComputeRunningProcesses_v2(Device device, unsigned *count, void *processes) { return nvmlDeviceGetComputeRunningProcesses_v3(device, count, processes); }
int nvmlDeviceGetComputeRunningProcesses(Device device, unsigned *count, void *processes) { return nvmlDeviceGetComputeRunningProcesses_v3(device, count, processes); }
int nvmlDeviceGetGraphicsRunningProcesses_v3(Device device, unsigned *count, void *processes) { return nvmlDeviceGetComputeRunningProcesses_v3(device, count, processes); }
