"""What fails before a GPU is looked at: containers, installations, the driver. One gate a cause or a family."""

from __future__ import annotations

from tfdoctor.findings import Cause
from tfdoctor.logs.libraries import is_cupti, is_driver, is_nvml, stem_of
from tfdoctor.logs.log_context import LIBRARY_CAUSES, Case, Decision

NO_DEVICE = frozenset({"CUDA_ERROR_NO_DEVICE", "UNKNOWN ERROR (100)"})
NO_DRIVER = frozenset(
    {
        "UNKNOWN ERROR (303)",
        "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED",
        "CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND",
    }
)
TOO_OLD = frozenset(
    {
        "CUDA_ERROR_INSUFFICIENT_DRIVER",
        "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER",
        "UNKNOWN ERROR (35)",
        "UNKNOWN ERROR (36)",
    }
)
STUB = frozenset({"UNKNOWN ERROR (-1)", "UNKNOWN ERROR (34)", "CUDA_ERROR_STUB_LIBRARY"})

"""The library that a toolkit has for linking answers so: -1 up to CUDA 11, 34 after it."""
UNKNOWN = frozenset({"CUDA_ERROR_UNKNOWN", "UNKNOWN ERROR (999)"})
NOT_STARTED = frozenset({"CUDA_ERROR_NOT_INITIALIZED"})
"""CUDA's state of a process that was forked; where nothing else ran, it is the driver's."""
FORKED = (
    "CUDA cannot be used in a process that was forked from one that had used it: usually a worker of "
    "multiprocessing, gunicorn or celery. Start the workers with `spawn`, or import and use TensorFlow only in the "
    "workers."
)


# ---------------------------------------------------------------- containers and installation


def containers(case: Case) -> Decision | None:
    log = case.log
    if log.has("cuda-requirement"):
        return Decision(
            Cause.CONTAINER_CUDA_REQUIREMENT, case.says("cuda-requirement"), (Cause.DRIVER_TOO_OLD,)
        )
    answered = log.first("container-nvml")
    if answered is not None:
        return Decision(_container_answer(answered.get("what")), case.says("container-nvml"))
    if log.has("no-runtime"):
        return Decision(Cause.NO_NVIDIA_RUNTIME, case.says("no-runtime"))
    if log.has("container-driver-error"):
        return Decision(Cause.CONTAINER_DRIVER_LIBS, case.says("container-driver-error"), (Cause.NO_DRIVER,))
    if case.created is not None:
        return None
    if log.has("ngc-no-driver"):
        return Decision(Cause.CONTAINER_NO_GPU, case.says("ngc-no-driver"))
    return None


def _container_answer(what: str) -> Cause:
    words = what.lower()
    if "mismatch" in words:
        return Cause.DRIVER_LIB_MISMATCH
    if "not loaded" in words:
        return Cause.NO_DRIVER
    if "no cuda" in words or "no-" in words or "unknown device" in words or "no adapters" in words:
        return Cause.NO_DEVICE
    return Cause.DRIVER_INIT_UNKNOWN if "cuda error" in words else Cause.CONTAINER_DRIVER_LIBS


def smi(case: Case) -> Decision | None:
    event = case.log.first("smi-failed")
    if event is None or case.created is not None or case.log.has("cuinit", "dso-failed"):
        return None
    what = event.get("what").lower()
    cause = Cause.NO_DRIVER
    if "mismatch" in what:
        cause = Cause.DRIVER_LIB_MISMATCH
    elif "unknown error" in what:
        cause = Cause.CONTAINER_NVML_LOST
    elif "no devices" in what:
        cause = Cause.NO_DEVICE
    return Decision(cause, case.says("smi-failed"))


def windows(case: Case) -> Decision | None:
    if case.log.has("windows-native"):
        return Decision(Cause.WINDOWS_NATIVE_UNSUPPORTED, case.says("windows-native"))
    version = case.origin.version
    if (
        version is not None
        and case.compat.has(version, "windows-without-gpu")
        and case.windows
        and case.log.has("gpu-none-listed")
        and case.created is None
    ):
        return Decision(Cause.WINDOWS_NATIVE_UNSUPPORTED, case.says("gpu-none-listed", "tf-version"))
    return None


def installation(case: Case) -> Decision | None:
    """Return imports and installations that fail; none of it matters where a GPU was registered."""
    if case.created is not None:
        return None
    for name, cause, maybe in (
        ("glibc", Cause.GLIBC_TOO_OLD, ()),
        ("libstdcxx", Cause.LIBSTDCXX_TOO_OLD, ()),
        ("illegal-instruction", Cause.ILLEGAL_INSTRUCTION_AVX, ()),
        ("dll-init", Cause.ILLEGAL_INSTRUCTION_AVX, (Cause.MSVC_RUNTIME_MISSING,)),
    ):
        if case.log.has(name):
            return Decision(cause, case.says(name), maybe)
    return _detect_missing_at_import(case) or _companions(case)


def _companions(case: Case) -> Decision | None:
    if case.log.has("cuinit", "registration-skipped", "dso-failed"):
        return None
    for name, cause in (
        ("protobuf", Cause.PROTOBUF_CONFLICT),
        ("numpy-abi", Cause.NUMPY_ABI),
        ("no-wheel", Cause.NO_MATCHING_WHEEL),
    ):
        if case.log.has(name):
            return Decision(cause, case.says(name))
    return None


def _detect_missing_at_import(case: Case) -> Decision | None:
    at_import = [
        m
        for m in case.missing
        if m.event.id in ("import-so", "import-dll", "import-dylib")
        or (m.event.id == "damaged-library" and "ImportError:" in m.event.text)
    ]
    if at_import:
        events = tuple(m.event for m in at_import[:2])
        first = at_import[-1]
        stem = stem_of(first.soname)
        if stem.lower().startswith(("msvcp", "vcruntime", "concrt")):
            return Decision(Cause.MSVC_RUNTIME_MISSING, events)
        if is_driver(first.soname):
            cause = Cause.CONTAINER_NO_GPU if _is_containerized(case) else Cause.NO_DRIVER
            return Decision(cause, events, (Cause.NO_DRIVER, Cause.IMPORT_MISSING_CUDA_LIB))
        if stem.startswith("nvidia-"):
            return Decision(Cause.LIBS_TRANSITIVE, events, (Cause.DRIVER_LIB_MISMATCH,))
        if is_cupti(first.soname):
            return Decision(Cause.CUPTI_MISSING, events)
        return Decision(Cause.IMPORT_MISSING_CUDA_LIB, events, LIBRARY_CAUSES)
    named = [m for m in case.log.list_events("import-dll") if "msvc" in m.get("soname").lower()]
    if named:
        return Decision(Cause.MSVC_RUNTIME_MISSING, tuple(named[:1]))
    if case.log.has("dll-module"):
        return Decision(Cause.MSVC_RUNTIME_MISSING, case.says("dll-module"), (Cause.IMPORT_MISSING_CUDA_LIB,))
    return None


def _is_containerized(case: Case) -> bool:
    return case.in_container() or "/redis/modules/" in "".join(
        e.text for e in case.log.list_events("import-so")
    )


# ---------------------------------------------------------------- the driver


def driver(case: Case) -> Decision | None:
    """cuInit's answer, read together with what the diagnostics say beside it."""
    log = case.log
    event = log.last("cuinit")
    if event is None:
        return _driver_library(case) or _driver_words(case)
    later = case.created is not None and case.created.order > event.order
    if later or (case.created is not None and log.has("parameter-server")):
        return None
    codes = {e.get("code").replace("CUresult(", "UNKNOWN ERROR (") for e in log.list_events("cuinit")}
    if codes == NOT_STARTED and case.created is not None:
        return None
    evidence = case.says(
        "cuinit", "driver-mismatch", "kernel-driver-missing", "device-node-missing", "stub-version"
    )
    if case.hidden is not None:
        evidence = (*evidence, case.hidden)
    cause, maybe = _cuinit_cause(case, codes)
    if codes == NOT_STARTED:
        return Decision(cause, evidence, maybe, FORKED)
    if cause is Cause.DRIVER_INIT_UNKNOWN and not codes & UNKNOWN:
        note = f"The driver's library opens, and starting it fails with {' and '.join(sorted(codes))}."
        return Decision(cause, evidence, maybe, note, "The driver is installed but does not start")
    return Decision(cause, evidence, maybe)


def _cuinit_cause(case: Case, codes: set[str]) -> tuple[Cause, tuple[Cause, ...]]:
    log = case.log
    if "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE" in codes or "UNKNOWN ERROR (804)" in codes:
        return Cause.COMPAT_NOT_SUPPORTED, (Cause.DRIVER_LIB_MISMATCH,)
    if log.has("driver-mismatch") or codes & {"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "UNKNOWN ERROR (803)"}:
        return Cause.DRIVER_LIB_MISMATCH, ()
    if codes & TOO_OLD:
        return Cause.DRIVER_TOO_OLD, ()
    no_kernel, no_node = log.has("kernel-driver-missing") or _smi_alone(case), log.has("device-node-missing")
    if log.has("stub-version"):
        return Cause.STUB_LIBCUDA, (Cause.CONTAINER_NO_GPU,)
    if codes & STUB:
        if no_node or no_kernel or case.in_container():
            return Cause.CONTAINER_NO_GPU if no_node or case.in_container() else Cause.NO_DRIVER, (
                Cause.STUB_LIBCUDA,
                Cause.NO_DRIVER,
            )
        return Cause.STUB_LIBCUDA, (Cause.CONTAINER_NO_GPU,)
    if case.hidden is not None and codes & NO_DEVICE:
        return Cause.HIDDEN_BY_ENV, (Cause.NO_DEVICE,)
    if no_kernel:
        return Cause.NO_DRIVER, (Cause.CONTAINER_NO_GPU,)
    if codes & NO_DRIVER or _driver_library_missing(case):
        if no_node and case.in_container():
            return Cause.CONTAINER_NO_GPU, (Cause.NO_DRIVER,)
        return Cause.NO_DRIVER, (Cause.CONTAINER_NO_GPU,)
    if codes & NO_DEVICE:
        return _choose_no_device_cause(case, no_node=no_node)
    if no_node:
        return Cause.NO_DEVICE, (Cause.NO_DRIVER, Cause.DRIVER_INIT_UNKNOWN, Cause.CONTAINER_NO_GPU)
    if codes & {"CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_DEVICE_UNAVAILABLE"}:
        return Cause.GPU_BUSY_OTHER_PROCESS, ()
    return Cause.DRIVER_INIT_UNKNOWN, ()


def _choose_no_device_cause(case: Case, *, no_node: bool) -> tuple[Cause, tuple[Cause, ...]]:
    if no_node:
        cause = Cause.CONTAINER_NO_GPU if case.in_container() else Cause.NO_DEVICE
        return cause, (Cause.NO_DEVICE, Cause.CONTAINER_NO_GPU, Cause.HIDDEN_BY_ENV)
    if case.log.has("scheduler-hint") or case.created is not None:
        return Cause.HIDDEN_BY_ENV, (Cause.NO_DEVICE,)
    if not case.log.has("kernel-driver", "library-driver"):  # from 2.12 on no diagnostics follow
        return Cause.NO_DEVICE, (Cause.HIDDEN_BY_ENV, Cause.NO_DRIVER)
    return Cause.NO_DEVICE, (Cause.HIDDEN_BY_ENV,)


def _smi_alone(case: Case) -> bool:
    """Return whether nvidia-smi reaches no kernel driver, and nothing else says that there is one."""
    failed = any("communicate" in event.get("what") for event in case.log.list_events("smi-failed"))
    return failed and not case.log.has("kernel-driver", "smi-table")


def _driver_library_missing(case: Case) -> bool:
    return any(is_driver(m.soname) and not m.transitive for m in case.missing)


def _driver_library(case: Case) -> Decision | None:
    """libcuda could not be opened, and cuInit's line is not in the excerpt."""
    missing = [
        m
        for m in case.missing
        if is_driver(m.soname) and m.event.id in ("dso-failed", "dso-failed-old", "damaged-library")
    ]
    found = any(is_driver(event.get("soname")) for event in case.log.list_events("dso-opened"))
    if not missing or (found and missing[-1].event.id == "dso-failed-old"):  # it tries two names
        return None
    if case.created is not None and case.created.order > missing[-1].event.order:
        return None
    events = tuple(m.event for m in missing[:2])
    node = case.log.has("device-node-missing")
    if missing[0].event.id == "damaged-library" or (node and case.in_container()):
        return Decision(Cause.CONTAINER_NO_GPU, events, (Cause.NO_DRIVER, Cause.CONTAINER_DRIVER_LIBS))
    return Decision(Cause.NO_DRIVER, events, (Cause.CONTAINER_NO_GPU,))


def _driver_words(case: Case) -> Decision | None:
    log = case.log
    if log.has("device-query-failed"):
        return Decision(Cause.DRIVER_INIT_UNKNOWN, case.says("device-query-failed"))
    if log.has("driver-mismatch"):
        return Decision(Cause.DRIVER_LIB_MISMATCH, case.says("driver-mismatch"))
    hip = log.first("hip-init")
    if hip is not None and case.created is None:
        none = "Device" in hip.get("code")
        maybe = (Cause.NO_DRIVER, Cause.HIDDEN_BY_ENV)
        return Decision(Cause.NO_DEVICE if none else Cause.DRIVER_INIT_UNKNOWN, case.says("hip-init"), maybe)
    if log.has("driver-insufficient"):
        return Decision(Cause.DRIVER_TOO_OLD, case.says("driver-insufficient"))
    event = log.first("driver-code")
    if event is not None:
        words = event.get("what")
        if "initialization error" in words:
            return Decision(
                Cause.DRIVER_INIT_UNKNOWN,
                case.says("driver-code"),
                (Cause.DRIVER_TOO_OLD,),
                "The log does not say why: usually a driver that does not serve this CUDA, or a process that was "
                "forked from one that uses the GPU.",
                "CUDA does not start in this process",
            )
        table = (
            ("display driver", Cause.DRIVER_LIB_MISMATCH),
            ("forward compat", Cause.COMPAT_NOT_SUPPORTED),
            ("stub", Cause.STUB_LIBCUDA),
            ("busy", Cause.GPU_BUSY_OTHER_PROCESS),
            ("UNAVAILABLE", Cause.GPU_BUSY_OTHER_PROCESS),
            ("no CUDA-capable", Cause.NO_DEVICE),
        )
        return Decision(next(cause for word, cause in table if word in words), case.says("driver-code"))
    if case.created is not None:
        return None
    nvml = tuple(m.event for m in case.missing if is_nvml(m.soname) and m.event.id == "dso-failed")
    if nvml or log.has("nvml-missing"):
        return Decision(Cause.NVML_MISSING, (*nvml[:2], *case.says("nvml-missing")))
    if log.has("kernel-driver-missing"):
        return Decision(Cause.NO_DRIVER, case.says("kernel-driver-missing"))
    if log.has("device-node-missing"):
        cause = Cause.CONTAINER_NO_GPU if case.in_container() else Cause.NO_DEVICE
        return Decision(cause, case.says("device-node-missing"), (Cause.NO_DRIVER,))
    if log.has("libcuda-not-loaded") and not any(
        is_driver(e.get("soname")) for e in log.list_events("dso-opened")
    ):
        title = "The driver's kernel module is there, and its library, libcuda, was not found"
        return Decision(
            Cause.NO_DRIVER,
            case.says("libcuda-not-loaded", "kernel-driver"),
            (Cause.LIBS_NOT_ON_PATH, Cause.CONTAINER_NO_GPU),
            title=title if log.has("kernel-driver") else "",
        )
    return None
