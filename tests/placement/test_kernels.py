"""What the kernels of a release say of operations on the CPU and of refusals; copies between devices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tfdoctor.compat import Compat
from tfdoctor.placement import Placement, evaluate_placement, find_era, needs_kernels, read_placement
from tfdoctor.render.placement import placement_json, render_placement

JOB = "/job:localhost/replica:0/task:0"
HEAD = "2022-09-29 10:00:00.123456: I tensorflow/core/common_runtime/"
COMPAT = Compat.load()
CAPABILITY = ", compute capability: 7.5"


def device(about: str = CAPABILITY) -> str:
    return (
        f"{HEAD}gpu/gpu_device.cc:1616] Created device {JOB}/device:GPU:0 with 6100 MB memory:  -> device: 0, "
        f"name: NVIDIA T4, pci bus id: 0000:00:00.0{about}\n"
    )


def eager(op: str, where: str) -> str:
    return f"{HEAD}eager/execute.cc:1419] Executing op {op} in device {JOB}/device:{where}\n"


def get_refusal(op: str, where: str = "GPU:0") -> str:
    return (
        f"tensorflow.python.framework.errors_impl.InvalidArgumentError: Could not satisfy device specification "
        f"'{JOB}/device:{where}'. enable_soft_placement=0. Supported device types [CPU]. All available devices "
        f"[{JOB}/device:CPU:0, {JOB}/device:GPU:0]. [Op:{op}]\n"
    )


def read(text: str, era: str | None) -> Placement:
    return evaluate_placement(read_placement([text.encode()]), kernels=COMPAT.kernels, era=era)


def kernels(text: str, era: str | None) -> Any:
    return placement_json(read(text, era))["kernels"]


MIXED = device() + eager("MatMul", "GPU:0") + eager("StringLength", "CPU:0") * 2 + eager("MatMul", "CPU:0")


@pytest.mark.parametrize("era", ["1.15", "2.10", "2.4-2.11", "2.21"])
def test_what_has_no_gpu_kernel_is_named(era: str) -> None:
    told = kernels(MIXED, era)
    assert told["release"] == f"TensorFlow {era.replace('-', ' to ')}"
    assert told["no_gpu_kernel"] == [{"op": "StringLength", "count": 2}]
    (fewer,) = told["fewer_types"]
    assert (fewer["op"], fewer["count"], fewer["attribute"]) == ("MatMul", 1, "T")
    assert "int32" in fewer["cpu_only"]
    assert "float32" in fewer["gpu"]
    assert not {*fewer["gpu"]} & {*fewer["cpu_only"]}


def test_the_sentence() -> None:
    screen = " ".join(render_placement(read(MIXED, "2.10")).split())
    assert "TensorFlow 2.10 has no GPU kernel for StringLength (2): no GPU can run them." in screen
    assert "MatMul (1) has GPU kernels, but none for bfloat16, int32, int64" in screen
    assert "the log does not say" in screen


def test_what_tensorflow_2_20_really_did() -> None:
    """It ran on a stand-in GPU, with the device policy "warn" and then without soft placement; the matrices on the CPU
    were of int32. Its log, without the operations beside these."""
    log = (Path(__file__).parent / "tensorflow_2_20.log").read_bytes()
    found = read_placement([log])
    era = find_era(found.said, COMPAT)
    assert era == "2.20"
    answer = evaluate_placement(found, kernels=COMPAT.kernels, era=era)
    told = placement_json(answer)
    assert [(row["op"], row["wanted"], row["reason"]) for row in told["refused"]] == [
        ("StringLength", "GPU:0", "no-kernel"),
        ("StringLength", "GPU:1", "no-such-device"),
        ("MatMul", "GPU:0", "no-kernel-for-type"),
        ("MatMul", "GPU:1", "no-such-device"),
        ("StringLength", "GPU:0", "no-kernel"),
    ]
    assert told["kernels"]["no_gpu_kernel"] == [{"op": "StringLength", "count": 3}]
    assert [(row["op"], row["cpu_only"]) for row in told["kernels"]["fewer_types"]] == [
        ("MatMul", ["int16", "int32", "int64"])
    ]
    assert [tuple(row.values()) for row in told["copies"]] == [
        ("_EagerConst", "CPU:0", "GPU:0", 3),
        ("AddV2", "CPU:0", "GPU:0", 3),
    ]
    assert [tuple(row.values()) for row in told["calls"]] == [("__inference_f_65", "GPU:0", 2)]
    assert len(render_placement(answer).splitlines()) <= 30


def test_only_what_is_so_in_each_release_that_it_can_be() -> None:
    """GPUs multiply bfloat16 from 2.12 on."""
    assert "bfloat16" in kernels(MIXED, "2.10")["fewer_types"][0]["cpu_only"]
    assert "bfloat16" not in kernels(MIXED, "2.12")["fewer_types"][0]["cpu_only"]
    both = kernels(MIXED, "2.11-2.12")["fewer_types"][0]
    assert "bfloat16" not in {*both["cpu_only"], *both["gpu"]}


@pytest.mark.parametrize(
    ("text", "era"),
    [
        (MIXED, None),
        (MIXED, "1.4"),
        (MIXED, "2.4+"),
        (MIXED, "2.20-2.99"),
        (MIXED.replace(CAPABILITY, ""), "2.10"),  # another maker's GPU
        (MIXED.replace(device(), ""), "2.10"),
        (MIXED + device("").replace("GPU:0", "GPU:1"), "2.10"),
    ],
)
def test_where_the_release_or_the_gpu_is_not_known_nothing_is_said(text: str, era: str | None) -> None:
    answer = read(text, era)
    assert answer.on_cpu is None
    assert not any("kernel" in one.title for one in answer.findings)


def test_a_task_without_a_gpu_is_not_judged() -> None:
    other = eager("StringLength", "CPU:0").replace(JOB, "/job:ps/replica:0/task:0")
    assert kernels(device() + other, "2.10")["no_gpu_kernel"] == []


def test_an_operation_of_the_program_itself_is_not_judged() -> None:
    told = kernels(device() + eager("MyOwnOperation", "CPU:0"), "2.10")
    assert told["no_gpu_kernel"] == told["fewer_types"] == []


@pytest.mark.parametrize(
    ("op", "era", "reason", "words"),
    [
        (
            "MatMul",
            "2.10",
            "no-kernel-for-type",
            "TensorFlow 2.10 has GPU kernels for it, and none that takes",
        ),
        ("StringLength", "2.10", "no-kernel", "TensorFlow 2.10 has no GPU kernel for it"),
        ("StringLength", "1.14-2.21", "no-kernel", "TensorFlow 1.14 to 2.21 has no GPU kernel for it"),
        ("MatMul", None, "no-kernel", "no kernel there, or none for this type"),
        ("MyOwnOperation", "2.10", "no-kernel", "no kernel there, or none for this type"),
    ],
)
def test_a_refusal_without_a_list_of_kernels(op: str, era: str | None, reason: str, words: str) -> None:
    answer = read(device() + get_refusal(op), era)
    assert [one.reason for one in answer.found.refused] == [reason]
    assert words in answer.findings[0].explanation


def test_a_refusal_that_names_its_type() -> None:
    text = (
        "Cannot assign a device for operation c: Could not satisfy explicit device specification '/device:GPU:0' "
        "because no supported kernel for GPU devices is available.\nRegistered kernels:\n"
        "  device='GPU'; T in [DT_FLOAT]\n  device='CPU'; T in [DT_BFLOAT16]\n\n"
        '\t [[{{node c}} = MatMul[T=DT_BFLOAT16, transpose_a=false, _device="/device:GPU:0"](x, y)]]\n'
    )
    known, unknown = read(device() + text, "2.10"), read(device() + text, None)
    assert [one.types for one in known.found.refused] == [(("T", "bfloat16"),)]
    assert "TensorFlow 2.10 has GPU kernels for complex128" in known.findings[0].explanation
    assert "none for bfloat16" in known.findings[0].explanation
    for answer in (known, unknown):
        assert [one.reason for one in answer.found.refused] == ["no-kernel-for-type"]
    assert "TensorFlow 2" not in unknown.findings[0].explanation


def test_newer_messages_have_the_types_elsewhere() -> None:
    text = (
        "Cannot assign a device for operation c: Could not satisfy explicit device specification '/device:GPU:0' "
        "because no supported kernel for GPU devices is available.\n\nOp: MatMul\n"
        "Node attrs: grad_a=false, T=DT_INT32\nRegistered kernels:\n  device='GPU'; T in [DT_FLOAT]\n"
        "\n\t [[{{node c}}]] [Op:__inference_g_79]\n"
    )
    answer = read(device() + text, "2.10")
    assert [one.types for one in answer.found.refused] == [(("T", "int32"),)]
    assert "none for int32" in answer.findings[0].explanation


def test_what_a_message_lists_is_never_overruled() -> None:
    """It is of the TensorFlow that runs, whatever release the log seems to be of."""
    text = (
        "Cannot assign a device for operation c: Could not satisfy explicit device specification '/device:GPU:0' "
        "because no supported kernel for GPU devices is available.\n\nOp: MatMul\nRegistered kernels:\n"
        "  device='CPU'; T in [DT_FLOAT]\n"
    )
    assert [one.reason for one in read(device() + text, "2.10").found.refused] == ["no-kernel"]


# ---------------------------------------------------------------- which release


def test_the_release_is_read_from_little_of_a_long_log() -> None:
    """The lines that tell it stand behind megabytes of others."""
    noise = "".join(f"step {number} loss 0.5\n" for number in range(100_000))
    text = noise + device().replace("1616", "1613") + eager("MatMul", "GPU:0") * 1000
    found = read_placement([text.encode()])
    assert len(found.said) < 100_000
    assert b"gpu_device.cc:1613]" in found.said
    assert b"execute.cc:1419]" in found.said


def test_a_release_that_the_log_states() -> None:
    assert find_era(b"TensorFlow version: 2.10.0\n" + MIXED.encode(), COMPAT) == "2.10"
    assert find_era(b"step 1 loss 2.0\n", COMPAT) is None


@pytest.mark.parametrize("version", ["2.10.0+nv22.12", "2.11.0-dev20221005"])
def test_of_another_build_no_kernels_are_known(version: str) -> None:
    assert find_era(f"TensorFlow version: {version}\n".encode() + device().encode(), COMPAT) is None
    assert find_era(device().encode(), COMPAT) == "2.10"


def test_a_container_of_nvidia() -> None:
    assert find_era(b"NVIDIA Release 22.12-tf2 (build 50109463)\n" + device().encode(), COMPAT) is None


def test_lines_that_no_release_has_are_of_another_build() -> None:
    assert find_era(b"TensorFlow version: 2.10.0\n" + device().replace("1616", "99").encode(), COMPAT) is None


def test_two_tensorflows_in_one_log() -> None:
    new = (Path(__file__).parent / "tensorflow_2_20.log").read_bytes()
    old = "".join(
        f"2020-08-29 00:15:42.1: I tensorflow/{path}\n"
        for path in (
            "stream_executor/platform/default/dso_loader.cc:48] Successfully opened dynamic library libcudart.so.10.1",
            "core/common_runtime/gpu/gpu_device.cc:1716] Found device 0 with properties: ",
            "core/common_runtime/gpu/gpu_device.cc:1858] Adding visible gpu devices: 0",
        )
    )
    assert find_era(new, COMPAT) == "2.20"
    assert find_era(old.encode() + new, COMPAT) is None


def test_the_release_is_asked_for_where_it_matters() -> None:
    def asks(text: str) -> bool:
        return needs_kernels(read_placement([text.encode()]))

    assert asks(MIXED)
    assert asks(get_refusal("Where"))
    assert not asks(device() + eager("MatMul", "GPU:0"))
    assert not asks(eager("MatMul", "CPU:0"))
    assert not asks("step 1\n")


# ---------------------------------------------------------------- copies


def list_warnings(op: str, expected: str, actual: str) -> str:
    """tensorflow/core/common_runtime/eager/execute.cc, device policy "warn"."""
    return (
        f"2020-08-29 00:15:42.1: W tensorflow/core/common_runtime/eager/execute.cc:169] before computing {op} input #1 "
        f"was expected to be on {JOB}/device:{expected} but is actually on {JOB}/device:{actual} (operation running on "
        f"{JOB}/device:{expected}). This triggers a copy which can be a performance bottleneck.\n"
    )


def copies(text: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in placement_json(read(text, None))["copies"]]


def test_a_copy_that_tensorflow_tells() -> None:
    text = list_warnings("MatMul", "GPU:0", "CPU:0") * 3 + eager("MatMul", "GPU:0")
    assert copies(text) == [("MatMul", "CPU:0", "GPU:0", 3)]
    answer = read(text, None)
    assert answer.found.totals == {"GPU:0": 1}
    assert any(
        "copied from CPU:0 to GPU:0 3 times, for MatMul." in one.explanation for one in answer.findings
    )


def test_operations_that_are_ends_of_copies() -> None:
    rows = [
        ("x/_12", "_Send", "GPU:0"), ("x/_13", "_Recv", "CPU:0"), ("y/_1", "_HostSend", "CPU:0"),
        ("z", "_CopyFromGpuToHost", "GPU:0"), ("MatMul", "MatMul", "GPU:0"),
        ("_send_loss_0", "_Send", "CPU:0"), ("_recv_x_0", "_Recv", "CPU:0"),
    ]  # fmt: skip
    text = "".join(
        f"{head}{node}: ({kind}): {JOB}/device:{where}\n"
        for node, kind, where in rows
        for head in ("", f"{HEAD}placer.cc:54] ")
    )
    assert copies(text) == [
        ("_HostSend", "CPU:0", None, 1),
        ("_Recv", None, "CPU:0", 1),
        ("_CopyFromGpuToHost", "GPU:0", None, 1),
        ("_Send", "GPU:0", None, 1),
    ]
    assert read(text, None).found.totals == {"CPU:0": 4, "GPU:0": 3}


def test_changes_of_the_device_are_no_copies() -> None:
    text = (eager("MatMul", "GPU:0") * 3 + eager("Add", "CPU:0")) * 12 + eager("Add", "CPU:0")
    answer = read(text, None)
    assert copies(text) == []
    assert [(one.before, one.device, one.count) for one in answer.found.changes] == [
        ("GPU:0", "CPU:0", 12),
        ("CPU:0", "GPU:0", 11),
    ]
    assert any("often changed" in one.title for one in answer.findings)


def test_behind_a_call_of_a_function_no_change_is_known() -> None:
    text = eager("MatMul", "GPU:0") + eager("__inference_f_1", "CPU:0") + eager("Add", "CPU:0")
    assert read(text, None).found.changes == ()


def test_nodes_of_a_graph_have_no_order() -> None:
    nodes = f"a: (MatMul): {JOB}/device:GPU:0\nb: (Add): {JOB}/device:CPU:0\n" * 20
    assert read(nodes, None).found.changes == ()


def test_the_types_of_the_corpus_are_read() -> None:
    corpus = (
        Path(__file__).parents[3] / "shared" / "corpus" / "placement" / "refused-bfloat16-conv" / "log.txt"
    )
    if not corpus.exists():
        pytest.skip("the corpus is not here")
    (one,) = read_placement([corpus.read_bytes()]).refused
    assert one.listed
