"""Analysis of synthetic results whose cause is known."""

from __future__ import annotations

import json
import re

import pytest

from cli.planner import validate
from extensions.bench.made import make_bench, make_devices_line, make_run_line, make_training_line
from tfdoctor.extensions.bench.compare import compare_runs
from tfdoctor.extensions.bench.models import Bench, GpuObservation
from tfdoctor.extensions.bench.noise import compute_interval
from tfdoctor.extensions.bench.reader import parse_earlier_run
from tfdoctor.extensions.bench.render import make_bench_json, render_bench
from tfdoctor.extensions.bench.svg import make_bench_svg

TWO = ("GPU:0", "GPU:1")


def get_codes(bench: Bench) -> list[str]:
    """Return the codes of the findings."""
    return [finding.code for finding in bench.findings]


def test_interval_uses_order_statistics() -> None:
    """The ranks 40 and 61 of 100 times cover 95 % of a binomial distribution with p = 1/2."""
    estimate = compute_interval([float(number) for number in range(1, 101)])
    assert estimate is not None
    assert estimate.median == 50.5
    assert 39 <= estimate.low <= 41
    assert 60 <= estimate.high <= 62
    estimate_of_three = compute_interval([3.0, 1.0, 2.0])
    assert estimate_of_three is not None
    assert (estimate_of_three.low, estimate_of_three.median, estimate_of_three.high) == (1.0, 2.0, 3.0)
    assert compute_interval([]) is None


@pytest.mark.parametrize(
    ("cpu", "gpu", "size", "below"),
    [
        ((1.0, 2.0, 8.0), (3.0, 1.0, 1.0), 256, 128),  # the GPU becomes faster
        ((1.0, 2.0, 8.0), (0.5, 1.0, 1.0), 128, None),  # always faster
        ((1.0, 1.0, 1.0), (3.0, 2.0, 1.5), None, 512),  # never
        ((1.0, 2.0, 1.0), (3.0, 1.0, 1.0), None, 512),  # faster only once, then within the noise
        ((3.0, 1.0, 8.0), (1.0, 2.0, 1.0), 512, 256),  # being faster at the smallest size only does not count
    ],
)
def test_crossover_size(cpu: tuple[float], gpu: tuple[float], size: int | None, below: int | None) -> None:
    sizes = (128, 256, 512)
    parts = [make_run_line(t, "CPU:0", size=n) for t, n in zip(cpu, sizes, strict=True)]
    parts += [make_run_line(t, "GPU:0", size=n) for t, n in zip(gpu, sizes, strict=True)]
    (crossover,) = make_bench(make_devices_line("CPU:0", "GPU:0"), *parts).crossovers
    assert (crossover.min_faster_size, crossover.max_slower_size) == (size, below)
    assert crossover.speedup == pytest.approx(cpu[-1] / gpu[-1])


@pytest.mark.parametrize(("others", "said"), [(0.02, False), (0.5, True), (1, True), (None, False)])
def test_disturbance_by_other_programs_is_reported(others: float | None, said: bool) -> None:
    bench = make_bench(make_devices_line("CPU:0"), make_run_line(1.0, others=others))
    assert (get_codes(bench) == ["TFD828"]) == said
    assert bool(bench.disturbance_text) == said


def test_gpu_far_below_its_peak_is_reported() -> None:
    parts = [make_run_line(1.0, "GPU:0", size=4096, flop=2.0 * 4096**3)]
    peak = 2 * 4096**3 / 1e9 * 10
    card = GpuObservation("GPU:0", power_limit=60.0, default_power_limit=300.0)
    bench = make_bench(make_devices_line("GPU:0"), *parts, watched=(card,), peaks={"GPU:0": peak})
    (finding,) = bench.findings
    assert finding.title == "GPU:0 gives 10 % of its peak in float32"
    assert "Its power limit is 60 W, by default 300 W." in finding.explanation
    assert not make_bench(make_devices_line("GPU:0"), *parts, peaks={"GPU:0": peak / 5}).findings
    small_product = [make_run_line(1.0, "GPU:0", size=256, flop=2.0 * 256**3)]
    assert not make_bench(
        make_devices_line("GPU:0"), *small_product, peaks={"GPU:0": peak}
    ).findings  # a small product never reaches the peak


def test_result_without_times_is_an_error() -> None:
    bench = make_bench({"stage": "import", "status": "failed", "detail": "ImportError: no numpy"})
    (finding,) = bench.findings
    assert (finding.code, finding.explanation) == ("TFD827", "ImportError: no numpy")
    assert bench.summary == "Nothing could be timed."


def test_software_gpu_is_not_treated_as_a_gpu() -> None:
    """Its times are labelled and cause no crossover, peak, finding or sentence about a real GPU."""
    parts = [
        make_training_line(1.0, "CPU:0"),
        make_training_line(0.1, "GPU:0"),
        make_training_line(0.1, "GPU:1"),
        make_training_line(0.5, *TWO),
    ]
    parts += [make_run_line(1.0, "CPU:0"), make_run_line(1e-3, "GPU:0", size=4096, flop=2.0 * 4096**3)]
    options = {"peaks": {"GPU:0": 1e6}, "software": True}
    bench = make_bench(make_devices_line("CPU:0", *TWO), *parts, **options)
    assert [item.is_software for item in bench.devices] == [False, True, True]
    assert {item.devices[0] for item in bench.measurements if item.is_software} == {"GPU:0", "GPU:1"}
    assert not any(item.is_software for item in bench.measurements if item.devices == ("CPU:0",))
    assert (bench.crossovers, bench.findings) == ((), ())
    assert all(item.peak_gflops is None for item in bench.devices)
    assert bench.summary.startswith("GPU:0 and GPU:1 are no card: ")
    assert "times" not in bench.summary
    (scaling,) = bench.scalings
    assert scaling.reasons[0] == "GPU:0 and GPU:1 are software: they share this machine's processor."
    for picture in (render_bench(bench, verbose=True), make_bench_svg(bench)):
        titles = re.findall(r"([a-z]+:)? ?(?:train cnn|matmul)(?:, towers,)? on GPU", picture)
        assert len(titles) >= 4
        assert set(titles) == {"software:"}
    validate(make_bench_json(bench), "bench")


def test_gpu_is_not_compared_with_a_software_gpu() -> None:
    parts = [make_run_line(1.0, "GPU:0", size=size) for size in (64, 128, 256, 512)]
    software_gpu, gpu = (
        make_bench(make_devices_line("GPU:0"), *parts, software=software) for software in (True, False)
    )
    old = parse_earlier_run(json.dumps(make_bench_json(software_gpu)).encode(), "old.json")
    assert compare_runs(software_gpu, old, "old.json").verdict == "same"
    assert compare_runs(gpu, old, "old.json").verdict == "incomparable"
