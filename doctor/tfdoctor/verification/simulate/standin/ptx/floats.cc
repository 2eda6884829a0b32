/* Arithmetic on numbers with a point. The .approx instructions give the nearest number, which lies within the
 * error that a card may make. Built without contraction: a * b + c is two roundings here. */
#include "numbers.h"

namespace ptx {
namespace {

template <class N> u64 finish(const Instruction &i, typename N::C x) {
    if (i.sat) x = x > 0 ? x < 1 ? x : 1 : 0; /* a NaN becomes 0 */
    if (i.relu && x < 0) x = 0;
    return N::put(x, i.ftz);
}

template <class N> struct Add {
    static auto run(const Instruction &, typename N::C a, typename N::C b) { return N::add(a, b); }
};
template <class N> struct Sub {
    static auto run(const Instruction &, typename N::C a, typename N::C b) { return N::add(a, -b); }
};
template <class N> struct Mul {
    static auto run(const Instruction &, typename N::C a, typename N::C b) { return a * b; }
};
template <class N> struct Div {
    static typename N::C run(const Instruction &i, typename N::C a, typename N::C b) {
        typename N::C size = std::fabs(b);
        if (i.approx && size > 8.507059e37f && !std::isinf(size)) return a != a || std::isinf(a) ? typename N::C(NAN) : std::copysign(typename N::C(0), a) * (b < 0 ? -1 : 1);
        return a / b;
    }
};
/* min and max: the other one where one is no number, and -0 < +0 */
template <class N, bool larger> typename N::C extreme(const Instruction &i, typename N::C a, typename N::C b) {
    using C = typename N::C;
    if (i.sub) { /* .xorsign.abs */
        C m = extreme<N, larger>(Instruction(), std::fabs(a), std::fabs(b));
        return std::signbit(a) != std::signbit(b) ? -m : m;
    }
    if (a != a || b != b) return i.nan || (a != a && b != b) ? C(NAN) : a != a ? b : a;
    if (a == b) return std::signbit(a) == larger ? b : a;
    return (a < b) != larger ? a : b;
}
template <class N> struct Min {
    static auto run(const Instruction &i, typename N::C a, typename N::C b) { return extreme<N, false>(i, a, b); }
};
template <class N> struct Max {
    static auto run(const Instruction &i, typename N::C a, typename N::C b) { return extreme<N, true>(i, a, b); }
};
template <class N> struct Copysign { /* the sign of the first, the rest of the second */
    static auto run(const Instruction &, typename N::C a, typename N::C b) { return std::copysign(b, a); }
};

template <class N> struct Sqrt {
    static auto run(const Instruction &, typename N::C a) { return std::sqrt(a); }
};
template <class N> struct Rcp {
    static auto run(const Instruction &, typename N::C a) { return 1 / a; }
};
/* The functions are computed with doubles, so that a float of them is the nearest one. */
template <double (*f)(double)> struct Function {
    template <class N> struct Of {
        static auto run(const Instruction &, typename N::C a) { return typename N::C(f(double(a))); }
    };
};
double inverse_root(double a) { return 1 / std::sqrt(a); }
double exp2_of(double a) { return std::exp2(a); }
double log2_of(double a) { return std::log2(a); }
double sin_of(double a) { return std::sin(a); }
double cos_of(double a) { return std::cos(a); }
double tanh_of(double a) { return std::tanh(a); }

template <template <class> class Op, class N> u64 one(const Instruction &i, u64 a) { return finish<N>(i, Op<N>::run(i, N::get(a, i.ftz))); }
template <template <class> class Op, class N> u64 one(const Instruction &i, u64 a, u64 b) {
    return finish<N>(i, Op<N>::run(i, N::get(a, i.ftz), N::get(b, i.ftz)));
}
template <template <class> class Op, class N> void unary(Context &c, const Instruction &i, u32 mask) {
    map1(c, i, mask, [&](u64 a) { return one<Op, N>(i, a); });
}
template <template <class> class Op, class N> void unary_pairs(Context &c, const Instruction &i, u32 mask) {
    map1(c, i, mask, [&](u64 a) { return one<Op, N>(i, a) | one<Op, N>(i, a >> 16) << 16; });
}
template <template <class> class Op, class N> void binary(Context &c, const Instruction &i, u32 mask) {
    map2(c, i, mask, [&](u64 a, u64 b) { return one<Op, N>(i, a, b); });
}
template <template <class> class Op, class N> void binary_pairs(Context &c, const Instruction &i, u32 mask) {
    map2(c, i, mask, [&](u64 a, u64 b) { return one<Op, N>(i, a, b) | one<Op, N>(i, a >> 16, b >> 16) << 16; });
}
template <class N> u64 fused(const Instruction &i, u64 a, u64 b, u64 e) {
    return finish<N>(i, N::fma(N::get(a, i.ftz), N::get(b, i.ftz), N::get(e, i.ftz)));
}
template <class N> void ternary(Context &c, const Instruction &i, u32 mask) {
    map3(c, i, mask, [&](u64 a, u64 b, u64 e) { return fused<N>(i, a, b, e); });
}
template <class N> void ternary_pairs(Context &c, const Instruction &i, u32 mask) {
    map3(c, i, mask, [&](u64 a, u64 b, u64 e) { return fused<N>(i, a, b, e) | fused<N>(i, a >> 16, b >> 16, e >> 16) << 16; });
}
/* min and max of three */
template <class N, bool larger> void of_three(Context &c, const Instruction &i, u32 mask) {
    map3(c, i, mask, [&](u64 a, u64 b, u64 e) {
        auto m = extreme<N, larger>(i, N::get(a, i.ftz), N::get(b, i.ftz));
        return finish<N>(i, extreme<N, larger>(i, m, N::get(e, i.ftz)));
    });
}

/* abs and neg only touch the sign: a NaN keeps its digits */
enum Sign : u8 { ABS, NEG };
void sign(Context &c, const Instruction &i, u32 mask) {
    u64 signs = i.type == F64 ? u64(1) << 63 : i.type == F32 ? u64(1) << 31 : i.type == F16X2 || i.type == BF16X2 ? 0x80008000 : 0x8000;
    map1(c, i, mask, [&](u64 a) {
        if (i.ftz && i.type == F32) a = bits(flush(as<float>(a)));
        if (i.ftz && (i.type == F16 || i.type == F16X2)) a = NHalf::flushed(low(a, 2), true) | NHalf::flushed(low(a >> 16, 2), true) << 16;
        return low(i.sub == ABS ? a & ~signs : a ^ signs, size_of(i.type));
    });
}

/* Only the higher half of such a result means anything, and cards clear the lower one */
template <double (*f)(double)> void gross(Context &c, const Instruction &i, u32 mask) {
    map1(c, i, mask, [&](u64 a) {
        double x = as<double>(a), y = std::fabs(x) < 2.2250738585072014e-308 ? std::copysign(0.0, x) : x;
        double r = f(y);
        if (std::fabs(r) < 2.2250738585072014e-308) r = std::copysign(0.0, r);
        return bits(r) & ~u64(ALL);
    });
}
double inverse(double a) { return 1 / a; }

enum Test : u8 { FINITE, INFINITE, NUMBER, NOTANUMBER, NORMAL, SUBNORMAL };
void test(Context &c, const Instruction &i, u32 mask) {
    map1(c, i, mask, [&](u64 a) -> u64 {
        int kind = i.type == F32 ? std::fpclassify(as<float>(a)) : std::fpclassify(as<double>(a));
        switch (i.sub) {
        case FINITE: return kind != FP_NAN && kind != FP_INFINITE;
        case INFINITE: return kind == FP_INFINITE;
        case NUMBER: return kind != FP_NAN;
        case NOTANUMBER: return kind == FP_NAN;
        case NORMAL: return kind == FP_NORMAL || kind == FP_ZERO;
        default: return kind == FP_SUBNORMAL;
        }
    });
}

template <template <class> class Op> Run unary_of(Type type) {
    switch (type) {
    case F32: return unary<Op, N32>;
    case F64: return unary<Op, N64>;
    case F16: return unary<Op, NHalf>;
    case BF16: return unary<Op, NBfloat>;
    case F16X2: return unary_pairs<Op, NHalf>;
    case BF16X2: return unary_pairs<Op, NBfloat>;
    default: return nullptr;
    }
}
template <template <class> class Op> Run binary_of(Type type) {
    switch (type) {
    case F32: return binary<Op, N32>;
    case F64: return binary<Op, N64>;
    case F16: return binary<Op, NHalf>;
    case BF16: return binary<Op, NBfloat>;
    case F16X2: return binary_pairs<Op, NHalf>;
    case BF16X2: return binary_pairs<Op, NBfloat>;
    default: return nullptr;
    }
}
Run ternary_of(Type type) {
    switch (type) {
    case F32: return ternary<N32>;
    case F64: return ternary<N64>;
    case F16: return ternary<NHalf>;
    case BF16: return ternary<NBfloat>;
    case F16X2: return ternary_pairs<NHalf>;
    case BF16X2: return ternary_pairs<NBfloat>;
    default: return nullptr;
    }
}

Run of_name(std::string_view name, Spec &s, Instruction &i) {
    Type t = i.type;
    bool wide = t == F32 || t == F64;
    if (name == "add") return binary_of<Add>(t);
    if (name == "sub") return binary_of<Sub>(t);
    if (name == "mul") return binary_of<Mul>(t);
    if (name == "fma" || name == "mad") return ternary_of(t);
    if (name == "min") return i.o.size() == 4 ? (t == F32 ? of_three<N32, false> : nullptr) : binary_of<Min>(t);
    if (name == "max") return i.o.size() == 4 ? (t == F32 ? of_three<N32, true> : nullptr) : binary_of<Max>(t);
    if (name == "copysign") return wide ? binary_of<Copysign>(t) : nullptr;
    if (name == "abs" || name == "neg") {
        i.sub = name == "abs" ? ABS : NEG;
        return sign;
    }
    if (name == "testp") {
        int kind = s.take_one({"finite", "infinite", "number", "notanumber", "normal", "subnormal"});
        i.sub = u8(kind);
        return kind >= 0 && wide ? test : nullptr;
    }
    if (name == "tanh") return t == F64 ? nullptr : unary_of<Function<tanh_of>::Of>(t);
    if (name == "ex2") return t == F64 ? nullptr : unary_of<Function<exp2_of>::Of>(t);
    if (!wide) return nullptr;
    if (name == "div") return binary_of<Div>(t);
    if (name == "sqrt") return unary_of<Sqrt>(t);
    if (name == "rcp") return t == F64 && i.approx ? gross<inverse> : unary_of<Rcp>(t);
    if (name == "rsqrt") return t == F64 ? (i.ftz ? gross<inverse_root> : unary_of<Function<inverse_root>::Of>(t)) : unary_of<Function<inverse_root>::Of>(t);
    if (t == F64) return nullptr;
    if (name == "lg2") return unary_of<Function<log2_of>::Of>(t);
    if (name == "sin") return unary_of<Function<sin_of>::Of>(t);
    if (name == "cos") return unary_of<Function<cos_of>::Of>(t);
    return nullptr;
}

} // namespace

Run choose_float(Spec &s, Instruction &i) {
    static const std::map<std::string_view, size_t> operands = {
        {"add", 3}, {"sub", 3}, {"mul", 3}, {"div", 3}, {"min", 3}, {"max", 3}, {"copysign", 3}, {"fma", 4}, {"mad", 4}, {"abs", 2}, {"neg", 2},
        {"testp", 2}, {"sqrt", 2}, {"rcp", 2}, {"rsqrt", 2}, {"ex2", 2}, {"lg2", 2}, {"sin", 2}, {"cos", 2}, {"tanh", 2}};
    std::string_view name = s.name;
    auto known = operands.find(name);
    if (known == operands.end()) return nullptr;
    bool extreme = name == "min" || name == "max";
    if (i.o.size() != known->second && !(extreme && i.o.size() == 4)) throw Unsupported{"so many operands"};
    i.type = s.type();
    bool narrow = i.type != F32 && i.type != F64;
    int rounding = s.take_one({"rn", "rz", "rm", "rp"});
    if (narrow && rounding > 0) throw Unsupported{"a rounding of that type"};
    i.rounding = Rounding(std::max(rounding, 0));
    i.ftz = s.take("ftz");
    if (name == "add" || name == "sub" || name == "mul" || name == "fma" || name == "mad") i.sat = s.take("sat");
    if (name == "fma") i.relu = s.take("relu");
    if (extreme) {
        i.nan = s.take("NaN");
        if (s.take("xorsign")) i.sub = s.take("abs");
    }
    if (name == "div" || name == "rcp" || name == "sqrt" || name == "rsqrt" || name == "ex2" || name == "lg2" || name == "sin" || name == "cos" || name == "tanh") {
        i.approx = s.take("approx");
        if (name == "div") s.take("full"); /* nearer than it must be */
        if (name == "div" && i.type == F64) i.approx = false;
    }
    return of_name(name, s, i);
}

} // namespace ptx
