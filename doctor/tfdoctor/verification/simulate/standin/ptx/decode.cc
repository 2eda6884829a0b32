/* A kernel's text, with the functions that it calls, as one list of instructions. An instruction that is not
 * known becomes one that stops when a lane comes to it: many a kernel never does. */
#include "ops.h"
#include "tokens.h"

#include <set>

namespace ptx {
namespace {

struct Symbol {
    bool is_register = false;
    Type type = NONE;
    u64 address = 0; /* or the register's number */
};
struct Scope {
    int parent;
    std::map<std::string, Symbol, std::less<>> symbols;
    std::map<std::string, int, std::less<>> labels;
    std::map<std::string, std::vector<std::string>, std::less<>> tables;
};

const std::map<std::string_view, int> &specials() {
    static const std::map<std::string_view, int> names = [] {
        std::map<std::string_view, int> all;
        int n = 0; /* the order is that of Context::made */
        for (const char *name :
             {"%tid.x", "%tid.y", "%tid.z", "%ntid.x", "%ntid.y", "%ntid.z", "%ctaid.x", "%ctaid.y", "%ctaid.z", "%nctaid.x", "%nctaid.y", "%nctaid.z",
              "%laneid", "%warpid", "%nwarpid", "%lanemask_eq", "%lanemask_lt", "%lanemask_le", "%lanemask_gt", "%lanemask_ge", "%clock", "%clock64",
              "%globaltimer", "%dynamic_smem_size", "%total_smem_size", "%smid", "%nsmid", "%gridid", "%clock_hi", "%globaltimer_lo"})
            all[name] = n++;
        return all;
    }();
    return names;
}

class Decoder {
  public:
    Decoder(Program &program, Module &module) : p(program), m(module) {}

    void kernel(const Declared &entry) {
        scopes.clear();
        scopes.push_back({-1, {}, {}, {}});
        parameters(entry.head);
        body(entry.body);
        std::set<std::string, std::less<>> done;
        while (!wanted.empty()) {
            std::string name = wanted.back();
            wanted.pop_back();
            if (done.insert(name).second) function(name);
        }
        for (Instruction &i : p.code)
            if (i.flow == CALL && i.target >= 0) i.o.shrink_to_fit();
        p.shared_bytes = (p.shared_bytes + dynamic_align - 1) / dynamic_align * dynamic_align;
        for (auto &[row, offset] : dynamic) row->fill(p.shared_bytes + offset);
    }

  private:
    Program &p;
    Module &m;
    std::vector<Scope> scopes;
    int scope = 0;
    std::map<u64, const Row *> known_constants;
    std::vector<std::pair<Row *, u64>> dynamic; /* addresses in the shared memory that the launch brings */
    size_t dynamic_align = 16;
    std::map<std::string, u64, std::less<>> shared_addresses;
    std::vector<std::string> wanted;
    struct Jump {
        size_t instruction;
        int scope;
        std::string label;
    };
    std::vector<Jump> jumps;
    bool own_memory = false; /* whether the function that is read has a .local variable */

    /* -- Heads ------------------------------------------------------------------------------- */

    void parameters(std::string_view head) {
        Tokens t(head);
        while (!t.end() && !t.is("(") && !t.is(".maxntid")) t.pop();
        if (t.take("(")) {
            while (!t.take(")")) {
                t.expect(".param");
                Declaration d = read_declaration(t);
                p.parameter_bytes = (p.parameter_bytes + d.variable.align - 1) / d.variable.align * d.variable.align;
                scopes[0].symbols[d.name] = {false, d.variable.type, p.parameter_bytes};
                p.parameters.push_back({p.parameter_bytes, d.variable.size});
                p.parameter_bytes += d.variable.size;
                t.take(",");
            }
        }
        while (!t.end())
            if (std::string_view directive = t.pop(); directive == ".maxntid" || directive == ".reqntid") p.max_threads = std::min(p.max_threads, threads(t));
    }

    static u32 threads(Tokens &t) { /* 384, 1, 1 */
        u64 product = 1;
        do {
            u64 value;
            bool is_double;
            if (!number(t.pop(), &value, &is_double) || is_double || !value) throw Unsupported{"a block of so many threads"};
            product = std::min(product * std::min(value, u64(1024)), u64(1024));
        } while (t.take(","));
        return u32(product);
    }

    u64 local(size_t size, size_t align) {
        p.local_bytes = (p.local_bytes + align - 1) / align * align;
        u64 address = p.local_bytes;
        p.local_bytes += size;
        return address;
    }

    std::vector<Formal> formals(Tokens &t) {
        std::vector<Formal> all;
        while (!t.take(")")) {
            bool is_register = t.is(".reg");
            t.pop();
            Declaration d = read_declaration(t);
            Formal f;
            if (is_register) {
                f.reg = p.registers++;
                scopes[0].symbols[d.name] = {true, d.variable.type, u64(f.reg)};
            } else {
                f.size = d.variable.size;
                f.address = local(f.size, d.variable.align);
                scopes[0].symbols[d.name] = {false, d.variable.type, f.address | IN_LOCAL};
            }
            all.push_back(f);
            t.take(",");
        }
        return all;
    }

    int number_of(const std::string &name) { /* of a function; it is linked later */
        auto known = p.function_numbers.find(name);
        if (known != p.function_numbers.end()) return known->second;
        int n = int(p.functions.size());
        p.functions.push_back({name, -1, {}, {}, {}});
        p.function_numbers[name] = n;
        wanted.push_back(name);
        return n;
    }

    void function(const std::string &name) {
        const Declared &f = m.functions.at(name);
        size_t n = size_t(p.function_numbers.at(name));
        scopes.clear();
        scopes.push_back({-1, {}, {}, {}});
        if (!f.defined) return; /* start stays -1: the call stops */
        const struct { int register_; size_t local; } first = {p.registers, p.local_bytes};
        Tokens t(f.head);
        while (!t.is(".func")) t.pop();
        t.pop();
        if (t.take("(")) p.functions[n].results = formals(t);
        t.pop();
        if (t.take("(")) p.functions[n].arguments = formals(t);
        p.functions[n].start = int(p.code.size());
        own_memory = false;
        body(f.body);
        Frame &frame = p.functions[n].frame;
        frame = {first.register_, p.registers, first.local, p.local_bytes, own_memory};
    }

    /* -- Bodies ------------------------------------------------------------------------------ */

    void body(std::string_view text) {
        scope = 0;
        jumps.clear();
        Tokens t(text);
        while (!t.end()) statement(t);
        Instruction end;
        end.flow = RETURN;
        p.code.push_back(end);
        for (const Jump &j : jumps) {
            Instruction &i = p.code[j.instruction];
            try {
                if (i.flow == TABLE) {
                    for (const std::string &label : table(j)) i.targets.push_back(label_at(j.scope, label));
                } else {
                    i.target = label_at(j.scope, j.label);
                }
            } catch (const Unsupported &u) {
                i.flow = STOP;
                i.text += " (" + u.why + ")";
            }
        }
    }

    int label_at(int at, const std::string &label) {
        for (; at >= 0; at = scopes[size_t(at)].parent) {
            auto found = scopes[size_t(at)].labels.find(label);
            if (found != scopes[size_t(at)].labels.end()) return found->second;
        }
        throw Unsupported{"no label " + label};
    }
    const std::vector<std::string> &table(const Jump &j) {
        for (int at = j.scope; at >= 0; at = scopes[size_t(at)].parent) {
            auto found = scopes[size_t(at)].tables.find(j.label);
            if (found != scopes[size_t(at)].tables.end()) return found->second;
        }
        throw Unsupported{"no table " + j.label};
    }

    void statement(Tokens &t) {
        if (t.take("{")) {
            scopes.push_back({scope, {}, {}, {}});
            scope = int(scopes.size()) - 1;
        } else if (t.take("}")) {
            scope = scopes[size_t(scope)].parent;
            if (scope < 0) throw Unsupported{"PTX whose braces do not close"};
        } else if (t.take(";")) {
        } else if (t.is(".loc") || t.is(".file")) {
            t.skip_line();
        } else if (t.is(".pragma")) {
            while (!t.take(";")) t.pop();
        } else if (t.word()[0] == '.') {
            declaration(t);
        } else if (t.is("@")) {
            instruction(t);
        } else {
            size_t start = t.position();
            std::string_view word = t.pop();
            if (!t.take(":")) return instruction_from(t, start, word, -1, false);
            if (t.is(".branchtargets")) { /* the table of a brx.idx, which may stand after it */
                t.pop();
                auto &names = scopes[size_t(scope)].tables[std::string(word)];
                while (!t.take(";"))
                    if (!t.take(",")) names.emplace_back(t.pop());
            } else if (t.is(".callprototype") || t.is(".calltargets")) {
                while (!t.take(";")) t.pop();
            } else {
                scopes[size_t(scope)].labels[std::string(word)] = int(p.code.size());
            }
        }
    }

    void declaration(Tokens &t) {
        std::string_view kind = t.pop();
        if (kind != ".reg" && kind != ".local" && kind != ".shared" && kind != ".param" && kind != ".global" && kind != ".const")
            throw Unsupported{"PTX with " + std::string(kind)};
        Declaration first = read_declaration(t), d = first;
        auto &symbols = scopes[size_t(scope)].symbols;
        for (;;) {
            const Variable &v = d.variable;
            if (kind == ".reg" && d.repeated) {
                if (d.repeated > 1 << 20) throw Unsupported{"so many registers"};
                for (int n = 0; n < d.repeated; n++) symbols[d.name + std::to_string(n)] = {true, v.type, u64(p.registers++)};
            } else if (kind == ".reg") {
                symbols[d.name] = {true, v.type, u64(p.registers++)};
            } else if (kind == ".local") {
                own_memory = true;
                symbols[d.name] = {false, v.type, local(v.size, v.align)};
            } else if (kind == ".param") {
                symbols[d.name] = {false, v.type, local(v.size, v.align) | IN_LOCAL};
            } else if (kind == ".shared") {
                symbols[d.name] = {false, v.type, shared(v)};
            } else { /* a table of constants inside a function is one of the module */
                throw Unsupported{"a variable inside a function with " + std::string(kind)};
            }
            if (!t.take(",")) break;
            d.name = t.pop();
        }
        t.expect(";");
    }

    u64 shared(const Variable &v) {
        p.shared_bytes = (p.shared_bytes + v.align - 1) / v.align * v.align;
        u64 address = p.shared_bytes;
        p.shared_bytes += v.size;
        return address;
    }

    /* -- Operands ---------------------------------------------------------------------------- */

    const Row *constant(u64 value) {
        const Row *&row = known_constants[value];
        if (!row) {
            p.constants.emplace_back().fill(value);
            row = &p.constants.back();
        }
        return row;
    }

    const Symbol *symbol(std::string_view name) {
        for (int at = scope; at >= 0; at = scopes[size_t(at)].parent) {
            auto found = scopes[size_t(at)].symbols.find(name);
            if (found != scopes[size_t(at)].symbols.end()) return &found->second;
        }
        return nullptr;
    }

    Operand fixed(u64 value) {
        Operand o;
        o.kind = Operand::CONSTANT;
        o.constant = constant(value);
        return o;
    }

    Operand named(std::string_view word) {
        Operand o;
        bool is_double;
        u64 value;
        if (word == "_") return o;
        if (const Symbol *s = symbol(word)) {
            if (!s->is_register) return fixed(s->address);
            if (s->type == B128) throw Unsupported{"registers of 128 bits"};
            o.kind = Operand::REGISTER;
            o.reg = int(s->address);
            o.width = u8(size_of(s->type));
            return o;
        }
        if (number(word, &value, &is_double)) {
            o = fixed(value);
            o.is_double = is_double;
            return o;
        }
        auto special = specials().find(word);
        if (special != specials().end()) {
            o.kind = Operand::SPECIAL;
            o.special = special->second;
            return o;
        }
        if (word == "WARP_SZ") return fixed(LANES);
        auto variable = m.variables.find(word);
        if (variable != m.variables.end()) {
            const Variable &v = variable->second;
            if (v.space != SHARED) {
                if (!v.address) throw Unsupported{"a variable of another module: " + std::string(word)};
                return fixed(v.address);
            }
            if (v.size) {
                auto at = shared_addresses.find(word);
                if (at == shared_addresses.end()) at = shared_addresses.insert({std::string(word), shared(v)}).first;
                return fixed(at->second);
            }
            p.constants.emplace_back();
            dynamic.push_back({&p.constants.back(), 0});
            dynamic_align = std::max(dynamic_align, v.align);
            o.kind = Operand::CONSTANT;
            o.constant = &p.constants.back();
            return o;
        }
        if (m.functions.count(word)) return fixed(FUNCTIONS + u64(number_of(std::string(word))));
        throw Unsupported{"the name " + std::string(word)};
    }

    i64 sum(Tokens &t) { /* +8, -8, +-8 */
        i64 all = 0;
        while (t.is("+") || t.is("-")) {
            bool minus = t.pop() == "-";
            if (t.take("-")) minus = !minus;
            u64 value;
            bool is_double;
            if (!number(t.pop(), &value, &is_double) || is_double) throw Unsupported{"such an offset"};
            all += minus ? -i64(value) : i64(value);
        }
        return all;
    }

    Operand operand(Tokens &t) {
        Operand o;
        if (t.take("{")) {
            o.kind = Operand::VECTOR;
            while (!t.take("}")) {
                o.parts.push_back(operand(t));
                t.take(",");
            }
            return o;
        }
        if (t.take("[")) {
            o = named(t.pop());
            o.offset = sum(t);
            o.memory = true;
            t.expect("]");
            return o;
        }
        if (t.take("!")) {
            o = named(t.pop());
            o.negated = true;
            return o;
        }
        if (t.take("-")) {
            o = named(t.pop());
            if (o.kind != Operand::CONSTANT) throw Unsupported{"such an operand"};
            bool is_double = o.is_double;
            o = fixed(is_double ? o.value() ^ (u64(1) << 63) : -o.value());
            o.is_double = is_double;
            return o;
        }
        o = named(t.pop());
        if (t.take("|")) {
            std::string_view other = t.pop();
            o.second = other == "_" ? 0 : named(other).reg;
        } else if (t.is("+") || t.is("-")) {
            i64 offset = sum(t);
            if (o.kind != Operand::CONSTANT) throw Unsupported{"such an operand"};
            if (!dynamic.empty() && o.constant == dynamic.back().first) dynamic.back().second += u64(offset);
            else o = fixed(o.value() + u64(offset));
        }
        return o;
    }

    /* -- Instructions ------------------------------------------------------------------------ */

    void instruction(Tokens &t) {
        size_t start = t.position();
        t.pop();
        bool negated = t.take("!");
        Operand guard = named(t.pop());
        if (guard.kind != Operand::REGISTER) throw Unsupported{"such a predicate"};
        instruction_from(t, start, t.pop(), guard.reg, negated);
    }

    void instruction_from(Tokens &t, size_t start, std::string_view mnemonic, int guard, bool negated) {
        Instruction i;
        try {
            read(t, i, mnemonic);
            if (!t.is(";")) throw Unsupported{"such operands"};
        } catch (const Unsupported &u) {
            i = Instruction();
            i.flow = STOP;
            i.text = " (" + u.why + ")";
            jumps.erase(std::remove_if(jumps.begin(), jumps.end(), [&](const Jump &j) { return j.instruction == p.code.size(); }), jumps.end());
        }
        while (!t.is(";")) t.pop();
        i.guard = guard;
        i.guard_not = negated;
        i.text = std::string(t.since(start)) + i.text;
        t.pop();
        p.code.push_back(std::move(i));
    }

    void read(Tokens &t, Instruction &i, std::string_view mnemonic) {
        Spec spec;
        for (size_t at = 0; at <= mnemonic.size();) {
            size_t dot = std::min(mnemonic.find('.', at), mnemonic.size());
            if (at == 0) spec.name = mnemonic.substr(0, dot);
            else spec.left.push_back(mnemonic.substr(at, dot - at));
            at = dot + 1;
        }
        if (control(t, spec, i)) return check(spec);
        while (!t.is(";")) {
            i.o.push_back(operand(t));
            t.take(",");
        }
        Run (*const rooms[])(Spec &, Instruction &) = {choose_integer, choose_bits, choose_float, choose_compare, choose_convert, choose_memory, choose_warp};
        for (auto choose : rooms) {
            i.run = choose(spec, i);
            if (i.run || i.flow != NEXT) break;
        }
        if (!i.run && i.flow == NEXT) throw Unsupported{"not known here"};
        check(spec);
        for (Operand &o : i.o) narrow(o, i);
    }

    static void check(const Spec &spec) {
        if (!spec.left.empty()) throw Unsupported{"." + std::string(spec.left[0])};
    }

    void narrow(Operand &o, const Instruction &i) { /* 0d... where a float is wanted */
        for (Operand &part : o.parts) narrow(part, i);
        if (!o.is_double) return;
        Type type = i.from != NONE ? i.from : i.type;
        if (type == F64 || type == U64) return;
        if (type != F32) throw Unsupported{"such a constant"};
        o.constant = constant(bits(float(as<double>(o.value()))));
    }

    /* What the scheduler itself carries out: where an instruction after this one comes from. */
    bool control(Tokens &t, Spec &spec, Instruction &i) {
        if (spec.name == "bra") {
            spec.take("uni");
            i.flow = BRANCH;
            jumps.push_back({p.code.size(), scope, std::string(t.pop())});
        } else if (spec.name == "brx") {
            spec.take("idx");
            spec.take("uni");
            i.flow = TABLE;
            i.o.push_back(operand(t));
            t.expect(",");
            jumps.push_back({p.code.size(), scope, std::string(t.pop())});
        } else if (spec.name == "ret") {
            spec.take("uni");
            i.flow = RETURN;
        } else if (spec.name == "exit") {
            i.flow = EXIT;
        } else if (spec.name == "call") {
            spec.take("uni");
            call(t, i);
        } else {
            return false;
        }
        return true;
    }

    std::vector<Operand> in_parentheses(Tokens &t) {
        std::vector<Operand> all;
        while (!t.take(")")) {
            all.push_back(operand(t));
            t.take(",");
        }
        return all;
    }

    void call(Tokens &t, Instruction &i) {
        std::vector<Operand> results, arguments;
        if (t.take("(")) {
            results = in_parentheses(t);
            t.expect(",");
        }
        i.flow = CALL;
        Operand callee;
        std::string_view name = t.pop();
        const Symbol *s = symbol(name);
        if (s && s->is_register) {
            callee = named(name);
        } else {
            if (!m.functions.count(name)) throw Unsupported{"the function " + std::string(name)};
            i.target = number_of(std::string(name));
        }
        if (t.take(",") && t.take("(")) arguments = in_parentheses(t);
        if (t.take(",")) t.pop(); /* the prototype */
        i.arguments = int(arguments.size());
        i.o = std::move(arguments);
        i.o.insert(i.o.end(), results.begin(), results.end());
        i.o.push_back(callee);
    }
};

} // namespace

Program *program_of(Module &module, const std::string &name) {
    auto known = module.programs.find(name);
    if (known != module.programs.end()) return known->second.get();
    auto declared = module.functions.find(name);
    if (declared == module.functions.end() || !declared->second.defined || !declared->second.entry) return nullptr;
    auto program = std::make_unique<Program>();
    program->name = name;
    program->module = &module;
    Decoder(*program, module).kernel(declared->second);
    return (module.programs[name] = std::move(program)).get();
}

} // namespace ptx
