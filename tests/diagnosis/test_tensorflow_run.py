"""Observations from a child process that runs TensorFlow, however it ends."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from rules.make_facts import COMPAT
from tfdoctor.core.findings import Cause
from tfdoctor.diagnosis.tensorflow_run import RunAnswer, make_observation, parse_run_answer
from tfdoctor.logs.dso import find_failed_opens
from tfdoctor.system import CommandResult, Failure
from tfdoctor.verification.stages import MARKER, Limits, parse_payload_results
from tfdoctor.verification.target_stages import _build_run_output

if TYPE_CHECKING:
    from collections.abc import Collection

    from tfdoctor.core.findings import Observation

LIBRARIES = {"libcudnn.so.9", "libcusolver.so.11", "libcuda.so.1"}
LOG = """\
2026-11-20 11:22:03.884964: I tensorflow/stream_executor/platform/default/dso_loader.cc:53] Could not dlopen library \
'libcudnn.so.9'; dlerror: libfoo.so.1: cannot open shared object file: No such file or directory; LD_LIBRARY_PATH: /a
I0000 00:00:1795176574.158179   23707 dso_loader.cc:63] Could not load dynamic library 'libcusolver.so.11'; dlerror: \
/b/libcusolver.so.11: file too short
I0000 00:00:1795176574.158179   23707 dso_loader.cc:63] Could not load dynamic library 'libnvinfer.so.8'; dlerror: \
libnvinfer.so.8: cannot open shared object file: No such file or directory
"""


def observe_answer(
    answer: dict[str, Any], result: CommandResult, libraries: Collection[str] = LIBRARIES
) -> Observation:
    """Return the observation for an answer of the payload and the result of its process."""
    return make_observation(parse_run_answer(answer, result), result, libraries, COMPAT)


def test_failed_opens_in_logs_of_all_versions() -> None:
    failed = find_failed_opens(LOG)
    assert [(failure.requested_soname, failure.missing_soname, failure.line) for failure in failed] == [
        ("libcudnn.so.9", "libfoo.so.1", 1),
        ("libcusolver.so.11", "libcusolver.so.11", 2),
        ("libnvinfer.so.8", "libnvinfer.so.8", 3),
    ]
    assert failed[0].error == "libfoo.so.1: cannot open shared object file: No such file or directory"
    import_error = find_failed_opens(
        "ImportError: libcublas.so.10.0: cannot open shared object file: No such file or directory"
    )
    assert [failure.requested_soname for failure in import_error] == ["libcublas.so.10.0"]


def test_no_registered_gpu_names_missing_libraries() -> None:
    observed = observe_answer(
        {"import_ok": True, "devices": [], "seconds": 5.81},
        CommandResult(("python",), 0, stderr=LOG),
    )
    assert (observed.import_ok, observed.gpu_registered, observed.gpu_count) == (True, False, 0)
    assert observed.missing_libraries == (
        "libcusolver.so.11",
        "libfoo.so.1",
    )  # TensorRT (libnvinfer) is optional


def test_failed_import_names_the_library() -> None:
    answer = {
        "import_ok": False,
        "error": "ImportError: libcublas.so.10.0: cannot open shared object file: No such",
    }
    observed = observe_answer(answer, CommandResult(("python",), 0), {"libcublas.so.10.0"})
    assert (observed.import_ok, observed.gpu_registered) == (False, False)
    assert observed.missing_libraries == ("libcublas.so.10.0",)


@pytest.mark.parametrize(
    ("result", "registered", "said"),
    [
        (CommandResult(("python",), -7, stderr="dying\n"), False, "TensorFlow was ended by signal 7: dying"),
        (
            CommandResult(("python",), None, failure=Failure.TIMEOUT, seconds=180),
            None,
            "did not answer within 180 s",
        ),
    ],
)
def test_killed_before_gpus_were_listed(result: CommandResult, registered: bool | None, said: str) -> None:
    observed = observe_answer({"import_ok": True}, result)
    assert observed.gpu_registered is registered
    assert said in observed.error


def test_killed_while_computing_keeps_listed_gpus() -> None:
    answer = {"import_ok": True, "devices": ["/physical_device:GPU:0"], "computing": 0}
    observed = observe_answer(answer, CommandResult(("python",), -6))
    assert observed.gpu_registered is True
    assert observed.computed == ("GPU:0 failed: TensorFlow was ended by signal 6",)


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        ("ModuleNotFoundError: No module named 'absl'", Cause.PACKAGE_CONFLICT),
        ("ValueError: numpy.dtype size changed, may indicate binary incompatibility", Cause.NUMPY_ABI),
        (
            "ImportError: libcublas.so.10.0: cannot open shared object file: No such",
            Cause.IMPORT_MISSING_CUDA_LIB,
        ),
        ("SystemError: nobody has seen this", Cause.INCONCLUSIVE),
    ],
)
def test_failed_import_has_a_cause(error: str, cause: Cause) -> None:
    observed = observe_answer({"import_ok": False, "error": error}, CommandResult(("python",), 0))
    assert observed.cause is cause


def format_stages(*lines: dict[str, Any]) -> str:
    """Return the standard output of the stages payload with these lines."""
    return "".join(f"{MARKER}{json.dumps(line)}\n" for line in lines)


IMPORTED = ({"stage": "import", "status": "begin"}, {"stage": "import", "status": "passed"})
LISTED = {"stage": "visible", "status": "passed", "devices": ["/physical_device:GPU:0"]}


@pytest.mark.parametrize(
    ("answer", "lines"),
    [
        ({"import_ok": True, "devices": []}, (*IMPORTED, {**LISTED, "devices": []}, {"end": True})),
        (
            {"import_ok": True, "devices": LISTED["devices"], "computed": ["GPU:0 ok"]},
            (
                *IMPORTED,
                LISTED,
                {"stage": "compute", "gpu": 0, "ok": True},
                {"stage": "compute", "status": "passed"},
                {"end": True},
            ),
        ),
        (
            {"import_ok": False, "error": "ModuleNotFoundError: No module named 'absl'"},
            (
                {
                    "stage": "import",
                    "status": "failed",
                    "error": "ModuleNotFoundError: No module named 'absl'",
                },
            ),
        ),
    ],
)
def test_both_payloads_give_the_same_observation(
    answer: dict[str, Any], lines: tuple[dict[str, Any], ...]
) -> None:
    """`check --deep` and `verify` must agree on the same behaviour of TensorFlow."""
    result = CommandResult(("python",), 0, stderr=LOG, seconds=2.0)
    deep = observe_answer(answer, result)
    staged = replace(result, stdout=format_stages(*lines))
    verified = make_observation(
        _build_run_output(parse_payload_results(staged, Limits()), staged), staged, LIBRARIES, COMPAT
    )
    assert verified == deep


def test_hanging_import_is_inconclusive() -> None:
    output = RunAnswer(
        import_succeeded=False, gpu_names=None, compute_results=(), error="", seconds=180, timed_out=True
    )
    observed = make_observation(output, CommandResult(("python",), None), LIBRARIES, COMPAT)
    assert (observed.gpu_registered, observed.gpu_count, observed.cause) == (None, None, Cause.INCONCLUSIVE)
