"""Detect failures of containers, installations and the driver, before TensorFlow finds a GPU.

Each `detect_…` function returns a decision, or None if the log does not show the failure that it detects.
"""

from __future__ import annotations

import re

from tfdoctor.core import versions
from tfdoctor.core.findings import Cause
from tfdoctor.logs.detectors.python_import import has_tensorflow_import
from tfdoctor.logs.libraries import is_cupti_library, is_driver_library, is_nvml_library, strip_library_name
from tfdoctor.logs.log_context import LIBRARY_CAUSES, Decision, LogContext
from tfdoctor.logs.missing_package import describe_missing_package
from tfdoctor.remedies.place import Place

NO_DEVICE_CODES = frozenset({"CUDA_ERROR_NO_DEVICE", "UNKNOWN ERROR (100)"})
"""cuInit codes if there is no GPU. TensorFlow prints a code without a name as "UNKNOWN ERROR (number)"."""
NO_DRIVER_CODES = frozenset(
    {
        "UNKNOWN ERROR (303)",
        "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED",
        "CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND",
    }
)
"""cuInit codes for a missing or incomplete driver."""
TOO_OLD_DRIVER_CODES = frozenset(
    {
        "CUDA_ERROR_INSUFFICIENT_DRIVER",
        "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER",
        "UNKNOWN ERROR (35)",
        "UNKNOWN ERROR (36)",
    }
)
"""cuInit codes for a driver that is too old."""
STUB_CODES = frozenset({"UNKNOWN ERROR (-1)", "UNKNOWN ERROR (34)", "CUDA_ERROR_STUB_LIBRARY"})
"""cuInit codes of the stub library that the CUDA toolkit has for linking: -1 up to CUDA 11, and 34 since then."""
UNKNOWN_ERROR_CODES = frozenset({"CUDA_ERROR_UNKNOWN", "UNKNOWN ERROR (999)"})
"""cuInit codes for an unknown error."""
NOT_INITIALIZED_CODES = frozenset({"CUDA_ERROR_NOT_INITIALIZED"})
"""The cuInit code in a forked process. In other processes it means that the driver did not start."""
NATIVE_PROGRAM_TITLE = "A CUDA library that TensorFlow's native library needs is missing"
BUSY_TITLE = "Another process uses the GPU exclusively, or its compute mode lets nobody use it"
CONTAINER_PERMISSION_TITLE = "The container may not use the device files of the GPUs"
USER_PERMISSION_TITLE = "This user may not use the device files of the GPUs"
NOT_FOUND_CODES = frozenset({"CUDA_ERROR_NOT_FOUND", "UNKNOWN ERROR (500)"})
"""cuInit codes if the driver's library does not find another library of the driver, as under WSL."""
FORK_NOTE = (
    "CUDA cannot be used in a process that was forked from one that had used it: usually a worker of "
    "multiprocessing, gunicorn or celery. Start the workers with `spawn`, or import and use TensorFlow only in the "
    "workers."
)


# ---------------------------------------------------------------- containers and installation


def detect_containers(context: LogContext) -> Decision | None:
    """Return the cause if a container cannot use the GPUs of its host."""
    log = context.log
    if log.has("device-plugin-no-nvml"):
        return Decision(Cause.NO_NVIDIA_RUNTIME, context.list_evidence("device-plugin-no-nvml"))
    if log.has("insufficient-gpus", "untolerated-taint"):
        title = "No node of the Kubernetes cluster takes this pod"
        if log.has("insufficient-gpus"):
            title = "No node of the Kubernetes cluster offers a free GPU"
        evidence = context.list_evidence("insufficient-gpus", "untolerated-taint")
        return Decision(Cause.CONTAINER_NO_GPU, evidence, title=title)
    if log.has("apptainer-no-files"):
        return Decision(Cause.CONTAINER_DRIVER_LIBS, context.list_evidence("apptainer-no-files"))
    if log.has("cuda-requirement"):
        return Decision(
            Cause.CONTAINER_CUDA_REQUIREMENT,
            context.list_evidence("cuda-requirement"),
            (Cause.DRIVER_TOO_OLD,),
        )
    nvml_event = log.find_first("container-nvml")
    if nvml_event is not None:
        message = nvml_event.get("what")
        cause = _choose_container_cause(message)
        title = "WSL shows the container tools no GPU" if "no adapters" in message else ""
        title = CONTAINER_PERMISSION_TITLE if cause is Cause.NOT_PERMITTED else title
        return Decision(cause, context.list_evidence("container-nvml"), title=title)
    if log.has("no-runtime"):
        return Decision(Cause.NO_NVIDIA_RUNTIME, context.list_evidence("no-runtime"))
    if log.has("container-driver-error"):
        return Decision(
            Cause.CONTAINER_DRIVER_LIBS, context.list_evidence("container-driver-error"), (Cause.NO_DRIVER,)
        )
    if context.registration_event is not None:
        return None
    unsupported = [event.get("what") for event in log.list_events("ngc-unsupported-card")]
    if unsupported:
        is_too_new = any("yet" in what for what in unsupported)
        causes = (Cause.GPU_TOO_NEW, Cause.GPU_TOO_OLD)
        cause, other_cause = causes if is_too_new else causes[::-1]
        title = "This image has no code for the card"
        return Decision(cause, context.list_evidence("ngc-unsupported-card"), (other_cause,), title=title)
    if log.has("ngc-no-driver"):
        return Decision(Cause.CONTAINER_NO_GPU, context.list_evidence("ngc-no-driver"))
    return None


def _choose_container_cause(message: str) -> Cause:
    """Return the cause of an NVML error that the container toolkit reports."""
    text = message.lower()
    if "mismatch" in text:
        return Cause.DRIVER_LIB_MISMATCH
    if "not loaded" in text:
        return Cause.NO_DRIVER
    if "insufficient permissions" in text:
        return Cause.NOT_PERMITTED
    if "no cuda" in text or "no-" in text or "unknown device" in text or "no adapters" in text:
        return Cause.NO_DEVICE
    return Cause.DRIVER_INIT_UNKNOWN if "cuda error" in text else Cause.CONTAINER_DRIVER_LIBS


def detect_smi_failure(context: LogContext) -> Decision | None:
    """Return the cause if nvidia-smi failed and TensorFlow logged no error about the driver or a library."""
    if context.registration_event is not None or context.log.has("cuinit", "dso-failed"):
        return None
    event = context.log.find_first("smi-failed")
    if event is None:
        tables = context.log.list_events("smi-table")
        lacks_library = any(table.get("cuda") == "N/A" for table in tables)
        return Decision(Cause.NO_DRIVER, tuple(tables[:1])) if lacks_library else None
    message = event.get("what").lower()
    cause, title = Cause.NO_DRIVER, ""
    if "mismatch" in message:
        cause = Cause.DRIVER_LIB_MISMATCH
    elif "unknown error" in message:
        cause = Cause.CONTAINER_NVML_LOST
        # a container that was just started cannot have lost anything
        title = CONTAINER_PERMISSION_TITLE if context.log.has("fresh-container", "no-cgroups-set") else ""
    elif "insufficient permissions" in message:
        cause = Cause.NOT_PERMITTED
        title = CONTAINER_PERMISSION_TITLE if context.is_in_container() else USER_PERMISSION_TITLE
    elif "no devices" in message:
        cause = Cause.NO_DEVICE
    elif "device handle" in message:
        title = "nvidia-smi cannot reach one of the cards"
        return Decision(Cause.NO_DEVICE, context.list_evidence("smi-failed"), title=title)
    return Decision(cause, context.list_evidence("smi-failed", "no-cgroups-set"), title=title)


def detect_windows(context: LogContext) -> Decision | None:
    """Return the cause if this release does not support GPUs on native Windows."""
    if context.log.has("windows-native"):
        return Decision(Cause.WINDOWS_NATIVE_UNSUPPORTED, context.list_evidence("windows-native"))
    version = context.origin.version
    if (
        version is not None
        and context.compat.has_trait(version, "windows-without-gpu")
        and context.is_windows
        and context.log.has("gpu-none-listed", "devices-listed-cpu")
        and context.registration_event is None
    ):
        return Decision(
            Cause.WINDOWS_NATIVE_UNSUPPORTED,
            context.list_evidence("gpu-none-listed", "devices-listed-cpu", "tf-version"),
        )
    return None


def detect_installation(context: LogContext) -> Decision | None:
    """Return the cause if an import or an installation failed, unless a GPU was registered anyway."""
    if context.registration_event is not None:
        return None
    for name, cause, other_causes in (
        ("glibc", Cause.GLIBC_TOO_OLD, ()),
        ("libstdcxx", Cause.LIBSTDCXX_TOO_OLD, ()),
        ("illegal-instruction", Cause.ILLEGAL_INSTRUCTION_AVX, ()),
    ):
        if context.log.has(name):
            return Decision(cause, context.list_evidence(name), other_causes)
    if context.log.has("dll-init"):
        causes = (Cause.MSVC_RUNTIME_MISSING, Cause.ILLEGAL_INSTRUCTION_AVX)
        # before the processors and the runtimes of today, it was usually AVX
        cause, other_cause = causes[::-1] if context.is_at_most("2.10") else causes
        return Decision(cause, context.list_evidence("dll-init"), (other_cause,))
    if context.log.has("dependent-libraries"):
        return Decision(
            Cause.IMPORT_MISSING_CUDA_LIB, context.list_evidence("dependent-libraries"), LIBRARY_CAUSES
        )
    return _detect_missing_at_import(context) or _detect_package_conflict(context)


def _detect_package_conflict(context: LogContext) -> Decision | None:
    """Return the cause if another package prevents the import."""
    if context.log.has("cuinit", "registration-skipped", "dso-failed"):
        return None
    for name, cause in (
        ("protobuf", Cause.PROTOBUF_CONFLICT),
        ("numpy-abi", Cause.NUMPY_ABI),
        ("no-wheel", Cause.NO_MATCHING_WHEEL),
        ("gpu-package-removed", Cause.NO_MATCHING_WHEEL),
        ("filesystem-package", Cause.NO_MATCHING_WHEEL),
        ("conda-no-cuda", Cause.NO_MATCHING_WHEEL),
        ("plugin-not-loaded", Cause.PACKAGE_CONFLICT),
        ("op-library-symbol", Cause.PACKAGE_CONFLICT),
        ("keras-registered-twice", Cause.PACKAGE_CONFLICT),
        ("tf-keras-missing", Cause.PACKAGE_CONFLICT),
        ("keras-of-another-release", Cause.PACKAGE_CONFLICT),
        ("static-tls", Cause.PACKAGE_CONFLICT),
        ("resolver-conflict", Cause.PACKAGE_CONFLICT),
    ):
        if context.log.has(name):
            title, note = _describe_package_conflict(context, name)
            return Decision(cause, context.list_evidence(name), note=note, title=title)
    return None


def _describe_package_conflict(context: LogContext, signature_id: str) -> tuple[str, str]:
    """Return (title, note) for the package that this message is about; empty texts if those of the cause fit."""
    if signature_id == "no-wheel":
        return describe_missing_package(context)
    if signature_id == "numpy-abi" and not has_tensorflow_import(context):
        note = "The message does not name the package; TensorFlow is not in its traceback."
        return "numpy has a different binary interface than an installed package was compiled for", note
    if signature_id == "plugin-not-loaded":
        is_newer = context.log.has("built-for-newer-macos")
        reason = "needs a newer macOS" if is_newer else "does not fit this TensorFlow"
        return f"The plug-in that gives TensorFlow a GPU {reason}", ""
    titles = {
        "op-library-symbol": "A package was compiled for a different release of TensorFlow",
        "keras-registered-twice": "Keras is for a different release than TensorFlow",
    }
    return titles.get(signature_id, ""), ""


def _detect_missing_at_import(context: LogContext) -> Decision | None:
    """Return the cause if a library is missing when TensorFlow is imported."""
    import_libraries = [
        library
        for library in context.missing_libraries
        if library.event.id in ("import-so", "import-dll", "import-dylib")
        or (library.event.id == "damaged-library" and "ImportError:" in library.event.text)
    ]
    if import_libraries:
        events = tuple(library.event for library in import_libraries[:2])
        deciding_library = import_libraries[-1]
        stem = strip_library_name(deciding_library.soname)
        if stem.lower().startswith(("msvcp", "vcruntime", "concrt")):
            return Decision(Cause.MSVC_RUNTIME_MISSING, events)
        if is_driver_library(deciding_library.soname):
            cause = Cause.CONTAINER_NO_GPU if _is_probably_in_container(context) else Cause.NO_DRIVER
            return Decision(cause, events, (Cause.NO_DRIVER, Cause.IMPORT_MISSING_CUDA_LIB))
        if stem.startswith("nvidia-"):
            return Decision(Cause.LIBS_TRANSITIVE, events, (Cause.DRIVER_LIB_MISMATCH,))
        if is_cupti_library(deciding_library.soname):
            return Decision(Cause.CUPTI_MISSING, events)
        title = NATIVE_PROGRAM_TITLE if context.log.has("native-program-hint") else ""
        return Decision(Cause.IMPORT_MISSING_CUDA_LIB, events, LIBRARY_CAUSES, title=title)
    msvc_events = [
        event for event in context.log.list_events("import-dll") if "msvc" in event.get("soname").lower()
    ]
    if msvc_events:
        return Decision(Cause.MSVC_RUNTIME_MISSING, tuple(msvc_events[:1]))
    if context.log.has("dll-module"):
        return Decision(
            Cause.MSVC_RUNTIME_MISSING, context.list_evidence("dll-module"), (Cause.IMPORT_MISSING_CUDA_LIB,)
        )
    return None


def _is_probably_in_container(context: LogContext) -> bool:
    """Return whether the log comes from a container, or from a Redis module, which usually runs in one."""
    return context.is_in_container() or "/redis/modules/" in "".join(
        event.text for event in context.log.list_events("import-so")
    )


# ---------------------------------------------------------------- driver


def detect_driver(context: LogContext) -> Decision | None:
    """Return the cause if the driver fails, judging by the cuInit codes and the diagnostics after them."""
    log = context.log
    event = log.find_last("cuinit")
    incomplete_driver = _detect_incomplete_driver(context)
    if incomplete_driver is not None:
        return incomplete_driver
    if event is None:
        return _detect_missing_driver(context) or _detect_driver_messages(context)
    is_registered_later = (
        context.registration_event is not None and context.registration_event.order > event.order
    )
    if is_registered_later or (context.registration_event is not None and log.has("parameter-server")):
        return None
    # "CUresult(303)" is another form of "UNKNOWN ERROR (303)"
    codes = {init.get("code").replace("CUresult(", "UNKNOWN ERROR (") for init in log.list_events("cuinit")}
    if codes == NOT_INITIALIZED_CODES and context.registration_event is not None:
        return None
    evidence = context.list_evidence(
        *("cuinit", "driver-mismatch", "kernel-driver-missing", "device-node-missing"),
        *("stub-version", "stub-folder"),
    )
    if context.hiding_event is not None:
        evidence = (*evidence, context.hiding_event)
    cause, other_causes = _choose_cuinit_cause(context, codes)
    if codes == NOT_INITIALIZED_CODES:
        return Decision(cause, evidence, other_causes, note=FORK_NOTE)
    if cause is Cause.DRIVER_INIT_UNKNOWN and not codes & UNKNOWN_ERROR_CODES:
        note = f"The driver's library opens, and starting it fails with {' and '.join(sorted(codes))}."
        title = "The driver is installed but does not start"
        return Decision(cause, evidence, other_causes, note=note, title=title)
    title = "A library of the driver is missing in the container" if codes <= NOT_FOUND_CODES else ""
    return Decision(cause, evidence, other_causes, title=title)


def _detect_incomplete_driver(context: LogContext) -> Decision | None:
    """Return the cause if libcuda was found, and a library of the same driver that it needs was not."""
    if context.registration_event is not None:
        return None
    library = next((missing for missing in context.missing_libraries if missing.is_of_driver), None)
    if library is None:
        return None
    version = re.search(r"\.so\.(\d{3}[\d.]{1,16})$", library.soname)
    loaded = context.driver_version
    if version is not None and loaded is not None and versions.compare(version[1], loaded) != 0:
        note = (
            f"libcuda is of driver {version[1]} and needs {library.soname}, which is not found. "
            f"The kernel module is of driver {loaded}."
        )
        evidence = (library.event, *context.list_evidence("kernel-driver"))
        return Decision(Cause.DRIVER_LIB_MISMATCH, evidence, note=note)
    title = "The driver's libcuda is found, and another library of the driver is not"
    return Decision(Cause.LIBS_TRANSITIVE, (library.event,), (Cause.DRIVER_LIB_MISMATCH,), title=title)


def _choose_cuinit_cause(context: LogContext, codes: set[str]) -> tuple[Cause, tuple[Cause, ...]]:
    """Return (cause of these cuInit codes, other possible causes)."""
    log = context.log
    if "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE" in codes or "UNKNOWN ERROR (804)" in codes:
        return Cause.COMPAT_NOT_SUPPORTED, (Cause.DRIVER_LIB_MISMATCH,)
    if log.has("driver-mismatch") or codes & {"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "UNKNOWN ERROR (803)"}:
        return Cause.DRIVER_LIB_MISMATCH, ()
    if codes & TOO_OLD_DRIVER_CODES:
        return Cause.DRIVER_TOO_OLD, ()
    lacks_kernel_module = log.has("kernel-driver-missing") or _has_smi_failure(context)
    lacks_node = log.has("device-node-missing")
    if log.has("stub-version") or (codes & STUB_CODES and log.has("stub-folder")):
        return Cause.STUB_LIBCUDA, (Cause.CONTAINER_NO_GPU,)
    if codes & STUB_CODES:
        if lacks_node or lacks_kernel_module or context.is_in_container():
            cause = Cause.CONTAINER_NO_GPU if lacks_node or context.is_in_container() else Cause.NO_DRIVER
            return cause, (Cause.STUB_LIBCUDA, Cause.NO_DRIVER)
        return Cause.STUB_LIBCUDA, (Cause.CONTAINER_NO_GPU,)
    if context.hiding_event is not None and codes & NO_DEVICE_CODES:
        return Cause.HIDDEN_BY_ENV, (Cause.NO_DEVICE,)
    if lacks_kernel_module:
        return Cause.NO_DRIVER, (Cause.CONTAINER_NO_GPU,)
    if codes & NO_DRIVER_CODES or _lacks_driver_library(context):
        if lacks_node and context.is_in_container():
            return Cause.CONTAINER_NO_GPU, (Cause.NO_DRIVER,)
        return Cause.NO_DRIVER, (Cause.CONTAINER_NO_GPU,)
    if codes & NO_DEVICE_CODES:
        return _choose_no_device_cause(context, lacks_node=lacks_node)
    if lacks_node:
        return Cause.NO_DEVICE, (Cause.NO_DRIVER, Cause.DRIVER_INIT_UNKNOWN, Cause.CONTAINER_NO_GPU)
    if codes <= NOT_FOUND_CODES and context.is_in_container():
        return Cause.CONTAINER_DRIVER_LIBS, (Cause.DRIVER_INIT_UNKNOWN,)
    if "CUDA_ERROR_DEVICE_UNAVAILABLE" in codes:
        return Cause.GPU_BUSY_OTHER_PROCESS, ()
    if (
        "CUDA_ERROR_OUT_OF_MEMORY" in codes
    ):  # the computer's memory or address space: cuInit takes none of the GPU's
        return Cause.DRIVER_INIT_UNKNOWN, (Cause.GPU_BUSY_OTHER_PROCESS,)
    if "CUDA_ERROR_INVALID_DEVICE" in codes:  # what CUDA_VISIBLE_DEVICES=0,0 leads to
        return Cause.HIDDEN_BY_ENV, (Cause.DRIVER_INIT_UNKNOWN,)
    return Cause.DRIVER_INIT_UNKNOWN, ()


def _choose_no_device_cause(context: LogContext, *, lacks_node: bool) -> tuple[Cause, tuple[Cause, ...]]:
    """Return (cause, other possible causes) if cuInit finds no GPU.

    `lacks_node` says whether the device node in /dev is missing.
    """
    if lacks_node:
        cause = Cause.CONTAINER_NO_GPU if context.is_in_container() else Cause.NO_DEVICE
        return cause, (Cause.NO_DEVICE, Cause.CONTAINER_NO_GPU, Cause.HIDDEN_BY_ENV)
    if context.log.has("scheduler-hint") or context.registration_event is not None:
        return Cause.HIDDEN_BY_ENV, (Cause.NO_DEVICE,)
    if Place.WSL in context.places:  # a Linux driver hides the one of Windows
        return Cause.NO_DEVICE, (Cause.HIDDEN_BY_ENV,)
    if not context.log.has("kernel-driver", "library-driver"):  # TensorFlow 2.12 and later log no diagnostics
        return Cause.NO_DEVICE, (Cause.HIDDEN_BY_ENV, Cause.NO_DRIVER)
    return Cause.NO_DEVICE, (Cause.HIDDEN_BY_ENV,)


def _has_smi_failure(context: LogContext) -> bool:
    """Return whether nvidia-smi could not reach the driver, and nothing in the log contradicts that."""
    has_failed = any("communicate" in event.get("what") for event in context.log.list_events("smi-failed"))
    return has_failed and not context.log.has("kernel-driver", "smi-table")


def _lacks_driver_library(context: LogContext) -> bool:
    return any(
        is_driver_library(library.soname) and not library.is_transitive
        for library in context.missing_libraries
    )


def _detect_missing_driver(context: LogContext) -> Decision | None:
    """Return the cause if libcuda could not be opened. The log has no result of cuInit."""
    missing = [
        library
        for library in context.missing_libraries
        if is_driver_library(library.soname)
        and library.event.id in ("dso-failed", "dso-failed-old", "damaged-library")
    ]
    has_opened_driver = any(
        is_driver_library(event.get("soname")) for event in context.log.list_events("dso-opened")
    )
    # old releases try two names of libcuda, so a failure of one does not matter if the other was opened
    if not missing or (has_opened_driver and missing[-1].event.id == "dso-failed-old"):
        return None
    if context.registration_event is not None and context.registration_event.order > missing[-1].event.order:
        return None
    events = tuple(library.event for library in missing[:2])
    lacks_node = context.log.has("device-node-missing")
    if missing[0].event.id == "damaged-library" or (lacks_node and context.is_in_container()):
        return Decision(Cause.CONTAINER_NO_GPU, events, (Cause.NO_DRIVER, Cause.CONTAINER_DRIVER_LIBS))
    return Decision(Cause.NO_DRIVER, events, (Cause.CONTAINER_NO_GPU,))


def _detect_driver_messages(context: LogContext) -> Decision | None:
    """Return the cause that driver messages other than those of cuInit show."""
    log = context.log
    if log.has("device-query-failed"):
        return Decision(Cause.DRIVER_INIT_UNKNOWN, context.list_evidence("device-query-failed"))
    if log.has("driver-mismatch"):
        return Decision(Cause.DRIVER_LIB_MISMATCH, context.list_evidence("driver-mismatch"))
    hip_event = log.find_first("hip-init")
    if hip_event is not None and context.registration_event is None:
        no_device = "Device" in hip_event.get("code")
        other_causes = (Cause.NO_DRIVER, Cause.HIDDEN_BY_ENV)
        return Decision(
            Cause.NO_DEVICE if no_device else Cause.DRIVER_INIT_UNKNOWN,
            context.list_evidence("hip-init"),
            other_causes,
        )
    if log.has("driver-insufficient"):
        return Decision(Cause.DRIVER_TOO_OLD, context.list_evidence("driver-insufficient"))
    event = log.find_first("driver-code")
    if event is not None:
        message = event.get("what")
        if "initialization error" in message:
            return Decision(
                Cause.DRIVER_INIT_UNKNOWN,
                context.list_evidence("driver-code"),
                (Cause.DRIVER_TOO_OLD,),
                note="The log does not say why: usually a driver that does not serve this CUDA, or a process that was "
                "forked from one that uses the GPU.",
                title="CUDA does not start in this process",
            )
        causes_by_text = (
            ("display driver", Cause.DRIVER_LIB_MISMATCH),
            ("forward compat", Cause.COMPAT_NOT_SUPPORTED),
            ("stub", Cause.STUB_LIBCUDA),
            ("busy", Cause.GPU_BUSY_OTHER_PROCESS),
            ("UNAVAILABLE", Cause.GPU_BUSY_OTHER_PROCESS),
            ("no CUDA-capable", Cause.NO_DEVICE),
            ("No CUDA GPUs", Cause.NO_DEVICE),
            ("no NVIDIA driver", Cause.NO_DRIVER),
        )
        cause = next(cause for text, cause in causes_by_text if text in message)
        title = BUSY_TITLE if cause is Cause.GPU_BUSY_OTHER_PROCESS else ""
        return Decision(cause, context.list_evidence("driver-code"), title=title)
    if context.registration_event is not None:
        return None
    nvml_events = tuple(
        library.event
        for library in context.missing_libraries
        if is_nvml_library(library.soname) and library.event.id == "dso-failed"
    )
    if nvml_events or log.has("nvml-missing"):
        return Decision(Cause.NVML_MISSING, (*nvml_events[:2], *context.list_evidence("nvml-missing")))
    if log.has("kernel-driver-missing"):
        return Decision(Cause.NO_DRIVER, context.list_evidence("kernel-driver-missing"))
    if log.has("device-node-missing"):
        cause = Cause.CONTAINER_NO_GPU if context.is_in_container() else Cause.NO_DEVICE
        return Decision(cause, context.list_evidence("device-node-missing"), (Cause.NO_DRIVER,))
    if log.has("libcuda-not-loaded") and not any(
        is_driver_library(opened.get("soname")) for opened in log.list_events("dso-opened")
    ):
        title = "The driver's kernel module is there, and its library, libcuda, was not found"
        return Decision(
            Cause.NO_DRIVER,
            context.list_evidence("libcuda-not-loaded", "kernel-driver"),
            (Cause.LIBS_NOT_ON_PATH, Cause.CONTAINER_NO_GPU),
            title=title if log.has("kernel-driver") else "",
        )
    return None
