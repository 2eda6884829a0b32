"""What was timed, and what it means. All times are in seconds of wall clock."""

from __future__ import annotations

import math
from dataclasses import field
from typing import TYPE_CHECKING

from tfdoctor.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdoctor.findings import Finding

__all__ = [
    "Bench",
    "BenchComparison",
    "Crossover",
    "Disturbance",
    "Interconnect",
    "PieceChange",
    "ProcessorTimes",
    "Scaling",
    "Seconds",
    "Timed",
    "TimedDevice",
    "Watched",
    "duration",
    "is_gpu",
]

UNSTEADY = 0.05
"""From here on a machine's own speed is called unsteady."""

MAX_OTHER_SHARE = 0.15
"""The part of all processors that others may use; from here on a piece of work is called disturbed."""


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


def is_gpu(name: str) -> bool:
    """Return whether a device is a GPU."""
    return name.startswith("GPU:")


def duration(seconds: float) -> str:
    """Return "1.23 ms"."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1 or unit == "µs":
            value = seconds * factor
            return f"{value:.0f} {unit}" if value >= 1000 else f"{value:.3g} {unit}"
    return ""


@dataclass(frozen=True, slots=True)
class TimedDevice:
    """A device that was timed."""

    device: str
    """ "GPU:0"."""
    name: str | None = None
    peak_gflops: float | None = None
    """What its multiprocessors can give in float32 at their highest clock; None: not known."""
    peaks: Mapping[str, float] = field(default_factory=dict)
    """Type → the same of that type, float32 among them; on tensor cores where it has them for the type."""
    capability: str | None = None
    """The compute capability: "8.6"."""
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
    """ "compute": the gradients alone, of the same step without averaging them; "allreduce": averaging and changing the
    weights alone; "fed": the step with its batch from the host's memory; None: all of it."""
    dtype: str
    size: int
    """Rows of a matrix, side of an image, items of a batch, bytes of a copy, an all-reduce, or of the gradients."""
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
    xla: bool = False
    """Compiled by XLA."""
    way: str | None = None
    """What a strategy averages by: "CollectiveAllReduce, NCCL"."""
    heard: str = ""
    """Of TensorFlow's log while the first call ran: the lines that tell of compiling."""
    rounds: tuple[float | None, ...] = ()
    """The median of each round: all work is timed in turns, some of it in each; None: nothing of it in that one."""
    compiled: tuple[str, ...] = ()
    """What the first call did beside the work: ptx-jit, ptxas, xla, cudnn-autotune, graph."""

    @property
    def compiling(self) -> float | None:
        """Seconds that the first call took more than the others; None: not known."""
        if self.first is None or self.seconds is None:
            return None
        return max(self.first - self.seconds.median, 0.0)

    @property
    def disturbed(self) -> bool:
        """Whether others used the processors, or a quota stopped it."""
        return self.others is not None and self.others >= MAX_OTHER_SHARE

    @property
    def on_gpu(self) -> bool:
        """Whether a GPU took part."""
        return any(map(is_gpu, self.devices))

    @property
    def gflops(self) -> float | None:
        """10⁹ operations a second."""
        return self.flop / self.seconds.median / 1e9 if self.flop and self.seconds else None

    @property
    def gbps(self) -> float | None:
        """10⁹ bytes a second."""
        return self.bytes / self.seconds.median / 1e9 if self.bytes and self.seconds else None

    @property
    def family(self) -> tuple[str, str | None, str | None, str, bool]:
        """What is the same along a curve: workload, model, part, dtype, XLA."""
        return self.workload, self.model, self.part, self.dtype, self.xla

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
    lanes: int | None = None
    lanes_most: int | None = None
    """Of PCI Express: the most that were in use, and what card and slot could have."""
    generation: int | None = None
    generation_most: int | None = None
    """The same of its generation."""
    looks: int = 0
    """How often it was asked while TensorFlow computed."""


@dataclass(frozen=True, slots=True)
class Interconnect:
    """How data goes from one device to another."""

    one: str
    other: str
    """ "CPU:0" for the host's memory."""
    kind: str
    """pcie; nvlink; switch, bridge, bridges or processors (PCI Express through these); other."""
    how: str
    """ "PCI Express 4.0 x16", "NV4", "SYS"."""
    gbps: float | None
    """What it carries in one direction before packets, 10⁹ bytes a second; None: not known."""
    measured: float | None = None
    """The best that was timed."""
    peer: bool | None = None
    """Whether one card reaches the other's memory itself, by TensorFlow's log or nvidia-smi; None: neither says."""


@dataclass(frozen=True, slots=True)
class ProcessorTimes:
    """How fast the processor itself was meanwhile, by work that is not TensorFlow's."""

    what: str
    """ "numpy 2.3.1": what did it. Only times of the same can be compared."""
    seconds: float
    """The median."""


@dataclass(frozen=True, slots=True)
class Disturbance:
    """How much of a run others disturbed."""

    pieces: int = 0
    of: int = 0
    """So many of those of which it is known."""
    much: bool = False
    """Nothing is said of the machine then, nor of a change."""
    quota: bool = False
    """A quota did."""


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
    """Averaging the gradients and changing the weights: timed apart, else the rest of the step."""
    why: tuple[str, ...]
    software: bool = False
    """Of GPUs that are software."""
    idle: float | None = None
    """What is left of the step: devices wait for the host or for each other; None: not known."""
    input: float | None = None
    """What a step takes more whose batch comes from the host's memory; None: not timed."""
    fed: tuple[float, float, float] | None = None
    """(speedup, low, high) of such steps."""
    way: str | None = None
    """What averaged: "NCCL"; None: TensorFlow's copies and additions, or not known."""


@dataclass(frozen=True, slots=True)
class PieceChange:
    """One piece of work then and now."""

    now: Timed
    then: Timed
    ratio: float
    """Its time now by its time then."""
    noise: float
    """How far from 1 the ratio may be by chance."""

    @property
    def beyond(self) -> bool:
        """Whether it is more than noise."""
        return abs(math.log(self.ratio)) > math.log1p(self.noise)


@dataclass(frozen=True, slots=True)
class BenchComparison:
    """A run against an earlier one."""

    name: str
    verdict: str
    """same, slower, faster, disturbed or incomparable."""
    ratio: float | None
    """The median of the longer pieces' ratios."""
    noise: float | None
    changes: tuple[PieceChange, ...]
    """Of all pieces that both have."""
    why: str
    tensorflow: str | None = None
    """The release that was timed then; None: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Everything that `bench` has to say. Renderers compute nothing beyond it."""

    target: str
    tensorflow: str | None
    devices: tuple[TimedDevice, ...]
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
    links: tuple[Interconnect, ...] = ()
    disturbance: Disturbance = Disturbance()
    unsteady: float | None = None
    """The machine's own ups and downs: `unsteadiness` of what was not disturbed."""
    yardstick: ProcessorTimes | None = None
    look: str = ""
    """The command that says why TensorFlow lists no GPU; "" where it does, or none was wanted."""
    comparison: BenchComparison | None = None
    plots: tuple[str, ...] = ()

    @property
    def any_timed(self) -> bool:
        """Whether there is a time at all."""
        return any(one.seconds for one in self.runs)

    @property
    def is_unsteady(self) -> bool:
        """Whether this machine's own speed went up and down so much that it is told."""
        return self.unsteady is not None and self.unsteady >= UNSTEADY and not self.disturbance.much

    @property
    def much_disturbed(self) -> str:
        """By what it was disturbed, where nothing follows from it; "" otherwise."""
        return self.disturbed if self.disturbance.much else ""
