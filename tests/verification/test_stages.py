"""Interpretation of the lines of payload/stages.py and of how its process ended."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tfdoctor.system import CommandResult, Failure
from tfdoctor.verification.stages import MARKER, Limits, parse_payload_results

LIMITS = Limits(10, 20, 30, 40, 50)
IMPORTED: tuple[dict[str, Any], ...] = (
    {"stage": "import", "status": "begin"},
    {"stage": "import", "status": "passed", "detail": "TensorFlow 2.21.0 on Python 3.11.7", "seconds": 4.5},
    {"stage": "visible", "status": "begin"},
    {"stage": "visible", "status": "passed", "seconds": 1, "devices": ["/physical_device:GPU:0"]},
)
COMPUTING: tuple[dict[str, Any], ...] = (
    *IMPORTED,
    {"stage": "compute", "status": "begin"},
    {"stage": "compute", "computing": 0, "dtype": "float32"},
)
PTX = (
    "W0000 00:00:1 2 gpu_device.cc:2433] TensorFlow was not built with CUDA kernel binaries compatible with compute "
    "capability 12.0a. CUDA kernels will be jit-compiled from PTX, which could take 30 minutes or longer.\n"
)


def make_result(
    *lines: dict[str, Any], code: int | None = 0, failure: Failure | None = None, stderr: str = ""
) -> CommandResult:
    """Return the result of a process that printed these payload lines."""
    stdout = "".join(f"\n{MARKER}{json.dumps(line)}\n" for line in lines)
    return CommandResult(("python",), code, stdout, stderr, failure, seconds=100.0)


def make_heartbeats(*busy: float) -> list[dict[str, Any]]:
    """Return heartbeat lines with these shares of busy time."""
    return [{"stage": "compute", "status": "running", "busy": share} for share in busy]


def get_failed_detail(process: CommandResult, stage: str) -> str:
    """Return the detail of a stage that must have failed."""
    failed = parse_payload_results(process, LIMITS).find_stage(stage)
    assert failed is not None
    assert failed.status == "failed"
    return failed.detail


def test_complete_run_is_read() -> None:
    answer = parse_payload_results(
        make_result(
            *COMPUTING,
            {"stage": "compute", "gpu": 0, "dtype": "float32", "ok": True},
            {"stage": "compute", "gpu": 0, "dtype": "float16", "ok": False, "error": "off"},
            {"stage": "compute", "status": "failed", "detail": "GPU:0 is off", "error": "off", "seconds": 2},
            {"end": True},
        ),
        LIMITS,
    )
    assert [(stage.name, stage.status, stage.seconds) for stage in answer.stages] == [
        ("import", "passed", 4.5),
        ("visible", "passed", 1.0),
        ("compute", "failed", 2.0),
    ]
    assert answer.device_names == ("/physical_device:GPU:0",)
    assert answer.error_by_gpu == {0: "off"}
    assert answer.format_gpu_results() == ["GPU:0 failed: off"]
    assert (answer.first_error, answer.timed_out) == ("off", False)


def test_crash_after_the_end_is_ignored() -> None:
    answer = parse_payload_results(make_result(*IMPORTED, {"end": True}, code=-11), LIMITS)
    assert [stage.status for stage in answer.stages] == ["passed", "passed"]
    assert not answer.first_error


def test_end_between_stages_fails_the_next_stage() -> None:
    process = make_result(*IMPORTED, code=137)
    assert "SIGKILL: usually the memory was used up" in get_failed_detail(process, "compute")
    assert parse_payload_results(process, LIMITS).get_status("cudnn") is None


@pytest.mark.parametrize("code", [-14, 142])
def test_sigalrm_is_an_exceeded_deadline(code: int) -> None:
    process = make_result(*COMPUTING, code=code)
    assert get_failed_detail(process, "compute").startswith("did not end within 30 s on GPU:0 (float32).")
    answer = parse_payload_results(process, LIMITS)
    assert answer.timed_out
    assert answer.error_by_gpu[0].startswith("did not end within 30 s")
    compute = answer.find_stage("compute")
    assert compute is not None
    assert compute.seconds == 94.5  # without the time of the other stages


def test_compiling_is_distinguished_from_a_hang() -> None:
    def late(*lines: dict[str, Any], stderr: str = "") -> str:
        process = make_result(*COMPUTING, *lines, code=None, failure=Failure.TIMEOUT, stderr=stderr)
        return get_failed_detail(process, "compute")

    assert "TensorFlow said that it compiles PTX" in late(*make_heartbeats(1.0, 1.0), stderr=PTX)
    assert "was idle" in late(*make_heartbeats(1.0, 1.0, 0.0, 0.01, 0.0))
    assert "was idle" in late(
        *make_heartbeats(1.0, 0.0, 0.01, 0.0), stderr=PTX
    )  # compiling would keep the process busy
    assert "was busy. Compiling PTX" in late(*make_heartbeats(0.0, 1.0, 1.0, 1.0))
    unknown = late()
    assert "Compiling PTX" in unknown
    assert "busy" not in unknown
    assert "idle" not in unknown


def test_deadline_in_other_stages() -> None:
    slow_import = make_result({"stage": "import", "status": "begin"}, code=-14, stderr=PTX)
    assert get_failed_detail(slow_import, "import") == "did not end within 10 s."
    stuck_nccl = make_result(*IMPORTED, {"stage": "nccl", "status": "begin"}, code=-14)
    assert "NCCL_P2P_DISABLE=1" in get_failed_detail(stuck_nccl, "nccl")
    idle = [{"stage": "nccl", "status": "running", "busy": 0.0}] * 3
    stuck_nccl = make_result(*IMPORTED, {"stage": "nccl", "status": "begin"}, *idle, code=-14, stderr=PTX)
    assert "NCCL_P2P_DISABLE=1" in get_failed_detail(stuck_nccl, "nccl")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (-4, "an illegal instruction (SIGILL)"),
        (132, "an illegal instruction (SIGILL)"),
        (-11, "a segmentation fault (SIGSEGV)"),
        (-6, "abort (SIGABRT)"),
        (137, "SIGKILL: usually the memory was used up"),
        (-31, "signal 31"),
        (3, "TensorFlow exited with status 3"),
        (255, "TensorFlow exited with status 255"),
    ],
)
def test_exit_status_is_described(code: int, said: str) -> None:
    text = get_failed_detail(make_result(*COMPUTING, code=code), "compute")
    assert said in text
    assert "on GPU:0 (float32)" in text


@pytest.mark.parametrize(
    ("fatal", "kept"),
    [
        (
            "2026-11-21 16:24:58.280033: F tensorflow/core/gpu_util.cc:31] Check failed: x",
            "gpu_util.cc:31] Check failed: x",
        ),
        (
            "F0000 00:00:1795278263.083682   24717 cuda_executor.cc:31] no",
            "cuda_executor.cc:31] no",
        ),
        ("Fatal Python error: Aborted", "Fatal Python error: Aborted"),
        ("  what():  std::bad_alloc", "what():  std::bad_alloc"),
    ],
)
def test_fatal_message_is_quoted(fatal: str, kept: str) -> None:
    stderr = f"2026-11-21 16:24:57.28: I tensorflow/x.cc:1] hello\n{fatal}\n  File a, line 1\n*** stack\n\n"
    assert get_failed_detail(make_result(*COMPUTING, code=-6, stderr=stderr), "compute").endswith(
        f"(float32). {kept}"
    )
    without_fatal = stderr.replace(fatal, "nothing")
    assert get_failed_detail(make_result(*COMPUTING, code=-6, stderr=without_fatal), "compute").endswith(
        "*** stack"
    )


def test_cuda_error_is_quoted_before_the_crash() -> None:
    """TensorFlow 2.10.1 prints this if a driver answers but does not compute."""
    stderr = (
        "2026-11-21 16:39:46.798430: E tensorflow/stream_executor/cuda/cuda_driver.cc:1177] failed to enqueue async "
        "memcpy from host to device: CUDA_ERROR_NOT_SUPPORTED: operation not supported; size: 4194304=0x400000\n"
        "2026-11-21 16:39:46.805129: F tensorflow/core/common_runtime/gpu/gpu_util.cc:386] CPU->GPU Memcpy failed\n"
    )
    text = get_failed_detail(make_result(*COMPUTING, code=-6, stderr=stderr), "compute")
    assert (
        "cuda_driver.cc:1177] failed to enqueue async memcpy from host to device: CUDA_ERROR_NOT_SUPP" in text
    )
    assert "; gpu_util.cc:386] CPU->GPU Memcpy failed" in text
    assert text.endswith("The driver that answers does not compute.")


def test_long_line_keeps_both_ends() -> None:
    fatal = (
        "2026-11-25 07:45:24.5: F x.cu.h:692] Non-OK-status: "
        + "x, " * 200
        + "status: INTERNAL: uncorrectable ECC"
    )
    text = get_failed_detail(make_result(*COMPUTING, code=-6, stderr=fatal), "compute")
    assert "x.cu.h:692] Non-OK-status: x, x" in text
    assert " … " in text
    assert text.endswith("status: INTERNAL: uncorrectable ECC")
    assert len(text) < 400
    fatal = f"F0000 00:00:1795594158.46   1 x.cu.h:692] Non-OK-status: {'x, ' * 200}\nStatus: INTERNAL: no\n*** Check"
    assert get_failed_detail(make_result(*COMPUTING, code=-6, stderr=fatal), "compute").endswith(
        "x, Status: INTERNAL: no"
    )


def test_python_that_exits_without_payload_lines() -> None:
    process = make_result(code=1, stderr="SyntaxError: invalid syntax\n")
    assert get_failed_detail(process, "import") == "Python exited with status 1. SyntaxError: invalid syntax"


@pytest.mark.parametrize(
    "line",
    [
        {"stage": "runtime", "status": "failed"},
        {"stage": ["import"], "status": "failed"},
        {"stage": "compute", "gpu": "0", "ok": True},
        {"stage": "visible", "devices": "many"},
        {"stage": "visible", "busy": "very", "status": "running"},
        {"stage": "visible", "status": ["passed"], "seconds": float("nan")},
    ],
)
def test_invalid_lines_are_ignored(line: dict[str, Any]) -> None:
    answer = parse_payload_results(make_result(*IMPORTED, line, {"end": True}), LIMITS)
    assert [stage.status for stage in answer.stages] == ["passed", "passed"]
    assert answer.device_names == ("/physical_device:GPU:0",)
    assert not answer.error_by_gpu


def test_broken_and_nested_lines_are_ignored() -> None:
    process = make_result(*IMPORTED, {"end": True})
    for noise in (f"{MARKER}{{", f"{MARKER}[1]", MARKER + "[" * 200_000, f"x{MARKER}{{}}"):
        broken = CommandResult(("python",), 0, f"{noise}\n{process.stdout}\n{noise}")
        assert len(parse_payload_results(broken, LIMITS).stages) == 2


def test_invalid_numbers_are_ignored() -> None:
    line = {"stage": "import", "status": "passed", "seconds": float("nan"), "detail": 7}
    stage = parse_payload_results(make_result(line, {"end": True}), LIMITS).find_stage("import")
    assert stage is not None
    assert (stage.seconds, stage.detail) == (0.0, "")


def test_error_before_a_crash_is_quoted_first() -> None:
    error = "InternalError: cudaGetDevice() failed. Status: cudaGetErrorString symbol not found."
    process = make_result(
        *IMPORTED,
        {"stage": "compute", "status": "begin"},
        {"stage": "compute", "gpu": 0, "ok": False, "error": f"{error}\nmore"},
        {"stage": "compute", "computing": 1, "dtype": "float32"},
        code=-6,
    )
    answer = parse_payload_results(process, LIMITS)
    text = get_failed_detail(process, "compute")
    assert text.startswith("InternalError: cudaGetDevice() failed")
    assert "Then TensorFlow was ended by abort (SIGABRT) on GPU:1 (float32)" in text
    assert answer.first_error == f"{error}\nmore"
    assert answer.error_by_gpu[0] == f"{error}\nmore"
    assert answer.error_by_gpu[1].startswith("TensorFlow was ended by abort")


@pytest.mark.parametrize(
    ("said", "means"),
    [
        (
            "InternalError: cudaGetDevice() failed. Status: cudaGetErrorString symbol not found.",
            "has no cudaGetErrorString: it is a stub, a stand-in, or cut off.",
        ),
        (
            "InternalError: cudaGetDevice() failed. Status: Error loading CUDA libraries. GPU will not be used.",
            "lacks the functions its name promises.",
        ),
        ("CUDA_ERROR_STUB_LIBRARY: CUDA driver is a stub library", "in place of the driver's."),
    ],
)
def test_unclear_errors_are_explained(said: str, means: str) -> None:
    line = {"stage": "compute", "status": "failed", "detail": f"GPU:0: {said}", "error": said}
    process = make_result(*IMPORTED, line, {"end": True})
    assert get_failed_detail(process, "compute").endswith(means)
    assert parse_payload_results(process, LIMITS).first_error == said


def test_other_errors_are_not_changed() -> None:
    line = {"stage": "compute", "status": "failed", "detail": "GPU:0: OOM when allocating"}
    assert (
        get_failed_detail(make_result(*IMPORTED, line, {"end": True}), "compute")
        == "GPU:0: OOM when allocating"
    )


def test_first_error_of_a_gpu_stays() -> None:
    lines = [
        {"stage": "compute", "gpu": 0, "ok": False, "error": "first"},
        {"stage": "compute", "gpu": 0, "ok": False, "error": "second"},
        {"stage": "compute", "gpu": 0, "ok": True},
        {"stage": "compute", "gpu": 1, "ok": False},
        {"stage": "compute", "gpu": 2, "ok": True},
        {"stage": "compute", "gpu": 3, "ok": 1},
        {"stage": "compute", "gpu": 4},
        {"stage": "cudnn", "gpu": 2, "ok": False, "error": "of cuDNN"},
    ]
    answer = parse_payload_results(make_result(*IMPORTED, *lines, {"end": True}), LIMITS)
    wrong = "the result is wrong"
    assert answer.error_by_gpu == {0: "first", 1: wrong, 2: "", 3: wrong}
    assert (answer.first_error, answer.count_correct_gpus()) == ("first", 1)
    assert answer.format_gpu_results()[1:3] == [f"GPU:1 failed: {wrong}", "GPU:2 ok"]
    located = 'Graph execution error:\n\nDetected at node x\n  File "a", line 1\n  the reason\n'
    for error, text in ((located, "the reason"), ("Node: x", "Node: x")):
        line = {"stage": "compute", "gpu": 0, "ok": False, "error": error}
        answer = parse_payload_results(make_result(*IMPORTED, line, {"end": True}), LIMITS)
        assert answer.format_gpu_results() == [f"GPU:0 failed: {text}"]


def test_failed_stage_has_the_first_of_its_errors() -> None:
    def get_error(**line: str) -> str:
        failed = {"stage": "compute", "status": "failed", **line}
        return parse_payload_results(make_result(*IMPORTED, failed), LIMITS).first_error

    assert get_error(error="whole", detail="short") == "whole"
    assert get_error(detail="short") == "short"
    devices = [f"/GPU:{number}" for number in range(300)]
    line = {"stage": "visible", "devices": devices, "topology": "first"}
    answer = parse_payload_results(
        make_result(*IMPORTED, line, {"stage": "nccl", "topology": "second"}, {"end": True}), LIMITS
    )
    assert (answer.device_names, answer.topology) == (tuple(devices[:256]), "first")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (-64, "was ended by signal 64."),
        (192, "was ended by signal 64."),
        (-65, "signal 65"),
        (193, "exited with status 193."),
        (128, "exited with status 128."),
        (129, "was ended by signal 1."),
        (0, "exited with status 0."),
    ],
)
def test_statuses_that_are_signals(code: int, said: str) -> None:
    detail = get_failed_detail(
        make_result(*IMPORTED, {"stage": "cudnn", "status": "begin"}, code=code), "cudnn"
    )
    assert detail.startswith("TensorFlow ")
    assert said in f"{detail}."


@pytest.mark.parametrize(
    ("stage", "busy", "said"),
    [
        ("compute", (0.0, 0.05, 0.05, 0.05), "Compiling PTX"),
        ("compute", (1.0, 0.04, 0.05, 0.05), "The process was idle: it waited for a driver or a card"),
        ("compute", (0.0, 0.5, 0.5, 0.5), "The process was busy. Compiling PTX"),
        ("compute", (1.0, 0.49, 0.5, 0.5), "Compiling PTX"),
        ("import", (0.0,), "The process was idle: it waited for the disk, or for a driver"),
        ("import", (1.0,), ""),
        ("import", (), ""),
    ],
)
def test_activity_at_the_deadline(stage: str, busy: tuple[float, ...], said: str) -> None:
    lines = [{"stage": stage, "status": "running", "busy": share} for share in busy]
    earlier = [{"stage": stage, "status": "running", "busy": 1.0}, {"stage": stage, "status": "begin"}]
    process = make_result(*(IMPORTED if stage == "compute" else ()), *earlier, *lines, code=-14)
    _, _, activity = get_failed_detail(process, stage).partition(" s.")
    assert activity.strip().startswith(said)
    assert bool(activity.strip()) == bool(said)


def test_lines_before_a_crash() -> None:
    """The last CUDA error counts if it is among the eight lines before the fatal one."""
    fatal = "Fatal Python error: Aborted"
    error = "E x.cc:1] CUDA_ERROR_ILLEGAL_ADDRESS"

    def get_end(*lines: str) -> str:
        process = make_result(*COMPUTING, code=-6, stderr="\n".join(lines))
        return get_failed_detail(process, "compute").partition("(float32). ")[2]

    assert get_end(error, *["x"] * 7, fatal) == f"{error}; {fatal}"
    assert get_end(error, *["x"] * 8, fatal) == fatal
    assert (
        get_end(error, "E x.cc:1] CUBLAS_STATUS_NOT_SUPPORTED", fatal)
        == f"E x.cc:1] CUBLAS_STATUS_NOT_SUPPORTED; {fatal}"
    )
    assert get_end(fatal, error) == fatal
    assert get_end("CUDA_ERROR_X peer access", "CUDA_ERROR_NO_DEVICE", "CUDNN_STATUS_SUCCESS", fatal) == fatal
    assert get_end(fatal, "Status: INTERNAL", "Status: no") == f"{fatal} Status: INTERNAL"
    assert get_end(fatal, "x") == fatal
    assert get_end(error) == error
    assert get_end("", "  ") == ""
    assert get_end(f"Fatal {'x' * 294}") == f"Fatal {'x' * 294}"
    assert get_end(f"Fatal {'x' * 295}") == f"Fatal {'x' * 104} … {'x' * 190}"


def test_killed_process_has_no_last_line() -> None:
    process = make_result(*COMPUTING, code=-9, stderr="a harmless line")
    assert get_failed_detail(process, "compute").endswith("the memory was used up on GPU:0 (float32).")
    process = make_result(*COMPUTING, code=-9, stderr="Fatal error\nmore")
    assert get_failed_detail(process, "compute").endswith("(float32). Fatal error")
    lines = ({"stage": "compute", "computing": 1}, {"stage": "compute", "gpu": 1, "ok": True})
    process = make_result(*COMPUTING, *lines, code=-9)
    assert (
        get_failed_detail(process, "compute")
        == "TensorFlow was ended by SIGKILL: usually the memory was used up."
    )
    process = make_result(*COMPUTING, {"stage": "compute", "computing": 1}, code=-9)
    assert get_failed_detail(process, "compute").endswith("used up on GPU:1.")
