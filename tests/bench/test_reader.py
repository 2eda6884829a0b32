"""What the payload and earlier files say, right and wrong; and a run against an earlier one."""

from __future__ import annotations

import itertools
import json
import math
import random
import statistics
import xml.etree.ElementTree as ET

import pytest

from bench.made import on, piece, result, train
from cli.planner import validate
from tfdoctor.bench import Bench, BenchComparison, compare_runs, earlier, read_lines
from tfdoctor.errors import UsageError
from tfdoctor.render.bench import bench_json, render_bench
from tfdoctor.render.bench_svg import bench_svg

SIZES = (64, 128, 256, 512, 1024)


def run_of(factor: float, seed: int, **facts: object) -> Bench:
    """A run whose times are a formula, with noise of a few percent."""
    noise = random.Random(seed)
    parts = []
    for device, base in (("CPU:0", 1e-4), ("GPU:0", 3e-4)):
        for size in SIZES:
            times = [base * size * factor * noise.gauss(1, 0.02) for _ in range(30)]
            parts.append(piece(1.0, device, size=size, flop=2.0 * size**3, samples=times, **facts))
    return result(on("CPU:0", "GPU:0"), *parts)


def compare_with(now: Bench, then: Bench) -> BenchComparison:
    old = earlier(json.dumps(bench_json(then)).encode(), "old.json")
    return compare_runs(now, old, "old.json")


def test_the_same_again_is_the_same_and_a_slower_one_is_slower() -> None:
    same = [compare_with(run_of(1.0, seed), run_of(1.0, 100 + seed)).verdict for seed in range(40)]
    slower = [compare_with(run_of(1.2, seed), run_of(1.0, 100 + seed)).verdict for seed in range(40)]
    faster = [compare_with(run_of(0.8, seed), run_of(1.0, 100 + seed)).verdict for seed in range(40)]
    assert same.count("same") >= 38
    assert slower.count("slower") >= 38
    assert faster.count("faster") >= 38


def on_a_machine(changes: float, factor: float, seed: int) -> Bench:
    """Eight rounds of each piece, on a machine whose speed changes for all from round to round and run to run."""
    noise = random.Random(seed)
    speeds = [math.exp(noise.gauss(0, changes) + at) for at in [noise.gauss(0, changes * 0.7)] * 8]
    parts = []
    for size in SIZES:
        times = [2e-5 * size * factor * speed * noise.gauss(1, 0.01) for speed in speeds for _ in range(10)]
        parts.append(piece(1.0, "CPU:0", size=size, samples=times, rounds=[10] * 8))
    return result(on("CPU:0"), *parts)


@pytest.mark.parametrize("changes", [0.0, 0.03, 0.08])
def test_a_machine_whose_speed_changes_is_no_slower_run(changes: float) -> None:
    runs = [on_a_machine(changes, 1.0, seed) for seed in range(80)]
    assert [compare_with(*pair).verdict for pair in itertools.pairwise(runs)].count("same") >= 75
    told = [one.unsteady for one in runs if one.unsteady is not None]
    assert len(told) == 80
    assert statistics.median(told) == pytest.approx(changes, rel=0.3, abs=0.01)
    twice = [
        compare_with(on_a_machine(changes, 2.0, 100 + seed), then).verdict for seed, then in enumerate(runs)
    ]
    assert twice.count("slower") >= 76
    for one in runs:
        said = "own speed went up and down" in render_bench(one)
        assert said == (one.unsteady is not None and one.unsteady >= 0.05)
        assert bench_json(one)["unsteady"] == one.unsteady
        validate(bench_json(one), "bench")
    widths = [one.runs[0].seconds.noise for one in runs if one.runs[0].seconds]
    assert statistics.median(widths) >= 0.7 * changes  # Student's t of eight rounds: 0.84


def test_a_steady_machine_is_judged_by_less() -> None:
    """12 % more, by all pieces alike, and each round like the others."""
    slower = [
        compare_with(on_a_machine(0.0, 1.12, seed), on_a_machine(0.0, 1.0, 50 + seed)).verdict
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
        (1.0, 1.3, "same"),  # by the clock it is the same, whatever the processor did
        (1.0, 0.75, "same"),
        (1.3, 0.8, "slower"),
        (1.0, 1.6, "disturbed"),
        (1.6, 1.6, "disturbed"),
    ],
)
def test_what_the_processor_itself_changed_is_not_tensorflows(
    ratio: float, machine: float, verdict: str
) -> None:
    def run(factor: float, own: float, what: str = "numpy 2.3.1") -> Bench:
        parts = [piece(0.01 * factor * at, size=64 + at) for at in range(1, 6)]
        told = {"stage": "bench", "yardstick": {"what": what, "seconds": 3e-4 * own}}
        return result(on("CPU:0"), *parts, told)

    known = compare_with(run(ratio, machine), run(1.0, 1.0))
    assert known.verdict == verdict
    assert known.ratio == pytest.approx(ratio)
    assert (f"{machine:.2f} times as long" in known.why) == (machine != 1.0)
    other = compare_with(run(ratio, machine, "numpy 1.26.4"), run(1.0, 1.0))
    assert other.verdict == ("slower" if ratio > 1 else "faster" if ratio < 1 else "same")


def test_a_cards_times_are_not_the_processors() -> None:
    def run(factor: float, own: float) -> Bench:
        parts = [piece(0.01 * factor * at, "GPU:0", size=64 + at) for at in range(1, 6)]
        return result(on("GPU:0"), *parts, {"stage": "bench", "yardstick": {"what": "x", "seconds": own}})

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
def test_a_yardstick_that_is_none_is_passed_over(told: object) -> None:
    assert read_lines([piece(1.0), {"stage": "bench", "yardstick": told}]).yardstick is None


def test_one_piece_that_goes_up_and_down_is_no_unsteady_machine() -> None:
    steady = [0.01 + 1e-5 * at for at in range(80)]
    moved = [0.01 * (1 + at // 10 % 2) for at in range(80)]
    parts = [piece(1.0, size=64 + at, samples=steady, rounds=[10] * 8) for at in range(5)]
    done = result(on("CPU:0"), *parts, piece(1.0, size=8, samples=moved, rounds=[10] * 8))
    assert done.unsteady is not None
    assert done.unsteady < 0.05


@pytest.mark.parametrize(
    "rounds", [None, 8, [10] * 7, [10] * 9, [-10, *[10] * 9], [True, *[10] * 7, 9], ["10"] * 8, [0] * 100, []]
)
def test_rounds_that_do_not_add_up_are_none(rounds: object) -> None:
    (one,) = read_lines([piece(1.0, samples=[1.0] * 80, rounds=rounds)]).runs
    assert (one.repeats, one.rounds) == (80, ())


def test_a_round_without_a_time_is_kept_as_such() -> None:
    (one,) = read_lines([piece(1.0, samples=[1.0, 2.0, 3.0], rounds=[0, 1, 0, 2])]).runs
    assert one.rounds == (None, 1.0, None, 2.5)


def test_an_earlier_result_without_rounds_is_compared() -> None:
    told = bench_json(run_of(1.0, 1))
    for one in told["runs"]:
        del one["rounds"]
    now = run_of(1.0, 2)
    assert compare_runs(now, earlier(json.dumps(told).encode(), "x"), "x").verdict == "same"


def make_sized_bench(short: float, long: float) -> Bench:
    """Seven pieces of work below a millisecond and four above it."""
    sizes = [*(((1 << at) * 1e-5 * short) for at in range(7)), *((0.002 * at * long) for at in range(1, 5))]
    return result(on("CPU:0"), *(piece(one, "CPU:0", size=64 + at) for at, one in enumerate(sizes)))


def test_what_takes_microseconds_says_nothing_of_a_whole_run() -> None:
    """From process to process it takes up to a third more or less."""
    known = compare_with(make_sized_bench(1.25, 1.0), make_sized_bench(1.0, 1.0))
    assert (known.verdict, any(one.beyond for one in known.changes)) == ("same", False)
    known = compare_with(make_sized_bench(1.0, 1.12), make_sized_bench(1.0, 1.0))
    assert (known.verdict, sum(one.beyond for one in known.changes)) == ("slower", 4)
    known = compare_with(make_sized_bench(2.0, 1.0), make_sized_bench(1.0, 1.0))
    assert (known.verdict, sum(one.beyond for one in known.changes)) == ("same", 7)
    assert "4 longer pieces of work" in known.why


def test_one_long_piece_makes_no_run_slower() -> None:
    now, then = (
        result(on("CPU:0"), *(piece(one, size=64 + at) for at, one in enumerate((1e-4, 2e-4, 3e-4, last))))
        for last in (0.02, 0.01)
    )
    assert compare_with(now, then).verdict == "same"


def test_nothing_is_said_of_a_disturbed_run_or_of_too_little() -> None:
    assert compare_with(run_of(2.0, 1, others=0.9), run_of(1.0, 2)).verdict == "disturbed"
    assert compare_with(run_of(2.0, 1), run_of(1.0, 2, others=0.9)).verdict == "disturbed"
    alone = result(on("CPU:0"), piece(1.0))
    assert compare_with(alone, alone).verdict == "incomparable"


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
def test_another_file_is_refused(text: bytes) -> None:
    with pytest.raises(UsageError, match=r"--compare: old.json is no result of tfdoctor bench"):
        earlier(text, "old.json")


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
def test_lines_that_are_wrong_are_passed_over(wrong: dict[str, object]) -> None:
    assert not read_lines([piece(1.0, **wrong), 3, None, {"stage": "bench", "devices": 7, "run": []}]).runs


def test_times_that_are_none_are_passed_over() -> None:
    (one,) = read_lines([piece(1.0, samples=[1.0, -1.0, float("nan"), 10**400, "2", True, 3.0])]).runs
    assert one.repeats == 2


def test_the_later_line_holds() -> None:
    (one,) = read_lines([piece(1.0), piece(2.0)]).runs
    assert one.seconds is not None
    assert one.seconds.median == 2.0


def test_the_json_keeps_its_contract() -> None:
    parts = [train(1.0, "GPU:0"), train(1.0, "GPU:1"), train(2.0, "GPU:0", "GPU:1")]
    validate(bench_json(result(on("GPU:0", "GPU:1"), *parts)), "bench")
    validate(bench_json(result()), "bench")
    done = run_of(1.0, 1)
    validate(bench_json(done), "bench")
    told = earlier(json.dumps(bench_json(done)).encode(), "x")
    assert told.runs == done.runs


def test_the_screen_has_room_and_no_control_characters() -> None:
    evil = "\x1b[31mTesla\n</text><script>"
    parts = [train(1.0, "GPU:0"), train(1.0, "GPU:1"), train(2.0, "GPU:0", "GPU:1", left_out=evil)]
    devices = {"stage": "bench", "devices": [{"device": evil, "device_name": evil}]}
    done = result(devices, *parts, piece(1.0, evil, model=evil, dtype=evil))
    screen = render_bench(done)
    assert "\x1b" not in screen
    assert max(map(len, screen.splitlines())) <= 80
    picture = bench_svg(done)
    assert "<script>" not in picture
    ET.fromstring(picture)  # noqa: S314 - ours


def test_a_first_screen() -> None:
    screen = render_bench(run_of(1.0, 1)).splitlines()
    assert len(screen) <= 22
    assert any("matmul on GPU:0" in line for line in screen)


def test_each_line_fits_where_all_is_known() -> None:
    """The widest: a peak, large sizes, several devices, a software GPU's name before."""
    names = ("GPU:0", "GPU:1", "GPU:2", "GPU:3")
    parts = [piece(0.11, name, size=8192, flop=2.0 * 8192**3) for name in names]
    parts += [train(1.0, *names, model="transformer", strategy="mirrored"), piece(1e-3, *names, size=8192)]
    parts.append(piece(1.0, "CPU:0", "GPU:0", workload="copy", size=1 << 26, bytes=1 << 26))
    for software in (False, True):
        done = result(on(*names), *parts, peaks={"GPU:0": 2e4}, software=software)
        screen = render_bench(done, verbose=True).splitlines()
        assert max(map(len, screen)) <= 80
        assert any("50 % of peak" in line for line in screen) is not software


def test_the_picture_has_axes_bands_and_the_crossover() -> None:
    parts = [piece(t, "CPU:0", size=n) for t, n in ((1.0, 128), (2.0, 256), (8.0, 512))]
    parts += [piece(t, "GPU:0", size=n) for t, n in ((3.0, 128), (1.0, 256), (1.0, 512))]
    done = result(on("CPU:0", "GPU:0"), *parts)
    picture = bench_svg(done)
    ET.fromstring(picture)  # noqa: S314 - ours
    for told in (
        "GPU:0 faster from 256",
        "rows of the matrices (log)",
        "<polygon",
        "prefers-color-scheme:dark",
    ):
        assert told in picture
    ET.fromstring(bench_svg(result()))  # noqa: S314 - ours


def test_a_screen_of_nothing_says_it_once_and_what_to_do() -> None:
    lines = render_bench(result()).splitlines()
    assert sum("Nothing could be timed" in line for line in lines) == 1
    assert lines[-1].strip() == "tfdoctor check"


def test_limits_are_lines_that_are_named_where_they_are_in_the_picture() -> None:
    parts = [piece(1e-3 * n, "GPU:0", size=n, flop=2.0 * n**3) for n in (64, 1024, 8192)]
    near = bench_svg(result(on("GPU:0"), *parts, peaks={"GPU:0": 3e2}))
    far = bench_svg(result(on("GPU:0"), *parts, peaks={"GPU:0": 1e9}))
    for picture, there in ((near, True), (far, False)):
        ET.fromstring(picture)  # noqa: S314 - ours
        assert ("the peak of GPU:0 in float32" in picture) is there
        assert ('<polyline class="limit"' in picture) is there
