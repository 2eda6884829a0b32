"""Detect failures of the CUDA libraries, the GPU and its memory.

Each `detect_…` function returns its decision, or None if the log does not show such a failure.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.findings import Cause
from tfdoctor.logs.detectors.machine import FORK_NOTE
from tfdoctor.logs.libraries import (
    choose_library_cause,
    describe_present,
    find_search_path,
    is_cudnn,
    is_cupti,
    is_only_on_path,
    is_partly_installed,
    strip_library_name,
)
from tfdoctor.logs.log_context import LIBRARY_CAUSES, Decision, LogContext
from tfdoctor.logs.version_inference import find_gpu_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.logs.events import Event
    from tfdoctor.logs.libraries import UnopenedLibrary

BUSY_MIB = 1024
"""The reserved memory in MiB below which another process must use the rest of the GPU."""
_TEGRA = re.compile(r"\b(?:Tegra|Orin|Xavier|Thor)\b")
"""Names of GPUs without memory of their own: they use system memory, so little of it does not mean that they are busy."""
BUSY_SHARE = 0.35
"""The same limit for a small GPU, as a share of its memory."""


# ---------------------------------------------------------------- libraries


def detect_lazy_libraries(case: LogContext) -> Decision | None:
    """Return the cause if a library cannot be used that TensorFlow opens only when it needs it."""
    lazy_libraries = [
        library for library in case.missing_libraries if library.event.id == "lazy-library-failed"
    ]
    if case.log.has("library-version"):
        return Decision(Cause.LIBS_WRONG_VERSION, case.list_evidence("library-version"))
    symbol_event = case.log.first("undefined-symbol")
    if symbol_event is not None and is_cudnn(symbol_event.get("soname")):
        return Decision(Cause.CUDNN_VERSION_MISMATCH, case.list_evidence("undefined-symbol"))
    if symbol_event is not None:
        return Decision(Cause.LIBS_WRONG_VERSION, case.list_evidence("undefined-symbol"))
    if case.log.has("cudnn-not-linked"):
        return Decision(
            Cause.CUDNN_MISSING, case.list_evidence("cudnn-not-linked"), (Cause.LIBS_NOT_ON_PATH,)
        )
    if case.log.has("cudnn-not-loaded"):
        return Decision(Cause.CUDNN_MISSING, case.list_evidence("cudnn-not-loaded"), LIBRARY_CAUSES)
    if not lazy_libraries:
        return None
    events = tuple(library.event for library in lazy_libraries[:2])
    dependencies = [
        library
        for library in lazy_libraries
        if library.is_transitive or strip_library_name(library.soname) == "zlibwapi"
    ]
    if any(strip_library_name(library.soname) == "cuda" for library in dependencies):
        return Decision(Cause.WSL_LIBCUDA, events, (Cause.LIBS_TRANSITIVE,))
    if dependencies:
        return Decision(Cause.LIBS_TRANSITIVE, events)
    cause = Cause.CUDNN_MISSING if is_cudnn(lazy_libraries[0].soname) else Cause.LIBS_NOT_ON_PATH
    return Decision(cause, events, (Cause.LIBS_NOT_ON_PATH,))


def detect_libraries(case: LogContext) -> Decision | None:
    """Return the cause if the log names missing libraries that registration needs."""
    libraries = case.missing_toolkit_libraries
    if not libraries:
        return None
    events = tuple(m.event for m in libraries[:12])
    unusable_cause = _explain_unusable(libraries)
    if unusable_cause is not None:
        return Decision(unusable_cause, events)
    cause = choose_library_cause(libraries, case.log, case.compat)
    other_causes = tuple(c for c in LIBRARY_CAUSES if c is not cause)
    path = find_search_path(libraries)
    note = describe_present(libraries, case.log, case.compat)
    title = ""
    if (
        cause is Cause.LIBS_WRONG_VERSION
        and case.mismatched_cuda is None
        and is_partly_installed(libraries, case.log)
    ):
        title = "Some of the libraries that this TensorFlow opens are installed, others are not"
        note = f"{note} Usually a different version is installed, or only some of its packages."
    elif (
        cause is Cause.LIBS_WRONG_VERSION
        and case.mismatched_cuda is None
        and is_only_on_path(libraries, case.log)
    ):
        title = "LD_LIBRARY_PATH names a CUDA, but what this TensorFlow opens is not found there"
        note = f"{note} Usually a different version is installed, or none.".strip()
    if cause is Cause.LIBS_WRONG_VERSION and path:
        note = f"{note} LD_LIBRARY_PATH was {path}.".strip().replace("`", "'")
    elif (
        len(libraries) == 1
        and strip_library_name(libraries[0].soname) == "cudart"
        and not case.log.has("registration-skipped")
    ):
        other_causes = (*other_causes, Cause.NO_DRIVER)
    return Decision(cause, events, other_causes, note, title)


_UNUSABLE = (
    (Cause.DAMAGED_FILE, ("file too short", "invalid ELF header", "wrong ELF class")),
    (Cause.NOT_PERMITTED, ("Permission denied", "Operation not permitted")),
)
"""Loader errors for a file that exists but cannot be used, by cause."""


def _explain_unusable(missing: Sequence[UnopenedLibrary]) -> Cause | None:
    """Return the cause if all of these libraries exist but cannot be used for the same reason. None if not."""
    for cause, errors in _UNUSABLE:
        if all(any(error in library.error for error in errors) for library in missing):
            return cause
    return None


def detect_unlisted(case: LogContext) -> Decision | None:
    """Return the cause if libraries are missing and the log does not name them."""
    return _detect_skipped(
        case, "registration-skipped", "cuda-runtime-not-loaded", "cuda-not-found", "cudart-stub-note"
    )


def detect_skipped_registration(case: LogContext) -> Decision | None:
    """Return the cause if the log says that registration was skipped without naming the missing libraries.

    This is called before `detect_memory`, because memory does not matter if no GPU is registered.
    """
    return _detect_skipped(case, "registration-skipped", "cuda-runtime-not-loaded")


def _detect_skipped(case: LogContext, *ids: str) -> Decision | None:
    """Return the cause if one of these signatures shows that registration was skipped, and no GPU was registered."""
    event = case.log.last(*ids)
    if event is not None and event.id != "registration-skipped" and case.ready_order >= 0:
        return None
    if event is None or (case.registration is not None and case.registration.order > event.order):
        return None
    if case.registration is not None and event.id != "registration-skipped":
        return None
    if case.hiding_event is not None:
        return Decision(
            Cause.HIDDEN_BY_ENV, (case.hiding_event, *case.list_evidence(*ids)), (Cause.LIBS_UNLISTED,)
        )
    other_causes: tuple[Cause, ...] = LIBRARY_CAUSES
    if not case.log.has("registration-skipped", "cuda-runtime-not-loaded", "numa"):
        other_causes = (*other_causes, Cause.NO_DRIVER, Cause.HIDDEN_BY_ENV)
    return Decision(Cause.LIBS_UNLISTED, case.list_evidence(*ids), other_causes)


def detect_cupti(case: LogContext) -> Decision | None:
    """Return the cause if the profiler cannot use CUPTI."""
    missing = [library for library in case.missing_libraries if is_cupti(library.soname)]
    if not missing and not case.log.has("cupti-failed"):
        return None
    if case.log.has("cupti-not-permitted") and not missing:
        return Decision(
            Cause.CUPTI_MISSING,
            case.list_evidence("cupti-not-permitted"),
            note="CUPTI was found. The driver lets only root read these counters, where nobody allows it to others.",
            title="The profiler may not read the GPU's counters; nothing else needs them",
        )
    events = (*(library.event for library in missing[:2]), *case.list_evidence("cupti-failed"))
    return Decision(Cause.CUPTI_MISSING, events)


# ---------------------------------------------------------------- GPU code


def detect_ignored(case: LogContext) -> Decision | None:
    """Return the cause if TensorFlow ignored every GPU, or if XLA (1.13 to 2.0) fails on an ignored GPU."""
    if case.registration is None and case.log.has("xla-breaks") and case.log.has("device-ignored-xla"):
        return Decision(
            Cause.GPU_TOO_OLD, case.list_evidence("device-ignored-xla", "device-ignored", "xla-breaks")
        )
    if case.registration is not None or case.has_remaining_gpus:
        return None
    event = case.log.last("amd-ignored")
    if event is not None:
        return Decision(_choose_amd_cause(event), case.list_evidence("amd-ignored"))
    if case.log.has("device-ignored"):
        return Decision(Cause.GPU_TOO_OLD, case.list_evidence("device-ignored"))
    return None


def _choose_amd_cause(event: Event) -> Cause:
    """Return the cause: an ignored AMD GPU is too old or too new for this release."""

    def generation(target: str) -> int:
        # gfx906 is of generation 9, gfx1030 of generation 10: the last two characters are the stepping
        digits = re.match(r"gfx(\w{1,3}?)\w\w$", target)
        return int(digits[1]) if digits and digits[1].isdecimal() else 0

    actual = generation(event.get("gfx"))
    supported = [generation(gfx) for gfx in re.findall(r"gfx\w{3,5}", event.get("supported"))]
    return Cause.GPU_TOO_OLD if supported and actual < min(supported) else Cause.GPU_TOO_NEW


def detect_no_code(case: LogContext) -> Decision | None:
    """Return the cause if TensorFlow has no code for a GPU that is registered or about to be."""
    log = case.log
    if log.has("arch-mismatch"):
        return Decision(Cause.GPU_TOO_OLD, case.list_evidence("arch-mismatch", "device-created"))
    ptxas_event = log.first("ptxas-too-old")
    if ptxas_event is not None and not _is_at_least(ptxas_event.get("arch"), "5.0"):
        return Decision(Cause.GPU_TOO_OLD, case.list_evidence("ptxas-too-old"))
    if ptxas_event is not None:
        return Decision(
            Cause.GPU_TOO_NEW, case.list_evidence("jit-from-ptx", "no-kernel-image", "ptxas-too-old")
        )
    if log.has("target-too-new"):
        return Decision(Cause.GPU_TOO_NEW, case.list_evidence("target-too-new"))
    capability = case.find_capability()
    is_newer = (
        _is_newer_than_cuda(case, capability) and detect_memory(case) is None and not log.has("gpu-fault")
    )
    event = log.first("no-kernel-image")
    is_older = _is_before_all_code(case, capability)
    if log.has("jit-from-ptx") and (is_newer or event is not None) and not is_older:
        return Decision(Cause.GPU_TOO_NEW, case.list_evidence("jit-from-ptx", "no-kernel-image"))
    if event is not None and event.get("what").startswith("hip"):
        cause = Cause.GPU_TOO_OLD if _has_only_old_gfx(case) else Cause.GPU_TOO_NEW
        return Decision(cause, case.list_evidence("no-kernel-image", "gfx-name"))
    if event is not None and "INVALID_HANDLE" in event.get("what"):
        # the kernel was not loaded, as observed on GPUs newer than the build (compute capability 10.0 and later)
        event = event if capability is None or _is_at_least(capability, "10.0") else None
        is_newer = True
    if event is not None:
        is_too_new = (
            is_newer
            or "PTX" in event.get("what")
            or (capability is not None and _is_at_least(capability, "8.9"))
        )
        is_too_new = is_too_new and not is_older
        cause = Cause.GPU_TOO_NEW if is_too_new else Cause.GPU_TOO_OLD
        evidence = case.list_evidence("no-kernel-image", "device-created", "device-properties")
        if capability is None and not is_too_new:  # a build for few GPUs lacks code for older and newer ones
            title = "This TensorFlow has no code that the card can run"
            note = (
                "The log does not name the card: usually it is older than what this TensorFlow was built for."
            )
            return Decision(cause, evidence, (Cause.GPU_TOO_NEW,), note, title)
        return Decision(cause, evidence)
    if is_newer and case.registration is not None:
        evidence = case.list_evidence("device-created", "cublas-init", "cudnn-init")
        return Decision(
            Cause.GPU_TOO_NEW,
            evidence,
            note=f"CUDA {case.origin.cuda_version} does not support compute capability {capability}.",
        )
    return None


def detect_compilation(case: LogContext) -> Decision | None:
    """Return the cause if TensorFlow must first compile PTX for the GPU, which is slow but works."""
    if not case.log.has("jit-from-ptx"):
        return None
    is_older = _is_before_all_code(
        case, case.find_capability()
    )  # TensorFlow logs that for any GPU without a cubin
    return Decision(Cause.GPU_TOO_OLD if is_older else Cause.GPU_TOO_NEW, case.list_evidence("jit-from-ptx"))


def _is_before_all_code(case: LogContext, capability: str | None) -> bool:
    """Return whether the GPU is older than all code of this release.

    PTX does not help then, because it can only be compiled for newer GPUs.
    """
    release = case.origin.release
    code = [*release.cubin, *release.ptx] if release is not None else []
    return (
        capability is not None and bool(code) and not any(_is_at_least(capability, floor) for floor in code)
    )


def _has_only_old_gfx(case: LogContext) -> bool:
    """Return whether the log names AMD GPUs, and all are older than gfx900. ROCm dropped these first."""
    names = [event.get("gfx").removeprefix("gfx") for event in case.log.list_events("gfx-name")]
    return bool(names) and all(len(name) == 3 and name < "900" for name in names)


def _is_at_least(capability: str, floor: str) -> bool:
    """Return whether a compute capability is at least `floor`."""
    return versions.parse_capability(capability) >= versions.parse_capability(floor)


def _is_newer_than_cuda(case: LogContext, capability: str | None) -> bool:
    """Return whether the GPU has a higher major compute capability than the release's CUDA supports."""
    if capability is None or case.origin.cuda_version is None:
        return False
    cuda = case.origin.cuda_version
    series = case.compat.cuda_series(versions.major_minor(cuda) if "." in cuda else f"{cuda}.0")
    if series is None or not series.capabilities or "." not in cuda:
        return False
    newest = max(versions.parse_capability(supported)[0] for supported in series.capabilities)
    return versions.parse_capability(capability)[0] > newest


# ---------------------------------------------------------------- a registered GPU that fails


def _is_busy(case: LogContext) -> bool:
    """Return whether TensorFlow got so little memory on a GPU that another process must use the rest."""
    amounts = [device.memory_mib for device in case.devices if device.memory_mib is not None]
    if not amounts or any(_TEGRA.search(device.name) for device in case.devices):
        return False
    smallest, total = min(amounts), find_gpu_memory(case.log)
    if total is not None and total < 2300:  # a small GPU, with up to 2 GiB
        return smallest < total * BUSY_SHARE
    return smallest < BUSY_MIB


def detect_memory(case: LogContext) -> Decision | None:
    """Return the cause if the GPU ran out of memory."""
    log = case.log
    context_event = log.first("context-failed")
    if context_event is not None and "MEMORY" in context_event.get("code").upper():
        return Decision(Cause.GPU_BUSY_OTHER_PROCESS, case.list_evidence("context-failed"), (Cause.OOM,))
    if context_event is not None and "out of memory" in context_event.get("code"):
        return Decision(Cause.GPU_BUSY_OTHER_PROCESS, case.list_evidence("context-failed"), (Cause.OOM,))
    failed_events = list_failed_allocations(case)
    if failed_events and _is_busy(case):
        events = (*case.list_evidence("device-created"), *failed_events[:3])
        return Decision(Cause.GPU_BUSY_OTHER_PROCESS, events, (Cause.OOM,))
    if _is_busy(case) and log.has("cublas-init", "cudnn-init"):
        events = case.list_evidence("device-created", "cublas-init", "cudnn-init")
        return Decision(Cause.GPU_BUSY_OTHER_PROCESS, events, (Cause.OOM, Cause.CUBLAS_INIT_FAILED))
    if failed_events:
        return Decision(Cause.OOM, tuple(failed_events[:4]), (Cause.GPU_BUSY_OTHER_PROCESS,))
    return None


def list_failed_allocations(case: LogContext) -> list[Event]:
    """Return the failed allocations, without those that the next message calls harmless."""
    harmless_records = {event.record for event in case.log.list_events("oom-not-a-failure")}
    return [
        event
        for event in case.log.list_events("oom")
        if harmless_records.isdisjoint((event.record, event.following))
    ]


def detect_cudnn(case: LogContext) -> Decision | None:
    """Return the cause if cuDNN fails, when it starts or later."""
    log = case.log
    if log.has("cudnn-version"):
        mismatch_event = next(
            (
                version_event
                for version_event in log.list_events("cudnn-version")
                if version_event.get("loaded")
            ),
            None,
        )
        note = ""
        if mismatch_event is not None:
            note = f"cuDNN {mismatch_event.get('loaded')} was loaded; TensorFlow was built with {mismatch_event.get('built')}."
        return Decision(Cause.CUDNN_VERSION_MISMATCH, case.list_evidence("cudnn-version"), note=note)
    expected_records = {event.record for event in log.list_events("cudnn-not-asked")}
    if all(event.record in expected_records for event in log.list_events("cudnn-init")):
        return None
    event = log.first("driver-possibly-insufficient")
    if event is not None and _is_oldest_branch(case, event.get("driver")):
        return Decision(
            Cause.DRIVER_TOO_OLD,
            case.list_evidence("driver-possibly-insufficient", "cudnn-init"),
            (Cause.CUDNN_INIT_FAILED,),
        )
    if all(_OPERATION_FAILED.search(event.text) for event in log.list_events("cudnn-init")):
        title = "cuDNN started, and failed at work"
        note = "The log does not say why: usually memory, a driver or cuDNN that does not serve this card."
        return Decision(Cause.CUDNN_INIT_FAILED, case.list_evidence("cudnn-init"), (Cause.OOM,), note, title)
    return Decision(Cause.CUDNN_INIT_FAILED, case.list_evidence("cudnn-init"), (Cause.OOM,))


_OPERATION_FAILED = re.compile(r"CUDNN_STATUS_(?:EXECUTION_FAILED|MAPPING_ERROR)")
"""cuDNN status codes for a failed operation, after cuDNN was started."""


def _is_oldest_branch(case: LogContext, driver: str) -> bool:
    """Return whether a driver belongs to the oldest branch that this CUDA supports, or to an older one.

    Later cuDNN releases need a newer driver.
    """
    release = case.origin.release
    cuda = case.origin.cuda_version or (release.cuda if release is not None else None)
    if cuda is None or "." not in cuda:
        return versions.major(driver) < 390  # without a known CUDA version
    minimum = case.compat.driver_minimum(cuda).minimum
    return minimum is not None and versions.major(driver) <= versions.major(minimum)


def detect_cublas(case: LogContext) -> Decision | None:
    """Return the cause if cuBLAS does not start."""
    if not case.log.has("cublas-init"):
        return None
    other_causes = (Cause.OOM, Cause.GPU_BUSY_OTHER_PROCESS)
    return Decision(Cause.CUBLAS_INIT_FAILED, case.list_evidence("cublas-init"), other_causes)


def detect_tools(case: LogContext) -> Decision | None:
    """Return the cause if libdevice or ptxas is missing, or NCCL fails."""
    log = case.log
    if log.has("libdevice", "ptxas-missing"):
        return Decision(Cause.LIBDEVICE_OR_PTXAS_MISSING, case.list_evidence("libdevice", "ptxas-missing"))
    if log.has("nccl"):
        return Decision(Cause.NCCL_FAILURE, case.list_evidence("nccl"))
    return None


# ---------------------------------------------------------------- no GPU, without a reason


def detect_both_packages(case: LogContext) -> Decision | None:
    """Return the cause if two TensorFlow packages overwrote each other.

    They count only if the result is broken or has no GPU support.
    """
    log = case.log
    if case.registration is not None or not case.has_both_packages:
        return None
    if not (
        log.has("attribute-missing", "native-runtime-failed")
        or has_listed_no_gpu(case)
        or _is_cpu_build(case)
    ):
        return None
    evidence = case.list_evidence("both-installed", "package-listed", "attribute-missing", "gpu-none-listed")
    return Decision(Cause.BOTH_PACKAGES, evidence, (Cause.CPU_ONLY_BUILD,))


def detect_placement(case: LogContext) -> Decision | None:
    """Return the cause if the build has no GPU support, or an operation cannot be placed."""
    log = case.log
    if case.registration is None and _is_cpu_build(case):
        return Decision(
            Cause.CPU_ONLY_BUILD,
            case.list_evidence("not-built-with-cuda", "built-with-cuda-asked", "answer-line"),
        )
    if log.has("placement"):
        return Decision(Cause.PLACEMENT_ERROR, case.list_evidence("placement"))
    return None


def _is_cpu_build(case: LogContext) -> bool:
    """Return whether the log shows a build without GPU support."""
    log = case.log
    if log.has("not-built-with-cuda"):
        return True
    return case.has_answer("built-with-cuda-asked", "False")


def detect_fault(case: LogContext) -> Decision | None:
    """Return an inconclusive decision if a kernel was aborted. The program, the GPU or the driver can be at fault."""
    events = case.list_evidence("gpu-fault")
    if not events:
        return None
    note = (
        "A GPU was registered, but then a kernel was aborted on it. The cause is a fault of the program "
        "or of an operation (the usual case), of the "
        "card (memory, heat, power) or of the driver; NVRM and Xid lines of the kernel's log tell "
        "them apart."
    )
    title = "The GPU is registered and works, until a kernel on it is aborted"
    return Decision(Cause.INCONCLUSIVE, events, (), note, title)


def detect_fork(case: LogContext) -> Decision | None:
    """Return an inconclusive decision if a forked process cannot use CUDA."""
    events = case.list_evidence("forked")
    if not events:
        return None
    note = f"{FORK_NOTE} Where the workers need no GPU, the message is harmless."
    title = "A process that was forked from one that uses the GPU cannot use it"
    return Decision(Cause.INCONCLUSIVE, events, (), note, title)


_COMMAND = re.compile(
    r"^(?:[^\n]{0,80}[$#%>±] {1,3}|\W{0,8})(?:env )?CUDA_VISIBLE_DEVICES=\S{0,8} {1,3}(?:\S{0,80}/)?python"
)
"""A command line, with or without a prompt, that starts Python with CUDA_VISIBLE_DEVICES set."""


def detect_nothing_registered(case: LogContext) -> Decision | None:
    """Return the cause if no GPU was registered and no message says why. None if nothing shows a cause."""
    log = case.log
    if case.registration is not None:
        return None
    if log.has("xla-gpu-listed"):
        return Decision(Cause.XLA_GPU_ONLY, case.list_evidence("xla-gpu-listed"), LIBRARY_CAUSES)
    hiding_event = case.hiding_event
    if hiding_event is not None and (
        has_listed_no_gpu(case)
        or (_COMMAND.search(hiding_event.text) and case.ready_order < 0 and log.has("dso-opened"))
    ):
        return Decision(Cause.HIDDEN_BY_ENV, (hiding_event, *case.list_evidence("gpu-none-listed")))
    if log.has("dso-opened", "device-found", "numa", "xla-on-cuda", "devices-visible"):
        return None
    return _explain_silence(case) if has_listed_no_gpu(case) else None


def _explain_silence(case: LogContext) -> Decision:
    """Return the cause if no GPU is listed and nothing is logged about a driver or a library.

    A build without GPU support logs nothing. Some releases with GPU support also log nothing if libcuda or NVML
    is missing.
    """
    events = case.list_evidence("gpu-none-listed", "devices-listed-cpu")
    if case.log.has("tensorrt-missing", "factory"):  # only a build with GPU code prints these
        if case.has_trait("silent-without-libcuda"):
            return Decision(Cause.NO_DRIVER, events, (Cause.CONTAINER_NO_GPU, Cause.INCONCLUSIVE))
        return Decision(Cause.INCONCLUSIVE, events, (Cause.NO_DRIVER, Cause.HIDDEN_BY_ENV))
    if case.has_trait("silent-without-nvml"):
        return Decision(Cause.INCONCLUSIVE, events, (Cause.CPU_ONLY_BUILD, Cause.NVML_MISSING))
    other_causes = (Cause.NO_DEVICE, Cause.HIDDEN_BY_ENV, Cause.INCONCLUSIVE)
    return Decision(Cause.CPU_ONLY_BUILD, events, other_causes)


def has_listed_no_gpu(case: LogContext) -> bool:
    """Return whether the program listed its devices or tested for a GPU, and there was none."""
    return case.log.has("gpu-none-listed", "devices-listed-cpu") or case.has_answer("gpu-asked", "False")


def detect_healthy(case: LogContext) -> Decision | None:
    """Return the decision that a GPU was registered or that nothing prevents it.

    None if the log does not show that.
    """
    if case.registration is not None or case.ready_order >= 0 or case.has_remaining_gpus:
        return Decision(
            Cause.HEALTHY,
            case.list_evidence("device-created", "gpu-listed", "gpu-listed-old", "devices-visible")[:4],
        )
    return None
