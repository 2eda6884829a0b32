/* Modules, kernels and launches: the interpreter runs the PTX that a module has.
 *
 * A launch that fails ends the process unless STANDIN_FAILED=return: TensorFlow does not look at the result of every
 * launch, and would compute with what the kernel never wrote. */
#define _GNU_SOURCE
#include "driver.h"
#include "fatbin.h"
#include "faults.h"
#include "../ptx/interpreter.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { DEVICES = 32 };

struct module {
    struct ptx_module *code; /* NULL: it is read from `image` once a kernel runs, or a variable of it is asked for */
    struct function *functions;
    const void *image;
    int capability;
};
struct function {
    char *name;
    struct module *module;
    struct ptx_kernel *kernel; /* NULL: looked up when it is used */
    struct function *next;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void complain(const char *what, const char *name, int code, const char *why) { fprintf(stderr, "[software GPU] %s %s: %d %s\n", what, name, code, why); }

/* Up to which capability texts are taken: the card's own. A card for which a wheel has machine code alone can be given
 * the text for a newer one (STANDIN_TEXTS=90), for the interpreter has everything that any text asks for. */
static int texts(void) {
    const char *most = getenv("STANDIN_TEXTS");
    int own = standin_capability(standin_device()), other = most ? atoi(most) : 0;
    return other > own ? other : own;
}

/* A driver runs a card's own machine code where there is some, and refuses PTX that is newer than its compiler. */
static CUresult as_a_driver(CUresult loaded, struct module *m, const void *image, char *why, size_t size) {
    int cuda = 0, own = machine_code(image, standin_capability(standin_device()));
    if (loaded == NO_BINARY && own) {
        snprintf(why, size, "there is machine code for this card, and no PTX that could be interpreted");
        return NOT_SUPPORTED;
    }
    cuDriverGetVersion(&cuda);
    if (loaded || own || ptx_isa(m->code) <= newest_ptx(cuda)) return loaded;
    ptx_unload(m->code);
    return PTX_TOO_NEW;
}

CUresult cuModuleLoadData(void **module, const void *image) {
    TRACE;
    char why[512] = "";
    struct standin_fault fault;
    if (standin_asked("module", standin_device(), &fault, NULL)) return (CUresult)fault.value;
    struct module *m = calloc(1, sizeof *m);
    if (!m) return OUT_OF_MEMORY;
    CUresult result = ptx_load(image, texts(), &m->code, why, sizeof why);
    result = as_a_driver(result, m, image, why, sizeof why);
    if (result) {
        if (*why) complain("module", "", result, why);
        free(m);
        return result;
    }
    *module = m;
    return OK;
}
/* The same for a CUDA runtime that loads all of a program's modules before the first kernel: each is read when it is used,
 * from an image that stays where it is. */
CUresult standin_load_later(void **module, const void *image) {
    struct standin_fault fault;
    int device = standin_device(), capability = texts();
    if (standin_asked("module", device, &fault, NULL)) return (CUresult)fault.value;
    if (!ptx_serves(image, capability)) return NO_BINARY;
    struct module *m = calloc(1, sizeof *m);
    if (!m) return OUT_OF_MEMORY;
    *m = (struct module){NULL, NULL, image, capability};
    *module = m;
    return OK;
}
/* Both under the lock. */
static CUresult read_now(struct module *m, char *why, size_t size) { return m->code ? OK : ptx_load(m->image, m->capability, &m->code, why, size); }
static CUresult look_up(struct module *m, const char *name, struct ptx_kernel **kernel, char *why, size_t size) {
    CUresult result = read_now(m, why, size);
    if (!result) return ptx_find(m->code, name, kernel, why, size);
    if (result != NO_BINARY) return result;
    snprintf(why, size, "there is machine code for this card, and no PTX that could be interpreted");
    return NOT_SUPPORTED;
}
/* The kernel of a function; NULL where it cannot be had, which is told. */
static struct ptx_kernel *kernel_of(struct function *f, CUresult *result) {
    char why[512] = "";
    pthread_mutex_lock(&lock);
    *result = f->kernel ? OK : look_up(f->module, f->name, &f->kernel, why, sizeof why);
    pthread_mutex_unlock(&lock);
    if (*why) complain("kernel", f->name, *result, why);
    return *result ? NULL : f->kernel;
}
CUresult cuModuleLoadDataEx(void **module, const void *image, unsigned count, int *options, void **values) { (void)count; (void)options; (void)values; return cuModuleLoadData(module, image); }
CUresult cuModuleLoadFatBinary(void **module, const void *image) { return cuModuleLoadData(module, image); }
CUresult cuModuleUnload(void *module) {
    TRACE;
    struct module *m = module;
    if (!m) return INVALID_HANDLE;
    for (struct function *f = m->functions, *next; f; f = next) {
        next = f->next;
        free(f->name);
        free(f);
    }
    if (m->code) ptx_unload(m->code);
    free(m);
    return OK;
}
CUresult cuModuleGetLoadingMode(int *mode) { TRACE; *mode = 2; return OK; } /* lazy */

CUresult cuModuleGetFunction(void **function, void *module, const char *name) {
    TRACE;
    struct module *m = module;
    char why[512] = "";
    CUresult result = OK;
    if (!m) return INVALID_HANDLE; /* that could not be loaded: TensorFlow asks it all the same */
    pthread_mutex_lock(&lock);
    struct function *f = m->functions;
    while (f && strcmp(f->name, name) != 0) f = f->next;
    if (!f) {
        struct ptx_kernel *kernel = NULL;
        if (m->code) result = ptx_find(m->code, name, &kernel, why, sizeof why);
        if (!result && (f = malloc(sizeof *f))) {
            *f = (struct function){strdup(name), m, kernel, m->functions};
            m->functions = f;
        }
    }
    pthread_mutex_unlock(&lock);
    if (*why) complain("kernel", name, result, why);
    *function = f;
    return result;
}
CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, void *module, const char *name) {
    TRACE;
    void *at = NULL;
    size_t size = 0;
    if (!module) return INVALID_HANDLE;
    char why[512] = "";
    pthread_mutex_lock(&lock);
    int later = !((struct module *)module)->code;
    CUresult result = read_now(module, why, sizeof why);
    pthread_mutex_unlock(&lock);
    if (*why) complain("variable", name, result, why);
    /* The runtime asks for all variables at once, and gives up where it is answered anything else for one of those that
     * nobody may ever use: a kernel beside it would stop with the reason. */
    if (result && later) result = NOT_FOUND;
    if (!result) result = ptx_variable(((struct module *)module)->code, name, &at, &size);
    if (address) *address = (CUdeviceptr)at;
    if (bytes) *bytes = size;
    return result;
}

/* CUDA 12's names for the same: a library is a module, a kernel a function. */
CUresult cuLibraryLoadData(void **library, const void *code, int *jit, void **jit_values, unsigned jits, int *options, void **values, unsigned count) {
    (void)jit; (void)jit_values; (void)jits; (void)options; (void)values; (void)count;
    return cuModuleLoadData(library, code);
}
CUresult cuLibraryUnload(void *library) { return cuModuleUnload(library); }
CUresult cuLibraryGetKernel(void **kernel, void *library, const char *name) { return cuModuleGetFunction(kernel, library, name); }
CUresult cuLibraryGetModule(void **module, void *library) { TRACE; *module = library; return OK; }
CUresult cuKernelGetFunction(void **function, void *kernel) { TRACE; *function = kernel; return OK; }
CUresult cuKernelGetName(const char **name, void *kernel) { TRACE; *name = ((struct function *)kernel)->name; return OK; }
CUresult cuFuncGetName(const char **name, void *function) { TRACE; *name = ((struct function *)function)->name; return OK; }
CUresult cuFuncGetModule(void **module, void *function) { TRACE; *module = ((struct function *)function)->module; return OK; }

CUresult cuFuncGetAttribute(int *value, int attribute, void *function) {
    TRACE;
    CUresult result;
    const struct ptx_kernel *kernel = kernel_of(function, &result);
    if (!kernel) return result;
    switch (attribute) {
    case 0: *value = (int)ptx_threads(kernel); break;                /* MAX_THREADS_PER_BLOCK */
    case 1: *value = (int)ptx_shared_bytes(kernel); break;           /* SHARED_SIZE_BYTES */
    case 4: *value = 32; break;                                      /* NUM_REGS */
    /* PTX_VERSION: what the text was compiled for. CUB asks this for how many items the blocks of its kernels take, and
     * the kernels themselves know only that. */
    case 5: *value = ptx_target(kernel); break;
    case 6: *value = standin_capability(standin_device()); break;    /* BINARY_VERSION */
    case 8: *value = 49152; break;                                   /* MAX_DYNAMIC_SHARED_SIZE_BYTES */
    default: *value = 0;
    }
    return OK;
}
CUresult cuKernelGetAttribute(int *value, int attribute, void *kernel, int device) { (void)device; return cuFuncGetAttribute(value, attribute, kernel); }
CUresult cuFuncSetAttribute(void *function, int attribute, int value) { TRACE; (void)function; (void)attribute; (void)value; return OK; }
CUresult cuKernelSetAttribute(int attribute, int value, void *kernel, int device) { TRACE; (void)attribute; (void)value; (void)kernel; (void)device; return OK; }
CUresult cuFuncSetCacheConfig(void *function, int config) { TRACE; (void)function; (void)config; return OK; }
CUresult cuFuncSetSharedMemConfig(void *function, int config) { TRACE; (void)function; (void)config; return OK; }
CUresult cuFuncLoad(void *function) { TRACE; (void)function; return OK; }
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *function, int threads, size_t shared) {
    TRACE; (void)function; (void)shared;
    *blocks = threads > 0 && threads <= 1024 ? 2048 / threads : 1;
    return OK;
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, void *function, int threads, size_t shared, unsigned flags) {
    (void)flags;
    return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared);
}
CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *block, void *function, void *shared_of, size_t shared, int limit) {
    TRACE; (void)function; (void)shared_of; (void)shared;
    *block = limit && limit < 1024 ? limit : 1024;
    *grid = 216;
    return OK;
}

/* -- Faults on purpose -------------------------------------------------------------------------- */

static long long launches[DEVICES];

CUresult standin_broken(void) {
    struct standin_fault fault;
    int device = standin_device();
    if (!standin_asked("broken", device, &fault, NULL)) return OK;
    return __atomic_load_n(&launches[device], __ATOMIC_RELAXED) >= fault.after ? (CUresult)fault.value : OK;
}

/* What a launch is to answer, once it has waited as it is to. */
static CUresult on_purpose(void) {
    struct standin_fault fault;
    int device = standin_device();
    long long number = __atomic_add_fetch(&launches[device], 1, __ATOMIC_RELAXED);
    if (standin_asked("slow", device, &fault, NULL)) {
        struct timespec more = {fault.value / 1000, (long)(fault.value % 1000) * 1000000};
        nanosleep(&more, NULL);
    }
    if (standin_asked("hang", device, &fault, NULL) && number > fault.value)
        for (;;) pause();
    if (standin_asked("launch", device, &fault, NULL)) return (CUresult)fault.value;
    return standin_asked("broken", device, &fault, NULL) && number > fault.after ? (CUresult)fault.value : OK;
}

static CUresult failed(const char *name, CUresult code, const char *why) {
    complain("kernel", name, code, why);
    const char *wanted = getenv("STANDIN_FAILED");
    if (!wanted || strcmp(wanted, "return") != 0) {
        fprintf(stderr, "[software GPU] it stops here: what this kernel had to write would be garbage (STANDIN_FAILED=return goes on)\n");
        abort();
    }
    return code;
}

CUresult cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream, void **parameters,
                        void **extra) {
    TRACE; (void)stream;
    struct function *f = function;
    char why[2048] = "";
    struct ptx_grid grid = {{gx, gy, gz}, {bx, by, bz}, shared};
    void *pointers[1024];
    if (!f) return INVALID_HANDLE;
    CUresult purpose = on_purpose();
    if (purpose) return purpose;
    CUresult result;
    const struct ptx_kernel *kernel = kernel_of(f, &result);
    if (!kernel) return failed(f->name, result, "is not there, or cannot be read");
    if (!parameters) { /* a buffer of them all: CU_LAUNCH_PARAM_BUFFER_POINTER is 1 */
        char *buffer = NULL;
        for (void **e = extra; e && *e; e += 2)
            if (*e == (void *)1) buffer = e[1];
        size_t count = ptx_parameters(kernel);
        if (count > sizeof pointers / sizeof *pointers || (count && !buffer)) return INVALID_VALUE;
        for (size_t n = 0; n < count; n++) {
            size_t offset, bytes;
            ptx_parameter(kernel, n, &offset, &bytes);
            pointers[n] = buffer + offset;
        }
        parameters = pointers;
    }
    result = ptx_launch(kernel, &grid, parameters, why, sizeof why);
    if (getenv("STANDIN_LAUNCHES")) fprintf(stderr, "[software GPU] %s (%u,%u,%u) (%u,%u,%u) %u: %d\n", f->name, gx, gy, gz, bx, by, bz, shared, result);
    return result ? failed(f->name, result, why) : OK;
}
struct launch_config {
    unsigned grid[3], block[3], shared;
    void *stream, *attributes;
    unsigned count;
};
CUresult cuLaunchKernelEx(const struct launch_config *c, void *function, void **parameters, void **extra) {
    return cuLaunchKernel(function, c->grid[0], c->grid[1], c->grid[2], c->block[0], c->block[1], c->block[2], c->shared, c->stream, parameters, extra);
}

/* -- What the runtime and TensorFlow ask by name ---------------------------------------------- */

CUresult cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *found) {
    TRACE; (void)version; (void)flags;
    char newer[256];
    Dl_info self;
    void *library = dladdr((void *)&cuGetProcAddress_v2, &self) ? dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD) : NULL;
    snprintf(newer, sizeof newer, "%s_v2", name);
    *function = library ? dlsym(library, newer) : NULL;
    if (!*function && library) *function = dlsym(library, name);
    if (found) *found = *function ? 0 : 1;
    return *function ? OK : NOT_FOUND;
}
CUresult cuGetProcAddress(const char *name, void **function, int version, uint64_t flags) { return cuGetProcAddress_v2(name, function, version, flags, NULL); }
CUresult cuProfilerStart(void) { TRACE; return OK; }
CUresult cuProfilerStop(void) { TRACE; return OK; }
