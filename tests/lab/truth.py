"""What real TensorFlow does: a child process imports it and lists the GPUs, and its log is read.

Nothing is computed, so the stand-in driver is enough. TensorFlow 1.0 to 2.22 and Python 2.7 to 3.14.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Runs in the target interpreter: any Python from 2.7 on. The answer goes to the file in argv[1],
# because TensorFlow and its dependencies write to both streams. os._exit is used because some releases
# crash at exit with a stand-in driver, which is unrelated to registration.
CHILD = r"""
import json, os, sys, traceback
answer = {"stage": "import", "tensorflow": None, "count": None, "devices": [], "error": None, "made": None}
def tell():
    with open(sys.argv[1], "w") as out:
        json.dump(answer, out)
tell()
class Refused(Exception):
    pass
def make(listing):
    # Makes every device, as a first operation does: that is when TensorFlow says which it registered.
    answer["stage"] = "make"
    tell()
    answer["made"] = [d.physical_device_desc for d in listing() if d.device_type == "GPU"]
def parsed(texts):
    from tensorflow.core.framework import device_attributes_pb2
    devices = [device_attributes_pb2.DeviceAttributes() for text in texts]
    for device, text in zip(devices, texts):
        device.ParseFromString(text)
    return devices
def quick():
    # The packages' __init__.py are left out, and with them nine tenths of the import: what is loaded
    # and asked is the same native code.
    import glob, types
    inside = os.path.join("tensorflow*", "python", "pywrap_tensorflow*.py")
    site = [p for p in sys.path if glob.glob(os.path.join(p, inside))][0]
    root = os.path.join(site, "tensorflow_core")
    if not os.path.isdir(os.path.join(root, "python")):
        root = os.path.join(site, "tensorflow")
    for name, path in (("tensorflow", root), ("tensorflow.python", os.path.join(root, "python"))):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = [path]
    from tensorflow.python import pywrap_tensorflow as native
    try: # without this an error status aborts the process instead of raising
        from tensorflow.python import _pywrap_py_exception_registry as registry
        registry.PyExceptionRegistry_Init(dict((code, Refused) for code in range(1, 17)))
    except ImportError:
        pass
    found = glob.glob(os.path.join(site, "tensorflow*-*.dist-info"))
    found = [os.path.basename(p).split("-")[1] for p in found if "estimator" not in p and "io_" not in p]
    answer["tensorflow"] = found[0]
    answer["stage"] = "list"
    tell()
    try:
        from tensorflow.python import _pywrap_tfe as native_list
    except ImportError:
        native_list = native
    if hasattr(native_list, "TF_ListPhysicalDevices"):
        gpus = [name.decode() for name in native_list.TF_ListPhysicalDevices()]
        gpus = [name for name in gpus if ":GPU:" in name]
        answer["count"] = len(gpus)
        for index, gpu in enumerate(gpus):
            details = {}
            if hasattr(native_list, "TF_GetDeviceDetails"):
                details = dict(native_list.TF_GetDeviceDetails(index))
            if "compute_capability" in details:
                details["compute_capability"] = [int(n) for n in details["compute_capability"].split(".")]
            details["tf_name"] = gpu
            answer["devices"].append(details)
    else:
        for device in parsed(native.list_devices()):
            if device.device_type == "GPU":
                answer["devices"].append({"tf_name": device.name, "description": device.physical_device_desc})
        answer["count"] = len(answer["devices"])
    if os.environ.get("TFDOCTOR_LAB_MAKE"):
        if hasattr(native, "list_devices"): # up to 2.0
            make(lambda: parsed(native.list_devices()))
        else:
            try:
                from tensorflow.python.client import _pywrap_device_lib as native_make
            except ImportError: # 2.1 to 2.5
                from tensorflow.python import _pywrap_device_lib as native_make
            make(lambda: parsed(native_make.list_devices(None)))
    answer["stage"] = "done"
def full():
    import tensorflow as tf
    answer["tensorflow"] = getattr(tf, "__version__", None) or tf.VERSION
    answer["stage"] = "list"
    tell()
    config = getattr(tf, "config", None)
    listing = getattr(config, "list_physical_devices", None)
    experimental = getattr(config, "experimental", None)
    if listing is None:
        listing = getattr(experimental, "list_physical_devices", None)
    if listing is not None:
        gpus = listing("GPU")
        answer["count"] = len(gpus)
        answer["stage"] = "details"
        tell()
        describe = getattr(experimental, "get_device_details", None)
        for gpu in gpus:
            details = {}
            if describe is not None:
                details = dict(describe(gpu))
            details["compute_capability"] = list(details.get("compute_capability") or [])
            details["tf_name"] = gpu.name
            answer["devices"].append(details)
    elif os.environ.get("TFDOCTOR_LAB_SESSION"):
        from tensorflow.python.client import device_lib
        local = [d for d in device_lib.list_local_devices() if d.device_type == "GPU"]
        answer["count"] = len(local)
        answer["devices"] = [{"tf_name": d.name, "description": d.physical_device_desc} for d in local]
    if os.environ.get("TFDOCTOR_LAB_MAKE"):
        from tensorflow.python.client import device_lib
        make(device_lib.list_local_devices)
    answer["stage"] = "done"
try:
    if os.environ.get("TFDOCTOR_LAB_QUICK"):
        quick()
    else:
        full()
except BaseException:
    answer["error"] = traceback.format_exc()
tell()
sys.stdout.flush()
sys.stderr.flush()
os._exit(0)
"""

# Registration requires only these; TensorRT, NCCL, CUPTI and ROCm's libraries are optional.
NEEDED_STEMS = frozenset(
    {"cuda", "nvidia-ml", "cudart", "cublas", "cublasLt", "cufft", "curand", "cusolver", "cusparse", "cudnn"}
)

_FAILED = re.compile(
    r"(?:Could not (?:dlopen library|load dynamic library) '(?P<name>[^']+)'; dlerror: (?P<error>.*?))"
    r"(?:; LD_LIBRARY_PATH: .*)?$",
    re.MULTILINE,
)
# The message of TensorFlow 1.0, which has no error text.
_FAILED_1_0 = re.compile(r"Couldn't open CUDA library (?P<name>[^/\s]+?)\. LD_LIBRARY_PATH: ")
_OPENED = re.compile(r"Successfully opened (?:dynamic|CUDA) library (?P<name>\S+)", re.MULTILINE)
_OPENED_LOCALLY = re.compile(r"successfully opened CUDA library (?P<name>\S+) locally")
_NO_FILE = re.compile(r"^(?P<name>[^/\s:]+): cannot open shared object file")
_BROKEN = re.compile(r"^(?P<path>/[^:]+|[^:\s]+): ")
_IMPORT_ERROR = re.compile(r"^(?:ImportError|OSError): (?P<error>\S*lib\S+?\.so\S*: .*)$", re.MULTILINE)
_SKIPPED = "Skipping registering GPU devices"


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed dlopen or, if TensorFlow links CUDA directly, one failed import."""

    opened: str
    """The requested soname; for a failed import the same as `really_missing`."""
    really_missing: str
    """The missing or broken file: `opened`, or one of its dependencies."""
    error: str
    """The text of dlerror."""


@dataclass(frozen=True, slots=True)
class Truth:
    """What one TensorFlow did in one environment."""

    tensorflow: str | None
    import_ok: bool
    gpu_registered: bool | None
    """None if it was not tried (1.13 and older without `session`).

    False if listing the devices failed.
    """
    gpu_count: int | None
    asked: bool
    """Whether TensorFlow tried all libraries; only then is `missing_libraries` complete."""
    skipped: bool
    """Whether it printed "Skipping registering GPU devices"."""
    missing_libraries: list[str]
    """The required sonames that could not be opened, sorted."""
    really_missing: list[str]
    """The missing or broken files, sorted: those libraries or their dependencies.

    If a symbol version is missing ("version `GLIBC_2.99' not found (required by ...)"), the library that
    lacks it.
    """
    opened: list[str]
    """The sonames that it opened, in order."""
    failures: list[Failure]
    """All failures, including optional libraries, in order and without repetition."""
    devices: list[dict[str, Any]]
    made: list[str] | None
    """TensorFlow's description of each created GPU; None if it did not create them."""
    crashed: str | None
    """The name of the signal, or "timeout"; None if it did not crash."""
    error: str | None
    """The traceback of a failed import or listing, or None."""
    seconds: float
    log: str

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)


def stem(soname: str) -> str:
    """Return 'cublasLt' for 'libcublasLt.so.12'."""
    return Path(soname).name.removeprefix("lib").partition(".so")[0]


def find_failures(log: str) -> list[Failure]:
    """Return every dlopen failure in a TensorFlow log, each once."""
    failures: dict[Failure, None] = {}
    for match in _FAILED.finditer(log):
        failures[
            Failure(match["name"], _find_missing_file(match["error"], match["name"]), match["error"])
        ] = None
    for match in _FAILED_1_0.finditer(log):
        failures[Failure(match["name"], match["name"], "")] = None
    return list(failures)


def _find_missing_file(error: str, otherwise: str) -> str:
    missing = _NO_FILE.match(error)
    if missing:
        return missing["name"]
    broken = _BROKEN.match(error)
    if broken and ".so" in broken["path"]:
        return Path(broken["path"]).name
    return otherwise


def observe(
    python: Path | str,
    env: Mapping[str, str],
    *,
    cwd: Path | None = None,
    timeout: float = 240,
    session: bool = False,
    quick: bool = False,
    prefix: Sequence[str] = (),
    verbose: bool = True,
    make: bool = False,
    answers: Path | None = None,
) -> Truth:
    """Run the TensorFlow of one interpreter and return what it registers.

    Args:
        python: the interpreter or, with a shell's `prefix`, its name.
        env: the complete environment of the child; TensorFlow's logging variables are added.
        cwd: the child's current directory.
        timeout: seconds before it is killed.
        quick: load TensorFlow's native code without its Python code, which gives the same result in a tenth
            of the time (compared in every situation of the lab on ten releases).
        prefix: a command to run the interpreter under (a mount namespace).
        session: for 1.13 and older, create the devices too (they cannot be listed otherwise).
        verbose: make TensorFlow name every library; otherwise the log is the default one of users.
        make: create every device after listing (needs a libcudart with functions: standins.RUNTIME).
        answers: a folder that the child's user may write into; None for a temporary one.
    """
    child_env = dict(env)
    if verbose:
        child_env |= {"TF_CPP_VMODULE": "dso_loader=3", "TF_CPP_MIN_LOG_LEVEL": "0"}
    if make:
        child_env["TFDOCTOR_LAB_MAKE"] = "1"
    if session:
        child_env["TFDOCTOR_LAB_SESSION"] = "1"
    if quick:
        child_env["TFDOCTOR_LAB_QUICK"] = "1"
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as private:
        folder = answers or private
        Path(folder).chmod(0o777)  # the prefix may change the user
        answer_path, log_path = Path(folder) / "answer.json", Path(folder) / "log"
        answer_path.unlink(missing_ok=True)
        with log_path.open("wb") as log_file:
            child = subprocess.Popen(
                [*prefix, str(python), "-c", CHILD, str(answer_path)],
                env=child_env,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=log_file,
                start_new_session=True,
            )
            try:
                code: int | None = child.wait(timeout)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                if child.returncode is None:  # timeout, or this process is interrupted
                    os.killpg(child.pid, signal.SIGKILL)
                    child.wait()
        seconds = time.monotonic() - started
        log = log_path.read_text(encoding="utf-8", errors="replace")
        answer: dict[str, Any] = {}
        if answer_path.exists():
            answer = json.loads(answer_path.read_text(encoding="utf-8") or "{}")
    return make_truth(answer, log, code, seconds)


def make_truth(answer: Mapping[str, Any], log: str, code: int | None, seconds: float) -> Truth:
    """Return the Truth from the child's answer, its log and its exit status (None: killed at the timeout)."""
    crashed = "timeout" if code is None else None
    if code is not None and code < 0:
        crashed = signal.Signals(-code).name
    error = answer.get("error")
    failures = find_failures(log)
    if answer.get("stage", "import") == "import" and error:
        for match in _IMPORT_ERROR.finditer(error):
            missing_file = _find_missing_file(match["error"], match["error"].partition(":")[0])
            failure = Failure(missing_file, missing_file, match["error"])
            if failure not in failures:
                failures.append(failure)
    # 1.0 names a library without an error, and requires only the driver of these.
    needed = [
        failed
        for failed in failures
        if answer.get("stage") == "import"
        or (stem(failed.opened) in NEEDED_STEMS and (failed.error or stem(failed.opened) == "cuda"))
    ]
    opened = [opening["name"] for opening in _OPENED.finditer(log)] or [
        opening["name"] for opening in _OPENED_LOCALLY.finditer(log)
    ]
    count = answer.get("count")
    import_ok = answer.get("tensorflow") is not None
    registered = None if count is None else bool(count)
    if not import_ok or (count is None and (crashed or error)):
        registered = False
    stems = {stem(name) for name in opened} | {stem(failed.opened) for failed in failures}
    return Truth(
        tensorflow=answer.get("tensorflow"),
        import_ok=import_ok,
        gpu_registered=registered,
        gpu_count=count if import_ok else 0,
        asked={"cusolver", "cudnn", "cufft"} <= stems,
        skipped=_SKIPPED in log,
        missing_libraries=sorted({failed.opened for failed in needed}),
        really_missing=sorted({failed.really_missing for failed in needed}),
        opened=list(dict.fromkeys(opened)),
        failures=failures,
        devices=list(answer.get("devices", [])),
        made=answer.get("made"),
        crashed=crashed,
        error=error,
        seconds=round(seconds, 2),
        log=log,
    )
