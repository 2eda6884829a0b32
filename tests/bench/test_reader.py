"""What the payload and earlier files say, right and wrong; and a run against an earlier one."""

from __future__ import annotations

import json
import random
import xml.etree.ElementTree as ET

import pytest

from bench.made import on, piece, result, train
from cli.planner import validate
from tfdoctor.bench import Bench, Comparison, compared, earlier, read_lines
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


def against(now: Bench, then: Bench) -> Comparison:
    old = earlier(json.dumps(bench_json(then)).encode(), "old.json")
    return compared(now.runs, old, "old.json", now.disturbed)


def test_the_same_again_is_the_same_and_a_slower_one_is_slower() -> None:
    same = [against(run_of(1.0, seed), run_of(1.0, 100 + seed)).verdict for seed in range(40)]
    slower = [against(run_of(1.2, seed), run_of(1.0, 100 + seed)).verdict for seed in range(40)]
    faster = [against(run_of(0.8, seed), run_of(1.0, 100 + seed)).verdict for seed in range(40)]
    assert same.count("same") >= 38
    assert slower.count("slower") >= 38
    assert faster.count("faster") >= 38


def of_sizes(short: float, long: float) -> Bench:
    """Seven pieces of work below a millisecond and four above it."""
    sizes = [*(((1 << at) * 1e-5 * short) for at in range(7)), *((0.002 * at * long) for at in range(1, 5))]
    return result(on("CPU:0"), *(piece(one, "CPU:0", size=64 + at) for at, one in enumerate(sizes)))


def test_what_takes_microseconds_says_nothing_of_a_whole_run() -> None:
    """From process to process it takes up to a third more or less."""
    known = against(of_sizes(1.25, 1.0), of_sizes(1.0, 1.0))
    assert (known.verdict, any(one.beyond for one in known.changes)) == ("same", False)
    known = against(of_sizes(1.0, 1.12), of_sizes(1.0, 1.0))
    assert (known.verdict, sum(one.beyond for one in known.changes)) == ("slower", 4)
    known = against(of_sizes(2.0, 1.0), of_sizes(1.0, 1.0))
    assert (known.verdict, sum(one.beyond for one in known.changes)) == ("same", 7)
    assert "4 longer pieces of work" in known.why


def test_one_long_piece_makes_no_run_slower() -> None:
    now, then = (
        result(on("CPU:0"), *(piece(one, size=64 + at) for at, one in enumerate((1e-4, 2e-4, 3e-4, last))))
        for last in (0.02, 0.01)
    )
    assert against(now, then).verdict == "same"


def test_nothing_is_said_of_a_disturbed_run_or_of_too_little() -> None:
    assert against(run_of(2.0, 1, others=0.9), run_of(1.0, 2)).verdict == "disturbed"
    assert against(run_of(2.0, 1), run_of(1.0, 2, others=0.9)).verdict == "disturbed"
    alone = result(on("CPU:0"), piece(1.0))
    assert against(alone, alone).verdict == "incomparable"


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
