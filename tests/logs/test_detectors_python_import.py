"""Imports that end before TensorFlow says a word: told from the traceback, and only where it is TensorFlow's."""

from __future__ import annotations

import pytest

from tfdoctor.compat import Compat
from tfdoctor.compat.imported import list_measured_minors, load_imported
from tfdoctor.logs.detectors import python_import
from tfdoctor.logs.report import LogReport, diagnose_log

COMPAT = Compat.load()
SITE = "/home/user/env/lib/python3.10/site-packages"


def traceback(*frames: str, error: str) -> str:
    """A traceback of modules that are being imported."""
    lines = ["Traceback (most recent call last):"]
    for path in frames:
        lines += [f'  File "{path}", line 7, in <module>', "    import something"]
    return "\n".join([*lines, error]) + "\n"


def make_report(text: str) -> LogReport:
    return diagnose_log([text.encode()], COMPAT, "log.txt")


MINE, TF, NP = "/home/user/train.py", f"{SITE}/tensorflow/__init__.py", f"{SITE}/h5py/__init__.py"
LOST = "ImportError: cannot import name 'builder' from 'wrapt' (/home/user/env/lib/python3.10/site-packages/wrapt/x.py)"
RAN = (
    "2024-03-01 10:00:00.000001: E external/local_xla/xla/stream_executor/cuda/cuda_driver.cc:318] "
    "failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected\n"
)
TOLD = [
    ("package-conflict", traceback(MINE, TF, error=LOST)),
    (
        "package-conflict",
        traceback(MINE, TF, NP, error="AttributeError: module 'numpy' has no attribute 'object'."),
    ),
    ("package-conflict", traceback(MINE, TF, error="ModuleNotFoundError: No module named 'wrapt'")),
    (
        "package-conflict",
        traceback(
            MINE, TF, NP, error=f"ImportError: {SITE}/h5py/defs.so: undefined symbol: H5Pset_fapl_ros3"
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
        traceback(MINE, TF, "/home/user/random.py", error="NameError: name 'x' is not defined"),
    ),
    (
        "shadowed-module",
        traceback(
            MINE, TF, error="ImportError: cannot import name 'Random' from 'random' (/home/user/random.py)"
        ),
    ),
    (
        "shadowed-module",
        traceback(
            MINE,
            error="ModuleNotFoundError: No module named 'tensorflow.keras'; 'tensorflow' is not a package",
        ),
    ),
    (
        "shadowed-module",
        traceback(MINE, "/home/user/tensorflow.py", error="AttributeError: partially initialized"),
    ),
    (
        "shadowed-module",
        traceback(
            MINE,
            TF,
            error="AttributeError: module 'random' has no attribute 'Random' (consider renaming '/home/user/random.py' "
            "since it has the same name as the standard library module named 'random')",
        ),
    ),
    ("damaged-file", traceback(MINE, TF, error="SyntaxError: source code string cannot contain null bytes")),
    ("damaged-file", traceback(MINE, TF, error="ValueError: bad marshal data (unknown type code)")),
    ("damaged-file", traceback(MINE, TF, error="EOFError: marshal data too short")),
    ("damaged-file", traceback(MINE, error="ImportError: bad magic number in 'tensorflow.python': b'x'")),
    (
        "damaged-file",
        traceback(MINE, error=f"ImportError: {SITE}/tensorflow/libtensorflow_framework.so.2: file too short"),
    ),
    (
        "damaged-file",
        traceback(MINE, error=f"ImportError: {SITE}/tensorflow/libtensorflow_cc.so.2: invalid ELF header"),
    ),
    (
        "not-permitted",
        traceback(
            MINE, error=f"PermissionError: [Errno 13] Permission denied: '{SITE}/tensorflow/__init__.py'"
        ),
    ),
    (
        "not-permitted",
        traceback(MINE, TF, error=f"PermissionError: [Errno 13] Permission denied: '{SITE}/six.py'"),
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
    ("tensorflow-missing", traceback(MINE, error="ModuleNotFoundError: No module named 'tensorflow'")),
    ("tensorflow-missing", "trainer_1  | ImportError: No module named tensorflow\n"),
]


@pytest.mark.parametrize(("cause", "text"), TOLD, ids=[f"{case[0]}-{n}" for n, case in enumerate(TOLD)])
def test_why_the_import_failed(cause: str, text: str) -> None:
    report = make_report(text)
    assert report.cause.value == cause
    assert report.gpu_registered is False
    assert report.root is not None
    assert report.root.evidence
    assert report.root.remedies
    assert not report.missing_libraries


@pytest.mark.parametrize(("cause", "text"), TOLD, ids=[f"{case[0]}-{n}" for n, case in enumerate(TOLD)])
def test_an_import_that_failed_is_not_the_cause_where_tensorflow_ran(cause: str, text: str) -> None:
    assert make_report(text + RAN).cause.value == "no-device", cause
    assert make_report(RAN + text).cause.value == "no-device", cause


def test_a_drivers_library_that_is_empty_is_a_container_without_gpus() -> None:
    text = traceback(MINE, TF, error="ImportError: /usr/lib/x86_64-linux-gnu/libcuda.so.1: file too short")
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


def test_a_program_whose_own_frame_follows_another_traceback_shadows_nothing() -> None:
    report = make_report(NESTED)
    assert (report.cause.value, report.missing_libraries) == ("import-missing-cuda-lib", ("libcudnn.so.6",))


FOREIGN = [
    traceback(MINE, "/home/user/other.py", error="ModuleNotFoundError: No module named 'matplotlib'"),
    traceback(MINE, f"{SITE}/torch/__init__.py", error="ImportError: cannot import name 'x' from 'torch._C'"),
    traceback(MINE, f"{SITE}/pandas/__init__.py", error="AttributeError: module 'pytz' has no attribute 'x'"),
    traceback(MINE, error="PermissionError: [Errno 13] Permission denied: '/data/run/model.ckpt'"),
    traceback(MINE, error="ValueError: bad marshal data (unknown type code)"),
    traceback(
        MINE, f"{SITE}/torch/__init__.py", error=f"ImportError: {SITE}/torch/lib/_C.so: file too short"
    ),
    traceback(
        MINE, "/home/user/random.py", error="ImportError: cannot import name 'a' from 'b' (/home/user/b.py)"
    ),
    traceback(MINE, error="ModuleNotFoundError: No module named 'tensorflow.contrib'"),
    traceback(MINE, error="ModuleNotFoundError: No module named 'tensorflow_hub'"),
    "WARNING: tensorboard without TensorFlow: No module named 'tensorflow'\n",
    "bash: ./train.sh: Permission denied\n",
    traceback(MINE, TF, error="KeyboardInterrupt")
    + "step 1\n" * 40
    + "ModuleNotFoundError: No module named 'yaml'\n",
]


@pytest.mark.parametrize("text", FOREIGN, ids=range(len(FOREIGN)))
def test_an_error_of_something_else_is_no_cause(text: str) -> None:
    assert make_report(text).cause.value == "inconclusive"


def test_every_module_that_an_import_takes_can_be_hidden() -> None:
    for minor in list_measured_minors(COMPAT.folder):
        table = load_imported(COMPAT.folder, minor)
        of_family = [module for taken in table.family.values() for module in taken]
        taken = {name.partition(".")[0] for name in (*table.needs, *table.family, *of_family)}
        old = set(table.standard)  # Python's own library, of which newer ones have no more all
        assert taken - python_import._MODULES - old == set(), minor
