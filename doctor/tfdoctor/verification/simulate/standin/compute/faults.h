/* What fails on purpose: STANDIN_FAULT="oom:64M@1,cublas:3", a list of WORD:VALUE, each with @DEVICE where it is of one
 * card alone (its number among those that the process sees).
 *
 *     oom:BYTES         memory is out once so many bytes are taken (K, M and G multiply)
 *     held:BYTES        another process holds so many, as NVML says, too; no context can be made where nothing is left for it
 *     module:CODE       no kernels are loaded: 209 no kernel image, 218 invalid PTX, 222 PTX of a newer CUDA
 *     launch:CODE       no kernel is launched: 701 too many resources, 719 launch failure
 *     broken:CODE/N     after N launches every call answers CODE: 700 illegal address, 719, 214 ECC, 999 fell off the bus
 *     slow:MS           each launch takes so many milliseconds more
 *     hang:N            after N launches none comes back
 *     cublas:STATUS     cublasCreate answers it: 1 not initialized, 3 no memory
 *     cudnn:STATUS      cudnnCreate answers it: 1 (before 9) or 1001 not initialized, 4 or 5000 internal error
 *     cudnn-version:N   cudnnGetVersion, as in 8500
 *     nccl:STATUS       each collective answers it: 1 unhandled CUDA error, 2 system error
 *     nccl-hang:1       no collective comes back
 *
 * Peer access is always refused. That a card is too new or too old for a kernel, and a driver too old for its PTX, are no
 * words here: they follow from STANDIN_CC, STANDIN_CUDA and what the library really has (fatbin.h). */
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A word that is not one of these is a mistake that cuInit refuses. */
static const char *const standin_words[] = {"oom", "held", "module", "launch", "broken", "slow", "hang", "cublas", "cudnn", "cudnn-version", "nccl", "nccl-hang"};

struct standin_fault { long long value, after; };

/* One element, "oom:64M@1": whether it can be read. device: -1 for all. */
static inline int standin_element(const char *at, size_t length, const char **word, size_t *word_length, struct standin_fault *fault, int *device) {
    const char *end = at + length, *colon = memchr(at, ':', length);
    char *rest;
    *device = -1;
    fault->after = 0;
    if (!colon || colon == at) return 0;
    *word = at;
    *word_length = (size_t)(colon - at);
    fault->value = strtoll(colon + 1, &rest, 10);
    if (rest == colon + 1 || rest > end || fault->value < 0) return 0;
    int shift = rest < end && *rest == 'K' ? 10 : rest < end && *rest == 'M' ? 20 : rest < end && *rest == 'G' ? 30 : 0;
    if (shift) fault->value <<= shift, rest++;
    if (rest < end && *rest == '/') {
        const char *from = rest + 1;
        fault->after = strtoll(from, &rest, 10);
        if (rest == from || fault->after < 0) return 0;
    }
    if (rest < end && *rest == '@') {
        const char *from = rest + 1;
        *device = (int)strtol(from, &rest, 10);
        if (rest == from || *device < 0) return 0;
    }
    if (rest != end) return 0;
    for (size_t i = 0; i < sizeof standin_words / sizeof *standin_words; i++)
        if (strlen(standin_words[i]) == *word_length && strncmp(standin_words[i], at, *word_length) == 0) return 1;
    return 0;
}

/* Whether this is to fail on this device (-1: on any), and how. wrong: set to the first element that cannot be read. */
static inline int standin_asked(const char *word, int device, struct standin_fault *fault, const char **wrong) {
    const char *list = getenv("STANDIN_FAULT");
    int found = 0;
    *fault = (struct standin_fault){0, 0};
    while (list && *list) {
        size_t length = strcspn(list, ","), word_length;
        const char *name;
        struct standin_fault one = {0, 0};
        int of;
        if (!standin_element(list, length, &name, &word_length, &one, &of)) {
            if (wrong && !*wrong) *wrong = list;
        } else if (!found && strlen(word) == word_length && strncmp(word, name, word_length) == 0 && (of < 0 || device < 0 || of == device)) {
            *fault = one;
            found = 1;
        }
        list += length + (list[length] == ',');
    }
    return found;
}

/* The status that a library's function is to answer; 0 where it is to work. */
static inline int standin_status(const char *word) {
    struct standin_fault fault;
    return standin_asked(word, -1, &fault, NULL) ? (int)fault.value : 0;
}
