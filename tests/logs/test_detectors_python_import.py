"""Imports that fail before TensorFlow logs anything: the cause is read from the traceback."""

from __future__ import annotations

import pytest

from tfdoctor.compat import Compat
from tfdoctor.compat.imported import list_measured_minors, load_import_needs
from tfdoctor.logs.detectors import python_import
from tfdoctor.logs.report import LogReport, diagnose_log

COMPAT = Compat.load()
SITE = "/home/user/env/lib/python3.10/site-packages"


def format_traceback(*frames: str, error: str) -> str:
    """Return a traceback whose frames import the modules at these paths."""
    lines = ["Traceback (most recent call last):"]
    for path in frames:
        lines += [f'  File "{path}", line 7, in <module>', "    import something"]
    return "\n".join([*lines, error]) + "\n"


def make_report(text: str) -> LogReport:
    return diagnose_log([text.encode()], COMPAT, "log.txt")


SCRIPT, TENSORFLOW, H5PY = "/home/user/train.py", f"{SITE}/tensorflow/__init__.py", f"{SITE}/h5py/__init__.py"
NAME_NOT_EXPORTED = (
    "ImportError: cannot import name 'builder' from 'wrapt' "
    "(/home/user/env/lib/python3.10/site-packages/wrapt/x.py)"
)
CUINIT_FAILED = (
    "2024-03-01 10:00:00.000001: E external/local_xla/xla/stream_executor/cuda/cuda_driver.cc:318] "
    "failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected\n"
)
IMPORT_FAILURES = [
    ("package-conflict", format_traceback(SCRIPT, TENSORFLOW, error=NAME_NOT_EXPORTED)),
    (
        "package-conflict",
        format_traceback(
            SCRIPT, TENSORFLOW, H5PY, error="AttributeError: module 'numpy' has no attribute 'object'."
        ),
    ),
    (
        "package-conflict",
        format_traceback(SCRIPT, TENSORFLOW, error="ModuleNotFoundError: No module named 'wrapt'"),
    ),
    (
        "package-conflict",
        format_traceback(
            SCRIPT,
            TENSORFLOW,
            H5PY,
            error=f"ImportError: {SITE}/h5py/defs.so: undefined symbol: H5Pset_fapl_ros3",
        ),
    ),
    (
        "package-conflict",
        (
            "~/env/lib/python3.8/site-packages/tensorflow/__init__.py in <module>\n     38 import a\n---> 39 import b\n"
            "     40 import c\n\nModuleNotFoundError: No module named 'wrapt'\n"
        ),
    ),
    (
        "shadowed-module",
        format_traceback(
            SCRIPT, TENSORFLOW, "/home/user/random.py", error="NameError: name 'x' is not defined"
        ),
    ),
    (
        "shadowed-module",
        format_traceback(
            SCRIPT,
            TENSORFLOW,
            error="ImportError: cannot import name 'Random' from 'random' (/home/user/random.py)",
        ),
    ),
    (
        "shadowed-module",
        format_traceback(
            SCRIPT,
            error="ModuleNotFoundError: No module named 'tensorflow.keras'; 'tensorflow' is not a package",
        ),
    ),
    (
        "shadowed-module",
        format_traceback(SCRIPT, "/home/user/tensorflow.py", error="AttributeError: partially initialized"),
    ),
    (
        "shadowed-module",
        format_traceback(
            SCRIPT,
            TENSORFLOW,
            error="AttributeError: module 'random' has no attribute 'Random' (consider renaming '/home/user/random.py' "
            "since it has the same name as the standard library module named 'random')",
        ),
    ),
    (
        "damaged-file",
        format_traceback(
            SCRIPT, TENSORFLOW, error="SyntaxError: source code string cannot contain null bytes"
        ),
    ),
    (
        "damaged-file",
        format_traceback(SCRIPT, TENSORFLOW, error="ValueError: bad marshal data (unknown type code)"),
    ),
    ("damaged-file", format_traceback(SCRIPT, TENSORFLOW, error="EOFError: marshal data too short")),
    (
        "damaged-file",
        format_traceback(SCRIPT, error="ImportError: bad magic number in 'tensorflow.python': b'x'"),
    ),
    (
        "damaged-file",
        format_traceback(
            SCRIPT, error=f"ImportError: {SITE}/tensorflow/libtensorflow_framework.so.2: file too short"
        ),
    ),
    (
        "damaged-file",
        format_traceback(
            SCRIPT, error=f"ImportError: {SITE}/tensorflow/libtensorflow_cc.so.2: invalid ELF header"
        ),
    ),
    (
        "not-permitted",
        format_traceback(
            SCRIPT, error=f"PermissionError: [Errno 13] Permission denied: '{SITE}/tensorflow/__init__.py'"
        ),
    ),
    (
        "not-permitted",
        format_traceback(
            SCRIPT, TENSORFLOW, error=f"PermissionError: [Errno 13] Permission denied: '{SITE}/six.py'"
        ),
    ),
    (
        "not-permitted",
        (
            f"ImportError: {SITE}/tensorflow/libtensorflow_framework.so.2: cannot open shared object file: Permission "
            "denied\n"
        ),
    ),
    (
        "not-permitted",
        (
            f"ImportError: {SITE}/tensorflow/python/_x.so: failed to map segment from shared object: Operation not "
            "permitted\n"
        ),
    ),
    ("not-permitted", "bash: /x/bin/pip: /x/bin/python3: bad interpreter: Permission denied\n"),
    ("python-unusable", "bash: /x/bin/pip: /x/bin/python3: bad interpreter: No such file or directory\n"),
    (
        "python-unusable",
        "Fatal Python error: init_fs_encoding\nModuleNotFoundError: No module named 'encodings'\n",
    ),
    (
        "python-unusable",
        (
            "python3: error while loading shared libraries: libpython3.9.so.1.0: cannot open shared object file: "
            "No such file or directory\n"
        ),
    ),
    (
        "tensorflow-missing",
        format_traceback(SCRIPT, error="ModuleNotFoundError: No module named 'tensorflow'"),
    ),
    ("tensorflow-missing", "trainer_1  | ImportError: No module named tensorflow\n"),
]


@pytest.mark.parametrize(
    ("cause", "text"), IMPORT_FAILURES, ids=[f"{case[0]}-{n}" for n, case in enumerate(IMPORT_FAILURES)]
)
def test_traceback_has_its_cause(cause: str, text: str) -> None:
    report = make_report(text)
    assert report.cause.value == cause
    assert report.gpu_registered is False
    assert report.root_finding is not None
    assert report.root_finding.evidence
    assert report.root_finding.remedies
    assert not report.missing_sonames


@pytest.mark.parametrize(
    ("cause", "text"), IMPORT_FAILURES, ids=[f"{case[0]}-{n}" for n, case in enumerate(IMPORT_FAILURES)]
)
def test_failed_import_is_no_cause_if_tensorflow_ran(cause: str, text: str) -> None:
    assert make_report(text + CUINIT_FAILED).cause.value == "no-device", cause
    assert make_report(CUINIT_FAILED + text).cause.value == "no-device", cause


def test_empty_libcuda_means_container_without_gpus() -> None:
    text = format_traceback(
        SCRIPT, TENSORFLOW, error="ImportError: /usr/lib/x86_64-linux-gnu/libcuda.so.1: file too short"
    )
    assert make_report(text).cause.value in ("container-no-gpu", "no-driver")


NESTED = f"""\
Traceback (most recent call last):
  File "{SITE}/tensorflow/python/pywrap_tensorflow.py", line 41, in <module>
    from tensorflow.python.pywrap_tensorflow_internal import *
  File "{SITE}/tensorflow/python/pywrap_tensorflow_internal.py", line 28, in <module>
    _pywrap_tensorflow_internal = swig_import_helper()
ImportError: libcudnn.so.6: cannot open shared object file: No such file or directory

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/home/user/test.py", line 1, in <module>
    import tensorflow as tf
"""


def test_frame_of_a_second_traceback_shadows_nothing() -> None:
    report = make_report(NESTED)
    assert (report.cause.value, report.missing_sonames) == ("import-missing-cuda-lib", ("libcudnn.so.6",))


UNRELATED_FAILURES = [
    format_traceback(
        SCRIPT, "/home/user/other.py", error="ModuleNotFoundError: No module named 'matplotlib'"
    ),
    format_traceback(
        SCRIPT, f"{SITE}/torch/__init__.py", error="ImportError: cannot import name 'x' from 'torch._C'"
    ),
    format_traceback(
        SCRIPT, f"{SITE}/pandas/__init__.py", error="AttributeError: module 'pytz' has no attribute 'x'"
    ),
    format_traceback(SCRIPT, error="PermissionError: [Errno 13] Permission denied: '/data/run/model.ckpt'"),
    format_traceback(SCRIPT, error="ValueError: bad marshal data (unknown type code)"),
    format_traceback(
        SCRIPT, f"{SITE}/torch/__init__.py", error=f"ImportError: {SITE}/torch/lib/_C.so: file too short"
    ),
    format_traceback(
        SCRIPT, "/home/user/random.py", error="ImportError: cannot import name 'a' from 'b' (/home/user/b.py)"
    ),
    format_traceback(SCRIPT, error="ModuleNotFoundError: No module named 'tensorflow.contrib'"),
    format_traceback(SCRIPT, error="ModuleNotFoundError: No module named 'tensorflow_hub'"),
    "WARNING: tensorboard without TensorFlow: No module named 'tensorflow'\n",
    "bash: ./train.sh: Permission denied\n",
    format_traceback(SCRIPT, TENSORFLOW, error="KeyboardInterrupt")
    + "step 1\n" * 40
    + "ModuleNotFoundError: No module named 'yaml'\n",
]


@pytest.mark.parametrize("text", UNRELATED_FAILURES, ids=range(len(UNRELATED_FAILURES)))
def test_unrelated_error_is_inconclusive(text: str) -> None:
    assert make_report(text).cause.value == "inconclusive"


def test_detector_knows_every_module_of_the_import() -> None:
    for minor in list_measured_minors(COMPAT.folder):
        table = load_import_needs(COMPAT.folder, minor)
        family_modules = [
            module for imported in table.keras_modules_by_package.values() for module in imported
        ]
        imported = {
            name.partition(".")[0]
            for name in (*table.attributes_by_module, *table.keras_modules_by_package, *family_modules)
        }
        standard = set(
            table.attributes_by_standard_module
        )  # the standard library: newer Pythons have dropped some of these modules
        assert imported - python_import._MODULES - standard == set(), minor
