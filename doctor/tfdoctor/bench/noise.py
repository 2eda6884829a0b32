"""How far times lie apart: within a piece of work, and from round to round. Pure."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

from tfdoctor.bench.models import Seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tfdoctor.bench.models import Timed

__all__ = ["MIN_PIECES", "SHORT_PIECE_S", "interval", "longer", "sway", "unsteadiness"]

MIN_TIMES = 6
"""Times without which no interval of 95 % can be given for a median: 1 - 2 * 0.5**6 is 97 %. Rounds without which
nothing is said of how a machine's speed changes from one to the next."""

STUDENT = (2.571, 2.447, 2.365)
"""Student's t of 95 %, two-sided, for 6, 7, and 8 rounds (5 to 7 degrees of freedom)."""

SHORT_PIECE_S = 1e-3
"""Seconds. What is shorter differs from process to process, which no times of one process show: it says nothing of a
whole run where longer pieces of work were timed."""
MIN_PIECES = 3
"""Pieces without which nothing is said of a whole run."""


def interval(times: Sequence[float], rounds: Sequence[float | None] = ()) -> Seconds | None:
    """By the order statistics of the times, whatever their distribution is; below `MIN_TIMES` times all of their range.

    The ranks are those of a binomial distribution of p = 1/2, as its normal approximation gives them, rounded outwards.
    Times of one round are alike where the machine's own speed changes, so the interval is at least as wide as the one
    that the medians of the `rounds` give, by Student's t of their logarithms.
    """
    ordered = sorted(times)
    count = len(ordered)
    if not count:
        return None
    middle = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
    if count < MIN_TIMES:
        return Seconds(middle, ordered[0], ordered[-1])
    away = 1.96 * math.sqrt(count) / 2
    low, high = math.floor(count / 2 - away) - 1, math.ceil(count / 2 + away)
    apart, known = sway(rounds), sum(one is not None for one in rounds)
    wide = 1.0
    if apart is not None:
        wide = math.exp(STUDENT[min(known - MIN_TIMES, len(STUDENT) - 1)] * apart / math.sqrt(known))
    return Seconds(
        middle, min(ordered[max(low, 0)], middle / wide), max(ordered[min(high, count - 1)], middle * wide)
    )


def sway(rounds: Sequence[float | None]) -> float | None:
    """Return the standard deviation of the logarithms: 0.1 is 10 % up and down from round to round.

    None: too few rounds.
    """
    logs = [math.log(one) for one in rounds if one is not None]
    return statistics.stdev(logs) if len(logs) >= MIN_TIMES else None


def longer(pieces: Iterable[Timed]) -> list[Timed]:
    """Return the pieces of work of `SHORT_PIECE_S` and more, at least the `MIN_PIECES` longest; the longest first."""
    ordered = sorted(
        (one for one in pieces if one.seconds), key=lambda one: -one.seconds.median if one.seconds else 0.0
    )
    return [
        one
        for place, one in enumerate(ordered)
        if place < MIN_PIECES or (one.seconds is not None and one.seconds.median >= SHORT_PIECE_S)
    ]


def unsteadiness(pieces: Iterable[Timed]) -> float | None:
    """Return how far all longer work together went up and down from round to round, as `sway` has it.

    None: not known.

    What one piece does by itself is not in it: each round has the median of all pieces' deviations.
    """
    known = [one for one in longer(pieces) if sway(one.rounds) is not None]
    if len(known) < MIN_PIECES:
        return None
    common = []
    for number in range(max(len(one.rounds) for one in known)):
        here = [
            one.rounds[number] / one.seconds.median  # type: ignore[operator]
            for one in known
            if one.seconds and number < len(one.rounds) and one.rounds[number] is not None
        ]
        common.append(statistics.median(here) if len(here) >= MIN_PIECES else None)
    return sway(common)
