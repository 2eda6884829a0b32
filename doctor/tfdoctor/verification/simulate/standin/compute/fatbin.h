/* What a driver decides by before it takes PTX: machine code in a fat binary, and how new PTX may be. The format is
 * NVIDIA's own (ptx/image.cc); lengths are checked against the container. */
#pragma once
#include <stdint.h>
#include <string.h>

/* Whether a fat binary has machine code that a card of this capability (86: 8.6) runs: of its major number, none newer. */
static inline int machine_code(const void *image, int capability) {
    const unsigned char *p = image, *inner;
    uint32_t magic, header, arch;
    uint16_t first, kind;
    uint64_t bytes, payload;
    memcpy(&magic, p, 4);
    if (magic == 0x466243b1 || magic == 0x466243b2) {
        memcpy(&inner, p + 8, sizeof inner);
        p = inner;
        memcpy(&magic, p, 4);
    }
    if (magic != 0xba55ed50) return 0;
    memcpy(&first, p + 6, 2);
    memcpy(&bytes, p + 8, 8);
    const unsigned char *entry = p + first, *end = entry + bytes;
    while (end - entry >= 64) {
        memcpy(&kind, entry, 2);
        memcpy(&header, entry + 4, 4);
        memcpy(&payload, entry + 8, 8);
        memcpy(&arch, entry + 28, 4);
        if (header < 64 || header > (uint64_t)(end - entry) || payload > (uint64_t)(end - entry) - header) break;
        if (kind == 2 && (int)arch / 10 == capability / 10 && (int)arch <= capability) return 1;
        entry += header + payload;
    }
    return 0;
}

/* The newest PTX that a driver's compiler reads, 85 for 8.5. cuda: as cuDriverGetVersion has it, 12050. */
static inline int newest_ptx(int cuda) {
    static const struct { int cuda, ptx; } known[] = {{9000, 60}, {9010, 61}, {9020, 62}, {10000, 63}, {10010, 64}, {10020, 65}, {11000, 70}, {11010, 71}, {11020, 72},
        {11030, 73}, {11040, 74}, {11050, 75}, {11060, 76}, {11070, 77}, {11080, 78}, {12000, 80}, {12010, 81}, {12020, 82}, {12030, 83}, {12040, 84}, {12050, 85},
        {12060, 85}, {12070, 86}, {12080, 87}, {12090, 88}, {13000, 90}};
    int newest = 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].cuda <= cuda) newest = known[i].ptx;
    return newest;
}
