"""Synthetic results with a known crossover and a known reason for poor scaling."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from cli.planner import validate
from extensions.bench.made import make_bench, make_devices_line, make_run_line, make_training_line
from tfdoctor.extensions.bench.models import Bench, GpuObservation, Interconnect
from tfdoctor.extensions.bench.render import make_bench_json, render_bench

SIZES = (8, 32, 128)
TWO = ("GPU:0", "GPU:1")
PCIE = tuple(Interconnect("CPU:0", name, "pcie", "PCI Express 4.0 x16", 31.5) for name in TWO)


def make_links(kind: str, how: str, gbps: float | None = None) -> tuple[Interconnect, ...]:
    """Return the PCIe links to the host and one link between the GPUs."""
    return (*PCIE, Interconnect(*TWO, kind, how, gbps))


@dataclass(frozen=True)
class BenchCase:
    """Step times in seconds and the expected analysis: `cpu` and `gpu` by batch size, `two` for both GPUs."""

    name: str
    cpu: tuple[float, ...]
    gpu: tuple[float, ...]
    two: float
    compute: float | None
    allreduce: float | None
    size: int | None
    below: int | None
    """Largest batch size that is not faster on the GPU; None if there is none."""
    why: str
    """Start of the first reason; empty if there is nothing to explain."""
    has: str = ""
    """Text that the first reason also contains."""
    codes: tuple[str, ...] = ("TFD829",)
    strategy: str = "towers"
    way: str | None = None
    fed: tuple[float, float] | None = None
    """Seconds with the batch in host memory, on one GPU and on both."""
    other: float | None = None
    """Seconds on the second GPU alone; None if it is as fast as the first."""
    links: tuple[Interconnect, ...] = ()
    watched: tuple[GpuObservation, ...] = ()
    log: str = ""
    copied: float | None = None
    """Measured GB/s between the GPUs; None if not measured."""
    devices: tuple[str, ...] = TWO
    more: tuple[dict[str, Any], ...] = field(default_factory=tuple)


MATRIX = (
    "gpu_device.cc:1] Device interconnect StreamExecutor with strength 1 edge matrix:\n"
    "gpu_device.cc:1]      0 1 \ngpu_device.cc:1] 0:   N N \ngpu_device.cc:1] 1:   N N "
)
USUAL = (0.010, 0.040, 0.160), (0.012, 0.014, 0.020)
"""Step times of a GPU that is faster than the CPU from a batch of 32."""
CASES = (
    BenchCase(
        "all-reduce through the host's memory", *USUAL, 0.050, 0.011, 0.038, 32, 8,
        "Averaging the gradients and changing the weights takes 76 % of each step (38 ms), more than the split saves (",
        "cannot reach each other's memory, so all of it goes through the host's",
        links=make_links("bridge", "PHB", 31.5), log=MATRIX, copied=2.9,
    ),
    BenchCase(
        "all-reduce between two processors", *USUAL, 0.050, 0.011, 0.038, 32, 8,
        "Averaging the gradients and changing the weights takes 76 %",
        "4.1 GB/s were measured; between GPU:0 and GPU:1 it goes through the link between two processors (NUMA)",
        links=make_links("processors", "SYS", 31.5), copied=4.1,
    ),
    BenchCase(
        "NCCL takes its time", *USUAL, 0.040, 0.011, 0.027, 32, 8,
        "Averaging the gradients and changing the weights by NCCL takes 68 %",
        strategy="mirrored", way="CollectiveAllReduce, NCCL", links=make_links("nvlink", "NV4", 100.0),
    ),
    BenchCase(
        "hierarchical copies", *USUAL, 0.040, 0.011, 0.027, 32, 8,
        "Averaging the gradients and changing the weights by hierarchical copies takes 68 %",
        strategy="mirrored", way="HierarchicalCopyAllReduce",
    ),
    BenchCase(
        "without NCCL", *USUAL, 0.040, 0.011, 0.027, 32, 8,
        "Averaging the gradients and changing the weights by TensorFlow's own ring (no NCCL) takes 68 %",
        strategy="mirrored", way="CollectiveAllReduce, RING",
    ),
    BenchCase(
        "a small batch", (0.010, 0.011, 0.012), (0.020, 0.020, 0.021), 0.024, 0.0205, 0.002, None, 128,
        "The batch of 128 is too small: 1/2 of it takes 98 % of the time of all of it on one device.",
    ),
    BenchCase(
        "the input", *USUAL, 0.0115, 0.010, 0.001, 32, 8,
        "Input-bound: where the batch comes from the host's memory, bringing it to the devices takes 79 % of a step",
        "(43.5 ms of 55 ms; 48 ms on one device)", fed=(0.048, 0.055),
    ),
    BenchCase(
        "the program that starts the work", (0.03, 0.05, 0.08), (0.012, 0.014, 0.020), 0.045, 0.011, 0.002, 8, None,
        "For 71 % of each step (32 ms) the devices neither compute nor average:",
        strategy="mirrored", way="CollectiveAllReduce, NCCL",
    ),
    BenchCase(
        "another program", *USUAL, 0.030, 0.028, 0.002, 32, 8,
        "Another program computes on GPU:1 (python); the others wait for it.",
        watched=(GpuObservation("GPU:1", other_processes=("python",)),), codes=("TFD828", "TFD829"),
    ),
    BenchCase(
        "heat", *USUAL, 0.030, 0.028, 0.002, 32, 8,
        "GPU:1 lowers its clocks (hw_thermal_slowdown); the others wait for it.",
        watched=(GpuObservation("GPU:1", slowdowns=("hw_thermal_slowdown",), max_temperature=96),), codes=("TFD828", "TFD829"),
    ),
    BenchCase(
        "a power limit", *USUAL, 0.030, 0.028, 0.002, 32, 8,
        "GPU:0 lowers its clocks (sw_power_cap); the others wait for it.",
        watched=(GpuObservation("GPU:0", slowdowns=("sw_power_cap",)),),
    ),
    BenchCase(
        "unlike cards", *USUAL, 0.036, 0.034, 0.002, 32, 8,
        "GPU:1 is slower than the others, and each step waits for the slowest device.", other=0.066,
    ),
    BenchCase(
        "four lanes", *USUAL, 0.050, 0.011, 0.038, 32, 8,
        "Averaging the gradients and changing the weights takes 76 %", "at most 1.2 GB/s were measured",
        watched=(GpuObservation("GPU:1", lanes=4, max_lanes=16, generation=3, max_generation=3, sample_count=5),),
        copied=1.2, codes=("TFD829", "TFD831"),
    ),
    BenchCase(
        "parts of a processor", USUAL[0], USUAL[0], 0.200, 0.190, 0.003, None, None,
        "CPU:0 and CPU:1 are parts of the same processor:", devices=("CPU:0", "CPU:1"),
    ),
    BenchCase(
        "all is well", *USUAL, 0.0115, 0.0103, 0.001, 32, 8, "", codes=(), fed=(0.022, 0.0125),
        links=make_links("nvlink", "NV4", 100.0), log=MATRIX.replace("N N", "N Y", 1).replace("1:   N N", "1:   Y N"),
    ),
    BenchCase(
        "nothing apart", *USUAL, 0.040, None, None, 32, 8,
        "What was measured does not say why; the averaging of gradients was not timed apart.", strategy="mirrored",
    ),
)  # fmt: skip


def make_case_bench(case: BenchCase) -> Bench:
    """Return the evaluated result of a case."""
    first, second = case.devices
    largest = SIZES[-1]
    parts = [
        {**make_devices_line("CPU:0", *(name for name in case.devices if name != "CPU:0")), "log": case.log}
    ]
    if first != "CPU:0":
        parts += [make_training_line(t, "CPU:0", size=n) for t, n in zip(case.cpu, SIZES, strict=True)]
    parts += [make_training_line(t, first, size=n) for t, n in zip(case.gpu, SIZES, strict=True)]
    parts.append(make_training_line(case.other or case.gpu[-1], second, size=largest))
    facts: dict[str, Any] = {"strategy": case.strategy, "way": case.way}
    parts.append(make_training_line(case.two, *case.devices, size=largest, **facts))
    if case.compute is not None:
        parts.append(make_training_line(case.compute, *case.devices, size=largest, part="compute"))
    if case.allreduce is not None:
        parts.append(
            make_training_line(case.allreduce, *case.devices, size=102080, part="allreduce", **facts)
        )
    if case.fed is not None:
        parts.append(make_training_line(case.fed[0], first, size=largest, part="fed"))
        parts.append(make_training_line(case.fed[1], *case.devices, size=largest, part="fed"))
    if case.copied is not None:
        size = 1 << 26
        parts.append(
            make_run_line(size / case.copied / 1e9, *case.devices, workload="copy", size=size, bytes=size)
        )
    return make_bench(*parts, watched=case.watched, links=case.links)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_analysis_of_each_case(case: BenchCase) -> None:
    bench = make_case_bench(case)
    crossover = [
        (entry.min_faster_size, entry.max_slower_size)
        for entry in bench.crossovers
        if entry.device == "GPU:0"
    ]
    assert crossover == ([] if case.devices[0] == "CPU:0" else [(case.size, case.below)])
    (entry,) = bench.scalings
    if case.why:
        assert entry.reasons[0].startswith(case.why), entry.reasons
        assert case.has in entry.reasons[0], entry.reasons
        assert entry.reasons[0] in bench.summary
    else:
        assert entry.reasons == ()
    assert tuple(finding.code for finding in bench.findings) == case.codes
    validate(make_bench_json(bench), "bench")
    assert max(map(len, render_bench(bench, verbose=True).splitlines())) <= 80


def test_parts_of_a_step_are_reported() -> None:
    (scaling,) = make_case_bench(CASES[0]).scalings
    assert (
        scaling.compute_seconds,
        scaling.allreduce_seconds,
        scaling.input_seconds,
        scaling.averaging_method,
    ) == (0.011, 0.038, None, None)
    assert scaling.idle_seconds == pytest.approx(0.001)
    document = make_bench_json(make_case_bench(CASES[6]))["scaling"][0]
    assert document["parts"]["input"] == pytest.approx(0.0435)
    assert document["fed"]["speedup"] == pytest.approx(48 / 55)
    (nccl_scaling,) = make_case_bench(CASES[2]).scalings
    assert nccl_scaling.averaging_method == "NCCL"


def test_overlapped_allreduce_is_not_counted() -> None:
    """The all-reduce alone takes longer than the step leaves for it."""
    devices = make_devices_line("CPU:0", *TWO)
    parts = [
        make_training_line(1.0, "GPU:0"),
        make_training_line(1.0, "GPU:1"),
        make_training_line(0.9, *TWO),
        make_training_line(0.5, *TWO, part="compute"),
    ]
    (scaling,) = make_bench(devices, *parts, make_training_line(0.7, *TWO, part="allreduce")).scalings
    assert scaling.allreduce_seconds == pytest.approx(0.4)
    assert scaling.idle_seconds == 0


def test_batch_with_timed_parts_is_preferred() -> None:
    """The larger batch has no timed parts: the time ran out, or one GPU lacks the memory for it."""
    parts = [make_training_line(t, "GPU:0", size=n) for t, n in ((0.012, 8), (0.020, 32))]
    parts += [make_training_line(t, *TWO, size=n) for t, n in ((0.030, 8), (0.033, 32), (0.090, 128))]
    (without_parts,) = make_bench(make_devices_line("CPU:0", *TWO), *parts).scalings
    assert (without_parts.batch_size, without_parts.compute_seconds) == (32, None)
    parts += [
        make_training_line(0.011, *TWO, size=8, part="compute"),
        make_training_line(0.018, *TWO, size=102080, part="allreduce"),
    ]
    (scaling,) = make_bench(make_devices_line("CPU:0", *TWO), *parts).scalings
    assert (scaling.batch_size, scaling.compute_seconds, scaling.allreduce_seconds) == (8, 0.011, 0.018)
    assert scaling.reasons[0].startswith("Averaging the gradients and changing the weights takes 60 %")


def test_shared_processor_is_not_a_small_batch() -> None:
    """Two halves on one processor take as long as the whole, whatever the batch size."""
    devices = ("CPU:0", "CPU:1")
    parts = [
        *(make_training_line(0.098, name, size=128) for name in devices),
        make_training_line(0.100, *devices, size=128),
    ]
    (scaling,) = make_bench(
        make_devices_line(*devices), *parts, make_training_line(0.099, *devices, size=128, part="compute")
    ).scalings
    assert scaling.reasons == (
        "CPU:0 and CPU:1 are parts of the same processor: together they have no more cores than one.",
    )


def test_summary_uses_the_most_certain_result() -> None:
    noisy = {"samples": [0.3, 0.9, 1.5, 0.4, 1.4, 0.8, 1.0, 0.2], "model": "transformer"}
    parts = [
        make_training_line(0.6, "GPU:0"),
        make_training_line(0.6, "GPU:0", model="transformer"),
        make_training_line(1.0, *TWO),
    ]
    summary = make_bench(
        make_devices_line("CPU:0", *TWO), *parts, make_training_line(1.0, *TWO, **noisy)
    ).summary
    assert "2 devices train at 0.60 times the speed of one (0." in summary
    assert "; cnn, towers)" in summary


def test_summary_reports_the_effect_of_xla() -> None:
    parts = [make_training_line(0.025, "CPU:0", size=n) for n in (8, 32)]
    parts += [
        make_training_line(0.2, "CPU:0", size=32, xla=True),
        make_training_line(0.001, "CPU:0", size=8, xla=True),
    ]
    summary = make_bench(make_devices_line("CPU:0"), *parts).summary
    assert summary.endswith("Compiled by XLA, cnn (32) on CPU:0 takes 8.00 times the time.")


def test_summary_says_why_only_the_cpu_was_timed() -> None:
    """The command contains a path, and pictures are not redacted."""
    bench = make_bench(make_devices_line("CPU:0"), make_run_line(0.1))
    assert bench.summary == "Only the CPU was timed: TensorFlow lists no GPU here."
    assert "Do    See why.\n" in render_bench(bench)
    assert "tfdoctor check" in render_bench(bench)
    assert "tfdoctor check" not in render_bench(
        make_bench(make_devices_line("CPU:0", "GPU:0"), make_run_line(0.1))
    )
