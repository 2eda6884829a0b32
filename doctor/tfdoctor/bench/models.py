"""What was timed, and what it means. All times are in seconds of wall clock."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tfdoctor.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.findings import Finding

__all__ = [
    "Bench",
    "Change",
    "Comparison",
    "Crossover",
    "Device",
    "Scaling",
    "Seconds",
    "Timed",
    "Watched",
    "interval",
]

LEAST = 6
"""Times without which no interval of 95 % can be given for a median: 1 - 2 * 0.5**6 is 97 %."""


@dataclass(frozen=True, slots=True)
class Seconds:
    """The median of the times, and the interval in which it lies with a confidence of 95 %."""

    median: float
    low: float
    high: float

    @property
    def noise(self) -> float:
        """Half the interval's width as a part of the median."""
        return (self.high - self.low) / 2 / self.median


def interval(times: Sequence[float]) -> Seconds | None:
    """By the order statistics of the times, whatever their distribution is; below `LEAST` times all of their range.

    The ranks are those of a binomial distribution of p = 1/2, as its normal approximation gives them, rounded outwards.
    """
    ordered = sorted(times)
    count = len(ordered)
    if not count:
        return None
    middle = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
    if count < LEAST:
        return Seconds(middle, ordered[0], ordered[-1])
    away = 1.96 * math.sqrt(count) / 2
    low, high = math.floor(count / 2 - away) - 1, math.ceil(count / 2 + away)
    return Seconds(middle, ordered[max(low, 0)], ordered[min(high, count - 1)])


@dataclass(frozen=True, slots=True)
class Device:
    """A device that was timed."""

    device: str
    """ "GPU:0"."""
    name: str | None = None
    peak_gflops: float | None = None
    """What its multiprocessors can give in float32 at their highest clock; None: not known."""
    software: bool = False
    """No card: tfdoctor's software GPU, which computes on the processor. Its times say nothing of any card."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One piece of work of one size on some devices."""

    workload: str
    """matmul, conv, train, copy or allreduce."""
    model: str | None
    """Of `train`: cnn or transformer."""
    part: str | None
    """ "compute": the gradients alone, of the same step without averaging them; None: all of it."""
    dtype: str
    size: int
    """Rows of a matrix, side of an image, items of a batch, bytes of a copy or an all-reduce."""
    devices: tuple[str, ...]
    strategy: str
    """one, towers or mirrored."""
    seconds: Seconds | None
    """None: not timed; `left_out` says why."""
    repeats: int
    first: float | None
    """What the very first call took: it also optimizes the graph, compiles, and chooses kernels."""
    flop: float | None
    """Multiplications and additions of one call; None where they are not counted."""
    bytes: int | None
    others: float | None
    """The part of all processors that other programs used meanwhile; 1: a quota stopped this one; None: not known."""
    left_out: str = ""
    software: bool = False
    """Timed on a GPU that is software."""

    @property
    def gflops(self) -> float | None:
        """10⁹ operations a second."""
        return self.flop / self.seconds.median / 1e9 if self.flop and self.seconds else None

    @property
    def gbps(self) -> float | None:
        """10⁹ bytes a second."""
        return self.bytes / self.seconds.median / 1e9 if self.bytes and self.seconds else None

    @property
    def family(self) -> tuple[str, str | None, str | None, str]:
        """What is the same along a curve: workload, model, part, dtype."""
        return self.workload, self.model, self.part, self.dtype

    @property
    def key(self) -> tuple[object, ...]:
        """What tells it from all other pieces."""
        return *self.family, self.size, self.devices, self.strategy, self.software


@dataclass(frozen=True, slots=True)
class Watched:
    """What nvidia-smi said of a card while it was timed."""

    device: str
    slowdowns: tuple[str, ...] = ()
    """Reasons for low clocks that were seen: "sw_power_cap", "hw_thermal_slowdown", …"""
    temperature: int | None = None
    """The highest, in degrees Celsius."""
    power_limit: float | None = None
    power_default: float | None = None
    """In watts."""
    processes: tuple[str, ...] = ()
    """Other programs that compute on it."""


@dataclass(frozen=True, slots=True)
class Crossover:
    """From which size on `device` is faster than `against`."""

    workload: str
    model: str | None
    dtype: str
    against: str
    device: str
    size: int | None
    """At this size and all larger ones that were timed, beyond the noise; None: at none."""
    below: int | None
    """The largest timed size at which it is not: the crossover lies between the two."""
    fold: float
    """How many times as fast it is at the largest size."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """Several devices against the fastest one of them, on the same whole batch."""

    strategy: str
    model: str | None
    size: int
    names: tuple[str, ...]
    speedup: float
    low: float
    high: float
    """From the ends of both intervals."""
    compute: float | None
    """Seconds of the gradients alone; None: not timed apart."""
    allreduce: float | None
    """The rest of the step: averaging the gradients and changing the weights."""
    why: tuple[str, ...]
    software: bool = False
    """Of GPUs that are software."""


@dataclass(frozen=True, slots=True)
class Change:
    """One piece of work then and now."""

    now: Timed
    ratio: float
    """Its time now by its time then."""
    noise: float
    """How far from 1 the ratio may be by chance."""

    @property
    def beyond(self) -> bool:
        """Whether it is more than noise."""
        return abs(math.log(self.ratio)) > math.log1p(self.noise)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A run against an earlier one."""

    name: str
    verdict: str
    """same, slower, faster, disturbed or incomparable."""
    ratio: float | None
    """The median of the longer pieces' ratios."""
    noise: float | None
    changes: tuple[Change, ...]
    """Of all pieces that both have."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Everything that `bench` has to say. Renderers compute nothing beyond it."""

    target: str
    tensorflow: str | None
    devices: tuple[Device, ...]
    runs: tuple[Timed, ...]
    watched: tuple[Watched, ...]
    crossover: tuple[Crossover, ...]
    scaling: tuple[Scaling, ...]
    disturbed: str
    """By what; "" where nothing was seen."""
    stopped: str
    """Why it ended before its time, as a sentence; "" where it did not."""
    findings: tuple[Finding, ...]
    summary: str
    comparison: Comparison | None = None
    plots: tuple[str, ...] = ()
