"""PTX instructions across threads: shuffles, votes and barriers, and how diverged lanes reconverge."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING

import pytest

from lab.softgpu import RefusedError

if TYPE_CHECKING:
    from lab.softgpu import Interpreter

pytestmark = pytest.mark.few(0)  # compiling the interpreter alone takes ten seconds

ALL_LANES = 0xFFFFFFFF
RNG = random.Random(7)
VALUES = [RNG.getrandbits(32) for _ in range(32)]
COLUMN = {"a": ("b32", VALUES)}


def shuffle_lane(kind: str, lane: int, offset: int, clamp: int) -> tuple[int, int]:
    """Return the value and the predicate of a lane, as the PTX reference defines them."""
    limit, segment = clamp & 31, clamp >> 8 & 31
    last, first = (lane & segment) | (limit & ~segment), lane & segment
    source = {
        "up": lane - offset,
        "down": lane + offset,
        "bfly": lane ^ offset,
        "idx": first | (offset & ~segment & 31),
    }[kind]
    inside = source >= last if kind == "up" else source <= last
    return VALUES[source if inside else lane], int(inside)


@pytest.mark.parametrize("kind", ["up", "down", "bfly", "idx"])
@pytest.mark.parametrize("segment", [0, 0x1000, 0x1C00])
def test_shuffles(ptx: Interpreter, kind: str, segment: int) -> None:
    clamp = segment | (0 if kind == "up" else 31)
    for offset in (0, 1, 3, 8, 16, 31):
        expected = [shuffle_lane(kind, lane, offset, clamp) for lane in range(32)]
        body = f"shfl.sync.{kind}.b32 %d|%p, %a, {offset}, {clamp}, -1;"
        assert ptx.run_lanes(body, "b32", COLUMN, declare=".reg .pred %p;") == [item for item, _ in expected]
        body = f"shfl.{kind}.b32 %x|%d, %a, {offset}, {clamp};"
        assert ptx.run_lanes(body, "pred", COLUMN, declare=".reg .b32 %x;") == [item for _, item in expected]


def test_votes(ptx: Interpreter) -> None:
    declare = ".reg .pred %p;"
    ballot = sum(1 << lane for lane, number in enumerate(VALUES) if number & 1)
    odd = "and.b32 %a, %a, 1; setp.eq.u32 %p, %a, 1;"
    assert (
        ptx.run_lanes(f"{odd} vote.sync.ballot.b32 %d, %p, -1;", "b32", COLUMN, declare=declare)
        == [ballot] * 32
    )
    assert (
        ptx.run_lanes(f"{odd} vote.sync.ballot.b32 %d, !%p, -1;", "b32", COLUMN, declare=declare)
        == [ALL_LANES ^ ballot] * 32
    )
    for name, expected in (("all", 0), ("any", 1), ("uni", 0)):
        assert (
            ptx.run_lanes(f"{odd} vote.sync.{name}.pred %d, %p, -1;", "pred", COLUMN, declare=declare)
            == [expected] * 32
        )
        results = ptx.run_lanes(
            f"setp.eq.u32 %p, %a, %a; vote.sync.{name}.pred %d, %p, -1;", "pred", COLUMN, declare=declare
        )
        assert results == [1] * 32
    # Only lanes with an odd value take part.
    results = ptx.run_lanes(
        f"mov.b32 %d, 7; {odd} @%p vote.sync.ballot.b32 %d, %p, {ballot};", "b32", COLUMN, declare=declare
    )
    assert results == [ballot if number & 1 else 7 for number in VALUES]
    results = ptx.run_lanes(f"mov.b32 %d, 7; {odd} @!%p activemask.b32 %d;", "b32", COLUMN, declare=declare)
    assert results == [7 if number & 1 else ALL_LANES ^ ballot for number in VALUES]


def test_matches_and_reductions(ptx: Interpreter) -> None:
    groups = [number % 5 for number in VALUES]
    expected = [sum(1 << i for i, other in enumerate(groups) if other == number) for number in groups]
    results = ptx.run_lanes("match.any.sync.b32 %d, %a, -1;", "b32", {"a": ("b32", groups)})
    assert results == expected
    assert (
        ptx.run_lanes(
            "match.all.sync.b32 %d|%p, %a, -1;", "b32", {"a": ("b32", groups)}, declare=".reg .pred %p;"
        )
        == [0] * 32
    )
    results = ptx.run_lanes(
        "match.all.sync.b64 %d|%p, 5, -1;", "b32", {"a": ("b32", groups)}, declare=".reg .pred %p;"
    )
    assert results == [ALL_LANES] * 32
    # Each group is reduced separately by one instruction.
    signed = [number - (1 << 32) if number >> 31 else number for number in VALUES]
    columns = {"a": ("b32", VALUES), "m": ("b32", expected)}
    for name, function in {"add.u32": sum, "min.s32": min, "max.s32": max}.items():
        results = ptx.run_lanes(f"redux.sync.{name} %d, %a, %m;", "b32", columns)
        by_group = [
            function(x for x, g in zip(signed, groups, strict=True) if g == number) for number in groups
        ]
        assert results == [number % (1 << 32) for number in by_group], name
    results = ptx.run_lanes("elect.sync _|%d, -1;", "pred", COLUMN)
    assert results == [1] + [0] * 31


def test_diverged_lanes_reconverge_at_the_shuffle(ptx: Interpreter) -> None:
    body = """
    and.b32 %x, %t, 3; mov.b32 %d, %a; setp.eq.u32 %p, %x, 0;
    @%p bra $even;
    $loop: add.u32 %d, %d, 1; sub.u32 %x, %x, 1; setp.ne.u32 %p, %x, 0; @%p bra $loop;
    bra $join;
    $even: mov.b32 %d, 100;
    $join: shfl.sync.bfly.b32 %d, %d, 1, 31, -1;
    """
    values = [100 if lane % 4 == 0 else VALUES[lane] + lane % 4 & ALL_LANES for lane in range(32)]
    results = ptx.run_lanes(body, "b32", COLUMN, declare=".reg .b32 %x; .reg .pred %p;")
    assert results == [values[lane ^ 1] for lane in range(32)]


def test_exited_lanes_are_not_waited_for(ptx: Interpreter) -> None:
    body = "setp.gt.u32 %p, %t, 9; @%p exit; vote.sync.ballot.b32 %d, 1, -1;"
    results = ptx.run_lanes(
        body.replace("1, -1", "%q, -1"), "b32", COLUMN, declare=".reg .pred %p, %q; setp.eq.u32 %q, 0, 0;"
    )
    assert results == [(1 << 10) - 1] * 10 + [0] * 22


def test_deadlock_of_lanes_stops_the_kernel(ptx: Interpreter) -> None:
    body = "setp.eq.u32 %p, %t, 0; @%p bra $A; shfl.sync.bfly.b32 %d, %a, 1, 31, -1; bra $B;"
    body += " $A: vote.sync.any.pred %p, %p, -1; $B:"
    with pytest.raises(
        RefusedError, match=r"801 cannot run lanes wait for others that never come: .*(shfl|vote)"
    ):
        ptx.run_lanes(body, "b32", COLUMN, declare=".reg .pred %p;")


BLOCK_SUM = """
.visible .entry k(.param .u64 in, .param .u64 out) {
.reg .u64 %a, %b; .reg .u32 %t, %n, %s, %v, %w, %x; .reg .pred %p;
.shared .align 4 .b8 data[1024];
ld.param.u64 %a, [in]; ld.param.u64 %b, [out];
mov.u32 %t, %tid.x; mov.u32 %n, %ntid.x;
mad.wide.u32 %a, %t, 4, %a; ld.global.u32 %v, [%a];
mov.u32 %s, data; mad.lo.u32 %s, %t, 4, %s; st.shared.u32 [%s], %v;
shr.u32 %w, %n, 1;
$loop: bar.sync 0;
setp.ge.u32 %p, %t, %w; @%p bra $skip;
ld.shared.u32 %v, [%s]; mad.lo.u32 %x, %w, 4, %s; ld.shared.u32 %x, [%x]; add.u32 %v, %v, %x; st.shared.u32 [%s], %v;
$skip: shr.u32 %w, %w, 1; setp.ne.u32 %p, %w, 0; @%p bra $loop;
setp.ne.u32 %p, %t, 0; @%p ret;
st.global.u32 [%b], %v; ret; }
"""


def test_sum_of_a_block_with_barriers(ptx: Interpreter) -> None:
    numbers = [RNG.getrandbits(16) for _ in range(256)]
    out = ptx.run_kernel(BLOCK_SUM, struct.pack("<256I", *numbers), bytes(4), block=(256, 1, 1))[1]
    assert struct.unpack("<I", out)[0] == sum(numbers)


@pytest.mark.parametrize("threads", [33, 40, 64, 100])
def test_barrier_reductions(ptx: Interpreter, threads: int) -> None:
    odd = (threads + 1) // 2
    declare = ".reg .pred %p, %q; .reg .b32 %x;"
    numbers = {"a": ("b32", [i % 2 for i in range(threads)])}
    for name, expected in (("popc.u32", threads - odd), ("and.pred", 0), ("or.pred", 1)):
        kind = "b32" if name == "popc.u32" else "pred"
        body = f"setp.eq.u32 %p, %a, 1; bar.red.{name} %d, 0, %p;"
        assert ptx.run_lanes(body, kind, numbers, declare=declare) == [expected] * threads, name
    body = "setp.lt.u32 %p, %a, 2; barrier.sync 3; bar.red.and.pred %d, 1, %p;"
    assert ptx.run_lanes(body, "pred", numbers, declare=declare) == [1] * threads


def test_barrier_in_a_function_for_some_threads(ptx: Interpreter) -> None:
    text = """
.func wait(.param .b32 n) { .reg .u32 %r; ld.param.u32 %r, [n]; barrier.sync %r, 64; ret; }
.visible .entry k(.param .u64 out) {
.reg .u64 %b; .reg .u32 %t, %v, %s, %w; .reg .pred %p;
.shared .align 4 .b8 data[512];
ld.param.u64 %b, [out]; mov.u32 %t, %tid.x; shr.u32 %w, %t, 6; mul.lo.u32 %s, %t, 4;
st.shared.u32 [%s], %t;
{ .param .b32 p0; st.param.b32 [p0], %w; call.uni wait, (p0); }
xor.b32 %s, %s, 128; ld.shared.u32 %v, [%s];
mad.wide.u32 %b, %t, 4, %b; st.global.u32 [%b], %v; ret; }
"""
    out = ptx.run_kernel(text, bytes(512), block=(128, 1, 1))[0]
    assert list(struct.unpack("<128I", out)) == [i ^ 32 for i in range(128)]


def test_bar_arrive_does_not_wait(ptx: Interpreter) -> None:
    """One warp produces a value, another consumes it."""
    text = """
.visible .entry k(.param .u64 out) {
.reg .u64 %b; .reg .u32 %t, %v; .reg .pred %p; .shared .align 4 .b8 data[4];
ld.param.u64 %b, [out]; mov.u32 %t, %tid.x; setp.ge.u32 %p, %t, 32; @%p bra $take;
st.shared.u32 [data], 42; bar.arrive 1, 64; ret;
$take: bar.sync 1, 64; ld.shared.u32 %v, [data]; st.global.u32 [%b], %v; ret; }
"""
    assert ptx.run_kernel(text, bytes(4), block=(64, 1, 1))[0] == struct.pack("<I", 42)


def test_warp_spins_until_another_warp_writes(ptx: Interpreter) -> None:
    text = """
.visible .entry k(.param .u64 out) {
.reg .u64 %b; .reg .u32 %t, %v; .reg .pred %p;
ld.param.u64 %b, [out]; mov.u32 %t, %tid.x; setp.ge.u32 %p, %t, 32; @%p bra $write;
$spin: ld.volatile.global.u32 %v, [%b]; setp.eq.u32 %p, %v, 0; @%p bra $spin; st.global.u32 [%b+4], %v; ret;
$write: st.global.u32 [%b], 9; ret; }
"""
    assert ptx.run_kernel(text, bytes(8), block=(64, 1, 1))[0] == struct.pack("<2I", 9, 9)


def test_lock_between_lanes_of_one_warp(ptx: Interpreter) -> None:
    """The holder continues after the loop in which the others wait: the waiting lanes must not always run first."""
    text = """
.visible .entry k(.param .u64 out) {
.reg .u64 %b; .reg .u32 %v; .reg .pred %p; ld.param.u64 %b, [out];
$spin: atom.global.cas.b32 %v, [%b], 0, 1; setp.ne.u32 %p, %v, 0; @%p bra $spin;
ld.global.u32 %v, [%b+4]; add.u32 %v, %v, 1; st.global.u32 [%b+4], %v;
membar.gl; atom.global.exch.b32 %v, [%b], 0; ret; }
"""
    assert ptx.run_kernel(text, bytes(8), block=(32, 1, 1))[0] == struct.pack("<2I", 0, 32)
