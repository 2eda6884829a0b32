"""Detect failures of the CUDA libraries, the GPU and its memory.

Each `detect_…` function returns a decision, or None if the log does not show the failure that it detects.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.findings import Cause
from tfdoctor.logs.detectors.machine import FORK_NOTE
from tfdoctor.logs.libraries import (
    choose_library_cause,
    describe_available_libraries,
    find_search_path,
    is_cuda_only_on_search_path,
    is_cudnn_library,
    is_cupti_library,
    is_partly_installed,
    strip_library_name,
)
from tfdoctor.logs.log_context import LIBRARY_CAUSES, Decision, LogContext
from tfdoctor.logs.version_inference import find_gpu_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.logs.events import Event
    from tfdoctor.logs.libraries import UnopenedLibrary

MAX_BUSY_MIB = 1024
"""The reserved memory in MiB below which another process must be using the GPU."""
_TEGRA_GPU = re.compile(r"\b(?:Tegra|Orin|Xavier|Thor)\b")
"""Names of GPUs that use system memory. If they get little of it, that does not mean that they are busy."""
MAX_BUSY_SHARE = 0.35
"""The reserved share of a small GPU's memory below which another process must be using the GPU."""
_UNUSABLE_FILE_ERRORS = (
    (Cause.DAMAGED_FILE, ("file too short", "invalid ELF header", "wrong ELF class")),
    (Cause.NOT_PERMITTED, ("Permission denied", "Operation not permitted")),
)
"""Loader errors for a file that exists but cannot be used, by cause."""
_AMPERE_CAPABILITY = "8.0"
_FAILED_OPERATION = re.compile(r"CUDNN_STATUS_(?:EXECUTION_FAILED|MAPPING_ERROR)")
"""cuDNN status codes for an operation that failed after cuDNN had started."""
_PYTHON_COMMAND = re.compile(
    r"^(?:[^\n]{0,80}[$#%>±] {1,3}|\W{0,8})(?:env )?CUDA_VISIBLE_DEVICES=\S{0,8} {1,3}(?:\S{0,80}/)?python"
)
"""A command line, with or without a prompt, that starts Python with CUDA_VISIBLE_DEVICES set."""
USAGE_SIGNATURES = ("gpu-used", "ptxas-fallback", "delay-kernel")
"""Messages about work on a GPU, or about code that is compiled for one: a GPU was registered before."""


# ---------------------------------------------------------------- libraries


def detect_lazy_libraries(context: LogContext) -> Decision | None:
    """Return the cause if a library that TensorFlow opens only on demand cannot be used."""
    lazy_libraries = [
        library for library in context.missing_libraries if library.event.id == "lazy-library-failed"
    ]
    if context.log.has("library-version"):
        return Decision(Cause.LIBS_WRONG_VERSION, context.list_evidence("library-version"))
    symbol_event = context.log.find_first("undefined-symbol")
    if symbol_event is not None and is_cudnn_library(symbol_event.get("soname")):
        return Decision(Cause.CUDNN_VERSION_MISMATCH, context.list_evidence("undefined-symbol"))
    if symbol_event is not None:
        return Decision(Cause.LIBS_WRONG_VERSION, context.list_evidence("undefined-symbol"))
    if context.log.has("cudnn-not-linked"):
        return Decision(
            Cause.CUDNN_MISSING, context.list_evidence("cudnn-not-linked"), (Cause.LIBS_NOT_ON_PATH,)
        )
    if context.log.has("cudnn-not-loaded"):
        return Decision(Cause.CUDNN_MISSING, context.list_evidence("cudnn-not-loaded"), LIBRARY_CAUSES)
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
    # 126: the DLL was found or not, and one that it needs was not; cudnn64_8.dll, which opens the others, was found
    if any(
        library.event.get("error").startswith("126") and strip_library_name(library.soname) != "cudnn"
        for library in lazy_libraries
    ):
        title = "A DLL of cuDNN, or one that it needs, is not found"
        other_causes = (Cause.CUDNN_MISSING, Cause.LIBS_NOT_ON_PATH)
        return Decision(Cause.LIBS_TRANSITIVE, events, other_causes, title=title)
    cause = Cause.CUDNN_MISSING if is_cudnn_library(lazy_libraries[0].soname) else Cause.LIBS_NOT_ON_PATH
    return Decision(cause, events, (Cause.LIBS_NOT_ON_PATH,))


def detect_libraries(context: LogContext) -> Decision | None:
    """Return the cause if the log names missing libraries that registration needs."""
    libraries = context.missing_toolkit_libraries
    if not libraries:
        return None
    events = tuple(library.event for library in libraries[:12])
    unusable_cause = _find_unusable_cause(libraries)
    if unusable_cause is not None:
        return Decision(unusable_cause, events)
    cause = choose_library_cause(libraries, context.log, context.compat)
    is_listed = {library.soname for library in libraries} <= _list_installed_sonames(context)
    if is_listed:
        events = (*context.list_evidence("library-file-listed"), *events)
        cause = Cause.LIBS_NOT_ON_PATH
    other_causes = () if is_listed else tuple(other for other in LIBRARY_CAUSES if other is not cause)
    search_path = find_search_path(libraries)
    note = describe_available_libraries(libraries, context.log, context.compat, context.gpu_names)
    title = ""
    if (
        cause is Cause.LIBS_WRONG_VERSION
        and context.mismatched_cuda_versions is None
        and is_partly_installed(libraries, context.log)
    ):
        title = "Some of the libraries that this TensorFlow opens are installed, others are not"
        note = f"{note} Usually a different version is installed, or only some of its packages."
    elif (
        cause is Cause.LIBS_WRONG_VERSION
        and context.mismatched_cuda_versions is None
        and is_cuda_only_on_search_path(libraries, context.log)
    ):
        title = "LD_LIBRARY_PATH names a CUDA, but what this TensorFlow opens is not found there"
        note = f"{note} Usually a different version is installed, or none.".strip()
    if cause is Cause.LIBS_WRONG_VERSION and search_path:
        note = f"{note} LD_LIBRARY_PATH was {search_path}.".strip().replace("`", "'")
    elif (
        not is_listed
        and len(libraries) == 1
        and strip_library_name(libraries[0].soname) == "cudart"
        and not context.log.has("registration-skipped")
    ):
        other_causes = (*other_causes, Cause.NO_DRIVER)
    return Decision(cause, events, other_causes, note=note, title=title)


def _list_installed_sonames(context: LogContext) -> set[str]:
    """Return the sonames of the library files that the log lists, with their folders or after a command that lists files."""
    asked = context.log.find_first("listing-asked")
    return {
        event.get("soname")
        for event in context.log.list_events("library-file-listed")
        if event.get("folder") or (asked is not None and asked.line < event.line)
    }


def _find_unusable_cause(missing: Sequence[UnopenedLibrary]) -> Cause | None:
    """Return the cause if all these libraries exist but cannot be used for the same reason, else None."""
    for cause, errors in _UNUSABLE_FILE_ERRORS:
        if all(any(error in library.error for error in errors) for library in missing):
            return cause
    return None


def detect_unnamed_libraries(context: LogContext) -> Decision | None:
    """Return the cause if libraries are missing but the log does not name them."""
    return _detect_skipped_by(
        context, "registration-skipped", "cuda-runtime-not-loaded", "cuda-not-found", "cudart-stub-note"
    )


def detect_skipped_registration(context: LogContext) -> Decision | None:
    """Return the cause if registration was skipped and the log does not name the missing libraries.

    This runs before `detect_memory`, because memory does not matter if no GPU is registered.
    """
    return _detect_skipped_by(context, "registration-skipped", "cuda-runtime-not-loaded")


def _detect_skipped_by(context: LogContext, *signature_ids: str) -> Decision | None:
    """Return the cause if an event of these signatures shows that no GPU was registered."""
    event = context.log.find_last(*signature_ids)
    if event is not None and event.id != "registration-skipped" and context.gpu_ready_order >= 0:
        return None
    if event is None or (
        context.registration_event is not None and context.registration_event.order > event.order
    ):
        return None
    if context.registration_event is not None and event.id != "registration-skipped":
        return None
    if context.hiding_event is not None:
        return Decision(
            Cause.HIDDEN_BY_ENV,
            (context.hiding_event, *context.list_evidence(*signature_ids)),
            (Cause.LIBS_UNLISTED,),
        )
    other_causes: tuple[Cause, ...] = LIBRARY_CAUSES
    if not context.log.has("registration-skipped", "cuda-runtime-not-loaded", "numa"):
        other_causes = (*other_causes, Cause.NO_DRIVER, Cause.HIDDEN_BY_ENV)
    return Decision(Cause.LIBS_UNLISTED, context.list_evidence(*signature_ids), other_causes)


def detect_cupti(context: LogContext) -> Decision | None:
    """Return the cause if the profiler cannot use CUPTI."""
    missing = [library for library in context.missing_libraries if is_cupti_library(library.soname)]
    if not missing and not context.log.has("cupti-failed", "cupti-not-permitted"):
        return None
    if context.log.has("cupti-not-permitted") and not missing:
        return Decision(
            Cause.CUPTI_MISSING,
            context.list_evidence("cupti-not-permitted"),
            note="CUPTI was found. The driver lets only root read these counters, where nobody allows it to others.",
            title="The profiler may not read the GPU's counters; nothing else needs them",
        )
    events = (*(library.event for library in missing[:2]), *context.list_evidence("cupti-failed"))
    return Decision(Cause.CUPTI_MISSING, events)


# ---------------------------------------------------------------- GPU code


def detect_ignored_gpus(context: LogContext) -> Decision | None:
    """Return the cause if TensorFlow ignored every GPU, or if XLA (1.13 to 2.0) fails on an ignored GPU."""
    if (
        context.registration_event is None
        and context.log.has("xla-breaks")
        and context.log.has("device-ignored-xla")
    ):
        return Decision(
            Cause.GPU_TOO_OLD, context.list_evidence("device-ignored-xla", "device-ignored", "xla-breaks")
        )
    if context.registration_event is not None or context.has_unignored_gpus:
        return None
    event = context.log.find_last("amd-ignored")
    if event is not None:
        return Decision(_choose_amd_cause(event), context.list_evidence("amd-ignored"))
    if context.log.has("device-ignored"):
        note = _describe_other_build(context)
        return Decision(Cause.GPU_TOO_OLD, context.list_evidence("device-ignored"), note=note)
    return None


def _describe_other_build(context: LogContext) -> str:
    """Return a sentence if the official build of this release registers the ignored card; "" if not, or if unknown."""
    release, event = context.origin.release, context.log.find_last("device-ignored")
    if event is None or release is None or release.registration_floor is None or not event.get("floor"):
        return ""
    floor = release.registration_floor
    if not _is_at_least(event.get("cc"), floor):
        return ""
    return (
        f"This build takes cards from compute capability {event.get('floor')} on. The official wheel of TensorFlow "
        f"{release.minor} takes them from {floor} on: install that one for this card."
    )


def _choose_amd_cause(event: Event) -> Cause:
    """Return GPU_TOO_OLD or GPU_TOO_NEW for an AMD GPU that TensorFlow ignored."""

    def parse_generation(target: str) -> int:
        # gfx906 is of generation 9, gfx1030 of generation 10: the last two characters are the stepping
        generation_match = re.match(r"gfx(\w{1,3}?)\w\w$", target)
        return int(generation_match[1]) if generation_match and generation_match[1].isdecimal() else 0

    actual_generation = parse_generation(event.get("gfx"))
    supported_generations = [
        parse_generation(gfx) for gfx in re.findall(r"gfx\w{3,5}", event.get("supported"))
    ]
    is_too_old = supported_generations and actual_generation < min(supported_generations)
    return Cause.GPU_TOO_OLD if is_too_old else Cause.GPU_TOO_NEW


def detect_missing_gpu_code(context: LogContext) -> Decision | None:
    """Return the cause if TensorFlow has no code for a GPU that is registered or about to be."""
    log = context.log
    if log.has("arch-mismatch"):
        return Decision(Cause.GPU_TOO_OLD, context.list_evidence("arch-mismatch", "device-created"))
    ptxas_event = log.find_first("ptxas-too-old")
    if ptxas_event is not None and not _is_at_least(ptxas_event.get("arch"), "5.0"):
        return Decision(Cause.GPU_TOO_OLD, context.list_evidence("ptxas-too-old"))
    if ptxas_event is not None:
        return Decision(
            Cause.GPU_TOO_NEW, context.list_evidence("jit-from-ptx", "no-kernel-image", "ptxas-too-old")
        )
    if log.has("target-too-new"):
        return Decision(Cause.GPU_TOO_NEW, context.list_evidence("target-too-new"))
    capability = context.find_capability()
    is_newer = (
        _is_newer_than_cuda(context, capability)
        and detect_memory(context) is None
        and not log.has("gpu-fault")
    )
    event = log.find_first("no-kernel-image")
    is_older = _is_older_than_all_code(context, capability)
    if log.has("jit-from-ptx") and (is_newer or event is not None) and not is_older:
        return Decision(Cause.GPU_TOO_NEW, context.list_evidence("jit-from-ptx", "no-kernel-image"))
    if event is not None and event.get("what").startswith("hip"):
        cause = Cause.GPU_TOO_OLD if _has_only_old_gfx(context) else Cause.GPU_TOO_NEW
        return Decision(cause, context.list_evidence("no-kernel-image", "gfx-name"))
    if event is not None and "INVALID_HANDLE" in event.get("what"):
        # the kernel was not loaded; this was observed on GPUs newer than the build (compute capability 10.0 and later)
        event = event if capability is None or _is_at_least(capability, "10.0") else None
        is_newer = True
    if event is not None:
        is_too_new = (
            is_newer
            or "PTX" in event.get("what")
            or (capability is not None and _is_at_least(capability, "8.9"))
            # CUDA 10 reports this for cards of the generation Ampere
            or (
                event.get("what") == "device kernel image is invalid"
                and capability is not None
                and _is_at_least(capability, "8.0")
            )
        )
        is_too_new = is_too_new and not is_older
        cause = Cause.GPU_TOO_NEW if is_too_new else Cause.GPU_TOO_OLD
        evidence = context.list_evidence("no-kernel-image", "device-created", "device-properties")
        # a build for a few GPUs lacks code both for older and for newer ones
        if capability is None and not is_too_new:
            title = "This TensorFlow has no code that the card can run"
            note = (
                "The log does not name the card: usually it is older than what this TensorFlow was built for."
            )
            return Decision(cause, evidence, (Cause.GPU_TOO_NEW,), note=note, title=title)
        return Decision(cause, evidence)
    if is_newer and (context.registration_event is not None or log.has("cublas-init", "cudnn-init")):
        described = context.list_evidence("device-created", "device-properties")
        described = described or context.list_evidence("card-named")
        return Decision(
            Cause.GPU_TOO_NEW,
            (*described, *context.list_evidence("cublas-init", "cudnn-init")),
            note=f"CUDA {context.origin.cuda_version} does not support compute capability {capability}.",
        )
    return None


def detect_compilation(context: LogContext) -> Decision | None:
    """Return the cause if PTX must first be compiled for the GPU, which is slow but works."""
    if not context.log.has("jit-from-ptx"):
        return None
    # TensorFlow logs "jit-from-ptx" for any GPU without a cubin, even for one that is older than all PTX
    is_older = _is_older_than_all_code(context, context.find_capability())
    return Decision(
        Cause.GPU_TOO_OLD if is_older else Cause.GPU_TOO_NEW, context.list_evidence("jit-from-ptx")
    )


def _is_older_than_all_code(context: LogContext, capability: str | None) -> bool:
    """Return whether the GPU is older than all code in this release.

    Its PTX does not help, because PTX can only be compiled for newer GPUs.
    """
    release = context.origin.release
    architectures = [*release.cubin, *release.ptx] if release is not None else []
    return (
        capability is not None
        and bool(architectures)
        and not any(_is_at_least(capability, architecture) for architecture in architectures)
    )


def _has_only_old_gfx(context: LogContext) -> bool:
    """Return whether the log names AMD GPUs and all are older than gfx900. ROCm dropped those first."""
    names = [event.get("gfx").removeprefix("gfx") for event in context.log.list_events("gfx-name")]
    return bool(names) and all(len(name) == 3 and name < "900" for name in names)


def _is_at_least(capability: str, minimum: str) -> bool:
    """Return whether a compute capability is at least `minimum`."""
    return versions.parse_capability(capability) >= versions.parse_capability(minimum)


def _is_newer_than_cuda(context: LogContext, capability: str | None) -> bool:
    """Return whether the GPU's major compute capability is too high for the release's CUDA."""
    if capability is None or context.origin.cuda_version is None:
        return False
    cuda = context.origin.cuda_version
    series = context.compat.find_cuda_series(versions.major_minor(cuda) if "." in cuda else f"{cuda}.0")
    if series is None or not series.capabilities or "." not in cuda:
        return False
    max_major = max(versions.parse_capability(supported)[0] for supported in series.capabilities)
    return versions.parse_capability(capability)[0] > max_major


# ---------------------------------------------------------------- a registered GPU that fails


def _is_gpu_busy(context: LogContext) -> bool:
    """Return whether TensorFlow got so little of a GPU's memory that another process must be using it."""
    reserved_mib = [
        device.memory_mib for device in context.registered_devices if device.memory_mib is not None
    ]
    if not reserved_mib or any(_TEGRA_GPU.search(device.name) for device in context.registered_devices):
        return False
    smallest_mib, total_mib = min(reserved_mib), find_gpu_memory(context.log)
    if total_mib is not None and total_mib < 2300:  # a small GPU, with up to 2 GiB
        return smallest_mib < total_mib * MAX_BUSY_SHARE
    return smallest_mib < MAX_BUSY_MIB


def detect_memory(context: LogContext) -> Decision | None:
    """Return the cause if the GPU ran out of memory."""
    log = context.log
    context_event = log.find_first("context-failed")
    if context_event is not None and "MEMORY" in context_event.get("code").upper():
        return Decision(Cause.GPU_BUSY_OTHER_PROCESS, context.list_evidence("context-failed"), (Cause.OOM,))
    failed_events = list_failed_allocations(context)
    if failed_events and _is_gpu_busy(context):
        events = (*context.list_evidence("device-created"), *failed_events[:3])
        return Decision(Cause.GPU_BUSY_OTHER_PROCESS, events, (Cause.OOM,))
    if _is_gpu_busy(context) and log.has("cublas-init", "cudnn-init"):
        events = context.list_evidence("device-created", "cublas-init", "cudnn-init")
        return Decision(Cause.GPU_BUSY_OTHER_PROCESS, events, (Cause.OOM, Cause.CUBLAS_INIT_FAILED))
    if failed_events and all("bytes on host" in event.text for event in failed_events):
        return Decision(
            Cause.OOM, tuple(failed_events[:4]), title="The machine's memory ran out, not the GPU's"
        )
    if failed_events:
        return Decision(Cause.OOM, tuple(failed_events[:4]), (Cause.GPU_BUSY_OTHER_PROCESS,))
    return None


def list_failed_allocations(context: LogContext) -> list[Event]:
    """Return the failed allocations, except those that the next message describes as harmless."""
    harmless_records = {event.message_number for event in context.log.list_events("oom-not-a-failure")}
    return [
        event
        for event in context.log.list_events("oom")
        if harmless_records.isdisjoint((event.message_number, event.next_message_number))
    ]


def detect_cudnn(context: LogContext) -> Decision | None:
    """Return the cause if cuDNN does not start, or fails after its start."""
    log = context.log
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
        return Decision(Cause.CUDNN_VERSION_MISMATCH, context.list_evidence("cudnn-version"), note=note)
    # a message that the log describes as expected does not count
    expected_records = {event.message_number for event in log.list_events("cudnn-not-asked")}
    if all(event.message_number in expected_records for event in log.list_events("cudnn-init")):
        return None
    event = log.find_first("driver-possibly-insufficient")
    if event is not None and _is_oldest_branch(context, event.get("driver")):
        return Decision(
            Cause.DRIVER_TOO_OLD,
            context.list_evidence("driver-possibly-insufficient", "cudnn-init"),
            (Cause.CUDNN_INIT_FAILED,),
        )
    if all(_FAILED_OPERATION.search(event.text) for event in log.list_events("cudnn-init")):
        title = "cuDNN started, and failed at work"
        note = "The log does not say why: usually memory, a driver or cuDNN that does not serve this card."
        return Decision(
            Cause.CUDNN_INIT_FAILED,
            context.list_evidence("cudnn-init"),
            (Cause.OOM,),
            note=note,
            title=title,
        )
    return Decision(Cause.CUDNN_INIT_FAILED, context.list_evidence("cudnn-init"), (Cause.OOM,))


def _is_oldest_branch(context: LogContext, driver: str) -> bool:
    """Return whether a driver belongs to the oldest branch that this CUDA supports, or to an older one.

    Later cuDNN releases need a newer driver.
    """
    release = context.origin.release
    cuda = context.origin.cuda_version or (release.cuda if release is not None else None)
    if cuda is None or "." not in cuda:
        return versions.major(driver) < 390  # without a known CUDA version
    minimum = context.compat.find_driver_minimum(cuda).minimum
    return minimum is not None and versions.major(driver) <= versions.major(minimum)


def detect_cublas(context: LogContext) -> Decision | None:
    """Return the cause if cuBLAS does not start."""
    if not context.log.has("cublas-init"):
        return None
    evidence = context.list_evidence("cublas-init")
    events = context.log.list_events("cublas-init")
    if any("EXECUTION_FAILED" in event.text for event in events) and not any(
        event.get("status") or "ALLOC_FAILED" in event.text for event in events
    ):
        title = "cuBLAS started, and failed at work"
        if _is_newer_than_cuda(context, _AMPERE_CAPABILITY):
            note = (
                f"CUDA {context.origin.cuda_version} has no code for the RTX 30, the A100 and later cards, and the log "
                "does not name the card."
            )
            return Decision(Cause.CUBLAS_INIT_FAILED, evidence, (Cause.GPU_TOO_NEW,), note=note, title=title)
        note = (
            "The log does not say why: usually memory, or a driver or a CUDA that does not serve this card."
        )
        return Decision(Cause.CUBLAS_INIT_FAILED, evidence, (Cause.OOM,), note=note, title=title)
    return Decision(Cause.CUBLAS_INIT_FAILED, evidence, (Cause.OOM, Cause.GPU_BUSY_OTHER_PROCESS))


def detect_compiler_and_nccl(context: LogContext) -> Decision | None:
    """Return the cause if libdevice or ptxas is missing, or NCCL fails."""
    log = context.log
    if log.has("libdevice", "ptxas-missing"):
        return Decision(Cause.LIBDEVICE_OR_PTXAS_MISSING, context.list_evidence("libdevice", "ptxas-missing"))
    if log.has("nccl"):
        return Decision(Cause.NCCL_FAILURE, context.list_evidence("nccl"))
    return None


# ---------------------------------------------------------------- no GPU, without a reason


def detect_both_packages(context: LogContext) -> Decision | None:
    """Return the cause if two TensorFlow packages overwrote each other.

    Two packages alone are no failure: the log must also show a failed import or no GPU support.
    """
    log = context.log
    if context.registration_event is not None or not context.has_both_packages:
        return None
    # before 2.1 the package without GPU code overwrites the other one
    overwrites = log.has("package-listed") and not any(
        versions.compare(event.get("version") or "9", "2.1") >= 0
        for event in log.list_events("package-listed")
    )
    has_messages = log.has("format-classic", "format-absl")
    if not (
        (overwrites and not has_messages)
        or log.has("attribute-missing", "native-runtime-failed")
        or has_listed_no_gpu(context)
        or _has_cpu_build(context)
    ):
        return None
    evidence = context.list_evidence(
        "both-installed", "package-listed", "attribute-missing", "gpu-none-listed"
    )
    return Decision(Cause.BOTH_PACKAGES, evidence, (Cause.CPU_ONLY_BUILD,))


def detect_placement(context: LogContext) -> Decision | None:
    """Return the cause if the build has no GPU support, or an operation cannot be placed."""
    log = context.log
    if context.registration_event is None and _has_cpu_build(context):
        evidence = context.list_evidence(
            "not-built-with-cuda", "compiler-not-linked", "built-with-cuda-asked"
        )
        answers = context.list_printed_answers("built-with-cuda-asked", "False")
        return Decision(Cause.CPU_ONLY_BUILD, (*evidence, *answers[:2]))
    event = log.find_first("device-list-invalid")
    if event is not None:
        title = f"The program asks for GPU {event.get('index')}, and this process sees {event.get('count')} of them"
        return Decision(Cause.PLACEMENT_ERROR, context.list_evidence("device-list-invalid"), title=title)
    if log.has("placement"):
        # an XLA_GPU among the available devices, and no GPU: what should register it failed
        if log.has("xla-gpu-listed") and context.registration_event is None and context.gpu_ready_order < 0:
            return Decision(Cause.XLA_GPU_ONLY, context.list_evidence("placement"), LIBRARY_CAUSES)
        return Decision(Cause.PLACEMENT_ERROR, context.list_evidence("placement"))
    return None


def _has_cpu_build(context: LogContext) -> bool:
    """Return whether the log shows a build without GPU support."""
    log = context.log
    if log.has("not-built-with-cuda", "compiler-not-linked"):
        return True
    return context.has_printed_answer("built-with-cuda-asked", "False")


def detect_fault(context: LogContext) -> Decision | None:
    """Return an inconclusive decision if a kernel was aborted, which has several possible reasons."""
    events = context.list_evidence("gpu-fault")
    if not events:
        return None
    note = (
        "A GPU was registered, but then a kernel was aborted on it. The cause is a fault of the program "
        "or of an operation (the usual case), of the "
        "card (memory, heat, power) or of the driver."
    )
    title = "The GPU was registered and worked until one of its kernels was aborted"
    return Decision(Cause.INCONCLUSIVE, events, note=note, title=title, is_failure=True)


def detect_fork(context: LogContext) -> Decision | None:
    """Return an inconclusive decision if a forked process cannot use CUDA."""
    events = context.list_evidence("forked")
    if not events:
        return None
    note = f"{FORK_NOTE} Where the workers need no GPU, the message is harmless."
    title = "A process that was forked from one that uses the GPU cannot use it"
    return Decision(Cause.INCONCLUSIVE, events, note=note, title=title)


def detect_missing_registration(context: LogContext) -> Decision | None:
    """Return the most likely cause if no GPU was registered and no message explains why."""
    log = context.log
    if context.registration_event is not None:
        return None
    if log.has("directml-no-adapter"):
        title = "No GPU is found by DirectML"
        return Decision(Cause.NO_DEVICE, context.list_evidence("directml-no-adapter"), title=title)
    if log.has("xla-gpu-listed"):
        return Decision(Cause.XLA_GPU_ONLY, context.list_evidence("xla-gpu-listed"), LIBRARY_CAUSES)
    hiding_event = context.hiding_event
    if hiding_event is not None and (
        has_listed_no_gpu(context)
        or (
            _PYTHON_COMMAND.search(hiding_event.text)
            and context.gpu_ready_order < 0
            and log.has("dso-opened")
        )
    ):
        return Decision(Cause.HIDDEN_BY_ENV, (hiding_event, *context.list_evidence("gpu-none-listed")))
    if log.has("dso-opened", "device-found", "numa", "xla-on-cuda", "devices-visible"):
        return None
    return _decide_without_messages(context) if has_listed_no_gpu(context) else None


def _decide_without_messages(context: LogContext) -> Decision:
    """Return the decision if no GPU is listed and nothing is logged about a driver or a library.

    A build without GPU support logs nothing. Some builds with GPU support also log nothing if libcuda or NVML is
    missing.
    """
    events = context.list_evidence("gpu-none-listed", "devices-listed-cpu")
    if context.log.has("tensorrt-missing", "factory"):  # only a build with GPU support prints these
        if context.has_trait("silent-without-libcuda"):
            return Decision(Cause.NO_DRIVER, events, (Cause.CONTAINER_NO_GPU, Cause.INCONCLUSIVE))
        return Decision(Cause.INCONCLUSIVE, events, (Cause.NO_DRIVER, Cause.HIDDEN_BY_ENV))
    if context.has_trait("silent-without-nvml"):
        return Decision(Cause.INCONCLUSIVE, events, (Cause.CPU_ONLY_BUILD, Cause.NVML_MISSING))
    other_causes = (Cause.NO_DEVICE, Cause.HIDDEN_BY_ENV, Cause.INCONCLUSIVE)
    return Decision(Cause.CPU_ONLY_BUILD, events, other_causes)


def has_listed_no_gpu(context: LogContext) -> bool:
    """Return whether the program listed its devices or tested for a GPU, and there was none."""
    return context.log.has("gpu-none-listed", "devices-listed-cpu") or context.has_printed_answer(
        "gpu-asked", "False"
    )


def detect_healthy(context: LogContext) -> Decision | None:
    """Return the decision HEALTHY if a GPU was registered or nothing prevents that.

    Return None if the log shows neither.
    """
    if context.registration_event is not None or context.gpu_ready_order >= 0 or context.has_unignored_gpus:
        return Decision(
            Cause.HEALTHY,
            context.list_evidence("device-created", "gpu-listed", "gpu-listed-old", "devices-visible")[:4],
        )
    if not context.log.has("framework-jax") and context.log.has(*USAGE_SIGNATURES):
        return Decision(Cause.HEALTHY, context.list_evidence(*USAGE_SIGNATURES)[:4])
    return None
