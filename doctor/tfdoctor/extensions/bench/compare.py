"""Compare a run with an earlier one, and find the times that changed by more than noise."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

from tfdoctor.extensions.bench.models import BenchComparison, MeasurementChange
from tfdoctor.extensions.bench.noise import (
    MIN_MEASUREMENTS,
    SHORT_MEASUREMENT_S,
    compute_round_variation,
    compute_speed_variation,
    select_long_measurements,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.extensions.bench.models import Bench, Measurement, ProcessorTimes
    from tfdoctor.extensions.bench.reader import RawMeasurements

__all__ = ["compare_runs"]

MIN_NOISE = 0.07
"""The minimum noise between two runs of a program on one machine, caused by addresses, clocks and order.

Of 486 pairs of measurements of `SHORT_MEASUREMENT_S` or more, 95 % differed by less; so did 99 % of the pairs of whole
runs (docs/bench.md).
"""
MIN_SHORT_NOISE = 0.3
"""The minimum noise for shorter measurements, from 1,074 pairs."""
DRIFT_FACTOR = 2.98
"""The factor from the variation between rounds to the difference that chance can cause between two runs.

The speed of a machine changes as much from run to run as from round to round, because heat or other virtual machines
on its processor act for moments or for longer. The factor is Student's t of 99 % with 14
degrees of freedom, for two runs of eight rounds each.
"""
MAX_PROCESSOR_RATIO = 1.5
"""The ratio of its own times above which the processor counts as another or a throttled one.

Times on such a processor are not compared.

The effect of another virtual machine on the same core was smaller (docs/bench.md).
"""
MIN_PROCESSOR_CHANGE = 0.05
"""The change of the processor's speed, as the logarithm of the ratio, from which the reason mentions it."""


def compare_runs(current: Bench, earlier: RawMeasurements, name: str) -> BenchComparison:
    """Compare each measurement with the earlier one, and the runs by the median ratio of the longer ones.

    One changed measurement alone does not make a run slower. A run is slower or faster only if the change exceeds the
    noise both as measured and after correction for the processor's own speed.

    If a large part of either run was disturbed, the verdict is "disturbed". Otherwise, measurements that were disturbed
    in either run are left out.
    """
    disturbance_text = current.serious_disturbance_text
    changes, excluded_count = _compare_measurements(
        current.measurements, earlier, include_disturbed=bool(disturbance_text or earlier.disturbance_text)
    )
    if len(changes) < MIN_MEASUREMENTS:
        count = "no piece of work was" if not changes else f"only {_format_count(len(changes))}"
        reason = f"{count} timed in both runs, and it takes {MIN_MEASUREMENTS}"
        if excluded_count:
            reason += f"; {_format_count(excluded_count)} disturbed"
        return BenchComparison(
            file_name=name,
            verdict="incomparable",
            ratio=None,
            noise=None,
            changes=tuple(changes),
            reason=reason,
            tensorflow=earlier.tensorflow,
        )
    long_keys = {
        measurement.key for measurement in select_long_measurements(change.earlier for change in changes)
    }
    long_changes = [change for change in changes if change.current.key in long_keys]
    processor_ratio = _compare_processors(current.processor_times, earlier.processor_times)
    measured_change = statistics.median(math.log(change.ratio) for change in long_changes)
    corrected_change = statistics.median(
        math.log(change.ratio) - (0.0 if change.current.uses_gpu else math.log(processor_ratio))
        for change in long_changes
    )
    drift = _estimate_drift(
        compute_speed_variation(change.current for change in changes),
        compute_speed_variation(change.earlier for change in changes),
    )
    # The spread of the ratios between measurements is noise, too.
    # 1.4826 converts a median absolute deviation to a standard deviation.
    spread = (
        statistics.median(abs(math.log(change.ratio) - measured_change) for change in long_changes) * 1.4826
    )
    noise = max(MIN_NOISE, math.expm1(2 * spread / math.sqrt(len(long_changes))), drift)
    is_slower = min(measured_change, corrected_change) > math.log1p(noise)
    is_faster = max(measured_change, corrected_change) < -math.log1p(noise)
    verdict = "slower" if is_slower else "faster" if is_faster else "same"
    qualifier = "longer " if len(long_changes) < len(changes) else ""
    reason = (
        f"by the median of {len(long_changes)} {qualifier}pieces of work; up to {100 * noise:.0f} % is noise"
    )
    if noise == drift:
        reason += ", for this machine's own speed changes from moment to moment (a longer --duration makes that less)"
    if abs(math.log(processor_ratio)) >= MIN_PROCESSOR_CHANGE:
        reason += f"; {_describe_processor(processor_ratio)}"
    if excluded_count:
        reason += f"; {excluded_count} that were disturbed {'are' if excluded_count > 1 else 'is'} left out"
    if disturbance_text or earlier.disturbance_text:
        disturbed_run = "this run" if disturbance_text else "the earlier run"
        verdict, reason = (
            "disturbed",
            f"{disturbed_run} was disturbed: {disturbance_text or earlier.disturbance_text}",
        )
    elif abs(math.log(processor_ratio)) > math.log(MAX_PROCESSOR_RATIO) and not all(
        change.current.uses_gpu for change in long_changes
    ):
        verdict, reason = "disturbed", _describe_processor(processor_ratio)
    return BenchComparison(
        file_name=name,
        verdict=verdict,
        ratio=math.exp(measured_change),
        noise=noise,
        changes=tuple(changes),
        reason=reason,
        tensorflow=earlier.tensorflow,
    )


def _compare_measurements(
    measurements: Sequence[Measurement], earlier_run: RawMeasurements, *, include_disturbed: bool
) -> tuple[list[MeasurementChange], int]:
    """Return the changes of the measurements in both runs, and the number of those excluded as disturbed.

    With `include_disturbed`, none is excluded.
    """
    earlier_by_key = {
        measurement.key: measurement
        for measurement in earlier_run.measurements
        if measurement.seconds is not None
    }
    changes, excluded_count = [], 0
    for measurement in measurements:
        earlier = earlier_by_key.get(measurement.key)
        if measurement.seconds is None or earlier is None or earlier.seconds is None:
            continue
        if not include_disturbed and (measurement.is_disturbed or earlier.is_disturbed):
            excluded_count += 1
            continue
        ratio = measurement.seconds.median / earlier.seconds.median
        noise = max(
            MIN_NOISE if earlier.seconds.median >= SHORT_MEASUREMENT_S else MIN_SHORT_NOISE,
            2 * math.hypot(measurement.seconds.noise, earlier.seconds.noise),
            _estimate_drift(
                compute_round_variation(measurement.round_medians),
                compute_round_variation(earlier.round_medians),
            ),
        )
        changes.append(MeasurementChange(measurement, earlier, ratio, noise))
    return changes, excluded_count


def _format_count(count: int) -> str:
    return "1 piece of work was" if count == 1 else f"{count} pieces of work were"


def _describe_processor(ratio: float) -> str:
    return f"the processor itself took {ratio:.2f} times as long as then for what is not TensorFlow's"


def _estimate_drift(variation: float | None, earlier_variation: float | None) -> float:
    """Return the relative difference that chance can cause, given the variation in both runs."""
    return math.expm1(DRIFT_FACTOR * math.hypot(variation or 0.0, earlier_variation or 0.0))


def _compare_processors(current: ProcessorTimes | None, earlier: ProcessorTimes | None) -> float:
    """Return how many times as long the same work takes on the processor now, or 1 if not measured."""
    if earlier is None or current is None or earlier.program != current.program:
        return 1.0
    return current.median_seconds / earlier.median_seconds
