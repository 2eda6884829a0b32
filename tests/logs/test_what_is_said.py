"""Texts of a log report: they state what the lines prove, and no more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tfdoctor.compat import Compat
from tfdoctor.core.findings import Cause
from tfdoctor.logs import report as log_report
from tfdoctor.logs.log_context import Decision
from tfdoctor.logs.report import LogReport, diagnose_log

COMPAT = Compat.load()
TIME = "2020-05-01 10:00:00.000001: "
DSO_LOADER = TIME + "{} tensorflow/stream_executor/platform/default/dso_loader.cc:55] "
GPU_DEVICE = TIME + "I tensorflow/core/common_runtime/gpu/gpu_device.cc:"
GPU = (
    GPU_DEVICE
    + "1247] Created TensorFlow device (/job:localhost/replica:0/task:0/device:GPU:0 with 7000 MB memory) -> "
    "physical GPU (device: 0, name: GeForce GTX 1080, pci bus id: 0000:01:00.0, compute capability: 6.1)\n"
)
CUINIT = TIME + "E tensorflow/stream_executor/cuda/cuda_driver.cc:318] failed call to cuInit: "
SKIPPED = "Cannot dlopen some GPU libraries.\nSkipping registering GPU devices...\n"
PRIVILEGES = (
    TIME
    + "E tensorflow/core/profiler/internal/gpu/cupti_tracer.cc:1441] function cupti_interface_->Subscribe( "
    "&subscriber_, (CUpti_CallbackFunc)ApiCallback, this)failed with error CUPTI_ERROR_INSUFFICIENT_PRIVILEGES\n"
)


def make_missing(name: str, path: str = "") -> str:
    tail = f": No such file or directory; LD_LIBRARY_PATH: {path}" if path else ""
    message = f"Could not load dynamic library '{name}'; dlerror: {name}: cannot open shared object file"
    return f"{DSO_LOADER.format('W')}{message}{tail}\n"


def make_opened(*names: str) -> str:
    return "".join(f"{DSO_LOADER.format('I')}Successfully opened dynamic library {name}\n" for name in names)


def make_report(text: str) -> LogReport:
    return diagnose_log([text.encode()], COMPAT, "log.txt")


def test_log_that_ends_before_the_registration() -> None:
    report = make_report(GPU_DEVICE + "1746] Adding visible gpu devices: 0, 1\n")
    assert (report.cause, report.registered_devices) == (Cause.HEALTHY, ())
    assert "takes 2 GPUs; the log ends before TensorFlow registers GPUs" in report.summary
    assert "registered 1 GPU (GeForce GTX 1080)" in make_report(GPU).summary


def test_error_code_of_the_driver_is_named() -> None:
    report = make_report(CUINIT + "CUDA_ERROR_NOT_FOUND: named symbol not found\n")
    assert report.cause is Cause.DRIVER_INIT_UNKNOWN
    assert report.root_finding is not None
    assert "CUDA_ERROR_NOT_FOUND" in report.root_finding.explanation
    assert "CUDA_ERROR_UNKNOWN" not in report.root_finding.explanation
    unknown = make_report(CUINIT + "CUDA_ERROR_UNKNOWN: unknown error\n")
    assert unknown.root_finding is not None
    assert "CUDA_ERROR_UNKNOWN (999)" in unknown.root_finding.explanation
    runtime = make_report("InternalError: cudaGetDevice() failed. Status: initialization error\n")
    assert runtime.cause is Cause.DRIVER_INIT_UNKNOWN
    assert "CUDA does not start in this process" in runtime.summary


def test_missing_kernel_image_of_an_unknown_gpu() -> None:
    image = "CUDA runtime implicit initialization on GPU:0 failed. Status: device kernel image is invalid\n"
    report = make_report(image)
    assert report.cause is Cause.GPU_TOO_OLD
    assert Cause.GPU_TOO_NEW in report.other_causes
    assert "no code that the card can run" in report.summary
    device = GPU_DEVICE + "1720] Found device 0 with properties: \n"
    device += "pciBusID: 0000:01:00.0 name: Tesla K20c computeCapability: 3.5\n"
    assert "no code for a card as old as this one" in make_report(device + image).summary


def test_missing_cudnn_of_an_old_release_does_not_exclude_a_gpu() -> None:
    old = "I tensorflow/stream_executor/dso_loader.cc:105] Couldn't open CUDA library libcudnn.so.5.\n"
    report = make_report(old)
    assert (report.cause, report.gpu_registered) == (Cause.CUDNN_MISSING, None)
    assert "did not use the GPU" not in report.headline
    assert make_report(make_missing("libcudnn.so.7") + SKIPPED).gpu_registered is False


@pytest.mark.parametrize("prompt", ["$ ", "± ", "(env) user@host:~/w$ ", ""])
def test_variable_before_a_command_hides_gpus(prompt: str) -> None:
    rest = make_opened("libcudart.so.10.1", "libcublas.so.10")
    report = make_report(f'{prompt}CUDA_VISIBLE_DEVICES="" python train.py\n{rest}')
    assert report.cause is Cause.HIDDEN_BY_ENV
    assert (
        make_report(f"You can also try CUDA_VISIBLE_DEVICES=-1 python train.py\n{rest}").cause
        is Cause.INCONCLUSIVE
    )
    assert make_report(f"{prompt}CUDA_VISIBLE_DEVICES=0 python train.py\n{rest}").cause is Cause.INCONCLUSIVE
    assert (
        make_report(f'{prompt}CUDA_VISIBLE_DEVICES="" python a.py\n{rest}{GPU}').cause
        is not Cause.HIDDEN_BY_ENV
    )


def test_cudnn_execution_failure_is_no_init_failure() -> None:
    work = "  Profiling failure on CUDNN engine 7: UNKNOWN: CUDNN_STATUS_EXECUTION_FAILED\n"
    report = make_report(work)
    assert report.cause is Cause.CUDNN_INIT_FAILED
    assert "failed at work" in report.summary
    handle = "E cuda_dnn.cc:329] Could not create cudnn handle: CUDNN_STATUS_INTERNAL_ERROR\n"
    assert "does not start" in make_report(handle + work).summary


def test_diagnostics_alone_show_a_missing_libcuda() -> None:
    diagnostics = (
        TIME
        + "I tensorflow/stream_executor/cuda/cuda_diagnostics.cc:200] libcuda reported version is: Not found: "
    )
    diagnostics += "was unable to find libcuda.so DSO loaded into this program\n"
    kernel = (
        TIME
        + "I tensorflow/stream_executor/cuda/cuda_diagnostics.cc:204] kernel reported version is: 418.67.0\n"
    )
    report = make_report(diagnostics + kernel)
    assert (report.cause, report.gpu_registered) == (Cause.NO_DRIVER, False)
    assert "kernel module is there" in report.summary
    assert make_report(diagnostics).cause is Cause.NO_DRIVER
    assert make_report(diagnostics + kernel + GPU).cause is Cause.HEALTHY


def test_denied_counters_are_no_missing_cupti() -> None:
    report = make_report(GPU + PRIVILEGES)
    assert report.root_finding is not None
    assert "may not read the GPU's counters" in report.root_finding.title
    assert "LD_LIBRARY_PATH" not in report.root_finding.remedies[0].text
    assert "--cap-add=SYS_ADMIN" in report.root_finding.remedies[0].text
    assert report.gpu_registered is True
    missing = make_report(GPU + make_missing("libcupti.so.10.1"))
    assert missing.root_finding is not None
    assert "extras/CUPTI" in missing.root_finding.remedies[0].text


@pytest.mark.parametrize("path", ["/usr/local/cuda/lib64", "/usr/local/cuda-10.1/lib64"])
def test_search_path_alone_does_not_prove_another_cuda(path: str) -> None:
    report = make_report(make_missing("libcudart.so.10.1", path=path) + SKIPPED)
    assert report.cause is Cause.LIBS_WRONG_VERSION
    assert report.root_finding is not None
    assert "LD_LIBRARY_PATH names a CUDA" in report.summary
    assert "A different CUDA version" not in report.summary + report.root_finding.explanation
    other = make_report(make_missing("libcudart.so.10.1", path="/usr/local/cuda-11.2/lib64") + SKIPPED)
    assert "A different CUDA version" in other.summary


NO_DRIVER_TITLE, OOM_TITLE = "no NVIDIA driver was available where this ran", "the GPU ran out of memory"
WRONG_TITLE = "a different CUDA version is installed than this TensorFlow opens"
VERSIONS_TITLE = "TF did not use the GPU: CUDA 10.0 is installed, but it needs CUDA 10.1"
VERSIONS = {"mismatched_cuda_versions": ("10.0", "10.1")}


@pytest.mark.parametrize(
    ("cause", "is_used", "fields", "missing", "share", "expected"),
    [
        (Cause.NO_DRIVER, False, {}, [], "", f"TF did not use the GPU: {NO_DRIVER_TITLE}."),
        (Cause.NO_DRIVER, False, {}, [], "1 of 2", f"TF did not use the GPU in 1 of 2: {NO_DRIVER_TITLE}."),
        (Cause.NO_DRIVER, None, {}, [], "", f"TF may not have used the GPU: {NO_DRIVER_TITLE}."),
        (Cause.OOM, True, {}, [], "1 of 2", f"TF found the GPU but failed on it in 1 of 2: {OOM_TITLE}."),
        (Cause.CUPTI_MISSING, True, {}, [], "", "TF: "),
        (Cause.OOM, True, {"framework": "PyTorch"}, [], "", f"PyTorch: {OOM_TITLE}."),
        (Cause.OOM, True, {"mentions_tensorflow": False}, [], "", "TF found the GPU but failed on it: "),
        (Cause.NO_DRIVER, False, {"mentions_tensorflow": False}, [], "", f"N{NO_DRIVER_TITLE[1:]}."),
        (Cause.LIBS_WRONG_VERSION, False, {}, ["a", "b", "c"], "", f"TF did not use the GPU: {WRONG_TITLE}: a, b and 1 more."),
        (Cause.LIBS_WRONG_VERSION, False, VERSIONS, ["a"], "", f"{VERSIONS_TITLE} (a)."),
        (Cause.LIBS_WRONG_VERSION, False, VERSIONS, ["a", "libcudart.so"], "", f"{VERSIONS_TITLE} (libcudart.so and 1 more)."),
        (Cause.OOM, True, VERSIONS, ["a"], "", f"TF found the GPU but failed on it: {OOM_TITLE}."),
    ],
)  # fmt: skip
def test_headline_says_whether_the_gpu_was_used(
    cause: Cause, is_used: bool | None, fields: dict[str, Any], missing: list[str], share: str, expected: str
) -> None:
    values = {"mismatched_cuda_versions": None, "framework": None, "mentions_tensorflow": True, **fields}
    context: Any = SimpleNamespace(origin=SimpleNamespace(name="TF"), **values)
    headline = log_report._make_headline(context, Decision(cause), missing, is_used=is_used, share=share)
    assert headline.startswith(expected)
    assert headline == expected or not expected.endswith(".")


@pytest.mark.parametrize(
    ("signature", "cause", "is_registered", "text"),
    [
        ("xla-gpu-listed", Cause.NO_DRIVER, False, "An XLA_GPU is not a registered GPU"),
        ("xla-on-cuda", Cause.NO_DRIVER, False, "XLA naming the card"),
        ("device-found", Cause.NO_DRIVER, False, "Finding a device"),
        ("device-found", Cause.OOM, True, None),
        ("cuda-not-found", Cause.LIBS_NOT_INSTALLED, False, "means the library libcudart"),
        ("cuda-not-found", Cause.OOM, True, "means the library libcudart"),
        ("cuda-not-found", Cause.NO_DRIVER, False, None),
        ("cuda-not-found", Cause.HEALTHY, True, None),
        ("nothing", Cause.OOM, False, None),
    ],
)
def test_messages_that_are_easily_misread_are_explained(
    signature: str, cause: Cause, is_registered: bool, text: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_report, "_make_evidence", lambda *_: ())
    log = SimpleNamespace(
        has=lambda name: name == signature, list_events=lambda _: [SimpleNamespace(get=lambda _: "")]
    )
    context: Any = SimpleNamespace(log=log, registration_event=object() if is_registered else None)
    findings = log_report._make_misread_findings(context, Decision(cause), "log.txt")
    assert len(findings) == (text is not None)
    assert all(text in finding.explanation for finding in findings if text is not None)
