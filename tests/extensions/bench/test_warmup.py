"""Causes of slow first calls, disturbed pieces, and PNG pictures."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from cli.planner import validate
from extensions.bench.made import make_bench, make_devices_line, make_run_line, make_training_line
from tfdoctor.core.errors import Error
from tfdoctor.extensions.bench.compare import compare_runs
from tfdoctor.extensions.bench.reader import parse_earlier_run
from tfdoctor.extensions.bench.render import make_bench_json, render_bench
from tfdoctor.extensions.bench.svg import make_bench_svg
from tfdoctor.extensions.bench.warmup import describe_first_calls
from tfdoctor.render import png
from tfdoctor.render.png import make_png_converter

if TYPE_CHECKING:
    from collections.abc import Mapping

JIT = (
    "gpu_device.cc:1938] TensorFlow was not built with CUDA kernel binaries compatible with compute capability 12.0. "
    "CUDA kernels will be jit-compiled from PTX, which could take 30 minutes or longer.\n"
)


def make_gpu_devices_line(log: str = "", **more: Any) -> dict[str, Any]:
    """Return the line that lists the CPU, a GPU of compute capability 12.0 and one of 8.6."""
    line = make_devices_line("CPU:0", "GPU:0", "GPU:1")
    for device, capability in zip(line["devices"][1:], ("12.0", "8.6"), strict=True):
        device["compute_capability"] = capability
    return {**line, "log": log, **more}


@pytest.mark.parametrize(
    ("device", "facts", "log", "what"),
    [
        ("CPU:0", {}, "", ("graph",)),
        ("CPU:0", {"xla": True}, "", ("xla",)),
        ("CPU:0", {"heard": "device_compiler.h:196] Compiled cluster using XLA!"}, "", ("xla",)),
        ("GPU:0", {}, "", ("graph",)),
        ("GPU:0", {}, JIT, ("ptx-jit",)),
        ("GPU:1", {}, JIT, ("graph",)),  # this GPU has machine code
        ("CPU:0", {}, JIT, ("graph",)),
        ("GPU:0", {"workload": "conv"}, "", ("cudnn-autotune",)),
        ("GPU:0", {"workload": "conv"}, JIT, ("ptx-jit", "cudnn-autotune")),
        ("GPU:0", {"workload": "train", "model": "transformer"}, "", ("graph",)),
        ("GPU:0", {"heard": "Invoking ptxas with version 12.5.82"}, "", ("ptxas",)),
    ],
)
def test_cause_of_a_slow_first_call(
    device: str, facts: Mapping[str, Any], log: str, what: tuple[str, ...]
) -> None:
    bench = make_bench(make_gpu_devices_line(log), make_run_line(0.01, device, **facts))
    (run,) = bench.measurements
    assert run.first_call_steps == what
    assert run.first_call_overhead == pytest.approx(0.09)
    document = make_bench_json(bench)
    validate(document, "bench")
    assert document["runs"][0]["compile"]["what"] == list(what)
    assert parse_earlier_run(json.dumps(document).encode(), "x").measurements == bench.measurements


def test_cudnn_without_autotune() -> None:
    (run,) = make_bench(
        make_gpu_devices_line(autotune=False), make_run_line(0.01, "GPU:0", workload="conv")
    ).measurements
    assert run.first_call_steps == ("graph",)


def test_first_calls_are_summed_by_cause() -> None:
    parts = [make_run_line(0.01, "GPU:0", size=n, first=4.01) for n in (64, 128)]
    parts += [
        make_run_line(0.01, "CPU:0", size=64, first=0.51),
        make_run_line(0.01, "CPU:0", size=64, first=1.01, xla=True),
    ]
    bench = make_bench(make_gpu_devices_line(JIT), *parts)
    description = describe_first_calls(bench.measurements)
    assert description == (
        "Not included above: 9.5 s of one-time work in the first calls: the driver compiling PTX (JIT), or finding it in its "
        "cache 8 s; XLA compiling 1 s; graphs being optimized, kernels and libraries being loaded 500 ms."
    )
    assert "9.5 s of one-time work in the first calls" in " ".join(render_bench(bench).split())
    assert (
        describe_first_calls(
            make_bench(make_devices_line("CPU:0"), make_run_line(1.0, first=None)).measurements
        )
        == ""
    )


def test_xla_has_its_own_curve() -> None:
    parts = [make_run_line(1.0, name, size=n) for n in (64, 128) for name in ("CPU:0", "GPU:0")]
    parts += [make_run_line(1e-3, name, size=n, xla=True) for n in (64, 128) for name in ("CPU:0", "GPU:0")]
    bench = make_bench(make_gpu_devices_line(), *parts)
    assert [crossover.min_faster_size for crossover in bench.crossovers] == [None]
    assert "matmul XLA on GPU:0" in render_bench(bench)


def make_pieces_run(disturbed: int, factor: float = 1.0, others: float = 0.5) -> Any:
    """Return a run of 20 pieces whose first `disturbed` pieces took three times as long."""
    parts = [
        make_run_line(
            0.01 * n * (3.0 if n <= disturbed else factor), size=n, others=others if n <= disturbed else 0.01
        )
        for n in range(1, 21)
    ]
    return make_bench(make_devices_line("CPU:0"), *parts)


def test_few_disturbed_pieces_are_left_out() -> None:
    """Two of 20 pieces took three times as long; they are left out and the others are compared."""
    bench = make_pieces_run(2)
    assert (
        bench.disturbance.disturbed_count,
        bench.disturbance.assessed_count,
        bench.disturbance.is_serious,
    ) == (2, 20, False)
    assert bench.findings == ()
    assert "A little disturbed: other programs used up to 50 %" in render_bench(bench)
    assert [run["disturbed"] for run in make_bench_json(bench)["runs"]].count(True) == 2
    old = parse_earlier_run(json.dumps(make_bench_json(bench)).encode(), "old.json")
    for factor, verdict in ((1.0, "same"), (1.2, "slower"), (0.8, "faster")):
        now = make_pieces_run(0, factor)
        comparison = compare_runs(now, old, "old.json")
        assert comparison.verdict == verdict
        assert len(comparison.changes) == 18
        assert comparison.reason.endswith("2 that were disturbed are left out")


@pytest.mark.parametrize(("pieces", "others"), [(6, 0.5), (20, 0.2), (6, 1.0)])
def test_many_disturbed_pieces_disturb_the_run(pieces: int, others: float) -> None:
    bench = make_pieces_run(pieces, others=others)
    assert bench.disturbance.is_serious
    assert [finding.code for finding in bench.findings] == ["TFD828"]
    old = parse_earlier_run(json.dumps(make_bench_json(bench)).encode(), "old.json")
    now = make_pieces_run(0)
    assert compare_runs(now, old, "old.json").verdict == "disturbed"


def test_earlier_file_without_disturbance_count() -> None:
    """The first file format has no count, so any disturbance counts as a disturbed run."""
    document = make_bench_json(make_pieces_run(2))
    del document["disturbance"]
    now = make_pieces_run(0)
    assert (
        compare_runs(now, parse_earlier_run(json.dumps(document).encode(), "x"), "x").verdict == "disturbed"
    )


def test_png_picture_in_both_styles() -> None:
    pytest.importorskip("resvg_py")
    parts = [make_training_line(0.1 * n, "CPU:0", size=n) for n in (8, 32, 128)]
    bench = make_bench(make_devices_line("CPU:0"), *parts)
    try:
        paint = make_png_converter()
    except Exception as error:
        pytest.skip(str(error))
    pictures = [paint(make_bench_svg(bench, style)) for style in ("light", "dark")]
    assert all(picture.startswith(b"\x89PNG\r\n\x1a\n") and len(picture) > 10_000 for picture in pictures)
    assert pictures[0] != pictures[1]
    without_text = make_bench_svg(bench, "light").replace("<text", "<desc").replace("</text", "</desc")
    assert len(paint(without_text)) < len(pictures[0])  # the text is drawn


def test_png_needs_a_font(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("resvg_py")
    monkeypatch.setattr(png, "FONTS", ("No Such Font",))
    with pytest.raises(Error, match="PNG needs a font"):
        make_png_converter()
