"""Reading of payload lines and earlier result files, and comparison of two runs."""

from __future__ import annotations

import itertools
import json
import math
import random
import statistics
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

import pytest

from cli.planner import validate
from extensions.bench.made import make_bench, make_devices_line, make_run_line, make_training_line
from tfdoctor.core.errors import UsageError
from tfdoctor.extensions.bench.compare import compare_runs
from tfdoctor.extensions.bench.reader import parse_earlier_run, parse_payload_lines
from tfdoctor.extensions.bench.render import make_bench_json, render_bench
from tfdoctor.extensions.bench.svg import make_bench_svg

if TYPE_CHECKING:
    from tfdoctor.extensions.bench.models import Bench, BenchComparison

SIZES = (64, 128, 256, 512, 1024)


def make_noisy_run(factor: float, seed: int, **facts: object) -> Bench:
    """Return a run whose times follow a formula, with noise of 2 %."""
    noise = random.Random(seed)
    parts = []
    for device, base in (("CPU:0", 1e-4), ("GPU:0", 3e-4)):
        for size in SIZES:
            times = [base * size * factor * noise.gauss(1, 0.02) for _ in range(30)]
            parts.append(make_run_line(1.0, device, size=size, flop=2.0 * size**3, samples=times, **facts))
    return make_bench(make_devices_line("CPU:0", "GPU:0"), *parts)


def compare_with(now: Bench, then: Bench) -> BenchComparison:
    """Return the comparison of `now` with `then`, which is written to JSON and read back."""
    old = parse_earlier_run(json.dumps(make_bench_json(then)).encode(), "old.json")
    return compare_runs(now, old, "old.json")


def test_verdict_of_equal_slower_and_faster_runs() -> None:
    same = [
        compare_with(make_noisy_run(1.0, seed), make_noisy_run(1.0, 100 + seed)).verdict for seed in range(40)
    ]
    slower = [
        compare_with(make_noisy_run(1.2, seed), make_noisy_run(1.0, 100 + seed)).verdict for seed in range(40)
    ]
    faster = [
        compare_with(make_noisy_run(0.8, seed), make_noisy_run(1.0, 100 + seed)).verdict for seed in range(40)
    ]
    assert same.count("same") >= 38
    assert slower.count("slower") >= 38
    assert faster.count("faster") >= 38


def make_unsteady_run(changes: float, factor: float, seed: int) -> Bench:
    """Return eight rounds of each piece on a machine whose speed changes between rounds and runs."""
    noise = random.Random(seed)
    speeds = [math.exp(noise.gauss(0, changes) + offset) for offset in [noise.gauss(0, changes * 0.7)] * 8]
    parts = []
    for size in SIZES:
        times = [2e-5 * size * factor * speed * noise.gauss(1, 0.01) for speed in speeds for _ in range(10)]
        parts.append(make_run_line(1.0, "CPU:0", size=size, samples=times, rounds=[10] * 8))
    return make_bench(make_devices_line("CPU:0"), *parts)


@pytest.mark.parametrize("changes", [0.0, 0.03, 0.08])
def test_unsteady_machine_is_not_a_slower_run(changes: float) -> None:
    runs = [make_unsteady_run(changes, 1.0, seed) for seed in range(80)]
    assert [compare_with(*pair).verdict for pair in itertools.pairwise(runs)].count("same") >= 75
    spreads = [bench.speed_variation for bench in runs if bench.speed_variation is not None]
    assert len(spreads) == 80
    assert statistics.median(spreads) == pytest.approx(changes, rel=0.3, abs=0.01)
    doubled = [
        compare_with(make_unsteady_run(changes, 2.0, 100 + seed), then).verdict
        for seed, then in enumerate(runs)
    ]
    assert doubled.count("slower") >= 76
    for bench in runs:
        is_mentioned = "own speed went up and down" in render_bench(bench)
        assert is_mentioned == (bench.speed_variation is not None and bench.speed_variation >= 0.05)
        assert make_bench_json(bench)["unsteady"] == bench.speed_variation
        validate(make_bench_json(bench), "bench")
    widths = [bench.measurements[0].seconds.noise for bench in runs if bench.measurements[0].seconds]
    assert statistics.median(widths) >= 0.7 * changes  # Student's t of eight rounds: 0.84


def test_steady_machine_allows_a_finer_verdict() -> None:
    """On a steady machine, 12 % more time in all pieces is enough for the verdict."""
    slower = [
        compare_with(make_unsteady_run(0.0, 1.12, seed), make_unsteady_run(0.0, 1.0, 50 + seed)).verdict
        for seed in range(40)
    ]
    assert slower.count("slower") == 40


@pytest.mark.parametrize(
    ("ratio", "machine", "verdict"),
    [
        (1.0, 1.0, "same"),
        (1.3, 1.0, "slower"),
        (1.3, 1.28, "same"),  # the processor is slower, not TensorFlow
        (0.72, 0.75, "same"),
        (0.7, 1.0, "faster"),
        (1.0, 1.3, "same"),  # the measured times are the same, whatever the processor speed
        (1.0, 0.75, "same"),
        (1.3, 0.8, "slower"),
        (1.0, 1.6, "disturbed"),
        (1.6, 1.6, "disturbed"),
    ],
)
def test_processor_speed_is_not_blamed_on_tensorflow(ratio: float, machine: float, verdict: str) -> None:
    def run(factor: float, slowdown: float, program: str = "numpy 2.3.1") -> Bench:
        parts = [make_run_line(0.01 * factor * index, size=64 + index) for index in range(1, 6)]
        line = {"stage": "bench", "yardstick": {"what": program, "seconds": 3e-4 * slowdown}}
        return make_bench(make_devices_line("CPU:0"), *parts, line)

    comparison = compare_with(run(ratio, machine), run(1.0, 1.0))
    assert comparison.verdict == verdict
    assert comparison.ratio == pytest.approx(ratio)
    assert (f"{machine:.2f} times as long" in comparison.reason) == (machine != 1.0)
    other = compare_with(run(ratio, machine, "numpy 1.26.4"), run(1.0, 1.0))
    assert other.verdict == ("slower" if ratio > 1 else "faster" if ratio < 1 else "same")


def test_gpu_times_ignore_the_processor_speed() -> None:
    def run(factor: float, yardstick_seconds: float) -> Bench:
        parts = [make_run_line(0.01 * factor * index, "GPU:0", size=64 + index) for index in range(1, 6)]
        return make_bench(
            make_devices_line("GPU:0"),
            *parts,
            {"stage": "bench", "yardstick": {"what": "x", "seconds": yardstick_seconds}},
        )

    assert compare_with(run(1.3, 1.3), run(1.0, 1.0)).verdict == "slower"
    assert compare_with(run(1.0, 2.0), run(1.0, 1.0)).verdict == "same"


@pytest.mark.parametrize(
    "told",
    [
        7,
        {},
        {"what": "x"},
        {"what": 3, "seconds": 1.0},
        {"what": "x", "seconds": -1},
        {"what": "x", "seconds": "1"},
    ],
)
def test_invalid_yardstick_is_ignored(told: object) -> None:
    assert (
        parse_payload_lines([make_run_line(1.0), {"stage": "bench", "yardstick": told}]).processor_times
        is None
    )


def test_one_unsteady_piece_is_not_an_unsteady_machine() -> None:
    steady = [0.01 + 1e-5 * index for index in range(80)]
    alternating = [0.01 * (1 + index // 10 % 2) for index in range(80)]
    parts = [make_run_line(1.0, size=64 + index, samples=steady, rounds=[10] * 8) for index in range(5)]
    bench = make_bench(
        make_devices_line("CPU:0"), *parts, make_run_line(1.0, size=8, samples=alternating, rounds=[10] * 8)
    )
    assert bench.speed_variation is not None
    assert bench.speed_variation < 0.05


@pytest.mark.parametrize(
    "rounds", [None, 8, [10] * 7, [10] * 9, [-10, *[10] * 9], [True, *[10] * 7, 9], ["10"] * 8, [0] * 100, []]
)
def test_inconsistent_rounds_are_ignored(rounds: object) -> None:
    (run,) = parse_payload_lines([make_run_line(1.0, samples=[1.0] * 80, rounds=rounds)]).measurements
    assert (run.repeats, run.round_medians) == (80, ())


def test_round_without_samples_is_none() -> None:
    (run,) = parse_payload_lines(
        [make_run_line(1.0, samples=[1.0, 2.0, 3.0], rounds=[0, 1, 0, 2])]
    ).measurements
    assert run.round_medians == (None, 1.0, None, 2.5)


def test_earlier_result_without_rounds_is_compared() -> None:
    document = make_bench_json(make_noisy_run(1.0, 1))
    for run in document["runs"]:
        del run["rounds"]
    now = make_noisy_run(1.0, 2)
    assert compare_runs(now, parse_earlier_run(json.dumps(document).encode(), "x"), "x").verdict == "same"


def make_sized_bench(short: float, long: float) -> Bench:
    """Return a result with seven pieces below a millisecond and four above it."""
    sizes = [
        *(((1 << index) * 1e-5 * short) for index in range(7)),
        *((0.002 * index * long) for index in range(1, 5)),
    ]
    return make_bench(
        make_devices_line("CPU:0"),
        *(make_run_line(seconds, "CPU:0", size=64 + index) for index, seconds in enumerate(sizes)),
    )


def test_short_pieces_do_not_decide_the_verdict() -> None:
    """Very short times vary by up to a third from process to process."""
    comparison = compare_with(make_sized_bench(1.25, 1.0), make_sized_bench(1.0, 1.0))
    assert (comparison.verdict, any(change.exceeds_noise for change in comparison.changes)) == ("same", False)
    comparison = compare_with(make_sized_bench(1.0, 1.12), make_sized_bench(1.0, 1.0))
    assert (comparison.verdict, sum(change.exceeds_noise for change in comparison.changes)) == ("slower", 4)
    comparison = compare_with(make_sized_bench(2.0, 1.0), make_sized_bench(1.0, 1.0))
    assert (comparison.verdict, sum(change.exceeds_noise for change in comparison.changes)) == ("same", 7)
    assert "4 longer pieces of work" in comparison.reason


def test_one_long_piece_does_not_make_a_run_slower() -> None:
    now, then = (
        make_bench(
            make_devices_line("CPU:0"),
            *(
                make_run_line(seconds, size=64 + index)
                for index, seconds in enumerate((1e-4, 2e-4, 3e-4, last))
            ),
        )
        for last in (0.02, 0.01)
    )
    assert compare_with(now, then).verdict == "same"


def test_disturbed_and_tiny_runs_are_not_compared() -> None:
    assert compare_with(make_noisy_run(2.0, 1, others=0.9), make_noisy_run(1.0, 2)).verdict == "disturbed"
    assert compare_with(make_noisy_run(2.0, 1), make_noisy_run(1.0, 2, others=0.9)).verdict == "disturbed"
    single = make_bench(make_devices_line("CPU:0"), make_run_line(1.0))
    assert compare_with(single, single).verdict == "incomparable"


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b"[" * 100_000,
        b'{"schema_version": 2, "runs": []}',
        b'{"schema_version": 1, "runs": [3]}',
        b'{"schema_version": 1, "runs": [{"workload": "matmul", "size": -1}]}',
    ],
)
def test_file_that_is_no_result_is_refused(text: bytes) -> None:
    with pytest.raises(UsageError, match=r"--compare: old.json is no result of tfdoctor bench"):
        parse_earlier_run(text, "old.json")


@pytest.mark.parametrize(
    "wrong",
    [
        {"workload": "sorting"},
        {"size": True},
        {"size": 0},
        {"size": "8"},
        {"devices": []},
        {"devices": "GPU:0"},
        {"strategy": None},
    ],
)
def test_invalid_lines_are_ignored(wrong: dict[str, object]) -> None:
    assert not parse_payload_lines(
        [make_run_line(1.0, **wrong), 3, None, {"stage": "bench", "devices": 7, "run": []}]
    ).measurements


def test_invalid_times_are_ignored() -> None:
    (run,) = parse_payload_lines(
        [make_run_line(1.0, samples=[1.0, -1.0, float("nan"), 10**400, "2", True, 3.0])]
    ).measurements
    assert run.repeats == 2


def test_later_line_replaces_earlier_one() -> None:
    (run,) = parse_payload_lines([make_run_line(1.0), make_run_line(2.0)]).measurements
    assert run.seconds is not None
    assert run.seconds.median == 2.0


def test_json_matches_the_schema() -> None:
    parts = [
        make_training_line(1.0, "GPU:0"),
        make_training_line(1.0, "GPU:1"),
        make_training_line(2.0, "GPU:0", "GPU:1"),
    ]
    validate(make_bench_json(make_bench(make_devices_line("GPU:0", "GPU:1"), *parts)), "bench")
    validate(make_bench_json(make_bench()), "bench")
    bench = make_noisy_run(1.0, 1)
    validate(make_bench_json(bench), "bench")
    parsed = parse_earlier_run(json.dumps(make_bench_json(bench)).encode(), "x")
    assert parsed.measurements == bench.measurements


def test_screen_fits_and_has_no_control_characters() -> None:
    unsafe = "\x1b[31mTesla\n</text><script>"
    parts = [
        make_training_line(1.0, "GPU:0"),
        make_training_line(1.0, "GPU:1"),
        make_training_line(2.0, "GPU:0", "GPU:1", left_out=unsafe),
    ]
    devices = {"stage": "bench", "devices": [{"device": unsafe, "device_name": unsafe}]}
    bench = make_bench(devices, *parts, make_run_line(1.0, unsafe, model=unsafe, dtype=unsafe))
    screen = render_bench(bench)
    assert "\x1b" not in screen
    assert max(map(len, screen.splitlines())) <= 80
    picture = make_bench_svg(bench)
    assert "<script>" not in picture
    ET.fromstring(picture)  # noqa: S314 - ours


def test_result_fits_on_one_screen() -> None:
    screen = render_bench(make_noisy_run(1.0, 1)).splitlines()
    assert len(screen) <= 22
    assert any("matmul on GPU:0" in line for line in screen)


def test_widest_lines_fit_the_screen() -> None:
    """The widest lines have a peak, large sizes, several devices and the prefix of a software GPU."""
    names = ("GPU:0", "GPU:1", "GPU:2", "GPU:3")
    parts = [make_run_line(0.11, name, size=8192, flop=2.0 * 8192**3) for name in names]
    parts += [
        make_training_line(1.0, *names, model="transformer", strategy="mirrored"),
        make_run_line(1e-3, *names, size=8192),
    ]
    parts.append(make_run_line(1.0, "CPU:0", "GPU:0", workload="copy", size=1 << 26, bytes=1 << 26))
    for software in (False, True):
        bench = make_bench(make_devices_line(*names), *parts, peaks={"GPU:0": 2e4}, software=software)
        screen = render_bench(bench, verbose=True).splitlines()
        assert max(map(len, screen)) <= 80
        assert any("50 % of peak" in line for line in screen) is not software


def test_limit_is_drawn_only_inside_the_picture() -> None:
    parts = [make_run_line(1e-3 * n, "GPU:0", size=n, flop=2.0 * n**3) for n in (64, 1024, 8192)]
    with_limit = make_bench_svg(make_bench(make_devices_line("GPU:0"), *parts, peaks={"GPU:0": 3e2}))
    without_limit = make_bench_svg(make_bench(make_devices_line("GPU:0"), *parts, peaks={"GPU:0": 1e9}))
    for picture, is_drawn in ((with_limit, True), (without_limit, False)):
        ET.fromstring(picture)  # noqa: S314 - ours
        assert ("the peak of GPU:0 in float32" in picture) is is_drawn
        assert ('<polyline class="limit"' in picture) is is_drawn
