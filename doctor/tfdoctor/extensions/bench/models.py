"""The measurements and results of a benchmark. All times are wall-clock seconds."""

from __future__ import annotations

import math
from dataclasses import field
from typing import TYPE_CHECKING

from tfdoctor.core.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdoctor.core.findings import Finding

__all__ = [
    "Bench",
    "BenchComparison",
    "Crossover",
    "Disturbance",
    "GpuObservation",
    "Interconnect",
    "MeasuredDevice",
    "Measurement",
    "MeasurementChange",
    "MedianTime",
    "ProcessorTimes",
    "Scaling",
    "format_duration",
    "is_gpu",
]

MIN_SPEED_VARIATION = 0.05
"""The variation from round to round from which a machine counts as unsteady (see `noise.compute_speed_variation`)."""
MAX_OTHER_SHARE = 0.15
"""The share of all processors, used by other programs, from which a measurement counts as disturbed."""


@dataclass(frozen=True, slots=True)
class MedianTime:
    """The median of several times, with its 95 % confidence interval."""

    median: float
    """Median in seconds."""
    low: float
    """Lower end of the interval in seconds."""
    high: float
    """Upper end of the interval in seconds."""

    @property
    def noise(self) -> float:
        """Half the width of the interval, relative to the median."""
        return (self.high - self.low) / 2 / self.median


def is_gpu(name: str) -> bool:
    """Return whether the name is that of a GPU, such as "GPU:0"."""
    return name.startswith("GPU:")


def format_duration(seconds: float) -> str:
    """Return a duration in s, ms or µs with three significant digits, such as "1.23 ms"."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1 or unit == "µs":
            value = seconds * factor
            return f"{value:.0f} {unit}" if value >= 1000 else f"{value:.3g} {unit}"
    return ""


@dataclass(frozen=True, slots=True)
class MeasuredDevice:
    """A device that was timed."""

    device: str
    """Name in TensorFlow, such as "GPU:0"."""
    name: str | None = None
    """Name of the product, such as "Tesla T4", or None if not known."""
    peak_gflops: float | None = None
    """GFLOP/s that its multiprocessors can reach in float32 at their highest clock, or None if not known."""
    peak_gflops_by_dtype: Mapping[str, float] = field(default_factory=dict)
    """GFLOP/s that it can reach with each data type, on tensor cores if it has them for that type."""
    compute_capability: str | None = None
    """Compute capability, such as "8.6"."""
    is_software: bool = False
    """Whether it is tfdoctor's software GPU, whose times say nothing about a real GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The measurement of one workload with one size on certain devices."""

    workload: str
    """matmul, conv, train, copy or allreduce."""
    model: str | None
    """Model of `train` (cnn or transformer), or None for other workloads."""
    part: str | None
    """Part of a training step that was timed, or None for all of it.

    "compute" computes the gradients without averaging them. "allreduce" averages them and updates the weights. "fed" is
    the whole step, with a batch that comes from the host's memory.
    """
    dtype: str
    size: int
    """Rows of a matrix, side of an image, items of a batch, or bytes of a copy, an all-reduce or the gradients."""
    devices: tuple[str, ...]
    strategy: str
    """"one" for a single device, else how several devices share the work: "towers" or "mirrored"."""
    seconds: MedianTime | None
    """Time of a call, or None if it was not timed. The reason is in `omission_reason`."""
    repeats: int
    """Number of timed calls from which the median is computed."""
    first_call_seconds: float | None
    """Seconds of the very first call, which also optimizes the graph, compiles, and chooses kernels."""
    flop_count: float | None
    """Floating-point operations of one call, or None if they are not counted."""
    transferred_bytes: int | None
    """Bytes that one call transfers, or None if they are not counted."""
    other_programs_share: float | None
    """Share of all processors that other programs used. 1 if a quota stopped this program, None if unknown."""
    omission_reason: str = ""
    """Reason why it was not timed, or "" if it was."""
    is_software: bool = False
    """Whether a software GPU was timed."""
    uses_xla: bool = False
    """Whether XLA compiled it."""
    averaging_method: str | None = None
    """Method by which the strategy averages, such as "CollectiveAllReduce, NCCL", or None if not known."""
    compilation_log: str = ""
    """Lines about compilation that TensorFlow logged during the first call."""
    round_medians: tuple[float | None, ...] = ()
    """Median time of each round, or None for a round without times of this measurement.

    In a round, all workloads take turns.
    """
    first_call_steps: tuple[str, ...] = ()
    """Additional steps of the first call: ptx-jit, ptxas, xla, cudnn-autotune, graph."""

    @property
    def first_call_overhead(self) -> float | None:
        """Seconds by which the first call took longer than the median, or None if not known."""
        if self.first_call_seconds is None or self.seconds is None:
            return None
        return max(self.first_call_seconds - self.seconds.median, 0.0)

    @property
    def is_disturbed(self) -> bool:
        """Whether other programs used much of the processors, or a quota stopped this program."""
        return self.other_programs_share is not None and self.other_programs_share >= MAX_OTHER_SHARE

    @property
    def uses_gpu(self) -> bool:
        """Whether a GPU is among the devices."""
        return any(map(is_gpu, self.devices))

    @property
    def gflops(self) -> float | None:
        """Speed in 10⁹ floating-point operations per second, or None if not known."""
        return self.flop_count / self.seconds.median / 1e9 if self.flop_count and self.seconds else None

    @property
    def gbps(self) -> float | None:
        """Speed in 10⁹ bytes per second, or None if not known."""
        return (
            self.transferred_bytes / self.seconds.median / 1e9
            if self.transferred_bytes and self.seconds
            else None
        )

    @property
    def curve_key(self) -> tuple[str, str | None, str | None, str, bool]:
        """Properties that are constant along a curve: workload, model, part, dtype, XLA."""
        return self.workload, self.model, self.part, self.dtype, self.uses_xla

    @property
    def key(self) -> tuple[object, ...]:
        """Properties that distinguish it from all other measurements of the run."""
        return *self.curve_key, self.size, self.devices, self.strategy, self.is_software


@dataclass(frozen=True, slots=True)
class GpuObservation:
    """The state of a GPU during the run, according to nvidia-smi."""

    device: str
    slowdowns: tuple[str, ...] = ()
    """Reported reasons for low clocks, such as "sw_power_cap" or "hw_thermal_slowdown"."""
    max_temperature: int | None = None
    """Highest temperature in degrees Celsius."""
    power_limit: float | None = None
    """Current power limit in watts."""
    default_power_limit: float | None = None
    """Default power limit in watts."""
    other_processes: tuple[str, ...] = ()
    """Other programs that compute on it."""
    lanes: int | None = None
    """Largest number of PCI Express lanes in use."""
    max_lanes: int | None = None
    """Number of PCI Express lanes that GPU and slot support."""
    generation: int | None = None
    """Highest PCI Express generation in use."""
    max_generation: int | None = None
    """PCI Express generation that GPU and slot support."""
    sample_count: int = 0
    """Number of samples while TensorFlow computed."""


@dataclass(frozen=True, slots=True)
class Interconnect:
    """The link between two devices."""

    first_device: str
    """The first device. "CPU:0" stands for the host's memory."""
    second_device: str
    """The second device."""
    kind: str
    """Kind of link (pcie, nvlink, other), or what PCI Express passes through (switch, bridge, bridges, processors)."""
    description: str
    """Description, such as "PCI Express 4.0 x16", "NV4" or "SYS"."""
    max_gbps: float | None
    """Capacity in one direction without packet overhead, in 10⁹ bytes per second, or None if not known."""
    measured_gbps: float | None = None
    """Highest measured speed, in the same unit, or None if it was not measured."""
    has_peer_access: bool | None = None
    """Whether one GPU can access the other's memory (from TensorFlow's log or nvidia-smi), or None if unknown."""


@dataclass(frozen=True, slots=True)
class ProcessorTimes:
    """The speed of the processor during the run, measured with a program other than TensorFlow."""

    program: str
    """The measured program, such as "numpy 2.3.1". Only times of the same program can be compared."""
    median_seconds: float
    """Median time in seconds."""


@dataclass(frozen=True, slots=True)
class Disturbance:
    """The extent to which a run was disturbed."""

    disturbed_count: int = 0
    """Number of disturbed measurements."""
    assessed_count: int = 0
    """Number of measurements that took long enough to tell whether they were disturbed."""
    is_serious: bool = False
    """Whether the extent is so large that no conclusions are drawn from the run."""
    is_quota_exceeded: bool = False
    """Whether a quota stopped the program."""


@dataclass(frozen=True, slots=True)
class Crossover:
    """The size from which `device` is faster than `reference_device`."""

    workload: str
    model: str | None
    dtype: str
    reference_device: str
    device: str
    min_faster_size: int | None
    """Smallest timed size from which `device` is faster at all timed sizes, beyond noise. None if it never is."""
    max_slower_size: int | None
    """Largest timed size at which `device` is not faster beyond noise. None if it always is."""
    speedup: float
    """Time of `reference_device` divided by that of `device`, at the largest timed size."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """The speed of several devices together, compared with the fastest of them alone, for the same total batch."""

    strategy: str
    model: str | None
    batch_size: int
    """Total batch."""
    devices: tuple[str, ...]
    """The devices."""
    speedup: float
    """Time of the fastest single device divided by that of all devices."""
    speedup_low: float
    """Lower bound of the speedup, from the ends of both confidence intervals."""
    speedup_high: float
    """Upper bound of the speedup, computed in the same way."""
    compute_seconds: float | None
    """Seconds of computing the gradients, or None if not timed separately."""
    allreduce_seconds: float | None
    """Seconds of averaging the gradients and updating the weights, or the rest of the step if not timed separately.

    None if neither is known.
    """
    reasons: tuple[str, ...]
    """Sentences that explain a low speedup, the most important first, or an empty tuple if it is not low."""
    is_software: bool = False
    """Whether software GPUs were timed."""
    idle_seconds: float | None = None
    """Remaining seconds of the step, in which devices wait for the host or each other, or None if unknown."""
    input_seconds: float | None = None
    """Additional seconds of a step whose batch comes from the host's memory, or None if not timed."""
    fed_speedup: tuple[float, float, float] | None = None
    """(speedup, low, high) for steps whose batch comes from the host's memory, or None if not timed."""
    averaging_method: str | None = None
    """Method that averages the gradients, such as "NCCL". None if unknown or if TensorFlow only adds them up."""


@dataclass(frozen=True, slots=True)
class MeasurementChange:
    """The change of one measurement between two runs."""

    current: Measurement
    earlier: Measurement
    ratio: float
    """Time now divided by the earlier time."""
    noise: float
    """Largest relative deviation of the ratio from 1 that can be chance."""

    @property
    def exceeds_noise(self) -> bool:
        """Whether the change is larger than the noise."""
        return abs(math.log(self.ratio)) > math.log1p(self.noise)


@dataclass(frozen=True, slots=True)
class BenchComparison:
    """A comparison of a run with an earlier one."""

    file_name: str
    """File of the earlier run."""
    verdict: str
    """same, slower, faster, disturbed or incomparable."""
    ratio: float | None
    """Median ratio of the longer measurements, or None if the runs are not comparable."""
    noise: float | None
    """Largest relative change that can be chance, or None if the runs are not comparable."""
    changes: tuple[MeasurementChange, ...]
    """Changes of the measurements that both runs have and that were compared."""
    reason: str
    """Basis of the verdict, or the reason why the runs cannot be compared."""
    tensorflow: str | None = None
    """TensorFlow version of the earlier run, or None if not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """The complete result of `bench`. Renderers only format it."""

    target: str
    tensorflow: str | None
    devices: tuple[MeasuredDevice, ...]
    measurements: tuple[Measurement, ...]
    gpu_observations: tuple[GpuObservation, ...]
    crossovers: tuple[Crossover, ...]
    scalings: tuple[Scaling, ...]
    disturbance_text: str
    """Description of what disturbed the run, or "" if no disturbance was found."""
    stop_reason: str
    """Sentence on why the run ended early, or "" if it did not."""
    findings: tuple[Finding, ...]
    summary: str
    links: tuple[Interconnect, ...] = ()
    disturbance: Disturbance = Disturbance()
    speed_variation: float | None = None
    """Variation of the machine's speed from round to round, or None if not known."""
    processor_times: ProcessorTimes | None = None
    """Speed of the processor outside TensorFlow, or None if it was not measured."""
    check_command: str = ""
    """Command that reports why TensorFlow lists no GPU, or "" if it lists one or the user selected the devices."""
    comparison: BenchComparison | None = None
    """Comparison with an earlier run, or None if none was given."""
    plot_paths: tuple[str, ...] = ()
    """Paths of the charts that were written."""

    @property
    def has_times(self) -> bool:
        """Whether anything was timed."""
        return any(measurement.seconds for measurement in self.measurements)

    @property
    def is_unsteady(self) -> bool:
        """Whether the machine's speed varied enough to mention it."""
        return (
            self.speed_variation is not None
            and self.speed_variation >= MIN_SPEED_VARIATION
            and not self.disturbance.is_serious
        )

    @property
    def serious_disturbance_text(self) -> str:
        """Description of what disturbed the run if that prevents conclusions, else ""."""
        return self.disturbance_text if self.disturbance.is_serious else ""
