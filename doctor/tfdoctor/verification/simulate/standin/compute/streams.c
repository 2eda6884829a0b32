/* Streams and events. Nothing is ever under way, so that all of them are always done. */
#define _GNU_SOURCE
#include "driver.h"

#include <stdlib.h>
#include <time.h>

struct stream {
    int device, priority;
    unsigned flags;
    unsigned long long id;
};
struct event {
    struct timespec at;
};
/* 0, 1 and 2 are the default streams, which nobody makes */
static struct stream *made(void *stream) { return (uintptr_t)stream > 2 ? stream : NULL; }

CUresult cuStreamCreateWithPriority(void **stream, unsigned flags, int priority) {
    TRACE;
    static unsigned long long ids;
    struct stream *s = malloc(sizeof *s);
    if (!s) return OUT_OF_MEMORY;
    *s = (struct stream){standin_device(), priority, flags, __atomic_add_fetch(&ids, 1, __ATOMIC_RELAXED)};
    *stream = s;
    return OK;
}
CUresult cuStreamCreate(void **stream, unsigned flags) { return cuStreamCreateWithPriority(stream, flags, 0); }
CUresult cuStreamDestroy_v2(void *stream) { TRACE; free(made(stream)); return OK; }
CUresult cuStreamQuery(void *stream) { TRACE; (void)stream; return standin_broken(); }
CUresult cuCtxSynchronize(void) { TRACE; return standin_broken(); }
CUresult cuStreamSynchronize(void *stream) { TRACE; (void)stream; return standin_broken(); }
CUresult cuStreamWaitEvent(void *stream, void *event, unsigned flags) { TRACE; (void)stream; (void)event; (void)flags; return OK; }
CUresult cuStreamGetPriority(void *stream, int *priority) { TRACE; *priority = made(stream) ? made(stream)->priority : 0; return OK; }
CUresult cuStreamGetFlags(void *stream, unsigned *flags) { TRACE; *flags = made(stream) ? made(stream)->flags : 0; return OK; }
CUresult cuStreamGetId(void *stream, unsigned long long *id) { TRACE; *id = made(stream) ? made(stream)->id : 0; return OK; }
CUresult cuStreamGetCtx(void *stream, void **context) { TRACE; *context = standin_context(made(stream) ? made(stream)->device : standin_device()); return OK; }
CUresult cuStreamIsCapturing(void *stream, int *status) { TRACE; (void)stream; *status = 0; return OK; }
CUresult cuStreamGetCaptureInfo(void *stream, int *status, unsigned long long *id) { TRACE; (void)stream; (void)id; *status = 0; return OK; }
CUresult cuStreamGetCaptureInfo_v2(void *stream, int *status, void *id, void *graph, void *nodes, void *count) {
    TRACE; (void)stream; (void)id; (void)graph; (void)nodes; (void)count;
    *status = 0;
    return OK;
}
CUresult cuThreadExchangeStreamCaptureMode(int *mode) { TRACE; *mode = 0; return OK; }
CUresult cuStreamAddCallback(void *stream, void (*call)(void *, CUresult, void *), void *data, unsigned flags) { TRACE; (void)flags; call(stream, OK, data); return OK; }
CUresult cuLaunchHostFunc(void *stream, void (*call)(void *), void *data) { TRACE; (void)stream; call(data); return OK; }

CUresult cuEventCreate(void **event, unsigned flags) { TRACE; (void)flags; *event = calloc(1, sizeof(struct event)); return *event ? OK : OUT_OF_MEMORY; }
CUresult cuEventDestroy_v2(void *event) { TRACE; free(event); return OK; }
CUresult cuEventRecord(void *event, void *stream) { TRACE; (void)stream; clock_gettime(CLOCK_MONOTONIC, &((struct event *)event)->at); return OK; }
CUresult cuEventRecordWithFlags(void *event, void *stream, unsigned flags) { (void)flags; return cuEventRecord(event, stream); }
CUresult cuEventQuery(void *event) { TRACE; (void)event; return standin_broken(); }
CUresult cuEventSynchronize(void *event) { TRACE; (void)event; return standin_broken(); }
CUresult cuEventElapsedTime(float *milliseconds, void *from, void *to) {
    TRACE;
    const struct timespec *a = &((struct event *)from)->at, *b = &((struct event *)to)->at;
    *milliseconds = (float)(b->tv_sec - a->tv_sec) * 1e3f + (float)(b->tv_nsec - a->tv_nsec) / 1e6f;
    if (*milliseconds < 0.001f) *milliseconds = 0.001f;
    return OK;
}
CUresult cuEventElapsedTime_v2(float *milliseconds, void *from, void *to) { return cuEventElapsedTime(milliseconds, from, to); }
