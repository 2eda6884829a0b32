/* Loads, stores, atomics and addresses. */
#include "numbers.h"

namespace ptx {

char *Context::place(Space space, u64 address, size_t bytes, int lane) const {
    auto within = [&](char *start, size_t size) {
        if (address > size || bytes > size - address) throw Fault{700, "an address outside its space"};
        return start + address;
    };
    switch (space) {
    case SHARED: return within(shared, shared_bytes);
    case LOCAL: return within(local_of(lane), program->local_bytes);
    case PARAM:
        if (address & IN_LOCAL) {
            address &= ~IN_LOCAL;
            return within(local_of(lane), program->local_bytes);
        }
        return within(const_cast<char *>(parameters), program->parameter_bytes);
    default:
        if (address < 4096) throw Fault{700, "a null address"};
        return reinterpret_cast<char *>(address);
    }
}

namespace {

/* What follows .global, .shared::cta ...; generic where nothing does. */
Space space_of(Spec &s) {
    static const std::pair<const char *, Space> names[] = {{"global", GLOBAL}, {"shared", SHARED}, {"shared::cta", SHARED}, {"local", LOCAL}, {"param", PARAM},
                                                           {"param::entry", PARAM}, {"param::func", PARAM}, {"const", CONST}};
    for (auto [name, space] : names)
        if (s.take(name)) return space;
    return GENERIC;
}

/* Caches and orders between threads: here every thread sees each store at once. */
void take_hints(Spec &s) {
    for (const char *hint : {"weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "mmio", "cta", "cluster", "gpu", "sys", "ca", "cg", "cs", "lu", "cv", "wb", "wt",
                             "nc", "unified", "L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last", "L1::no_allocate", "L2::evict_last",
                             "L2::evict_normal", "L2::evict_first", "L2::64B", "L2::128B", "L2::256B"})
        s.take(hint);
}

/* [base+offset]: an address in a register of 32 bits stays one, as where offset -2 is 0xfffffffe. */
u64 address_of(const Operand &o, u64 base) { return low(base + u64(o.offset), o.width); }

bool has_space(const Instruction &i) { return i.space != GENERIC; }

void load(Context &c, const Instruction &i, u32 mask) {
    const Operand &a = i.o[1];
    size_t bytes = size_t(size_of(i.type));
    u64 addresses[LANES];
    const u64 *base = c.in(a, 0);
    each(mask, [&](int l) { addresses[l] = address_of(a, base[l]); });
    size_t whole = bytes * size_t(i.vector);
    for (int n = 0; n < i.vector; n++) {
        const Operand &to = i.o[0].kind == Operand::VECTOR ? i.o[0].parts[size_t(n)] : i.o[0];
        u64 *d = c.out(to);
        each(mask, [&](int l) {
            u64 v = 0;
            memcpy(&v, c.place(i.space, addresses[l], whole, l) + size_t(n) * bytes, bytes);
            d[l] = is_signed(i.type) ? low(extend(v, int(bytes)), to.width) : v;
        });
    }
}

void store(Context &c, const Instruction &i, u32 mask) {
    const Operand &a = i.o[0];
    size_t bytes = size_t(size_of(i.type)), whole = bytes * size_t(i.vector);
    const u64 *base = c.in(a, 0);
    for (int n = 0; n < i.vector; n++) {
        const Operand &from = i.o[1].kind == Operand::VECTOR ? i.o[1].parts[size_t(n)] : i.o[1];
        const u64 *v = c.in(from, 1);
        each(mask, [&](int l) { memcpy(c.place(i.space, address_of(a, base[l]), whole, l) + size_t(n) * bytes, &v[l], bytes); });
    }
}

template <class T> u64 changed(Atomic op, u64 old, u64 a, u64 b) {
    T x = T(old), y = T(a);
    switch (op) {
    case A_ADD: return bits(T(std::make_unsigned_t<T>(x) + std::make_unsigned_t<T>(y)));
    case A_MIN: return bits(std::min(x, y));
    case A_MAX: return bits(std::max(x, y));
    case A_AND: return old & a;
    case A_OR: return old | a;
    case A_XOR: return old ^ a;
    case A_EXCH: return a;
    case A_CAS: return bits(x) == bits(y) ? b : old;
    case A_INC: return u32(old) >= u32(a) ? 0 : u32(old) + 1;
    default: return u32(old) == 0 || u32(old) > u32(a) ? u32(a) : u32(old) - 1;
    }
}
template <class N> u64 changed_number(Atomic op, u64 old, u64 a, bool ftz) {
    auto x = N::get(old, ftz), y = N::get(a, ftz);
    if (op == A_ADD) return N::put(N::add(x, y), ftz);
    if (x != x) return a;
    return y == y && (op == A_MIN ? y < x : y > x) ? a : old;
}
u64 update(Type type, Atomic op, u64 old, u64 a, u64 b) {
    bool number = op == A_ADD || op == A_MIN || op == A_MAX;
    switch (type) {
    case S32: return changed<int32_t>(op, old, a, b);
    case S64: return changed<i64>(op, old, a, b);
    case U16: return changed<u16>(op, old, a, b);
    case U32: return changed<u32>(op, old, a, b);
    case U64: return changed<u64>(op, old, a, b);
    case F32: return number ? changed_number<N32>(op, old, a, false) : changed<u32>(op, old, a, b);
    case F64: return number ? changed_number<N64>(op, old, a, false) : changed<u64>(op, old, a, b);
    case F16: return changed_number<NHalf>(op, old, a, false);
    case BF16: return changed_number<NBfloat>(op, old, a, false);
    case F16X2: return changed_number<NHalf>(op, low(old, 2), low(a, 2), false) | changed_number<NHalf>(op, old >> 16, a >> 16, false) << 16;
    default: return changed_number<NBfloat>(op, low(old, 2), low(a, 2), false) | changed_number<NBfloat>(op, old >> 16, a >> 16, false) << 16;
    }
}

/* atom d, [a], b (, c) and red [a], b: lane after lane */
void atomic(Context &c, const Instruction &i, u32 mask) {
    size_t at = i.arguments ? 0 : 1; /* red has no result */
    const Operand &a = i.o[at];
    size_t bytes = size_t(size_of(i.type));
    const u64 *base = c.in(a, 0), *third = i.o.size() > at + 2 ? c.in(i.o[at + 2], 2) : c.scratch[5];
    u64 addresses[LANES];
    each(mask, [&](int l) { addresses[l] = address_of(a, base[l]); });
    for (int n = 0; n < i.vector; n++) {
        auto part = [&](const Operand &o) -> const Operand & { return o.kind == Operand::VECTOR ? o.parts[size_t(n)] : o; };
        const u64 *b = c.in(part(i.o[at + 1]), 1);
        u64 *d = at ? c.out(part(i.o[0])) : nullptr;
        each(mask, [&](int l) {
            u64 address = addresses[l] + u64(n) * bytes;
            char *p = c.place(i.space, address, bytes, l);
            if (reinterpret_cast<u64>(p) % bytes) throw Fault{716, "an atomic at an address that is not a multiple of its size"};
            u64 old = 0;
            memcpy(&old, p, bytes);
            u64 now = update(i.type, Atomic(i.sub), old, b[l], third[l]);
            memcpy(p, &now, bytes);
            if (d) d[l] = old;
        });
    }
}

Run choose_atomic(Spec &s, Instruction &i) {
    bool red = s.name == "red";
    i.space = space_of(s);
    take_hints(s);
    s.take("noftz");
    int op = s.take_one({"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"});
    int vector = s.take_one({"v2", "v4", "v8"});
    if (vector >= 0) i.vector = 2 << vector;
    i.type = s.type();
    if (op < 0) throw Unsupported{"that atomic"};
    i.sub = u8(op);
    i.arguments = red;
    bool narrow = i.type == F16 || i.type == BF16 || i.type == F16X2 || i.type == BF16X2;
    if (narrow && op > A_MAX) return nullptr;
    if (i.type == U16 && op != A_CAS && op != A_EXCH) return nullptr;
    if ((op == A_INC || op == A_DEC) && i.type != U32) return nullptr;
    if (!narrow && i.type != U16 && i.type != U32 && i.type != U64 && i.type != S32 && i.type != S64 && i.type != F32 && i.type != F64) return nullptr;
    size_t operands = (red ? 2 : 3) + (op == A_CAS);
    if (i.o.size() != operands || !i.o[red ? 0 : 1].memory) throw Unsupported{"such operands"};
    return atomic;
}

/* Between a space's addresses and generic ones */
template <bool to> void address(Context &c, const Instruction &i, u32 mask) {
    int lane_bytes = size_of(i.type);
    const u64 *a = c.in(i.o[1], 0);
    u64 *d = c.out(i.o[0]);
    each(mask, [&](int l) {
        u64 value = a[l], start = 0;
        switch (i.space) {
        case SHARED: start = reinterpret_cast<u64>(c.shared); break;
        case LOCAL: start = reinterpret_cast<u64>(c.local_of(l)); break;
        case PARAM:
            if (value & IN_LOCAL) {
                start = reinterpret_cast<u64>(c.local_of(l));
                value &= ~IN_LOCAL;
            } else {
                start = reinterpret_cast<u64>(c.parameters);
            }
            break;
        default: break;
        }
        d[l] = low(to ? value - start : value + start, lane_bytes);
    });
}
void is_space(Context &c, const Instruction &i, u32 mask) {
    auto in = [](u64 a, const char *start, size_t size) { return a >= reinterpret_cast<u64>(start) && a < reinterpret_cast<u64>(start) + size; };
    const u64 *a = c.in(i.o[1], 0);
    u64 *d = c.out(i.o[0]);
    each(mask, [&](int l) {
        bool shared = in(a[l], c.shared, c.shared_bytes), local = in(a[l], c.local_of(l), c.program->local_bytes);
        bool param = in(a[l], c.parameters, c.program->parameter_bytes);
        d[l] = i.space == SHARED ? shared : i.space == LOCAL ? local : i.space == PARAM ? param : !shared && !local && !param;
    });
}

/* cp.async [shared], [global], bytes (, how many of them are read; the rest is 0): done at once */
void copy(Context &c, const Instruction &i, u32 mask) {
    const u64 *to = c.in(i.o[0], 0), *from = c.in(i.o[1], 1), *bytes = c.in(i.o[2], 2), *some = i.o.size() > 3 ? c.in(i.o[3], 3) : bytes;
    each(mask, [&](int l) {
        size_t n = u32(bytes[l]), got = std::min(n, size_t(u32(some[l])));
        char *d = c.place(SHARED, address_of(i.o[0], to[l]), n, l);
        memset(d, 0, n);
        if (got) memcpy(d, c.place(GLOBAL, address_of(i.o[1], from[l]), got, l), got);
    });
}

void nothing(Context &, const Instruction &, u32) {}

Run choose_transfer(Spec &s, Instruction &i) {
    size_t memory = s.name == "st" ? 0 : 1;
    i.space = space_of(s);
    take_hints(s);
    int vector = s.take_one({"v2", "v4", "v8"});
    if (vector >= 0) i.vector = 2 << vector;
    i.type = s.type();
    if (i.type == NONE || i.type == B128 || i.o.size() != 2 || !i.o[memory].memory) throw Unsupported{"such operands"};
    const Operand &value = i.o[1 - memory];
    if (value.kind == Operand::VECTOR ? value.parts.size() != size_t(i.vector) : i.vector != 1) throw Unsupported{"such operands"};
    return memory ? load : store;
}

} // namespace

Run choose_memory(Spec &s, Instruction &i) {
    std::string_view name = s.name;
    if (name == "ld" || name == "ldu" || name == "st") return choose_transfer(s, i);
    if (name == "atom" || name == "red") return choose_atomic(s, i);
    if (name == "cvta" || name == "isspacep") {
        bool to = name == "cvta" && s.take("to");
        i.space = space_of(s);
        i.type = name == "cvta" ? s.type() : PRED;
        if (!has_space(i) || i.o.size() != 2) throw Unsupported{"such a space"};
        return name == "isspacep" ? is_space : to ? address<true> : address<false>;
    }
    if (name == "cp") {
        if (!s.take("async")) return nullptr;
        if (s.take("commit_group") || s.take("wait_group") || s.take("wait_all")) return nothing;
        if (!s.take("shared") && !s.take("shared::cta")) return nullptr;
        if (!s.take("global")) return nullptr;
        take_hints(s);
        if (i.o.size() < 3 || i.o.size() > 4 || !i.o[0].memory || !i.o[1].memory || (i.o.size() == 4 && i.o[3].width == 1)) return nullptr;
        i.type = U32;
        return copy;
    }
    static const char *const without_effect[] = {"membar", "fence", "nanosleep", "prefetch", "prefetchu", "griddepcontrol", "discard", "applypriority", "pmevent", "setmaxnreg"};
    for (const char *known : without_effect)
        if (name == known) {
            s.left.clear();
            return nothing;
        }
    return nullptr;
}

} // namespace ptx
