/* What the lanes of a warp do together. The scheduler has brought them here: `mask` has all that take part. */
#include "ops.h"

namespace ptx {
namespace {

enum Shuffle : u8 { S_UP, S_DOWN, S_BFLY, S_IDX };
enum Vote : u8 { V_ALL, V_ANY, V_UNI, V_BALLOT };

/* shfl d|p, a, b, c: p is whether the lane to read from lies in this one's segment; where not, it reads its own.
 * The value of a lane that does not take part is undefined on a card; here it is what its register holds. */
void shuffle(Context &c, const Instruction &i, u32 mask) {
    u64 values[LANES];
    memcpy(values, c.in(i.o[1], 0), sizeof values);
    const u64 *b = c.in(i.o[2], 1), *clamps = c.in(i.o[3], 2);
    u64 *d = c.out(i.o[0]), *p = i.o[0].second >= 0 ? c.warp->registers + i.o[0].second * LANES : c.scratch[3];
    each(mask, [&](int l) {
        int lane = int(b[l] & 31), clamp = int(clamps[l] & 31), segment = int(clamps[l] >> 8 & 31), from;
        int most = (l & segment) | (clamp & ~segment), least = l & segment;
        bool inside;
        switch (i.sub) {
        case S_UP:
            from = l - lane;
            inside = from >= most;
            break;
        case S_DOWN:
            from = l + lane;
            inside = from <= most;
            break;
        case S_BFLY:
            from = l ^ lane;
            inside = from <= most;
            break;
        default:
            from = least | (lane & ~segment);
            inside = from <= most;
        }
        d[l] = low(values[inside ? from : l], 4);
        p[l] = inside;
    });
}

void vote(Context &c, const Instruction &i, u32 mask) {
    const u64 *a = c.in(i.o[1], 0);
    u32 yes = 0;
    each(mask, [&](int l) { yes |= u32(a[l] & 1) << l; });
    u64 result = i.sub == V_ALL ? yes == mask : i.sub == V_ANY ? yes != 0 : i.sub == V_UNI ? yes == mask || !yes : yes;
    u64 *d = c.out(i.o[0]);
    each(mask, [&](int l) { d[l] = result; });
}

void active(Context &c, const Instruction &i, u32 mask) {
    u64 *d = c.out(i.o[0]);
    each(mask, [&](int l) { d[l] = mask; });
}

void match(Context &c, const Instruction &i, u32 mask) { /* sub: all */
    u64 values[LANES];
    const u64 *a = c.in(i.o[1], 0);
    each(mask, [&](int l) { values[l] = low(a[l], size_of(i.type)); });
    u64 *d = c.out(i.o[0]), *p = i.o[0].second >= 0 ? c.warp->registers + i.o[0].second * LANES : c.scratch[3];
    each(mask, [&](int l) {
        u32 same = 0;
        each(mask, [&](int other) { same |= u32(values[other] == values[l]) << other; });
        d[l] = i.sub ? (same == mask ? mask : 0) : same;
        p[l] = same == mask;
    });
}

void reduce(Context &c, const Instruction &i, u32 mask) { /* redux */
    const u64 *a = c.in(i.o[1], 0);
    bool first = true;
    u32 sum = 0;
    each(mask, [&](int l) {
        u32 v = u32(a[l]);
        if (first) sum = v;
        else switch (i.sub) {
            case A_ADD: sum += v; break;
            case A_MIN: sum = i.type == S32 ? u32(std::min(int32_t(sum), int32_t(v))) : std::min(sum, v); break;
            case A_MAX: sum = i.type == S32 ? u32(std::max(int32_t(sum), int32_t(v))) : std::max(sum, v); break;
            case A_AND: sum &= v; break;
            case A_OR: sum |= v; break;
            default: sum ^= v;
            }
        first = false;
    });
    u64 *d = c.out(i.o[0]);
    each(mask, [&](int l) { d[l] = sum; });
}

void elect(Context &c, const Instruction &i, u32 mask) { /* elect.sync d|p, members: the lowest lane */
    u64 *d = c.out(i.o[0]), *p = i.o[0].second >= 0 ? c.warp->registers + i.o[0].second * LANES : c.scratch[3];
    int leader = __builtin_ctz(mask);
    each(mask, [&](int l) {
        d[l] = u64(leader);
        p[l] = l == leader;
    });
}

void nothing(Context &, const Instruction &, u32) {}
void trap(Context &, const Instruction &, u32) { throw Fault{719, "a trap"}; }

/* Which operand has the members of the operation: a card of before Volta took those that were there. */
Run together(Spec &s, Instruction &i, size_t operands, Run run) {
    i.flow = WARP;
    bool sync = s.take("sync");
    i.arguments = sync ? int(operands) : -1;
    if (i.o.size() != operands + sync) throw Unsupported{"so many operands"};
    return run;
}

/* bar.sync a (, threads), bar.red.popc d, a (, threads), p, bar.arrive a, threads, and barrier, its other name */
Run barrier(Spec &s, Instruction &i) {
    s.take("cta");
    s.take("aligned");
    i.flow = BARRIER;
    i.sub = s.take("arrive");
    if (s.take("red")) {
        int op = s.take_one({"popc", "and", "or"});
        i.sub = u8(2 + op);
        i.type = s.type();
        if (op < 0 || i.o.size() < 3) throw Unsupported{"such a reduction"};
        return nothing;
    }
    if (!i.sub && !s.take("sync")) throw Unsupported{"such a barrier"};
    if (i.o.empty() || i.o.size() > 2) throw Unsupported{"so many operands"};
    return nothing;
}

} // namespace

Run choose_warp(Spec &s, Instruction &i) {
    std::string_view name = s.name;
    if (name == "shfl") {
        int kind = s.take_one({"up", "down", "bfly", "idx"});
        Run run = together(s, i, 4, shuffle);
        i.type = s.type();
        i.sub = u8(kind);
        return kind < 0 ? nullptr : run;
    }
    if (name == "vote") {
        int kind = s.take_one({"all", "any", "uni", "ballot"});
        Run run = together(s, i, 2, vote);
        i.type = s.type();
        i.sub = u8(kind);
        return kind < 0 ? nullptr : run;
    }
    if (name == "activemask") {
        i.type = s.type();
        return together(s, i, 1, active);
    }
    if (name == "match") {
        int kind = s.take_one({"any", "all"});
        Run run = together(s, i, 2, match);
        i.type = s.type();
        i.sub = u8(kind);
        return kind < 0 ? nullptr : run;
    }
    if (name == "redux") {
        int op = s.take_one({"add", "min", "max", "and", "or", "xor"});
        Run run = together(s, i, 2, reduce);
        i.type = s.type();
        i.sub = u8(op);
        if (op < 0 || (i.type != U32 && i.type != S32)) throw Unsupported{"such a reduction"};
        return run;
    }
    if (name == "trap" || name == "brkpt") return trap;
    if (name == "elect") return together(s, i, 1, elect);
    if ((name == "bar" || name == "barrier") && s.take("warp")) return together(s, i, 0, nothing);
    if (name == "bar" || name == "barrier") return barrier(s, i);
    return nullptr;
}

} // namespace ptx
