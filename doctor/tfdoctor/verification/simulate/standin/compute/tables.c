/* The private tables that a CUDA runtime asks the driver for. The wheels of TensorFlow 1 have NVIDIA's runtime 10.0 inside,
 * linked into their kernels, where no library of ours can take its place: it calls the driver through these.
 *
 * They are nowhere documented. What is here is what that runtime was seen to ask and to expect, each table by its id and each
 * function by its place: a place that it was not seen to call ends the process with its number, for nobody knows what it does. */
#define _GNU_SOURCE
#include "driver.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void unknown(const char *table, int place) {
    fprintf(stderr, "[software GPU] it stops here: the CUDA runtime calls place %d of the driver's private table %s, which is not known\n", place, table);
    abort();
}
#define UNKNOWN(table, place) static void table##_##place(void) { unknown(#table, place); }

/* -- "runtime": what the driver does for it alone ------------------------------------------------ */

static CUresult primary_context(void **context, int device) { TRACE; *context = standin_context(device); return OK; }
/* hosts, names, count: the variables that are to be managed memory, and where their addresses are wanted */
static CUresult load(void **module, const void *image, void **hosts, const char **names, unsigned count) {
    TRACE; (void)hosts; (void)names;
    return count ? NOT_SUPPORTED : standin_load_later(module, image);
}
UNKNOWN(runtime, 1)
UNKNOWN(runtime, 3)
UNKNOWN(runtime, 4)
UNKNOWN(runtime, 5)
UNKNOWN(runtime, 7)
UNKNOWN(runtime, 8)
UNKNOWN(runtime, 9)
static void *const runtime[10] = {
    (void *)sizeof runtime, runtime_1, primary_context, runtime_3, runtime_4, runtime_5, load, runtime_7, runtime_8, runtime_9};

/* -- "storage": a value for each context and key, which the runtime keeps its own state in -------- */

struct kept {
    void *context, *key, *value;
    struct kept *next;
};
static struct kept *kept;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The place of what is kept, or of the end. No context: the current one. */
static struct kept **place_of(void *context, void *key) {
    struct kept **at = &kept;
    if (!context) context = standin_context(standin_device());
    while (*at && ((*at)->context != context || (*at)->key != key)) at = &(*at)->next;
    return at;
}
/* `gone` would be called when the context goes, which no context here does before the process. */
static CUresult keep(void *context, void *key, void *value, void (*gone)(void *, void *, void *)) {
    TRACE; (void)gone;
    CUresult result = OUT_OF_MEMORY;
    pthread_mutex_lock(&lock);
    struct kept **at = place_of(context, key), *one = *at ? *at : calloc(1, sizeof *one);
    if (one) {
        *one = (struct kept){context ? context : standin_context(standin_device()), key, value, one->next};
        *at = one;
        result = OK;
    }
    pthread_mutex_unlock(&lock);
    return result;
}
static CUresult forget(void *context, void *key) {
    TRACE;
    pthread_mutex_lock(&lock);
    struct kept **at = place_of(context, key), *one = *at;
    if (one) *at = one->next;
    pthread_mutex_unlock(&lock);
    free(one);
    return one ? OK : INVALID_HANDLE;
}
static CUresult find(void **value, void *context, void *key) {
    TRACE;
    pthread_mutex_lock(&lock);
    struct kept *one = *place_of(context, key);
    if (one) *value = one->value;
    pthread_mutex_unlock(&lock);
    return one ? OK : INVALID_HANDLE;
}
UNKNOWN(storage, 3)
static void *const storage[] = {keep, forget, find, storage_3};

/* -- "hooks": which of its functions a profiler wants to be told of; none ------------------------- */

static unsigned wanted[1024], others[16];
static void functions(unsigned **flags, size_t *count) { TRACE; *flags = wanted; *count = sizeof wanted / sizeof *wanted; }
static void other_events(unsigned **flags, size_t *count) { TRACE; *flags = others; *count = sizeof others / sizeof *others; }
UNKNOWN(hooks, 1)
UNKNOWN(hooks, 3)
UNKNOWN(hooks, 4)
UNKNOWN(hooks, 5)
static void *const hooks[7] = {(void *)sizeof hooks, hooks_1, functions, hooks_3, hooks_4, hooks_5, other_events};

/* -- "threads": asked for, and called for a profiler alone ---------------------------------------- */

UNKNOWN(threads, 1)
UNKNOWN(threads, 2)
UNKNOWN(threads, 3)
static void *const threads[4] = {(void *)sizeof threads, threads_1, threads_2, threads_3};

static const struct {
    unsigned char id[16];
    const void *table;
} tables[] = {
    {{0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9}, runtime},
    {{0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11, 0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95, 0x93}, storage},
    {{0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74, 0x93, 0xf2, 0x08, 0x00, 0x20, 0x0c, 0x0a, 0x66}, hooks},
    {{0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47, 0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec, 0xdc}, threads},
};

/* Other tables are asked for by newer runtimes and by NVIDIA's other libraries, which refuse a driver without them. */
CUresult cuGetExportTable(const void **table, const void *id) {
    TRACE;
    *table = NULL;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        if (memcmp(tables[i].id, id, sizeof tables[i].id) == 0) *table = tables[i].table;
    return *table ? OK : NOT_FOUND;
}

CUresult cuCtxGetApiVersion(void *context, unsigned *version) { TRACE; (void)context; *version = 3020; return OK; }
