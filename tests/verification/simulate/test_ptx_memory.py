"""PTX loads, stores, atomics, state spaces, functions and branches, and the messages for unsupported code."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING

import pytest

from lab.softgpu import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.softgpu import Interpreter

pytestmark = pytest.mark.few(0)  # compiling the interpreter alone takes ten seconds


def test_loads_extend_their_value(ptx: Interpreter) -> None:
    declare = ".reg .b32 %x; .reg .b64 %y; .reg .u64 %p;"
    address = "ld.param.u64 %p, [p_a]; mad.wide.u32 %p, %t, 8, %p;"
    a = [0x80FF_8001_7F80_FF81, 0x0102_0304_0506_0708]
    columns = {"a": ("b64", a)}
    for name, expected in {
        "ld.global.u8": [number & 0xFF for number in a],
        "ld.global.u16": [number & 0xFFFF for number in a],
        "ld.u32": [number & 0xFFFFFFFF for number in a],
    }.items():
        assert ptx.run_lanes(f"{address} {name} %d, [%p];", "b64", columns, declare=declare) == expected
    assert ptx.run_lanes(f"{address} ld.s8 %d, [%p];", "b64", columns, declare=declare) == [
        (1 << 64) - 127,
        8,
    ]
    assert ptx.run_lanes(f"{address} ld.s8 %x, [%p]; mov.b32 %d, %x;", "b32", columns, declare=declare) == [
        (1 << 32) - 127,
        8,
    ]
    assert ptx.run_lanes(f"{address} ld.s16 %d, [%p+2];", "b64", columns, declare=declare) == [0x7F80, 0x0506]


def test_vectors_and_shared_memory(ptx: Interpreter) -> None:
    body = """
    mul.lo.u32 %s, %t, 16; add.u32 %x, %a, 1; st.shared.v4.u32 [%s], {%a, %x, %t, 5};
    ld.shared.v2.u32 {%x, %y}, [%s+4]; add.u32 %d, %x, %y;
    mov.u32 %x, more; st.shared.u8 [more+3], 7; sub.u32 %x, %x, 0;
    cvt.u64.u32 %g, %x; cvta.shared.u64 %g, %g; ld.u8 %x, [%g+3]; add.u32 %d, %d, %x;
    isspacep.shared %p, %g; selp.u32 %x, 1000, 0, %p; add.u32 %d, %d, %x;
    cvta.to.shared.u64 %g, %g; cvt.u32.u64 %x, %g; ld.shared.u8 %x, [%x+3]; add.u32 %d, %d, %x;
    """
    declare = ".reg .b32 %s, %x, %y; .reg .u64 %g; .reg .pred %p; .shared .align 16 .b8 data[512]; .shared .b8 more[4];"
    a = list(range(100, 132))
    assert ptx.run_lanes(body, "b32", {"a": ("b32", a)}, declare=declare) == [
        number + 1 + i + 1014 for i, number in enumerate(a)
    ]


def test_32_bit_address_wraps_around(ptx: Interpreter) -> None:
    """Compilers subtract from an address below its start and add an offset again: [0xfffffffe+2] is 0."""
    body = """
    shl.b32 %s, %t, 2; sub.u32 %s, %s, 2; st.shared.u16 [%s+2], %a; ld.shared.u16 %x, [%s+2];
    atom.shared.add.u32 %y, [%s+2], 1; ld.shared.u16 %y, [%s+2]; sub.u32 %y, %y, %x; mad.lo.u32 %d, %y, 1000, %x;
    sub.u64 %g, %b, 8; ld.global.b32 %y, [%g+8]; sub.u32 %y, %y, %a; add.u32 %d, %d, %y;
    """
    declare = ".reg .b32 %s, %x, %y; .reg .u64 %b, %g; .shared .align 4 .b8 data[128];"
    find_address = "ld.param.u64 %b, [p_a]; mad.wide.u32 %b, %t, 4, %b;"
    a = list(range(100, 132))
    assert ptx.run_lanes(find_address + body, "b32", {"a": ("b32", a)}, declare=declare) == [
        1000 + number for number in a
    ]


def test_dynamic_shared_memory(ptx: Interpreter) -> None:
    text = """
.extern .shared .align 16 .b8 dynamic[];
.visible .entry k(.param .u64 out) {
.reg .u64 %b; .reg .u32 %t, %s, %n; .shared .b8 fixed[5];
ld.param.u64 %b, [out]; mov.u32 %t, %tid.x; st.shared.u8 [fixed+4], 255;
mov.u32 %s, dynamic; mad.lo.u32 %s, %t, 4, %s; st.shared.u32 [%s+4], %t;
ld.shared.u32 %s, [%s+4]; mov.u32 %n, %dynamic_smem_size; add.u32 %s, %s, %n;
mad.wide.u32 %b, %t, 4, %b; st.global.u32 [%b], %s; ret; }
"""
    out = ptx.run_kernel(text, bytes(128), block=(32, 1, 1), shared=132)[0]
    assert list(struct.unpack("<32I", out)) == [132 + i for i in range(32)]
    with pytest.raises(RefusedError, match=r"^700 an address outside its space"):
        ptx.run_kernel(text, bytes(128), block=(32, 1, 1), shared=128)


def test_dynamic_shared_memory_is_aligned(ptx: Interpreter) -> None:
    text = """
.extern .shared .align 128 .b8 dynamic[];
.visible .entry k(.param .u64 out) {
.reg .u64 %b; .reg .u32 %s; .shared .b8 fixed[5];
ld.param.u64 %b, [out]; st.shared.u8 [fixed+4], 255; mov.u32 %s, dynamic; st.global.u32 [%b], %s; ret; }
"""
    assert struct.unpack("<I", ptx.run_kernel(text, bytes(4), shared=16)[0]) == (128,)


def test_block_size_is_limited_by_the_kernel(ptx: Interpreter) -> None:
    for directive, limit in (
        (".maxntid 8, 4, 1", 32),
        (".reqntid 32", 32),
        (".maxntid 2048", 1024),
        ("", 1024),
    ):
        text = f".visible .entry k(.param .u64 out) {directive} .minnctapersm 1 {{ ret; }}"
        assert ptx.run_kernel(text, bytes(8), block=(limit, 1, 1)) == [bytes(8)]
        with pytest.raises(RefusedError, match=r"^1 a block of so many threads"):
            ptx.run_kernel(text, bytes(8), block=(limit + 1, 1, 1))


def test_recursion_through_a_pointer(ptx: Interpreter) -> None:
    """A function has one set of registers: an inner call must restore those of the outer call."""
    text = """
.func (.reg .u32 r) down(.reg .u32 n, .reg .u64 f) {
.reg .pred %p; .reg .u32 %m;
setp.eq.u32 %p, n, 0; mov.u32 r, 1; @%p ret;
sub.u32 %m, n, 1; proto: .callprototype (.reg .u32 _) _ (.reg .u32 _, .reg .u64 _);
call (%m), f, (%m, f), proto; mul.lo.u32 r, %m, n; ret; }
.visible .entry k(.param .u64 out, .param .u64 depth) {
.reg .u64 %b, %f; .reg .u32 %n;
ld.param.u64 %b, [out]; ld.param.u32 %n, [depth]; mov.u64 %f, down;
call (%n), down, (%n, %f); st.global.u32 [%b], %n; ret; }
"""
    assert ptx.run_kernel(text, bytes(4), 0) == [struct.pack("<I", 1)]
    assert ptx.run_kernel(text, bytes(4), 10) == [struct.pack("<I", 3628800)]
    with pytest.raises(RefusedError, match=r"^801 cannot run recursion that deep"):
        ptx.run_kernel(text, bytes(4), 5000)


def test_mutual_recursion_of_different_depth(ptx: Interpreter) -> None:
    """Ackermann's function as two functions with arguments in parameter space: each thread has its own depth."""
    text = """
.func (.param .b32 out) ack(.param .b32 in, .param .b32 other);
.func (.param .b32 out) inner(.param .b32 in, .param .b32 other) {
.reg .u32 %m, %n;
ld.param.u32 %m, [in]; ld.param.u32 %n, [other]; sub.u32 %n, %n, 1;
{ .param .b32 a; .param .b32 b; .param .b32 r; st.param.b32 [a], %m; st.param.b32 [b], %n;
call.uni (r), ack, (a, b); ld.param.b32 %n, [r]; }
st.param.b32 [out], %n; ret; }
.func (.param .b32 out) ack(.param .b32 in, .param .b32 other) {
.reg .u32 %m, %n; .reg .pred %p;
ld.param.u32 %m, [in]; ld.param.u32 %n, [other];
setp.ne.u32 %p, %m, 0; @%p bra more; add.u32 %n, %n, 1; bra done;
more: setp.ne.u32 %p, %n, 0; @%p bra both; mov.u32 %n, 1; bra last;
both: { .param .b32 a; .param .b32 b; .param .b32 r; st.param.b32 [a], %m; st.param.b32 [b], %n;
call.uni (r), inner, (a, b); ld.param.b32 %n, [r]; }
last: sub.u32 %m, %m, 1;
{ .param .b32 a; .param .b32 b; .param .b32 r; st.param.b32 [a], %m; st.param.b32 [b], %n;
call.uni (r), ack, (a, b); ld.param.b32 %n, [r]; }
done: st.param.b32 [out], %n; ret; }
.visible .entry k(.param .u64 out) {
.reg .u64 %b; .reg .u32 %t, %m, %n;
ld.param.u64 %b, [out]; mov.u32 %t, %tid.x; mad.wide.u32 %b, %t, 4, %b;
and.b32 %m, %t, 1; add.u32 %m, %m, 1; shr.u32 %n, %t, 1;
{ .param .b32 a; .param .b32 b; .param .b32 r; st.param.b32 [a], %m; st.param.b32 [b], %n;
call.uni (r), ack, (a, b); ld.param.b32 %n, [r]; }
st.global.u32 [%b], %n; ret; }
"""
    out = struct.unpack("<40I", ptx.run_kernel(text, bytes(160), block=(40, 1, 1))[0])
    assert list(out) == [t // 2 + 2 if t % 2 == 0 else 2 * (t // 2) + 3 for t in range(40)]


def test_recursive_call_with_swapped_arguments(ptx: Interpreter) -> None:
    text = """
.func (.reg .u32 r) gcd(.reg .u32 a, .reg .u32 b) {
.reg .pred %p;
mov.u32 r, a; setp.eq.u32 %p, b, 0; @%p ret; rem.u32 a, a, b; call (r), gcd, (b, a); ret; }
.visible .entry k(.param .u64 out, .param .u64 x, .param .u64 y) {
.reg .u64 %b; .reg .u32 %n, %m;
ld.param.u64 %b, [out]; ld.param.u32 %n, [x]; ld.param.u32 %m, [y];
call (%n), gcd, (%n, %m); st.global.u32 [%b], %n; ret; }
"""
    assert ptx.run_kernel(text, bytes(4), 2 * 3 * 5 * 49, 9 * 7 * 11) == [struct.pack("<I", 21)]


def test_recursion_with_local_memory_is_rejected(ptx: Interpreter) -> None:
    text = """
.func (.reg .u32 r) down(.reg .u32 n) {
.local .b32 own[2]; .reg .pred %p;
st.local.u32 [own], n; mov.u32 r, n; setp.eq.u32 %p, n, 0; @%p ret;
sub.u32 r, n, 1; call (r), down, (r); ld.local.u32 n, [own]; add.u32 r, r, n; ret; }
.visible .entry k(.param .u64 out, .param .u64 depth) {
.reg .u64 %b; .reg .u32 %n;
ld.param.u64 %b, [out]; ld.param.u32 %n, [depth]; call (%n), down, (%n); st.global.u32 [%b], %n; ret; }
"""
    assert ptx.run_kernel(text, bytes(4), 0) == [bytes(4)]
    with pytest.raises(RefusedError, match=r"^801 cannot run recursion of a function with memory of its own"):
        ptx.run_kernel(text, bytes(4), 1)


def test_local_memory_is_per_thread(ptx: Interpreter) -> None:
    body = """
    mov.u64 %l, depot; cvta.local.u64 %g, %l; st.u32 [%g+8], %a; mul.wide.u32 %o, 1, 8; add.u64 %g, %g, %o;
    ld.u32 %d, [%g]; ld.local.u32 %x, [%l+8]; add.u32 %d, %d, %x;
    """
    declare = ".reg .b32 %x; .reg .u64 %l, %g, %o; .local .align 8 .b8 depot[64];"
    assert ptx.run_lanes(body, "b32", {"a": ("b32", list(range(40)))}, declare=declare) == [
        2 * i for i in range(40)
    ]


def test_initial_values_of_variables(ptx: Interpreter) -> None:
    text = """
.global .align 4 .u32 numbers[4] = {1, 0x10, 300};
.const .align 8 .f64 third = 0d3FD5555555555555;
.global .align 8 .u64 pointer = generic(numbers)+4;
.global .align 4 .f32 float = 0f40490FDB;
.visible .entry k(.param .u64 out) {
.reg .u64 %b, %p; .reg .u32 %x;
ld.param.u64 %b, [out];
ld.global.u64 %p, [pointer]; ld.u32 %x, [%p]; st.global.u32 [%b], %x;
ld.global.u32 %x, [numbers+8]; st.global.u32 [%b+4], %x;
ld.const.u64 %p, [third]; st.global.u64 [%b+8], %p;
mov.u64 %p, numbers; cvta.global.u64 %p, %p; ld.u32 %x, [%p+12]; st.global.u32 [%b+16], %x;
ld.global.u32 %x, [float]; st.global.u32 [%b+20], %x; ret; }
"""
    out = ptx.run_kernel(text, bytes(24))[0]
    assert struct.unpack("<2IQ2I", out) == (16, 300, 0x3FD5555555555555, 0, 0x40490FDB)


def test_parameter_sizes(ptx: Interpreter) -> None:
    text = """
.visible .entry k(.param .u64 .ptr .global .align 4 out, .param .align 8 .b8 pair[8], .param .u32 last) {
.reg .u64 %b, %p; .reg .u32 %x, %y;
ld.param.u64 %b, [out]; ld.param.u32 %x, [pair+4]; ld.param.u32 %y, [last];
st.global.v2.u32 [%b], {%x, %y}; mov.b64 %p, pair; ld.param.u32 %x, [%p]; st.global.u32 [%b+8], %x; ret; }
"""
    out = ptx.run_kernel(text, bytes(12), 7 | 8 << 32, 9)[0]
    assert struct.unpack("<3I", out) == (8, 9, 7)


OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "add.u32": lambda x, y: x + y,
    "min.u32": min,
    "max.u32": max,
    "and.b32": int.__and__,
    "or.b32": int.__or__,
    "xor.b32": int.__xor__,
    "exch.b32": lambda _, y: y,
    "inc.u32": lambda x, y: 0 if x >= y else x + 1,
    "dec.u32": lambda x, y: y if x == 0 or x > y else x - 1,
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_atomics(ptx: Interpreter, name: str) -> None:
    rng = random.Random(name)
    numbers = [rng.getrandbits(5) + 1 for _ in range(32)]
    text = f"""
.visible .entry k(.param .u64 in, .param .u64 sum, .param .u64 out) {{
.reg .u64 %a, %s, %o; .reg .u32 %t, %v;
ld.param.u64 %a, [in]; ld.param.u64 %s, [sum]; ld.param.u64 %o, [out]; mov.u32 %t, %tid.x;
mad.wide.u32 %a, %t, 4, %a; mad.wide.u32 %o, %t, 4, %o; ld.global.u32 %v, [%a];
atom.global.{name} %v, [%s], %v; st.global.u32 [%o], %v; ret; }}
"""
    _, total, out = ptx.run_kernel(
        text, struct.pack("<32I", *numbers), struct.pack("<I", 13), bytes(128), block=(32, 1, 1)
    )
    state, old_values = 13, []
    for number in numbers:
        old_values.append(state)
        state = OPERATIONS[name](state, number) % (1 << 32)
    assert (list(struct.unpack("<32I", out)), struct.unpack("<I", total)[0]) == (old_values, state)


def test_atomics_on_other_types(ptx: Interpreter) -> None:
    text = """
.shared .align 4 .b8 word[4];
.visible .entry k(.param .u64 m) {
.reg .u64 %m, %v; .reg .b32 %h; .reg .b16 %c; ld.param.u64 %m, [m];
red.global.add.f64 [%m], 0d3FF0000000000000;
red.relaxed.gpu.global.add.f32 [%m+8], 0f3F800000;
mov.b32 %h, 0x40003C00; atom.global.add.noftz.f16x2 %h, [%m+12], %h;
atom.global.min.s64 %v, [%m+16], -5;
mov.b16 %c, 7; atom.global.cas.b16 %c, [%m+24], %c, 9;
atom.shared.add.u32 %h, [word], 1; ret; }
"""
    memory = struct.pack("<dfIqHH", 1.5, 0.25, 0x3C003C00, 3, 7, 0) + bytes(4)
    out = ptx.run_kernel(text, memory, block=(2, 1, 1))[0]
    double, single, pair, least, swapped, _ = struct.unpack("<dfIqHH", out[:28])
    assert (double, single, pair, least, swapped) == (3.5, 2.25, 0x45004200, -5, 9)


def test_function_calls_by_name_and_by_address(ptx: Interpreter) -> None:
    text = """
.func (.param .b32 r) twice(.param .b32 x) {
.reg .u32 %x; ld.param.u32 %x, [x]; shl.b32 %x, %x, 1; st.param.b32 [r], %x; ret; }
.func (.param .b32 r) thrice(.param .b32 x) {
.reg .u32 %x; ld.param.u32 %x, [x]; mul.lo.u32 %x, %x, 3; st.param.b32 [r], %x; ret; }
.func (.reg .u32 %r) next(.reg .u32 %x) { add.u32 %r, %x, 1; ret; }
.visible .entry k(.param .u64 out) {
.reg .u64 %b, %f, %g; .reg .u32 %t, %x; .reg .pred %p;
ld.param.u64 %b, [out]; mov.u32 %t, %tid.x; mad.wide.u32 %b, %t, 4, %b;
and.b32 %x, %t, 1; setp.eq.u32 %p, %x, 1; mov.u64 %f, twice; mov.u64 %g, thrice; selp.b64 %f, %g, %f, %p;
{ .param .b32 a0; .param .b32 r0; st.param.b32 [a0+0], %t;
proto: .callprototype (.param .b32 _) _ (.param .b32 _);
call (r0), %f, (a0), proto;
ld.param.b32 %x, [r0+0]; }
call (%x), next, (%x);
st.global.u32 [%b], %x; ret; }
"""
    out = ptx.run_kernel(text, bytes(128), block=(32, 1, 1))[0]
    assert list(struct.unpack("<32I", out)) == [i * (3 if i % 2 else 2) + 1 for i in range(32)]


def test_scopes_loops_and_branch_tables(ptx: Interpreter) -> None:
    body = """
    mov.u32 %d, 0; mov.u32 %x, %t;
    $top: setp.eq.u32 %p, %x, 0; @%p bra $end; add.u32 %d, %d, %x; sub.u32 %x, %x, 1; bra.uni $top;
    $end: { .reg .pred %p; .reg .b32 %d2;
    setp.lt.u32 %p, %t, 16; @%p bra $in; mov.u32 %d2, 5; add.u32 %d, %d, %d2; $in: }
    { .reg .pred %p; setp.lt.u32 %p, %t, 8; @%p bra $in; add.u32 %d, %d, 1000; $in: }
    and.b32 %x, %t, 3; brx.idx %x, $table;
    $table: .branchtargets $zero, $one, $two, $zero;
    $one: add.u32 %d, %d, 100000; bra $done;
    $two: add.u32 %d, %d, 200000; bra $done;
    $zero: add.u32 %d, %d, 300000;
    $done:
    """
    results = ptx.run_lanes(body, "b32", {"a": ("b32", [0] * 32)}, declare=".reg .b32 %x; .reg .pred %p;")
    jumps = [300000, 100000, 200000, 300000]
    assert results == [i * (i + 1) // 2 + 5 * (i >= 16) + 1000 * (i >= 8) + jumps[i % 4] for i in range(32)]


def test_special_registers_of_a_thread(ptx: Interpreter) -> None:
    text = """
.visible .entry k(.param .u64 out) {
.reg .u64 %b; .reg .u32 %x, %y, %z, %i, %n, %m;
ld.param.u64 %b, [out];
mov.u32 %x, %tid.x; mov.u32 %y, %tid.y; mov.u32 %z, %tid.z; mov.u32 %n, %ntid.x; mov.u32 %m, %ntid.y;
mad.lo.u32 %i, %z, %m, %y; mad.lo.u32 %i, %i, %n, %x;
mov.u32 %n, %ctaid.y; mov.u32 %m, %nctaid.x; mov.u32 %z, %ctaid.x; mad.lo.u32 %n, %n, %m, %z; mad.lo.u32 %n, %n, 60, %i;
mad.wide.u32 %b, %n, 8, %b; mov.u32 %x, %laneid; mov.u32 %y, %lanemask_lt; st.global.v2.u32 [%b], {%x, %y}; ret; }
"""
    out = struct.unpack("<720I", ptx.run_kernel(text, bytes(2880), grid=(3, 2, 1), block=(5, 4, 3))[0])
    assert list(out[::2]) == [i % 60 % 32 for i in range(360)]
    assert list(out[1::2]) == [(1 << (i % 60 % 32)) - 1 for i in range(360)]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("tensormap.replace.tile.rank.global.b1024.b32 [%b], 2;", "801 cannot run tensormap.replace"),
        ("add.rn.f32x2 %b, %b, %b;", "801 cannot run add.rn.f32x2"),
        ("mul.lo.frob.u32 %x, %x, %x;", r"801 cannot run mul.lo.frob.u32 .*\.frob"),
        ("add.u32 %x, %x, %nowhere;", "801 cannot run add.u32 .*%nowhere"),
        ("tex.2d.v4.f32.s32 {%x, %x, %x, %x}, [tex, {%x, %x}];", "801 cannot run tex.2d"),
        ("bra $nowhere;", r"801 cannot run bra \$nowhere"),
        ("trap;", "719 a trap"),
        ("mov.u64 %b, 0; ld.global.u32 %x, [%b];", "700 a null address"),
        ("ld.shared.u32 %x, [8];", "700 an address outside"),
        ("call.uni elsewhere, ();", "801 cannot run call.uni elsewhere"),
        ("call.uni again, ();", "801 cannot run recursion"),
        ("call.uni __assertfail, ();", "710 an assertion"),
        ("mov.b128 %x, {%b, %b};", "801 cannot run mov.b128"),
        ("cvt.s32.f32 %x, %x;", "801 cannot run cvt.s32.f32"),
    ],
)
def test_unsupported_instruction_is_named(ptx: Interpreter, body: str, why: str) -> None:
    header = ".extern .func elsewhere();\n.extern .func __assertfail();\n.func again() { call.uni again, (); ret; }\n"
    start = ".visible .entry k(.param .u64 out) { .reg .u64 %b; .reg .u32 %x; .reg .pred %p;"
    start += " ld.param.u64 %b, [out]; setp.eq.u32 %p, 0, 1;"
    with pytest.raises(RefusedError, match=f"^{why}"):
        ptx.run_kernel(f"{header}{start} {body} ret; }}", bytes(8))
    # If no lane reaches it, it does not matter.
    first = body.split(";")[-2].strip()
    assert ptx.run_kernel(f"{header}{start} @%p {first}; ret; }}", bytes(8)) == [bytes(8)]


def test_text_that_is_not_ptx_is_rejected(ptx: Interpreter) -> None:
    for text in (
        ".version 8.0\nhello",
        ".version 8.0\n.visible .entry k( {",
        ".version 8.0\n.target sm_90\n.entry k() { add",
    ):
        with pytest.raises(RefusedError, match=r"^(801 cannot run PTX|500)"):
            ptx.run_kernel(text)


def test_kernel_for_a_newer_gpu_is_rejected(ptx: Interpreter) -> None:
    with pytest.raises(RefusedError, match=r"^209"):
        ptx.run_kernel(".version 9.9\n.target sm_130\n.address_size 64\n.visible .entry k() { ret; }")
