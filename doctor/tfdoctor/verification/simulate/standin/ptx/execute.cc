/* The scheduler. Blocks run one after the other; the warps of a block in turn, each until all its lanes wait or
 * have ended. In a warp the lanes that are furthest behind go first: so those that parted meet again. */
#include "ops.h"

#include <cfenv>
#include <set>

namespace ptx {

const u64 *Context::made(const Operand &o, u64 *row) {
    if (o.kind == Operand::REGISTER) { /* !p */
        const u64 *p = warp->registers + o.reg * LANES;
        for (int l = 0; l < LANES; l++) row[l] = !(p[l] & 1);
        return row;
    }
    if (o.kind != Operand::SPECIAL) throw Unsupported{"an operand in such a place"};
    for (int l = 0; l < LANES; l++) {
        u32 thread = u32(warp->first + l), x = grid->block[0], y = grid->block[1], bit = 1u << l;
        u64 warps = (u64(x) * y * grid->block[2] + LANES - 1) / LANES;
        switch (o.special) { /* the order is that of specials() in decode.cc */
        case 0: row[l] = thread % x; break;
        case 1: row[l] = thread / x % y; break;
        case 2: row[l] = thread / (x * y); break;
        case 3: case 4: case 5: row[l] = grid->block[o.special - 3]; break;
        case 6: case 7: case 8: row[l] = block[o.special - 6]; break;
        case 9: case 10: case 11: row[l] = grid->grid[o.special - 9]; break;
        case 12: row[l] = u64(l); break;
        case 13: row[l] = u64(warp->first / LANES); break;
        case 14: row[l] = warps; break;
        case 15: row[l] = bit; break;
        case 16: row[l] = bit - 1; break;
        case 17: row[l] = bit | (bit - 1); break;
        case 18: row[l] = u32(~(bit | (bit - 1))); break;
        case 19: row[l] = u32(~(bit - 1)); break;
        case 20: case 29: row[l] = low(clock, 4); break;
        case 21: case 22: row[l] = clock; break;
        case 23: row[l] = grid->shared; break;
        case 24: row[l] = program->shared_bytes + grid->shared; break;
        case 26: case 27: row[l] = 1; break; /* %nsmid, %gridid */
        case 28: row[l] = clock >> 32; break;
        default: row[l] = 0; /* %smid */
        }
    }
    return row;
}

namespace {

constexpr u64 SLICE = 1 << 16;               /* instructions of a warp before the next one has its turn: one may wait for the other */
constexpr u64 MOST_INSTRUCTIONS = u64(1) << 34; /* of a block: one that waits for a block after it never ends */
constexpr int BARRIERS = 16;
constexpr size_t MOST_CALLS = 4096; /* one within the other */

void round_like(Rounding rounding) {
    static const int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD, FE_TONEAREST};
    std::fesetround(modes[rounding]);
}

class Block {
  public:
    Block(Context &context, int threads) : c(context), p(*context.program) {
        size_t warps = size_t(threads + LANES - 1) / LANES, words = size_t(p.registers) * LANES;
        registers_.resize(warps * words);
        warps_.resize(warps);
        for (size_t n = 0; n < warps; n++) {
            warps_[n].first = int(n) * LANES;
            warps_[n].lanes = std::min(LANES, threads - int(n) * LANES);
            warps_[n].registers = registers_.data() + n * words;
        }
    }

    void run() {
        for (Warp &w : warps_) {
            w.pc.fill(0);
            w.state.fill(Warp::READY);
            for (auto &calls : w.calls) calls.clear();
        }
        arrived_.fill(0);
        u64 before = c.clock;
        for (;;) {
            bool moved = false, alive = false;
            for (Warp &w : warps_) {
                if (w.in(Warp::READY)) {
                    moved = true;
                    run(w);
                }
                alive |= w.alive() != 0;
            }
            if (!alive) return;
            moved |= barriers();
            if (!moved) throw stuck();
            if (c.clock - before > MOST_INSTRUCTIONS) throw Unsupported{"a kernel that does not end here (does it wait for another block?)"};
        }
    }

  private:
    Context &c;
    const Program &p;
    std::vector<Warp> warps_;
    std::vector<u64> registers_;
    std::array<int, BARRIERS> arrived_{}; /* by bar.arrive, which does not wait */

    Unsupported stuck() const {
        for (const Warp &w : warps_)
            for (int l = 0; l < w.lanes; l++)
                if (w.state[size_t(l)] == Warp::AT_WARP || w.state[size_t(l)] == Warp::AT_BARRIER)
                    return {"lanes wait for others that never come: " + p.code[size_t(w.pc[size_t(l)])].text};
        return {"lanes wait for ever"};
    }

    u32 guarded(const Warp &w, const Instruction &i, u32 mask) const {
        const u64 *g = w.registers + i.guard * LANES;
        u32 yes = 0;
        for (int l = 0; l < LANES; l++) yes |= u32(g[l] & 1) << l;
        return mask & (i.guard_not ? ~yes : yes);
    }

    /* One warp, until none of its lanes is ready, or its time is over. */
    void run(Warp &w) {
        c.warp = &w;
        u64 end = c.clock + SLICE;
        for (bool fair = false;; fair = c.clock >= end) {
            u32 ready = w.in(Warp::READY);
            if (!ready) {
                if (!parted(w)) return;
                continue;
            }
            if (fair && c.clock > end + SLICE) return;
            /* The group that is furthest behind, up to where the next one stands; now and then the one that is
             * furthest on, for it may hold what the others wait for */
            int pc = w.pc[size_t(__builtin_ctz(ready))], limit = int(p.code.size());
            each(ready, [&](int l) { pc = fair ? std::max(pc, w.pc[size_t(l)]) : std::min(pc, w.pc[size_t(l)]); });
            u32 mask = 0;
            each(ready, [&](int l) {
                int at = w.pc[size_t(l)];
                if (at == pc) mask |= 1u << l;
                else if (at > pc) limit = std::min(limit, at);
            });
            group(w, mask, pc, limit, c.clock + SLICE / 4);
        }
    }

    /* Lanes that stand at the same instruction, until they part, wait, end or come to `limit`. */
    void group(Warp &w, u32 mask, int pc, int limit, u64 end) {
        auto leave = [&](int to, u32 lanes) { each(lanes, [&](int l) { w.pc[size_t(l)] = to; }); };
        while (pc < limit && c.clock < end) {
            const Instruction &i = p.code[size_t(pc)];
            u32 m = i.guard < 0 ? mask : guarded(w, i, mask);
            c.clock++;
            if (i.flow == NEXT) {
                if (m) perform(i, m);
                pc++;
                continue;
            }
            if (!m) {
                pc++;
                continue;
            }
            if (i.flow == BRANCH && m == mask) {
                bool back = i.target <= pc;
                pc = i.target;
                if (back) break; /* others may be behind now */
                continue;
            }
            if (i.flow == WARP && m == mask && at_once(w, i, m)) {
                perform(i, m);
                pc++;
                continue;
            }
            leave(pc + 1, mask & ~m); /* those whose predicate is false go on */
            leave(pc, m);
            part(w, i, m, pc);
            return;
        }
        leave(pc, mask);
    }

    void perform(const Instruction &i, u32 mask) {
        try {
            if (i.rounding == NEAREST) return i.run(c, i, mask);
            round_like(i.rounding);
            i.run(c, i, mask);
            round_like(NEAREST);
        } catch (Unsupported &u) {
            round_like(NEAREST);
            throw Unsupported{i.text + " (" + u.why + ")"};
        } catch (Fault &f) {
            round_like(NEAREST);
            throw Fault{f.code, f.why + ": " + i.text};
        }
    }

    void part(Warp &w, const Instruction &i, u32 m, int pc) {
        auto all = [&](auto f) { each(m, [&](int l) { f(size_t(l)); }); };
        switch (i.flow) {
        case BRANCH: all([&](size_t l) { w.pc[l] = i.target; }); break;
        case TABLE: {
            const u64 *n = c.in(i.o[0], 0);
            all([&](size_t l) {
                if (u32(n[l]) >= i.targets.size()) throw Fault{719, "a branch outside its table: " + i.text};
                w.pc[l] = i.targets[u32(n[l])];
            });
            break;
        }
        case CALL: all([&](size_t l) { call(w, i, int(l), pc); }); break;
        case RETURN: all([&](size_t l) { leave_function(w, int(l)); }); break;
        case EXIT: all([&](size_t l) { w.state[l] = Warp::DONE; }); break;
        case WARP: all([&](size_t l) { w.state[l] = Warp::AT_WARP; }); meet(w, pc); break;
        case BARRIER: arrive(w, i, m, pc); break;
        default: throw Unsupported{i.text};
        }
    }

    /* -- Functions --------------------------------------------------------------------------- */

    /* Where an argument or a result is: outside, with the caller, or inside the function. */
    struct Place {
        char *at;
        size_t size;
    };
    Place outside(const Operand &o, const Formal &f, int lane, bool written) {
        size_t most = f.reg >= 0 ? 8 : f.size;
        if (o.kind == Operand::CONSTANT && (o.value() & IN_LOCAL)) return {c.place(PARAM, o.value(), most, lane), most};
        u64 *row = written ? c.out(o) : const_cast<u64 *>(c.in(o, 0));
        return {reinterpret_cast<char *>(row + lane), std::min(most, size_t(8))};
    }
    char *inside(const Formal &f, int lane) { return f.reg >= 0 ? reinterpret_cast<char *>(c.warp->registers + f.reg * LANES + lane) : c.local_of(lane) + f.address; }

    /* A function has one set of registers and variables: one that calls itself, perhaps by others, finds them as they were. */
    void save(const Frame &f, Warp::Call &call, int lane) {
        for (int r = f.first; r < f.last; r++) call.registers.push_back(c.warp->registers[r * LANES + lane]);
        call.memory.assign(c.local_of(lane) + f.local, c.local_of(lane) + f.local_end);
    }
    void restore(const Frame &f, const Warp::Call &call, int lane) {
        for (size_t n = 0; n < call.registers.size(); n++) c.warp->registers[(f.first + int(n)) * LANES + lane] = call.registers[n];
        std::copy(call.memory.begin(), call.memory.end(), c.local_of(lane) + f.local);
    }

    size_t callee(const Instruction &i, int lane) {
        if (i.target >= 0) return size_t(i.target);
        u64 value = c.in(i.o.back(), 0)[lane];
        if (value < FUNCTIONS || value - FUNCTIONS >= p.functions.size()) throw Fault{718, "a call of what is no function: " + i.text};
        return value - FUNCTIONS;
    }

    void call(Warp &w, const Instruction &i, int lane, int pc) {
        size_t n = callee(i, lane);
        const Linked &f = p.functions[n];
        if (f.start < 0) { /* what the driver itself has */
            if (f.name == "__assertfail") throw Fault{710, "an assertion of the kernel failed"};
            if (f.name != "vprintf") throw Unsupported{i.text + " (the function " + f.name + ")"};
            w.pc[size_t(lane)] = pc + 1; /* what a kernel prints is not shown */
            return;
        }
        if (size_t(i.arguments) != f.arguments.size() || i.o.size() - 1 - size_t(i.arguments) != f.results.size()) throw Unsupported{i.text + " (so many arguments)"};
        auto &calls = w.calls[size_t(lane)];
        Warp::Call made{pc, n};
        if (std::any_of(calls.begin(), calls.end(), [n](const Warp::Call &under_way) { return under_way.function == n; })) {
            if (f.frame.own_memory) throw Unsupported{"recursion of a function with memory of its own: " + i.text};
            if (calls.size() >= MOST_CALLS) throw Unsupported{"recursion that deep: " + i.text};
            save(f.frame, made, lane);
        }
        std::vector<u64> values; /* all of them first: the function's own variables may be among them */
        for (size_t a = 0; a < f.arguments.size(); a++) {
            Place from = outside(i.o[a], f.arguments[a], lane, false);
            values.resize(values.size() + (from.size + 7) / 8);
            memcpy(&values[values.size() - (from.size + 7) / 8], from.at, from.size);
        }
        const u64 *value = values.data();
        for (size_t a = 0; a < f.arguments.size(); a++) {
            size_t size = outside(i.o[a], f.arguments[a], lane, false).size;
            memcpy(inside(f.arguments[a], lane), value, size);
            value += (size + 7) / 8;
        }
        calls.push_back(std::move(made));
        w.pc[size_t(lane)] = f.start;
    }

    void leave_function(Warp &w, int lane) {
        auto &calls = w.calls[size_t(lane)];
        if (calls.empty()) {
            w.state[size_t(lane)] = Warp::DONE;
            return;
        }
        Warp::Call call = std::move(calls.back());
        calls.pop_back();
        const Instruction &i = p.code[size_t(call.pc)];
        const Linked &f = p.functions[call.function];
        std::vector<std::vector<char>> values;
        for (const Formal &r : f.results) values.emplace_back(inside(r, lane), inside(r, lane) + (r.reg >= 0 ? 8 : r.size));
        restore(f.frame, call, lane);
        for (size_t n = 0; n < f.results.size(); n++) {
            Place to = outside(i.o[size_t(i.arguments) + n], f.results[n], lane, true);
            memcpy(to.at, values[n].data(), to.size);
        }
        w.pc[size_t(lane)] = call.pc + 1;
    }

    /* -- Operations of a warp ---------------------------------------------------------------- */

    /* Whether the lanes of `here` are all that the operation is of, so that none has to wait. */
    bool at_once(Warp &w, const Instruction &i, u32 here) {
        if (i.arguments < 0) return true;
        const u64 *members = c.in(i.o[size_t(i.arguments)], 5);
        u32 first = u32(members[__builtin_ctz(here)]);
        bool same = true;
        each(here, [&](int l) { same &= u32(members[l]) == first; });
        return same && (first & w.alive() & ~here) == 0;
    }

    /* Those of `here`, which stand at i, whose members have all come or ended. */
    u32 complete(Warp &w, const Instruction &i, u32 here) {
        if (i.arguments < 0) return here;
        const u64 *members = c.in(i.o[size_t(i.arguments)], 5);
        u32 alive = w.alive(), done = 0;
        each(here, [&](int l) {
            u32 of = u32(members[l]), with = 0;
            each(here, [&](int other) { with |= u32(u32(members[other]) == of) << other; });
            if ((of & alive & ~with) == 0) done |= 1u << l;
        });
        return done;
    }

    /* The lanes that wait at this instruction: a whole group goes on. */
    bool meet(Warp &w, int pc) {
        const Instruction &i = p.code[size_t(pc)];
        u32 here = 0;
        each(w.in(Warp::AT_WARP), [&](int l) { here |= u32(w.pc[size_t(l)] == pc) << l; });
        u32 ready = here ? complete(w, i, here) : 0;
        if (!ready) return false;
        for (u32 left = ready; left;) { /* each set of members is an operation of its own */
            u32 one = left;
            if (i.arguments >= 0) {
                const u64 *members = c.in(i.o[size_t(i.arguments)], 5);
                u32 of = u32(members[__builtin_ctz(left)]);
                one = 0;
                each(left, [&](int l) { one |= u32(u32(members[l]) == of) << l; });
            }
            perform(i, one);
            left &= ~one;
        }
        each(ready, [&](int l) {
            w.pc[size_t(l)] = pc + 1;
            w.state[size_t(l)] = Warp::READY;
        });
        return true;
    }

    /* No lane is ready: one that ended may have been the last that others waited for; and a bar.warp may be another one. */
    bool parted(Warp &w) {
        u32 waiting = w.in(Warp::AT_WARP);
        std::set<int> places;
        each(waiting, [&](int l) { places.insert(w.pc[size_t(l)]); });
        for (int pc : places)
            if (meet(w, pc)) return true;
        if (places.size() < 2) return false;
        u32 members = 0;
        for (int pc : places) {
            const Instruction &i = p.code[size_t(pc)];
            if (i.arguments != 0) return false; /* only bar.warp.sync has its members first */
        }
        each(waiting, [&](int l) { members |= u32(c.in(p.code[size_t(w.pc[size_t(l)])].o[0], 5)[l]); });
        if (members & w.alive() & ~waiting) return false;
        each(waiting, [&](int l) {
            w.pc[size_t(l)]++;
            w.state[size_t(l)] = Warp::READY;
        });
        return true;
    }

    /* -- Barriers ---------------------------------------------------------------------------- */

    int barrier_of(const Instruction &i, int lane) {
        u64 n = u32(c.in(i.o[i.sub >= 2 ? 1 : 0], 0)[lane]);
        if (n >= BARRIERS) throw Fault{719, "a barrier of that number: " + i.text};
        return int(n);
    }
    /* How many threads the barrier is for; 0 means all that have not ended. */
    int expected(const Instruction &i, int lane) {
        bool reduces = i.sub >= 2;
        size_t at = reduces ? 2 : 1;
        return i.o.size() > at + reduces ? int(u32(c.in(i.o[at], 0)[lane])) : 0;
    }

    void arrive(Warp &w, const Instruction &i, u32 mask, int pc) {
        each(mask, [&](int l) {
            if (i.sub != 1) {
                w.state[size_t(l)] = Warp::AT_BARRIER;
                return;
            }
            arrived_[size_t(barrier_of(i, l))]++;
            w.pc[size_t(l)] = pc + 1;
        });
    }

    bool barriers() {
        struct Waiting {
            int threads = 0, padding = 0, expected = 0, yes = 0;
        };
        std::array<Waiting, BARRIERS> all{};
        int alive = 0;
        auto at_barrier = [&](auto f) {
            for (Warp &w : warps_) {
                c.warp = &w;
                each(w.in(Warp::AT_BARRIER), [&](int l) { f(w, p.code[size_t(w.pc[size_t(l)])], l); });
            }
        };
        for (Warp &w : warps_) alive += __builtin_popcount(w.alive());
        at_barrier([&](Warp &w, const Instruction &i, int l) {
            Waiting &b = all[size_t(barrier_of(i, l))];
            b.threads += 1;
            if (l == w.lanes - 1) b.padding = LANES - w.lanes; /* a warp that is not full counts as one that is */
            b.expected = std::max(b.expected, expected(i, l));
            if (i.sub >= 2) b.yes += int(c.in(i.o.back(), 1)[l] & 1);
        });
        bool moved = false;
        at_barrier([&](Warp &w, const Instruction &i, int l) {
            size_t n = size_t(barrier_of(i, l));
            const Waiting &b = all[n];
            if (!(b.expected ? b.threads + b.padding + arrived_[n] >= b.expected : b.threads == alive)) return;
            if (i.sub >= 2) {
                u64 result = i.sub == 2 ? u64(b.yes) : i.sub == 3 ? b.yes == b.threads : b.yes > 0;
                c.out(i.o[0])[l] = result;
            }
            w.pc[size_t(l)]++;
            w.state[size_t(l)] = Warp::READY;
            moved = true;
        });
        if (moved)
            for (size_t n = 0; n < BARRIERS; n++)
                if (all[n].threads && all[n].expected && all[n].threads + all[n].padding + arrived_[n] >= all[n].expected) arrived_[n] = 0;
        return moved;
    }
};

} // namespace

void execute(const Program &program, const Grid &grid, const char *parameters) {
    u64 threads = u64(grid.block[0]) * grid.block[1] * grid.block[2];
    if (!threads || threads > program.max_threads) throw Fault{1, "a block of so many threads"};
    std::vector<char> local(program.local_bytes * (threads + LANES) + 64), shared(program.shared_bytes + grid.shared + 256);
    auto aligned = [](std::vector<char> &v, size_t to) { return v.data() + (to - reinterpret_cast<uintptr_t>(v.data()) % to) % to; };
    Context c{};
    c.program = &program;
    c.grid = &grid;
    c.parameters = parameters;
    c.local = aligned(local, 16);
    c.shared = aligned(shared, 128);
    c.shared_bytes = program.shared_bytes + grid.shared;
    c.clock = 1;
    std::fenv_t before;
    std::fegetenv(&before); /* the caller may flush, or round in another way */
    std::fesetenv(FE_DFL_ENV);
    try {
        Block block(c, int(threads));
        for (u32 z = 0; z < grid.grid[2]; z++)
            for (u32 y = 0; y < grid.grid[1]; y++)
                for (u32 x = 0; x < grid.grid[0]; x++) {
                    c.block[0] = x, c.block[1] = y, c.block[2] = z;
                    block.run();
                }
    } catch (...) {
        std::fesetenv(&before);
        throw;
    }
    std::fesetenv(&before);
}

} // namespace ptx
