"""The PTX instruction cvt between every two number formats."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest

from lab.exact import FORMATS, list_special_numbers, round_to_bits, sign_bit, some, value

if TYPE_CHECKING:
    from lab.softgpu import Interpreter

pytestmark = pytest.mark.few(0)  # compiling the interpreter alone takes ten seconds

FLOATS = ("f64", "f32", "f16", "bf16")
NARROWER = [(a, b) for a in FLOATS for b in FLOATS if FORMATS[a][0] < FORMATS[b][0]]
INTEGERS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")


def register_type(kind: str) -> str:
    return f"b{sum(FORMATS[kind]) + 1}"


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize(("target", "source"), NARROWER)
def test_conversion_to_a_narrower_float(ptx: Interpreter, target: str, source: str, mode: str) -> None:
    a = some(source, 100, mode) + some(source, 100, mode, near=True)
    # values half way between two results, and their neighbours
    one = list_special_numbers(source)["one"]
    step = 1 << (FORMATS[source][0] - FORMATS[target][0])
    a += [one + step // 2 * k + d for k in range(8) for d in (-1, 0, 1)]
    results = ptx.run_lanes(
        f"cvt.{mode}.{target}.{source} %d, %a;", register_type(target), {"a": (source, a)}
    )
    for x, y in zip(a, results, strict=True):
        expected = round_to_bits(value(x, source), target, mode) | (
            sign_bit(target) if x & sign_bit(source) else 0
        )
        assert y == expected, (hex(x), hex(y), hex(expected))


def test_conversion_to_a_wider_float(ptx: Interpreter) -> None:
    for kind in ("f16", "bf16"):
        a = [
            bits_
            for bits_ in range(0, 1 << 16, 7)
            if (bits_ >> FORMATS[kind][0]) % (1 << FORMATS[kind][1]) != (1 << FORMATS[kind][1]) - 1
        ]
        results = ptx.run_lanes(f"cvt.f32.{kind} %d, %a;", "b32", {"a": (kind, a)})
        assert [value(bits_, "f32") for bits_ in results] == [value(bits_, kind) for bits_ in a]


@pytest.mark.parametrize("mode", ["rni", "rzi", "rmi", "rpi"])
@pytest.mark.parametrize("source", ["f32", "f64", "f16"])
def test_conversion_to_integers(ptx: Interpreter, source: str, mode: str) -> None:
    exact = [Fraction(n, 4) for n in range(-12, 13)] + [
        Fraction(n) for n in (127, 128, -128, -129, 255, 256, 300, 40000, -40000)
    ]
    if source != "f16":
        exact += [Fraction(2) ** k * s for k in (31, 32, 62, 63, 64, 70) for s in (1, -1)]
    a = [round_to_bits(number, source) for number in exact]
    exact = [value(number, source) for number in a]
    integers = {
        "rni": [round(x) for x in exact],
        "rzi": [math.trunc(x) for x in exact],
        "rmi": [math.floor(x) for x in exact],
        "rpi": [math.ceil(x) for x in exact],
    }[mode]
    for target in INTEGERS:
        width = int(target[1:])
        low, high = (
            (-(1 << (width - 1)), (1 << (width - 1)) - 1) if target[0] == "s" else (0, (1 << width) - 1)
        )
        result = f"b{max(width, 16)}"
        results = ptx.run_lanes(f"cvt.{mode}.{target}.{source} %d, %a;", result, {"a": (source, a)})
        expected = [min(max(number, low), high) for number in integers]
        assert results == [number % (1 << int(result[1:])) for number in expected], target
    results = ptx.run_lanes(
        f"cvt.{mode}.{source}.{source} %d, %a;", register_type(source), {"a": (source, a)}
    )
    assert [value(number, source) for number in results] == integers


def test_conversion_of_nan_to_integers(ptx: Interpreter) -> None:
    f32 = {"a": ("f32", [0x7FC00000])}
    f64 = {"a": ("f64", [0x7FF8000000000000])}
    assert ptx.run_lanes("cvt.rzi.s32.f32 %d, %a;", "b32", f32) == [0]
    assert ptx.run_lanes("cvt.rzi.u64.f32 %d, %a;", "b64", f32) == [1 << 63]
    assert ptx.run_lanes("cvt.rzi.s64.f32 %d, %a;", "b64", f32) == [1 << 63]
    assert ptx.run_lanes("cvt.rzi.s32.f64 %d, %a;", "b32", f64) == [1 << 31]


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_conversion_from_integers(ptx: Interpreter, mode: str) -> None:
    for source in ("u16", "s16", "u32", "s32", "u64", "s64"):
        width = int(source[1:])
        a = [0, 1, (1 << width) - 1, 1 << (width - 1), (1 << (width - 1)) - 1, 12345]
        a += [(1 << k) + d for k in range(10, width - 1, 5) for d in (1, 3)]
        numbers = [x - (1 << width) if source[0] == "s" and x >> (width - 1) else x for x in a]
        for target in FLOATS:
            if mode != "rn" and target == "bf16":
                continue
            results = ptx.run_lanes(
                f"cvt.{mode}.{target}.{source} %d, %a;", register_type(target), {"a": (source, a)}
            )
            assert results == [round_to_bits(Fraction(number), target, mode) for number in numbers], (
                target,
                source,
            )


@pytest.mark.parametrize("source", INTEGERS)
def test_conversion_between_integers(ptx: Interpreter, source: str) -> None:
    width = int(source[1:])
    a = [0, 1, (1 << width) - 1, 1 << (width - 1), (1 << (width - 1)) - 1, 100]
    numbers = [x - (1 << width) if source[0] == "s" and x >> (width - 1) else x for x in a]
    for target in INTEGERS:
        size = int(target[1:])
        low, high = (-(1 << (size - 1)), (1 << (size - 1)) - 1) if target[0] == "s" else (0, (1 << size) - 1)

        def extend_register(x: int, size: int = size, target: str = target) -> int:
            """Return the register: a result of 8 bits is sign-extended to 16."""
            x %= 1 << size
            if target == "s8" and x >> 7:
                x -= 1 << 8
            return x % (1 << max(size, 16))

        result = f"b{max(size, 16)}"
        results = ptx.run_lanes(f"cvt.{target}.{source} %d, %a;", result, {"a": (source, a)})
        assert results == [extend_register(number) for number in numbers], target
        results = ptx.run_lanes(f"cvt.sat.{target}.{source} %d, %a;", result, {"a": (source, a)})
        assert results == [extend_register(min(max(number, low), high)) for number in numbers], target


def test_conversion_to_pairs(ptx: Interpreter) -> None:
    one, third, big = 0x3F800000, 0x3EAAAAAB, 0x7F000000
    columns = {"a": ("f32", [one, third, big]), "b": ("f32", [third, one, third])}
    exact = [
        (value(x, "f32"), value(y, "f32")) for x, y in zip(columns["a"][1], columns["b"][1], strict=True)
    ]
    for kind in ("f16", "bf16"):
        results = ptx.run_lanes(f"cvt.rn.{kind}x2.f32 %d, %a, %b;", "b32", columns)
        assert results == [round_to_bits(x, kind) << 16 | round_to_bits(y, kind) for x, y in exact]
    results = ptx.run_lanes("cvt.rn.satfinite.e4m3x2.f32 %d, %a, %b;", "b16", columns)
    assert results == [0x382B, 0x2B38, 0x7E2B]
    results = ptx.run_lanes("cvt.rn.satfinite.e5m2x2.f32 %d, %a, %b;", "b16", columns)
    assert results == [0x3C35, 0x353C, 0x7B35]
    results = ptx.run_lanes("cvt.rn.f16x2.e4m3x2 %d, %a;", "b32", {"a": ("b16", [0x382C, 0x7F80])})
    assert results == [0x3C00 << 16 | 0x3600, 0x7FFF << 16 | 0x8000]
    results = ptx.run_lanes(
        "cvt.rna.tf32.f32 %d, %a;", "b32", {"a": ("f32", [0x3F801000, 0x3F800FFF, 0xBF801000])}
    )
    assert results == [0x3F802000, 0x3F800000, 0xBF802000]


def test_saturation_relu_and_flush_to_zero(ptx: Interpreter) -> None:
    columns = {"a": ("f32", [0x3F000000, 0xBF000000, 0x40000000, 0x00000001, 0x7FC00000])}
    assert ptx.run_lanes("cvt.sat.f32.f32 %d, %a;", "b32", columns) == [0x3F000000, 0, 0x3F800000, 1, 0]
    assert ptx.run_lanes("cvt.ftz.sat.f32.f32 %d, %a;", "b32", columns)[3] == 0
    assert ptx.run_lanes("cvt.rn.relu.f16.f32 %d, %a;", "b16", columns)[:3] == [0x3800, 0, 0x4000]
