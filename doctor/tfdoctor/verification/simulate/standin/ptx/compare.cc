/* setp and set. */
#include "numbers.h"

namespace ptx {
namespace {

template <class T> bool compared(Compare how, T a, T b) {
    bool unordered = a != a || b != b;
    switch (how) {
    case EQ: return a == b;
    case NE: return !unordered && a != b;
    case LT: return a < b;
    case LE: return a <= b;
    case GT: return a > b;
    case GE: return a >= b;
    case EQU: return unordered || a == b;
    case NEU: return unordered || a != b;
    case LTU: return unordered || a < b;
    case LEU: return unordered || a <= b;
    case GTU: return unordered || a > b;
    case GEU: return unordered || a >= b;
    case NUM: return !unordered;
    default: return unordered;
    }
}

bool combined(Logic logic, bool a, bool b) { return logic == NO_LOGIC ? a : logic == AND ? a && b : logic == OR ? a || b : a != b; }

bool holds(const Instruction &i, Type type, u64 a, u64 b) {
    switch (type) {
    case U8: return compared(i.compare, u8(a), u8(b));
    case U16: return compared(i.compare, u16(a), u16(b));
    case U32: return compared(i.compare, u32(a), u32(b));
    case U64: return compared(i.compare, a, b);
    case S8: return compared(i.compare, int8_t(a), int8_t(b));
    case S16: return compared(i.compare, int16_t(a), int16_t(b));
    case S32: return compared(i.compare, int32_t(a), int32_t(b));
    case S64: return compared(i.compare, i64(a), i64(b));
    case F32: return compared(i.compare, N32::get(a, i.ftz), N32::get(b, i.ftz));
    case F64: return compared(i.compare, as<double>(a), as<double>(b));
    case F16: return compared(i.compare, NHalf::get(a, i.ftz), NHalf::get(b, i.ftz));
    default: return compared(i.compare, NBfloat::get(a, i.ftz), NBfloat::get(b, i.ftz));
    }
}

/* setp p|q, a, b, c: p has the comparison, q its opposite; of pairs, p has the lower half's and q the higher one's */
void set_predicate(Context &c, const Instruction &i, u32 mask) {
    const u64 *a = c.in(i.o[1], 0), *b = c.in(i.o[2], 1), *with = i.logic ? c.in(i.o[3], 2) : nullptr;
    u64 *p = c.out(i.o[0]), *q = i.o[0].second >= 0 ? c.warp->registers + i.o[0].second * LANES : c.scratch[3];
    bool pairs = i.type == F16X2 || i.type == BF16X2;
    Type type = i.type == F16X2 ? F16 : i.type == BF16X2 ? BF16 : i.type;
    each(mask, [&](int l) {
        bool old = with && (with[l] & 1), first = holds(i, type, a[l], b[l]);
        bool second = pairs ? holds(i, type, a[l] >> 16, b[l] >> 16) : !first;
        p[l] = combined(i.logic, first, old);
        q[l] = combined(i.logic, second, old);
    });
}

void set_value(Context &c, const Instruction &i, u32 mask) {
    const u64 *a = c.in(i.o[1], 0), *b = c.in(i.o[2], 1), *with = i.logic ? c.in(i.o[3], 2) : nullptr;
    u64 *d = c.out(i.o[0]);
    bool pairs = i.from == F16X2 || i.from == BF16X2;
    Type type = i.from == F16X2 ? F16 : i.from == BF16X2 ? BF16 : i.from;
    auto yes = [&](Type of) -> u64 { return of == F32 ? 0x3f800000 : of == F16 ? 0x3c00 : of == BF16 ? 0x3f80 : low(~u64(0), size_of(of)); };
    Type half = i.type == F16X2 ? F16 : i.type == BF16X2 ? BF16 : U16;
    each(mask, [&](int l) {
        bool old = with && (with[l] & 1), first = combined(i.logic, holds(i, type, a[l], b[l]), old);
        if (!pairs) {
            d[l] = first ? yes(i.type) : 0;
            return;
        }
        bool second = combined(i.logic, holds(i, type, a[l] >> 16, b[l] >> 16), old);
        d[l] = (first ? yes(half) : 0) | (second ? yes(half) : 0) << 16;
    });
}

} // namespace

Run choose_compare(Spec &s, Instruction &i) {
    if (s.name != "setp" && s.name != "set") return nullptr;
    int logic = s.take_one({"and", "or", "xor"});
    i.logic = Logic(logic + 1);
    i.ftz = s.take("ftz");
    int unsigned_compare = s.take_one({"lo", "ls", "hi", "hs"});
    if (unsigned_compare >= 0) {
        i.compare = std::array{LT, LE, GT, GE}[size_t(unsigned_compare)];
    } else {
        int compare = s.take_one({"eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"});
        if (compare < 0) throw Unsupported{"a comparison of that name"};
        i.compare = Compare(compare);
    }
    i.type = s.type();
    Type compared = i.type;
    if (s.name == "set") {
        i.from = compared = s.type();
        bool fits = i.type == U32 || i.type == S32 || i.type == F32 || i.type == U16 || i.type == F16 || i.type == BF16 || i.type == F16X2 || i.type == BF16X2;
        if (!fits) return nullptr;
    }
    if (compared == NONE || compared == PRED || compared == TF32 || compared > BF16X2) return nullptr;
    if (i.o.size() != (i.logic ? 4u : 3u)) throw Unsupported{"so many operands"};
    return s.name == "setp" ? set_predicate : set_value;
}

} // namespace ptx
