/* Numbers of 8 and 16 bits, which the host does not compute with. They are computed as doubles: a sum or a
 * product that a double cannot hold exactly is rounded to odd, and then rounding it again is still right. */
#pragma once
#include "ops.h"

#include <cmath>

namespace ptx {

struct Format {
    int mantissa, least; /* bits after the point; exponent of the least normal number */
    u32 infinity, nan;   /* infinity's bits; where there is none, the bits after the largest number */
    bool has_infinity;
};
constexpr Format HALF{10, -14, 0x7c00, 0x7fff, true}, BFLOAT{7, -126, 0x7f80, 0x7fff, true}, TENSOR{10, -126, 255 << 10, (255 << 10) + 1023, true};
constexpr Format E4M3{3, -6, 0x7f, 0x7f, false}, E5M2{2, -14, 0x7c, 0x7f, true};

/* The bits, without the sign's place: sign is bit `8 or 16 or 19` of the caller's. */
inline u32 magnitude(double x, const Format &f, Rounding mode, bool finite) {
    bool minus = std::signbit(x);
    double a = std::fabs(x);
    if (x != x) return f.nan;
    u32 result = f.infinity;
    bool exact_infinity = std::isinf(a);
    if (!exact_infinity) {
        int exponent = a == 0 ? f.least : std::max(std::ilogb(a), f.least);
        double scaled = std::ldexp(a, f.mantissa - exponent), whole = std::floor(scaled), rest = scaled - whole;
        u64 q = u64(whole);
        bool up = false;
        switch (mode) {
        case NEAREST: up = rest > 0.5 || (rest == 0.5 && (q & 1)); break;
        case AWAY: up = rest >= 0.5; break;
        case UP: up = rest > 0 && !minus; break;
        case DOWN: up = rest > 0 && minus; break;
        case ZERO: break;
        }
        q += up;
        u64 bits = (u64(exponent - f.least) << f.mantissa) + q;
        if (bits < f.infinity) return u32(bits);
        bool largest = mode == ZERO || (mode == DOWN && !minus) || (mode == UP && minus);
        if (largest || finite) result = f.infinity - 1;
    } else if (finite) {
        result = f.infinity - 1;
    }
    return result;
}
inline double value_of(u32 magnitude, bool minus, const Format &f) {
    double x;
    if (f.has_infinity ? magnitude > f.infinity : magnitude >= f.infinity) x = std::nan("");
    else if (f.has_infinity && magnitude == f.infinity) x = HUGE_VAL;
    else {
        int exponent = int(magnitude >> f.mantissa);
        u32 digits = magnitude & ((1u << f.mantissa) - 1);
        x = std::ldexp(double(exponent ? digits | 1u << f.mantissa : digits), (exponent ? exponent - 1 : 0) + f.least - f.mantissa);
    }
    return minus ? -x : x;
}
inline u64 to_16(double x, const Format &f, Rounding mode = NEAREST, bool finite = false) {
    return magnitude(x, f, mode, finite) | u64(x == x && std::signbit(x)) << 15;
}
inline double from_16(u64 b, const Format &f) { return value_of(u32(b) & 0x7fff, b & 0x8000, f); }
inline u64 to_8(double x, const Format &f, Rounding mode, bool finite) { return magnitude(x, f, mode, finite) | u64(x == x && std::signbit(x)) << 7; }
inline double from_8(u64 b, const Format &f) { return value_of(u32(b) & 0x7f, b & 0x80, f); }

/* a + b rounded to odd. Knuth's sum of two gives what the rounding lost. */
inline double sum_to_odd(double a, double b) {
    double s = a + b, part = s - a, lost = (a - (s - part)) + (b - part);
    if (lost == 0 || !std::isfinite(s)) return s;
    u64 u = bits(s);
    if (u & 1) return s;
    u += (lost > 0) == (s > 0) ? 1 : -1;
    return as<double>(u);
}

inline float flush(float x) { return std::fabs(x) < 1.17549435e-38f ? std::copysign(0.0f, x) : x; }

/* How a type of numbers is computed with. C: the host's type. Reading flushes what .ftz says. */
struct N32 {
    using C = float;
    static C get(u64 u, bool ftz) {
        float x = as<float>(u);
        return ftz ? flush(x) : x;
    }
    static u64 put(C x, bool ftz) {
        if (x != x) return 0x7fffffff; /* the one NaN that cards make */
        return bits(ftz ? flush(x) : x);
    }
    static C add(C a, C b) { return a + b; }
    static C fma(C a, C b, C c) { return std::fma(a, b, c); }
};
struct N64 {
    using C = double;
    static C get(u64 u, bool) { return as<double>(u); }
    static u64 put(C x, bool) { return bits(x); }
    static C add(C a, C b) { return a + b; }
    static C fma(C a, C b, C c) { return std::fma(a, b, c); }
};
template <const Format &F> struct N16 {
    using C = double;
    static u64 flushed(u64 u, bool ftz) { return ftz && !(u & F.infinity) ? u & 0x8000 : u; }
    static C get(u64 u, bool ftz) { return from_16(flushed(low(u, 2), ftz), F); }
    static u64 put(C x, bool ftz) { return flushed(to_16(x, F), ftz); }
    static C add(C a, C b) { return sum_to_odd(a, b); }
    static C fma(C a, C b, C c) { return sum_to_odd(a * b, c); } /* the product is exact */
};
using NHalf = N16<HALF>;
using NBfloat = N16<BFLOAT>;

inline double number_of(u64 u, Type type) {
    switch (type) {
    case F64: return as<double>(u);
    case F16: return from_16(u, HALF);
    case BF16: return from_16(u, BFLOAT);
    default: return as<float>(u);
    }
}

} // namespace ptx
