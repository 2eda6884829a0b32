"""Compare a run with an earlier one, and find the times that changed by more than noise."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

from tfdoctor.bench.models import BenchComparison, MeasurementChange
from tfdoctor.bench.noise import (
    MIN_MEASUREMENTS,
    SHORT_MEASUREMENT_S,
    compute_round_variation,
    compute_speed_variation,
    select_long_measurements,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.bench.models import Bench, Measurement, ProcessorTimes
    from tfdoctor.bench.reader import RawMeasurements

__all__ = ["compare_runs"]

MIN_NOISE = 0.07
"""The minimum noise between two runs of a program on one machine, caused by addresses, clocks and order.

Of 486 pairs of measurements of `SHORT_MEASUREMENT_S` or more, 95 % differed by less, and 99 % of whole runs
(docs/verified.md).
"""
MIN_SHORT_NOISE = 0.3
"""The minimum noise for shorter measurements, from 1,074 pairs."""
DRIFT_FACTOR = 2.98
"""The factor from the variation between rounds to the difference that chance can cause between two runs.

A machine whose speed changes from round to round changes as much from run to run, because heat or other virtual
machines on its processor act for moments or for longer. The factor is Student's t of 99 % with 14
degrees of freedom, for two runs of eight rounds each.
"""
MAX_PROCESSOR_RATIO = 1.5
"""The ratio above which the processor counts as another or a throttled one, so that its times are not compared.

The effect of another virtual machine on the same core was smaller (docs/verified.md).
"""
MIN_PROCESSOR_CHANGE = 0.05
"""The change of the processor's speed (logarithm of the ratio) from which it is mentioned."""


def compare_runs(now: Bench, then: RawMeasurements, name: str) -> BenchComparison:
    """Compare each measurement with the earlier one, and the runs by the median ratio of the longer ones.

    One changed measurement alone does not make a run slower. A run is slower or faster only if the change exceeds the
    noise both as measured and after correction for the processor's own speed.

    If a large part of either run was disturbed, the verdict is "disturbed". Otherwise, measurements that were disturbed
    in either run are left out.
    """
    disturbed = now.much_disturbed
    changes, excluded = _compare_pieces(now.runs, then, include_disturbed=bool(disturbed or then.disturbed))
    if len(changes) < MIN_MEASUREMENTS:
        count = "no piece of work was" if not changes else f"only {_format_pieces(len(changes))}"
        reason = f"{count} timed in both runs, and it takes {MIN_MEASUREMENTS}"
        if excluded:
            reason += f"; {_format_pieces(excluded)} disturbed"
        return BenchComparison(name, "incomparable", None, None, tuple(changes), reason, then.tensorflow)
    long_keys = {piece.key for piece in select_long_measurements(change.then for change in changes)}
    longer = [change for change in changes if change.now.key in long_keys]
    processor_ratio = _compare_processors(then.yardstick, now.yardstick)
    change_by_clock = statistics.median(math.log(change.ratio) for change in longer)
    corrected_change = statistics.median(
        math.log(change.ratio) - (0.0 if change.now.on_gpu else math.log(processor_ratio))
        for change in longer
    )
    drift = _estimate_drift(
        compute_speed_variation(change.now for change in changes),
        compute_speed_variation(change.then for change in changes),
    )
    # The spread of the ratios between measurements is noise, too.
    # 1.4826 converts a median absolute deviation to a standard deviation.
    spread = statistics.median(abs(math.log(change.ratio) - change_by_clock) for change in longer) * 1.4826
    noise = max(MIN_NOISE, math.expm1(2 * spread / math.sqrt(len(longer))), drift)
    slower, faster = (
        min(change_by_clock, corrected_change) > math.log1p(noise),
        max(change_by_clock, corrected_change) < -math.log1p(noise),
    )
    verdict = "slower" if slower else "faster" if faster else "same"
    qualifier = "longer " if len(longer) < len(changes) else ""
    reason = f"by the median of {len(longer)} {qualifier}pieces of work; up to {100 * noise:.0f} % is noise"
    if noise == drift:
        reason += (
            ", for this machine's own speed changes from moment to moment (a longer --time makes that less)"
        )
    if abs(math.log(processor_ratio)) >= MIN_PROCESSOR_CHANGE:
        reason += f"; {_describe_machine(processor_ratio)}"
    if excluded:
        reason += f"; {excluded} that were disturbed {'are' if excluded > 1 else 'is'} left out"
    if disturbed or then.disturbed:
        qualifier = "this run" if disturbed else "the earlier run"
        verdict, reason = "disturbed", f"{qualifier} was disturbed: {disturbed or then.disturbed}"
    elif abs(math.log(processor_ratio)) > math.log(MAX_PROCESSOR_RATIO) and not all(
        change.now.on_gpu for change in longer
    ):
        verdict, reason = "disturbed", _describe_machine(processor_ratio)
    return BenchComparison(
        name, verdict, math.exp(change_by_clock), noise, tuple(changes), reason, then.tensorflow
    )


def _compare_pieces(
    now: Sequence[Measurement], then: RawMeasurements, *, include_disturbed: bool
) -> tuple[list[MeasurementChange], int]:
    """Return the changes of the measurements in both runs, and the number of excluded disturbed ones.

    With `include_disturbed`, none is excluded.
    """
    earlier_pieces = {piece.key: piece for piece in then.runs if piece.seconds is not None}
    changes, excluded = [], 0
    for piece in now:
        earlier = earlier_pieces.get(piece.key)
        if piece.seconds is None or earlier is None or earlier.seconds is None:
            continue
        if not include_disturbed and (piece.disturbed or earlier.disturbed):
            excluded += 1
            continue
        ratio = piece.seconds.median / earlier.seconds.median
        noise = max(
            MIN_NOISE if earlier.seconds.median >= SHORT_MEASUREMENT_S else MIN_SHORT_NOISE,
            2 * math.hypot(piece.seconds.noise, earlier.seconds.noise),
            _estimate_drift(compute_round_variation(piece.rounds), compute_round_variation(earlier.rounds)),
        )
        changes.append(MeasurementChange(piece, earlier, ratio, noise))
    return changes, excluded


def _format_pieces(count: int) -> str:
    return "1 piece of work was" if count == 1 else f"{count} pieces of work were"


def _describe_machine(ratio: float) -> str:
    return f"the processor itself took {ratio:.2f} times as long as then for what is not TensorFlow's"


def _estimate_drift(now: float | None, then: float | None) -> float:
    """Return the relative difference that chance can cause, given the variation in both runs."""
    return math.expm1(DRIFT_FACTOR * math.hypot(now or 0.0, then or 0.0))


def _compare_processors(then: ProcessorTimes | None, now: ProcessorTimes | None) -> float:
    """Return how many times as long the same work takes on the processor now, or 1 if not measured."""
    if then is None or now is None or then.what != now.what:
        return 1.0
    return now.seconds / then.seconds
