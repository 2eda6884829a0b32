"""Assess the variation of times within a measurement and from round to round."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

from tfdoctor.extensions.bench.models import MedianTime

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tfdoctor.extensions.bench.models import Measurement

__all__ = [
    "MIN_MEASUREMENTS",
    "SHORT_MEASUREMENT_S",
    "compute_interval",
    "compute_round_variation",
    "compute_speed_variation",
    "select_long_measurements",
]

MIN_TIMES = 6
"""The number of times that a 95 % interval of a median needs: the range of six has 1 - 2 * 0.5**6 = 97 %.

It is also the number of rounds that are needed to assess how the machine's speed changes between rounds.
"""

STUDENT_T = (2.571, 2.447, 2.365)
"""Student's t of 95 %, two-sided, for 6, 7, and 8 rounds (5 to 7 degrees of freedom)."""

SHORT_MEASUREMENT_S = 1e-3
"""The time in seconds below which measurements vary more between processes than within one process.

Such short measurements are not used to assess a whole run if longer ones exist.
"""
MIN_MEASUREMENTS = 3
"""The number of measurements that are required to assess a whole run."""


def compute_interval(times: Sequence[float], rounds: Sequence[float | None] = ()) -> MedianTime | None:
    """Return the median with its 95 % confidence interval, or None if there are no times.

    The ends of the interval are two of the sorted times, so the distribution does not matter. With fewer than
    `MIN_TIMES` times, the interval is their whole range. The ranks are those of a binomial distribution with p = 1/2, in
    its normal approximation, rounded outwards.

    If the machine's own speed changes, the times of one round are similar. Therefore the interval is at least as wide
    as the one that follows from the medians of the `rounds`, by Student's t of their logarithms.
    """
    ordered = sorted(times)
    count = len(ordered)
    if not count:
        return None
    middle = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
    if count < MIN_TIMES:
        return MedianTime(middle, ordered[0], ordered[-1])
    rank_deviation = 1.96 * math.sqrt(count) / 2
    low_rank, high_rank = math.floor(count / 2 - rank_deviation) - 1, math.ceil(count / 2 + rank_deviation)
    round_variation = compute_round_variation(rounds)
    round_count = sum(value is not None for value in rounds)
    factor = 1.0
    if round_variation is not None:
        factor = math.exp(
            STUDENT_T[min(round_count - MIN_TIMES, len(STUDENT_T) - 1)]
            * round_variation
            / math.sqrt(round_count)
        )
    return MedianTime(
        middle,
        min(ordered[max(low_rank, 0)], middle / factor),
        max(ordered[min(high_rank, count - 1)], middle * factor),
    )


def compute_round_variation(rounds: Sequence[float | None]) -> float | None:
    """Return the standard deviation of the logarithms of round medians, or None for too few rounds.

    A value of 0.1 means that the speed varies by about 10 % from round to round.
    """
    logs = [math.log(value) for value in rounds if value is not None]
    return statistics.stdev(logs) if len(logs) >= MIN_TIMES else None


def select_long_measurements(measurements: Iterable[Measurement]) -> list[Measurement]:
    """Return the measurements of `SHORT_MEASUREMENT_S` or more, longest first, but at least `MIN_MEASUREMENTS`."""
    ordered = sorted(
        (measurement for measurement in measurements if measurement.seconds),
        key=lambda measurement: -measurement.seconds.median if measurement.seconds else 0.0,
    )
    return [
        measurement
        for rank, measurement in enumerate(ordered)
        if rank < MIN_MEASUREMENTS
        or (measurement.seconds is not None and measurement.seconds.median >= SHORT_MEASUREMENT_S)
    ]


def compute_speed_variation(measurements: Iterable[Measurement]) -> float | None:
    """Return how much the machine's speed varies from round to round, on the scale of `compute_round_variation`.

    For each round, the median deviation of all longer measurements is used, so that the variation of a single one does
    not count. The result is None if there are too few measurements or rounds.
    """
    usable = [
        measurement
        for measurement in select_long_measurements(measurements)
        if compute_round_variation(measurement.round_medians) is not None
    ]
    if len(usable) < MIN_MEASUREMENTS:
        return None
    round_deviations = []
    for round_number in range(max(len(measurement.round_medians) for measurement in usable)):
        deviations = [
            measurement.round_medians[round_number] / measurement.seconds.median  # type: ignore[operator]
            for measurement in usable
            if measurement.seconds
            and round_number < len(measurement.round_medians)
            and measurement.round_medians[round_number] is not None
        ]
        round_deviations.append(
            statistics.median(deviations) if len(deviations) >= MIN_MEASUREMENTS else None
        )
    return compute_round_variation(round_deviations)
