"""Numbers with a point, exactly: what a rounding must give, computed with fractions."""

from __future__ import annotations

import random
from fractions import Fraction

FORMATS = {"f64": (52, 11), "f32": (23, 8), "f16": (10, 5), "bf16": (7, 8)}
"""Bits of the mantissa and of the exponent."""


def special(kind: str) -> dict[str, int]:
    """The bits of zero, infinity, the least and the largest normal number ... of a type."""
    mantissa, exponent = FORMATS[kind]
    infinity = ((1 << exponent) - 1) << mantissa
    one = ((1 << (exponent - 1)) - 1) << mantissa
    found = {
        "zero": 0,
        "one": one,
        "tiny": 1,
        "subnormal": (1 << mantissa) - 1,
        "normal": 1 << mantissa,
        "largest": infinity - 1,
    }
    return {**found, **{f"-{name}": bits | sign(kind) for name, bits in found.items()}}


def sign(kind: str) -> int:
    """The bit of the sign."""
    return 1 << sum(FORMATS[kind])


def value(bits: int, kind: str) -> Fraction:
    """The number that finite bits are."""
    mantissa, exponent = FORMATS[kind]
    e = (bits >> mantissa) & ((1 << exponent) - 1)
    assert e != (1 << exponent) - 1
    m = bits & ((1 << mantissa) - 1)
    bias = (1 << (exponent - 1)) - 1
    x = Fraction(m | (1 << mantissa) if e else m) * Fraction(2) ** (max(e, 1) - bias - mantissa)
    return -x if bits & sign(kind) else x


def rounded(x: Fraction, kind: str, mode: str = "rn") -> int:
    """The bits of the number that a rounding gives; +0 for 0."""
    mantissa, exponent = FORMATS[kind]
    least = 2 - (1 << (exponent - 1))
    minus, a = x < 0, abs(x)
    e = least
    if a:
        e = max(least, a.numerator.bit_length() - a.denominator.bit_length() - 1)
        while Fraction(2) ** (e + 1) <= a:
            e += 1
    scaled = a / Fraction(2) ** (e - mantissa)
    q, rest = divmod(scaled.numerator, scaled.denominator)
    twice = 2 * rest - scaled.denominator
    up = {
        "rn": twice > 0 or (twice == 0 and q & 1),
        "rz": False,
        "rm": bool(rest) and minus,
        "rp": bool(rest) and not minus,
    }[mode]
    bits = ((e - least) << mantissa) + q + bool(up)
    infinity = ((1 << exponent) - 1) << mantissa
    if bits >= infinity:
        away = mode == "rn" or (mode == "rp" and not minus) or (mode == "rm" and minus)
        bits = infinity if away else infinity - 1
    return bits | (sign(kind) if minus else 0)


def some(kind: str, count: int, seed: str, *, near: bool = False) -> list[int]:
    """Bits of finite numbers, some of them special; `near`: of like size, so that sums are not one of both."""
    chosen = random.Random(f"{kind} {seed}")
    mantissa, exponent = FORMATS[kind]
    bias = (1 << (exponent - 1)) - 1
    found = [] if near else list(special(kind).values())
    chosen.shuffle(found)
    while len(found) < count:
        e = bias + chosen.randint(-mantissa, mantissa) if near else chosen.randrange((1 << exponent) - 1)
        e = min(max(e, 0), (1 << exponent) - 2)
        found.append(
            chosen.getrandbits(1) << (mantissa + exponent) | e << mantissa | chosen.getrandbits(mantissa)
        )
    return found[:count]
