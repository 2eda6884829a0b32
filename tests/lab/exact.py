"""Exact rounding of floating-point numbers, computed with fractions."""

from __future__ import annotations

import random
from fractions import Fraction

FORMATS = {"f64": (52, 11), "f32": (23, 8), "f16": (10, 5), "bf16": (7, 8)}
"""Bits of the mantissa and of the exponent by type."""


def list_special_numbers(kind: str) -> dict[str, int]:
    """Return the bits of special numbers of a type by name: zero, one, subnormal, largest, and their negatives."""
    mantissa, exponent = FORMATS[kind]
    infinity = ((1 << exponent) - 1) << mantissa
    one_bits = ((1 << (exponent - 1)) - 1) << mantissa
    positive = {
        "zero": 0,
        "one": one_bits,
        "tiny": 1,
        "subnormal": (1 << mantissa) - 1,
        "normal": 1 << mantissa,
        "largest": infinity - 1,
    }
    return {**positive, **{f"-{name}": bits | sign_bit(kind) for name, bits in positive.items()}}


def sign_bit(kind: str) -> int:
    """Return the sign bit of a type."""
    return 1 << sum(FORMATS[kind])


def value(bits: int, kind: str) -> Fraction:
    """Return the number that finite bits represent."""
    mantissa, exponent = FORMATS[kind]
    e = (bits >> mantissa) & ((1 << exponent) - 1)
    assert e != (1 << exponent) - 1
    m = bits & ((1 << mantissa) - 1)
    bias = (1 << (exponent - 1)) - 1
    x = Fraction(m | (1 << mantissa) if e else m) * Fraction(2) ** (max(e, 1) - bias - mantissa)
    return -x if bits & sign_bit(kind) else x


def round_to_bits(x: Fraction, kind: str, mode: str = "rn") -> int:
    """Return the bits of the rounded number; +0 for 0."""
    mantissa, exponent = FORMATS[kind]
    min_exponent = 2 - (1 << (exponent - 1))
    is_negative, a = x < 0, abs(x)
    e = min_exponent
    if a:
        e = max(min_exponent, a.numerator.bit_length() - a.denominator.bit_length() - 1)
        while Fraction(2) ** (e + 1) <= a:
            e += 1
    scaled = a / Fraction(2) ** (e - mantissa)
    q, remainder = divmod(scaled.numerator, scaled.denominator)
    twice = 2 * remainder - scaled.denominator
    rounds_up = {
        "rn": twice > 0 or (twice == 0 and q & 1),
        "rz": False,
        "rm": bool(remainder) and is_negative,
        "rp": bool(remainder) and not is_negative,
    }[mode]
    bits = ((e - min_exponent) << mantissa) + q + bool(rounds_up)
    infinity = ((1 << exponent) - 1) << mantissa
    if bits >= infinity:
        overflows = mode == "rn" or (mode == "rp" and not is_negative) or (mode == "rm" and is_negative)
        bits = infinity if overflows else infinity - 1
    return bits | (sign_bit(kind) if is_negative else 0)


def some(kind: str, count: int, seed: str, *, near: bool = False) -> list[int]:
    """Return the bits of `count` finite numbers, some of them special.

    near: choose numbers of similar size, so that a sum depends on both operands.
    """
    generator = random.Random(f"{kind} {seed}")
    mantissa, exponent = FORMATS[kind]
    bias = (1 << (exponent - 1)) - 1
    numbers = [] if near else list(list_special_numbers(kind).values())
    generator.shuffle(numbers)
    while len(numbers) < count:
        e = (
            bias + generator.randint(-mantissa, mantissa)
            if near
            else generator.randrange((1 << exponent) - 1)
        )
        e = min(max(e, 0), (1 << exponent) - 2)
        numbers.append(
            generator.getrandbits(1) << (mantissa + exponent)
            | e << mantissa
            | generator.getrandbits(mantissa)
        )
    return numbers[:count]
