"""Evaluate a benchmark: from which size a GPU is worth using, scaling, and disturbances."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from tfdoctor.core.causes.codes import BENCH_CODES
from tfdoctor.core.findings import Cause, Evidence, Finding, Remedy, Severity
from tfdoctor.core.text import join_words, upper_first
from tfdoctor.extensions.bench.interconnects import add_measured_speeds, find_narrow_links
from tfdoctor.extensions.bench.models import Bench, Crossover, Disturbance, is_gpu
from tfdoctor.extensions.bench.noise import compute_speed_variation
from tfdoctor.extensions.bench.scaling import THERMAL_SLOWDOWNS, compute_scalings
from tfdoctor.extensions.bench.warmup import add_compilation_steps
from tfdoctor.rules.compute_fails import classify_error_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdoctor.extensions.bench.models import GpuObservation, MeasuredDevice, Measurement, Scaling
    from tfdoctor.extensions.bench.reader import RawMeasurements

__all__ = ["evaluate_bench"]

MAX_DISTURBED_SHARE = 0.25
"""The share of disturbed measurements above which the whole run counts as disturbed."""
MIN_PEAK_SHARE = 0.3
"""The share of the float32 peak below which a GPU is reported. Large products of cuBLAS reach 0.6 and more."""
MIN_PEAK_SIZE = 4096
"""The rows of a matrix from which a product is compared with the peak, because small ones never reach it."""


def evaluate_bench(
    raw_result: RawMeasurements,
    target: str,
    peaks: Mapping[str, Mapping[str, float]],
    *,
    is_software: bool = False,
    check_command: str = "tfdoctor check",
) -> Bench:
    """Evaluate the measurements of a run.

    `peaks` maps the names of devices to the GFLOP/s that they can reach with each data type, as far as these are known.
    `check_command` is the command that finds problems of this TensorFlow.

    With `is_software`, the GPUs are tfdoctor's software GPU. Their times are marked, and are neither compared with a peak
    nor used to say whether a GPU is worth using.
    """
    devices = tuple(_add_peaks(device, peaks, software=is_software) for device in raw_result.devices)
    devices_by_name = {device.device: device for device in devices}
    measurements = tuple(
        dataclasses.replace(
            add_compilation_steps(measurement, devices_by_name, raw_result),
            is_software=is_software and measurement.uses_gpu,
        )
        for measurement in raw_result.measurements
    )
    links = () if is_software else add_measured_speeds(raw_result.links, measurements, raw_result.log)
    crossovers = () if is_software else _find_crossovers(measurements, devices)
    scalings = compute_scalings(measurements, raw_result.gpu_observations, links)
    disturbance_text, disturbance = _assess_disturbance(measurements, raw_result.gpu_observations)
    findings = [
        *_find_missing_times(raw_result, check_command),
        *_find_disturbance(
            disturbance_text, disturbance, has_gpu=any(is_gpu(device.device) for device in devices)
        ),
        *_find_slow_scaling(scalings),
        *([] if is_software else find_narrow_links(raw_result.gpu_observations, links)),
        *_find_gpus_below_peak(measurements, devices, raw_result.gpu_observations),
    ]
    return Bench(
        target=target,
        tensorflow=raw_result.tensorflow,
        devices=devices,
        measurements=measurements,
        gpu_observations=raw_result.gpu_observations,
        crossovers=crossovers,
        scalings=scalings,
        disturbance_text=disturbance_text,
        links=links,
        disturbance=disturbance,
        processor_times=raw_result.processor_times,
        speed_variation=compute_speed_variation(m for m in measurements if not m.is_disturbed),
        stop_reason=raw_result.stop_reason,
        findings=tuple(findings),
        summary=_summarize(
            measurements, devices, crossovers, scalings, were_devices_selected=raw_result.has_selected_devices
        ),
        check_command=""
        if raw_result.has_selected_devices or any(is_gpu(device.device) for device in devices)
        else check_command,
    )


def _add_peaks(
    device: MeasuredDevice, peaks: Mapping[str, Mapping[str, float]], *, software: bool
) -> MeasuredDevice:
    """Return the device with its peak speeds. A software GPU is marked instead."""
    if software and is_gpu(device.device):
        return dataclasses.replace(device, is_software=True)
    device_peaks = peaks.get(device.device, {})
    return dataclasses.replace(
        device, peak_gflops=device_peaks.get("float32"), peak_gflops_by_dtype=device_peaks
    )


# ---------------------------------------------------------------- CPU against GPU


def _find_crossovers(
    measurements: Sequence[Measurement], devices: Sequence[MeasuredDevice]
) -> tuple[Crossover, ...]:
    """Return the crossover of each GPU workload that was also timed on the CPU at some of its sizes."""
    curves: dict[tuple[str, str | None, str, str], dict[int, Measurement]] = {}
    for measurement in measurements:
        is_single = (
            measurement.strategy == "one"
            and measurement.part is None
            and not measurement.uses_xla
            and len(measurement.devices) == 1
        )
        if is_single and measurement.seconds:
            curves.setdefault(
                (measurement.workload, measurement.model, measurement.dtype, measurement.devices[0]), {}
            )[measurement.size] = measurement
    crossovers = []
    gpus = [entry.device for entry in devices if is_gpu(entry.device)]
    for (workload, model, dtype, device), gpu_by_size in curves.items():
        cpu_by_size = curves.get((workload, model, dtype, "CPU:0"))
        if device not in gpus or cpu_by_size is None:
            continue
        sizes = sorted(gpu_by_size.keys() & cpu_by_size.keys())
        if sizes:
            crossovers.append(
                _make_crossover((workload, model, dtype, device), sizes, gpu_by_size, cpu_by_size)
            )
    return tuple(crossovers)


def _make_crossover(
    key: tuple[str, str | None, str, str],
    sizes: Sequence[int],
    gpu_by_size: Mapping[int, Measurement],
    cpu_by_size: Mapping[int, Measurement],
) -> Crossover:
    """Find the smallest size from which the GPU is faster, and its speedup at the largest size.

    The GPU counts as faster only if the confidence intervals of both times do not overlap.
    """
    min_faster_size, max_slower_size = None, None
    for size in reversed(sizes):
        gpu_seconds, cpu_seconds = gpu_by_size[size].seconds, cpu_by_size[size].seconds
        if gpu_seconds is None or cpu_seconds is None or gpu_seconds.high >= cpu_seconds.low:
            max_slower_size = size
            break
        min_faster_size = size
    largest_gpu, largest_cpu = gpu_by_size[sizes[-1]].seconds, cpu_by_size[sizes[-1]].seconds
    speedup = (
        largest_cpu.median / largest_gpu.median
        if largest_gpu is not None and largest_cpu is not None
        else 1.0
    )
    workload, model, dtype, device = key
    return Crossover(
        workload=workload,
        model=model,
        dtype=dtype,
        reference_device="CPU:0",
        device=device,
        min_faster_size=min_faster_size,
        max_slower_size=max_slower_size,
        speedup=speedup,
    )


# ---------------------------------------------------------------- several devices


def _find_slow_scaling(scalings: Sequence[Scaling]) -> list[Finding]:
    """Return a finding on the slowest training on several devices, if it is slower than on one."""
    on_hardware = [scaling for scaling in scalings if not scaling.is_software]
    slower = [scaling for scaling in on_hardware if scaling.speedup_high < 1]
    slower_with_input = [
        scaling for scaling in on_hardware if scaling.fed_speedup is not None and scaling.fed_speedup[2] < 1
    ]
    if not slower and not slower_with_input:
        return []
    worst = (
        min(slower, key=lambda scaling: scaling.speedup)
        if slower
        else min(slower_with_input, key=_get_speedup_with_input)
    )
    speedup = f"{worst.speedup:.2f}" if slower else f"{_get_speedup_with_input(worst):.2f}"
    note = "" if slower else ", where the batch comes from the host's memory"
    return [
        Finding(
            BENCH_CODES["slower-than-one"],
            Cause.HEALTHY,
            Severity.WARNING,
            f"{len(worst.devices)} devices train slower than one: {speedup} times its speed{note}",
            " ".join(worst.reasons),
            evidence=(
                Evidence(
                    "tfdoctor bench",
                    f"{worst.model}, batch {worst.batch_size}, {worst.strategy} on {join_words(worst.devices)}",
                ),
            ),
            remedies=(
                Remedy(
                    "Give each device as large a batch as one alone has now, then measure again; or train on one."
                ),
            ),
        )
    ]


def _get_speedup_with_input(scaling: Scaling) -> float:
    """Return the speedup of steps whose batch comes from the host's memory, or infinity if it was not timed."""
    return scaling.fed_speedup[0] if scaling.fed_speedup is not None else math.inf


# ---------------------------------------------------------------- disturbances, and speeds far below the peak


def _assess_disturbance(
    measurements: Sequence[Measurement], observations: Sequence[GpuObservation]
) -> tuple[str, Disturbance]:
    """Return a description of what disturbed the run, and its extent.

    Each measurement is assessed separately. The description is "" if no disturbance was found.
    """
    reasons = []
    assessed = [m for m in measurements if m.other_programs_share is not None and m.seconds]
    disturbed = [m for m in assessed if m.is_disturbed]
    max_share = max((m.other_programs_share or 0.0 for m in disturbed), default=0.0)
    is_quota_hit = max_share >= 1  # the payload reports 1 if a quota stopped the program
    extent = f"during {len(disturbed)} of the {len(assessed)} measurements that were long enough to judge"
    if is_quota_hit:
        reasons.append(f"a quota (cgroup) stopped this program at times {extent}")
    elif disturbed:
        reasons.append(f"other programs used up to {100 * max_share:.0f} % of the processors {extent}")
    gpu_reasons = []
    for observation in observations:
        if observation.other_processes:
            gpu_reasons.append(
                f"another program computes on {observation.device} ({observation.other_processes[0]})"
            )
        if set(observation.slowdowns) & set(THERMAL_SLOWDOWNS):
            heat = f" at {observation.max_temperature} °C" if observation.max_temperature is not None else ""
            gpu_reasons.append(f"{observation.device} lowered its clocks for heat{heat}")
    is_large = bool(gpu_reasons) or len(disturbed) > MAX_DISTURBED_SHARE * len(assessed)
    return "; ".join(reasons + gpu_reasons), Disturbance(
        disturbed_count=len(disturbed),
        assessed_count=len(assessed),
        is_serious=is_large,
        is_quota_exceeded=is_quota_hit,
    )


def _find_disturbance(disturbance_text: str, disturbance: Disturbance, *, has_gpu: bool) -> list[Finding]:
    """Return a finding on what disturbed the run, if a large part of it was disturbed."""
    if not disturbance_text or not disturbance.is_serious:
        return []
    if disturbance.is_quota_exceeded:
        remedy = Remedy("Raise the quota (docker run --cpus, CPUQuota of systemd), then measure again.")
    else:
        commands = ("top -b -n 1 | head -n 15", *(("nvidia-smi",) if has_gpu else ()))
        remedy = Remedy("End what else runs, then measure again.", commands)
    return [
        Finding(
            BENCH_CODES["bench-disturbed"],
            Cause.INCONCLUSIVE,
            Severity.WARNING,
            "The measurement was disturbed",
            f"{upper_first(disturbance_text)}. The times are right for this moment, not for the "
            "machine alone.",
            remedies=(remedy,),
        )
    ]


def _find_missing_times(raw_result: RawMeasurements, check_command: str) -> list[Finding]:
    """Return a finding if nothing was timed, with the most likely reason."""
    if raw_result.has_times:
        return []
    out_of_memory = [
        m for m in raw_result.measurements if classify_error_text(m.omission_reason) is Cause.OOM
    ]
    if raw_result.was_interrupted and not raw_result.error_message:
        remedy = Remedy("Measure again; importing TensorFlow and building what is timed comes first.")
    elif out_of_memory:
        remedy = Remedy(
            f"Take a smaller size: {min(m.size for m in out_of_memory)} needs more memory than there is."
        )
    else:
        remedy = Remedy("See what is wrong with this TensorFlow.", (check_command,))
    return [
        Finding(
            BENCH_CODES["not-timed"],
            Cause.INCONCLUSIVE,
            Severity.ERROR,
            "Nothing could be timed",
            raw_result.error_message
            or raw_result.stop_reason
            or "TensorFlow ended before the first piece of work was done.",
            remedies=(remedy,),
        )
    ]


def _find_gpus_below_peak(
    measurements: Sequence[Measurement],
    devices: Sequence[MeasuredDevice],
    observations: Sequence[GpuObservation],
) -> list[Finding]:
    """Return findings on GPUs far below their float32 peak, as measured with a large matrix product."""
    findings = []
    for device in devices:
        products = [
            m
            for m in measurements
            if (m.workload, m.dtype, m.devices) == ("matmul", "float32", (device.device,)) and not m.uses_xla
        ]
        best_gflops = max((product.gflops for product in products if product.gflops), default=None)
        max_size = max((product.size for product in products), default=0)
        if device.peak_gflops is None or best_gflops is None or max_size < MIN_PEAK_SIZE:
            continue
        if best_gflops < MIN_PEAK_SHARE * device.peak_gflops:
            observation = next((o for o in observations if o.device == device.device), None)
            findings.append(_make_peak_finding(device, best_gflops, observation))
    return findings


def _make_peak_finding(
    device: MeasuredDevice, best_gflops: float, observation: GpuObservation | None
) -> Finding:
    """Build the finding for a GPU far below its peak, with the reasons that nvidia-smi reports."""
    reasons = []
    if observation is not None and observation.other_processes:
        reasons.append(f"Another program computes on it: {observation.other_processes[0]}.")
    if observation is not None and observation.slowdowns:
        reasons.append(f"It lowers its clocks: {join_words(observation.slowdowns)}.")
    if (
        observation is not None
        and observation.power_limit is not None
        and observation.default_power_limit is not None
        and observation.power_limit < 0.95 * observation.default_power_limit
    ):
        reasons.append(
            f"Its power limit is {observation.power_limit:.0f} W, by default {observation.default_power_limit:.0f} W."
        )
    peak_gflops = device.peak_gflops or 1.0
    reason = " ".join(reasons) or "Neither its clocks nor another program were seen to be the reason."
    return Finding(
        BENCH_CODES["below-peak"],
        Cause.INCONCLUSIVE,
        Severity.WARNING,
        f"{device.device} gives {100 * best_gflops / peak_gflops:.0f} % of its peak in float32",
        f"Its best product ran at {best_gflops:.0f} GFLOP/s; its multiprocessors can give {peak_gflops:.0f} at their "
        f"highest clock. {reason}",
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
    measurements: Sequence[Measurement],
    devices: Sequence[MeasuredDevice],
    crossovers: Sequence[Crossover],
    scalings: Sequence[Scaling],
    *,
    were_devices_selected: bool,
) -> str:
    """Summarize the benchmark in a few sentences.

    `were_devices_selected` is whether the user chose the devices, so that a missing GPU need not be mentioned.
    """
    if not any(m.seconds for m in measurements):
        return "Nothing could be timed."
    sentences = []
    software_gpus = [item.device for item in devices if item.is_software]
    if software_gpus:
        sentences.append(
            f"{join_words(software_gpus)} {'are' if len(software_gpus) > 1 else 'is'} no card: tfdoctor's software GPU "
            "computes on this machine's processor. What it takes says nothing of any card."
        )
    elif not any(is_gpu(item.device) for item in devices):
        sentences.append(
            f"Only the CPU was timed{'' if were_devices_selected else ': TensorFlow lists no GPU here'}."
        )
    elif crossovers:
        training = [item for item in crossovers if item.workload == "train"] or list(crossovers)
        worthwhile = [item for item in training if item.min_faster_size is not None]
        if not worthwhile:
            sentences.append(f"At no size that was timed is {training[0].device} faster than the CPU.")
        else:
            fastest = max(worthwhile, key=lambda item: item.speedup)
            sentences.append(
                f"{fastest.device} is {fastest.speedup:.1f} times as fast as the CPU at the largest {_describe_work(fastest)}, "
                f"and faster from {fastest.min_faster_size} on."
            )
    worst = min(scalings, key=lambda item: item.speedup_high, default=None)
    if worst is not None and not software_gpus:
        speedup = f"{len(worst.devices)} devices train at {worst.speedup:.2f} times the speed of one"
        interval = f"{worst.speedup_low:.2f} to {worst.speedup_high:.2f}"
        sentences.append(f"{speedup} ({interval}; {worst.model}, {worst.strategy}).")
        sentences.extend(worst.reasons[:1])
    sentences.extend(_describe_xla(measurements))
    return " ".join(sentences) or "All of it was timed."


def _describe_xla(measurements: Sequence[Measurement]) -> list[str]:
    """Return a sentence on XLA's effect at the largest sizes, or [] if XLA was not timed."""
    by_key = {measurement.key: measurement for measurement in measurements}
    ratio_by_curve: dict[tuple[object, ...], tuple[float, Measurement]] = {}
    for measurement in sorted(
        (m for m in measurements if m.uses_xla), key=lambda m: m.size
    ):  # the largest size is kept
        without_xla = by_key.get(dataclasses.replace(measurement, uses_xla=False).key)
        if measurement.seconds is not None and without_xla is not None and without_xla.seconds is not None:
            ratio_by_curve[measurement.curve_key, measurement.strategy, measurement.devices] = (
                measurement.seconds.median / without_xla.seconds.median,
                measurement,
            )
    if not ratio_by_curve:
        return []
    ordered = sorted(ratio_by_curve.values(), key=lambda pair: -abs(math.log(pair[0])))
    names = [f"{m.model or m.workload} ({m.size}) on {m.devices[0]}" for _, m in ordered]
    first_ratio, *other_ratios = (ratio for ratio, _ in ordered[:3])
    further = "".join(f", {name} {ratio:.2f}" for name, ratio in zip(names[1:], other_ratios, strict=False))
    return [f"Compiled by XLA, {names[0]} takes {first_ratio:.2f} times the time{further}."]


def _describe_work(crossover: Crossover) -> str:
    return f"batch of the {crossover.model}" if crossover.workload == "train" else crossover.workload
