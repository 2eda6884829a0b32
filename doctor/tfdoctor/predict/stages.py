"""What TensorFlow will do on this machine, judged from facts alone.

`predict` walks the gates in the order in which TensorFlow meets them: is there GPU code in it, does the import
work, does libcuda open and initialise, is a device visible, (2.21+) does NVML open, do all CUDA libraries open,
is each device new enough. The first gate that is shut gives the cause; a gate that could not be looked at makes
the answer None.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.facts import Absent, Unknown, value_of
from tfdoctor.facts.python import Unusable
from tfdoctor.findings import Cause, Prediction
from tfdoctor.predict.build import (
    Build,
    build_of,
    builds_installed,
    find_closed_package,
    find_registered_only,
)
from tfdoctor.predict.driver import container_lost_nvml, driver_gate, driver_missing_cause
from tfdoctor.predict.imports import import_failure, import_unknown
from tfdoctor.predict.libraries import libraries_cause, list_missing_libraries
from tfdoctor.predict.shadowing import better_behind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.compat import Compat
    from tfdoctor.facts import CudaDevice, Facts, TensorFlowFacts

DEFAULT_MIN_MULTIPROCESSORS = 8
"""TF_MIN_GPU_MULTIPROCESSOR_COUNT's default; the best card's own count where that is smaller."""
NVML_VERSION_MISMATCH = 18
"""NVML_ERROR_LIB_RM_VERSION_MISMATCH: kernel module and user space differ."""


def predict(facts: Facts, compat: Compat) -> Prediction:
    """Return TensorFlow's answer, without importing it. Pure: no I/O."""
    own = _run_gates(facts, compat)
    other = better_behind(facts, compat, own, _run_gates)
    if other is None:
        return own
    why = "Another TensorFlow, later on Python's path, would work better."
    return replace(own, cause=Cause.SHADOWED_MODULE, reasons=(*own.reasons, why))


def _run_gates(facts: Facts, compat: Compat) -> Prediction:
    nothing = _explain_nothing_to_import(facts)
    if nothing is not None:
        return Prediction(False, 0, (), nothing[0], False, (nothing[1],))
    tensorflow = value_of(facts.tensorflow)
    if tensorflow is None:
        return Prediction(
            None,
            None,
            (),
            None,
            None,
            (f"TensorFlow could not be examined: {_get_reason(facts.tensorflow)}",),
        )
    build = build_of(tensorflow, compat)
    missing = list_missing_libraries(facts, build)
    reasons: list[str] = []

    def shut(cause: Cause, why: str, import_ok: bool | None = True) -> Prediction:
        return Prediction(False, 0, missing, cause, import_ok, (*reasons, why))

    def unknown(why: str, import_ok: bool | None = True) -> Prediction:
        return Prediction(None, None, missing, None, import_ok, (*reasons, why))

    if build.rocm:
        return unknown("This is a ROCm build, for AMD GPUs: what its loader needs is not modelled.", None)
    broken = import_failure(facts, tensorflow, build, compat)
    if broken is not None:
        return shut(broken[0], broken[1], import_ok=False)
    if build.gpu is False:
        cause = _cpu_cause(facts, tensorflow, build)
        return shut(
            cause,
            "This build of TensorFlow has no GPU code.",
            import_ok=not import_unknown(facts, tensorflow, compat) or None,
        )
    not_known = import_unknown(facts, tensorflow, compat)
    if not_known:
        return unknown(not_known, None)
    reasons.append("import tensorflow: no problems found.")
    flags = unknown_flags(build, facts.environment.variables, compat)
    if flags:
        return Prediction(False, 0, (), Cause.HIDDEN_BY_ENV, True, (*reasons, flags))
    if build.gpu is None or not build.required:
        return unknown("What this build needs of CUDA could not be determined from its files.")
    loader = value_of(facts.loader)
    if loader is None:
        return unknown(f"The loader could not be followed: {_get_reason(facts.loader)}")

    libcuda = loader.resolution("libcuda.so.1")
    if libcuda is not None and not libcuda.ok:
        return shut(driver_missing_cause(facts, libcuda), f"libcuda.so.1 does not open: {libcuda.error}")
    driver = value_of(facts.driver.cuda)
    if driver is None:
        return unknown(f"The driver did not answer: {_get_reason(facts.driver.cuda)}")
    answer = driver_gate(facts, driver)
    if isinstance(answer, tuple):
        return shut(*answer)
    if answer is None:
        return unknown("The driver gave no usable answer.")
    reasons.append(f"The driver shows {answer} device{'s' * (answer != 1)}.")

    nvml = loader.resolution("libnvidia-ml.so.1") if "libnvidia-ml.so.1" in build.driver_libraries else None
    if nvml is not None and not nvml.ok:
        return shut(Cause.NVML_MISSING, f"libnvidia-ml.so.1 does not open: {nvml.error}")
    answered = value_of(facts.driver.nvml)
    if nvml is not None and answered is not None and answered.loaded and answered.init:
        cause = Cause.CONTAINER_NVML_LOST if container_lost_nvml(facts) else Cause.NVML_MISSING
        if answered.init == NVML_VERSION_MISMATCH:
            cause = Cause.DRIVER_LIB_MISMATCH
        return shut(cause, f"nvmlInit fails: {answered.init_error or 'unknown error'} ({answered.init}).")
    if missing:
        return shut(libraries_cause(facts, build), f"The loader cannot give it {', '.join(missing)}.")
    reasons.append("The loader gives it every library.")

    variables = facts.environment.variables
    types = explain_disabled_types(build, variables)
    if types:
        return shut(Cause.HIDDEN_BY_ENV, types)
    failed = [device.attribute_error for device in driver.devices if device.attribute_error is not None]
    if failed and build.has("attributes-queried"):
        return shut(
            Cause.DRIVER_INIT_UNKNOWN, f"The driver's attributes cannot be queried (error {failed[0]})."
        )
    usable = select_registered_devices(driver.devices, build, variables)
    if not usable and select_registered_devices(driver.devices, build, {}):
        return shut(Cause.HIDDEN_BY_ENV, "TF_MIN_GPU_MULTIPROCESSOR_COUNT leaves every device out.")
    if not usable:
        return shut(Cause.GPU_TOO_OLD, f"No device has compute capability {build.floor} or higher.")
    return Prediction(True, len(usable), (), None, True, tuple(reasons))


def _explain_nothing_to_import(facts: Facts) -> tuple[Cause, str] | None:
    """Return why there is no TensorFlow that this Python could import, or no Python that could."""
    if isinstance(facts.python, Unusable) and facts.python.trouble is not None:
        trouble = facts.python.trouble
        if trouble.ended and trouble.kind != "rubbish":
            cause = Cause.NOT_PERMITTED if trouble.kind == "denied" else Cause.PYTHON_UNUSABLE
            return cause, f"{trouble.path} {trouble.how}: no program runs in it."
    closed = find_closed_package(facts)
    if closed is not None:
        return (
            Cause.NOT_PERMITTED,
            f"{closed.closed} is not readable by this user, and import tensorflow needs it.",
        )
    gone = find_registered_only(facts)
    if gone:
        why = f"{gone[0].name} {gone[0].version} is registered as installed, but its files are missing."
        return Cause.DAMAGED_FILE, why
    if isinstance(facts.tensorflow, Absent):
        return Cause.TENSORFLOW_MISSING, f"TensorFlow is not installed: {facts.tensorflow.why}"
    return None


def _get_reason(fact: object) -> str:
    return fact.why if isinstance(fact, (Absent, Unknown)) else ""


def _cpu_cause(facts: Facts, tensorflow: TensorFlowFacts, build: Build) -> Cause:
    if facts.machine.system == "Windows" and build.has("windows-without-gpu"):
        return Cause.WINDOWS_NATIVE_UNSUPPORTED
    python = value_of(facts.python)
    if python is not None and len(builds_installed(facts)) > 1:
        return Cause.BOTH_PACKAGES
    del tensorflow
    return Cause.CPU_ONLY_BUILD


def unknown_flags(build: Build, variables: dict[str, str], compat: Compat) -> str:
    """Return why TF_XLA_FLAGS ends the process when devices are listed; empty if that is not known."""
    value = variables.get("TF_XLA_FLAGS", "").strip()
    if not value.startswith("-") or build.minor < versions.parse(compat.flags.since).release:
        return ""
    named = [word.lstrip("-").partition("=")[0] for word in value.split() if word.startswith("-")]
    lost = [
        name for name in named if name not in compat.flags.tf_xla and re.fullmatch(r"[a-z0-9_]{2,100}", name)
    ]
    return (
        f"TF_XLA_FLAGS names {lost[0]!r}, which no release supports: TensorFlow ends the process."
        if lost
        else ""
    )


def explain_disabled_types(build: Build, variables: dict[str, str]) -> str:
    """Return why TF_ENABLED_DEVICE_TYPES keeps the GPU out; empty if it does not.

    Entries are compared as they stand, " GPU" and "gpu" are unknown to it, and a list without CPU makes listing
    devices raise an exception.
    """
    value = variables.get("TF_ENABLED_DEVICE_TYPES", "")
    if not value or not build.has("enabled-device-types"):
        return ""
    types = value.split(",")
    if "GPU" not in types:
        return f"TF_ENABLED_DEVICE_TYPES={value!r} does not name GPU."
    return (
        ""
        if "CPU" in types
        else f"TF_ENABLED_DEVICE_TYPES={value!r} leaves out CPU, without which listing fails."
    )


def select_registered_devices(
    devices: Sequence[CudaDevice], build: Build, env: dict[str, str]
) -> tuple[CudaDevice, ...]:
    """Return the devices that TensorFlow keeps: new enough, and with enough multiprocessors beside the best card."""
    modern = [
        device
        for device in devices
        if device.compute_capability is None or versions.is_at_least(device.compute_capability, build.floor)
    ]
    counts = [device.multiprocessors for device in devices if device.multiprocessors]
    least = min(DEFAULT_MIN_MULTIPROCESSORS, max(counts, default=DEFAULT_MIN_MULTIPROCESSORS))
    asked = env.get("TF_MIN_GPU_MULTIPROCESSOR_COUNT", "").strip()
    if re.fullmatch(r"[+-]?[0-9]{1,18}", asked):
        least = int(asked)
    return tuple(
        device for device in modern if device.multiprocessors is None or device.multiprocessors >= least
    )
