/* What the files of instructions share: a warp at work, and loops over its lanes. */
#pragma once
#include "ptx.h"

#include <algorithm>

namespace ptx {

struct Warp {
    enum State : u8 { READY, AT_WARP, AT_BARRIER, DONE };
    int first = 0, lanes = 0; /* the number of lane 0's thread, and how many lanes have one */
    u64 *registers = nullptr;
    std::array<int, LANES> pc{};
    std::array<State, LANES> state{};
    std::array<u8, LANES> carry{};
    struct Call {
        int pc;          /* where it was made */
        size_t function; /* which one it is of */
        std::vector<u64> registers = {}; /* of a call before this one of the same function, which goes on after it */
        std::vector<char> memory = {};
    };
    std::array<std::vector<Call>, LANES> calls;
    u32 in(State wanted) const {
        u32 mask = 0;
        for (int l = 0; l < lanes; l++) mask |= u32(state[size_t(l)] == wanted) << l;
        return mask;
    }
    u32 alive() const { return (lanes == LANES ? ALL : (1u << lanes) - 1) & ~in(DONE); }
};

struct Context {
    const Program *program;
    const Grid *grid;
    const char *parameters;
    u32 block[3];
    char *shared = nullptr, *local = nullptr;
    size_t shared_bytes = 0;
    u64 clock = 0;
    Warp *warp = nullptr;
    u64 scratch[6][LANES];

    /* The operand's value in every lane; `slot` is a place for those that must be made first. */
    const u64 *in(const Operand &o, int slot) {
        if (o.kind == Operand::CONSTANT) return o.constant->data();
        if (o.kind == Operand::REGISTER && !o.negated) return warp->registers + o.reg * LANES;
        return made(o, scratch[slot]);
    }
    u64 *out(const Operand &o) {
        if (o.kind == Operand::REGISTER) return warp->registers + o.reg * LANES;
        if (o.kind == Operand::SINK) return warp->registers; /* the first register takes what nobody wants */
        throw Unsupported{"a result in such a place"};
    }
    char *local_of(int lane) const { return local + size_t(warp->first + lane) * program->local_bytes; }
    /* Where an address of this space is in this process; 700 where it lies outside. */
    char *place(Space space, u64 address, size_t bytes, int lane) const;

  private:
    const u64 *made(const Operand &o, u64 *row);
};

/* A mnemonic: its name, and the modifiers that nobody has taken yet. What is left at the end is not known here. */
struct Spec {
    std::string_view name;
    std::vector<std::string_view> left;
    bool take(std::string_view modifier) {
        auto found = std::find(left.begin(), left.end(), modifier);
        if (found == left.end()) return false;
        left.erase(found);
        return true;
    }
    /* Which of these it has: its number from 0; -1 where none. */
    int take_one(std::initializer_list<const char *> modifiers) {
        int n = 0;
        for (const char *modifier : modifiers) {
            if (take(modifier)) return n;
            n++;
        }
        return -1;
    }
    Type type() {
        for (std::string_view modifier : left)
            if (Type found = type_named(modifier)) {
                take(modifier);
                return found;
            }
        return NONE;
    }
};

/* Each takes the modifiers that it knows, fills in the instruction and says what runs it; nullptr where
 * the name or the type is not one of its own. */
Run choose_integer(Spec &, Instruction &); /* integers.cc */
Run choose_bits(Spec &, Instruction &);    /* bits.cc */
Run choose_float(Spec &, Instruction &);   /* floats.cc */
Run choose_compare(Spec &, Instruction &); /* compare.cc */
Run choose_convert(Spec &, Instruction &); /* convert.cc */
Run choose_memory(Spec &, Instruction &);  /* memory.cc */
Run choose_warp(Spec &, Instruction &);    /* warp.cc */

template <class F> inline void each(u32 mask, F f) {
    if (mask == ALL) {
        for (int l = 0; l < LANES; l++) f(l);
    } else {
        for (u32 left = mask; left; left &= left - 1) f(__builtin_ctz(left));
    }
}

template <class F> inline void map1(Context &c, const Instruction &i, u32 mask, F f) {
    const u64 *a = c.in(i.o[1], 0);
    u64 *d = c.out(i.o[0]);
    each(mask, [&](int l) { d[l] = f(a[l]); });
}
template <class F> inline void map2(Context &c, const Instruction &i, u32 mask, F f) {
    const u64 *a = c.in(i.o[1], 0), *b = c.in(i.o[2], 1);
    u64 *d = c.out(i.o[0]);
    each(mask, [&](int l) { d[l] = f(a[l], b[l]); });
}
template <class F> inline void map3(Context &c, const Instruction &i, u32 mask, F f) {
    const u64 *a = c.in(i.o[1], 0), *b = c.in(i.o[2], 1), *e = c.in(i.o[3], 2);
    u64 *d = c.out(i.o[0]);
    each(mask, [&](int l) { d[l] = f(a[l], b[l], e[l]); });
}

template <class T> inline T as(u64 bits) { /* a number of this type from a register */
    if constexpr (std::is_floating_point_v<T>) {
        T value;
        memcpy(&value, &bits, sizeof value);
        return value;
    } else {
        return T(bits);
    }
}
template <class T> inline u64 bits(T value) {
    if constexpr (std::is_same_v<T, float>) {
        u32 b;
        memcpy(&b, &value, 4);
        return b;
    } else if constexpr (std::is_same_v<T, double>) {
        u64 b;
        memcpy(&b, &value, 8);
        return b;
    } else {
        return std::make_unsigned_t<T>(value);
    }
}

} // namespace ptx
