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

FLOOR = 0.05
"""The noise that two runs of one program on one machine have at least: addresses, clocks, and the order of things."""
FEW = 3
"""Pieces without which nothing is said of a whole run."""


def compared(now: Sequence[Timed], then: Measured, name: str, disturbed: str) -> Comparison:
    """Piece by piece, and as a whole by the median of the ratios: one piece alone does not make a run slower."""
    before = {piece.key: piece for piece in then.runs if piece.seconds is not None}
    changes = []
    for piece in now:
        old = before.get(piece.key)
        if piece.seconds is None or old is None or old.seconds is None:
            continue
        noise = max(FLOOR, 2 * math.hypot(piece.seconds.noise, old.seconds.noise))
        changes.append(Change(piece, piece.seconds.median / old.seconds.median, noise))
    if len(changes) < FEW:
        count = "nothing" if not changes else f"only {len(changes)} of the pieces of work"
        return Comparison(name, "incomparable", None, None, tuple(changes), f"{count} was timed in both runs")
    logs = [math.log(change.ratio) for change in changes]
    ratio = math.exp(statistics.median(logs))
    # The spread of the ratios among each other is noise, too: what a whole run has in common is left.
    apart = statistics.median([abs(one - math.log(ratio)) for one in logs]) * 1.4826
    noise = max(FLOOR, math.expm1(2 * apart / math.sqrt(len(logs))))
    slower, faster = math.log(ratio) > math.log1p(noise), math.log(ratio) < -math.log1p(noise)
    verdict = "slower" if slower else "faster" if faster else "same"
    why = f"by the median of {len(changes)} pieces of work; up to {100 * noise:.0f} % is noise"
    if disturbed or then.disturbed:
        which = "this run" if disturbed else "the earlier run"
        verdict, why = "disturbed", f"{which} was disturbed: {disturbed or then.disturbed}"
    return Comparison(name, verdict, ratio, noise, tuple(changes), why)
