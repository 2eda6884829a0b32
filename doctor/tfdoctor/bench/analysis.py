"""What was timed → from where on a GPU is worth it, why several devices are slower than one, what disturbed."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from tfdoctor.bench.interconnects import evaluate_links, narrow
from tfdoctor.bench.models import Bench, Crossover, Disturbance, is_gpu
from tfdoctor.bench.noise import unsteadiness
from tfdoctor.bench.scaling import THERMAL, scalings
from tfdoctor.bench.warmup import split_first_call
from tfdoctor.causes.codes import BELOW_PEAK, BENCH_DISTURBED, NOT_TIMED, SLOWER_THAN_ONE
from tfdoctor.findings import Cause, Evidence, Finding, Remedy, Severity
from tfdoctor.rules.compute_fails import cause_of_words
from tfdoctor.text import join_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdoctor.bench.models import Scaling, Timed, TimedDevice, Watched
    from tfdoctor.bench.reader import Measured

__all__ = ["evaluate_bench"]

MUCH = 0.25
"""Where a larger part of the pieces of work was disturbed, the run is; else these pieces alone."""
FAR = 0.3
"""Below this part of a card's peak in float32 its largest product is far off; cuBLAS reaches 0.6 and more."""


def evaluate_bench(
    measured: Measured,
    target: str,
    peaks: Mapping[str, Mapping[str, float]],
    *,
    software: bool = False,
    look: str = "tfdoctor check",
) -> Bench:
    """Return `peaks`: device → type → GFLOP/s that it can give in it; those that are known.

    `software`: the GPUs are tfdoctor's software GPU. Their times are kept, and each says so; none is set against a
    card's peak, and they are no reason to say whether a GPU is worth it. `look`: the command that says what is wrong
    with this TensorFlow.
    """
    devices = tuple(_device(one, peaks, software=software) for one in measured.devices)
    by_name = {one.device: one for one in devices}
    runs = tuple(
        dataclasses.replace(split_first_call(one, by_name, measured), software=software and one.on_gpu)
        for one in measured.runs
    )
    links = () if software else evaluate_links(measured.links, runs, measured.log)
    crossover = () if software else _crossovers(runs, devices)
    scaling = scalings(runs, measured.watched, links)
    disturbed, disturbance = _measure_disturbance(runs, measured.watched)
    findings = [
        *_report_untimed(measured, look),
        *_is_disturbed(disturbed, disturbance, gpus=any(is_gpu(one.device) for one in devices)),
        *_slower_than_one(scaling),
        *([] if software else narrow(measured.watched, links)),
        *_report_below_peak(runs, devices, measured.watched),
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
        links=links,
        disturbance=disturbance,
        yardstick=measured.yardstick,
        unsteady=unsteadiness(one for one in runs if not one.disturbed),
        stopped=measured.stopped,
        findings=tuple(findings),
        summary=_summary(runs, devices, crossover, scaling, asked=measured.asked),
        look="" if measured.asked or any(is_gpu(one.device) for one in devices) else look,
    )


def _device(one: TimedDevice, peaks: Mapping[str, Mapping[str, float]], *, software: bool) -> TimedDevice:
    if software and is_gpu(one.device):
        return dataclasses.replace(one, software=True)
    mine = peaks.get(one.device, {})
    return dataclasses.replace(one, peak_gflops=mine.get("float32"), peaks=mine)


# ---------------------------------------------------------------- CPU against GPU


def _crossovers(runs: Sequence[Timed], devices: Sequence[TimedDevice]) -> tuple[Crossover, ...]:
    curves: dict[tuple[str, str | None, str, str], dict[int, Timed]] = {}
    for one in runs:
        alone = one.strategy == "one" and one.part is None and not one.xla and len(one.devices) == 1
        if alone and one.seconds:
            curves.setdefault((one.workload, one.model, one.dtype, one.devices[0]), {})[one.size] = one
    found = []
    gpus = [one.device for one in devices if is_gpu(one.device)]
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


def _slower_than_one(scaling: Sequence[Scaling]) -> list[Finding]:
    slow = [one for one in scaling if one.high < 1 and not one.software]
    fed = [one for one in scaling if one.fed is not None and one.fed[2] < 1 and not one.software]
    if not slow and not fed:
        return []
    worst = min(slow, key=lambda one: one.speedup) if slow else min(fed, key=_fed)
    much = f"{worst.speedup:.2f}" if slow else f"{_fed(worst):.2f}"
    how = "" if slow else ", where the batch comes from the host's memory"
    return [
        Finding(
            SLOWER_THAN_ONE,
            Cause.HEALTHY,
            Severity.WARNING,
            f"{len(worst.names)} devices train slower than one: {much} times its speed{how}",
            " ".join(worst.why),
            evidence=(
                Evidence(
                    "tfdoctor bench",
                    f"{worst.model}, batch {worst.size}, {worst.strategy} on {join_words(worst.names)}",
                ),
            ),
            remedies=(
                Remedy(
                    "Give each device as large a batch as one alone has now, then measure again; or train on one."
                ),
            ),
        )
    ]


def _fed(one: Scaling) -> float:
    return one.fed[0] if one.fed is not None else math.inf


# ---------------------------------------------------------------- what disturbed, and what is far off


def _measure_disturbance(runs: Sequence[Timed], watched: Sequence[Watched]) -> tuple[str, Disturbance]:
    """By what, and how much: each piece is judged by itself."""
    told = []
    known = [one for one in runs if one.others is not None and one.seconds]
    pieces = [one for one in known if one.disturbed]
    worst = max((one.others or 0.0 for one in pieces), default=0.0)
    many = f"during {len(pieces)} of the {len(known)} pieces of work that took long enough to tell"
    if worst >= 1:
        told.append(f"a quota (cgroup) stopped this program at times {many}")
    elif pieces:
        told.append(f"other programs used up to {100 * worst:.0f} % of the processors {many}")
    cards = []
    for card in watched:
        if card.processes:
            cards.append(f"another program computes on {card.device} ({card.processes[0]})")
        if set(card.slowdowns) & set(THERMAL):
            heat = f" at {card.temperature} °C" if card.temperature is not None else ""
            cards.append(f"{card.device} lowered its clocks for heat{heat}")
    much = bool(cards) or len(pieces) > MUCH * len(known)
    return "; ".join(told + cards), Disturbance(len(pieces), len(known), much, worst >= 1)


def _is_disturbed(disturbed: str, disturbance: Disturbance, *, gpus: bool) -> list[Finding]:
    if not disturbed or not disturbance.much:
        return []
    if disturbance.quota:
        remedy = Remedy("Raise the quota (docker run --cpus, CPUQuota of systemd), then measure again.")
    else:
        commands = ("top -b -n 1 | head -n 15", *(("nvidia-smi",) if gpus else ()))
        remedy = Remedy("End what else runs, then measure again.", commands)
    return [
        Finding(
            BENCH_DISTURBED,
            Cause.INCONCLUSIVE,
            Severity.WARNING,
            "The measurement was disturbed",
            f"{disturbed[:1].upper()}{disturbed[1:]}. The times are right for this moment, not for the machine alone.",
            remedies=(remedy,),
        )
    ]


def _report_untimed(measured: Measured, look: str) -> list[Finding]:
    if measured.any_timed:
        return []
    memory = [one for one in measured.runs if cause_of_words(one.left_out) is Cause.OOM]
    if measured.interrupted and not measured.error:
        remedy = Remedy("Measure again; importing TensorFlow and building what is timed comes first.")
    elif memory:
        remedy = Remedy(
            f"Take a smaller size: {min(one.size for one in memory)} needs more memory than there is."
        )
    else:
        remedy = Remedy("See what is wrong with this TensorFlow.", (look,))
    return [
        Finding(
            NOT_TIMED,
            Cause.INCONCLUSIVE,
            Severity.ERROR,
            "Nothing could be timed",
            measured.error or measured.stopped or "TensorFlow ended before the first piece of work was done.",
            remedies=(remedy,),
        )
    ]


def _report_below_peak(
    runs: Sequence[Timed], devices: Sequence[TimedDevice], watched: Sequence[Watched]
) -> list[Finding]:
    """In float32, and only where large products were timed: small ones never reach a peak."""
    found = []
    for device in devices:
        products = [
            one
            for one in runs
            if (one.workload, one.dtype, one.devices) == ("matmul", "float32", (device.device,))
            and not one.xla
        ]
        best = max((one.gflops for one in products if one.gflops), default=None)
        if device.peak_gflops is None or best is None or max(one.size for one in products) < 4096:
            continue
        if best < FAR * device.peak_gflops:
            found.append(_far(device, best, next((w for w in watched if w.device == device.device), None)))
    return found


def _far(device: TimedDevice, best: float, card: Watched | None) -> Finding:
    seen = []
    if card is not None and card.processes:
        seen.append(f"Another program computes on it: {card.processes[0]}.")
    if card is not None and card.slowdowns:
        seen.append(f"It lowers its clocks: {join_words(card.slowdowns)}.")
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
    devices: Sequence[TimedDevice],
    crossover: Sequence[Crossover],
    scaling: Sequence[Scaling],
    *,
    asked: bool,
) -> str:
    if not any(one.seconds for one in runs):
        return "Nothing could be timed."
    told = []
    soft = [one.device for one in devices if one.software]
    if soft:
        told.append(
            f"{join_words(soft)} {'are' if len(soft) > 1 else 'is'} no card: tfdoctor's software GPU computes on this "
            "machine's processor. What it takes says nothing of any card."
        )
    elif not any(is_gpu(one.device) for one in devices):
        told.append(f"Only the CPU was timed{'' if asked else ': TensorFlow lists no GPU here'}.")
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
    worst = min(scaling, key=lambda one: one.high, default=None)
    if worst is not None and not soft:
        how = f"{len(worst.names)} devices train at {worst.speedup:.2f} times the speed of one"
        sure = f"{worst.low:.2f} to {worst.high:.2f}"
        told.append(f"{how} ({sure}; {worst.model}, {worst.strategy}).")
        told.extend(worst.why[:1])
    told.extend(_describe_xla(runs))
    return " ".join(told) or "All of it was timed."


def _describe_xla(runs: Sequence[Timed]) -> list[str]:
    """Return what XLA changes at the largest size of each work, what it changes most first."""
    by_key = {one.key: one for one in runs}
    largest: dict[tuple[object, ...], tuple[float, Timed]] = {}
    for one in sorted((one for one in runs if one.xla), key=lambda one: one.size):
        other = by_key.get(dataclasses.replace(one, xla=False).key)
        if one.seconds is not None and other is not None and other.seconds is not None:
            largest[one.family, one.strategy, one.devices] = one.seconds.median / other.seconds.median, one
    if not largest:
        return []
    ordered = sorted(largest.values(), key=lambda pair: -abs(math.log(pair[0])))
    names = [f"{one.model or one.workload} ({one.size}) on {one.devices[0]}" for _, one in ordered]
    first, *others = (ratio for ratio, _ in ordered[:3])
    more = "".join(f", {name} {ratio:.2f}" for name, ratio in zip(names[1:], others, strict=False))
    return [f"Compiled by XLA, {names[0]} takes {first:.2f} times the time{more}."]


def _work(one: Crossover) -> str:
    return f"batch of the {one.model}" if one.workload == "train" else one.workload
