"""`--deep`: what is made of a child that runs TensorFlow, however it ends."""

from __future__ import annotations

import pytest

from rules.make_facts import COMPAT
from tfdoctor.examine.observe import judge
from tfdoctor.findings import Cause
from tfdoctor.logs.dso import failed_opens
from tfdoctor.system import CommandResult, Failure

WANTED = {"libcudnn.so.9", "libcusolver.so.11", "libcuda.so.1"}
LOG = """\
2026-11-20 11:22:03.884964: I tensorflow/stream_executor/platform/default/dso_loader.cc:53] Could not dlopen library \
'libcudnn.so.9'; dlerror: libfoo.so.1: cannot open shared object file: No such file or directory; LD_LIBRARY_PATH: /a
I0000 00:00:1795176574.158179   23707 dso_loader.cc:63] Could not load dynamic library 'libcusolver.so.11'; dlerror: \
/b/libcusolver.so.11: file too short
I0000 00:00:1795176574.158179   23707 dso_loader.cc:63] Could not load dynamic library 'libnvinfer.so.8'; dlerror: \
libnvinfer.so.8: cannot open shared object file: No such file or directory
"""


def test_names_in_the_log_of_every_era() -> None:
    failed = failed_opens(LOG)
    assert [(f.opened, f.really_missing, f.line) for f in failed] == [
        ("libcudnn.so.9", "libfoo.so.1", 1),
        ("libcusolver.so.11", "libcusolver.so.11", 2),
        ("libnvinfer.so.8", "libnvinfer.so.8", 3),
    ]
    assert failed[0].error == "libfoo.so.1: cannot open shared object file: No such file or directory"
    old = failed_opens(
        "ImportError: libcublas.so.10.0: cannot open shared object file: No such file or directory"
    )
    assert [f.opened for f in old] == ["libcublas.so.10.0"]


def test_listed_and_none_registered() -> None:
    observed = judge(
        {"import_ok": True, "devices": [], "seconds": 5.81},
        CommandResult(("python",), 0, stderr=LOG),
        WANTED,
        COMPAT,
    )
    assert (observed.import_ok, observed.gpu_registered, observed.gpu_count) == (True, False, 0)
    assert observed.missing_libraries == ("libcusolver.so.11", "libfoo.so.1")  # TensorRT does not matter


def test_import_fails() -> None:
    answer = {
        "import_ok": False,
        "error": "ImportError: libcublas.so.10.0: cannot open shared object file: No such",
    }
    observed = judge(answer, CommandResult(("python",), 0), {"libcublas.so.10.0"}, COMPAT)
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
def test_killed_before_it_listed_anything(result: CommandResult, registered: bool | None, said: str) -> None:
    observed = judge({"import_ok": True}, result, WANTED, COMPAT)
    assert observed.gpu_registered is registered
    assert said in observed.error


def test_killed_while_computing_keeps_what_was_listed() -> None:
    answer = {"import_ok": True, "devices": ["/physical_device:GPU:0"], "computing": 0}
    observed = judge(answer, CommandResult(("python",), -6), WANTED, COMPAT)
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
def test_a_failed_import_has_a_cause(error: str, cause: Cause) -> None:
    observed = judge({"import_ok": False, "error": error}, CommandResult(("python",), 0), WANTED, COMPAT)
    assert observed.cause is cause
