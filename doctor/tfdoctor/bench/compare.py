"""A run against an earlier one: what changed beyond noise. Pure."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

from tfdoctor.bench.models import Change, Comparison

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.bench.models import Timed
    from tfdoctor.bench.reader import Measured

__all__ = ["compared"]

FLOOR = 0.07
"""The noise that two runs of one program on one machine have at least: addresses, clocks, and the order of things. Of
486 pairs of pieces of `LONG` and more 95 % were nearer to each other, of whole runs 99 % (docs/verified.md)."""
SHORT = 0.3
"""The same of a piece that is shorter, by 1,074 pairs."""
LONG = 1e-3
"""Seconds. What is shorter differs from process to process, which no times of one process show: it says nothing of a
whole run where longer pieces of work were timed."""
FEW = 3
"""Pieces without which nothing is said of a whole run."""


def compared(now: Sequence[Timed], then: Measured, name: str, disturbed: str) -> Comparison:
    """Piece by piece, and as a whole by the median of the longer pieces' ratios: one alone makes no run slower.

    `disturbed`: by what, where so much of this run was that nothing follows from it. Else the pieces that were
    disturbed, then or now, are left out.
    """
    before = {piece.key: piece for piece in then.runs if piece.seconds is not None}
    changes, times, left = [], {}, 0
    for piece in now:
        old = before.get(piece.key)
        if piece.seconds is None or old is None or old.seconds is None:
            continue
        if not (disturbed or then.disturbed) and (piece.disturbed or old.disturbed):
            left += 1
            continue
        times[piece.key] = old.seconds.median
        least = FLOOR if old.seconds.median >= LONG else SHORT
        noise = max(least, 2 * math.hypot(piece.seconds.noise, old.seconds.noise))
        changes.append(Change(piece, piece.seconds.median / old.seconds.median, noise))
    if len(changes) < FEW:
        count = "nothing" if not changes else f"only {len(changes)} of the pieces of work"
        return Comparison(name, "incomparable", None, None, tuple(changes), f"{count} was timed in both runs")
    longest = sorted(changes, key=lambda change: times[change.now.key], reverse=True)
    long = [one for place, one in enumerate(longest) if place < FEW or times[one.now.key] >= LONG]
    logs = [math.log(change.ratio) for change in long]
    ratio = math.exp(statistics.median(logs))
    # The spread of the ratios among each other is noise, too: what a whole run has in common is left.
    apart = statistics.median([abs(one - math.log(ratio)) for one in logs]) * 1.4826
    noise = max(FLOOR, math.expm1(2 * apart / math.sqrt(len(logs))))
    longer = "longer " if len(logs) < len(changes) else ""
    slower, faster = math.log(ratio) > math.log1p(noise), math.log(ratio) < -math.log1p(noise)
    verdict = "slower" if slower else "faster" if faster else "same"
    why = f"by the median of {len(logs)} {longer}pieces of work; up to {100 * noise:.0f} % is noise"
    if left:
        why += f"; {left} that were disturbed {'are' if left > 1 else 'is'} left out"
    if disturbed or then.disturbed:
        which = "this run" if disturbed else "the earlier run"
        verdict, why = "disturbed", f"{which} was disturbed: {disturbed or then.disturbed}"
    return Comparison(name, verdict, ratio, noise, tuple(changes), why)
