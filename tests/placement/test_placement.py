"""Placement logs in the layouts of each era: what went where, what was refused and why."""

from __future__ import annotations

import json
import random
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfdoctor.placement import Placement, evaluate_placement, read_placement
from tfdoctor.placement.models import OTHER
from tfdoctor.placement.reader import KINDS, MAX_SEEN_LINES, Reader
from tfdoctor.placement.rejections import shorten_device
from tfdoctor.render.placement import placement_json, placement_svg, render_placement

JOB = "/job:localhost/replica:0/task:0"
CORPUS = Path(__file__).parents[3] / "shared" / "corpus" / "placement"


def read(text: str | bytes, size: int = 1 << 16) -> Placement:
    data = text.encode() if isinstance(text, str) else text
    return evaluate_placement(read_placement(data[at : at + size] for at in range(0, len(data), size)))


def ops(placement: Placement) -> dict[tuple[str, str], int]:
    return {(row.op, row.device): row.count for row in placement.found.ops}


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
def test_spellings_of_a_device(spelled: str, device: str) -> None:
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
def test_a_node_is_one_however_it_is_printed(lines: list[str]) -> None:
    for ending in ("\n", ""):
        found = read("\n".join(lines) + ending)
        assert ops(found) == {("MatMul", "GPU:0"): 1}
        assert found.found.api == "1"


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
def test_what_is_cut_or_something_else_counts_nowhere(line: str) -> None:
    assert not ops(read(line + "\n"))


def eager(op: str, device: str) -> str:
    head = "2020-08-29 00:15:42.1: I tensorflow/core/common_runtime/eager/execute.cc:574]"
    return f"{head} Executing op {op} in device {JOB}/device:{device}\n"


def echo(op: str, device: str) -> str:
    """What TensorFlow 2.5 and newer print of the little graph of an operation that runs for the first time."""
    rows = [("input", "_Arg"), (op, op), ("output_RetVal", "_Retval")]
    return "".join(
        f"{head}{node}: ({kind}): {JOB}/device:{device}\n"
        for node, kind in rows
        for head in ("", "2026-11-22 03:56:11.8: I tensorflow/core/common_runtime/placer.cc:162] ")
    )


def test_each_execution_of_an_eager_operation_counts_and_its_little_graph_does_not() -> None:
    text = "".join(
        (echo("Exp", "GPU:0") if number == 0 else "") + eager("Exp", "GPU:0") for number in range(3)
    )
    found = read(text + echo("Sum", "CPU:0") + eager("Sum", "CPU:0"))
    assert ops(found) == {("Exp", "GPU:0"): 3, ("Sum", "CPU:0"): 1}
    assert found.found.api == "2"


def test_the_graph_of_a_function_counts_and_its_call_is_no_operation() -> None:
    body = "".join(
        f"{node}: ({kind}): {JOB}/device:GPU:0\n"
        for node, kind in (
            ("x", "_Arg"),
            ("MatMul", "MatMul"),
            ("Relu", "Relu"),
            ("identity_RetVal", "_Retval"),
        )
    )
    found = read(body + eager("__inference_step_12", "GPU:0") * 3 + eager("__inference_<lambda>_5", "CPU:0"))
    assert ops(found) == {("MatMul", "GPU:0"): 1, ("Relu", "GPU:0"): 1}
    assert [(one.op, one.device, one.count) for one in found.found.calls] == [
        ("__inference_<lambda>_5", "CPU:0", 1),
        ("__inference_step_12", "GPU:0", 3),
    ]
    assert found.found.api == "2"
    assert "4 calls of functions" in render_placement(found)


def test_a_log_of_calls_alone() -> None:
    found = read(create_file(0) + create_file(1) + eager("__inference_step_12", "GPU:0") * 2)
    assert found.summary == "2 calls of functions ran on GPU:0; what they did is not printed."
    assert found.found.unused == ("GPU:1",)
    assert not found.found.totals


def create_file(number: int, about: str = ", compute capability: 7.5") -> str:
    return (
        f"2022-09-29 10:00:00.1: I tensorflow/core/common_runtime/gpu/gpu_device.cc:1616] Created device "
        f"{JOB}/device:GPU:{number} with 6100 MB memory:  -> device: {number}, name: NVIDIA T4, "
        f"pci bus id: 0000:0{number}:00.0{about}\n"
    )


def test_a_device_is_listed_once_with_all_that_is_said_of_it() -> None:
    text = (
        "I x/gpu_device.cc:977] Creating TensorFlow device (/gpu:0) -> "
        "(device: 0, name: Tesla P40, pci bus id: 0000:02:00.0)\n"
        f"Device mapping:\n{JOB}/gpu:0 -> device: 0, name: Tesla P40, pci bus id: 0000:02:00.0, "
        "compute capability: 6.1\n"
        f"{JOB}/device:XLA_CPU:0 -> device: XLA_CPU device\n"
    )
    devices = {one.device: one for one in read(text).found.devices}
    assert set(devices) == {"GPU:0", "XLA_CPU:0"}
    assert (devices["GPU:0"].name, devices["GPU:0"].compute_capability) == ("Tesla P40", "6.1")
    assert read(text).found.unused == ("GPU:0",)


def test_beside_a_refusal_an_idle_gpu_is_no_finding() -> None:
    """What TensorFlow 2.20 printed of two GPUs, which were software: the second might have been used later."""
    card = "name: Stand-in GPU, pci bus id: 0000:0{}:00.0, compute capability: 9.0\n"
    mapping = "".join(f"{JOB}/device:GPU:{n} -> device: {n}, {card.format(n + 1)}" for n in (0, 1))
    node = "PlaceholderWithDefault"
    refused = (
        "Cannot assign a device for operation AsString: Could not satisfy explicit device specification "
        "'/device:GPU:0' because no supported kernel for GPU devices is available.\n"
        "AsString: CPU \n\nOp: AsString\nRegistered kernels:\n  device='CPU'\n"
    )
    found = read(f"Device mapping:\n{mapping}\n{node}: ({node}): {JOB}/device:GPU:0\n{refused}")
    assert found.found.unused == ("GPU:1",)
    assert [one.code for one in found.findings] == ["TFD807"]
    assert found.summary == "1 operation refused. The only operation was placed on GPU:0."


def test_one_operation_is_told_as_one() -> None:
    one = f"MatMul: (MatMul): {JOB}/device:GPU:0\n"
    assert read(one).summary == "The only operation was placed on GPU:0."
    both = read(one + f"x: (Const): {JOB}/device:CPU:0\n").summary
    assert both == (
        "1 of 2 operations were placed on GPU:0, 1 elsewhere. On a GPU are 1 of 1 matrix products and convolutions."
    )
    assert read(eager("Add", "CPU:0")).summary == "The only operation ran on CPU:0; no GPU got any."


@pytest.mark.parametrize(
    "created",
    [
        f"gpu_device.cc:1115] Created TensorFlow device ({JOB}/device:GPU:{{n}} with 7350 MB memory) -> physical GPU (",
        f"gpu_device.cc:2020] Created device {JOB}/device:GPU:{{n}} with 6100 MB memory:  -> ",
    ],
)
def test_what_tensorflow_created_and_did_not_use(created: str) -> None:
    """2.5 and newer say it in other words."""
    card = "device: {n}, name: NVIDIA T4, pci bus id: 0000:0{n}:00.0, compute capability: 7.5\n"
    lines = "".join((created + card).format(n=number) for number in (0, 1))
    found = read(lines + eager("MatMul", "GPU:0")).found
    assert [(one.device, one.name, one.compute_capability) for one in found.devices] == [
        ("GPU:0", "NVIDIA T4", "7.5"),
        ("GPU:1", "NVIDIA T4", "7.5"),
    ]
    assert found.unused == ("GPU:1",)


def test_no_known_devices_has_a_finding() -> None:
    found = read(f"Device mapping: no known devices.\na: (Const): {JOB}/cpu:0\n")
    assert found.found.devices == ()
    assert found.found.api == "1"
    assert [one.title for one in found.findings] == ["TensorFlow knew no GPU"]


def test_only_xla_devices_are_no_gpu() -> None:
    found = read(f"Device mapping:\n{JOB}/device:XLA_GPU:0 -> device: XLA_GPU device\n")
    assert [one.cause.value for one in found.findings] == ["xla-gpu-only"]


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
    ],
)
def test_refusals(text: str, refused: tuple[str | None, ...]) -> None:
    for size in (1 << 16, 64):  # whole, and in pieces
        for twice in (text, f"{text}\n{text}"):
            found = read(twice, size).found.refused
            assert [(one.op, one.node, one.wanted, one.reason) for one in found] == [refused]
            assert found[0].line == 1
    assert read(text).findings[0].code == "TFD807"


def test_what_ran_on_the_cpu_between_gpu_operations_is_counted() -> None:
    step = eager("MatMul", "GPU:0") + eager("StringLength", "CPU:0") + eager("Relu", "GPU:0")
    found = read(step * 20 + eager("Print", "CPU:0") * 5)
    assert found.found.between == (("StringLength", 20),)
    assert any("StringLength (20 times)" in one.title for one in found.findings)


def test_a_line_that_is_no_placement_says_so() -> None:
    found = read("step 1 loss 2.0\n")
    assert found.found.api is None
    assert found.findings[0].code == "TFD825"
    assert "set_log_device_placement" in render_placement(found)


def test_of_very_many_nodes_the_twins_are_one() -> None:
    lines = []
    for number in range(MAX_SEEN_LINES + 50_000):
        node = f"n/MatMul_{number}: (MatMul): {JOB}/device:GPU:0\n"
        lines += [node, f"I x/placer.cc:54] {node}"]
    found = read("".join(lines)).found
    assert found.totals == {"GPU:0": MAX_SEEN_LINES + 50_000}
    assert found.forgotten


def test_hostile_text_stays_text() -> None:
    found = read(
        f"<script>: (<b>): {JOB}/device:GPU:0\nx>y: (A>b): {JOB}/device:GPU:0\n"
        f"Device mapping:\n{JOB}/device:GPU:0 -> device: 0, name: \x1b[31m<b>&x, pci bus id: 0000:02:00.0\n"
    )
    assert "\x1b" not in render_placement(found)
    assert "<b>" not in placement_svg(found)


def test_any_bytes_have_an_answer() -> None:
    chance = random.Random(7)
    pieces = [
        b"Cannot assign a device for operation ", b"/job:localhost/replica:0/task:0/device:GPU:0", b": (", b")", b"\n",
        b" -> ", b"Executing op ", b" in device ", b"Device mapping:", b"'", b"{{node x}}",
        b"\xff\xfe", b"\0", b"x" * 3000,
        b"Could not satisfy device specification '", b"'. enable_soft_placement", b"] ", b" unknown device",
    ]  # fmt: skip
    for _ in range(300):
        data = b"".join(chance.choice(pieces) for _ in range(60))
        placement = read(data, chance.choice((7, 100, 1 << 16)))
        json.dumps(placement_json(placement))
        render_placement(placement, verbose=True, width=chance.choice((20, 80)))
        placement_svg(placement)


@pytest.mark.parametrize(
    "case", sorted(CORPUS.iterdir()) if CORPUS.is_dir() else [], ids=lambda path: path.name
)
def test_the_corpus(case: Path) -> None:
    answer = placement_json(read((case / "log.txt").read_bytes()))
    for key, want in json.loads((case / "truth.json").read_text(encoding="utf-8")).items():
        got = answer[key]
        if isinstance(want, list) and want and isinstance(want[0], dict):
            got = [{name: row[name] for name in want[0]} for row in got]
            assert sorted(map(json.dumps, got)) == sorted(map(json.dumps, want)), key
        else:
            assert got == want, key


def test_endless_names_take_no_endless_memory() -> None:
    reader = Reader()
    line = "Executing op Own%d in device /job:localhost/replica:0/task:0/device:GPU:0\n"
    for start in range(0, 60_000, 1000):
        reader.take("".join(line % number for number in range(start, start + 1000)).encode())
    assert len(reader.executed) == KINDS + 1
    found = reader.end()
    assert found.lines == 60_000
    assert (found.count_others, found.left_out) == (40_000, ())


def test_kinds_that_are_not_told_apart_are_said() -> None:
    line = "Executing op Op{0} in device /job:localhost/replica:0/task:0/device:GPU:{1}\n"
    few = "".join(line.format(n, n % 2) for n in range(KINDS + 5))
    placement = evaluate_placement(read_placement([few.encode()]))
    assert placement.summary == f"All {KINDS + 5:,} operations ran on GPU:0 and GPU:1."
    assert placement_json(placement)["left_out"] == {}
    assert {"op": OTHER, "device": "GPU:0", "count": 3} in placement_json(placement)["ops"]
    for text in (render_placement(placement, width=300), placement_svg(placement)):
        assert f"5 operations of further kinds are counted as {OTHER}." in text
    many = few + "".join(line.format(n, n) for n in range(KINDS, 2 * KINDS + 8))
    placement = evaluate_placement(read_placement([many.encode()]))
    left_out = placement_json(placement)["left_out"]
    assert left_out["operations"] > 0
    assert sum(placement.found.totals.values()) + left_out["operations"] == many.count("\n")
    for text in (render_placement(placement, width=300), placement_svg(placement)):
        assert f"{left_out['operations']:,} operations" in text
    assert "All" not in placement.summary


EAGER = "Executing op {} in device /job:localhost/replica:0/task:0/device:{}\n"
PASSING = [
    *(
        EAGER.format(op, device)
        for op in ("A", "B", "__inference_f_1")
        for device in ("GPU:0", "GPU:1", "CPU:0")
    ),
    EAGER.format("A", "GPU:0").strip() + " and more\n",
    EAGER.format("A", "GPU:1").strip() + " -> device: 1, name: T4, pci bus id: 0000:00:1e.0\n",
    EAGER.format("A", "GPU:1").strip() + EAGER.format("B", "GPU:0"),
    EAGER.format("A b", "GPU:0"),
    EAGER.format("A", "GPU:02024-03-01 10:00:00.000001: "),
    "MatMul: (MatMul): /job:localhost/replica:0/task:0/device:GPU:0\n",
    "step 1\n",
]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.sampled_from(PASSING), max_size=12), max_size=6))
def test_pieces_that_are_counted_at_once_give_the_same(pieces: list[list[str]]) -> None:
    fast, slow = Reader(), Reader()
    for lines in pieces:
        fast.take("".join(lines).encode())
        with mock.patch.object(Reader, "_take_executed", return_value=False):
            slow.take("".join(lines).encode())
    assert fast.end() == slow.end()


def test_operations_that_are_known_are_counted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Line by line takes twice the time."""
    lines: list[bytes] = []
    ran = Reader._ran

    def count_calls(reader: Reader, op: bytes, device: bytes) -> None:
        lines.append(op)
        ran(reader, op, device)

    monkeypatch.setattr(Reader, "_ran", count_calls)
    text = "".join(EAGER.format("AB"[n % 2], f"GPU:{n % 4}") for n in range(20_000))
    assert sum(row.count for row in read_placement([text.encode()]).ops) == 20_000
    assert len(lines) < 2_000
