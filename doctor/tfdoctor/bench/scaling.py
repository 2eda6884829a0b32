"""Several devices against one: the parts of a step, and why they are not faster. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.bench.interconnects import describe_transfer
from tfdoctor.bench.models import Scaling, duration
from tfdoctor.records import dataclass
from tfdoctor.text import join_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdoctor.bench.models import Interconnect, Timed, Watched

__all__ = ["POWER", "THERMAL", "scalings"]

THERMAL = ("hw_thermal_slowdown", "sw_thermal_slowdown", "hw_slowdown")
POWER = ("sw_power_cap", "hw_power_brake_slowdown")
ALIKE = 0.8
"""One of two like devices that takes less of the other's time than this is a faster device."""
GOOD = 0.75
"""From this part of n times the speed of one on, there is nothing to explain."""
SHARE = 0.3
"""A part of a step that is larger than this is a reason."""
BY = {
    "CollectiveAllReduce, NCCL": "NCCL",
    "CollectiveAllReduce, RING": "TensorFlow's own ring (no NCCL)",
    "NcclAllReduce": "NCCL",
    "HierarchicalCopyAllReduce": "hierarchical copies",
    "ReductionToOneDevice": "copies to one device and back",
}
"""What a strategy averages by → how a sentence names it."""


@dataclass(frozen=True, slots=True)
class _TrainingStep:
    """One step on several devices, and all that was timed of it; times in seconds."""

    one: Timed
    now: float
    alone: Mapping[str, Timed]
    """Device → the same whole batch on it."""
    base: float
    """The fastest of these."""
    compute: float | None
    allreduce: float | None
    idle: float | None
    fed: float | None
    fed_alone: float | None
    """The step with its batch from the host's memory, on all and on one."""
    fed_speedup: tuple[float, float, float] | None

    @property
    def count(self) -> int:
        return len(self.one.devices)

    @property
    def input(self) -> float | None:
        return max(self.fed - self.now, 0.0) if self.fed is not None else None

    @property
    def parts(self) -> bool:
        """Whether its devices are parts of one processor."""
        return not self.one.on_gpu


def scalings(
    runs: Sequence[Timed], watched: Sequence[Watched], links: Sequence[Interconnect]
) -> tuple[Scaling, ...]:
    """Return one a strategy, a model and a set of devices: at the largest batch whose parts were timed, where one
    was.
    """
    best: dict[tuple[str, str | None, tuple[str, ...]], _TrainingStep] = {}
    for one in runs:
        if one.workload != "train" or one.strategy == "one" or one.part is not None or not one.seconds:
            continue
        alone = {
            other.devices[0]: other
            for other in runs
            if other.family == one.family
            and other.strategy == "one"
            and other.size == one.size
            and other.devices[0] in one.devices
            and other.seconds is not None
        }
        if not alone:  # it has no memory for all of the batch, or the time was used up
            continue
        step = _step(one, alone, runs)
        key = one.strategy, one.model, one.devices
        if key not in best or _worth(best[key]) < _worth(step):
            best[key] = step
    return tuple(_make_scaling(step, runs, watched, links) for step in best.values())


def _worth(step: _TrainingStep) -> tuple[bool, int]:
    """Of two batches, the one that tells more: without its parts, a time says nothing of why."""
    return step.compute is not None, step.one.size


def _step(one: Timed, alone: Mapping[str, Timed], runs: Sequence[Timed]) -> _TrainingStep:
    if one.seconds is None:
        raise ValueError("only what was timed scales")
    now = one.seconds.median

    def part(name: str, *, devices: tuple[str, ...] = one.devices, **of: object) -> Timed | None:
        for other in runs:
            fits = (other.model, other.part, other.devices) == (one.model, name, devices)
            if fits and other.seconds and all(getattr(other, key) == value for key, value in of.items()):
                return other
        return None

    # The gradients alone are of towers: of MirroredStrategy each device computes the same.
    gradients = part("compute", size=one.size)
    share = part("allreduce", strategy=one.strategy)
    compute = (
        min(gradients.seconds.median, now)
        if gradients is not None and gradients.seconds is not None
        else None
    )
    rest = now - compute if compute is not None else None
    allreduce, idle = rest, None
    if share is not None and share.seconds is not None:
        # What was timed by itself can be hidden behind the computing: never more than there is room for.
        allreduce = min(share.seconds.median, now if rest is None else rest)
        idle = rest - allreduce if rest is not None else None
    fed = part("fed", size=one.size) if one.strategy == "towers" else None
    fed_alone = next(
        (found for name in alone if (found := part("fed", devices=(name,), size=one.size)) is not None), None
    )
    speedup = None
    if fed is not None and fed_alone is not None and fed.seconds and fed_alone.seconds:
        a, b = fed_alone.seconds, fed.seconds
        speedup = a.median / b.median, a.low / b.high, a.high / b.low
    return _TrainingStep(
        one,
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
    step: _TrainingStep, runs: Sequence[Timed], watched: Sequence[Watched], links: Sequence[Interconnect]
) -> Scaling:
    one = step.one
    fastest = min(step.alone.values(), key=lambda other: other.seconds.median if other.seconds else 0.0)
    base, now = fastest.seconds, one.seconds
    if base is None or now is None:
        raise ValueError("only what was timed scales")
    speedup = base.median / now.median
    slow = speedup < GOOD * step.count
    waits = step.fed_speedup is not None and step.fed_speedup[0] < GOOD * step.count
    why: tuple[str, ...] = ()
    if slow or (waits and _input(step)):
        why = tuple(_reasons(step, runs, watched, links, slow=slow))
    return Scaling(
        one.strategy,
        one.model,
        one.size,
        one.devices,
        speedup,
        base.low / now.high,
        base.high / now.low,
        step.compute,
        step.allreduce,
        why,
        one.software,
        step.idle,
        step.input,
        step.fed_speedup,
        BY.get(one.way or "", one.way),
    )


def _reasons(
    step: _TrainingStep,
    runs: Sequence[Timed],
    watched: Sequence[Watched],
    links: Sequence[Interconnect],
    *,
    slow: bool,
) -> list[str]:
    """Return sentences, what matters most first; each rests on something that was measured."""
    found: list[tuple[float, str]] = []
    if slow:
        found += _find_device_losses(step, watched)
        found += _find_step_losses(step, runs, links)
    found += _input(step)
    found.sort(key=lambda pair: -pair[0])
    return [sentence for _, sentence in found] or [
        "What was measured does not say why; the averaging of gradients was not timed apart."
        if step.compute is None
        else "What was measured does not say why."
    ]


def _find_device_losses(step: _TrainingStep, watched: Sequence[Watched]) -> list[tuple[float, str]]:
    """Return what is wrong with the devices themselves."""
    one, found = step.one, []
    if step.parts:
        said = "are parts of the same processor: together they have no more cores than one."
        found.append((9.0, f"{join_words(one.devices)} {said}"))
    if one.software:
        found.append((9.0, f"{join_words(one.devices)} are software: they share this machine's processor."))
    for card in watched:
        if card.device in one.devices and card.processes:
            said = f"Another program computes on {card.device} ({card.processes[0]}); the others wait for it."
            found.append((8.0, said))
        if card.device in one.devices and set(card.slowdowns) & {*THERMAL, *POWER}:
            said = f"{card.device} lowers its clocks ({card.slowdowns[0]}); the others wait for it."
            found.append((7.0, said))
    times = [other.seconds.median for other in step.alone.values() if other.seconds is not None]
    if not step.parts and len(times) > 1 and min(times) < ALIKE * max(times):
        last = max((o.seconds.median, name) for name, o in step.alone.items() if o.seconds is not None)[1]
        found.append((6.0, f"{last} is slower than the others, and each step waits for the slowest device."))
    return found


def _find_step_losses(
    step: _TrainingStep, runs: Sequence[Timed], links: Sequence[Interconnect]
) -> list[tuple[float, str]]:
    """Return what takes the time of a step."""
    found: list[tuple[float, str]] = []
    compute, allreduce, idle, total = step.compute, step.allreduce, step.idle, step.now
    if allreduce is not None and (compute is not None or step.one.strategy == "mirrored"):
        # With no place for it apart, the rest of the step is what it takes.
        saved = step.base - compute if compute is not None else None
        if allreduce > SHARE * total or (saved is not None and 0 < saved < allreduce):
            by = BY.get(step.one.way or "", step.one.way)
            how = f" by {by}" if by else ""
            more = (
                f", more than the split saves ({duration(saved)})" if saved and 0 < saved < allreduce else ""
            )
            said = (
                f"Averaging the gradients and changing the weights{how} takes {100 * allreduce / total:.0f} % of each "
                f"step ({duration(allreduce)}){more}{describe_transfer(step.one.devices, runs, links)}."
            )
            found.append((allreduce / total, said))
    if idle is not None and idle > SHARE * total:
        said = (
            f"For {100 * idle / total:.0f} % of each step ({duration(idle)}) the devices neither compute nor average: "
            "they wait for the program that starts their work, or for each other."
        )
        found.append((idle / total, said))
    # Devices that share a processor take as long for two halves as for the whole, however large they are.
    if compute is not None and compute > GOOD * step.base and not step.parts and not step.one.software:
        much = f"1/{step.count} of it takes {100 * compute / step.base:.0f} % of the time of all of it on one device."
        found.append((compute / total * 0.9, f"The batch of {step.one.size} is too small: {much}"))
    return found


def _input(step: _TrainingStep) -> list[tuple[float, str]]:
    """Return whether bringing the batch to the devices is what takes the time."""
    if step.input is None or step.fed is None or step.fed_speedup is None or step.fed_alone is None:
        return []
    share = step.input / step.fed
    if share <= SHARE or step.fed_speedup[0] >= GOOD * step.count:
        return []
    said = (
        "Input-bound: where the batch comes from the host's memory, bringing it to the devices takes "
        f"{100 * share:.0f} % of a step ({duration(step.input)} of {duration(step.fed)}; "
        f"{duration(step.fed_alone)} on one device)."
    )
    return [(share, said)]
