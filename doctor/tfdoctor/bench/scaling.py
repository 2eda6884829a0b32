"""Explain the scaling over several devices from the parts of a training step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.bench.interconnects import describe_transfer
from tfdoctor.bench.models import Scaling, format_duration
from tfdoctor.records import dataclass
from tfdoctor.text import join_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdoctor.bench.models import GpuObservation, Interconnect, Measurement

__all__ = ["POWER_SLOWDOWNS", "THERMAL_SLOWDOWNS", "compute_scalings"]

THERMAL_SLOWDOWNS = ("hw_thermal_slowdown", "sw_thermal_slowdown", "hw_slowdown")
POWER_SLOWDOWNS = ("sw_power_cap", "hw_power_brake_slowdown")
"""Reasons of nvidia-smi for low clocks: heat, and limited power."""
MIN_SPEED_RATIO = 0.8
"""The ratio of the times of the fastest and slowest device below which the difference is reported."""
MIN_EFFICIENCY = 0.75
"""The share of the ideal speedup from which no explanation is needed."""
MIN_COST_SHARE = 0.3
"""The share of a step above which a cost is reported as a reason."""
AVERAGING_NAMES = {
    "CollectiveAllReduce, NCCL": "NCCL",
    "CollectiveAllReduce, RING": "TensorFlow's own ring (no NCCL)",
    "NcclAllReduce": "NCCL",
    "HierarchicalCopyAllReduce": "hierarchical copies",
    "ReductionToOneDevice": "copies to one device and back",
}
"""The names of the averaging methods in sentences."""


@dataclass(frozen=True, slots=True)
class _TrainingStep:
    """A training step on several devices, with the times of its parts in seconds."""

    one: Measurement
    """Measurement of the step on all devices."""
    now: float
    """Time of the step on all devices."""
    alone: Mapping[str, Measurement]
    """Measurement of the same total batch on each single device."""
    base: float
    """Time of the fastest single device."""
    compute: float | None
    """Time to compute the gradients, or None if not timed."""
    allreduce: float | None
    """Time to average the gradients and update the weights, or None if not known."""
    idle: float | None
    """Remaining time of the step, or None if not known."""
    fed: float | None
    """Time of the step on all devices with its batch from the host's memory, or None if not timed."""
    fed_alone: float | None
    """Time of that step on one device, or None if not timed."""
    fed_speedup: tuple[float, float, float] | None
    """Speedup of that step with its bounds as (speedup, low, high), or None if not timed."""

    @property
    def count(self) -> int:
        """Number of devices."""
        return len(self.one.devices)

    @property
    def input(self) -> float | None:
        """Additional time of the step if its batch comes from the host's memory, or None if not timed."""
        return max(self.fed - self.now, 0.0) if self.fed is not None else None

    @property
    def parts(self) -> bool:
        """Whether its devices are parts of one processor."""
        return not self.one.on_gpu


def compute_scalings(
    runs: Sequence[Measurement], watched: Sequence[GpuObservation], links: Sequence[Interconnect]
) -> tuple[Scaling, ...]:
    """Return one scaling for each strategy, model and set of devices.

    It is for the largest batch for which the parts of a step were timed, or else for the largest batch.
    """
    best: dict[tuple[str, str | None, tuple[str, ...]], _TrainingStep] = {}
    for timed in runs:
        if (
            timed.workload != "train"
            or timed.strategy == "one"
            or timed.part is not None
            or not timed.seconds
        ):
            continue
        alone = {
            other.devices[0]: other
            for other in runs
            if other.family == timed.family
            and other.strategy == "one"
            and other.size == timed.size
            and other.devices[0] in timed.devices
            and other.seconds is not None
        }
        if not alone:  # no device has memory for the whole batch, or the time was used up
            continue
        step = _make_step(timed, alone, runs)
        key = timed.strategy, timed.model, timed.devices
        if key not in best or _rank_step(best[key]) < _rank_step(step):
            best[key] = step
    return tuple(_make_scaling(step, runs, watched, links) for step in best.values())


def _rank_step(step: _TrainingStep) -> tuple[bool, int]:
    """Return a sort key that prefers steps whose parts were timed, then larger batches."""
    return step.compute is not None, step.one.size


def _make_step(
    timed: Measurement, alone: Mapping[str, Measurement], runs: Sequence[Measurement]
) -> _TrainingStep:
    """Build a step from all its parts that were timed. Raise ValueError if the step itself was not timed."""
    if timed.seconds is None:
        raise ValueError("only what was timed scales")
    now = timed.seconds.median

    def find_part(
        name: str, *, devices: tuple[str, ...] = timed.devices, **properties: object
    ) -> Measurement | None:
        for other in runs:
            is_match = (other.model, other.part, other.devices) == (timed.model, name, devices)
            if (
                is_match
                and other.seconds
                and all(getattr(other, key) == value for key, value in properties.items())
            ):
                return other
        return None

    # The gradients are timed with towers only; each device of MirroredStrategy computes the same.
    gradients = find_part("compute", size=timed.size)
    allreduce_part = find_part("allreduce", strategy=timed.strategy)
    compute = (
        min(gradients.seconds.median, now)
        if gradients is not None and gradients.seconds is not None
        else None
    )
    remaining = now - compute if compute is not None else None
    allreduce, idle = remaining, None
    if allreduce_part is not None and allreduce_part.seconds is not None:
        # An all-reduce can overlap with the computation, so it takes at most the rest of the step.
        allreduce = min(allreduce_part.seconds.median, now if remaining is None else remaining)
        idle = remaining - allreduce if remaining is not None else None
    fed = find_part("fed", size=timed.size) if timed.strategy == "towers" else None
    fed_alone = next(
        (
            candidate
            for name in alone
            if (candidate := find_part("fed", devices=(name,), size=timed.size)) is not None
        ),
        None,
    )
    speedup = None
    if fed is not None and fed_alone is not None and fed.seconds and fed_alone.seconds:
        single, several = fed_alone.seconds, fed.seconds
        speedup = single.median / several.median, single.low / several.high, single.high / several.low
    return _TrainingStep(
        timed,
        now,
        alone,
        min(other.seconds.median for other in alone.values() if other.seconds is not None),
        compute,
        allreduce,
        idle,
        fed.seconds.median if fed is not None and fed.seconds else None,
        fed_alone.seconds.median if fed_alone is not None and fed_alone.seconds else None,
        speedup,
    )


def _make_scaling(
    step: _TrainingStep,
    runs: Sequence[Measurement],
    watched: Sequence[GpuObservation],
    links: Sequence[Interconnect],
) -> Scaling:
    """Build the scaling of a step: its speedup and, if that is low, the reasons."""
    timed = step.one
    fastest = min(step.alone.values(), key=lambda other: other.seconds.median if other.seconds else 0.0)
    base, now = fastest.seconds, timed.seconds
    if base is None or now is None:
        raise ValueError("only what was timed scales")
    speedup = base.median / now.median
    is_slow = speedup < MIN_EFFICIENCY * step.count
    is_input_bound = step.fed_speedup is not None and step.fed_speedup[0] < MIN_EFFICIENCY * step.count
    reasons: tuple[str, ...] = ()
    if is_slow or (is_input_bound and _find_input_loss(step)):
        reasons = tuple(_list_reasons(step, runs, watched, links, is_slow=is_slow))
    return Scaling(
        timed.strategy,
        timed.model,
        timed.size,
        timed.devices,
        speedup,
        base.low / now.high,
        base.high / now.low,
        step.compute,
        step.allreduce,
        reasons,
        timed.software,
        step.idle,
        step.input,
        step.fed_speedup,
        AVERAGING_NAMES.get(timed.way or "", timed.way),
    )


def _list_reasons(
    step: _TrainingStep,
    runs: Sequence[Measurement],
    watched: Sequence[GpuObservation],
    links: Sequence[Interconnect],
    *,
    is_slow: bool,
) -> list[str]:
    """Return sentences that explain the speed, most important first. Each is based on a measurement."""
    reasons: list[tuple[float, str]] = []
    if is_slow:
        reasons += _find_device_losses(step, watched)
        reasons += _find_step_losses(step, runs, links)
    reasons += _find_input_loss(step)
    reasons.sort(key=lambda pair: -pair[0])
    return [sentence for _, sentence in reasons] or [
        "What was measured does not say why; the averaging of gradients was not timed apart."
        if step.compute is None
        else "What was measured does not say why."
    ]


def _find_device_losses(step: _TrainingStep, watched: Sequence[GpuObservation]) -> list[tuple[float, str]]:
    """Return problems of the devices themselves, each with a weight by which reasons are sorted.

    The weights are above 1, so these problems come before the parts of a step.
    """
    timed, losses = step.one, []
    if step.parts:
        sentence = "are parts of the same processor: together they have no more cores than one."
        losses.append((9.0, f"{join_words(timed.devices)} {sentence}"))
    if timed.software:
        losses.append(
            (9.0, f"{join_words(timed.devices)} are software: they share this machine's processor.")
        )
    for card in watched:
        if card.device in timed.devices and card.processes:
            sentence = (
                f"Another program computes on {card.device} ({card.processes[0]}); the others wait for it."
            )
            losses.append((8.0, sentence))
        if card.device in timed.devices and set(card.slowdowns) & {*THERMAL_SLOWDOWNS, *POWER_SLOWDOWNS}:
            sentence = f"{card.device} lowers its clocks ({card.slowdowns[0]}); the others wait for it."
            losses.append((7.0, sentence))
    times = [other.seconds.median for other in step.alone.values() if other.seconds is not None]
    if not step.parts and len(times) > 1 and min(times) < MIN_SPEED_RATIO * max(times):
        slowest = max((o.seconds.median, name) for name, o in step.alone.items() if o.seconds is not None)[1]
        losses.append(
            (6.0, f"{slowest} is slower than the others, and each step waits for the slowest device.")
        )
    return losses


def _find_step_losses(
    step: _TrainingStep, runs: Sequence[Measurement], links: Sequence[Interconnect]
) -> list[tuple[float, str]]:
    """Return the parts of a step that take much time, each with a weight of about its share."""
    losses: list[tuple[float, str]] = []
    compute, allreduce, idle, total = step.compute, step.allreduce, step.idle, step.now
    if allreduce is not None and (compute is not None or step.one.strategy == "mirrored"):
        # If averaging was not timed separately, the rest of the step counts as averaging.
        saved = step.base - compute if compute is not None else None
        if allreduce > MIN_COST_SHARE * total or (saved is not None and 0 < saved < allreduce):
            method = AVERAGING_NAMES.get(step.one.way or "", step.one.way)
            note = f" by {method}" if method else ""
            comparison = (
                f", more than the split saves ({format_duration(saved)})"
                if saved and 0 < saved < allreduce
                else ""
            )
            sentence = (
                f"Averaging the gradients and changing the weights{note} takes {100 * allreduce / total:.0f} % of each "
                f"step ({format_duration(allreduce)}){comparison}{describe_transfer(step.one.devices, runs, links)}."
            )
            losses.append((allreduce / total, sentence))
    if idle is not None and idle > MIN_COST_SHARE * total:
        sentence = (
            f"For {100 * idle / total:.0f} % of each step ({format_duration(idle)}) the devices neither compute nor average: "
            "they wait for the program that starts their work, or for each other."
        )
        losses.append((idle / total, sentence))
    # Devices that share a processor take as long for two halves as for the whole batch.
    if (
        compute is not None
        and compute > MIN_EFFICIENCY * step.base
        and not step.parts
        and not step.one.software
    ):
        share = f"1/{step.count} of it takes {100 * compute / step.base:.0f} % of the time of all of it on one device."
        losses.append((compute / total * 0.9, f"The batch of {step.one.size} is too small: {share}"))
    return losses


def _find_input_loss(step: _TrainingStep) -> list[tuple[float, str]]:
    """Return a reason if transferring the batch to the devices limits the speed, else []."""
    if step.input is None or step.fed is None or step.fed_speedup is None or step.fed_alone is None:
        return []
    share = step.input / step.fed
    if share <= MIN_COST_SHARE or step.fed_speedup[0] >= MIN_EFFICIENCY * step.count:
        return []
    sentence = (
        "Input-bound: where the batch comes from the host's memory, bringing it to the devices takes "
        f"{100 * share:.0f} % of a step ({format_duration(step.input)} of {format_duration(step.fed)}; "
        f"{format_duration(step.fed_alone)} on one device)."
    )
    return [(share, sentence)]
