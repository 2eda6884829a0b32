"""Floating-point instructions of PTX, one by one, compared with exact fractions."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING

import pytest

from lab.exact import FORMATS, list_special_numbers, round_to_bits, sign_bit, some, value

if TYPE_CHECKING:
    from collections.abc import Callable
    from fractions import Fraction

    from lab.softgpu import Interpreter

pytestmark = pytest.mark.few(0)  # compiling the interpreter alone takes ten seconds

MODES = ("rn", "rz", "rm", "rp")
NAN = {"f32": 0x7FFFFFFF, "f16": 0x7FFF, "bf16": 0x7FFF}


def f32(bits: int) -> float:
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def b32(number: float) -> int:
    return struct.unpack("<I", struct.pack("<f", number))[0]


def b64(number: float) -> int:
    return struct.unpack("<Q", struct.pack("<d", number))[0]


def register_type(kind: str) -> str:
    return f"b{sum(FORMATS[kind]) + 1}"


def sample_numbers(kind: str, seed: str) -> list[int]:
    return some(kind, 60, seed) + some(kind, 140, seed, near=True)


def assert_same(results: list[int], expected: list[Fraction], kind: str, mode: str) -> None:
    """Compare each result with the correctly rounded value; a zero may have either sign, which other tests check."""
    for bits, exact in zip(results, expected, strict=True):
        correct = round_to_bits(exact, kind, mode)
        assert bits == correct or (exact == 0 and bits & ~sign_bit(kind) == 0), (
            hex(bits),
            hex(correct),
            mode,
        )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_arithmetic_in_each_rounding_mode(ptx: Interpreter, kind: str, mode: str) -> None:
    a, b, c = (sample_numbers(kind, seed) for seed in "abc")
    x, y, z = ([value(bits_, kind) for bits_ in column] for column in (a, b, c))
    columns = {"a": (kind, a), "b": (kind, b), "c": (kind, c)}
    rows = list(zip(x, y, z, strict=True))
    for body, expected in {
        "add": [p + q for p, q, _ in rows],
        "sub": [p - q for p, q, _ in rows],
        "mul": [p * q for p, q, _ in rows],
    }.items():
        assert_same(
            ptx.run_lanes(f"{body}.{mode}.{kind} %d, %a, %b;", register_type(kind), columns),
            expected,
            kind,
            mode,
        )
    results = ptx.run_lanes(f"fma.{mode}.{kind} %d, %a, %b, %c;", register_type(kind), columns)
    assert_same(results, [p * q + r for p, q, r in rows], kind, mode)
    nonzero_b = [bits_ if value(bits_, kind) else list_special_numbers(kind)["one"] for bits_ in b]
    results = ptx.run_lanes(
        f"div.{mode}.{kind} %d, %a, %b;", register_type(kind), {**columns, "b": (kind, nonzero_b)}
    )
    assert_same(results, [p / value(q, kind) for p, q in zip(x, nonzero_b, strict=True)], kind, mode)
    results = ptx.run_lanes(f"rcp.{mode}.{kind} %d, %b;", register_type(kind), {"b": (kind, nonzero_b)})
    assert_same(results, [1 / value(q, kind) for q in nonzero_b], kind, mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_square_roots(ptx: Interpreter, kind: str, mode: str) -> None:
    a = [bits_ & ~sign_bit(kind) for bits_ in sample_numbers(kind, "root")]
    scale = 1 << 2400
    expected = []
    for bits_ in a:
        x = value(bits_, kind)
        n = (x * scale * scale).numerator // (x * scale * scale).denominator
        root = math.isqrt(n)
        # The last digit stands for the remainder, so that the result is rounded correctly.
        expected.append(round_to_bits(type(x)(2 * root + (root * root != n), 2 * scale), kind, mode))
    assert ptx.run_lanes(f"sqrt.{mode}.{kind} %d, %a;", register_type(kind), {"a": (kind, a)}) == expected


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_narrow_floats_are_rounded_once(ptx: Interpreter, kind: str) -> None:
    a, b, c = (sample_numbers(kind, seed) for seed in "abc")
    x, y, z = ([value(bits_, kind) for bits_ in column] for column in (a, b, c))
    columns = {"a": (kind, a), "b": (kind, b), "c": (kind, c)}
    rows = list(zip(x, y, z, strict=True))
    for body, expected in {
        f"add.rn.{kind} %d, %a, %b;": [p + q for p, q, _ in rows],
        f"sub.{kind} %d, %a, %b;": [p - q for p, q, _ in rows],
        f"mul.rn.{kind} %d, %a, %b;": [p * q for p, q, _ in rows],
        f"fma.rn.{kind} %d, %a, %b, %c;": [p * q + r for p, q, r in rows],
    }.items():
        assert_same(ptx.run_lanes(body, "b16", columns), expected, kind, "rn")
    pairs = {
        name: ("b32", [low | high << 16 for low, high in zip(column, column[::-1], strict=True)])
        for name, (_, column) in columns.items()
    }
    results = ptx.run_lanes(f"fma.rn.{kind}x2 %d, %a, %b, %c;", "b32", pairs)
    exact = [p * q + r for p, q, r in rows]
    assert_same([bits_ & 0xFFFF for bits_ in results], exact, kind, "rn")
    assert_same([bits_ >> 16 for bits_ in results], exact[::-1], kind, "rn")


def test_sum_that_a_double_would_round_to_a_tie(ptx: Interpreter) -> None:
    """1 + 2^-8 is half way between two bfloat16 numbers; a much smaller term decides."""
    one, half, little = 0x3F80, 0x3B80, 0x0080
    columns = {"a": ("bf16", [half, half]), "b": ("bf16", [one, one]), "c": ("bf16", [one, one])}
    body = "fma.rn.bf16 %d, %a, %b, %c;"
    assert ptx.run_lanes(body, "b16", columns) == [0x3F80, 0x3F80]
    columns = {"a": ("f16", [0x3C01]), "b": ("f16", [0x3C01]), "c": ("f16", [0x0001])}
    exact = value(0x3C01, "f16") ** 2 + value(1, "f16")
    assert ptx.run_lanes("fma.rn.f16 %d, %a, %b, %c;", "b16", columns) == [round_to_bits(exact, "f16")]
    assert little


@pytest.mark.parametrize("mode", MODES)
def test_zeros_infinities_and_nan(ptx: Interpreter, mode: str) -> None:
    inf, nan, one = 0x7F800000, 0x7FC00001, 0x3F800000
    minus = 0x80000000
    rows = [(0, minus), (minus, minus), (one, one | minus), (inf, inf | minus), (inf, one), (nan, one)]
    a, b = ([row[i] for row in rows] for i in (0, 1))
    results = ptx.run_lanes(f"add.{mode}.f32 %d, %a, %b;", "b32", {"a": ("f32", a), "b": ("f32", b)})
    zero = minus if mode == "rm" else 0
    assert results == [zero, minus, zero, 0x7FFFFFFF, inf, 0x7FFFFFFF]


def test_flush_to_zero_and_saturation(ptx: Interpreter) -> None:
    tiny, least, half = 0x00400000, 0x00800000, 0x3F000000
    minus = 0x80000000
    a = [tiny, tiny | minus, least, half, half | minus, 0x40000000, 0x7FC00000]
    b = [tiny, 0, half, half, half, half, 0]
    columns = {"a": ("f32", a), "b": ("f32", b)}
    results = ptx.run_lanes("add.ftz.f32 %d, %a, %b;", "b32", columns)
    assert results[:2] == [0, 0]
    results = ptx.run_lanes("mul.ftz.f32 %d, %a, %b;", "b32", columns)
    assert results[2] == 0
    assert ptx.run_lanes("mul.f32 %d, %a, %b;", "b32", columns)[2] == tiny
    results = ptx.run_lanes("add.sat.f32 %d, %a, %b;", "b32", columns)
    assert results[3:] == [0x3F800000, 0, 0x3F800000, 0]
    assert ptx.run_lanes("abs.ftz.f32 %d, %a;", "b32", columns)[:3] == [0, 0, least]
    assert ptx.run_lanes("neg.f32 %d, %a;", "b32", columns) == [bits_ ^ minus for bits_ in a]
    assert ptx.run_lanes("setp.eq.ftz.f32 %d, %a, 0f00000000;", "pred", columns)[:3] == [1, 1, 0]


def test_minimum_and_maximum(ptx: Interpreter) -> None:
    one, two, minus, nan = 0x3F800000, 0x40000000, 0x80000000, 0x7FC00000
    columns = {"a": ("f32", [one, nan, nan, minus, 0]), "b": ("f32", [two | minus, one, nan, 0, minus])}
    assert ptx.run_lanes("min.f32 %d, %a, %b;", "b32", columns) == [
        two | minus,
        one,
        0x7FFFFFFF,
        minus,
        minus,
    ]
    assert ptx.run_lanes("max.f32 %d, %a, %b;", "b32", columns) == [one, one, 0x7FFFFFFF, 0, 0]
    assert ptx.run_lanes("max.NaN.f32 %d, %a, %b;", "b32", columns)[1] == 0x7FFFFFFF
    assert ptx.run_lanes("min.xorsign.abs.f32 %d, %a, %b;", "b32", columns)[0] == one | minus
    half = {"a": ("f16", [0x3C00, 0x7E00]), "b": ("f16", [0x4000, 0x4000])}
    assert ptx.run_lanes("max.f16 %d, %a, %b;", "b16", half) == [0x4000, 0x4000]
    assert ptx.run_lanes("min.NaN.f16 %d, %a, %b;", "b16", half) == [0x3C00, 0x7FFF]


ORDERED: dict[str, Callable[[float, float], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a < b or a > b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


@pytest.mark.parametrize("kind", ["f32", "f64", "f16", "bf16"])
def test_comparisons(ptx: Interpreter, kind: str) -> None:
    numbers = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1.5]
    encode: dict[str, Callable[[float], int]] = {
        "f32": b32,
        "f64": b64,
        "f16": lambda x: struct.unpack("<H", struct.pack("<e", x))[0],
        "bf16": lambda x: b32(x) >> 16,
    }
    rows = [(a, b) for a in numbers for b in numbers]
    columns = {name: (kind, [encode[kind](row[i]) for row in rows]) for i, name in enumerate(("a", "b"))}
    for name, compare in ORDERED.items():
        results = ptx.run_lanes(f"setp.{name}.{kind} %d, %a, %b;", "pred", columns)
        assert results == [int(compare(a, b)) for a, b in rows], name
        results = ptx.run_lanes(f"setp.{name}u.{kind} %d, %a, %b;", "pred", columns)
        assert results == [int(compare(a, b) or math.isnan(a) or math.isnan(b)) for a, b in rows], name
    results = ptx.run_lanes(f"setp.num.{kind} %d, %a, %b;", "pred", columns)
    assert results == [int(not math.isnan(a) and not math.isnan(b)) for a, b in rows]
    results = ptx.run_lanes(f"setp.nan.{kind} %d, %a, %b;", "pred", columns)
    assert results == [int(math.isnan(a) or math.isnan(b)) for a, b in rows]


def test_approximate_functions(ptx: Interpreter) -> None:
    a = [0.5, 1.0, 2.0, 3.75, 10.0, 0.001, 100.0]
    columns = {"a": ("f32", [b32(number) for number in a])}
    inputs = [f32(b32(number)) for number in a]
    functions: dict[str, Callable[[float], float]] = {
        "ex2.approx.f32": lambda x: 2.0**x,
        "lg2.approx.f32": math.log2,
        "sin.approx.f32": math.sin,
        "cos.approx.f32": math.cos,
        "tanh.approx.f32": math.tanh,
        "rsqrt.approx.f32": lambda x: 1 / math.sqrt(x),
        "rcp.approx.ftz.f32": lambda x: 1 / x,
        "sqrt.approx.f32": math.sqrt,
    }
    for name, function in functions.items():
        results = [f32(number) for number in ptx.run_lanes(f"{name} %d, %a;", "b32", columns)]
        assert results == pytest.approx([function(x) for x in inputs], rel=2e-7), name
    edges = {"a": ("f32", [0, 0x80000000, 0x7F800000, 0xBF800000, 0xFF800000])}
    assert ptx.run_lanes("lg2.approx.f32 %d, %a;", "b32", edges) == [
        0xFF800000,
        0xFF800000,
        0x7F800000,
        0x7FFFFFFF,
        0x7FFFFFFF,
    ]
    assert ptx.run_lanes("rsqrt.approx.f32 %d, %a;", "b32", edges)[:3] == [0x7F800000, 0xFF800000, 0]
    assert ptx.run_lanes("ex2.approx.ftz.f32 %d, %a;", "b32", edges)[2:] == [0x7F800000, b32(0.5), 0]
    doubles = {"a": ("f64", [b64(number) for number in a])}
    for got_bits, x in zip(ptx.run_lanes("rcp.approx.ftz.f64 %d, %a;", "b64", doubles), a, strict=True):
        assert got_bits & 0xFFFFFFFF == 0
        assert struct.unpack("<d", struct.pack("<Q", got_bits))[0] == pytest.approx(1 / x, rel=1e-5)
    pair = {"a": ("b32", [0x3C00 | 0x4000 << 16])}
    assert ptx.run_lanes("ex2.approx.f16x2 %d, %a;", "b32", pair) == [0x4000 | 0x4400 << 16]
    assert ptx.run_lanes("div.approx.f32 %d, %a, 0f7F000001;", "b32", columns)[0] == 0
    assert f32(ptx.run_lanes("div.full.f32 %d, %a, 0f40400000;", "b32", columns)[1]) == pytest.approx(1 / 3)


def test_copysign_and_testp(ptx: Interpreter) -> None:
    columns = {"a": ("f32", [0x3F800000, 0xBF800000, 0x7FC00000, 0x7F800000, 1, 0])}
    assert ptx.run_lanes("copysign.f32 %d, 0f80000000, %a;", "b32", columns)[0] == 0xBF800000
    for name, expected in {
        "finite": [1, 1, 0, 0, 1, 1],
        "infinite": [0, 0, 0, 1, 0, 0],
        "number": [1, 1, 0, 1, 1, 1],
        "notanumber": [0, 0, 1, 0, 0, 0],
        "normal": [1, 1, 0, 0, 0, 1],
        "subnormal": [0, 0, 0, 0, 1, 0],
    }.items():
        assert ptx.run_lanes(f"testp.{name}.f32 %d, %a;", "pred", columns) == expected, name
