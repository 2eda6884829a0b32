/* NCCL's collectives among the ranks of one process. From 2.16 on TensorFlow has NCCL in a library of its own wheel and calls it
 * by name, so that LD_PRELOAD puts this one before it; older wheels call theirs directly: inside.h.
 *
 * A communicator counts its operations: the n-th of each rank are one. The rank that comes last computes for all of them; the
 * others wait for it, where NCCL itself would leave that to the stream. Halves are summed as doubles. */
#define _GNU_SOURCE
#include "faults.h"
#include "gemm.h"
#include "inside.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef int ncclResult_t;
enum { OK = 0, SYSTEM_ERROR = 2, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, RANKS = 64, ID = 128 };
enum kind { ALL_REDUCE, REDUCE, REDUCE_SCATTER, BROADCAST, ALL_GATHER };
enum { SUM, PROD, MAX, MIN, AVG };
typedef struct { char text[ID]; } ncclUniqueId;

struct part { const void *in; void *out; };
struct operation {
    enum kind kind;
    size_t count;
    int type, how, arrived, left; /* how: the reduction, or the root of a broadcast */
    int root;
    ncclResult_t result;
    struct part parts[RANKS];
    struct operation *next;
    unsigned long number;
};
struct world {
    char id[ID];
    int ranks, here;
    struct operation *operations;
    struct world *next;
};
typedef struct communicator {
    struct world *world;
    int rank, device;
    unsigned long number;
} *ncclComm_t;
struct asked { struct world *world; struct operation *operation; struct asked *next; };

static struct world *worlds;
static unsigned long ids;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static __thread struct asked *group;
static __thread int depth;

const char *ncclGetErrorString(ncclResult_t e) {
    if (e == 1) return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    return e == OK ? "no error" : e == INVALID_ARGUMENT ? "invalid argument" : e == INVALID_USAGE ? "invalid usage" : "unhandled system error";
}
const char *ncclGetLastError(ncclComm_t c) { (void)c; return ""; }
ncclResult_t ncclGetVersion(int *version) { *version = 22602; return OK; } /* 2.26.2 */
ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    memset(id, 0, sizeof *id);
    snprintf(id->text, ID, "software GPU %lu", __atomic_add_fetch(&ids, 1, __ATOMIC_RELAXED));
    return OK;
}

/* -- Communicators ---------------------------------------------------------------------------- */

ncclResult_t ncclCommInitRank(ncclComm_t *c, int ranks, ncclUniqueId id, int rank) {
    if (ranks < 1 || ranks > RANKS || rank < 0 || rank >= ranks) return INVALID_ARGUMENT;
    pthread_mutex_lock(&lock);
    struct world *w = worlds;
    while (w && memcmp(w->id, id.text, ID) != 0) w = w->next;
    if (!w && (w = calloc(1, sizeof *w))) {
        memcpy(w->id, id.text, ID);
        w->ranks = ranks;
        w->next = worlds;
        worlds = w;
    }
    ncclResult_t result = !w ? SYSTEM_ERROR : w->ranks != ranks ? INVALID_ARGUMENT : OK;
    *c = result ? NULL : calloc(1, sizeof **c);
    if (!result && !*c) result = SYSTEM_ERROR;
    if (!result) {
        w->here++;
        **c = (struct communicator){w, rank, rank, 0};
    }
    pthread_mutex_unlock(&lock);
    return result;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t *c, int ranks, ncclUniqueId id, int rank, void *config) { (void)config; return ncclCommInitRank(c, ranks, id, rank); }
ncclResult_t ncclCommInitAll(ncclComm_t *c, int ranks, const int *devices) {
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    for (int i = 0; i < ranks; i++) {
        ncclResult_t e = ncclCommInitRank(&c[i], ranks, id, i);
        if (e) return e;
        if (devices) c[i]->device = devices[i];
    }
    return OK;
}
static void forget(struct world *gone) {
    for (struct world **at = &worlds; *at; at = &(*at)->next) {
        if (*at != gone) continue;
        *at = gone->next;
        free(gone);
        return;
    }
}
ncclResult_t ncclCommDestroy(ncclComm_t c) {
    if (!c) return OK;
    pthread_mutex_lock(&lock);
    if (--c->world->here == 0 && !c->world->operations) forget(c->world);
    pthread_mutex_unlock(&lock);
    free(c);
    return OK;
}
ncclResult_t ncclCommAbort(ncclComm_t c) { return ncclCommDestroy(c); }
ncclResult_t ncclCommFinalize(ncclComm_t c) { (void)c; return OK; }
ncclResult_t ncclCommCount(ncclComm_t c, int *ranks) { *ranks = c->world->ranks; return OK; }
ncclResult_t ncclCommUserRank(ncclComm_t c, int *rank) { *rank = c->rank; return OK; }
ncclResult_t ncclCommCuDevice(ncclComm_t c, int *device) { *device = c->device; return OK; }
ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *e) { (void)c; *e = OK; return OK; }
ncclResult_t ncclCommRegister(ncclComm_t c, void *buffer, size_t n, void **handle) { (void)c; (void)n; *handle = buffer; return OK; }
ncclResult_t ncclCommDeregister(ncclComm_t c, void *handle) { (void)c; (void)handle; return OK; }
ncclResult_t ncclMemAlloc(void **p, size_t n) { *p = malloc(n ? n : 1); return *p ? OK : SYSTEM_ERROR; }
ncclResult_t ncclMemFree(void *p) { free(p); return OK; }

/* -- Values: ncclDataType_t ------------------------------------------------------------------- */

static size_t width(int type) {
    static const size_t widths[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    return type >= 0 && type < 10 ? widths[type] : 0;
}
#define REDUCED(T, U)                                                                             \
    case U:                                                                                       \
        for (size_t i = 0; i < n; i++) {                                                          \
            T all = ((const T *)o->parts[0].in)[from + i];                                        \
            for (int r = 1; r < ranks; r++) {                                                     \
                T one = ((const T *)o->parts[r].in)[from + i];                                    \
                if (o->how == PROD) all = (T)(all * one);                                         \
                else if (o->how == MAX) all = one > all ? one : all;                              \
                else if (o->how == MIN) all = one < all ? one : all;                              \
                else all = (T)(all + one);                                                        \
            }                                                                                     \
            ((T *)out)[i] = o->how == AVG ? (T)(all / (T)ranks) : all;                            \
        }                                                                                         \
        return OK;
static void halves(const struct operation *o, int ranks, size_t from, size_t n, void *out, int type) {
    for (size_t i = 0; i < n; i++) {
        double all = creal(element(o->parts[0].in, (int64_t)(from + i), type));
        for (int r = 1; r < ranks; r++) {
            double one = creal(element(o->parts[r].in, (int64_t)(from + i), type));
            all = o->how == PROD ? all * one : o->how == MAX ? fmax(all, one) : o->how == MIN ? fmin(all, one) : all + one;
        }
        set_element(out, (int64_t)i, o->how == AVG ? all / ranks : all, type);
    }
}
static ncclResult_t reduced(const struct operation *o, int ranks, size_t from, size_t n, void *out) {
    if (o->how < SUM || o->how > AVG) return INVALID_ARGUMENT;
    switch (o->type) {
        REDUCED(int8_t, 0)
        REDUCED(uint8_t, 1)
        REDUCED(int32_t, 2)
        REDUCED(uint32_t, 3)
        REDUCED(int64_t, 4)
        REDUCED(uint64_t, 5)
        REDUCED(float, 7)
        REDUCED(double, 8)
    case 6: halves(o, ranks, from, n, out, R_16F); return OK;
    case 9: halves(o, ranks, from, n, out, R_16BF); return OK;
    default: return INVALID_ARGUMENT;
    }
}

/* -- Collectives ------------------------------------------------------------------------------ */

static ncclResult_t compute(struct operation *o, int ranks) {
    size_t bytes = o->count * width(o->type);
    size_t results = o->kind == REDUCE_SCATTER || o->kind == ALL_GATHER ? bytes * (size_t)ranks : bytes;
    char *all = malloc(results + 1);
    ncclResult_t e = all ? OK : SYSTEM_ERROR;
    if (!e && o->kind <= REDUCE_SCATTER) e = reduced(o, ranks, 0, results / width(o->type), all);
    if (!e && o->kind == BROADCAST) memcpy(all, o->parts[o->root].in, bytes);
    if (!e && o->kind == ALL_GATHER)
        for (int r = 0; r < ranks; r++) memcpy(all + (size_t)r * bytes, o->parts[r].in, bytes);
    for (int r = 0; !e && r < ranks; r++) {
        if (o->kind == REDUCE && r != o->root) continue;
        if (o->kind == REDUCE_SCATTER) memcpy(o->parts[r].out, all + (size_t)r * bytes, bytes);
        else memcpy(o->parts[r].out, all, results);
    }
    free(all);
    return e;
}
/* The communicator's next operation, made where this rank is the first that comes to it. The lock is held. */
static struct operation *next(struct world *w, unsigned long number) {
    struct operation **at = &w->operations;
    while (*at && (*at)->number != number) at = &(*at)->next;
    if (!*at && (*at = calloc(1, sizeof **at))) {
        (*at)->number = number;
        (*at)->left = w->ranks;
    }
    return *at;
}
static void leave(struct world *w, struct operation *gone) {
    if (--gone->left) return;
    for (struct operation **at = &w->operations; *at; at = &(*at)->next) {
        if (*at != gone) continue;
        *at = gone->next;
        free(gone);
        break;
    }
    if (!w->operations && !w->here) forget(w);
}
/* Wait until all of these are done. The lock is held. */
static ncclResult_t wait_for(struct asked *all) {
    ncclResult_t result = OK;
    while (all) {
        struct asked *one = all;
        while (one->operation->arrived < one->world->ranks) pthread_cond_wait(&changed, &lock);
        if (one->operation->result) result = one->operation->result;
        leave(one->world, one->operation);
        all = one->next;
        free(one);
    }
    return result;
}
static ncclResult_t ask(ncclComm_t c, enum kind kind, const void *in, void *out, size_t count, int type, int how, int root) {
    if (!c || !width(type) || root < 0 || root >= c->world->ranks) return INVALID_ARGUMENT;
    struct asked *one = calloc(1, sizeof *one);
    if (!one) return SYSTEM_ERROR;
    int asked = standin_status("nccl");
    if (standin_status("nccl-hang"))
        for (;;) pause();
    if (asked) {
        free(one);
        return asked;
    }
    pthread_mutex_lock(&lock);
    struct world *w = c->world;
    struct operation *o = next(w, c->number++);
    ncclResult_t result = o ? OK : SYSTEM_ERROR;
    if (!o) {
        free(one);
    } else {
        if (!o->arrived) {
            o->kind = kind;
            o->count = count;
            o->type = type;
            o->how = how;
            o->root = root;
        } else if (o->kind != kind || o->count != count || o->type != type || o->how != how || o->root != root) {
            o->result = INVALID_USAGE; /* the ranks do not agree; NCCL itself would hang, or mix them */
        }
        o->parts[c->rank] = (struct part){in, out};
        if (++o->arrived == w->ranks) {
            if (!o->result) o->result = compute(o, w->ranks);
            pthread_cond_broadcast(&changed);
        }
        *one = (struct asked){w, o, NULL};
        if (!depth) {
            result = wait_for(one);
        } else {
            struct asked **end = &group;
            while (*end) end = &(*end)->next;
            *end = one;
        }
    }
    pthread_mutex_unlock(&lock);
    if (getenv("STANDIN_LAUNCHES")) fprintf(stderr, "[software GPU] nccl %d of %zu: rank %d of %d\n", (int)kind, count, c->rank, w->ranks);
    return result;
}
ncclResult_t ncclGroupStart(void) { depth++; return OK; }
ncclResult_t ncclGroupEnd(void) {
    if (!depth) return INVALID_USAGE;
    if (--depth) return OK;
    pthread_mutex_lock(&lock);
    struct asked *all = group;
    group = NULL;
    ncclResult_t result = wait_for(all);
    pthread_mutex_unlock(&lock);
    return result;
}
ncclResult_t ncclAllReduce(const void *in, void *out, size_t n, int type, int how, ncclComm_t c, void *stream) { (void)stream; return ask(c, ALL_REDUCE, in, out, n, type, how, 0); }
ncclResult_t ncclReduce(const void *in, void *out, size_t n, int type, int how, int root, ncclComm_t c, void *stream) { (void)stream; return ask(c, REDUCE, in, out, n, type, how, root); }
ncclResult_t ncclReduceScatter(const void *in, void *out, size_t n, int type, int how, ncclComm_t c, void *stream) { (void)stream; return ask(c, REDUCE_SCATTER, in, out, n, type, how, 0); }
ncclResult_t ncclBroadcast(const void *in, void *out, size_t n, int type, int root, ncclComm_t c, void *stream) { (void)stream; return ask(c, BROADCAST, in, out, n, type, 0, root); }
ncclResult_t ncclBcast(void *buffer, size_t n, int type, int root, ncclComm_t c, void *stream) { return ncclBroadcast(buffer, buffer, n, type, root, c, stream); }
ncclResult_t ncclAllGather(const void *in, void *out, size_t n, int type, ncclComm_t c, void *stream) { (void)stream; return ask(c, ALL_GATHER, in, out, n, type, 0, 0); }

/* What is not here says so: the NCCL in TensorFlow's wheel would take these communicators for its own. */
static ncclResult_t missing(const char *name) {
    fprintf(stderr, "[software GPU] %s is not there\n", name);
    return INVALID_USAGE;
}
ncclResult_t ncclSend(const void *p, size_t n, int type, int peer, ncclComm_t c, void *stream) { (void)p; (void)n; (void)type; (void)peer; (void)c; (void)stream; return missing(__func__); }
ncclResult_t ncclRecv(void *p, size_t n, int type, int peer, ncclComm_t c, void *stream) { (void)p; (void)n; (void)type; (void)peer; (void)c; (void)stream; return missing(__func__); }
ncclResult_t ncclCommSplit(ncclComm_t c, int color, int key, ncclComm_t *made, void *config) { (void)c; (void)color; (void)key; (void)config; *made = NULL; return missing(__func__); }
ncclResult_t ncclCommInitRankScalable(ncclComm_t *c, int ranks, int rank, int n, ncclUniqueId *id, void *config) {
    (void)ranks; (void)rank; (void)n; (void)id; (void)config;
    *c = NULL;
    return missing(__func__);
}

/* -- The NCCL inside a wheel ------------------------------------------------------------------ */

#define SAME(name) {#name, (void *)name}
static const struct replaced same_names[] = {
    SAME(ncclAllGather), SAME(ncclAllReduce), SAME(ncclBcast), SAME(ncclBroadcast), SAME(ncclCommAbort), SAME(ncclCommCount), SAME(ncclCommCuDevice), SAME(ncclCommDestroy),
    SAME(ncclCommFinalize), SAME(ncclCommGetAsyncError), SAME(ncclCommInitAll), SAME(ncclCommInitRank), SAME(ncclCommInitRankConfig), SAME(ncclCommSplit), SAME(ncclCommUserRank),
    SAME(ncclGetErrorString), SAME(ncclGetLastError), SAME(ncclGetUniqueId), SAME(ncclGetVersion), SAME(ncclGroupEnd), SAME(ncclGroupStart), SAME(ncclRecv), SAME(ncclReduce),
    SAME(ncclReduceScatter), SAME(ncclSend), {NULL, NULL}};
/* Called by cuInit, when TensorFlow's libraries are there and none of its threads is in NCCL yet. */
static void replace_all(void) { dl_iterate_phdr(replace_loaded, (void *)same_names); }
void standin_nccl_inside(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, replace_all);
}
