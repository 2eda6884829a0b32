"""The causes that the detectors choose for the machine and the GPU, by the values that decide."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tfdoctor.compat import Compat
from tfdoctor.core.findings import Cause
from tfdoctor.logs.detectors import gpu, machine
from tfdoctor.remedies.place import Place

COMPAT = Compat.load()
VALUES = {
    "smi-failed": {"what": "couldn't communicate with the NVIDIA driver"},
    "dso-opened": {"soname": "libcuda.so.1"},
    "hip-init": {"code": "hipErrorNoDevice"},
}
"""What the events of a signature capture, unless a test says otherwise."""


def make_context(
    *signatures: str, in_container: bool = False, what: str = "", events: Any = None, **fields: Any
) -> Any:
    """Return a context whose log has an event of each of these signatures; `what` is what they capture."""
    names = ("what", "code", "soname", "arch", "gfx")
    captured = {
        name: {**dict.fromkeys(names, what), **({} if what else VALUES.get(name, {}))} for name in signatures
    }
    events = {**captured, **(events or {})}
    log = SimpleNamespace(
        has=lambda *names: any(name in events for name in names),
        list_events=lambda *names: [events[name] for name in names if name in events],
        find_first=events.get,
        find_last=events.get,
    )
    values = {
        "hiding_event": None,
        "missing_libraries": (),
        "registration_event": None,
        "places": (),
        **fields,
    }
    return SimpleNamespace(
        log=log,
        compat=COMPAT,
        is_in_container=lambda: in_container,
        list_evidence=lambda *names: tuple(name for name in names if name in events),
        **values,
    )


def make_unopened(soname: str, signature: str = "dso-failed", order: int = 5) -> Any:
    event = SimpleNamespace(id=signature, order=order)
    return SimpleNamespace(soname=soname, is_transitive=False, event=event, is_of_driver=False)


LIBCUDA = make_unopened("libcuda.so.1")
NO_NODE, NO_MODULE = "device-node-missing", "kernel-driver-missing"
NO_DEVICE, STUB = "CUDA_ERROR_NO_DEVICE", "CUDA_ERROR_STUB_LIBRARY"


@pytest.mark.parametrize(
    ("code", "context", "causes"),
    [
        ("UNKNOWN ERROR (804)", make_context("driver-mismatch"), "compat-not-supported driver-lib-mismatch"),
        ("UNKNOWN ERROR (803)", make_context(), "driver-lib-mismatch"),
        ("", make_context("driver-mismatch"), "driver-lib-mismatch"),
        (STUB, make_context(), "stub-libcuda container-no-gpu"),
        (STUB, make_context(NO_NODE), "container-no-gpu stub-libcuda no-driver"),
        (STUB, make_context(NO_MODULE), "no-driver stub-libcuda no-driver"),
        (STUB, make_context("smi-failed"), "no-driver stub-libcuda no-driver"),
        (STUB, make_context(in_container=True), "container-no-gpu stub-libcuda no-driver"),
        (STUB, make_context("stub-version", in_container=True), "stub-libcuda container-no-gpu"),
        (STUB, make_context("stub-folder", in_container=True), "stub-libcuda container-no-gpu"),
        ("CUDA_ERROR_UNKNOWN", make_context("stub-folder"), "driver-init-unknown"),
        (NO_DEVICE, make_context(NO_MODULE, hiding_event=1), "hidden-by-env no-device"),
        ("CUDA_ERROR_UNKNOWN", make_context(hiding_event=1), "driver-init-unknown"),
        (NO_DEVICE, make_context(NO_MODULE), "no-driver container-no-gpu"),
        (NO_DEVICE, make_context("smi-failed"), "no-driver container-no-gpu"),
        (NO_DEVICE, make_context("smi-failed", "smi-table"), "no-device hidden-by-env no-driver"),
        (NO_DEVICE, make_context("smi-failed", "kernel-driver"), "no-device hidden-by-env"),
        (NO_DEVICE, make_context(missing_libraries=[LIBCUDA]), "no-driver container-no-gpu"),
        (NO_DEVICE, make_context(NO_NODE, in_container=True, missing_libraries=[LIBCUDA]), "container-no-gpu no-driver"),
        (NO_DEVICE, make_context(in_container=True, missing_libraries=[LIBCUDA]), "no-driver container-no-gpu"),
        (NO_DEVICE, make_context(NO_NODE), "no-device no-device container-no-gpu hidden-by-env"),
        (NO_DEVICE, make_context(NO_NODE, in_container=True), "container-no-gpu no-device container-no-gpu hidden-by-env"),
        (NO_DEVICE, make_context("scheduler-hint"), "hidden-by-env no-device"),
        (NO_DEVICE, make_context(registration_event=1), "hidden-by-env no-device"),
        (NO_DEVICE, make_context(places=(Place.WSL,)), "no-device hidden-by-env"),
        (NO_DEVICE, make_context(), "no-device hidden-by-env no-driver"),
        (NO_DEVICE, make_context("library-driver"), "no-device hidden-by-env"),
        ("CUDA_ERROR_UNKNOWN", make_context(NO_NODE), "no-device no-driver driver-init-unknown container-no-gpu"),
        ("CUDA_ERROR_DEVICE_UNAVAILABLE", make_context(), "gpu-busy-other-process"),
        ("CUDA_ERROR_OUT_OF_MEMORY", make_context(), "driver-init-unknown gpu-busy-other-process"),
        ("CUDA_ERROR_INVALID_DEVICE", make_context(), "hidden-by-env driver-init-unknown"),
        ("CUDA_ERROR_UNKNOWN", make_context(), "driver-init-unknown"),
    ],
)  # fmt: skip
def test_cause_of_a_failed_cuinit(code: str, context: Any, causes: str) -> None:
    cause, others = machine._choose_cuinit_cause(context, {code})
    assert [each.value for each in (cause, *others)] == causes.split()


OLD_LIBCUDA = make_unopened("libcuda.so", "dso-failed-old")
DAMAGED_LIBCUDA = make_unopened("libcuda.so.1", "damaged-library")
NVML = make_unopened("libnvidia-ml.so.1")


def list_causes(decision: Any) -> str:
    """Return the words of the cause and of the other causes."""
    return " ".join(cause.value for cause in (decision.cause, *decision.other_causes)) if decision else ""


@pytest.mark.parametrize(
    ("libraries", "context", "causes"),
    [
        ([LIBCUDA], make_context(), "no-driver container-no-gpu"),
        ([LIBCUDA], make_context("dso-opened"), "no-driver container-no-gpu"),
        ([OLD_LIBCUDA], make_context(), "no-driver container-no-gpu"),
        ([OLD_LIBCUDA], make_context("dso-opened"), ""),
        ([OLD_LIBCUDA], make_context("dso-opened", what="x"), "no-driver container-no-gpu"),
        ([LIBCUDA], make_context(registration_event=SimpleNamespace(order=6)), ""),
        ([LIBCUDA], make_context(registration_event=SimpleNamespace(order=5)), "no-driver container-no-gpu"),
        ([LIBCUDA], make_context(NO_NODE), "no-driver container-no-gpu"),
        ([LIBCUDA], make_context(in_container=True), "no-driver container-no-gpu"),
        ([LIBCUDA], make_context(NO_NODE, in_container=True), "container-no-gpu no-driver container-driver-libs"),
        ([DAMAGED_LIBCUDA], make_context(), "container-no-gpu no-driver container-driver-libs"),
        ([make_unopened("libcudart.so.12")], make_context(), ""),
        ([make_unopened("libcuda.so.1", "lazy-library-failed")], make_context(), ""),
        ([], make_context(), ""),
    ],
)  # fmt: skip
def test_cause_of_an_unopened_libcuda(libraries: Any, context: Any, causes: str) -> None:
    context.missing_libraries = libraries
    assert list_causes(machine._detect_missing_driver(context)) == causes


@pytest.mark.parametrize(
    ("context", "causes"),
    [
        (make_context(), ""),
        (make_context("device-query-failed", "driver-mismatch"), "driver-init-unknown"),
        (make_context("driver-mismatch", "hip-init"), "driver-lib-mismatch"),
        (make_context("hip-init"), "no-device no-driver hidden-by-env"),
        (make_context("hip-init", what="hipErrorUnknown"), "driver-init-unknown no-driver hidden-by-env"),
        (make_context("hip-init", registration_event=1), ""),
        (make_context("driver-insufficient"), "driver-too-old"),
        (make_context("driver-code", what="initialization error"), "driver-init-unknown driver-too-old"),
        (make_context("driver-code", what="no NVIDIA driver on your system"), "no-driver"),
        (make_context("driver-code", what="all devices are busy or UNAVAILABLE"), "gpu-busy-other-process"),
        (make_context("driver-code", what="stub", registration_event=1), "stub-libcuda"),
        (make_context(missing_libraries=[NVML]), "nvml-missing"),
        (make_context(missing_libraries=[NVML], registration_event=1), ""),
        (make_context(missing_libraries=[OLD_LIBCUDA]), ""),
        (make_context("nvml-missing", NO_MODULE), "nvml-missing"),
        (make_context(NO_MODULE, NO_NODE), "no-driver"),
        (make_context(NO_NODE), "no-device no-driver"),
        (make_context(NO_NODE, in_container=True), "container-no-gpu no-driver"),
        (make_context("libcuda-not-loaded"), "no-driver libs-not-on-path container-no-gpu"),
        (make_context("libcuda-not-loaded", "dso-opened"), ""),
    ],
)
def test_cause_of_the_messages_of_a_driver(context: Any, causes: str) -> None:
    assert list_causes(machine._detect_driver_messages(context)) == causes


def make_cuinit(*signatures: str, code: str = "CUDA_ERROR_UNKNOWN", registered: int | None = None) -> Any:
    """Return a context with a failed cuInit at position 5, and a GPU that is registered at another one."""
    event = SimpleNamespace(order=5, get={"code": code}.get)
    registration = SimpleNamespace(order=registered) if registered is not None else None
    return make_context(*signatures, events={"cuinit": event}, registration_event=registration)


FORKED = "CUDA_ERROR_NOT_INITIALIZED"


@pytest.mark.parametrize(
    ("context", "causes", "note"),
    [
        (make_context("driver-insufficient"), "driver-too-old", ""),
        (make_context(missing_libraries=[LIBCUDA]), "no-driver container-no-gpu", ""),
        (make_cuinit(), "driver-init-unknown", ""),
        (make_cuinit(registered=6), "", ""),
        (make_cuinit(registered=5), "driver-init-unknown", ""),
        (make_cuinit("parameter-server"), "driver-init-unknown", ""),
        (make_cuinit("parameter-server", registered=4), "", ""),
        (make_cuinit(code="CUresult(303)"), "no-driver container-no-gpu", ""),
        (make_cuinit(code="UNKNOWN ERROR (999)"), "driver-init-unknown", ""),
        (make_cuinit(code="CUDA_ERROR_ODD"), "driver-init-unknown", "starting it fails with CUDA_ERROR_ODD."),
        (make_cuinit(code=FORKED), "driver-init-unknown", "CUDA cannot be used in a process that was forked"),
        (make_cuinit(code=FORKED, registered=4), "", ""),
    ],
)
def test_cause_of_a_driver_that_does_not_start(context: Any, causes: str, note: str) -> None:
    decision = machine.detect_driver(context)
    assert list_causes(decision) == causes
    if decision is not None:
        assert note in decision.note
        assert bool(note) is bool(decision.note)


@pytest.mark.parametrize("has_module", [True, False])
def test_title_says_whether_the_kernel_module_is_there(*, has_module: bool) -> None:
    decision = machine._detect_driver_messages(
        make_context("libcuda-not-loaded", *(["kernel-driver"] if has_module else []))
    )
    assert decision is not None
    assert ("kernel module is there" in decision.title) is has_module


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        ("Driver/library version MISMATCH", Cause.DRIVER_LIB_MISMATCH),
        ("driver not loaded", Cause.NO_DRIVER),
        ("no CUDA-capable device", Cause.NO_DEVICE),
        ("no-such-device", Cause.NO_DEVICE),
        ("unknown device", Cause.NO_DEVICE),
        ("no adapters were found", Cause.NO_DEVICE),
        ("CUDA error: unknown", Cause.DRIVER_INIT_UNKNOWN),
        ("anything else", Cause.CONTAINER_DRIVER_LIBS),
    ],
)
def test_cause_of_an_error_of_the_container_toolkit(message: str, cause: Cause) -> None:
    assert machine._choose_container_cause(message) is cause


@pytest.mark.parametrize(
    ("target", "supported", "cause"),
    [
        ("gfx803", "gfx900, gfx1030", Cause.GPU_TOO_OLD),
        ("gfx906", "gfx1030 gfx900", Cause.GPU_TOO_NEW),
        ("gfx906", "gfx1030 gfx1100", Cause.GPU_TOO_OLD),
        ("gfx90a", "gfx906", Cause.GPU_TOO_NEW),
        ("gfx1100", "gfx906", Cause.GPU_TOO_NEW),
        ("gfx803", "", Cause.GPU_TOO_NEW),
    ],
)
def test_cause_of_an_amd_gpu_that_is_ignored(target: str, supported: str, cause: Cause) -> None:
    event: Any = {"gfx": target, "supported": supported}
    assert gpu._choose_amd_cause(event) is cause


@pytest.mark.parametrize(
    ("reserved", "total", "name", "is_busy"),
    [
        ([1023], None, "Tesla T4", True),
        ([1024], None, "Tesla T4", False),
        ([9000, 1023], 15_000, "Tesla T4", True),
        ([9000, None], 15_000, "Tesla T4", False),
        ([700], 2048, "GeForce MX150", True),
        ([717], 2048, "GeForce MX150", False),
        ([804], 2299, "GeForce MX150", True),
        ([805], 2300, "GeForce MX150", True),
        ([805], 2299, "GeForce MX150", False),
        ([500], None, "Orin", False),
        ([None], None, "Tesla T4", False),
        ([], None, "", False),
    ],
)
def test_little_reserved_memory_means_a_busy_gpu(
    reserved: list[int | None], total: int | None, name: str, is_busy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "find_gpu_memory", lambda _: total)
    devices = [SimpleNamespace(memory_mib=memory, name=name) for memory in reserved]
    assert gpu._is_gpu_busy(make_context(registered_devices=devices)) is is_busy


@pytest.mark.parametrize(
    ("cuda", "release", "driver", "is_oldest"),
    [
        (None, None, "389.1", True),
        (None, None, "390.1", False),
        ("11", None, "390.1", False),
        ("11.2", None, "450.80.02", True),
        ("11.2", None, "460.1", False),
        (None, "11.2", "450.80.02", True),
        (None, "11.2", "460.1", False),
        ("99.9", None, "450.80.02", False),
    ],
)
def test_oldest_branch_of_a_cuda(cuda: str | None, release: str | None, driver: str, is_oldest: bool) -> None:
    row = SimpleNamespace(cuda=release) if release else None
    context = make_context(origin=SimpleNamespace(release=row, cuda_version=cuda))
    assert gpu._is_oldest_branch(context, driver) is is_oldest


def make_gpu_context(
    *signatures: str, capability: str | None = None, cuda: str | None = "11.2", **fields: Any
) -> Any:
    """Return a context of a release with code for 5.0 to 8.0 and a GPU of this compute capability."""
    release = SimpleNamespace(cubin=("5.0", "8.0"), ptx=("8.0",))
    origin = SimpleNamespace(release=release, cuda_version=cuda)
    values = {"find_capability": lambda: capability, "origin": origin, "registered_devices": (), **fields}
    return make_context(*signatures, **values)


SMALL = SimpleNamespace(memory_mib=500, name="Tesla T4")
OOM, HOST_OOM = SimpleNamespace(text="on GPU:0"), SimpleNamespace(text="failed to alloc 8 bytes on host")
NO_IMAGE, PTX = "no-kernel-image", "jit-from-ptx"


@pytest.mark.parametrize(
    ("context", "causes"),
    [
        (make_gpu_context(), ""),
        (make_gpu_context("arch-mismatch", capability="9.0"), "gpu-too-old"),
        (make_gpu_context("ptxas-too-old", what="3.7"), "gpu-too-old"),
        (make_gpu_context("ptxas-too-old", what="5.0"), "gpu-too-new"),
        (make_gpu_context("target-too-new"), "gpu-too-new"),
        (make_gpu_context(PTX, capability="9.0"), "gpu-too-new"),
        (make_gpu_context(PTX, "gpu-fault", capability="9.0"), ""),
        (make_gpu_context(PTX, capability="8.0"), ""),
        (make_gpu_context(PTX, capability="9.0", cuda="11"), ""),
        (make_gpu_context(PTX, capability="9.0", cuda=None), ""),
        (make_gpu_context(PTX, NO_IMAGE, capability="8.0", what="x"), "gpu-too-new"),
        (make_gpu_context(PTX, NO_IMAGE, capability="3.5", what="x"), "gpu-too-old"),
        (make_gpu_context(NO_IMAGE, what="hipErrorNoBinaryForGpu"), "gpu-too-new"),
        (make_gpu_context(NO_IMAGE, what="hipError", events={"gfx-name": {"gfx": "gfx803"}}), "gpu-too-old"),
        (make_gpu_context(NO_IMAGE, what="hipError", events={"gfx-name": {"gfx": "gfx900"}}), "gpu-too-new"),
        (make_gpu_context(NO_IMAGE, what="hipError", events={"gfx-name": {"gfx": "gfx1030"}}), "gpu-too-new"),
        (make_gpu_context(NO_IMAGE, what="CUDA_ERROR_INVALID_HANDLE"), "gpu-too-new"),
        (make_gpu_context(NO_IMAGE, what="CUDA_ERROR_INVALID_HANDLE", capability="10.0"), "gpu-too-new"),
        (make_gpu_context(NO_IMAGE, what="CUDA_ERROR_INVALID_HANDLE", capability="9.0", cuda="12.2"), ""),
        (make_gpu_context(NO_IMAGE, what="x", capability="7.0"), "gpu-too-old"),
        (make_gpu_context(NO_IMAGE, what="x", capability="8.6"), "gpu-too-old"),
        (make_gpu_context(NO_IMAGE, what="x", capability="8.9"), "gpu-too-new"),
        (make_gpu_context(NO_IMAGE, what="x", capability="3.5"), "gpu-too-old"),
        (make_gpu_context(NO_IMAGE, what="PTX", capability="3.5"), "gpu-too-old"),
        (make_gpu_context(NO_IMAGE, what="PTX", capability="7.0"), "gpu-too-new"),
        (make_gpu_context(NO_IMAGE, what="device kernel image is invalid", capability="7.5"), "gpu-too-old"),
        (make_gpu_context(NO_IMAGE, what="device kernel image is invalid", capability="8.0"), "gpu-too-new"),
        (make_gpu_context(NO_IMAGE, what="device kernel image is invalid"), "gpu-too-old gpu-too-new"),
        (make_gpu_context(NO_IMAGE, what="x"), "gpu-too-old gpu-too-new"),
        (make_gpu_context(NO_IMAGE, what="PTX"), "gpu-too-new"),
        (make_gpu_context(capability="9.0", registration_event=1), "gpu-too-new"),
        (make_gpu_context(capability="9.0"), ""),
        (make_gpu_context("cublas-init", capability="9.0"), "gpu-too-new"),
        (make_gpu_context("cudnn-init", capability="8.0"), ""),
        (make_gpu_context("cudnn-init", "context-failed", capability="9.0", what="OUT_OF_MEMORY"), ""),
    ],
)  # fmt: skip
def test_cause_of_missing_code_for_a_gpu(context: Any, causes: str) -> None:
    assert list_causes(gpu.detect_missing_gpu_code(context)) == causes


@pytest.mark.parametrize(
    ("context", "causes"),
    [
        (make_gpu_context("cudnn-init"), ""),
        (make_gpu_context("context-failed", what="CUDA_ERROR_OUT_OF_MEMORY"), "gpu-busy-other-process oom"),
        (make_gpu_context("context-failed", what="out of memory"), "gpu-busy-other-process oom"),
        (make_gpu_context("context-failed", what="CUDA_ERROR_UNKNOWN"), ""),
        (make_gpu_context("cudnn-init", registered_devices=[SMALL]), "gpu-busy-other-process oom cublas-init-failed"),
        (make_gpu_context("cublas-init", registered_devices=[SMALL]), "gpu-busy-other-process oom cublas-init-failed"),
        (make_gpu_context(registered_devices=[SMALL]), ""),
        (make_gpu_context(failed=[OOM]), "oom gpu-busy-other-process"),
        (make_gpu_context(failed=[OOM], registered_devices=[SMALL]), "gpu-busy-other-process oom"),
        (make_gpu_context(failed=[HOST_OOM, HOST_OOM]), "oom"),
        (make_gpu_context(failed=[HOST_OOM, OOM]), "oom gpu-busy-other-process"),
    ],
)  # fmt: skip
def test_cause_of_a_lack_of_memory(context: Any, causes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "list_failed_allocations", lambda context: getattr(context, "failed", []))
    assert list_causes(gpu.detect_memory(context)) == causes
