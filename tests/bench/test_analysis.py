"""What results that are made up mean: each has a reason that is known."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from bench.made import on, piece, result, train
from cli.planner import validate
from tfdoctor.bench import Bench, Watched, compare_runs, earlier
from tfdoctor.bench.noise import interval
from tfdoctor.render.bench import bench_json, render_bench
from tfdoctor.render.bench_svg import bench_svg

TWO = ("GPU:0", "GPU:1")


def codes(done: Bench) -> list[str]:
    return [finding.code for finding in done.findings]


def list_reasons(*parts: dict[str, Any], watched: tuple[Watched, ...] = ()) -> tuple[str, ...]:
    """Why, of the one set of devices."""
    (one,) = result(on("CPU:0", *TWO), *parts, watched=watched).scaling
    return one.why


def test_the_interval_is_one_of_order_statistics() -> None:
    """Of 100 times: the ranks 40 and 61 of a binomial distribution of p = 1/2 hold 95 %."""
    known = interval([float(number) for number in range(1, 101)])
    assert known is not None
    assert known.median == 50.5
    assert 39 <= known.low <= 41
    assert 60 <= known.high <= 62
    few = interval([3.0, 1.0, 2.0])
    assert few is not None
    assert (few.low, few.median, few.high) == (1.0, 2.0, 3.0)
    assert interval([]) is None


@pytest.mark.parametrize(
    ("cpu", "gpu", "size", "below"),
    [
        ((1.0, 2.0, 8.0), (3.0, 1.0, 1.0), 256, 128),  # the usual curves
        ((1.0, 2.0, 8.0), (0.5, 1.0, 1.0), 128, None),  # always faster
        ((1.0, 1.0, 1.0), (3.0, 2.0, 1.5), None, 512),  # never
        ((1.0, 2.0, 1.0), (3.0, 1.0, 1.0), None, 512),  # once only, and at the end within the noise
        ((3.0, 1.0, 8.0), (1.0, 2.0, 1.0), 512, 256),  # a small size alone does not count
    ],
)
def test_the_crossover(cpu: tuple[float], gpu: tuple[float], size: int | None, below: int | None) -> None:
    sizes = (128, 256, 512)
    parts = [piece(t, "CPU:0", size=n) for t, n in zip(cpu, sizes, strict=True)]
    parts += [piece(t, "GPU:0", size=n) for t, n in zip(gpu, sizes, strict=True)]
    (found,) = result(on("CPU:0", "GPU:0"), *parts).crossover
    assert (found.size, found.below) == (size, below)
    assert found.fold == pytest.approx(cpu[-1] / gpu[-1])


def test_two_that_scale_have_no_reason_to_say() -> None:
    parts = [train(1.0, "GPU:0"), train(1.0, "GPU:1"), train(0.55, *TWO), train(0.5, *TWO, part="compute")]
    done = result(on(*TWO), *parts)
    (one,) = done.scaling
    assert one.speedup == pytest.approx(1 / 0.55)
    assert one.allreduce == pytest.approx(0.05)
    assert (one.why, codes(done)) == ((), [])


def test_averaging_the_gradients_is_the_reason() -> None:
    parts = [train(1.0, "GPU:0"), train(1.0, "GPU:1"), train(2.0, *TWO), train(0.5, *TWO, part="compute")]
    copied = piece(0.01, *TWO, workload="copy", size=1 << 24, bytes=1 << 24)
    done = result(on(*TWO), *parts, copied)
    (one,) = done.scaling
    (why,) = one.why
    assert why.startswith(
        "Averaging the gradients and changing the weights takes 75 % of each step (1.5 s), "
    )
    assert "more than the split saves (500 ms)" in why
    assert why.endswith("between these devices at most 1.7 GB/s were measured.")
    assert codes(done) == ["TFD829"]


def test_a_small_batch_is_the_reason() -> None:
    why = list_reasons(
        train(1.0, "GPU:0"), train(1.0, "GPU:1"), train(1.05, *TWO), train(0.97, *TWO, part="compute")
    )
    assert why[0] == (
        "The batch of 64 is too small: 1/2 of it takes 97 % of the time of all of it on one device."
    )
    assert why[1].endswith("takes 8 % of each step (80 ms), more than the split saves (30 ms).")


def test_a_slower_card_is_the_reason() -> None:
    why = list_reasons(
        train(1.0, "GPU:0"), train(3.0, "GPU:1"), train(1.5, *TWO), train(1.4, *TWO, part="compute")
    )
    assert why[0] == "GPU:1 is slower than the others, and each step waits for the slowest device."


@pytest.mark.parametrize(
    ("card", "sentence", "code"),
    [
        (
            Watched("GPU:1", processes=("python",)),
            "Another program computes on GPU:1 (python); the others wait for it.",
            "TFD828",
        ),
        (
            Watched("GPU:1", slowdowns=("hw_thermal_slowdown",), temperature=91),
            "GPU:1 lowers its clocks (hw_thermal_slowdown); the others wait for it.",
            "TFD828",
        ),
        (
            Watched("GPU:0", slowdowns=("sw_power_cap",)),
            "GPU:0 lowers its clocks (sw_power_cap); the others wait for it.",
            "",
        ),
    ],
)
def test_a_card_that_is_held_up_is_the_reason(card: Watched, sentence: str, code: str) -> None:
    parts = [train(1.0, "GPU:0"), train(1.0, "GPU:1"), train(1.5, *TWO), train(1.4, *TWO, part="compute")]
    done = result(on(*TWO), *parts, watched=(card,))
    assert done.scaling[0].why[0] == sentence
    assert (code in codes(done)) == bool(code)
    assert ("TFD828" in codes(done)) == bool(code)


def test_parts_of_a_processor_are_the_reason() -> None:
    parts = ("CPU:0", "CPU:1")
    done = result(
        on(*parts), train(1.0, "CPU:0"), train(2.0, "CPU:1"), train(1.2, *parts, strategy="mirrored")
    )
    (one,) = done.scaling
    assert one.why == (
        "CPU:0 and CPU:1 are parts of the same processor: together they have no more cores than one.",
    )


def test_nothing_is_guessed_where_the_parts_are_not_known() -> None:
    why = list_reasons(train(1.0, "GPU:0"), train(1.0, "GPU:1"), train(2.0, *TWO, strategy="mirrored"))
    assert why == ("What was measured does not say why; the averaging of gradients was not timed apart.",)


@pytest.mark.parametrize(("others", "said"), [(0.02, False), (0.5, True), (1, True), (None, False)])
def test_what_others_did_meanwhile_is_said(others: float | None, said: bool) -> None:
    done = result(on("CPU:0"), piece(1.0, others=others))
    assert (codes(done) == ["TFD828"]) == said
    assert bool(done.disturbed) == said


def test_a_card_far_below_its_peak() -> None:
    parts = [piece(1.0, "GPU:0", size=4096, flop=2.0 * 4096**3)]
    peak = 2 * 4096**3 / 1e9 * 10
    card = Watched("GPU:0", power_limit=60.0, power_default=300.0)
    done = result(on("GPU:0"), *parts, watched=(card,), peaks={"GPU:0": peak})
    (finding,) = done.findings
    assert finding.title == "GPU:0 gives 10 % of its peak in float32"
    assert "Its power limit is 60 W, by default 300 W." in finding.explanation
    assert not result(on("GPU:0"), *parts, peaks={"GPU:0": peak / 5}).findings
    small = [piece(1.0, "GPU:0", size=256, flop=2.0 * 256**3)]
    assert not result(on("GPU:0"), *small, peaks={"GPU:0": peak}).findings  # a small product reaches no peak


def test_nothing_timed_is_an_error() -> None:
    done = result({"stage": "import", "status": "failed", "detail": "ImportError: no numpy"})
    (finding,) = done.findings
    assert (finding.code, finding.explanation) == ("TFD827", "ImportError: no numpy")
    assert done.summary == "Nothing could be timed."


def test_a_software_gpu_is_no_card() -> None:
    """Its times are kept and named; no crossover, no peak, no finding and no sentence passes for a card's."""
    parts = [train(1.0, "CPU:0"), train(0.1, "GPU:0"), train(0.1, "GPU:1"), train(0.5, *TWO)]
    parts += [piece(1.0, "CPU:0"), piece(1e-3, "GPU:0", size=4096, flop=2.0 * 4096**3)]
    args = {"peaks": {"GPU:0": 1e6}, "software": True}
    done = result(on("CPU:0", *TWO), *parts, **args)
    assert [one.software for one in done.devices] == [False, True, True]
    assert {one.devices[0] for one in done.runs if one.software} == {"GPU:0", "GPU:1"}
    assert not any(one.software for one in done.runs if one.devices == ("CPU:0",))
    assert (done.crossover, done.findings) == ((), ())
    assert all(one.peak_gflops is None for one in done.devices)
    assert done.summary.startswith("GPU:0 and GPU:1 are no card: ")
    assert "times" not in done.summary
    (scaling,) = done.scaling
    assert scaling.why[0] == "GPU:0 and GPU:1 are software: they share this machine's processor."
    for picture in (render_bench(done, verbose=True), bench_svg(done)):
        titles = re.findall(r"([a-z]+:)? ?(?:train cnn|matmul)(?:, towers,)? on GPU", picture)
        assert len(titles) >= 4
        assert set(titles) == {"software:"}
    validate(bench_json(done), "bench")


def test_a_card_is_not_compared_with_a_software_gpu() -> None:
    parts = [piece(1.0, "GPU:0", size=size) for size in (64, 128, 256, 512)]
    soft, card = (result(on("GPU:0"), *parts, software=software) for software in (True, False))
    old = earlier(json.dumps(bench_json(soft)).encode(), "old.json")
    assert compare_runs(soft, old, "old.json").verdict == "same"
    assert compare_runs(card, old, "old.json").verdict == "incomparable"
