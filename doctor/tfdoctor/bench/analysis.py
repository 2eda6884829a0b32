"""Evaluate a benchmark: from which size a GPU is worth using, scaling, and disturbances."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from tfdoctor.bench.interconnects import add_measured_speeds, find_narrow_links
from tfdoctor.bench.models import Bench, Crossover, Disturbance, is_gpu
from tfdoctor.bench.noise import compute_speed_variation
from tfdoctor.bench.scaling import THERMAL_SLOWDOWNS, compute_scalings
from tfdoctor.bench.warmup import add_compilation_steps
from tfdoctor.causes.codes import BELOW_PEAK, BENCH_DISTURBED, NOT_TIMED, SLOWER_THAN_ONE_GPU
from tfdoctor.findings import Cause, Evidence, Finding, Remedy, Severity
from tfdoctor.rules.compute_fails import classify_text
from tfdoctor.text import join_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdoctor.bench.models import GpuObservation, MeasuredDevice, Measurement, Scaling
    from tfdoctor.bench.reader import RawMeasurements

__all__ = ["evaluate_bench"]

MAX_DISTURBED_SHARE = 0.25
"""The share of disturbed measurements above which the whole run counts as disturbed."""
MIN_PEAK_SHARE = 0.3
"""The share of the float32 peak below which a GPU is reported. Large products of cuBLAS reach 0.6 and more."""


def evaluate_bench(
    measured: RawMeasurements,
    target: str,
    peaks: Mapping[str, Mapping[str, float]],
    *,
    software: bool = False,
    look: str = "tfdoctor check",
) -> Bench:
    """Evaluate the measurements of a run.

    `peaks` maps each device to the GFLOP/s that it can reach with each data type, if known. `look` is the command that
    finds problems of this TensorFlow.

    With `software`, the GPUs are tfdoctor's software GPU. Their times are marked, and are neither compared with a peak
    nor used to say whether a GPU is worth using.
    """
    devices = tuple(_add_peaks(item, peaks, software=software) for item in measured.devices)
    by_name = {item.device: item for item in devices}
    runs = tuple(
        dataclasses.replace(add_compilation_steps(item, by_name, measured), software=software and item.on_gpu)
        for item in measured.runs
    )
    links = () if software else add_measured_speeds(measured.links, runs, measured.log)
    crossover = () if software else _find_crossovers(runs, devices)
    scaling = compute_scalings(runs, measured.watched, links)
    disturbed, disturbance = _assess_disturbance(runs, measured.watched)
    findings = [
        *_find_missing_times(measured, look),
        *_find_disturbance(disturbed, disturbance, gpus=any(is_gpu(item.device) for item in devices)),
        *_find_slow_scaling(scaling),
        *([] if software else find_narrow_links(measured.watched, links)),
        *_find_gpus_below_peak(runs, devices, measured.watched),
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
        unsteady=compute_speed_variation(item for item in runs if not item.disturbed),
        stopped=measured.stopped,
        findings=tuple(findings),
        summary=_summarize(runs, devices, crossover, scaling, asked=measured.asked),
        look="" if measured.asked or any(is_gpu(item.device) for item in devices) else look,
    )


def _add_peaks(
    device: MeasuredDevice, peaks: Mapping[str, Mapping[str, float]], *, software: bool
) -> MeasuredDevice:
    """Return the device with its peak speeds, or marked as software."""
    if software and is_gpu(device.device):
        return dataclasses.replace(device, software=True)
    device_peaks = peaks.get(device.device, {})
    return dataclasses.replace(device, peak_gflops=device_peaks.get("float32"), peaks=device_peaks)


# ---------------------------------------------------------------- CPU against GPU


def _find_crossovers(runs: Sequence[Measurement], devices: Sequence[MeasuredDevice]) -> tuple[Crossover, ...]:
    """Return the crossover of each GPU workload that was also timed on the CPU at some of its sizes."""
    curves: dict[tuple[str, str | None, str, str], dict[int, Measurement]] = {}
    for timed in runs:
        is_single = (
            timed.strategy == "one" and timed.part is None and not timed.xla and len(timed.devices) == 1
        )
        if is_single and timed.seconds:
            curves.setdefault((timed.workload, timed.model, timed.dtype, timed.devices[0]), {})[
                timed.size
            ] = timed
    crossovers = []
    gpus = [timed.device for timed in devices if is_gpu(timed.device)]
    for (workload, model, dtype, device), gpu_times in curves.items():
        cpu_times = curves.get((workload, model, dtype, "CPU:0"))
        if device not in gpus or cpu_times is None:
            continue
        sizes = sorted(gpu_times.keys() & cpu_times.keys())
        if sizes:
            crossovers.append(_make_crossover((workload, model, dtype, device), sizes, gpu_times, cpu_times))
    return tuple(crossovers)


def _make_crossover(
    key: tuple[str, str | None, str, str],
    sizes: Sequence[int],
    gpu_times: Mapping[int, Measurement],
    cpu_times: Mapping[int, Measurement],
) -> Crossover:
    """Find the smallest size from which the GPU is faster, and its speedup at the largest size."""
    first, below = None, None
    for size in reversed(sizes):
        gpu_seconds, cpu_seconds = gpu_times[size].seconds, cpu_times[size].seconds
        if gpu_seconds is None or cpu_seconds is None or gpu_seconds.high >= cpu_seconds.low:
            below = size
            break
        first = size
    largest_gpu, largest_cpu = gpu_times[sizes[-1]].seconds, cpu_times[sizes[-1]].seconds
    speedup = (
        largest_cpu.median / largest_gpu.median
        if largest_gpu is not None and largest_cpu is not None
        else 1.0
    )
    workload, model, dtype, device = key
    return Crossover(workload, model, dtype, "CPU:0", device, first, below, speedup)


# ---------------------------------------------------------------- several devices


def _find_slow_scaling(scaling: Sequence[Scaling]) -> list[Finding]:
    """Return a finding on the slowest training on several devices, if it is slower than on one."""
    slower = [s for s in scaling if s.high < 1 and not s.software]
    fed = [s for s in scaling if s.fed is not None and s.fed[2] < 1 and not s.software]
    if not slower and not fed:
        return []
    worst = min(slower, key=lambda s: s.speedup) if slower else min(fed, key=_get_fed_speedup)
    speedup = f"{worst.speedup:.2f}" if slower else f"{_get_fed_speedup(worst):.2f}"
    note = "" if slower else ", where the batch comes from the host's memory"
    return [
        Finding(
            SLOWER_THAN_ONE_GPU,
            Cause.HEALTHY,
            Severity.WARNING,
            f"{len(worst.names)} devices train slower than one: {speedup} times its speed{note}",
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


def _get_fed_speedup(scaling: Scaling) -> float:
    return scaling.fed[0] if scaling.fed is not None else math.inf


# ---------------------------------------------------------------- disturbances, and speeds far below the peak


def _assess_disturbance(
    runs: Sequence[Measurement], watched: Sequence[GpuObservation]
) -> tuple[str, Disturbance]:
    """Return a description of what disturbed the run, and its extent.

    Each measurement is assessed separately. The description is "" if no disturbance was found.
    """
    reasons = []
    assessed = [t for t in runs if t.others is not None and t.seconds]
    disturbed = [t for t in assessed if t.disturbed]
    worst = max((t.others or 0.0 for t in disturbed), default=0.0)
    extent = f"during {len(disturbed)} of the {len(assessed)} pieces of work that took long enough to tell"
    if worst >= 1:
        reasons.append(f"a quota (cgroup) stopped this program at times {extent}")
    elif disturbed:
        reasons.append(f"other programs used up to {100 * worst:.0f} % of the processors {extent}")
    gpu_reasons = []
    for card in watched:
        if card.processes:
            gpu_reasons.append(f"another program computes on {card.device} ({card.processes[0]})")
        if set(card.slowdowns) & set(THERMAL_SLOWDOWNS):
            heat = f" at {card.temperature} °C" if card.temperature is not None else ""
            gpu_reasons.append(f"{card.device} lowered its clocks for heat{heat}")
    is_much = bool(gpu_reasons) or len(disturbed) > MAX_DISTURBED_SHARE * len(assessed)
    return "; ".join(reasons + gpu_reasons), Disturbance(len(disturbed), len(assessed), is_much, worst >= 1)


def _find_disturbance(disturbed: str, disturbance: Disturbance, *, gpus: bool) -> list[Finding]:
    """Return a finding on what disturbed the run, if a large part of it was disturbed."""
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


def _find_missing_times(measured: RawMeasurements, look: str) -> list[Finding]:
    """Return a finding if nothing was timed, with the most likely reason."""
    if measured.any_timed:
        return []
    out_of_memory = [t for t in measured.runs if classify_text(t.left_out) is Cause.OOM]
    if measured.interrupted and not measured.error:
        remedy = Remedy("Measure again; importing TensorFlow and building what is timed comes first.")
    elif out_of_memory:
        remedy = Remedy(
            f"Take a smaller size: {min(t.size for t in out_of_memory)} needs more memory than there is."
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


def _find_gpus_below_peak(
    runs: Sequence[Measurement], devices: Sequence[MeasuredDevice], watched: Sequence[GpuObservation]
) -> list[Finding]:
    """Return findings on GPUs far below their float32 peak, as measured with a large product.

    Small products never reach the peak.
    """
    findings = []
    for device in devices:
        products = [
            t
            for t in runs
            if (t.workload, t.dtype, t.devices) == ("matmul", "float32", (device.device,)) and not t.xla
        ]
        best = max((t.gflops for t in products if t.gflops), default=None)
        if device.peak_gflops is None or best is None or max(t.size for t in products) < 4096:
            continue
        if best < MIN_PEAK_SHARE * device.peak_gflops:
            findings.append(
                _make_peak_finding(
                    device, best, next((w for w in watched if w.device == device.device), None)
                )
            )
    return findings


def _make_peak_finding(device: MeasuredDevice, best: float, card: GpuObservation | None) -> Finding:
    """Build the finding for a GPU far below its peak, with the reasons that nvidia-smi reports."""
    observations = []
    if card is not None and card.processes:
        observations.append(f"Another program computes on it: {card.processes[0]}.")
    if card is not None and card.slowdowns:
        observations.append(f"It lowers its clocks: {join_words(card.slowdowns)}.")
    if (
        card is not None
        and card.power_limit is not None
        and card.power_default is not None
        and card.power_limit < 0.95 * card.power_default
    ):
        observations.append(
            f"Its power limit is {card.power_limit:.0f} W, by default {card.power_default:.0f} W."
        )
    peak = device.peak_gflops or 1.0
    reason = " ".join(observations) or "Neither its clocks nor another program were seen to be the reason."
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


# ---------------------------------------------------------------- summary


def _summarize(
    runs: Sequence[Measurement],
    devices: Sequence[MeasuredDevice],
    crossover: Sequence[Crossover],
    scaling: Sequence[Scaling],
    *,
    asked: bool,
) -> str:
    """Summarize the benchmark in a few sentences."""
    if not any(item.seconds for item in runs):
        return "Nothing could be timed."
    sentences = []
    emulated = [item.device for item in devices if item.software]
    if emulated:
        sentences.append(
            f"{join_words(emulated)} {'are' if len(emulated) > 1 else 'is'} no card: tfdoctor's software GPU computes on this "
            "machine's processor. What it takes says nothing of any card."
        )
    elif not any(is_gpu(item.device) for item in devices):
        sentences.append(f"Only the CPU was timed{'' if asked else ': TensorFlow lists no GPU here'}.")
    elif crossover:
        training = [item for item in crossover if item.workload == "train"] or list(crossover)
        worthwhile = [item for item in training if item.size is not None]
        if not worthwhile:
            sentences.append(f"At no size that was timed is {training[0].device} faster than the CPU.")
        else:
            first = max(worthwhile, key=lambda item: item.fold)
            sentences.append(
                f"{first.device} is {first.fold:.1f} times as fast as the CPU at the largest {_describe_work(first)}, "
                f"and faster from {first.size} on."
            )
    worst = min(scaling, key=lambda item: item.high, default=None)
    if worst is not None and not emulated:
        speedup = f"{len(worst.names)} devices train at {worst.speedup:.2f} times the speed of one"
        interval = f"{worst.low:.2f} to {worst.high:.2f}"
        sentences.append(f"{speedup} ({interval}; {worst.model}, {worst.strategy}).")
        sentences.extend(worst.why[:1])
    sentences.extend(_describe_xla(runs))
    return " ".join(sentences) or "All of it was timed."


def _describe_xla(runs: Sequence[Measurement]) -> list[str]:
    """Return a sentence on XLA's effect at the largest sizes, or [] if XLA was not timed."""
    by_key = {timed.key: timed for timed in runs}
    largest: dict[tuple[object, ...], tuple[float, Measurement]] = {}
    for timed in sorted((timed for timed in runs if timed.xla), key=lambda timed: timed.size):
        without_xla = by_key.get(dataclasses.replace(timed, xla=False).key)
        if timed.seconds is not None and without_xla is not None and without_xla.seconds is not None:
            largest[timed.family, timed.strategy, timed.devices] = (
                timed.seconds.median / without_xla.seconds.median,
                timed,
            )
    if not largest:
        return []
    ordered = sorted(largest.values(), key=lambda pair: -abs(math.log(pair[0])))
    names = [f"{timed.model or timed.workload} ({timed.size}) on {timed.devices[0]}" for _, timed in ordered]
    first, *other_ratios = (ratio for ratio, _ in ordered[:3])
    further = "".join(f", {name} {ratio:.2f}" for name, ratio in zip(names[1:], other_ratios, strict=False))
    return [f"Compiled by XLA, {names[0]} takes {first:.2f} times the time{further}."]


def _describe_work(crossover: Crossover) -> str:
    return f"batch of the {crossover.model}" if crossover.workload == "train" else crossover.workload
