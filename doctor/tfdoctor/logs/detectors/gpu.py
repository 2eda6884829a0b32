"""What fails at the GPU: libraries, the card, its memory, its libraries at work. One gate a cause or a family."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.findings import Cause
from tfdoctor.logs.detectors.machine import FORKED
from tfdoctor.logs.libraries import (
    describe_present,
    is_cudnn,
    is_cupti,
    is_only_path,
    libraries_cause,
    partly_there,
    search_path,
    stem_of,
)
from tfdoctor.logs.log_context import LIBRARY_CAUSES, Case, Decision
from tfdoctor.logs.version_inference import card_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.logs.events import Event
    from tfdoctor.logs.libraries import UnopenedLibrary

BUSY_MIB = 1024
"""A device made with less than this, on a card of unknown size, was made beside somebody else."""
_TEGRA = re.compile(r"\b(?:Tegra|Orin|Xavier|Thor)\b")
"""Cards that share the memory of the system: what is not left there, no other process holds on the card."""
BUSY_SHARE = 0.35


# ---------------------------------------------------------------- libraries


def lazy_libraries(case: Case) -> Decision | None:
    """Parts of cuDNN that are opened when first needed; the program ends there."""
    lazy = [m for m in case.missing if m.event.id == "lazy-library-failed"]
    if case.log.has("library-version"):
        return Decision(Cause.LIBS_WRONG_VERSION, case.says("library-version"))
    symbol = case.log.first("undefined-symbol")
    if symbol is not None and is_cudnn(symbol.get("soname")):
        return Decision(Cause.CUDNN_VERSION_MISMATCH, case.says("undefined-symbol"))
    if symbol is not None:
        return Decision(Cause.LIBS_WRONG_VERSION, case.says("undefined-symbol"))
    if case.log.has("cudnn-not-linked"):
        return Decision(Cause.CUDNN_MISSING, case.says("cudnn-not-linked"), (Cause.LIBS_NOT_ON_PATH,))
    if case.log.has("cudnn-not-loaded"):
        return Decision(Cause.CUDNN_MISSING, case.says("cudnn-not-loaded"), LIBRARY_CAUSES)
    if not lazy:
        return None
    events = tuple(m.event for m in lazy[:2])
    inner = [m for m in lazy if m.transitive or stem_of(m.soname) == "zlibwapi"]
    if any(stem_of(m.soname) == "cuda" for m in inner):
        return Decision(Cause.WSL_LIBCUDA, events, (Cause.LIBS_TRANSITIVE,))
    if inner:
        return Decision(Cause.LIBS_TRANSITIVE, events)
    cause = Cause.CUDNN_MISSING if is_cudnn(lazy[0].soname) else Cause.LIBS_NOT_ON_PATH
    return Decision(cause, events, (Cause.LIBS_NOT_ON_PATH,))


def libraries(case: Case) -> Decision | None:
    """Registration skipped for want of libraries that are named."""
    toolkit = case.toolkit
    if not toolkit:
        return None
    events = tuple(m.event for m in toolkit[:12])
    refused = _explain_unusable(toolkit)
    if refused is not None:
        return Decision(refused, events)
    cause = libraries_cause(toolkit, case.log, case.compat)
    maybe = tuple(c for c in LIBRARY_CAUSES if c is not cause)
    path = search_path(toolkit)
    note = describe_present(toolkit, case.log, case.compat)
    title = ""
    if cause is Cause.LIBS_WRONG_VERSION and case.other_cuda is None and partly_there(toolkit, case.log):
        title = "Some of the libraries that this TensorFlow opens are installed, others are not"
        note = f"{note} Usually a different version is installed, or only some of its packages."
    elif cause is Cause.LIBS_WRONG_VERSION and case.other_cuda is None and is_only_path(toolkit, case.log):
        title = "LD_LIBRARY_PATH names a CUDA, but what this TensorFlow opens is not found there"
        note = f"{note} Usually a different version is installed, or none.".strip()
    if cause is Cause.LIBS_WRONG_VERSION and path:
        note = f"{note} LD_LIBRARY_PATH was {path}.".strip().replace("`", "'")
    elif (
        len(toolkit) == 1
        and stem_of(toolkit[0].soname) == "cudart"
        and not case.log.has("registration-skipped")
    ):
        maybe = (*maybe, Cause.NO_DRIVER)
    return Decision(cause, events, maybe, note, title)


_UNUSABLE = (
    (Cause.DAMAGED_FILE, ("file too short", "invalid ELF header", "wrong ELF class")),
    (Cause.NOT_PERMITTED, ("Permission denied", "Operation not permitted")),
)
"""What the loader says of a file that it found."""


def _explain_unusable(missing: Sequence[UnopenedLibrary]) -> Cause | None:
    """Return why files that are there cannot be opened; None if one of them is not there."""
    for cause, words in _UNUSABLE:
        if all(any(word in one.error for word in words) for one in missing):
            return cause
    return None


def detect_unlisted(case: Case) -> Decision | None:
    """Libraries are missing and the log names none."""
    return _detect_skipped(
        case, "registration-skipped", "cuda-runtime-not-loaded", "cuda-not-found", "cudart-stub-note"
    )


def detect_unlisted_surely(case: Case) -> Decision | None:
    """Return the same, where registration is said to be skipped: memory used by others does not matter then."""
    return _detect_skipped(case, "registration-skipped", "cuda-runtime-not-loaded")


def _detect_skipped(case: Case, *ids: str) -> Decision | None:
    event = case.log.last(*ids)
    if event is not None and event.id != "registration-skipped" and case.ready >= 0:
        return None
    if event is None or (case.created is not None and case.created.order > event.order):
        return None
    if case.created is not None and event.id != "registration-skipped":
        return None
    if case.hidden is not None:
        return Decision(Cause.HIDDEN_BY_ENV, (case.hidden, *case.says(*ids)), (Cause.LIBS_UNLISTED,))
    maybe: tuple[Cause, ...] = LIBRARY_CAUSES
    if not case.log.has("registration-skipped", "cuda-runtime-not-loaded", "numa"):
        maybe = (*maybe, Cause.NO_DRIVER, Cause.HIDDEN_BY_ENV)
    return Decision(Cause.LIBS_UNLISTED, case.says(*ids), maybe)


def cupti(case: Case) -> Decision | None:
    missing = [m for m in case.missing if is_cupti(m.soname)]
    if not missing and not case.log.has("cupti-failed"):
        return None
    if case.log.has("cupti-not-permitted") and not missing:
        return Decision(
            Cause.CUPTI_MISSING,
            case.says("cupti-not-permitted"),
            note="CUPTI was found. The driver lets only root read these counters, where nobody allows it to others.",
            title="The profiler may not read the GPU's counters; nothing else needs them",
        )
    events = (*(m.event for m in missing[:2]), *case.says("cupti-failed"))
    return Decision(Cause.CUPTI_MISSING, events)


# ---------------------------------------------------------------- the card


def detect_ignored(case: Case) -> Decision | None:
    """Every card was left out, or XLA (1.13 to 2.0) fails at the one that was."""
    if case.created is None and case.log.has("xla-breaks") and case.log.has("device-ignored-xla"):
        return Decision(Cause.GPU_TOO_OLD, case.says("device-ignored-xla", "device-ignored", "xla-breaks"))
    if case.created is not None or case.others_left:
        return None
    event = case.log.last("amd-ignored")
    if event is not None:
        return Decision(_amd(event), case.says("amd-ignored"))
    if case.log.has("device-ignored"):
        return Decision(Cause.GPU_TOO_OLD, case.says("device-ignored"))
    return None


def _amd(event: Event) -> Cause:
    def generation(target: str) -> int:
        digits = re.match(r"gfx(\w{1,3}?)\w\w$", target)
        return int(digits[1]) if digits and digits[1].isdecimal() else 0

    have = generation(event.get("gfx"))
    supported = [generation(word) for word in re.findall(r"gfx\w{3,5}", event.get("supported"))]
    return Cause.GPU_TOO_OLD if supported and have < min(supported) else Cause.GPU_TOO_NEW


def detect_no_code(case: Case) -> Decision | None:
    """The card is registered, or was about to be, and there is no code for it."""
    log = case.log
    if log.has("arch-mismatch"):
        return Decision(Cause.GPU_TOO_OLD, case.says("arch-mismatch", "device-created"))
    ptxas = log.first("ptxas-too-old")
    if ptxas is not None and not _from(ptxas.get("arch"), "5.0"):
        return Decision(Cause.GPU_TOO_OLD, case.says("ptxas-too-old"))
    if ptxas is not None:
        return Decision(Cause.GPU_TOO_NEW, case.says("jit-from-ptx", "no-kernel-image", "ptxas-too-old"))
    if log.has("target-too-new"):
        return Decision(Cause.GPU_TOO_NEW, case.says("target-too-new"))
    capability = case.capability()
    newer = _newer_than_cuda(case, capability) and memory(case) is None and not log.has("gpu-fault")
    event = log.first("no-kernel-image")
    older = _is_before_all_code(case, capability)
    if log.has("jit-from-ptx") and (newer or event is not None) and not older:
        return Decision(Cause.GPU_TOO_NEW, case.says("jit-from-ptx", "no-kernel-image"))
    if event is not None and event.get("what").startswith("hip"):
        cause = Cause.GPU_TOO_OLD if _old_gfx(case) else Cause.GPU_TOO_NEW
        return Decision(cause, case.says("no-kernel-image", "gfx-name"))
    if event is not None and "INVALID_HANDLE" in event.get("what"):
        # what cannot be launched was not loaded: seen where a card is newer than the build
        event = event if capability is None or _from(capability, "10.0") else None
        newer = True
    if event is not None:
        too_new = newer or "PTX" in event.get("what") or (capability is not None and _from(capability, "8.9"))
        too_new = too_new and not older
        cause = Cause.GPU_TOO_NEW if too_new else Cause.GPU_TOO_OLD
        evidence = case.says("no-kernel-image", "device-created", "device-properties")
        if capability is None and not too_new:  # a build for few cards lacks code for older and newer ones
            title = "This TensorFlow has no code that the card can run"
            note = (
                "The log does not name the card: usually it is older than what this TensorFlow was built for."
            )
            return Decision(cause, evidence, (Cause.GPU_TOO_NEW,), note, title)
        return Decision(cause, evidence)
    if newer and case.created is not None:
        evidence = case.says("device-created", "cublas-init", "cudnn-init")
        return Decision(
            Cause.GPU_TOO_NEW,
            evidence,
            note=f"CUDA {case.origin.cuda} does not support compute capability {capability}.",
        )
    return None


def detect_compilation(case: Case) -> Decision | None:
    """PTX is compiled for the card first: the cause of a long wait, and of no failure that is told beside it."""
    if not case.log.has("jit-from-ptx"):
        return None
    older = _is_before_all_code(
        case, case.capability()
    )  # TensorFlow says that of any card without machine code
    return Decision(Cause.GPU_TOO_OLD if older else Cause.GPU_TOO_NEW, case.says("jit-from-ptx"))


def _is_before_all_code(case: Case, capability: str | None) -> bool:
    """Return whether a card is older than all code of this release: PTX can only be compiled for newer ones."""
    release = case.origin.release
    code = [*release.cubin, *release.ptx] if release is not None else []
    return capability is not None and bool(code) and not any(_from(capability, one) for one in code)


def _old_gfx(case: Case) -> bool:
    """Return whether rocminfo names a card from before gfx900, with which ROCm began to end support."""
    names = [event.get("gfx").removeprefix("gfx") for event in case.log.list_events("gfx-name")]
    return bool(names) and all(len(name) == 3 and name < "900" for name in names)


def _from(capability: str, floor: str) -> bool:
    return versions.parse_capability(capability) >= versions.parse_capability(floor)


def _newer_than_cuda(case: Case, capability: str | None) -> bool:
    """Return whether the card is of a generation that this TensorFlow's CUDA does not know."""
    if capability is None or case.origin.cuda is None:
        return False
    cuda = case.origin.cuda
    series = case.compat.cuda_series(versions.major_minor(cuda) if "." in cuda else f"{cuda}.0")
    if series is None or not series.capabilities or "." not in cuda:
        return False
    known = max(versions.parse_capability(one)[0] for one in series.capabilities)
    return versions.parse_capability(capability)[0] > known


# ---------------------------------------------------------------- a registered GPU that fails


def _busy(case: Case) -> bool:
    """Return whether a device was made with so little memory that somebody else must have the rest."""
    amounts = [device.memory_mib for device in case.devices if device.memory_mib is not None]
    if not amounts or any(_TEGRA.search(device.name) for device in case.devices):
        return False
    least, card = min(amounts), card_memory(case.log)
    if card is not None and card < 2300:
        return least < card * BUSY_SHARE
    return least < BUSY_MIB


def memory(case: Case) -> Decision | None:
    log = case.log
    context = log.first("context-failed")
    if context is not None and "MEMORY" in context.get("code").upper():
        return Decision(Cause.GPU_BUSY_OTHER_PROCESS, case.says("context-failed"), (Cause.OOM,))
    if context is not None and "out of memory" in context.get("code"):
        return Decision(Cause.GPU_BUSY_OTHER_PROCESS, case.says("context-failed"), (Cause.OOM,))
    failed = list_failed_allocations(case)
    if failed and _busy(case):
        events = (*case.says("device-created"), *failed[:3])
        return Decision(Cause.GPU_BUSY_OTHER_PROCESS, events, (Cause.OOM,))
    if _busy(case) and log.has("cublas-init", "cudnn-init"):
        events = case.says("device-created", "cublas-init", "cudnn-init")
        return Decision(Cause.GPU_BUSY_OTHER_PROCESS, events, (Cause.OOM, Cause.CUBLAS_INIT_FAILED))
    if failed:
        return Decision(Cause.OOM, tuple(failed[:4]), (Cause.GPU_BUSY_OTHER_PROCESS,))
    return None


def list_failed_allocations(case: Case) -> list[Event]:
    """Failures of memory that are failures: not those of which the caller says that they are none."""
    harmless = {event.record for event in case.log.list_events("oom-not-a-failure")}
    return [
        event for event in case.log.list_events("oom") if harmless.isdisjoint((event.record, event.following))
    ]


def cudnn(case: Case) -> Decision | None:
    log = case.log
    if log.has("cudnn-version"):
        told = next((one for one in log.list_events("cudnn-version") if one.get("loaded")), None)
        note = ""
        if told is not None:
            note = f"cuDNN {told.get('loaded')} was loaded; TensorFlow was built with {told.get('built')}."
        return Decision(Cause.CUDNN_VERSION_MISMATCH, case.says("cudnn-version"), note=note)
    expected = {event.record for event in log.list_events("cudnn-not-asked")}
    if all(event.record in expected for event in log.list_events("cudnn-init")):
        return None
    event = log.first("driver-possibly-insufficient")
    if event is not None and _barely_enough(case, event.get("driver")):
        return Decision(
            Cause.DRIVER_TOO_OLD,
            case.says("driver-possibly-insufficient", "cudnn-init"),
            (Cause.CUDNN_INIT_FAILED,),
        )
    if all(_AT_WORK.search(event.text) for event in log.list_events("cudnn-init")):
        title = "cuDNN started, and failed at work"
        note = "The log does not say why: usually memory, a driver or cuDNN that does not serve this card."
        return Decision(Cause.CUDNN_INIT_FAILED, case.says("cudnn-init"), (Cause.OOM,), note, title)
    return Decision(Cause.CUDNN_INIT_FAILED, case.says("cudnn-init"), (Cause.OOM,))


_AT_WORK = re.compile(r"CUDNN_STATUS_(?:EXECUTION_FAILED|MAPPING_ERROR)")
"""What cuDNN answers to an operation; its handle was made before."""


def _barely_enough(case: Case, driver: str) -> bool:
    """Return whether a driver is of the oldest branch that this CUDA takes, or older: cuDNN's later releases want
    more.
    """
    release = case.origin.release
    cuda = case.origin.cuda or (release.cuda if release is not None else None)
    if cuda is None or "." not in cuda:
        return versions.major(driver) < 390
    minimum = case.compat.driver_minimum(cuda).minimum
    return minimum is not None and versions.major(driver) <= versions.major(minimum)


def cublas(case: Case) -> Decision | None:
    if not case.log.has("cublas-init"):
        return None
    maybe = (Cause.OOM, Cause.GPU_BUSY_OTHER_PROCESS)
    return Decision(Cause.CUBLAS_INIT_FAILED, case.says("cublas-init"), maybe)


def tools(case: Case) -> Decision | None:
    log = case.log
    if log.has("libdevice", "ptxas-missing"):
        return Decision(Cause.LIBDEVICE_OR_PTXAS_MISSING, case.says("libdevice", "ptxas-missing"))
    if log.has("nccl"):
        return Decision(Cause.NCCL_FAILURE, case.says("nccl"))
    return None


# ---------------------------------------------------------------- no GPU, and no reason given


def detect_both_packages(case: Case) -> Decision | None:
    """Two packages of TensorFlow are installed over each other, and what is imported has no GPU or is broken."""
    log = case.log
    if case.created is not None or not case.both_listed:
        return None
    if not (
        log.has("attribute-missing", "native-runtime-failed") or is_none_listed(case) or _cpu_build(case)
    ):
        return None
    evidence = case.says("both-installed", "package-listed", "attribute-missing", "gpu-none-listed")
    return Decision(Cause.BOTH_PACKAGES, evidence, (Cause.CPU_ONLY_BUILD,))


def placement(case: Case) -> Decision | None:
    log = case.log
    if case.created is None and _cpu_build(case):
        return Decision(
            Cause.CPU_ONLY_BUILD, case.says("not-built-with-cuda", "built-with-cuda-asked", "answer-line")
        )
    if log.has("placement"):
        return Decision(Cause.PLACEMENT_ERROR, case.says("placement"))
    return None


def _cpu_build(case: Case) -> bool:
    log = case.log
    if log.has("not-built-with-cuda"):
        return True
    return case.answers("built-with-cuda-asked", "False")


def fault(case: Case) -> Decision | None:
    """The GPU was registered and a kernel on it was aborted: no word says which of three is to blame."""
    events = case.says("gpu-fault")
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


def detect_fork(case: Case) -> Decision | None:
    """Return a process that has no CUDA: no word of the cause of the one that it was forked from."""
    events = case.says("forked")
    if not events:
        return None
    note = f"{FORKED} Where the workers need no GPU, the message is harmless."
    title = "A process that was forked from one that uses the GPU cannot use it"
    return Decision(Cause.INCONCLUSIVE, events, (), note, title)


_COMMAND = re.compile(
    r"^(?:[^\n]{0,80}[$#%>±] {1,3}|\W{0,8})(?:env )?CUDA_VISIBLE_DEVICES=\S{0,8} {1,3}(?:\S{0,80}/)?python"
)
"""A program that is started with it, at a prompt."""


def detect_nothing_registered(case: Case) -> Decision | None:
    log = case.log
    if case.created is not None:
        return None
    if log.has("xla-gpu-listed"):
        return Decision(Cause.XLA_GPU_ONLY, case.says("xla-gpu-listed"), LIBRARY_CAUSES)
    hidden = case.hidden
    if hidden is not None and (
        is_none_listed(case) or (_COMMAND.search(hidden.text) and case.ready < 0 and log.has("dso-opened"))
    ):
        return Decision(Cause.HIDDEN_BY_ENV, (hidden, *case.says("gpu-none-listed")))
    if log.has("dso-opened", "device-found", "numa", "xla-on-cuda", "devices-visible"):
        return None
    return _silence(case) if is_none_listed(case) else None


def _silence(case: Case) -> Decision:
    """No GPU is listed, and nothing is said about a driver or a library.

    A build without GPU code is silent. With it, some releases are where there is no libcuda or no NVML; all others
    complain.
    """
    events = case.says("gpu-none-listed", "devices-listed-cpu")
    if case.log.has("tensorrt-missing", "factory"):  # only a build with GPU code prints these
        if case.surely("silent-without-libcuda"):
            return Decision(Cause.NO_DRIVER, events, (Cause.CONTAINER_NO_GPU, Cause.INCONCLUSIVE))
        return Decision(Cause.INCONCLUSIVE, events, (Cause.NO_DRIVER, Cause.HIDDEN_BY_ENV))
    if case.surely("silent-without-nvml"):
        return Decision(Cause.INCONCLUSIVE, events, (Cause.CPU_ONLY_BUILD, Cause.NVML_MISSING))
    maybe = (Cause.NO_DEVICE, Cause.HIDDEN_BY_ENV, Cause.INCONCLUSIVE)
    return Decision(Cause.CPU_ONLY_BUILD, events, maybe)


def is_none_listed(case: Case) -> bool:
    """Return whether a program lists its devices, or is asked, and there is no GPU."""
    return case.log.has("gpu-none-listed", "devices-listed-cpu") or case.answers("gpu-asked", "False")


def healthy(case: Case) -> Decision | None:
    if case.created is not None or case.ready >= 0 or case.others_left:
        return Decision(
            Cause.HEALTHY, case.says("device-created", "gpu-listed", "gpu-listed-old", "devices-visible")[:4]
        )
    return None
