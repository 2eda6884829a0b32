"""What first calls took more than the others has a name; what others disturbed is judged piece by piece."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from bench.made import on, piece, result, train
from cli.planner import validate
from tfdoctor.bench import compare_runs, describe_first_calls, earlier
from tfdoctor.errors import Error
from tfdoctor.render import png
from tfdoctor.render.bench import bench_json, render_bench
from tfdoctor.render.bench_svg import bench_svg
from tfdoctor.render.png import painter

if TYPE_CHECKING:
    from collections.abc import Mapping

JIT = (
    "gpu_device.cc:1938] TensorFlow was not built with CUDA kernel binaries compatible with compute capability 12.0. "
    "CUDA kernels will be jit-compiled from PTX, which could take 30 minutes or longer.\n"
)


def devices(log: str = "", **more: Any) -> dict[str, Any]:
    """A processor, a card of 12.0 and one of 8.6."""
    told = on("CPU:0", "GPU:0", "GPU:1")
    for device, capability in zip(told["devices"][1:], ("12.0", "8.6"), strict=True):
        device["compute_capability"] = capability
    return {**told, "log": log, **more}


@pytest.mark.parametrize(
    ("device", "facts", "log", "what"),
    [
        ("CPU:0", {}, "", ("graph",)),
        ("CPU:0", {"xla": True}, "", ("xla",)),
        ("CPU:0", {"heard": "device_compiler.h:196] Compiled cluster using XLA!"}, "", ("xla",)),
        ("GPU:0", {}, "", ("graph",)),
        ("GPU:0", {}, JIT, ("ptx-jit",)),
        ("GPU:1", {}, JIT, ("graph",)),  # it has machine code
        ("CPU:0", {}, JIT, ("graph",)),
        ("GPU:0", {"workload": "conv"}, "", ("cudnn-autotune",)),
        ("GPU:0", {"workload": "conv"}, JIT, ("ptx-jit", "cudnn-autotune")),
        ("GPU:0", {"workload": "train", "model": "transformer"}, "", ("graph",)),
        ("GPU:0", {"heard": "Invoking ptxas with version 12.5.82"}, "", ("ptxas",)),
    ],
)
def test_what_a_first_call_did_is_named(
    device: str, facts: Mapping[str, Any], log: str, what: tuple[str, ...]
) -> None:
    done = result(devices(log), piece(0.01, device, **facts))
    (one,) = done.runs
    assert one.compiled == what
    assert one.compiling == pytest.approx(0.09)
    told = bench_json(done)
    validate(told, "bench")
    assert told["runs"][0]["compile"]["what"] == list(what)
    assert earlier(json.dumps(told).encode(), "x").runs == done.runs


def test_cudnn_tries_nothing_where_it_is_told_not_to() -> None:
    (one,) = result(devices(autotune=False), piece(0.01, "GPU:0", workload="conv")).runs
    assert one.compiled == ("graph",)


def test_first_calls_are_summed_by_what_they_did() -> None:
    parts = [piece(0.01, "GPU:0", size=n, first=4.01) for n in (64, 128)]
    parts += [piece(0.01, "CPU:0", size=64, first=0.51), piece(0.01, "CPU:0", size=64, first=1.01, xla=True)]
    done = result(devices(JIT), *parts)
    said = describe_first_calls(done.runs)
    assert said == (
        "First calls took 9.5 s more, apart from the times: the driver compiling PTX (JIT), or finding it in its cache "
        "8 s; XLA compiling 1 s; graphs being optimized, kernels and libraries being loaded 500 ms."
    )
    assert "First calls took 9.5 s more" in render_bench(done)
    assert describe_first_calls(result(on("CPU:0"), piece(1.0, first=None)).runs) == ""


def test_what_xla_compiles_is_a_curve_of_its_own() -> None:
    parts = [piece(1.0, name, size=n) for n in (64, 128) for name in ("CPU:0", "GPU:0")]
    parts += [piece(1e-3, name, size=n, xla=True) for n in (64, 128) for name in ("CPU:0", "GPU:0")]
    done = result(devices(), *parts)
    assert [one.size for one in done.crossover] == [None]
    assert "matmul XLA on GPU:0" in render_bench(done)


def make_pieces_run(disturbed: int, factor: float = 1.0, others: float = 0.5) -> Any:
    parts = [
        piece(
            0.01 * n * (3.0 if n <= disturbed else factor), size=n, others=others if n <= disturbed else 0.01
        )
        for n in range(1, 21)
    ]
    return result(on("CPU:0"), *parts)


def test_a_few_disturbed_pieces_do_not_spoil_a_run() -> None:
    """Of 20 pieces two took three times as long: they are left out, and the rest is compared."""
    done = make_pieces_run(2)
    assert (done.disturbance.pieces, done.disturbance.of, done.disturbance.much) == (2, 20, False)
    assert done.findings == ()
    assert "A little disturbed: other programs used up to 50 %" in render_bench(done)
    assert [one["disturbed"] for one in bench_json(done)["runs"]].count(True) == 2
    old = earlier(json.dumps(bench_json(done)).encode(), "old.json")
    for factor, verdict in ((1.0, "same"), (1.2, "slower"), (0.8, "faster")):
        now = make_pieces_run(0, factor)
        known = compare_runs(now, old, "old.json")
        assert known.verdict == verdict
        assert len(known.changes) == 18
        assert known.why.endswith("2 that were disturbed are left out")


@pytest.mark.parametrize(("pieces", "others"), [(6, 0.5), (20, 0.2), (6, 1.0)])
def test_many_do(pieces: int, others: float) -> None:
    done = make_pieces_run(pieces, others=others)
    assert done.disturbance.much
    assert [finding.code for finding in done.findings] == ["TFD828"]
    old = earlier(json.dumps(bench_json(done)).encode(), "old.json")
    now = make_pieces_run(0)
    assert compare_runs(now, old, "old.json").verdict == "disturbed"


def test_an_earlier_file_without_the_count_is_believed() -> None:
    """As the first version wrote it: any disturbance is one."""
    told = bench_json(make_pieces_run(2))
    del told["disturbance"]
    now = make_pieces_run(0)
    assert compare_runs(now, earlier(json.dumps(told).encode(), "x"), "x").verdict == "disturbed"


def test_the_picture_is_png_in_both_styles() -> None:
    pytest.importorskip("resvg_py")
    parts = [train(0.1 * n, "CPU:0", size=n) for n in (8, 32, 128)]
    done = result(on("CPU:0"), *parts)
    try:
        paint = painter()
    except Exception as error:
        pytest.skip(str(error))
    pictures = [paint(bench_svg(done, style)) for style in ("light", "dark")]
    assert all(one.startswith(b"\x89PNG\r\n\x1a\n") and len(one) > 10_000 for one in pictures)
    assert pictures[0] != pictures[1]
    without = bench_svg(done, "light").replace("<text", "<desc").replace("</text", "</desc")
    assert len(paint(without)) < len(pictures[0])  # its words are there


def test_a_system_without_fonts_draws_no_wordless_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("resvg_py")
    monkeypatch.setattr(png, "FONTS", ("No Such Font",))
    with pytest.raises(Error, match="PNG needs a font"):
        painter()
