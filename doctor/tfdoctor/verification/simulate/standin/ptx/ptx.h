/* What the files of the PTX interpreter share. A module is text until a kernel of it is asked for; a
 * kernel is decoded once, with the functions that it calls, into a list of instructions.
 *
 * A warp runs an instruction for all its lanes at once: register r of lane l is registers[r * 32 + l].
 * A register holds its bits zero-extended to 64; a predicate is 0 or 1.
 *
 * Addresses: generic and global ones are addresses of this process. Those of shared, local and
 * parameter space are offsets into that space; cvta adds or takes away the start of the space. */
#pragma once
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ptx {

using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using i64 = int64_t;

constexpr int LANES = 32;
constexpr u32 ALL = 0xffffffff;

/* A bit type (b32) is the unsigned one: no instruction tells them apart. */
enum Type : u8 {
    NONE, PRED, U8, U16, U32, U64, S8, S16, S32, S64, F16, BF16, TF32, F32, F64,
    F16X2, BF16X2, U16X2, S16X2, E4M3X2, E5M2X2, B128
};
int size_of(Type type); /* bytes */
inline bool is_float(Type t) { return (t >= F16 && t <= F64) || t == F16X2 || t == BF16X2; }
inline bool is_signed(Type t) { return t >= S8 && t <= S64; }
Type type_named(std::string_view name); /* "f32"; NONE where it is no type */

inline u64 low(u64 value, int bytes) { return bytes >= 8 ? value : value & ((u64(1) << (bytes * 8)) - 1); }
/* The value of the lowest bytes, as a signed number. */
inline u64 extend(u64 value, int bytes) {
    if (bytes >= 8) return value;
    u64 sign = u64(1) << (bytes * 8 - 1);
    return (low(value, bytes) ^ sign) - sign;
}

enum Space : u8 { GENERIC, GLOBAL, SHARED, LOCAL, PARAM, CONST };
/* Variables of parameter space inside functions lie in local memory; their addresses have this bit. */
constexpr u64 IN_LOCAL = u64(1) << 40;
/* The value of a function's name, to which its number is added: what an indirect call is given. */
constexpr u64 FUNCTIONS = u64(1) << 48;

/* What this interpreter cannot do. The message names it. */
struct Unsupported {
    std::string why;
};
/* What the kernel did wrong; `code` is the driver's (700 an illegal address, 710 a failed assertion, 719 a trap). */
struct Fault {
    int code;
    std::string why;
};

using Row = std::array<u64, LANES>;

struct Operand {
    enum Kind : u8 { SINK, REGISTER, CONSTANT, SPECIAL, VECTOR } kind = SINK;
    bool negated = false;  /* !%p */
    bool memory = false;   /* [...]: the value of the rest, plus `offset` */
    bool is_double = false; /* written as 0d... or 1.5 */
    u8 width = 8;          /* of the register, in bytes */
    int reg = -1, second = -1; /* second: %p|%q */
    int special = 0;
    i64 offset = 0;
    const Row *constant = nullptr;
    std::vector<Operand> parts;
    u64 value() const { return (*constant)[0]; } /* of a constant */
};

struct Context;
struct Instruction;
using Run = void (*)(Context &, const Instruction &, u32 mask);

/* Which way the scheduler goes after an instruction. */
enum Flow : u8 { NEXT, BRANCH, TABLE, CALL, RETURN, EXIT, BARRIER, WARP, STOP };
enum Rounding : u8 { NEAREST, ZERO, DOWN, UP, AWAY /* ties away from zero */ };
enum Compare : u8 { EQ, NE, LT, LE, GT, GE, EQU, NEU, LTU, LEU, GTU, GEU, NUM, NAN_ };
enum Logic : u8 { NO_LOGIC, AND, OR, XOR };
enum Atomic : u8 { A_ADD, A_MIN, A_MAX, A_AND, A_OR, A_XOR, A_EXCH, A_CAS, A_INC, A_DEC };

struct Instruction {
    Run run = nullptr;
    Flow flow = NEXT;
    Type type = NONE, from = NONE;
    Rounding rounding = NEAREST;
    bool integral = false; /* cvt.rni: to a whole number */
    bool ftz = false, sat = false, relu = false, nan = false, approx = false, carry_in = false, carry_out = false;
    bool guard_not = false;
    u8 sub = 0; /* which of an instruction's kinds: mul.hi, shfl.up ...; each file has its own */
    Compare compare = EQ;
    Logic logic = NO_LOGIC;
    Space space = GENERIC;
    int guard = -1;
    int target = -1;
    int vector = 1;
    int arguments = 0; /* call: the first so many operands; those after them are results */
    std::vector<Operand> o;
    std::vector<int> targets;
    std::string text; /* as it was written */
};

struct Variable {
    Space space = GLOBAL;
    u64 address = 0;
    size_t size = 0, align = 1;
    Type type = NONE;
};

/* A function as it stands in the text. */
struct Declared {
    std::string_view head, body;
    bool entry = false, defined = false;
};

/* A parameter of a function: a variable in local memory, or a register. */
struct Formal {
    u64 address = 0;
    size_t size = 0;
    int reg = -1;
};
/* The registers and the bytes of local memory that are one function's alone. */
struct Frame {
    int first = 0, last = 0;
    size_t local = 0, local_end = 0;
    bool own_memory = false; /* with variables that something may point to */
};
struct Linked {
    std::string name;
    int start = 0;
    std::vector<Formal> arguments, results;
    Frame frame;
};

struct Parameter {
    size_t offset, size;
};

struct Module;
struct Program {
    std::string name;
    Module *module = nullptr;
    std::vector<Instruction> code;
    std::vector<Parameter> parameters;
    std::deque<Row> constants;
    std::vector<Linked> functions;
    std::map<std::string, int, std::less<>> function_numbers;
    int registers = 1; /* the first is where `_` goes */
    size_t parameter_bytes = 0, local_bytes = 0, shared_bytes = 0;
    u32 max_threads = 1024;
};

struct Module {
    std::string text;
    std::map<std::string, Declared, std::less<>> functions;
    std::map<std::string, Variable, std::less<>> variables; /* shared ones: address unknown, see Program */
    std::map<std::string, std::unique_ptr<Program>, std::less<>> programs;
    std::vector<std::unique_ptr<char[]>> memory;
    int isa = 0, target = 0; /* .version 8.5 is 85; .target sm_90 is 90 */
    char only = 0;           /* 'a', as in sm_90a: for that capability alone; 'f': for those of its major number */
};

/* image.cc: the PTX of an image (a fat binary, its wrapper, or text) for this compute capability.
 * Empty where it has none that such a card could run. */
std::string text_of(const void *image, int capability);
bool serves(const void *image, int capability); /* whether a card finds code there, be it machine code, which does not run here; nothing is read */

/* read.cc */
std::unique_ptr<Module> read_module(std::string text);
struct Declaration {
    std::string name;
    Variable variable;
    Space space = GLOBAL;
    int repeated = 0; /* %r<10> */
    bool is_register = false, external = false, initialized = false;
};

/* decode.cc: the kernel of this name, decoded at the first call; nullptr where there is none. */
Program *program_of(Module &module, const std::string &name);

/* execute.cc */
struct Grid {
    u32 grid[3], block[3], shared;
};
void execute(const Program &program, const Grid &grid, const char *parameters);

} // namespace ptx
