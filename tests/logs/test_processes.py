# ruff: noqa: E501 - lines of logs are long
"""Logs of several processes and frameworks: they are separated if the log allows it, and each is listed."""

from __future__ import annotations

import re

import pytest

from tfdoctor.compat import Compat
from tfdoctor.core.findings import Cause
from tfdoctor.logs.processes import find_label
from tfdoctor.logs.report import LogReport, diagnose_log
from tfdoctor.render.log import make_log_json, render_log
from tfdoctor.render.log_markdown import make_log_markdown

COMPAT = Compat.load()
TIMESTAMP = "2020-05-01 10:00:00.000001: "
GPU = (
    TIMESTAMP
    + "I tensorflow/core/common_runtime/gpu/gpu_device.cc:1247] Created TensorFlow device (/job:localhost/replica:0/task:0/device:GPU:0 with 7000 MB memory) -> physical GPU (device: 0, name: GeForce GTX 1080, pci bus id: 0000:01:00.0, compute capability: 6.1)\n"
)
NO_DEVICE = (
    TIMESTAMP
    + "E tensorflow/stream_executor/cuda/cuda_driver.cc:318] failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected\n"
)
UNKNOWN = (
    TIMESTAMP
    + "E tensorflow/stream_executor/cuda/cuda_driver.cc:318] failed call to cuInit: CUDA_ERROR_UNKNOWN: unknown error\n"
)
OOM = (
    TIMESTAMP
    + "E tensorflow/stream_executor/cuda/cuda_driver.cc:924] failed to allocate 2.00G (2147483648 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY\n"
)
MISSING = (
    TIMESTAMP
    + "W tensorflow/stream_executor/platform/default/dso_loader.cc:55] Could not load dynamic library 'libcudnn.so.7'; dlerror: libcudnn.so.7: cannot open shared object file\n"
)
OPENED = (
    TIMESTAMP
    + "I tensorflow/stream_executor/platform/default/dso_loader.cc:44] Successfully opened dynamic library libcudnn.so.7\n"
)
SKIPPED = (
    TIMESTAMP + "W tensorflow/core/common_runtime/gpu/gpu_device.cc:1663] Cannot dlopen some GPU libraries.\n"
)


def make_report(*parts: str) -> LogReport:
    return diagnose_log(["".join(parts).encode()], COMPAT, "log.txt")


def prefix_lines(mark: str, text: str) -> str:
    """Return the text with this prefix before each line."""
    return "".join(f"{mark}{line}\n" for line in text.splitlines())


def causes_by_label(report: LogReport) -> dict[str, str | None]:
    """Return the cause of each process by its label; None for frameworks other than TensorFlow."""
    return {process.label: process.cause.value if process.cause else None for process in report.processes}


@pytest.mark.parametrize(
    ("first", "second", "labels"),
    [
        ("(pid=7428) ", "(pid=7411) ", ("pid 7428", "pid 7411")),
        ("(Worker pid=7428) ", "(Worker pid=7411, ip=10.0.0.3) ", ("Worker pid 7428", "Worker pid 7411")),
        ("[1,0]<stderr>:", "[1,1]<stderr>:", ("rank 0", "rank 1")),
        (
            "Thu Aug 29 21:41:02 2019[0]<stderr>:",
            "Thu Aug 29 21:41:03 2019[1]<stderr>:",
            ("rank 0", "rank 1"),
        ),
        ("0: ", "1: ", ("task 0", "task 1")),
        ("node-11: ", "node-12: ", ("node-11", "node-12")),
        ("trainer_1  | ", "trainer_2  | ", ("trainer_1", "trainer_2")),
        ("[pod/train-0/main] ", "[pod/train-1/main] ", ("train-0/main", "train-1/main")),
        (
            "Nov 20 12:30:30 host python3[123]: ",
            "Nov 20 12:30:31 host python3[124]: ",
            ("python3[123]", "python3[124]"),
        ),
        ("[rank0]: ", "[rank1]: ", ("rank 0", "rank 1")),
    ],
)
def test_prefix_names_the_process(first: str, second: str, labels: tuple[str, str]) -> None:
    report = make_report(
        prefix_lines(first, GPU),
        prefix_lines(second, OPENED + MISSING + SKIPPED),
        prefix_lines(first, "Epoch 1/3\n"),
    )
    assert causes_by_label(report) == {labels[0]: "healthy", labels[1]: "cudnn-missing"}
    assert report.cause is Cause.CUDNN_MISSING, "a healthy process does not hide a sick one"
    assert report.gpu_registered is True
    assert [len(process.registered_devices) for process in report.processes] == [1, 0]
    assert "1 of 2 processes" in (report.root_finding.explanation if report.root_finding else "")


IMPORT_ERROR = """\
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    import tensorflow as tf
ImportError: libcublas.so.9.0: cannot open shared object file: No such file or directory
"""


@pytest.mark.parametrize(
    "format_mark",
    [
        "{}: ",
        " {}: ",
        "1{}: ",
        "[1,{}]<stderr>:",
        "[prterun-node7-4021@1,{}]<stderr>: ",
        "[rank{}]: ",
        "[default{}]:",
        "(train_fn pid=742{}) ",
        "(RayTrainWorker pid=742{}, ip=10.0.0.3) ",
        "[pod/train-{}/main] ",
        "train-{}  | ",
        "train_{}    | ",
    ],
)
def test_lines_without_timestamp_belong_to_their_rank(format_mark: str) -> None:
    """Each line of a launcher's output has the mark of its rank, also those that TensorFlow did not write."""
    marks = [format_mark.format(rank) for rank in range(3)]
    report = make_report(
        *(
            prefix_lines(marks[0], GPU),
            prefix_lines(marks[1], IMPORT_ERROR),
            prefix_lines(marks[2], IMPORT_ERROR),
        ),
        prefix_lines(marks[0], "Skipping a step\n"),
    )
    assert [process.cause for process in report.processes] == [
        Cause.HEALTHY,
        Cause.IMPORT_MISSING_CUDA_LIB,
        Cause.IMPORT_MISSING_CUDA_LIB,
    ]
    assert "did not use the GPU in 2 of 3 processes" in report.headline
    screen = render_log(report, width=100)
    labels = [process.label for process in report.processes]
    assert f"✗ {labels[1]} and {labels[2]}: " in screen
    assert screen.index("✗ " + labels[1]) < screen.index("ImportError")


def test_numbered_list_of_devices_has_no_ranks() -> None:
    devices = "".join(
        f"{index}: PhysicalDevice(name='/physical_device:GPU:{index}', device_type='GPU')\n"
        for index in range(2)
    )
    assert make_report(GPU, devices, "0: Tesla T4\n").processes == ()


@pytest.mark.parametrize("mark", ["{}: ", "[1,{}]<stderr>:", "[pod/train-{}/main] "])
def test_rank_without_device_is_not_hidden(mark: str) -> None:
    """The ranks of a job can run on different machines, so another one's GPU says nothing about this one's."""
    report = make_report(prefix_lines(mark.format(0), GPU), prefix_lines(mark.format(1), NO_DEVICE))
    assert report.cause is Cause.NO_DEVICE
    assert "1 of 2 processes" in report.headline


@pytest.mark.parametrize(
    "mark", ["ERROR:", "stderr: ", "2024-01-01T10:00:00.123456789Z stderr F ", "> ", "INFO: ", "    "]
)
def test_other_prefixes_name_no_process(mark: str) -> None:
    assert make_report(prefix_lines(mark, GPU), prefix_lines(f"{mark}", "Epoch 1/3\n")).processes == ()
    assert find_label(mark.strip(), GPU) == ""


def test_single_process_is_not_listed() -> None:
    assert make_report(GPU, OOM, GPU).processes == ()
    assert make_report("hello\n").processes == ()


def test_library_opened_by_one_process_can_be_missing_in_another() -> None:
    report = make_report(prefix_lines("(pid=1) ", MISSING + SKIPPED), prefix_lines("(pid=2) ", OPENED + GPU))
    assert report.missing_sonames == ("libcudnn.so.7",)
    assert report.cause is Cause.CUDNN_MISSING


def test_hidden_gpus_of_a_parameter_server_are_no_problem() -> None:
    report = make_report(prefix_lines("(pid=1) ", NO_DEVICE), prefix_lines("(pid=2) ", GPU))
    assert causes_by_label(report) == {"pid 1": "hidden-by-env", "pid 2": "healthy"}
    assert report.cause in (Cause.HEALTHY, Cause.HIDDEN_BY_ENV)
    with_oom = make_report(
        prefix_lines("(pid=1) ", NO_DEVICE),
        prefix_lines("(pid=2) ", GPU),
        prefix_lines("(pid=3) ", GPU + OOM),
    )
    assert with_oom.cause is Cause.OOM


def test_contradiction_begins_another_run() -> None:
    report = make_report(NO_DEVICE, GPU)
    assert causes_by_label(report) == {"run 1": "hidden-by-env", "run 2": "healthy"}
    assert report.cause is Cause.HEALTHY
    twice = make_report(UNKNOWN, "some output\n", UNKNOWN)
    assert causes_by_label(twice) == {"run 1": "driver-init-unknown", "run 2": "driver-init-unknown"}


def test_prompt_begins_a_run_and_the_last_run_counts() -> None:
    report = make_report(
        "$ python train.py\n",
        MISSING,
        SKIPPED,
        "$ export LD_LIBRARY_PATH=/x\n$ python train.py\n",
        OPENED,
        GPU,
    )
    assert causes_by_label(report) == {"run 1": "cudnn-missing", "run 2": "healthy"}
    assert report.cause is Cause.HEALTHY


def test_threads_of_one_time_messages_separate_processes() -> None:
    def format_message(thread: int, message: str) -> str:
        return f"E0000 00:00:1774441203.701207 {thread} {message}\n"

    failed = "cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error: Failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected"
    created = "gpu_device.cc:2020] Created device /job:localhost/replica:0/task:0/device:GPU:0 with 6100 MB memory:  -> device: 0, name: NVIDIA GeForce RTX 2060 SUPER, pci bus id: 0000:29:00.0, compute capability: 7.5"
    factory = "cuda_dnn.cc:8310] Unable to register cuDNN factory: Attempting to register factory for plugin cuDNN when one has already been registered"
    report = make_report(
        format_message(11, factory),
        format_message(22, factory),
        format_message(11, created),
        format_message(22, failed),
    )
    assert causes_by_label(report) == {"process 11": "healthy", "process 22": "hidden-by-env"}
    assert (
        make_report(
            format_message(11, factory),
            format_message(11, created),
            format_message(12, "cuda_dnn.cc:529] Loaded cuDNN version 90100"),
        ).processes
        == ()
    )


def test_other_frameworks_are_listed_without_a_cause() -> None:
    report = make_report(
        GPU,
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n",
        "Total BFLOPS 65.879 \n",
    )
    assert causes_by_label(report) == {"TensorFlow": "healthy", "PyTorch": None, "Darknet": None}
    assert report.cause is Cause.HEALTHY
    assert "ran out of GPU memory (line 2)" in report.processes[1].summary


def test_processes_beyond_the_limit_are_counted() -> None:
    report = make_report(*(prefix_lines(f"(pid={n}) ", MISSING + SKIPPED) for n in range(300)))
    assert len(report.processes) == 256
    assert report.extra_process_count == 44
    screen = render_log(report)
    assert re.search(r"✗ pid 0, pid 1, pid 2 and 253 more: .*and 44 more processes \(-v\)", screen, re.DOTALL)
    assert "and 260 more" in make_log_markdown(report)
    assert make_log_json(report)["more_processes"] == 44


def test_every_format_lists_the_processes() -> None:
    report = make_report(prefix_lines("(pid=1) ", GPU), prefix_lines("(pid=2) ", UNKNOWN))
    for text in (render_log(report), make_log_markdown(report)):
        assert "pid 1" in text
        assert "pid 2" in text
    (first, second) = make_log_json(report)["processes"]
    assert (first["cause"], first["gpu_registered"], first["framework"]) == ("healthy", True, "TensorFlow")
    assert first["devices"][0]["name"] == "GeForce GTX 1080"
    assert (second["cause"], second["devices"], second["line"]) == ("driver-init-unknown", [], 2)


def test_rank_without_a_device_is_explained_without_a_contradiction() -> None:
    """The driver answers, so it is installed. The host that the log names is named."""
    report = make_report(
        prefix_lines("0: ", GPU),
        prefix_lines(
            "1: ",
            "failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected\n"
            "retrieving CUDA diagnostic information for host: gpu-n02\n"
            "srun: error: gpu-n02: task 1: Exited with exit code 1\n",
        ),
    )
    assert report.cause is Cause.NO_DEVICE
    assert report.root_finding is not None
    assert "1 of 2 processes (on gpu-n02)" in report.headline
    assert "not installed" not in report.root_finding.explanation
    assert "no NVIDIA driver" not in report.root_finding.explanation
    assert "the driver's kernel module is not loaded" in report.root_finding.explanation


def test_no_device_under_wsl_leads_to_the_driver_of_windows() -> None:
    report = make_report(
        "$ uname -r\n5.15.133.1-microsoft-standard-WSL2\n"
        "failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected\n"
    )
    root = report.root_finding
    assert report.cause is Cause.NO_DEVICE
    assert root is not None
    assert "/usr/lib/wsl/lib" in root.explanation
    assert "kernel module" not in root.explanation
    assert "driver in Windows" in root.remedies[0].text
