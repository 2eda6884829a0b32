"""Explain the scaling over several devices from the parts of a training step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.records import dataclass
from tfdoctor.core.text import join_words
from tfdoctor.extensions.bench.interconnects import describe_transfer
from tfdoctor.extensions.bench.models import Scaling, format_duration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdoctor.extensions.bench.models import GpuObservation, Interconnect, Measurement

__all__ = ["POWER_SLOWDOWNS", "THERMAL_SLOWDOWNS", "compute_scalings"]

THERMAL_SLOWDOWNS = ("hw_thermal_slowdown", "sw_thermal_slowdown", "hw_slowdown")
"""The reasons for low clocks that nvidia-smi reports if a GPU is hot."""
POWER_SLOWDOWNS = ("sw_power_cap", "hw_power_brake_slowdown")
"""The reasons for low clocks that nvidia-smi reports if the power is limited."""
MIN_SPEED_RATIO = 0.8
"""The ratio of the times of the fastest and slowest device below which the difference is reported."""
MIN_EFFICIENCY = 0.75
"""The share of the ideal speedup from which no explanation is needed."""
MIN_COST_SHARE = 0.3
"""The share of a step above which the time of one of its parts is reported as a reason."""
AVERAGING_NAMES = {
    "CollectiveAllReduce, NCCL": "NCCL",
    "CollectiveAllReduce, RING": "TensorFlow's own ring (no NCCL)",
    "NcclAllReduce": "NCCL",
    "HierarchicalCopyAllReduce": "hierarchical copies",
    "ReductionToOneDevice": "copies to one device and back",
}
"""The name in sentences of each averaging method, by its name in `Measurement.averaging_method`."""


@dataclass(frozen=True, slots=True)
class _TrainingStep:
    """A training step on several devices, with the times of its parts in seconds."""

    measurement: Measurement
    """Measurement of the step on all devices."""
    step_seconds: float
    """Time of the step on all devices."""
    single_measurements: Mapping[str, Measurement]
    """Measurement of the same total batch on each single device, by its name."""
    fastest_single_seconds: float
    """Time of the fastest single device."""
    compute_seconds: float | None
    """Time to compute the gradients, or None if not timed."""
    allreduce_seconds: float | None
    """Time to average the gradients and update the weights, or None if not known."""
    idle_seconds: float | None
    """Remaining time of the step, or None if not known."""
    fed_seconds: float | None
    """Time of the step on all devices with its batch from the host's memory, or None if not timed."""
    fed_single_seconds: float | None
    """Time of the step on one device with its batch from the host's memory, or None if not timed."""
    fed_speedup: tuple[float, float, float] | None
    """(speedup, low, high) for steps whose batch comes from the host's memory, or None if not timed."""

    @property
    def device_count(self) -> int:
        """Number of devices."""
        return len(self.measurement.devices)

    @property
    def input_seconds(self) -> float | None:
        """Additional time of the step if its batch comes from the host's memory, or None if not timed."""
        return max(self.fed_seconds - self.step_seconds, 0.0) if self.fed_seconds is not None else None

    @property
    def has_only_cpus(self) -> bool:
        """Whether no device is a GPU, so that all are parts of the same processor."""
        return not self.measurement.uses_gpu


def compute_scalings(
    measurements: Sequence[Measurement], observations: Sequence[GpuObservation], links: Sequence[Interconnect]
) -> tuple[Scaling, ...]:
    """Return one scaling for each strategy, model and set of devices.

    Its batch is the largest for which the parts of a step were timed. If there is none, its batch is the largest.
    """
    step_by_key: dict[tuple[str, str | None, tuple[str, ...]], _TrainingStep] = {}
    for measurement in measurements:
        if (
            measurement.workload != "train"
            or measurement.strategy == "one"
            or measurement.part is not None
            or not measurement.seconds
        ):
            continue
        single_measurements = {
            other.devices[0]: other
            for other in measurements
            if other.curve_key == measurement.curve_key
            and other.strategy == "one"
            and other.size == measurement.size
            and other.devices[0] in measurement.devices
            and other.seconds is not None
        }
        if not single_measurements:  # no device has memory for the whole batch, or the time was used up
            continue
        step = _make_step(measurement, single_measurements, measurements)
        key = measurement.strategy, measurement.model, measurement.devices
        if key not in step_by_key or _rank_step(step_by_key[key]) < _rank_step(step):
            step_by_key[key] = step
    return tuple(_make_scaling(step, measurements, observations, links) for step in step_by_key.values())


def _rank_step(step: _TrainingStep) -> tuple[bool, int]:
    """Return a sort key that prefers steps whose parts were timed, then larger batches."""
    return step.compute_seconds is not None, step.measurement.size


def _make_step(
    measurement: Measurement,
    single_measurements: Mapping[str, Measurement],
    measurements: Sequence[Measurement],
) -> _TrainingStep:
    """Build a step from those of its parts that were timed. Raise ValueError if the step itself was not timed."""
    if measurement.seconds is None:
        raise ValueError("only what was timed scales")
    step_seconds = measurement.seconds.median

    def find_part(
        name: str, *, devices: tuple[str, ...] = measurement.devices, **properties: object
    ) -> Measurement | None:
        """Return the measurement of a part of this model's step, with these properties, or None if it was not timed."""
        for other in measurements:
            is_match = (other.model, other.part, other.devices) == (measurement.model, name, devices)
            if (
                is_match
                and other.seconds
                and all(getattr(other, key) == value for key, value in properties.items())
            ):
                return other
        return None

    # The gradients are timed with towers only, but each device of MirroredStrategy computes the same. So any strategy fits.
    gradients = find_part("compute", size=measurement.size)
    allreduce_part = find_part("allreduce", strategy=measurement.strategy)
    compute_seconds = (
        min(gradients.seconds.median, step_seconds)
        if gradients is not None and gradients.seconds is not None
        else None
    )
    remaining_seconds = step_seconds - compute_seconds if compute_seconds is not None else None
    allreduce_seconds, idle_seconds = remaining_seconds, None
    if allreduce_part is not None and allreduce_part.seconds is not None:
        # An all-reduce can overlap with the computation, so it takes at most the rest of the step.
        allreduce_seconds = min(
            allreduce_part.seconds.median, step_seconds if remaining_seconds is None else remaining_seconds
        )
        idle_seconds = remaining_seconds - allreduce_seconds if remaining_seconds is not None else None
    fed = find_part("fed", size=measurement.size) if measurement.strategy == "towers" else None
    fed_single = next(
        (
            candidate
            for name in single_measurements
            if (candidate := find_part("fed", devices=(name,), size=measurement.size)) is not None
        ),
        None,
    )
    fed_speedup = None
    if fed is not None and fed_single is not None and fed.seconds and fed_single.seconds:
        single_time, all_devices_time = fed_single.seconds, fed.seconds
        fed_speedup = (
            single_time.median / all_devices_time.median,
            single_time.low / all_devices_time.high,
            single_time.high / all_devices_time.low,
        )
    return _TrainingStep(
        measurement=measurement,
        step_seconds=step_seconds,
        single_measurements=single_measurements,
        fastest_single_seconds=min(
            other.seconds.median for other in single_measurements.values() if other.seconds is not None
        ),
        compute_seconds=compute_seconds,
        allreduce_seconds=allreduce_seconds,
        idle_seconds=idle_seconds,
        fed_seconds=fed.seconds.median if fed is not None and fed.seconds else None,
        fed_single_seconds=fed_single.seconds.median
        if fed_single is not None and fed_single.seconds
        else None,
        fed_speedup=fed_speedup,
    )


def _make_scaling(
    step: _TrainingStep,
    measurements: Sequence[Measurement],
    observations: Sequence[GpuObservation],
    links: Sequence[Interconnect],
) -> Scaling:
    """Build the scaling of a step: its speedup and, if that is low, the reasons."""
    measurement = step.measurement
    fastest = min(
        step.single_measurements.values(), key=lambda other: other.seconds.median if other.seconds else 0.0
    )
    single_time, step_time = fastest.seconds, measurement.seconds
    if single_time is None or step_time is None:
        raise ValueError("only what was timed scales")
    speedup = single_time.median / step_time.median
    is_slow = speedup < MIN_EFFICIENCY * step.device_count
    is_input_bound = step.fed_speedup is not None and step.fed_speedup[0] < MIN_EFFICIENCY * step.device_count
    reasons: tuple[str, ...] = ()
    if is_slow or (is_input_bound and _find_input_reason(step)):
        reasons = tuple(_list_reasons(step, measurements, observations, links, is_slow=is_slow))
    return Scaling(
        strategy=measurement.strategy,
        model=measurement.model,
        batch_size=measurement.size,
        devices=measurement.devices,
        speedup=speedup,
        speedup_low=single_time.low / step_time.high,
        speedup_high=single_time.high / step_time.low,
        compute_seconds=step.compute_seconds,
        allreduce_seconds=step.allreduce_seconds,
        reasons=reasons,
        is_software=measurement.is_software,
        idle_seconds=step.idle_seconds,
        input_seconds=step.input_seconds,
        fed_speedup=step.fed_speedup,
        averaging_method=AVERAGING_NAMES.get(
            measurement.averaging_method or "", measurement.averaging_method
        ),
    )


def _list_reasons(
    step: _TrainingStep,
    measurements: Sequence[Measurement],
    observations: Sequence[GpuObservation],
    links: Sequence[Interconnect],
    *,
    is_slow: bool,
) -> list[str]:
    """Return sentences that explain the speed, most important first. Each is based on a measurement."""
    weighted_reasons: list[tuple[float, str]] = []
    if is_slow:
        weighted_reasons += _find_device_reasons(step, observations)
        weighted_reasons += _find_step_reasons(step, measurements, links)
    weighted_reasons += _find_input_reason(step)
    weighted_reasons.sort(key=lambda pair: -pair[0])
    return [sentence for _, sentence in weighted_reasons] or [
        "What was measured does not say why; the averaging of gradients was not timed apart."
        if step.compute_seconds is None
        else "What was measured does not say why."
    ]


def _find_device_reasons(
    step: _TrainingStep, observations: Sequence[GpuObservation]
) -> list[tuple[float, str]]:
    """Return (weight, sentence) for each problem of the devices themselves.

    The weights are above 1, so that these problems come before the parts of a step.
    """
    measurement, weighted_reasons = step.measurement, []
    if step.has_only_cpus:
        sentence = "are parts of the same processor: together they have no more cores than one."
        weighted_reasons.append((9.0, f"{join_words(measurement.devices)} {sentence}"))
    if measurement.is_software:
        weighted_reasons.append(
            (9.0, f"{join_words(measurement.devices)} are software: they share this machine's processor.")
        )
    for observation in observations:
        if observation.device in measurement.devices and observation.other_processes:
            program = observation.other_processes[0]
            sentence = (
                f"Another program computes on {observation.device} ({program}); the others wait for it."
            )
            weighted_reasons.append((8.0, sentence))
        if observation.device in measurement.devices and set(observation.slowdowns) & {
            *THERMAL_SLOWDOWNS,
            *POWER_SLOWDOWNS,
        }:
            sentence = f"{observation.device} lowers its clocks ({observation.slowdowns[0]}); the others wait for it."
            weighted_reasons.append((7.0, sentence))
    single_seconds = [
        other.seconds.median for other in step.single_measurements.values() if other.seconds is not None
    ]
    if (
        not step.has_only_cpus
        and len(single_seconds) > 1
        and min(single_seconds) < MIN_SPEED_RATIO * max(single_seconds)
    ):
        _, slowest_device = max(
            (other.seconds.median, device)
            for device, other in step.single_measurements.items()
            if other.seconds is not None
        )
        weighted_reasons.append(
            (6.0, f"{slowest_device} is slower than the others, and each step waits for the slowest device.")
        )
    return weighted_reasons


def _find_step_reasons(
    step: _TrainingStep, measurements: Sequence[Measurement], links: Sequence[Interconnect]
) -> list[tuple[float, str]]:
    """Return (weight, sentence) for each part of a step that takes much time. The weight is about its share."""
    weighted_reasons: list[tuple[float, str]] = []
    # all in seconds
    compute, allreduce = step.compute_seconds, step.allreduce_seconds
    idle, total = step.idle_seconds, step.step_seconds
    if allreduce is not None and (compute is not None or step.measurement.strategy == "mirrored"):
        # If averaging was not timed separately, the rest of the step counts as averaging.
        saved = step.fastest_single_seconds - compute if compute is not None else None
        if allreduce > MIN_COST_SHARE * total or (saved is not None and 0 < saved < allreduce):
            method = AVERAGING_NAMES.get(
                step.measurement.averaging_method or "", step.measurement.averaging_method
            )
            note = f" by {method}" if method else ""
            comparison = (
                f", more than the split saves ({format_duration(saved)})"
                if saved and 0 < saved < allreduce
                else ""
            )
            transfer = describe_transfer(step.measurement.devices, measurements, links)
            sentence = (
                f"Averaging the gradients and changing the weights{note} takes {100 * allreduce / total:.0f} % of each "
                f"step ({format_duration(allreduce)}){comparison}{transfer}."
            )
            weighted_reasons.append((allreduce / total, sentence))
    if idle is not None and idle > MIN_COST_SHARE * total:
        sentence = (
            f"For {100 * idle / total:.0f} % of each step ({format_duration(idle)}) the devices neither compute nor average: "
            "they wait for the program that starts their work, or for each other."
        )
        weighted_reasons.append((idle / total, sentence))
    # Devices that share a processor take as long for two halves as for the whole batch.
    if (
        compute is not None
        and compute > MIN_EFFICIENCY * step.fastest_single_seconds
        and not step.has_only_cpus
        and not step.measurement.is_software
    ):
        percentage = 100 * compute / step.fastest_single_seconds
        share = (
            f"1/{step.device_count} of it takes {percentage:.0f} % of the time of all of it on one device."
        )
        sentence = f"The batch of {step.measurement.size} is too small: {share}"
        weighted_reasons.append((compute / total * 0.9, sentence))
    return weighted_reasons


def _find_input_reason(step: _TrainingStep) -> list[tuple[float, str]]:
    """Return a (weight, sentence) if transferring the batch to the devices limits the speed, else []."""
    if (
        step.input_seconds is None
        or step.fed_seconds is None
        or step.fed_speedup is None
        or step.fed_single_seconds is None
    ):
        return []
    share = step.input_seconds / step.fed_seconds
    if share <= MIN_COST_SHARE or step.fed_speedup[0] >= MIN_EFFICIENCY * step.device_count:
        return []
    sentence = (
        "Input-bound: where the batch comes from the host's memory, bringing it to the devices takes "
        f"{100 * share:.0f} % of a step ({format_duration(step.input_seconds)} of {format_duration(step.fed_seconds)}; "
        f"{format_duration(step.fed_single_seconds)} on one device)."
    )
    return [(share, sentence)]
