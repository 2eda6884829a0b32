"""A run against an earlier one: what changed beyond noise. Pure."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

from tfdoctor.bench.models import BenchComparison, PieceChange
from tfdoctor.bench.noise import MIN_PIECES, SHORT_PIECE_S, longer, sway, unsteadiness

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.bench.models import Bench, ProcessorTimes, Timed
    from tfdoctor.bench.reader import Measured

__all__ = ["compare_runs"]

FLOOR = 0.07
"""The noise that two runs of one program on one machine have at least: addresses, clocks, and the order of things. Of
486 pairs of pieces of `SHORT_PIECE_S` and more 95 % were nearer to each other, of whole runs 99 %
(docs/verified.md)."""
SHORT_PIECE_NOISE = 0.3
"""The same of a piece that is shorter, by 1,074 pairs."""
DRIFT = 2.98
"""A machine whose speed changes from round to round does so from run to run, too, and by as much: what makes it change
(other virtual machines on its processor, heat) lasts for seconds as well as for moments. So two runs differ by chance
as two rounds do: Student's t of 99 % with the 14 degrees of freedom of eight rounds twice."""
ANOTHER = 1.5
"""From here on the processor is another one, or is kept from its speed, and no times on it are compared. What another
virtual machine on the same core took was less (docs/verified.md)."""
ALIKE = 0.05
"""Less than this the processor's own change is not told."""


def compare_runs(now: Bench, then: Measured, name: str) -> BenchComparison:
    """Piece by piece, and as a whole by the median of the longer pieces' ratios: one alone makes no run slower.

    Of a run that was much disturbed nothing follows; else the pieces that were disturbed, then or now, are left out. A
    run is slower or faster where its times are so beyond noise both by the clock and beside what the processor's own
    speed changed.
    """
    disturbed = now.much_disturbed
    changes, left = _changes(now.runs, then, everything=bool(disturbed or then.disturbed))
    if len(changes) < MIN_PIECES:
        count = "no piece of work was" if not changes else f"only {_pieces(len(changes))}"
        why = f"{count} timed in both runs, and it takes {MIN_PIECES}"
        if left:
            why += f"; {_pieces(left)} disturbed"
        return BenchComparison(name, "incomparable", None, None, tuple(changes), why, then.tensorflow)
    meant = {piece.key for piece in longer(change.then for change in changes)}
    long = [change for change in changes if change.now.key in meant]
    machine = _machine(then.yardstick, now.yardstick)
    clock = statistics.median(math.log(change.ratio) for change in long)
    beside = statistics.median(
        math.log(change.ratio) - (0.0 if change.now.on_gpu else math.log(machine)) for change in long
    )
    drift = _drift(
        unsteadiness(change.now for change in changes), unsteadiness(change.then for change in changes)
    )
    # The spread of the ratios among each other is noise, too: what a whole run has in common is left.
    apart = statistics.median(abs(math.log(change.ratio) - clock) for change in long) * 1.4826
    noise = max(FLOOR, math.expm1(2 * apart / math.sqrt(len(long))), drift)
    slower, faster = min(clock, beside) > math.log1p(noise), max(clock, beside) < -math.log1p(noise)
    verdict = "slower" if slower else "faster" if faster else "same"
    which = "longer " if len(long) < len(changes) else ""
    why = f"by the median of {len(long)} {which}pieces of work; up to {100 * noise:.0f} % is noise"
    if noise == drift:
        why += (
            ", for this machine's own speed changes from moment to moment (a longer --time makes that less)"
        )
    if abs(math.log(machine)) >= ALIKE:
        why += f"; {_describe_machine(machine)}"
    if left:
        why += f"; {left} that were disturbed {'are' if left > 1 else 'is'} left out"
    if disturbed or then.disturbed:
        which = "this run" if disturbed else "the earlier run"
        verdict, why = "disturbed", f"{which} was disturbed: {disturbed or then.disturbed}"
    elif abs(math.log(machine)) > math.log(ANOTHER) and not all(change.now.on_gpu for change in long):
        verdict, why = "disturbed", _describe_machine(machine)
    return BenchComparison(name, verdict, math.exp(clock), noise, tuple(changes), why, then.tensorflow)


def _changes(now: Sequence[Timed], then: Measured, *, everything: bool) -> tuple[list[PieceChange], int]:
    """Of what both timed; and how much of it was disturbed and is left out, unless `everything` is wanted."""
    before = {piece.key: piece for piece in then.runs if piece.seconds is not None}
    changes, left = [], 0
    for piece in now:
        old = before.get(piece.key)
        if piece.seconds is None or old is None or old.seconds is None:
            continue
        if not everything and (piece.disturbed or old.disturbed):
            left += 1
            continue
        ratio = piece.seconds.median / old.seconds.median
        noise = max(
            FLOOR if old.seconds.median >= SHORT_PIECE_S else SHORT_PIECE_NOISE,
            2 * math.hypot(piece.seconds.noise, old.seconds.noise),
            _drift(sway(piece.rounds), sway(old.rounds)),
        )
        changes.append(PieceChange(piece, old, ratio, noise))
    return changes, left


def _pieces(count: int) -> str:
    return "1 piece of work was" if count == 1 else f"{count} pieces of work were"


def _describe_machine(machine: float) -> str:
    return f"the processor itself took {machine:.2f} times as long as then for what is not TensorFlow's"


def _drift(now: float | None, then: float | None) -> float:
    """Noise by what the rounds of both runs show."""
    return math.expm1(DRIFT * math.hypot(now or 0.0, then or 0.0))


def _machine(then: ProcessorTimes | None, now: ProcessorTimes | None) -> float:
    """Return how many times as long the processor takes now for the same.

    1 where nothing comparable was measured.
    """
    if then is None or now is None or then.what != now.what:
        return 1.0
    return now.seconds / then.seconds
