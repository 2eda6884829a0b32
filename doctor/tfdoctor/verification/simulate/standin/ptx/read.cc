/* A module's text: its functions, kept as text, and its variables, which are made at once. */
#include "ptx.h"
#include "tokens.h"

#include <cstdlib>

namespace ptx {

int size_of(Type type) {
    switch (type) {
    case U8: case S8: case PRED: return 1;
    case U16: case S16: case F16: case BF16: case E4M3X2: case E5M2X2: return 2;
    case U64: case S64: case F64: return 8;
    case B128: return 16;
    default: return 4;
    }
}

Type type_named(std::string_view name) {
    static const std::map<std::string_view, Type> types = {
        {"pred", PRED}, {"u8", U8}, {"b8", U8}, {"s8", S8}, {"u16", U16}, {"b16", U16}, {"s16", S16}, {"u32", U32}, {"b32", U32},
        {"s32", S32}, {"u64", U64}, {"b64", U64}, {"s64", S64}, {"f16", F16}, {"bf16", BF16}, {"tf32", TF32}, {"f32", F32}, {"f64", F64},
        {"f16x2", F16X2}, {"bf16x2", BF16X2}, {"u16x2", U16X2}, {"s16x2", S16X2}, {"e4m3x2", E4M3X2}, {"e5m2x2", E5M2X2}, {"b128", B128}};
    auto found = types.find(name);
    return found == types.end() ? NONE : found->second;
}

bool number(std::string_view word, u64 *value, bool *is_double) {
    std::string text(word);
    *is_double = false;
    if (text.empty() || text[0] < '0' || text[0] > '9') return false;
    char *end;
    char second = text.size() > 1 ? text[1] : 0;
    if (text[0] == '0' && (second == 'f' || second == 'F' || second == 'd' || second == 'D')) {
        *value = strtoull(text.c_str() + 2, &end, 16);
        *is_double = second == 'd' || second == 'D';
        return !*end;
    }
    if (text[0] == '0' && (second == 'b' || second == 'B')) {
        *value = strtoull(text.c_str() + 2, &end, 2);
    } else if (second != 'x' && second != 'X' && text.find_first_of(".eE") != text.npos) {
        double d = strtod(text.c_str(), &end);
        memcpy(value, &d, 8);
        *is_double = true;
        return !*end;
    } else {
        *value = strtoull(text.c_str(), &end, 0);
    }
    if (*end == 'U') end++;
    return !*end;
}

namespace {

constexpr size_t MOST_BYTES = size_t(1) << 30;

size_t count_in_brackets(Tokens &t) {
    u64 n = 0;
    bool is_double;
    if (t.is("]")) return 0; /* the length comes with the launch, or with the values */
    if (!number(t.pop(), &n, &is_double) || is_double || n > MOST_BYTES) throw Unsupported{"a variable of that length"};
    return n;
}

} // namespace

Declaration read_declaration(Tokens &t) {
    Declaration d;
    d.variable.align = 0;
    int lanes = 1;
    for (; t.word().size() > 1 && t.word()[0] == '.'; t.pop()) {
        std::string_view word = t.word().substr(1);
        if (word == "align") {
            t.pop();
            d.variable.align = size_t(atoi(std::string(t.word()).c_str()));
        } else if (word == "v2" || word == "v4" || word == "v8") {
            lanes = word[1] - '0';
        } else if (word == "ptr" || word == "global" || word == "const" || word == "shared" || word == "local" || word == "param") {
            /* .param .u64 .ptr .global .align 4 name: what it points to, and how that is aligned */
            if (word == "ptr") {
                for (t.pop(); t.word().size() > 1 && t.word()[0] == '.'; t.pop())
                    if (t.is(".align")) t.pop();
                break;
            }
        } else if (word == "attribute") {
            t.pop();
            while (!t.is(")")) t.pop();
        } else if (Type type = type_named(word)) {
            d.variable.type = type;
        } else {
            throw Unsupported{"a declaration with ." + std::string(word)};
        }
    }
    size_t one = size_t(size_of(d.variable.type) * lanes);
    d.name = t.pop();
    size_t count = 1;
    bool unknown = false;
    while (t.take("[")) {
        size_t n = count_in_brackets(t);
        unknown |= n == 0;
        if (n && count > MOST_BYTES / n) throw Unsupported{"a variable of that length"};
        count *= n;
        t.expect("]");
    }
    if (t.take("<")) {
        d.repeated = int(count_in_brackets(t));
        t.expect(">");
    }
    d.variable.size = unknown ? 0 : one * count;
    if (!d.variable.align) d.variable.align = one;
    if (d.variable.align > 4096 || (d.variable.align & (d.variable.align - 1))) throw Unsupported{"a variable aligned like that"};
    return d;
}

namespace {

struct Reader {
    Module &m;
    Tokens t;

    char *reserve(size_t size, size_t align) {
        m.memory.push_back(std::make_unique<char[]>(size + align + 16));
        char *p = m.memory.back().get();
        return p + (align - reinterpret_cast<uintptr_t>(p) % align) % align;
    }

    /* One value of "= {1, 0f3F800000, name, generic(name)+4}". */
    u64 initial(Type type) {
        bool minus = t.take("-"), is_double = false;
        u64 value = 0;
        if (t.is("generic")) {
            t.pop();
            t.expect("(");
            value = initial(U64);
            t.expect(")");
        } else if (number(t.word(), &value, &is_double)) {
            t.pop();
            if (is_double && type == F32) {
                double d;
                memcpy(&d, &value, 8);
                float f = float(d);
                u32 bits;
                memcpy(&bits, &f, 4);
                value = bits;
            }
            if (minus) value = is_float(type) ? value ^ (u64(1) << (size_of(type) * 8 - 1)) : -value;
        } else {
            std::string name(t.pop());
            auto found = m.variables.find(name);
            if (found == m.variables.end() || found->second.space == SHARED) throw Unsupported{"a variable that begins as the address of " + name};
            value = found->second.address;
        }
        if (t.take("+")) value += initial(U64);
        return value;
    }

    void initialize(const Declaration &d, char *p, char *end) {
        if (t.take("{")) {
            while (!t.take("}")) {
                if (t.is("{")) {
                    throw Unsupported{"a table in tables of values: " + d.name};
                }
                put(d, p, end);
                p += size_of(d.variable.type);
                t.take(",");
            }
        } else {
            put(d, p, end);
        }
    }
    void put(const Declaration &d, char *p, char *end) {
        u64 value = initial(d.variable.type);
        size_t size = size_t(size_of(d.variable.type));
        if (size > 8 || size > size_t(end - p)) throw Unsupported{"more values than " + d.name + " has room for"};
        memcpy(p, &value, size);
    }

    void variable(Space space, bool external) {
        Declaration d = read_declaration(t);
        d.variable.space = space;
        if (space != SHARED) {
            auto known = m.variables.find(d.name);
            if (known == m.variables.end() && !external) { /* one that another module has keeps the address 0 */
                /* A length left open is that of the values; 64 KiB is all that constants may be */
                size_t size = d.variable.size ? d.variable.size : 65536;
                char *p = reserve(size, d.variable.align);
                d.variable.address = reinterpret_cast<u64>(p);
                if (t.take("=")) initialize(d, p, p + size);
            }
        }
        m.variables.insert({d.name, d.variable});
        while (!t.take(";")) t.pop();
    }

    void function(size_t start, bool entry) {
        t.pop();
        if (t.take("(")) while (!t.take(")")) t.pop(); /* the results */
        std::string name(t.pop());
        if (t.take("(")) while (!t.take(")")) t.pop();
        while (!t.is("{") && !t.is(";")) t.pop();
        Declared f;
        f.entry = entry;
        f.head = t.since(start);
        f.defined = t.is("{");
        if (f.defined) f.body = t.braces();
        else t.pop();
        auto known = m.functions.find(name);
        if (known == m.functions.end() || !known->second.defined) m.functions[name] = f;
    }

    void read() {
        bool external = false;
        size_t start = t.position();
        while (!t.end()) {
            std::string_view word = t.word();
            if (word == ".version") {
                t.pop();
                std::string version(t.pop());
                m.isa = int(strtod(version.c_str(), nullptr) * 10 + 0.5);
            } else if (word == ".target") {
                t.pop();
                std::string target(t.word());
                if (target.compare(0, 3, "sm_") == 0) m.target = atoi(target.c_str() + 3);
                m.only = target.back();
                t.skip_line();
            } else if (word == ".address_size") {
                t.pop();
                if (!t.take("64")) throw Unsupported{"PTX for addresses of 32 bits"};
            } else if (word == ".file" || word == ".loc") {
                t.skip_line();
            } else if (word == ".section") {
                while (!t.is("{")) t.pop();
                t.braces();
            } else if (word == ".pragma") {
                while (!t.take(";")) t.pop();
            } else if (word == ".extern" || word == ".visible" || word == ".weak" || word == ".common") {
                external |= word == ".extern";
                t.pop();
                continue;
            } else if (word == ".entry" || word == ".func") {
                function(start, word == ".entry");
            } else if (word == ".global" || word == ".const" || word == ".shared") {
                t.pop();
                variable(word == ".global" ? GLOBAL : word == ".const" ? CONST : SHARED, external);
            } else {
                throw Unsupported{"PTX with " + std::string(word)};
            }
            external = false;
            start = t.position();
        }
    }
};

} // namespace

std::unique_ptr<Module> read_module(std::string text) {
    auto m = std::make_unique<Module>();
    m->text = std::move(text);
    Reader{*m, Tokens(m->text)}.read();
    return m;
}

} // namespace ptx
