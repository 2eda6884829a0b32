/* Arithmetic on whole numbers. Division by zero gives all ones, a remainder by zero the dividend, as cards do. */
#include "ops.h"

#include <limits>

namespace ptx {
namespace {

template <class T> using Unsigned = std::make_unsigned_t<T>;
template <class T> constexpr int BITS = int(sizeof(T) * 8);
template <class T> constexpr bool SIGNED = std::is_signed_v<T>;
__extension__ using Wide = __int128;
__extension__ using WideUnsigned = unsigned __int128;
template <class T> using Product = std::conditional_t<SIGNED<T>, Wide, WideUnsigned>;

enum Half : u8 { LOW, HIGH, WIDE };

template <class T> T saturated(Product<T> value) {
    constexpr T least = std::numeric_limits<T>::min(), most = std::numeric_limits<T>::max();
    return value < Product<T>(least) ? least : value > Product<T>(most) ? most : T(value);
}
/* The part of a product that the instruction keeps, before the 64 bits of a register cut it. */
template <class T> u64 part(Product<T> product, u8 half) {
    if (half == HIGH) return u64(product >> BITS<T>);
    return u64(product);
}
template <class T> u64 kept(u64 value, u8 half) { return low(value, half == WIDE ? int(sizeof(T)) * 2 : int(sizeof(T))); }
template <class T> T low24(T v) {
    u32 u = u32(v) & 0xffffff;
    return SIGNED<T> && (u & 0x800000) ? T(u | 0xff000000) : T(u);
}

/* Each: the instruction, and the values of its operands. */
template <class T> struct Add {
    static T run(const Instruction &i, T a, T b) { return i.sat ? saturated<T>(Product<T>(a) + b) : T(Unsigned<T>(a) + Unsigned<T>(b)); }
};
template <class T> struct Sub {
    static T run(const Instruction &i, T a, T b) { return i.sat ? saturated<T>(Product<T>(a) - b) : T(Unsigned<T>(a) - Unsigned<T>(b)); }
};
template <class T> struct Div {
    static T run(const Instruction &, T a, T b) {
        if (!b) return T(-1);
        return SIGNED<T> && b == T(-1) ? T(-Unsigned<T>(a)) : T(a / b);
    }
};
template <class T> struct Rem {
    static T run(const Instruction &, T a, T b) {
        if (!b) return a;
        return SIGNED<T> && b == T(-1) ? T(0) : T(a % b);
    }
};
template <class T> struct Min {
    static T run(const Instruction &i, T a, T b) { return i.relu ? std::max(T(0), std::min(a, b)) : std::min(a, b); }
};
template <class T> struct Max {
    static T run(const Instruction &i, T a, T b) { return i.relu ? std::max(T(0), std::max(a, b)) : std::max(a, b); }
};
template <class T> struct Abs {
    static T run(const Instruction &, T a) { return a < T(0) ? T(-Unsigned<T>(a)) : a; }
};
template <class T> struct Neg {
    static T run(const Instruction &, T a) { return T(-Unsigned<T>(a)); }
};

template <template <class> class Op, class T> void unary(Context &c, const Instruction &i, u32 mask) {
    map1(c, i, mask, [&](u64 a) { return bits(Op<T>::run(i, T(a))); });
}
template <template <class> class Op, class T> void binary(Context &c, const Instruction &i, u32 mask) {
    map2(c, i, mask, [&](u64 a, u64 b) { return bits(Op<T>::run(i, T(a), T(b))); });
}
template <template <class> class Op, class T> void pairs(Context &c, const Instruction &i, u32 mask) {
    map2(c, i, mask, [&](u64 a, u64 b) {
        return bits(Op<T>::run(i, T(a), T(b))) | bits(Op<T>::run(i, T(a >> 16), T(b >> 16))) << 16;
    });
}
template <class T> void multiply(Context &c, const Instruction &i, u32 mask) {
    map2(c, i, mask, [&](u64 a, u64 b) { return kept<T>(part<T>(Product<T>(T(a)) * T(b), i.sub), i.sub); });
}
template <class T> void multiply24(Context &c, const Instruction &i, u32 mask) {
    map2(c, i, mask, [&](u64 a, u64 b) { return low(u64((Product<T>(low24(T(a))) * low24(T(b))) >> (i.sub == HIGH ? 16 : 0)), 4); });
}
template <class T> void multiply24_add(Context &c, const Instruction &i, u32 mask) {
    map3(c, i, mask, [&](u64 a, u64 b, u64 e) {
        u64 product = low(u64((Product<T>(low24(T(a))) * low24(T(b))) >> (i.sub == HIGH ? 16 : 0)), 4);
        if (i.sat) return bits(saturated<T>(Product<T>(T(product)) + T(e)));
        return low(product + e, 4);
    });
}
template <class T> void multiply_add(Context &c, const Instruction &i, u32 mask) {
    map3(c, i, mask, [&](u64 a, u64 b, u64 e) {
        u64 product = part<T>(Product<T>(T(a)) * T(b), i.sub);
        if (i.sat) return bits(saturated<T>(Product<T>(T(product)) + T(e)));
        return kept<T>(product + e, i.sub);
    });
}
template <class T> void difference(Context &c, const Instruction &i, u32 mask) { /* sad */
    map3(c, i, mask, [&](u64 a, u64 b, u64 e) {
        T x = T(a), y = T(b);
        return low(u64(x > y ? Unsigned<T>(x) - Unsigned<T>(y) : Unsigned<T>(y) - Unsigned<T>(x)) + e, int(sizeof(T)));
    });
}

/* add.cc and its kin: numbers of many words, with the carry of the lane between them. */
enum Chain : u8 { CHAIN_ADD, CHAIN_SUB, CHAIN_MAD };
template <class T> void carry(Context &c, const Instruction &i, u32 mask) {
    using U = Unsigned<T>;
    const u64 *a = c.in(i.o[1], 0), *b = c.in(i.o[2], 1), *e = i.vector == CHAIN_MAD ? c.in(i.o[3], 2) : nullptr;
    u64 *d = c.out(i.o[0]);
    each(mask, [&](int l) {
        u8 &flag = c.warp->carry[size_t(l)];
        WideUnsigned x = U(a[l]), y = U(b[l]), before = i.carry_in ? flag : 0, sum;
        if (i.vector == CHAIN_MAD) {
            x = U(part<T>(Product<T>(T(a[l])) * T(b[l]), i.sub));
            y = U(e[l]);
        }
        if (i.vector == CHAIN_SUB) sum = x - y - before;
        else sum = x + y + before;
        d[l] = U(sum);
        if (i.carry_out) flag = (sum >> BITS<T>) & 1;
    });
}

template <class A, class B> void dot4(Context &c, const Instruction &i, u32 mask) {
    map3(c, i, mask, [&](u64 a, u64 b, u64 e) {
        i64 sum = i64(e);
        for (int n = 0; n < 32; n += 8) sum += i64(A(a >> n)) * i64(B(b >> n));
        return low(u64(sum), 4);
    });
}
template <class A, class B> void dot2(Context &c, const Instruction &i, u32 mask) { /* A: 16 bits, B: 8 */
    map3(c, i, mask, [&](u64 a, u64 b, u64 e) {
        int from = i.sub == HIGH ? 16 : 0;
        i64 sum = i64(e);
        for (int n = 0; n < 2; n++) sum += i64(A(a >> n * 16)) * i64(B(b >> (from + n * 8)));
        return low(u64(sum), 4);
    });
}

#define BY_TYPE(name, ...)                                                                                                             \
    switch (i.type) {                                                                                                                  \
    case U8: return name<__VA_ARGS__ u8>;                                                                                              \
    case S8: return name<__VA_ARGS__ int8_t>;                                                                                          \
    case U16: return name<__VA_ARGS__ u16>;                                                                                            \
    case S16: return name<__VA_ARGS__ int16_t>;                                                                                        \
    case U32: return name<__VA_ARGS__ u32>;                                                                                            \
    case S32: return name<__VA_ARGS__ int32_t>;                                                                                        \
    case U64: return name<__VA_ARGS__ u64>;                                                                                            \
    case S64: return name<__VA_ARGS__ i64>;                                                                                            \
    default: return nullptr;                                                                                                           \
    }
#define COMMA ,

Run of_type(std::string_view name, Instruction &i) {
    if (i.type == U16X2 || i.type == S16X2) {
        bool s = i.type == S16X2;
        if (name == "add") return s ? pairs<Add, int16_t> : pairs<Add, u16>;
        if (name == "min") return s ? pairs<Min, int16_t> : pairs<Min, u16>;
        if (name == "max") return s ? pairs<Max, int16_t> : pairs<Max, u16>;
        return nullptr;
    }
    if (i.carry_in || i.carry_out) BY_TYPE(carry, )
    if (name == "add") BY_TYPE(binary, Add COMMA)
    if (name == "sub") BY_TYPE(binary, Sub COMMA)
    if (name == "div") BY_TYPE(binary, Div COMMA)
    if (name == "rem") BY_TYPE(binary, Rem COMMA)
    if (name == "min") BY_TYPE(binary, Min COMMA)
    if (name == "max") BY_TYPE(binary, Max COMMA)
    if (name == "abs") BY_TYPE(unary, Abs COMMA)
    if (name == "neg") BY_TYPE(unary, Neg COMMA)
    if (name == "mul") BY_TYPE(multiply, )
    if (name == "mad") BY_TYPE(multiply_add, )
    if (name == "sad") BY_TYPE(difference, )
    if (name == "mul24") return i.type == S32 ? multiply24<int32_t> : multiply24<u32>;
    if (name == "mad24") return i.type == S32 ? multiply24_add<int32_t> : multiply24_add<u32>;
    return nullptr;
}

} // namespace

Run choose_integer(Spec &s, Instruction &i) {
    static const std::map<std::string_view, size_t> operands = {
        {"add", 3}, {"sub", 3}, {"addc", 3}, {"subc", 3}, {"mul", 3}, {"mul24", 3}, {"div", 3}, {"rem", 3}, {"min", 3}, {"max", 3},
        {"abs", 2}, {"neg", 2}, {"mad", 4}, {"madc", 4}, {"mad24", 4}, {"sad", 4}, {"dp4a", 4}, {"dp2a", 4}};
    auto known = operands.find(s.name);
    if (known == operands.end()) return nullptr;
    for (std::string_view modifier : s.left)
        if (is_float(type_named(modifier))) return nullptr;
    if (i.o.size() != known->second) throw Unsupported{"so many operands"};
    std::string_view name = s.name;
    bool multiplies = name == "mul" || name == "mad" || name == "madc" || name == "mul24" || name == "mad24" || name == "dp2a";
    if (multiplies) {
        int half = s.take_one({"lo", "hi", "wide"});
        if (half < 0) throw Unsupported{"neither .lo nor .hi"};
        i.sub = u8(half);
    }
    i.type = s.type();
    if (name == "dp4a" || name == "dp2a") {
        i.from = s.type();
        bool a = i.type == S32, b = i.from == S32;
        if (name == "dp4a") return a ? b ? dot4<int8_t, int8_t> : dot4<int8_t, u8> : b ? dot4<u8, int8_t> : dot4<u8, u8>;
        return a ? b ? dot2<int16_t, int8_t> : dot2<int16_t, u8> : b ? dot2<u16, int8_t> : dot2<u16, u8>;
    }
    if (name == "add" || name == "sub" || name == "mad" || name == "mad24") i.sat = s.take("sat");
    if (name == "min" || name == "max") i.relu = s.take("relu");
    if (name == "addc" || name == "subc" || name == "madc") i.carry_in = true;
    if (name == "add" || name == "sub" || name == "mad" || i.carry_in) i.carry_out = s.take("cc");
    i.vector = name.substr(0, 3) == "mad" ? CHAIN_MAD : name.substr(0, 3) == "sub" ? CHAIN_SUB : CHAIN_ADD;
    if (i.sub == WIDE && size_of(i.type) > 4) return nullptr;
    return of_type(name, i);
}

} // namespace ptx
