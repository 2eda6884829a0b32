"""Placement logs in the format of each era: where operations ran, which were refused, and why."""

from __future__ import annotations

import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfdoctor.logs.placement import (
    Placement,
    analysis,
    evaluate_placement,
    read_placement,
    rejections,
    version_messages,
)
from tfdoctor.logs.placement.models import OTHER_OPERATIONS
from tfdoctor.logs.placement.reader import MAX_OPERATION_PAIRS, MAX_SEEN_LINES, PlacementReader
from tfdoctor.logs.placement.rejections import shorten_device
from tfdoctor.logs.placement.version_messages import FirstMessages
from tfdoctor.render.placement import make_placement_json, make_placement_svg, render_placement

JOB = "/job:localhost/replica:0/task:0"
CORPUS = Path(__file__).parents[4] / "shared" / "corpus" / "placement"


def read(text: str | bytes, size: int = 1 << 16) -> Placement:
    data = text.encode() if isinstance(text, str) else text
    return evaluate_placement(
        read_placement(data[start : start + size] for start in range(0, len(data), size))
    )


def count_ops(placement: Placement) -> dict[tuple[str, str], int]:
    return {(item.op, item.device): item.count for item in placement.data.op_counts}


@pytest.mark.parametrize(
    ("spelled", "device"),
    [
        ("/gpu:0", "GPU:0"),
        ("/device:GPU:1", "GPU:1"),
        (f"{JOB}/gpu:2", "GPU:2"),
        (f"{JOB}/device:XLA_GPU:0", "XLA_GPU:0"),
        (f"{JOB}/GPU:0", "GPU:0"),
        ("/job:worker/replica:0/task:1/device:GPU:0", "/job:worker/replica:0/task:1/device:GPU:0"),
        ("/job:worker/task:1/device:GPU:0", "/job:worker/replica:0/task:1/device:GPU:0"),
        ("GPU:0", ""),
        ("/gpu0", ""),
        ("", ""),
    ],
)
def test_device_names_are_shortened(spelled: str, device: str) -> None:
    assert shorten_device(spelled) == device


@pytest.mark.parametrize(
    "lines",
    [
        [f"MatMul: (MatMul): {JOB}/device:GPU:0"],
        [f"MatMul: (MatMul){JOB}/gpu:0"],
        [f"2019-11-04 10:07:54.1: I x/common_runtime/placer.cc:54] MatMul: (MatMul): {JOB}/device:GPU:0"],
        [f"MatMul: (MatMul): {JOB}/device:GPU:0\r"],
        [f"\x1b[36mtrainer_1  |\x1b[0m MatMul: (MatMul): {JOB}/device:GPU:0\x1b[0m"],
        [f'{{"log":"MatMul: (MatMul): {JOB}/device:GPU:0\\n","stream":"stdout"}}'],
        [f"[1,0]<stderr>:MatMul: (MatMul): {JOB}/device:GPU:0"],
        [f"MatMul: (MatMul): {JOB}/device:GPU:02019-11-04 10:07:54.1: I tensorflow/x.cc:1] a"],
        [f"MatMul: (MatMul): {JOB}/device:GPU:0", f"I x/placer.cc:874] MatMul: (MatMul){JOB}/device:GPU:0"],
        [f"I x/simple_placer.cc:818] MatMul_3: {JOB}/gpu:0", f"MatMul_3: {JOB}/gpu:0"],
    ],
)
def test_node_is_counted_once_in_any_form(lines: list[str]) -> None:
    for ending in ("\n", ""):
        placement = read("\n".join(lines) + ending)
        assert count_ops(placement) == {("MatMul", "GPU:0"): 1}
        assert placement.data.api == "1"


@pytest.mark.parametrize(
    "line",
    [
        f"MatMul: (MatMul): {JOB}/device:GPU:",
        f"MatMul: (MatMul): {JOB}/dev",
        f"assigned to {JOB}/device:GPU:0",
        f"devices are [ {JOB}/device:CPU:0, {JOB}/device:GPU:0 ]",
        f"a b: (not a type): {JOB}/device:GPU:0",
        "MatMul: (MatMul): GPU:0",
    ],
)
def test_truncated_or_unrelated_line_is_ignored(line: str) -> None:
    assert not count_ops(read(line + "\n"))


def format_eager(op: str, device: str) -> str:
    head = "2020-08-29 00:15:42.1: I tensorflow/core/common_runtime/eager/execute.cc:574]"
    return f"{head} Executing op {op} in device {JOB}/device:{device}\n"


def format_first_run(op: str, device: str) -> str:
    """Return what TensorFlow 2.5 and newer print of the graph of an operation that runs for the first time."""
    nodes = [("input", "_Arg"), (op, op), ("output_RetVal", "_Retval")]
    return "".join(
        f"{prefix}{node}: ({op_type}): {JOB}/device:{device}\n"
        for node, op_type in nodes
        for prefix in ("", "2026-11-22 03:56:11.8: I tensorflow/core/common_runtime/placer.cc:162] ")
    )


def test_eager_executions_count_and_their_graphs_do_not() -> None:
    text = "".join(
        (format_first_run("Exp", "GPU:0") if number == 0 else "") + format_eager("Exp", "GPU:0")
        for number in range(3)
    )
    placement = read(text + format_first_run("Sum", "CPU:0") + format_eager("Sum", "CPU:0"))
    assert count_ops(placement) == {("Exp", "GPU:0"): 3, ("Sum", "CPU:0"): 1}
    assert placement.data.api == "2"


def test_function_graph_counts_and_its_calls_do_not() -> None:
    body = "".join(
        f"{node}: ({op_type}): {JOB}/device:GPU:0\n"
        for node, op_type in (
            ("x", "_Arg"),
            ("MatMul", "MatMul"),
            ("Relu", "Relu"),
            ("identity_RetVal", "_Retval"),
        )
    )
    placement = read(
        body
        + format_eager("__inference_step_12", "GPU:0") * 3
        + format_eager("__inference_<lambda>_5", "CPU:0")
    )
    assert count_ops(placement) == {("MatMul", "GPU:0"): 1, ("Relu", "GPU:0"): 1}
    assert [(call.op, call.device, call.count) for call in placement.data.call_counts] == [
        ("__inference_<lambda>_5", "CPU:0", 1),
        ("__inference_step_12", "GPU:0", 3),
    ]
    assert placement.data.api == "2"
    assert "4 function calls" in render_placement(placement)


def test_log_of_function_calls_alone() -> None:
    placement = read(
        format_created_device(0) + format_created_device(1) + format_eager("__inference_step_12", "GPU:0") * 2
    )
    assert placement.summary == "2 calls of functions ran on GPU:0; what they did is not printed."
    assert placement.data.unused_devices == ("GPU:1",)
    assert not placement.data.count_by_device


def format_created_device(number: int, details: str = ", compute capability: 7.5") -> str:
    return (
        f"2022-09-29 10:00:00.1: I tensorflow/core/common_runtime/gpu/gpu_device.cc:1616] Created device "
        f"{JOB}/device:GPU:{number} with 6100 MB memory:  -> device: {number}, name: NVIDIA T4, "
        f"pci bus id: 0000:0{number}:00.0{details}\n"
    )


def test_device_is_listed_once_with_all_its_values() -> None:
    text = (
        "I x/gpu_device.cc:977] Creating TensorFlow device (/gpu:0) -> "
        "(device: 0, name: Tesla P40, pci bus id: 0000:02:00.0)\n"
        f"Device mapping:\n{JOB}/gpu:0 -> device: 0, name: Tesla P40, pci bus id: 0000:02:00.0, "
        "compute capability: 6.1\n"
        f"{JOB}/device:XLA_CPU:0 -> device: XLA_CPU device\n"
    )
    devices = {device.device: device for device in read(text).data.devices}
    assert set(devices) == {"GPU:0", "XLA_CPU:0"}
    assert (devices["GPU:0"].name, devices["GPU:0"].compute_capability) == ("Tesla P40", "6.1")
    assert read(text).data.unused_devices == ("GPU:0",)


def test_idle_gpu_beside_a_refusal_is_no_finding() -> None:
    """A log of TensorFlow 2.20 with two software GPUs: the second might have been used later."""
    card = "name: Stand-in GPU, pci bus id: 0000:0{}:00.0, compute capability: 9.0\n"
    mapping = "".join(f"{JOB}/device:GPU:{n} -> device: {n}, {card.format(n + 1)}" for n in (0, 1))
    node = "PlaceholderWithDefault"
    refusal = (
        "Cannot assign a device for operation AsString: Could not satisfy explicit device specification "
        "'/device:GPU:0' because no supported kernel for GPU devices is available.\n"
        "AsString: CPU \n\nOp: AsString\nRegistered kernels:\n  device='CPU'\n"
    )
    placement = read(f"Device mapping:\n{mapping}\n{node}: ({node}): {JOB}/device:GPU:0\n{refusal}")
    assert placement.data.unused_devices == ("GPU:1",)
    assert [finding.code for finding in placement.findings] == ["TFD807"]
    assert placement.summary == "1 operation refused. The only operation was placed on GPU:0."


def test_summary_of_a_single_operation() -> None:
    line = f"MatMul: (MatMul): {JOB}/device:GPU:0\n"
    assert read(line).summary == "The only operation was placed on GPU:0."
    summary = read(line + f"x: (Const): {JOB}/device:CPU:0\n").summary
    assert summary == (
        "1 of 2 operations were placed on GPU:0, 1 elsewhere. On a GPU are 1 of 1 matrix products and convolutions."
    )
    assert read(format_eager("Add", "CPU:0")).summary == "The only operation ran on CPU:0; no GPU got any."


@pytest.mark.parametrize(
    ("devices", "api", "refusals", "title"),
    [
        (("GPU:1",), "2", (), "GPU:1 is there and got nothing"),
        (("GPU:1", "GPU:2"), "2", (), "GPU:1 and GPU:2 are there and got nothing"),
        (("GPU:1",), "2", ("refusal",), None),
        (("GPU:1",), None, (), None),
        ((), "2", (), None),
    ],
)
def test_unused_devices_are_a_finding(
    devices: tuple[str, ...], api: str | None, refusals: tuple[str, ...], title: str | None
) -> None:
    data: Any = SimpleNamespace(unused_devices=devices, api=api, refusals=refusals)
    findings = analysis._make_unused_device_finding(data)
    assert [finding.title for finding in findings] == ([] if title is None else [title])


@pytest.mark.parametrize(
    "created",
    [
        f"gpu_device.cc:1115] Created TensorFlow device ({JOB}/device:GPU:{{n}} with 7350 MB memory) -> physical GPU (",
        f"gpu_device.cc:2020] Created device {JOB}/device:GPU:{{n}} with 6100 MB memory:  -> ",
    ],
)
def test_created_but_unused_device_is_listed(created: str) -> None:
    """TensorFlow 2.5 and newer use other words for it."""
    card = "device: {n}, name: NVIDIA T4, pci bus id: 0000:0{n}:00.0, compute capability: 7.5\n"
    lines = "".join((created + card).format(n=number) for number in (0, 1))
    log_placement = read(lines + format_eager("MatMul", "GPU:0")).data
    assert [(device.device, device.name, device.compute_capability) for device in log_placement.devices] == [
        ("GPU:0", "NVIDIA T4", "7.5"),
        ("GPU:1", "NVIDIA T4", "7.5"),
    ]
    assert log_placement.unused_devices == ("GPU:1",)


def test_empty_device_mapping_is_a_finding() -> None:
    placement = read(f"Device mapping: no known devices.\na: (Const): {JOB}/cpu:0\n")
    assert placement.data.devices == ()
    assert placement.data.api == "1"
    assert [finding.title for finding in placement.findings] == ["TensorFlow knew no GPU"]


def test_xla_device_is_no_gpu() -> None:
    placement = read(f"Device mapping:\n{JOB}/device:XLA_GPU:0 -> device: XLA_GPU device\n")
    assert [finding.cause.value for finding in placement.findings] == ["xla-gpu-only"]


KERNELS = "Registered kernels:\n  device='XLA_CPU'; T in [DT_HALF]\n  device='CPU'; T in [DT_FLOAT]\n"


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        (
            (
                "Cannot assign a device for operation total: {{node total}} was "
                "explicitly assigned to /device:GPU:1 but "
                f"available devices are [ {JOB}/device:CPU:0 ]. Make sure it refers to a valid one.\n"
            ),
            (None, "total", "GPU:1", "no-such-device"),
        ),
        (
            (
                "Cannot assign a device to node 'a/Where': Could not satisfy explicit device specification "
                "'/device:GPU:0' because no devices matching that specification are registered in this process\n"
                '\t [[Node: a/Where = Where[_device="/device:GPU:0"](x)]]\n'
            ),
            ("Where", "a/Where", "GPU:0", "no-such-device"),
        ),
        (
            (
                "Cannot assign a device for operation c: Could not satisfy explicit "
                "device specification '/device:CPU:0' "
                f"because no supported kernel for CPU devices is available.\n  c (Conv2D) /device:CPU:0\n\n{KERNELS}"
            ),
            ("Conv2D", "c", "CPU:0", "no-kernel-for-type"),
        ),
        (
            (
                "Cannot assign a device for operation c: Could not satisfy explicit "
                "device specification '/device:GPU:0' "
                f"because no supported kernel for GPU devices is available.\n\nOp: StringLength\n{KERNELS}"
            ),
            ("StringLength", "c", "GPU:0", "no-kernel"),
        ),
        (
            (
                "Cannot assign a device to node 'n': Could not satisfy explicit device "
                "specification '' because the node was "
                f"colocated with a group of nodes that required incompatible device '{JOB}/GPU:0'\n"
            ),
            (None, "n", None, "colocation"),
        ),
        (
            (
                f"InvalidArgumentError: Could not satisfy device specification "
                f"'{JOB}/device:GPU:2'. enable_soft_placement=0"
                f". Supported device types [CPU]. All available devices [{JOB}/device:CPU:0]. [Op:MatMul]\n"
            ),
            ("MatMul", None, "GPU:2", "no-such-device"),
        ),
        (
            (
                f"InvalidArgumentError: Could not satisfy device specification "
                f"'{JOB}/device:GPU:0'. enable_soft_placement=0"
                f". Supported device types [CPU]. All available devices "
                f"[{JOB}/device:CPU:0, {JOB}/device:GPU:0]. [Op:Where]\n"
            ),
            ("Where", None, "GPU:0", "no-kernel"),
        ),
        (
            (
                "NotFoundError: Could not find device for node: {{node MatMul}} = MatMul[T=DT_STRING]\n"
                "All kernels registered for op MatMul:\n  device='CPU'; T in [DT_FLOAT]\n"
            ),
            ("MatMul", "MatMul", None, "no-kernel-for-type"),
        ),
        (
            "RuntimeError: Error copying tensor to device: /device:GPU:1. /device:GPU:1 unknown device.\n",
            (None, None, "GPU:1", "no-such-device"),
        ),
        (
            f"InvalidArgumentError: {JOB}/device:GPU:3 unknown device. [Op:MatMul]\n",
            ("MatMul", None, "GPU:3", "no-such-device"),
        ),
        (
            (
                "No OpKernel was registered to support Op 'CudnnRNN' used by {{node r/CudnnRNN}}with these attrs: [T=DT_FLOAT]\n"
                "Registered devices: [CPU]\nRegistered kernels:\n  <no registered kernels>\n"
            ),
            ("CudnnRNN", "r/CudnnRNN", None, "no-kernel"),
        ),
        (  # wrapped by a terminal
            (
                "Cannot assign a device for operation tower_1/conv/w: node tower_1/conv/w was expl\n"
                "icitly assigned to /device:GPU:1 but available devices are [ /job:localhost/repl\n"
                "ica:0/task:0/device:CPU:0 ]. Make sure the device specification refers to a vali\nd device.\n"
            ),
            (None, "tower_1/conv/w", "GPU:1", "no-such-device"),
        ),
    ],
)
def test_refusal_is_parsed(text: str, refused: tuple[str | None, ...]) -> None:
    for size in (1 << 16, 64):  # in one chunk, and in small ones
        for log in (text, f"{text}\n{text}"):
            refusals = read(log, size).data.refusals
            assert [
                (refusal.op, refusal.node_name, refusal.requested_device, refusal.reason)
                for refusal in refusals
            ] == [refused]
            assert refusals[0].line == 1
    finding = read(text).findings[0]
    assert finding.code == "TFD807"
    suggests_check = any("tfdoctor check" in remedy.commands for remedy in finding.remedies)
    assert suggests_check is (refused[-1] == "no-such-device")


def test_cpu_operations_between_gpu_operations_are_counted() -> None:
    step = (
        format_eager("MatMul", "GPU:0")
        + format_eager("StringLength", "CPU:0")
        + format_eager("Relu", "GPU:0")
    )
    placement = read(step * 20 + format_eager("Print", "CPU:0") * 5)
    assert placement.data.cpu_ops_between_gpu_ops == (("StringLength", 20),)
    assert any("StringLength (20 times)" in finding.title for finding in placement.findings)


def test_log_without_placement_is_reported() -> None:
    placement = read("step 1 loss 2.0\n")
    assert placement.data.api is None
    assert placement.findings[0].code == "TFD825"
    assert "set_log_device_placement" in render_placement(placement)


def test_duplicates_are_found_among_many_nodes() -> None:
    lines = []
    for number in range(MAX_SEEN_LINES + 50_000):
        node = f"n/MatMul_{number}: (MatMul): {JOB}/device:GPU:0\n"
        lines += [node, f"I x/placer.cc:54] {node}"]
    log_placement = read("".join(lines)).data
    assert log_placement.count_by_device == {"GPU:0": MAX_SEEN_LINES + 50_000}
    assert log_placement.has_forgotten_nodes


def test_hostile_text_is_escaped() -> None:
    placement = read(
        f"<script>: (<b>): {JOB}/device:GPU:0\nx>y: (A>b): {JOB}/device:GPU:0\n"
        f"Device mapping:\n{JOB}/device:GPU:0 -> device: 0, name: \x1b[31m<b>&x, pci bus id: 0000:02:00.0\n"
    )
    assert "\x1b" not in render_placement(placement)
    assert "<b>" not in make_placement_svg(placement)


def test_random_bytes_are_handled() -> None:
    rng = random.Random(7)
    pieces = [
        b"Cannot assign a device for operation ", b"/job:localhost/replica:0/task:0/device:GPU:0", b": (", b")", b"\n",
        b" -> ", b"Executing op ", b" in device ", b"Device mapping:", b"'", b"{{node x}}",
        b"\xff\xfe", b"\0", b"x" * 3000,
        b"Could not satisfy device specification '", b"'. enable_soft_placement", b"] ", b" unknown device",
    ]  # fmt: skip
    for _ in range(300):
        data = b"".join(rng.choice(pieces) for _ in range(60))
        placement = read(data, rng.choice((7, 100, 1 << 16)))
        json.dumps(make_placement_json(placement))
        render_placement(placement, verbose=True, width=rng.choice((20, 80)))
        make_placement_svg(placement)


@pytest.mark.parametrize(
    "case", sorted(CORPUS.iterdir()) if CORPUS.is_dir() else [], ids=lambda path: path.name
)
def test_corpus_has_the_expected_placement(case: Path) -> None:
    result = make_placement_json(read((case / "log.txt").read_bytes()))
    for key, expected in json.loads((case / "truth.json").read_text(encoding="utf-8")).items():
        actual = result[key]
        if isinstance(expected, list) and expected and isinstance(expected[0], dict):
            actual = [{name: item[name] for name in expected[0]} for item in actual]
            assert sorted(map(json.dumps, actual)) == sorted(map(json.dumps, expected)), key
        else:
            assert actual == expected, key


def test_memory_for_operation_names_is_bounded() -> None:
    reader = PlacementReader()
    line = "Executing op Own%d in device /job:localhost/replica:0/task:0/device:GPU:0\n"
    for start in range(0, 60_000, 1000):
        reader.count_block("".join(line % number for number in range(start, start + 1000)).encode())
    assert len(reader.executed_counts) == MAX_OPERATION_PAIRS + 1
    log_placement = reader.finish()
    assert log_placement.line_count == 60_000
    assert (log_placement.other_op_count, log_placement.omitted_counts) == (40_000, ())


def test_operations_beyond_the_limit_are_reported() -> None:
    line = "Executing op Op{0} in device /job:localhost/replica:0/task:0/device:GPU:{1}\n"
    few = "".join(line.format(n, n % 2) for n in range(MAX_OPERATION_PAIRS + 5))
    placement = evaluate_placement(read_placement([few.encode()]))
    assert placement.summary == f"All {MAX_OPERATION_PAIRS + 5:,} operations ran on GPU:0 and GPU:1."
    assert make_placement_json(placement)["left_out"] == {}
    assert {"op": OTHER_OPERATIONS, "device": "GPU:0", "count": 3} in make_placement_json(placement)["ops"]
    for text in (render_placement(placement, width=300), make_placement_svg(placement)):
        assert f"5 operations of further kinds are counted as {OTHER_OPERATIONS}." in text
    many = few + "".join(line.format(n, n) for n in range(MAX_OPERATION_PAIRS, 2 * MAX_OPERATION_PAIRS + 8))
    placement = evaluate_placement(read_placement([many.encode()]))
    left_out = make_placement_json(placement)["left_out"]
    assert left_out["operations"] > 0
    assert sum(placement.data.count_by_device.values()) + left_out["operations"] == many.count("\n")
    for text in (render_placement(placement, width=300), make_placement_svg(placement)):
        assert f"{left_out['operations']:,} operations" in text
    assert "All" not in placement.summary


EAGER_FORM = "Executing op {} in device /job:localhost/replica:0/task:0/device:{}\n"
READER_LINES = [
    *(
        EAGER_FORM.format(op, device)
        for op in ("A", "B", "__inference_f_1")
        for device in ("GPU:0", "GPU:1", "CPU:0")
    ),
    EAGER_FORM.format("A", "GPU:0").strip() + " and more\n",
    EAGER_FORM.format("A", "GPU:1").strip() + " -> device: 1, name: T4, pci bus id: 0000:00:1e.0\n",
    EAGER_FORM.format("A", "GPU:1").strip() + EAGER_FORM.format("B", "GPU:0"),
    EAGER_FORM.format("A b", "GPU:0"),
    EAGER_FORM.format("A", "GPU:02024-03-01 10:00:00.000001: "),
    "MatMul: (MatMul): /job:localhost/replica:0/task:0/device:GPU:0\n",
    "step 1\n",
]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.sampled_from(READER_LINES), max_size=12), max_size=6))
def test_bulk_counting_matches_line_by_line(pieces: list[list[str]]) -> None:
    fast, slow = PlacementReader(), PlacementReader()
    for lines in pieces:
        fast.count_block("".join(lines).encode())
        with mock.patch.object(PlacementReader, "_count_known_executions", return_value=False):
            slow.count_block("".join(lines).encode())
    assert fast.finish() == slow.finish()


def test_known_operations_are_counted_in_bulk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting line by line takes twice the time."""
    counted: list[bytes] = []
    count_one = PlacementReader._count_execution

    def count_calls(reader: PlacementReader, op: bytes, device: bytes) -> None:
        counted.append(op)
        count_one(reader, op, device)

    monkeypatch.setattr(PlacementReader, "_count_execution", count_calls)
    text = "".join(EAGER_FORM.format("AB"[n % 2], f"GPU:{n % 4}") for n in range(20_000))
    assert sum(item.count for item in read_placement([text.encode()]).op_counts) == 20_000
    assert len(counted) < 2_000


def test_only_the_beginning_and_one_message_of_each_source_line_are_kept() -> None:
    messages = FirstMessages()
    line = b"x" * (version_messages.BEGINNING_BYTES - 9) + b"\n"
    for block in (line, b"one\nand more\n", b"two\n"):
        messages.read_block(block)
    assert messages.beginning == line + b"one\n"
    limit = version_messages.MAX_LINE_BYTES
    messages.read_block(b"f.cc:7] first\nf.cc:7] second\nf.cc:8] a\n")
    messages.read_block(b"f.cc:7] third\n" + b"a" * (limit + 9) + b".cc:9] " + b"b" * limit + b"\n")
    long_line = b"a" * limit + b".cc:9] " + b"b" * (limit - 7) + b"\n"
    assert messages.lines == [b"f.cc:7] first\n", b"f.cc:8] a\n", long_line]


@pytest.mark.parametrize(
    ("end", "is_eager"),
    [("", False), (" [Op:MatMul]", True), (" enable_soft_placement=0", True), (" unknown device", True)],
)
def test_refusal_of_an_eager_operation_is_recognized(end: str, is_eager: bool) -> None:
    parsed = rejections._parse_refusal(f"Cannot assign a device for operation c: it was assigned{end}", 1)
    assert parsed is not None
    assert parsed.is_eager is is_eager
