"""What was timed → from where on a GPU is worth it, why several devices are slower than one, what disturbed."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from tfdoctor.bench.models import Bench, Crossover, Scaling
from tfdoctor.causes.codes import BELOW_PEAK, BENCH_DISTURBED, NOT_TIMED, SLOWER_THAN_ONE
from tfdoctor.findings import Cause, Evidence, Finding, Remedy, Severity
from tfdoctor.text import listed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdoctor.bench.models import Device, Timed, Watched
    from tfdoctor.bench.reader import Measured

__all__ = ["judged"]

OTHERS = 0.15
"""The part of all processors that others may use; from here on a run is called disturbed."""
FAR = 0.3
"""Below this part of a card's peak in float32 its largest product is far off; cuBLAS reaches 0.6 and more."""
ALIKE = 0.8
"""One of two like devices that takes less of the other's time than this is a faster device."""
THERMAL = ("hw_thermal_slowdown", "sw_thermal_slowdown", "hw_slowdown")
POWER = ("sw_power_cap", "hw_power_brake_slowdown")


def judged(measured: Measured, target: str, peaks: Mapping[str, float], *, software: bool = False) -> Bench:
    """`peaks`: device → GFLOP/s in float32 that it can give; those that are known.

    `software`: the GPUs are tfdoctor's software GPU. Their times are kept, and each says so; none is set against a
    card's peak, and they are no reason to say whether a GPU is worth it.
    """
    devices = tuple(_device(one, peaks, software=software) for one in measured.devices)
    runs = tuple(
        dataclasses.replace(one, software=software and any(map(_is_gpu, one.devices)))
        for one in measured.runs
    )
    crossover = () if software else _crossovers(runs, devices)
    scaling = _scalings(runs, measured.watched)
    disturbed = _disturbed(runs, measured.watched)
    findings = [
        *_not_timed(measured),
        *_is_disturbed(disturbed),
        *_slower_than_one(scaling),
        *_below_peak(runs, devices, measured.watched),
    ]
    return Bench(
        target=target,
        tensorflow=measured.tensorflow,
        devices=devices,
        runs=runs,
        watched=measured.watched,
        crossover=crossover,
        scaling=scaling,
        disturbed=disturbed,
        stopped=measured.stopped,
        findings=tuple(findings),
        summary=_summary(runs, devices, crossover, scaling),
    )


def _device(one: Device, peaks: Mapping[str, float], *, software: bool) -> Device:
    if software and _is_gpu(one.device):
        return dataclasses.replace(one, software=True)
    return dataclasses.replace(one, peak_gflops=peaks.get(one.device))


def _is_gpu(name: str) -> bool:
    return name.startswith("GPU:")


# ---------------------------------------------------------------- CPU against GPU


def _crossovers(runs: Sequence[Timed], devices: Sequence[Device]) -> tuple[Crossover, ...]:
    curves: dict[tuple[str, str | None, str, str], dict[int, Timed]] = {}
    for one in runs:
        if one.strategy == "one" and one.part is None and len(one.devices) == 1 and one.seconds:
            curves.setdefault((one.workload, one.model, one.dtype, one.devices[0]), {})[one.size] = one
    found = []
    gpus = [one.device for one in devices if _is_gpu(one.device)]
    for (workload, model, dtype, device), mine in curves.items():
        against = curves.get((workload, model, dtype, "CPU:0"))
        if device not in gpus or against is None:
            continue
        sizes = sorted(mine.keys() & against.keys())
        if sizes:
            found.append(_crossover((workload, model, dtype, device), sizes, mine, against))
    return tuple(found)


def _crossover(
    key: tuple[str, str | None, str, str],
    sizes: Sequence[int],
    mine: Mapping[int, Timed],
    against: Mapping[int, Timed],
) -> Crossover:
    first, below = None, None
    for size in reversed(sizes):
        a, b = mine[size].seconds, against[size].seconds
        if a is None or b is None or a.high >= b.low:
            below = size
            break
        first = size
    last, base = mine[sizes[-1]].seconds, against[sizes[-1]].seconds
    fold = base.median / last.median if last is not None and base is not None else 1.0
    workload, model, dtype, device = key
    return Crossover(workload, model, dtype, "CPU:0", device, first, below, fold)


# ---------------------------------------------------------------- several devices


def _scalings(runs: Sequence[Timed], watched: Sequence[Watched]) -> tuple[Scaling, ...]:
    """One a strategy, a model and a set of devices: at the largest batch."""
    best: dict[tuple[str, str | None, tuple[str, ...]], Timed] = {}
    for one in runs:
        if one.workload == "train" and one.strategy != "one" and one.part is None and one.seconds:
            key = one.strategy, one.model, one.devices
            if key not in best or best[key].size < one.size:
                best[key] = one
    found = []
    for one in best.values():
        alone = {
            other.devices[0]: other
            for other in runs
            if other.family == one.family
            and other.strategy == "one"
            and other.size == one.size
            and other.devices[0] in one.devices
            and other.seconds is not None
        }
        if alone:
            found.append(_scaling(one, alone, runs, watched))
    return tuple(found)


def _scaling(
    one: Timed, alone: Mapping[str, Timed], runs: Sequence[Timed], watched: Sequence[Watched]
) -> Scaling:
    fastest = min(alone.values(), key=lambda other: other.seconds.median if other.seconds else 0.0)
    base, now = fastest.seconds, one.seconds
    if base is None or now is None:
        raise ValueError("only what was timed scales")
    part = next(
        (
            other.seconds.median
            for other in runs
            if other.part == "compute"
            and other.seconds is not None
            and (other.model, other.size, other.devices) == (one.model, one.size, one.devices)
        ),
        None,
    )
    compute = min(part, now.median) if part is not None else None
    rest = now.median - compute if compute is not None else None
    count = len(one.devices)
    speedup = base.median / now.median
    why: tuple[str, ...] = ()
    if speedup < 0.75 * count:
        why = tuple(_reasons(one, alone, base.median, compute, rest, runs, watched))
    return Scaling(
        one.strategy,
        one.model,
        one.size,
        one.devices,
        speedup,
        base.low / now.high,
        base.high / now.low,
        compute,
        rest,
        why,
        one.software,
    )


def _reasons(
    one: Timed,
    alone: Mapping[str, Timed],
    base: float,
    compute: float | None,
    rest: float | None,
    runs: Sequence[Timed],
    watched: Sequence[Watched],
) -> list[str]:
    """Sentences, what matters most first; each rests on something that was measured."""
    count, now = len(one.devices), one.seconds
    total = now.median if now is not None else 0.0
    found: list[tuple[float, str]] = []
    parts = not any(map(_is_gpu, one.devices))
    if parts:
        found.append(
            (
                9.0,
                f"{listed(one.devices)} are parts of the same processor: together they have no more cores than one.",
            )
        )
    if one.software:
        found.append((9.0, f"{listed(one.devices)} are software: they share this machine's processor."))
    for card in watched:
        if card.device in one.devices and card.processes:
            found.append(
                (
                    8.0,
                    f"Another program computes on {card.device} ({card.processes[0]}); the others wait for it.",
                )
            )
        if card.device in one.devices and set(card.slowdowns) & {*THERMAL, *POWER}:
            found.append(
                (7.0, f"{card.device} lowers its clocks ({card.slowdowns[0]}); the others wait for it.")
            )
    times = [other.seconds.median for other in alone.values() if other.seconds is not None]
    if not parts and len(times) > 1 and min(times) < ALIKE * max(times):
        slow = max(
            (other.seconds.median, name) for name, other in alone.items() if other.seconds is not None
        )[1]
        found.append((6.0, f"{slow} is slower than the others, and each step waits for the slowest device."))
    if compute is not None and rest is not None and total:
        if rest > 0.3 * total:
            share = f"takes {100 * rest / total:.0f} % of each step{_way(one, runs)}."
            found.append((rest / total, f"Averaging the gradients and changing the weights {share}"))
        if compute > 0.75 * base:
            much = (
                f"1/{count} of it takes {100 * compute / base:.0f} % of the time of all of it on one device."
            )
            found.append((compute / total * 0.9, f"The batch of {one.size} is too small: {much}"))
    found.sort(key=lambda pair: -pair[0])
    return [sentence for _, sentence in found] or [
        "What was measured does not say why; the averaging of gradients was not timed apart."
        if compute is None
        else "What was measured does not say why."
    ]


def _way(one: Timed, runs: Sequence[Timed]) -> str:
    """How fast data goes from one of the devices to another, where that was timed."""
    speeds = [
        other.gbps
        for other in runs
        if other.workload == "copy"
        and len(set(other.devices)) == 2
        and set(other.devices) <= set(one.devices)
        and other.gbps is not None
    ]
    return f"; between these devices at most {max(speeds):.1f} GB/s were measured" if speeds else ""


def _slower_than_one(scaling: Sequence[Scaling]) -> list[Finding]:
    slow = [one for one in scaling if one.high < 1 and not one.software]
    if not slow:
        return []
    worst = min(slow, key=lambda one: one.speedup)
    return [
        Finding(
            SLOWER_THAN_ONE,
            Cause.HEALTHY,
            Severity.WARNING,
            f"{len(worst.names)} devices train slower than one: {worst.speedup:.2f} times its speed",
            " ".join(worst.why),
            evidence=(
                Evidence(
                    "tfdoctor bench",
                    f"{worst.model}, batch {worst.size}, {worst.strategy} on {listed(worst.names)}",
                ),
            ),
            remedies=(
                Remedy(
                    "Give each device as large a batch as one alone has now, then measure again; or train on one."
                ),
            ),
        )
    ]


# ---------------------------------------------------------------- what disturbed, and what is far off


def _disturbed(runs: Sequence[Timed], watched: Sequence[Watched]) -> str:
    told = []
    known = [one.others for one in runs if one.others is not None and one.seconds]
    if any(one >= 1 for one in known):
        told.append("a quota or other programs held all processors at times")
    elif known and max(known) >= OTHERS:
        many = sum(one >= OTHERS for one in known)
        told.append(
            f"other programs used up to {100 * max(known):.0f} % of the processors during {many} of {len(known)} "
            "pieces of work"
        )
    for card in watched:
        if card.processes:
            told.append(f"another program computes on {card.device} ({card.processes[0]})")
        if set(card.slowdowns) & set(THERMAL):
            heat = f" at {card.temperature} °C" if card.temperature is not None else ""
            told.append(f"{card.device} lowered its clocks for heat{heat}")
    return "; ".join(told)


def _is_disturbed(disturbed: str) -> list[Finding]:
    if not disturbed:
        return []
    return [
        Finding(
            BENCH_DISTURBED,
            Cause.INCONCLUSIVE,
            Severity.WARNING,
            "The measurement was disturbed",
            f"{disturbed[:1].upper()}{disturbed[1:]}. The times are right for this moment, not for the machine alone.",
            remedies=(
                Remedy("End what else runs, then measure again.", ("top -b -n 1 | head -n 15", "nvidia-smi")),
            ),
        )
    ]


def _not_timed(measured: Measured) -> list[Finding]:
    if any(one.seconds for one in measured.runs):
        return []
    return [
        Finding(
            NOT_TIMED,
            Cause.INCONCLUSIVE,
            Severity.ERROR,
            "Nothing could be timed",
            measured.error or measured.stopped or "TensorFlow ended before the first piece of work was done.",
            remedies=(Remedy("See what is wrong with this TensorFlow.", ("tfdoctor check",)),),
        )
    ]


def _below_peak(
    runs: Sequence[Timed], devices: Sequence[Device], watched: Sequence[Watched]
) -> list[Finding]:
    found = []
    for device in devices:
        products = [
            one
            for one in runs
            if one.workload == "matmul" and one.dtype == "float32" and one.devices == (device.device,)
        ]
        best = max((one.gflops for one in products if one.gflops), default=None)
        # Small products never reach it: nothing follows from them.
        if device.peak_gflops is None or best is None or max(one.size for one in products) < 4096:
            continue
        if best < FAR * device.peak_gflops:
            found.append(_far(device, best, next((w for w in watched if w.device == device.device), None)))
    return found


def _far(device: Device, best: float, card: Watched | None) -> Finding:
    seen = []
    if card is not None and card.processes:
        seen.append(f"Another program computes on it: {card.processes[0]}.")
    if card is not None and card.slowdowns:
        seen.append(f"It lowers its clocks: {listed(card.slowdowns)}.")
    if (
        card is not None
        and card.power_limit is not None
        and card.power_default is not None
        and card.power_limit < 0.95 * card.power_default
    ):
        seen.append(f"Its power limit is {card.power_limit:.0f} W, by default {card.power_default:.0f} W.")
    peak = device.peak_gflops or 1.0
    reason = " ".join(seen) or "Neither its clocks nor another program were seen to be the reason."
    return Finding(
        BELOW_PEAK,
        Cause.INCONCLUSIVE,
        Severity.WARNING,
        f"{device.device} gives {100 * best / peak:.0f} % of its peak in float32",
        f"Its best product ran at {best:.0f} GFLOP/s; its multiprocessors can give {peak:.0f} at their highest clock. "
        f"{reason}",
        remedies=(
            Remedy(
                "Watch its clocks, its power limit and its processes while it computes.",
                (
                    "nvidia-smi -q -d CLOCK,POWER,PERFORMANCE",
                    "nvidia-smi --query-gpu=pcie.link.gen.current,pcie.link.width.current --format=csv",
                ),
            ),
        ),
    )


# ---------------------------------------------------------------- the answer


def _summary(
    runs: Sequence[Timed],
    devices: Sequence[Device],
    crossover: Sequence[Crossover],
    scaling: Sequence[Scaling],
) -> str:
    if not any(one.seconds for one in runs):
        return "Nothing could be timed."
    told = []
    soft = [one.device for one in devices if one.software]
    if soft:
        told.append(
            f"{listed(soft)} {'are' if len(soft) > 1 else 'is'} no card: tfdoctor's software GPU computes on this "
            "machine's processor. What it takes says nothing of any card."
        )
    elif not any(_is_gpu(one.device) for one in devices):
        told.append("Only the CPU was timed.")
    elif crossover:
        trained = [one for one in crossover if one.workload == "train"] or list(crossover)
        worth = [one for one in trained if one.size is not None]
        if not worth:
            told.append(f"At no size that was timed is {trained[0].device} faster than the CPU.")
        else:
            first = max(worth, key=lambda one: one.fold)
            told.append(
                f"{first.device} is {first.fold:.1f} times as fast as the CPU at the largest {_work(first)}, "
                f"and faster from {first.size} on."
            )
    worst = min(scaling, key=lambda one: one.speedup, default=None)
    if worst is not None and not soft:
        how = f"{len(worst.names)} devices train at {worst.speedup:.2f} times the speed of one"
        told.append(f"{how} ({worst.model}, {worst.strategy}).")
        told.extend(worst.why[:1])
    return " ".join(told) or "All of it was timed."


def _work(one: Crossover) -> str:
    return f"batch of the {one.model}" if one.workload == "train" else one.workload
