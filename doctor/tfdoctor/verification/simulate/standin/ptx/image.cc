/* Fat binaries: where their PTX is. The format is NVIDIA's own and nowhere documented; these fields were read
 * from what nvcc writes. Every length is checked against the container: an image may be damaged. */
#include "ptx.h"

namespace ptx {
namespace {

template <class T> T at(const u8 *p) {
    T value;
    memcpy(&value, p, sizeof value);
    return value;
}

constexpr size_t MOST = size_t(1) << 30; /* no PTX of a wheel is near a gigabyte */

/* LZ4's block format. Empty where it is damaged. */
std::string lz4(const u8 *p, size_t size, size_t wanted) {
    std::string out;
    if (wanted > MOST) return out;
    out.reserve(wanted);
    const u8 *end = p + size;
    auto length = [&](size_t n) {
        for (u8 more = 255; n >= 15 && more == 255 && p < end;) n += more = *p++;
        return n;
    };
    while (p < end && out.size() < wanted) {
        u8 token = *p++;
        size_t literals = length(token >> 4);
        if (literals > size_t(end - p)) return "";
        out.append(reinterpret_cast<const char *>(p), literals);
        p += literals;
        if (end - p < 2) break; /* the last sequence has no match */
        size_t back = at<u16>(p);
        p += 2;
        size_t match = length(token & 15) + 4;
        if (!back || back > out.size() || match > wanted - out.size()) return "";
        for (; match; match--) out += out[out.size() - back];
    }
    return out.size() == wanted ? out : "";
}

/* Where the image itself is: inside the wrapper that nvcc puts around it, or at once. */
const u8 *unwrapped(const void *image) {
    const u8 *p = static_cast<const u8 *>(image);
    u32 magic = at<u32>(p);
    return magic == 0x466243b1 || magic == 0x466243b2 ? at<const u8 *>(p + 8) : p;
}

constexpr u32 FAT = 0xba55ed50, CUBIN = 0x464c457f;

struct Packed { /* PTX in a fat binary */
    const u8 *data = nullptr; /* none: there is no PTX for such a card */
    bool machine_code = false; /* there is some that such a card runs: of its major number, none newer */
    u32 arch = 0, compressed = 0;
    u64 payload = 0, flags = 0, whole = 0;
};

/* The PTX for the newest architecture that is none newer than the card's. */
Packed best(const u8 *p, int capability) {
    Packed found;
    const u8 *entry = p + at<u16>(p + 6), *end = entry + at<u64>(p + 8);
    while (end - entry >= 64) {
        u16 kind = at<u16>(entry);
        u32 header = at<u32>(entry + 4), arch = at<u32>(entry + 28);
        u64 payload = at<u64>(entry + 8);
        if (header < 64 || header > u64(end - entry) || payload > u64(end - entry) - header) break;
        const u8 *data = entry + header;
        bool runs = arch <= u32(capability);
        found.machine_code |= kind == 2 && runs && arch / 10 == u32(capability) / 10;
        if (kind == 1 && runs && arch >= found.arch)
            found = {data, found.machine_code, arch, at<u32>(entry + 16), payload, at<u64>(entry + 40), at<u64>(entry + 56)};
        entry = data + payload;
    }
    return found;
}

std::string unpacked(const Packed &f) {
    std::string text;
    const char *plain = reinterpret_cast<const char *>(f.data);
    if (f.flags & 0x2000) text = f.compressed <= f.payload ? lz4(f.data, f.compressed, f.whole) : "";
    else if (f.flags & 0x9000) throw Unsupported{"PTX that is compressed in another way than LZ4"};
    else text = std::string(plain, strnlen(plain, f.payload));
    if (text.empty()) throw Unsupported{"a damaged fat binary"};
    return text.substr(0, text.find('\0'));
}

} // namespace

std::string text_of(const void *image, int capability) {
    const u8 *p = unwrapped(image);
    u32 magic = at<u32>(p);
    if (magic == CUBIN) return ""; /* by itself: machine code */
    if (magic != FAT) {
        const char *text = reinterpret_cast<const char *>(p);
        return std::string(text, strnlen(text, MOST));
    }
    Packed found = best(p, capability);
    return found.data ? unpacked(found) : "";
}

bool serves(const void *image, int capability) {
    const u8 *p = unwrapped(image);
    u32 magic = at<u32>(p);
    if (magic != FAT) return magic != CUBIN;
    Packed found = best(p, capability);
    return found.data || found.machine_code;
}

} // namespace ptx
