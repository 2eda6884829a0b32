"""Integer and bit instructions of PTX, one by one, compared with Python's results."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.softgpu import Interpreter

pytestmark = pytest.mark.few(0)  # compiling the interpreter alone takes ten seconds

INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")


def bit_width(kind: str) -> int:
    return int(kind[1:])


def interpret(value: int, kind: str) -> int:
    width = bit_width(kind)
    value %= 1 << width
    return value - (1 << width) if kind[0] == "s" and value >> (width - 1) else value


def saturate(value: int, kind: str) -> int:
    width = bit_width(kind)
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if kind[0] == "s" else (0, (1 << width) - 1)
    return min(max(value, low), high)


def sample_numbers(width: int, seed: str, count: int = 60) -> list[int]:
    rng = random.Random(f"{width} {seed}")
    edges = [0, 1, 2, (1 << width) - 1, 1 << (width - 1), (1 << (width - 1)) - 1, 3, 10]
    pairs_of_edges = [edge for edge in edges for _ in edges] if seed == "a" else edges * len(edges)
    return pairs_of_edges + [rng.getrandbits(width) >> rng.randrange(width) for _ in range(count)]


def divide(a: int, b: int) -> int:
    """Return the quotient rounded towards zero, or -1 for a division by zero."""
    return -1 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


BINARY: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul.lo": lambda a, b: a * b,
    "div": divide,
    "rem": lambda a, b: a if b == 0 else a - b * divide(a, b),
    "min": min,
    "max": max,
}


@pytest.mark.parametrize("kind", INTEGERS)
@pytest.mark.parametrize("name", BINARY)
def test_arithmetic(ptx: Interpreter, name: str, kind: str) -> None:
    width = bit_width(kind)
    a, b = sample_numbers(width, "a"), sample_numbers(width, "b")
    results = ptx.run_lanes(f"{name}.{kind} %d, %a, %b;", f"b{width}", {"a": (kind, a), "b": (kind, b)})
    expected = [
        BINARY[name](interpret(x, kind), interpret(y, kind)) % (1 << width) for x, y in zip(a, b, strict=True)
    ]
    assert results == expected


@pytest.mark.parametrize("kind", INTEGERS)
def test_high_and_wide_products(ptx: Interpreter, kind: str) -> None:
    width = bit_width(kind)
    a, b = sample_numbers(width, "a"), sample_numbers(width, "b")
    columns = {"a": (kind, a), "b": (kind, b)}
    products = [interpret(x, kind) * interpret(y, kind) for x, y in zip(a, b, strict=True)]
    results = ptx.run_lanes(f"mul.hi.{kind} %d, %a, %b;", f"b{width}", columns)
    assert results == [(p >> width) % (1 << width) for p in products]
    if width < 64:
        results = ptx.run_lanes(f"mul.wide.{kind} %d, %a, %b;", f"b{2 * width}", columns)
        assert results == [p % (1 << 2 * width) for p in products]


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_multiply_add(ptx: Interpreter, kind: str) -> None:
    width = bit_width(kind)
    a, b = sample_numbers(width, "a"), sample_numbers(width, "b")
    c = sample_numbers(width, "c")
    columns = {"a": (kind, a), "b": (kind, b), "c": (kind, c)}
    products = [interpret(x, kind) * interpret(y, kind) for x, y in zip(a, b, strict=True)]
    results = ptx.run_lanes(f"mad.lo.{kind} %d, %a, %b, %c;", f"b{width}", columns)
    assert results == [(p + z) % (1 << width) for p, z in zip(products, c, strict=True)]
    results = ptx.run_lanes(f"mad.hi.{kind} %d, %a, %b, %c;", f"b{width}", columns)
    assert results == [((p >> width) + z) % (1 << width) for p, z in zip(products, c, strict=True)]
    if width == 32:
        wide = sample_numbers(64, "c")
        results = ptx.run_lanes(f"mad.wide.{kind} %d, %a, %b, %c;", "b64", {**columns, "c": ("b64", wide)})
        assert results == [(p + z) % (1 << 64) for p, z in zip(products, wide, strict=True)]


def test_saturated_sums(ptx: Interpreter) -> None:
    a, b = sample_numbers(32, "a"), sample_numbers(32, "b")
    columns = {"a": ("s32", a), "b": ("s32", b)}
    pairs = [(interpret(x, "s32"), interpret(y, "s32")) for x, y in zip(a, b, strict=True)]
    for name, expected in (("add", [x + y for x, y in pairs]), ("sub", [x - y for x, y in pairs])):
        results = ptx.run_lanes(f"{name}.sat.s32 %d, %a, %b;", "b32", columns)
        assert results == [saturate(number, "s32") % (1 << 32) for number in expected]
    results = ptx.run_lanes("mad.hi.sat.s32 %d, %a, %b, %a;", "b32", columns)
    assert results == [saturate((x * y >> 32) + x, "s32") % (1 << 32) for x, y in pairs]


def test_products_of_24_bits(ptx: Interpreter) -> None:
    def low_bits(value: int, kind: str) -> int:
        value &= 0xFFFFFF
        return value - (1 << 24) if kind == "s32" and value >> 23 else value

    a, b = sample_numbers(32, "a"), sample_numbers(32, "b")
    for kind in ("u32", "s32"):
        columns = {"a": (kind, a), "b": (kind, b)}
        products = [low_bits(x, kind) * low_bits(y, kind) for x, y in zip(a, b, strict=True)]
        results = ptx.run_lanes(f"mul24.lo.{kind} %d, %a, %b;", "b32", columns)
        assert results == [p % (1 << 32) for p in products]
        results = ptx.run_lanes(f"mul24.hi.{kind} %d, %a, %b;", "b32", columns)
        assert results == [(p >> 16) % (1 << 32) for p in products]
        results = ptx.run_lanes(f"mad24.lo.{kind} %d, %a, %b, 7;", "b32", columns)
        assert results == [(p + 7) % (1 << 32) for p in products]


@pytest.mark.parametrize("width", [32, 64])
def test_carry_between_words(ptx: Interpreter, width: int) -> None:
    """Compute sums, differences and a product of numbers of three words."""
    kind, size = f"b{width}", 1 << width
    rows = 150
    values = {name: sample_numbers(width, "a" if name in "ace" else "b")[:rows] for name in "abcdef"}
    values = {
        name: (number * 4)[:rows][i:] + (number * 4)[:rows][:i]
        for i, (name, number) in enumerate(values.items())
    }
    columns = {f"x{name}": (kind, number) for name, number in values.items()}

    def combine(*names: str) -> list[int]:
        return [sum(values[name][row] << (width * i) for i, name in enumerate(names)) for row in range(rows)]

    minuends, subtrahends = combine("a", "b", "c"), combine("d", "e", "f")
    for name, sums in (
        ("add", map(int.__add__, minuends, subtrahends)),
        ("sub", map(int.__sub__, minuends, subtrahends)),
    ):
        expected = list(sums)
        for word in range(3):
            body = (
                f"{name}.cc.u{width} %w0, %xa, %xd; {name}c.cc.u{width} %w1, %xb, %xe;"
                f" {name}c.u{width} %w2, %xc, %xf; mov.b{width} %d, %w{word};"
            )
            results = ptx.run_lanes(body, kind, columns, declare=f".reg .b{width} %w<3>;")
            assert results == [(number >> (width * word)) % size for number in expected]
    body = (
        f"mul.lo.u{width} %w0, %xa, %xd; mul.hi.u{width} %w1, %xa, %xd;"
        f" mad.lo.cc.u{width} %w1, %xb, %xd, %w1; madc.hi.u{width} %d, %xb, %xd, 0;"
    )
    results = ptx.run_lanes(body, kind, columns, declare=f".reg .b{width} %w<3>;")
    pairs = zip(combine("a", "b"), values["d"], strict=True)
    assert results == [(x * y >> (2 * width)) % size for x, y in pairs]


@pytest.mark.parametrize("width", [32, 64])
def test_unary_instructions(ptx: Interpreter, width: int) -> None:
    a = sample_numbers(width, "a")
    kind, top = f"b{width}", (1 << width) - 1

    def find_top_bit(value: int, *, sign: bool) -> int:
        if sign and value >> (width - 1):
            value ^= top
        return value.bit_length() - 1 if value else 0xFFFFFFFF

    def shift_amount(value: int) -> int:
        position = find_top_bit(value, sign=False)
        return position if position == 0xFFFFFFFF else width - 1 - position

    cases: list[tuple[str, str, Callable[[int], int]]] = [
        (f"not.{kind}", kind, lambda v: v ^ top),
        (f"cnot.{kind}", kind, lambda v: int(v == 0)),
        (f"popc.{kind}", "b32", int.bit_count),
        (f"clz.{kind}", "b32", lambda v: width - v.bit_length()),
        (f"brev.{kind}", kind, lambda v: int(f"{v:0{width}b}"[::-1], 2)),
        (f"abs.s{width}", kind, lambda v: abs(interpret(v, f"s{width}")) & top),
        (f"neg.s{width}", kind, lambda v: -v & top),
        (f"bfind.u{width}", "b32", lambda v: find_top_bit(v, sign=False)),
        (f"bfind.s{width}", "b32", lambda v: find_top_bit(v, sign=True)),
        (f"bfind.shiftamt.u{width}", "b32", shift_amount),
    ]
    for name, result, expected in cases:
        results = ptx.run_lanes(f"{name} %d, %a;", result, {"a": (kind, a)})
        assert results == [expected(number) for number in a], name


@pytest.mark.parametrize("width", [16, 32, 64])
def test_shifts_and_logic(ptx: Interpreter, width: int) -> None:
    a, b = sample_numbers(width, "a"), sample_numbers(width, "b")
    n = [0, 1, 31, 32, 33, 63, 64, 65, 255, 1 << 31] * len(a)
    n = n[: len(a)]
    top = (1 << width) - 1
    columns = {"a": (f"b{width}", a), "b": (f"b{width}", b), "n": ("u32", n)}
    pairs = list(zip(a, b, n, strict=True))
    s = f"s{width}"
    for body, expected in {
        f"and.b{width} %d, %a, %b;": [x & y for x, y, _ in pairs],
        f"or.b{width} %d, %a, %b;": [x | y for x, y, _ in pairs],
        f"xor.b{width} %d, %a, %b;": [x ^ y for x, y, _ in pairs],
        f"shl.b{width} %d, %a, %n;": [x << min(z, 64) & top for x, _, z in pairs],
        f"shr.u{width} %d, %a, %n;": [x >> min(z, 64) for x, _, z in pairs],
        f"shr.s{width} %d, %a, %n;": [interpret(x, s) >> min(z, 64) & top for x, _, z in pairs],
    }.items():
        assert ptx.run_lanes(body, f"b{width}", columns) == expected, body


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_bit_fields(ptx: Interpreter, kind: str) -> None:
    width = bit_width(kind)
    rng = random.Random(kind)
    a = [rng.getrandbits(width) for _ in range(200)]
    b = [rng.getrandbits(width) for _ in a]
    position = [rng.choice([0, 1, 5, width - 1, width, 70, 255, 300]) for _ in a]
    count = [rng.choice([0, 1, 4, width - 1, width, 64, 255]) for _ in a]

    def extract_field(value: int, pos: int, n: int) -> int:
        pos, n = pos & 255, n & 255
        sign = (value >> min(pos + n - 1, width - 1)) & 1 if kind[0] == "s" and n else 0
        return sum(
            ((value >> (pos + i) & 1) if i < n and pos + i < width else sign) << i for i in range(width)
        )

    def insert_field(x: int, y: int, pos: int, n: int) -> int:
        for i in range(n & 255):
            if (pos & 255) + i < width:
                bit = 1 << ((pos & 255) + i)
                y = y & ~bit | (bit if x >> i & 1 else 0)
        return y

    columns = {"a": (kind, a), "b": (kind, b), "p": ("u32", position), "c": ("u32", count)}
    rows = list(zip(a, b, position, count, strict=True))
    results = ptx.run_lanes(f"bfe.{kind} %d, %a, %p, %c;", f"b{width}", columns)
    assert results == [extract_field(x, p, n) for x, _, p, n in rows]
    results = ptx.run_lanes(f"bfi.b{width} %d, %a, %b, %p, %c;", f"b{width}", columns)
    assert results == [insert_field(x, y, p, n) for x, y, p, n in rows]


def test_permutation_of_bytes(ptx: Interpreter) -> None:
    rng = random.Random(4)
    a, b, c = ([rng.getrandbits(32) for _ in range(200)] for _ in range(3))

    def permute_bytes(x: int, y: int, picks: list[int], signs: list[int]) -> int:
        both = (x | y << 32).to_bytes(8, "little")
        permuted = [both[p] if not s else 255 * (both[p] >> 7) for p, s in zip(picks, signs, strict=True)]
        return int.from_bytes(bytes(permuted), "little")

    modes: dict[str, Callable[[int], list[int]]] = {
        ".f4e": lambda s: [s + i for i in range(4)],
        ".b4e": lambda s: [(s - i) % 8 for i in range(4)],
        ".rc8": lambda s: [s] * 4,
        ".ecl": lambda s: [max(s, i) for i in range(4)],
        ".ecr": lambda s: [min(s, i) for i in range(4)],
        ".rc16": lambda s: [0, 1, 0, 1] if s % 2 == 0 else [2, 3, 2, 3],
        "": lambda _: [],
    }
    columns = {"a": ("b32", a), "b": ("b32", b), "c": ("b32", c)}
    for mode, picks in modes.items():
        results = ptx.run_lanes(f"prmt.b32{mode} %d, %a, %b, %c;", "b32", columns)
        for x, y, z, result in zip(a, b, c, results, strict=True):
            selected = picks(z & 3) or [z >> (4 * i) & 7 for i in range(4)]
            signs = [0] * 4 if mode else [z >> (4 * i + 3) & 1 for i in range(4)]
            assert result == permute_bytes(x, y, selected, signs), mode


def test_funnel_shifts_lop3_and_selection(ptx: Interpreter) -> None:
    a, b = sample_numbers(32, "a"), sample_numbers(32, "b")
    n = ([0, 1, 17, 31, 32, 33, 64] * len(a))[: len(a)]
    columns = {"a": ("b32", a), "b": ("b32", b), "n": ("u32", n)}
    rows = [(y << 32 | x, z) for x, y, z in zip(a, b, n, strict=True)]
    for body, expected in {
        "shf.l.wrap.b32": [(v << (z & 31)) >> 32 & 0xFFFFFFFF for v, z in rows],
        "shf.r.wrap.b32": [(v >> (z & 31)) & 0xFFFFFFFF for v, z in rows],
        "shf.l.clamp.b32": [(v << min(z, 32)) >> 32 & 0xFFFFFFFF for v, z in rows],
        "shf.r.clamp.b32": [(v >> min(z, 32)) & 0xFFFFFFFF for v, z in rows],
    }.items():
        assert ptx.run_lanes(f"{body} %d, %a, %b, %n;", "b32", columns) == expected, body
    for table in (0xE8, 0x96, 0x1B, 0xF8):
        results = ptx.run_lanes(f"lop3.b32 %d, %a, %b, %n, {table:#x};", "b32", columns)
        for x, y, z, result in zip(a, b, n, results, strict=True):
            bits = [table >> ((x >> i & 1) << 2 | (y >> i & 1) << 1 | (z >> i & 1)) & 1 for i in range(32)]
            assert result == sum(bit << i for i, bit in enumerate(bits))
    results = ptx.run_lanes(
        "setp.lt.u32 %p, %a, %b; selp.b32 %d, %a, %n, %p;", "b32", columns, declare=".reg .pred %p;"
    )
    assert results == [x if x < y else z for x, y, z in zip(a, b, n, strict=True)]
    results = ptx.run_lanes("slct.b32.s32 %d, %a, %n, %b;", "b32", columns)
    assert results == [x if y < 1 << 31 else z for x, y, z in zip(a, b, n, strict=True)]
    results = ptx.run_lanes("sad.s32 %d, %a, %b, %n;", "b32", columns)
    pairs = zip(a, b, n, strict=True)
    assert results == [(abs(interpret(x, "s32") - interpret(y, "s32")) + z) % (1 << 32) for x, y, z in pairs]


def test_dot_products_of_bytes(ptx: Interpreter) -> None:
    a, b = sample_numbers(32, "a"), sample_numbers(32, "b")
    columns = {"a": ("b32", a), "b": ("b32", b)}
    for x_kind in ("u32", "s32"):
        for y_kind in ("u32", "s32"):

            def extract_byte(value: int, i: int, kind: str) -> int:
                return interpret(value >> (8 * i) & 255, f"{kind[0]}8")

            results = ptx.run_lanes(f"dp4a.{x_kind}.{y_kind} %d, %a, %b, 5;", "b32", columns)
            expected = [
                (5 + sum(extract_byte(x, i, x_kind) * extract_byte(y, i, y_kind) for i in range(4)))
                % (1 << 32)
                for x, y in zip(a, b, strict=True)
            ]
            assert results == expected


COMPARES: dict[str, Callable[[int, int], bool]] = {
    "eq": int.__eq__,
    "ne": int.__ne__,
    "lt": int.__lt__,
    "le": int.__le__,
    "gt": int.__gt__,
    "ge": int.__ge__,
}


@pytest.mark.parametrize("kind", INTEGERS)
def test_comparisons_with_boolean_operations(ptx: Interpreter, kind: str) -> None:
    width = bit_width(kind)
    a, b = sample_numbers(width, "a"), sample_numbers(width, "b")
    columns = {"a": (kind, a), "b": (kind, b)}
    pairs = [(interpret(x, kind), interpret(y, kind)) for x, y in zip(a, b, strict=True)]
    for name, compare in COMPARES.items():
        results = ptx.run_lanes(f"setp.{name}.{kind} %d, %a, %b;", "pred", columns)
        assert results == [int(compare(x, y)) for x, y in pairs], name
    odd = f"and.b{width} %o, %a, 1; setp.eq.u{width} %q, %o, 1;"
    for logic, combine in {"and": min, "or": max, "xor": int.__xor__}.items():
        for target, opposite in (("%d|%r", 0), ("%r|%d", 1)):
            results = ptx.run_lanes(
                f"{odd} setp.lt.{logic}.{kind} {target}, %a, %b, !%q;",
                "pred",
                columns,
                declare=f".reg .pred %q, %r; .reg .b{width} %o;",
            )
            expected = [combine(int(x < y) ^ opposite, 1 - (x & 1)) for x, y in pairs]
            assert results == expected, (logic, target)
    if width == 32:
        results = ptx.run_lanes(f"set.lt.u32.{kind} %d, %a, %b;", "b32", columns)
        assert results == [0xFFFFFFFF * (x < y) for x, y in pairs]
        results = ptx.run_lanes(f"set.lt.f32.{kind} %d, %a, %b;", "b32", columns)
        assert results == [0x3F800000 * (x < y) for x, y in pairs]


def test_moves_of_register_parts(ptx: Interpreter) -> None:
    a = sample_numbers(64, "a")
    columns = {"a": ("b64", a)}
    declare = ".reg .b32 %x, %y; .reg .b16 %h<4>;"
    results = ptx.run_lanes("mov.b64 {%x, %y}, %a; mov.b64 %d, {%y, %x};", "b64", columns, declare=declare)
    assert results == [number >> 32 | (number & 0xFFFFFFFF) << 32 for number in a]
    body = "mov.b64 {%h0, %h1, %h2, %h3}, %a; mov.b64 %d, {%h3, %h2, %h1, %h0};"
    results = ptx.run_lanes(body, "b64", columns, declare=declare)
    assert results == [sum((number >> 16 * i & 0xFFFF) << 16 * (3 - i) for i in range(4)) for number in a]
    assert ptx.run_lanes("mov.b64 {%x, _}, %a; mov.b32 %d, %x;", "b32", columns, declare=declare) == [
        number & 0xFFFFFFFF for number in a
    ]
