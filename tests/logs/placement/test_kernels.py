"""Placement reports that use the kernels of a release: operations on the CPU, refusals, and copies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tfdoctor.compat import Compat
from tfdoctor.logs.placement import (
    Placement,
    evaluate_placement,
    infer_release_range,
    needs_kernels,
    read_placement,
)
from tfdoctor.render.placement import make_placement_json, render_placement

JOB = "/job:localhost/replica:0/task:0"
LOG_PREFIX = "2022-09-29 10:00:00.123456: I tensorflow/core/common_runtime/"
COMPAT = Compat.load()
CAPABILITY = ", compute capability: 7.5"


def format_created_device(details: str = CAPABILITY) -> str:
    return (
        f"{LOG_PREFIX}gpu/gpu_device.cc:1616] Created device {JOB}/device:GPU:0 with 6100 MB memory:  -> device: 0, "
        f"name: NVIDIA T4, pci bus id: 0000:00:00.0{details}\n"
    )


def format_eager(op: str, device: str) -> str:
    return f"{LOG_PREFIX}eager/execute.cc:1419] Executing op {op} in device {JOB}/device:{device}\n"


def format_refusal(op: str, device: str = "GPU:0") -> str:
    return (
        f"tensorflow.python.framework.errors_impl.InvalidArgumentError: Could not satisfy device specification "
        f"'{JOB}/device:{device}'. enable_soft_placement=0. Supported device types [CPU]. All available devices "
        f"[{JOB}/device:CPU:0, {JOB}/device:GPU:0]. [Op:{op}]\n"
    )


def evaluate(text: str, era: str | None) -> Placement:
    return evaluate_placement(read_placement([text.encode()]), kernels=COMPAT.kernels, release_range=era)


def list_kernels(text: str, era: str | None) -> Any:
    return make_placement_json(evaluate(text, era))["kernels"]


MIXED = (
    format_created_device()
    + format_eager("MatMul", "GPU:0")
    + format_eager("StringLength", "CPU:0") * 2
    + format_eager("MatMul", "CPU:0")
)


@pytest.mark.parametrize("era", ["1.15", "2.10", "2.4-2.11", "2.21"])
def test_operations_without_a_gpu_kernel_are_named(era: str) -> None:
    result = list_kernels(MIXED, era)
    assert result["release"] == f"TensorFlow {era.replace('-', ' to ')}"
    assert result["no_gpu_kernel"] == [{"op": "StringLength", "count": 2}]
    (matmul,) = result["fewer_types"]
    assert (matmul["op"], matmul["count"], matmul["attribute"]) == ("MatMul", 1, "T")
    assert "int32" in matmul["cpu_only"]
    assert "float32" in matmul["gpu"]
    assert not {*matmul["gpu"]} & {*matmul["cpu_only"]}


def test_screen_explains_missing_kernels() -> None:
    screen = " ".join(render_placement(evaluate(MIXED, "2.10")).split())
    assert "TensorFlow 2.10 has no GPU kernel for StringLength (2): no GPU can run them." in screen
    assert "MatMul (1) has GPU kernels, but none for bfloat16, int32, int64" in screen
    assert "The log does not say which type" in screen


def test_log_of_tensorflow_2_20() -> None:
    """A log of a stand-in GPU, with the device policy "warn" and then without soft placement.

    The matrices on the CPU were int32. Operations other than these were removed from the log.
    """
    log = (Path(__file__).parent / "tensorflow_2_20.log").read_bytes()
    log_placement = read_placement([log])
    era = infer_release_range(log_placement.release_messages, COMPAT)
    assert era == "2.20"
    answer = evaluate_placement(log_placement, kernels=COMPAT.kernels, release_range=era)
    result = make_placement_json(answer)
    assert [(row["op"], row["wanted"], row["reason"]) for row in result["refused"]] == [
        ("StringLength", "GPU:0", "no-kernel"),
        ("StringLength", "GPU:1", "no-such-device"),
        ("MatMul", "GPU:0", "no-kernel-for-type"),
        ("MatMul", "GPU:1", "no-such-device"),
        ("StringLength", "GPU:0", "no-kernel"),
    ]
    assert result["kernels"]["no_gpu_kernel"] == [{"op": "StringLength", "count": 3}]
    assert [(row["op"], row["cpu_only"]) for row in result["kernels"]["fewer_types"]] == [
        ("MatMul", ["int16", "int32", "int64"])
    ]
    assert [tuple(row.values()) for row in result["copies"]] == [
        ("_EagerConst", "CPU:0", "GPU:0", 3),
        ("AddV2", "CPU:0", "GPU:0", 3),
    ]
    assert [tuple(row.values()) for row in result["calls"]] == [("__inference_f_65", "GPU:0", 2)]
    assert len(render_placement(answer).splitlines()) <= 30


def test_types_hold_for_every_possible_release() -> None:
    """GPUs multiply bfloat16 from TensorFlow 2.12 on."""
    assert "bfloat16" in list_kernels(MIXED, "2.10")["fewer_types"][0]["cpu_only"]
    assert "bfloat16" not in list_kernels(MIXED, "2.12")["fewer_types"][0]["cpu_only"]
    matmul = list_kernels(MIXED, "2.11-2.12")["fewer_types"][0]
    assert "bfloat16" not in {*matmul["cpu_only"], *matmul["gpu"]}


@pytest.mark.parametrize(
    ("text", "era"),
    [
        (MIXED, None),
        (MIXED, "1.4"),
        (MIXED, "2.4+"),
        (MIXED, "2.20-2.99"),
        (MIXED.replace(CAPABILITY, ""), "2.10"),  # a GPU of another vendor
        (MIXED.replace(format_created_device(), ""), "2.10"),
        (MIXED + format_created_device("").replace("GPU:0", "GPU:1"), "2.10"),
    ],
)
def test_unknown_release_or_gpu_gives_no_kernels(text: str, era: str | None) -> None:
    answer = evaluate(text, era)
    assert answer.cpu_operations is None
    assert not any("kernel" in finding.title for finding in answer.findings)


def test_task_without_a_gpu_is_ignored() -> None:
    other = format_eager("StringLength", "CPU:0").replace(JOB, "/job:ps/replica:0/task:0")
    assert list_kernels(format_created_device() + other, "2.10")["no_gpu_kernel"] == []


def test_custom_operation_is_ignored() -> None:
    result = list_kernels(format_created_device() + format_eager("MyOwnOperation", "CPU:0"), "2.10")
    assert result["no_gpu_kernel"] == result["fewer_types"] == []


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
def test_refusal_without_a_kernel_list_uses_the_table(
    op: str, era: str | None, reason: str, words: str
) -> None:
    answer = evaluate(format_created_device() + format_refusal(op), era)
    assert [refusal.reason for refusal in answer.data.refusals] == [reason]
    assert words in answer.findings[0].explanation


def test_refusal_with_a_type() -> None:
    text = (
        "Cannot assign a device for operation c: Could not satisfy explicit device specification '/device:GPU:0' "
        "because no supported kernel for GPU devices is available.\nRegistered kernels:\n"
        "  device='GPU'; T in [DT_FLOAT]\n  device='CPU'; T in [DT_BFLOAT16]\n\n"
        '\t [[{{node c}} = MatMul[T=DT_BFLOAT16, transpose_a=false, _device="/device:GPU:0"](x, y)]]\n'
    )
    with_era, without_era = (
        evaluate(format_created_device() + text, "2.10"),
        evaluate(format_created_device() + text, None),
    )
    assert [refusal.type_attributes for refusal in with_era.data.refusals] == [(("T", "bfloat16"),)]
    assert "TensorFlow 2.10 has GPU kernels for complex128" in with_era.findings[0].explanation
    assert "none for bfloat16" in with_era.findings[0].explanation
    for answer in (with_era, without_era):
        assert [refusal.reason for refusal in answer.data.refusals] == ["no-kernel-for-type"]
    assert "TensorFlow 2" not in without_era.findings[0].explanation


def test_refusal_with_node_attributes() -> None:
    text = (
        "Cannot assign a device for operation c: Could not satisfy explicit device specification '/device:GPU:0' "
        "because no supported kernel for GPU devices is available.\n\nOp: MatMul\n"
        "Node attrs: grad_a=false, T=DT_INT32\nRegistered kernels:\n  device='GPU'; T in [DT_FLOAT]\n"
        "\n\t [[{{node c}}]] [Op:__inference_g_79]\n"
    )
    answer = evaluate(format_created_device() + text, "2.10")
    assert [refusal.type_attributes for refusal in answer.data.refusals] == [(("T", "int32"),)]
    assert "none for int32" in answer.findings[0].explanation


def test_kernel_list_of_a_message_outweighs_the_table() -> None:
    """The message is from the running TensorFlow, whatever release the log seems to be of."""
    text = (
        "Cannot assign a device for operation c: Could not satisfy explicit device specification '/device:GPU:0' "
        "because no supported kernel for GPU devices is available.\n\nOp: MatMul\nRegistered kernels:\n"
        "  device='CPU'; T in [DT_FLOAT]\n"
    )
    assert [refusal.reason for refusal in evaluate(format_created_device() + text, "2.10").data.refusals] == [
        "no-kernel"
    ]


# ---------------------------------------------------------------- the release


def test_stated_release_is_used() -> None:
    assert infer_release_range(b"TensorFlow version: 2.10.0\n" + MIXED.encode(), COMPAT) == "2.10"
    assert infer_release_range(b"step 1 loss 2.0\n", COMPAT) is None


@pytest.mark.parametrize("version", ["2.10.0+nv22.12", "2.11.0-dev20221005"])
def test_custom_build_has_no_known_kernels(version: str) -> None:
    assert (
        infer_release_range(
            f"TensorFlow version: {version}\n".encode() + format_created_device().encode(), COMPAT
        )
        is None
    )
    assert infer_release_range(format_created_device().encode(), COMPAT) == "2.10"


def test_nvidia_container_has_no_known_kernels() -> None:
    assert (
        infer_release_range(
            b"NVIDIA Release 22.12-tf2 (build 50109463)\n" + format_created_device().encode(), COMPAT
        )
        is None
    )


def test_unknown_source_line_means_another_build() -> None:
    assert (
        infer_release_range(
            b"TensorFlow version: 2.10.0\n" + format_created_device().replace("1616", "99").encode(), COMPAT
        )
        is None
    )


def test_two_releases_in_one_log_give_none() -> None:
    new = (Path(__file__).parent / "tensorflow_2_20.log").read_bytes()
    old = "".join(
        f"2020-08-29 00:15:42.1: I tensorflow/{path}\n"
        for path in (
            "stream_executor/platform/default/dso_loader.cc:48] Successfully opened dynamic library libcudart.so.10.1",
            "core/common_runtime/gpu/gpu_device.cc:1716] Found device 0 with properties: ",
            "core/common_runtime/gpu/gpu_device.cc:1858] Adding visible gpu devices: 0",
        )
    )
    assert infer_release_range(new, COMPAT) == "2.20"
    assert infer_release_range(old.encode() + new, COMPAT) is None


def test_kernels_are_needed_if_operations_ran_elsewhere() -> None:
    def asks_for_kernels(text: str) -> bool:
        return needs_kernels(read_placement([text.encode()]))

    assert asks_for_kernels(MIXED)
    assert asks_for_kernels(format_refusal("Where"))
    assert not asks_for_kernels(format_created_device() + format_eager("MatMul", "GPU:0"))
    assert not asks_for_kernels(format_eager("MatMul", "CPU:0"))
    assert not asks_for_kernels("step 1\n")


# ---------------------------------------------------------------- copies


def format_copy_warning(op: str, expected: str, actual: str) -> str:
    """Return a warning of the device policy "warn" (tensorflow/core/common_runtime/eager/execute.cc)."""
    return (
        f"2020-08-29 00:15:42.1: W tensorflow/core/common_runtime/eager/execute.cc:169] before computing {op} input #1 "
        f"was expected to be on {JOB}/device:{expected} but is actually on {JOB}/device:{actual} (operation running on "
        f"{JOB}/device:{expected}). This triggers a copy which can be a performance bottleneck.\n"
    )


def list_copies(text: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in make_placement_json(evaluate(text, None))["copies"]]


def test_copy_warnings_are_counted() -> None:
    text = format_copy_warning("MatMul", "GPU:0", "CPU:0") * 3 + format_eager("MatMul", "GPU:0")
    assert list_copies(text) == [("MatMul", "CPU:0", "GPU:0", 3)]
    answer = evaluate(text, None)
    assert answer.data.count_by_device == {"GPU:0": 1}
    assert any(
        "copied from CPU:0 to GPU:0 3 times, for MatMul." in finding.explanation
        for finding in answer.findings
    )


def test_copy_operations_are_counted() -> None:
    nodes = [
        ("x/_12", "_Send", "GPU:0"), ("x/_13", "_Recv", "CPU:0"), ("y/_1", "_HostSend", "CPU:0"),
        ("z", "_CopyFromGpuToHost", "GPU:0"), ("MatMul", "MatMul", "GPU:0"),
        ("_send_loss_0", "_Send", "CPU:0"), ("_recv_x_0", "_Recv", "CPU:0"),
    ]  # fmt: skip
    text = "".join(
        f"{prefix}{node}: ({op}): {JOB}/device:{device}\n"
        for node, op, device in nodes
        for prefix in ("", f"{LOG_PREFIX}placer.cc:54] ")
    )
    assert list_copies(text) == [
        ("_HostSend", "CPU:0", None, 1),
        ("_Recv", None, "CPU:0", 1),
        ("_CopyFromGpuToHost", "GPU:0", None, 1),
        ("_Send", "GPU:0", None, 1),
    ]
    assert evaluate(text, None).data.count_by_device == {"CPU:0": 4, "GPU:0": 3}


def test_device_changes_are_no_copies() -> None:
    text = (format_eager("MatMul", "GPU:0") * 3 + format_eager("Add", "CPU:0")) * 12 + format_eager(
        "Add", "CPU:0"
    )
    answer = evaluate(text, None)
    assert list_copies(text) == []
    assert [(item.previous_device, item.device, item.count) for item in answer.data.device_changes] == [
        ("GPU:0", "CPU:0", 12),
        ("CPU:0", "GPU:0", 11),
    ]
    assert any("often changed" in item.title for item in answer.findings)


def test_function_call_ends_the_device_sequence() -> None:
    text = (
        format_eager("MatMul", "GPU:0")
        + format_eager("__inference_f_1", "CPU:0")
        + format_eager("Add", "CPU:0")
    )
    assert evaluate(text, None).data.device_changes == ()


def test_graph_nodes_give_no_device_changes() -> None:
    nodes = f"a: (MatMul): {JOB}/device:GPU:0\nb: (Add): {JOB}/device:CPU:0\n" * 20
    assert evaluate(nodes, None).data.device_changes == ()


def test_refusal_of_the_corpus_has_its_kernel_list() -> None:
    corpus = (
        Path(__file__).parents[4] / "shared" / "corpus" / "placement" / "refused-bfloat16-conv" / "log.txt"
    )
    if not corpus.exists():
        pytest.skip("the corpus is not here")
    (refusal,) = read_placement([corpus.read_bytes()]).refusals
    assert refusal.lists_kernels
