/* cvt. */
#include "numbers.h"

#include <limits>

namespace ptx {
namespace {

/* A whole number out of one with a point: clamped to what the type holds. */
u64 to_integer(double x, bool from_double, Type to) {
    int bytes = size_of(to), width = bytes * 8;
    if (x != x) return from_double || bytes == 8 ? u64(1) << (width - 1) : 0;
    double least = is_signed(to) ? -std::ldexp(1.0, width - 1) : 0, limit = std::ldexp(1.0, is_signed(to) ? width - 1 : width);
    if (x <= least) return low(u64(i64(least)), bytes);
    if (x >= limit) return is_signed(to) ? (u64(1) << (width - 1)) - 1 : low(~u64(0), bytes);
    return low(is_signed(to) ? u64(i64(x)) : u64(x), bytes);
}

double whole(double x, Rounding mode) {
    switch (mode) {
    case ZERO: return std::trunc(x);
    case DOWN: return std::floor(x);
    case UP: return std::ceil(x);
    default: { /* to the nearest, of two the even one; the host's own rounding may be another just now */
        double below = std::floor(x), rest = x - below;
        if (rest == 0 || !std::isfinite(x)) return x;
        double r = rest > 0.5 || (rest == 0.5 && std::fmod(below, 2) != 0) ? below + 1 : below;
        return std::copysign(r, x);
    }
    }
}

/* An integer as a double, rounded to odd: then the next rounding is right. */
double from_integer(u64 value, Type from) {
    bool minus = is_signed(from) && i64(value) < 0;
    u64 size = minus ? -value : value;
    int shift = std::max(0, 10 - (size ? __builtin_clzll(size) : 64));
    u64 kept = size >> shift;
    if (shift && (size & ((u64(1) << shift) - 1))) kept |= 1;
    double x = std::ldexp(double(kept), shift);
    return minus ? -x : x;
}

u64 rounded(const Instruction &i, double x, Type to) {
    switch (to) {
    case F64: return bits(x);
    case F32: return N32::put(float(x), i.ftz);
    case F16: return to_16(x, HALF, i.rounding, i.nan);
    default: return to_16(x, BFLOAT, i.rounding, i.nan);
    }
}

double limited(const Instruction &i, double x) {
    if (i.sat) return x > 0 ? x < 1 ? x : 1 : 0;
    return i.relu && x < 0 ? 0 : x;
}

u64 from_float(const Instruction &i, u64 raw) {
    double x = number_of(raw, i.from);
    if (i.ftz && i.from == F32) x = flush(float(x));
    if (!is_float(i.type)) return to_integer(whole(x, i.rounding), i.from == F64, i.type);
    if (i.integral) x = whole(x, i.rounding);
    if (i.type == i.from && x != x && !i.sat) return i.type == F32 ? 0x7fffffff : i.type == F64 ? raw : 0x7fff;
    return rounded(i, limited(i, x), i.type);
}

u64 from_whole(const Instruction &i, u64 raw) {
    u64 value = is_signed(i.from) ? extend(raw, size_of(i.from)) : low(raw, size_of(i.from));
    if (i.type == F32) return bits(is_signed(i.from) ? float(i64(value)) : float(value));
    if (i.type == F64) return bits(is_signed(i.from) ? double(i64(value)) : double(value));
    if (is_float(i.type)) return rounded(i, from_integer(value, i.from), i.type);
    if (!i.sat) return value;
    int width = size_of(i.type) * 8;
    if (is_signed(i.from)) {
        i64 least = is_signed(i.type) ? i64(~u64(0) << (width - 1)) : 0, v = i64(value);
        if (v < least) return u64(least);
        if (is_signed(i.type) || width < 64) {
            u64 most = is_signed(i.type) ? (u64(1) << (width - 1)) - 1 : (u64(1) << width) - 1;
            return v > 0 && u64(v) > most ? most : value;
        }
        return value;
    }
    u64 most = is_signed(i.type) ? (u64(1) << (width - 1)) - 1 : low(~u64(0), width / 8);
    return std::min(value, most);
}

void convert(Context &c, const Instruction &i, u32 mask) {
    int bytes = size_of(i.type), width = i.o[0].width;
    bool to_float = is_float(i.type), whole = !is_float(i.from);
    map1(c, i, mask, [&](u64 a) {
        u64 r = whole ? from_whole(i, a) : from_float(i, a);
        /* A register that is wider than the result is filled with its sign */
        return is_signed(i.type) && !to_float ? low(extend(r, bytes), width) : low(r, bytes);
    });
}

/* Two floats to a pair: the first one goes into the higher half */
void to_pair(Context &c, const Instruction &i, u32 mask) {
    auto half = [&](u64 a) -> u64 {
        double x = limited(i, N32::get(a, i.ftz));
        switch (i.type) {
        case F16X2: return to_16(x, HALF, i.rounding, i.nan);
        case BF16X2: return to_16(x, BFLOAT, i.rounding, i.nan);
        case E4M3X2: return to_8(x, E4M3, i.rounding, i.nan);
        default: return to_8(x, E5M2, i.rounding, i.nan);
        }
    };
    int shift = size_of(i.type) * 4;
    map2(c, i, mask, [&](u64 a, u64 b) { return half(a) << shift | half(b); });
}
/* Between pairs of 16 and of 8 bits */
void pair_to_pair(Context &c, const Instruction &i, u32 mask) {
    map1(c, i, mask, [&](u64 a) -> u64 {
        const Format &small = i.type == E4M3X2 || i.from == E4M3X2 ? E4M3 : E5M2;
        if (i.type == F16X2) return to_16(limited(i, from_8(a, small)), HALF) | to_16(limited(i, from_8(a >> 8, small)), HALF) << 16;
        return to_8(limited(i, from_16(a, HALF)), small, NEAREST, true) | to_8(limited(i, from_16(a >> 16, HALF)), small, NEAREST, true) << 8;
    });
}
void to_tensor_float(Context &c, const Instruction &i, u32 mask) {
    map1(c, i, mask, [&](u64 a) {
        double x = limited(i, as<float>(a));
        if (x != x) return u64(0x7fffffff);
        return (u64(magnitude(x, TENSOR, i.rounding, i.nan)) | u64(std::signbit(x)) << 18) << 13;
    });
}

} // namespace

Run choose_convert(Spec &s, Instruction &i) {
    if (s.name != "cvt") return nullptr;
    int rounding = s.take_one({"rn", "rz", "rm", "rp", "rna"}), integral = s.take_one({"rni", "rzi", "rmi", "rpi"});
    i.integral = integral >= 0;
    i.rounding = Rounding(std::max(0, std::max(rounding, integral)));
    i.ftz = s.take("ftz");
    i.sat = s.take("sat");
    i.relu = s.take("relu");
    i.nan = s.take("satfinite"); /* here: no infinity */
    i.type = s.type();
    i.from = s.type();
    if (i.type == NONE || i.from == NONE || i.from == PRED || i.type == PRED || i.type == B128 || i.from == B128) return nullptr;
    bool pair = size_of(i.type) >= 2 && (i.type >= F16X2);
    if (i.type == TF32) return i.from == F32 && i.o.size() == 2 ? to_tensor_float : nullptr;
    if (pair && i.from == F32 && i.type != U16X2 && i.type != S16X2) return i.o.size() == 3 ? to_pair : nullptr;
    bool small = i.type == E4M3X2 || i.type == E5M2X2, from_small = i.from == E4M3X2 || i.from == E5M2X2;
    if ((small && i.from == F16X2) || (from_small && i.type == F16X2)) return i.o.size() == 2 ? pair_to_pair : nullptr;
    if (pair || i.from >= F16X2 || i.from == TF32 || i.o.size() != 2) return nullptr;
    if (is_float(i.from) && !is_float(i.type) && !i.integral) throw Unsupported{"a cvt without its rounding"};
    return convert;
}

} // namespace ptx
