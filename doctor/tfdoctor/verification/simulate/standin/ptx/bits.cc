/* Moves, selections and bits. */
#include "ops.h"

namespace ptx {
namespace {

enum Op : u8 { MOV, B_AND, B_OR, B_XOR, NOT, CNOT, SHL, SHR, POPC, CLZ, BREV, BFIND, SHIFTAMT, FNS };

template <u8 op> void unary(Context &c, const Instruction &i, u32 mask) {
    int bytes = size_of(i.type), width = bytes * 8;
    map1(c, i, mask, [&](u64 raw) -> u64 {
        u64 a = low(raw, bytes);
        switch (op) {
        case MOV: return a;
        case NOT: return i.type == PRED ? !(a & 1) : low(~a, bytes);
        case CNOT: return !a;
        case POPC: return u64(__builtin_popcountll(a));
        case CLZ: return a ? u64(__builtin_clzll(a) - (64 - width)) : u64(width);
        case BREV: {
            u64 r = 0;
            for (int n = 0; n < width; n++) r |= (a >> n & 1) << (width - 1 - n);
            return r;
        }
        default: { /* bfind: the highest bit that is not a sign's */
            if (is_signed(i.type) && (a >> (width - 1) & 1)) a = low(~a, bytes);
            if (!a) return ALL;
            u64 at = 63 - u64(__builtin_clzll(a));
            return op == SHIFTAMT ? u64(width) - 1 - at : at;
        }
        }
    });
}

template <u8 op> void binary(Context &c, const Instruction &i, u32 mask) {
    int bytes = size_of(i.type);
    u64 width = u64(bytes) * 8;
    map2(c, i, mask, [&](u64 a, u64 b) -> u64 {
        switch (op) {
        case B_AND: return low(a & b, bytes);
        case B_OR: return low(a | b, bytes);
        case B_XOR: return low(a ^ b, bytes);
        case SHL: {
            u64 n = u32(b);
            return n >= width ? 0 : low(a << n, bytes);
        }
        default: {
            u64 n = u32(b);
            if (is_signed(i.type)) return low(u64(i64(extend(a, bytes)) >> (n > 63 ? 63 : n)), bytes);
            return n >= width ? 0 : low(a, bytes) >> n;
        }
        }
    });
}

/* mov between a register and the registers of its parts */
void pack(Context &c, const Instruction &i, u32 mask) {
    const std::vector<Operand> &parts = i.o[1].parts;
    int bytes = size_of(i.type) / int(parts.size());
    u64 sum[LANES] = {};
    for (size_t n = 0; n < parts.size(); n++) {
        const u64 *a = c.in(parts[n], 0);
        each(mask, [&](int l) { sum[l] |= low(a[l], bytes) << (int(n) * bytes * 8); });
    }
    u64 *d = c.out(i.o[0]);
    each(mask, [&](int l) { d[l] = sum[l]; });
}
void unpack(Context &c, const Instruction &i, u32 mask) {
    const std::vector<Operand> &parts = i.o[0].parts;
    int bytes = size_of(i.type) / int(parts.size());
    u64 whole[LANES];
    const u64 *a = c.in(i.o[1], 0);
    each(mask, [&](int l) { whole[l] = a[l]; });
    for (size_t n = 0; n < parts.size(); n++) {
        u64 *d = c.out(parts[n]);
        each(mask, [&](int l) { d[l] = low(whole[l] >> (int(n) * bytes * 8), bytes); });
    }
}

void select(Context &c, const Instruction &i, u32 mask) {
    int bytes = size_of(i.type);
    map3(c, i, mask, [&](u64 a, u64 b, u64 p) { return low(p & 1 ? a : b, bytes); });
}
void select_by_sign(Context &c, const Instruction &i, u32 mask) { /* slct */
    int bytes = size_of(i.type);
    map3(c, i, mask, [&](u64 a, u64 b, u64 x) {
        bool first;
        if (i.from == F32) {
            float f = as<float>(x);
            first = f >= 0 || (i.ftz && f > -1.17549435e-38f); /* a NaN selects b */
        } else {
            first = int32_t(x) >= 0;
        }
        return low(first ? a : b, bytes);
    });
}

void extract(Context &c, const Instruction &i, u32 mask) { /* bfe */
    int bytes = size_of(i.type), width = bytes * 8;
    map3(c, i, mask, [&](u64 raw, u64 from, u64 count) -> u64 {
        u64 a = low(raw, bytes);
        int at = int(from & 255), n = int(count & 255);
        bool sign = is_signed(i.type) && n && (a >> std::min(at + n - 1, width - 1) & 1);
        u64 r = at < width ? a >> at : 0;
        int got = std::min(n, std::max(width - at, 0));
        u64 field = got >= 64 ? ~u64(0) : (u64(1) << got) - 1;
        return low((r & field) | (sign ? ~field : 0), bytes);
    });
}
void insert(Context &c, const Instruction &i, u32 mask) { /* bfi a into b */
    int bytes = size_of(i.type);
    const u64 *a = c.in(i.o[1], 0), *b = c.in(i.o[2], 1), *from = c.in(i.o[3], 2), *count = c.in(i.o[4], 3);
    u64 *d = c.out(i.o[0]);
    each(mask, [&](int l) {
        u64 at = from[l] & 255, n = count[l] & 255;
        u64 field = n >= 64 ? ~u64(0) : (u64(1) << n) - 1;
        field = at >= 64 ? 0 : field << at;
        d[l] = low((b[l] & ~field) | (at >= 64 ? 0 : (a[l] << at) & field), bytes);
    });
}
void field_mask(Context &c, const Instruction &i, u32 mask) { /* bmsk: count bits from a place on */
    map2(c, i, mask, [&](u64 at, u64 n) -> u64 {
        at = u32(at), n = u32(n);
        if (i.sub) at &= 31, n &= 31; /* .wrap */
        if (at >= 32) return 0;
        return low((n >= 32 ? u64(ALL) : (u64(1) << n) - 1) << at, 4);
    });
}
void extend_sign(Context &c, const Instruction &i, u32 mask) { /* szext */
    map2(c, i, mask, [&](u64 a, u64 b) -> u64 {
        u64 n = u32(b);
        if (i.sub) n &= 31;
        if (!n) return 0;
        if (n >= 32) return low(a, 4);
        u64 field = (u64(1) << n) - 1;
        bool sign = is_signed(i.type) && (a >> (n - 1) & 1);
        return low((a & field) | (sign ? ~field : 0), 4);
    });
}

enum Permute : u8 { BYTES, F4E, B4E, RC8, ECL, ECR, RC16 };
void permute(Context &c, const Instruction &i, u32 mask) { /* prmt */
    map3(c, i, mask, [&](u64 a, u64 b, u64 choice) {
        u64 both = low(a, 4) | low(b, 4) << 32, r = 0;
        u32 s = choice & 3;
        for (u32 n = 0; n < 4; n++) {
            u32 from = 0;
            bool sign = false;
            switch (i.sub) {
            case BYTES:
                from = choice >> (4 * n) & 7;
                sign = choice >> (4 * n) & 8;
                break;
            case F4E: from = s + n; break;
            case B4E: from = (s + 8 - n) & 7; break;
            case RC8: from = s; break;
            case ECL: from = std::max(s, n); break;
            case ECR: from = std::min(s, n); break;
            default: from = (s & 1) * 2 + (n & 1); break;
            }
            u64 byte = both >> (8 * from) & 255;
            if (sign) byte = byte & 128 ? 255 : 0;
            r |= byte << (8 * n);
        }
        return r;
    });
}

void funnel(Context &c, const Instruction &i, u32 mask) { /* shf: 1 right, 2 clamp */
    map3(c, i, mask, [&](u64 a, u64 b, u64 count) {
        u64 both = low(a, 4) | low(b, 4) << 32;
        u32 n = i.sub & 2 ? std::min(u32(count), 32u) : u32(count) & 31;
        if (i.sub & 1) return low(both >> n, 4);
        return low((both << n) >> 32, 4);
    });
}

u64 looked_up(u64 a, u64 b, u64 e, u64 table) {
    u64 r = 0;
    for (int n = 0; n < 8; n++)
        if (table >> n & 1) r |= (n & 4 ? a : ~a) & (n & 2 ? b : ~b) & (n & 1 ? e : ~e);
    return low(r, 4);
}
void logic3(Context &c, const Instruction &i, u32 mask) { /* lop3.b32 d, a, b, c, table; with .and and .or also d|p and q */
    const u64 *table = c.in(i.o[4], 3), *q = i.o.size() > 5 ? c.in(i.o[5], 4) : nullptr;
    map3(c, i, mask, [&](u64 a, u64 b, u64 e) { return looked_up(a, b, e, table[0]); });
    if (i.logic == NO_LOGIC) return;
    u64 *d = c.out(i.o[0]), *p = c.warp->registers + i.o[0].second * LANES;
    each(mask, [&](int l) { p[l] = i.logic == AND ? (d[l] != 0) & q[l] : (d[l] != 0) | q[l]; });
}

/* fns: the offset-th set bit from a place on; all ones where there is none */
void find_nth(Context &c, const Instruction &i, u32 mask) {
    map3(c, i, mask, [&](u64 a, u64 base, u64 offset) -> u64 {
        u32 at = u32(base) & 31;
        int32_t n = int32_t(offset);
        if (n == 0) return a >> at & 1 ? at : ALL;
        int step = n > 0 ? 1 : -1;
        n = n > 0 ? n : -n;
        for (int bit = int(at); bit >= 0 && bit < 32; bit += step)
            if ((a >> bit & 1) && --n == 0) return u64(bit);
        return ALL;
    });
}

Run wanting(const Instruction &i, size_t operands, Run run) {
    if (i.o.size() != operands) throw Unsupported{"so many operands"};
    return run;
}

} // namespace

Run choose_bits(Spec &s, Instruction &i) {
    static const std::map<std::string_view, Run> unaries = {{"not", unary<NOT>}, {"cnot", unary<CNOT>}, {"popc", unary<POPC>}, {"clz", unary<CLZ>}, {"brev", unary<BREV>}};
    static const std::map<std::string_view, Run> binaries = {{"and", binary<B_AND>}, {"or", binary<B_OR>}, {"xor", binary<B_XOR>}, {"shl", binary<SHL>}, {"shr", binary<SHR>}};
    std::string_view name = s.name;
    if (name == "mov") {
        i.type = s.type();
        if (i.type == NONE || i.type == B128) throw Unsupported{"a mov of that type"};
        wanting(i, 2, nullptr);
        return i.o[0].kind == Operand::VECTOR ? unpack : i.o[1].kind == Operand::VECTOR ? pack : unary<MOV>;
    }
    if (name == "shf") {
        i.sub = u8((s.take_one({"l", "r"}) == 1 ? 1 : 0) | (s.take_one({"wrap", "clamp"}) == 1 ? 2 : 0));
        i.type = s.type();
        return wanting(i, 4, funnel);
    }
    if (name == "bfind") {
        bool amount = s.take("shiftamt");
        i.type = s.type();
        return wanting(i, 2, amount ? unary<SHIFTAMT> : unary<BFIND>);
    }
    if (name == "prmt") {
        i.type = s.type();
        i.sub = u8(s.take_one({"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"}) + 1);
        return wanting(i, 4, permute);
    }
    if (name == "lop3") {
        int logic = s.take_one({"and", "or"});
        i.logic = logic == 0 ? AND : logic == 1 ? OR : NO_LOGIC;
        i.type = s.type();
        return wanting(i, i.logic ? 6 : 5, logic3);
    }
    if (name == "bmsk" || name == "szext") {
        i.sub = u8(s.take_one({"clamp", "wrap"}) == 1);
        i.type = s.type();
        return wanting(i, 3, name == "bmsk" ? field_mask : extend_sign);
    }
    if (name == "slct") {
        i.ftz = s.take("ftz");
        i.type = s.type();
        i.from = s.type();
        return wanting(i, 4, select_by_sign);
    }
    Run run = nullptr;
    size_t operands = 0;
    if (auto found = unaries.find(name); found != unaries.end()) run = found->second, operands = 2;
    if (auto found = binaries.find(name); found != binaries.end()) run = found->second, operands = 3;
    if (name == "selp") run = select, operands = 4;
    if (name == "bfe") run = extract, operands = 4;
    if (name == "bfi") run = insert, operands = 5;
    if (name == "fns") run = find_nth, operands = 4;
    if (!run) return nullptr;
    i.type = s.type();
    if (i.type == NONE || i.type == B128) return nullptr;
    return wanting(i, operands, run);
}

} // namespace ptx
