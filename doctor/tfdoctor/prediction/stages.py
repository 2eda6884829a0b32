"""Predict from facts whether TensorFlow will use the GPU.

`predict` checks these stages in order:

1. The import works, and the build has GPU code.
2. libcuda can be opened and initialised, and it shows a device.
3. NVML can be opened and initialised (2.21 and newer).
4. All CUDA libraries can be opened.
5. A device is new enough and is not excluded by an environment variable.

The first stage that fails determines the cause. If a stage could not be examined, the prediction is unknown.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.facts import Absent, Known, Unknown, value_of
from tfdoctor.core.facts.python import UnusablePython
from tfdoctor.core.findings import Cause, Prediction
from tfdoctor.prediction.build import (
    Build,
    describe_build,
    find_distributions_without_package,
    find_unreadable_package,
    list_installed_builds,
)
from tfdoctor.prediction.driver import find_missing_driver_cause, has_lost_devices, predict_driver_stage
from tfdoctor.prediction.imports import explain_unknown_import, find_import_failure
from tfdoctor.prediction.libraries import (
    choose_libraries_cause,
    compute_needed_address_space,
    list_missing_libraries,
)
from tfdoctor.prediction.shadowing import predict_hidden_tensorflow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.compat import Compat
    from tfdoctor.core.facts import CudaDevice, Facts, TensorFlowFacts

DEFAULT_MIN_MULTIPROCESSORS = 8
"""Default of TF_MIN_GPU_MULTIPROCESSOR_COUNT. If all GPUs have fewer multiprocessors, the largest number applies."""
NVML_VERSION_MISMATCH = 18
"""NVML_ERROR_LIB_RM_VERSION_MISMATCH: NVML and the kernel module have different versions."""


def predict(facts: Facts, compat: Compat) -> Prediction:
    """Return the prediction for the examined environment, without any I/O."""
    prediction = _run_stages(facts, compat)
    choice = facts.choice
    if choice is not None and choice.on_path_tensorflow == "" and isinstance(facts.tensorflow, Known):
        reason = f"`python` on PATH is {choice.on_path}, which has no TensorFlow."
        return replace(
            prediction,
            gpu_registered=False,
            gpu_count=0,
            cause=Cause.PYTHON_UNUSABLE,
            import_ok=False,
            reasons=(*prediction.reasons, reason),
        )
    other = predict_hidden_tensorflow(facts, compat, prediction, _run_stages)
    if other is None:
        return prediction
    reason = "Another TensorFlow, later on Python's path, would work better."
    return replace(prediction, cause=Cause.SHADOWED_MODULE, reasons=(*prediction.reasons, reason))


def _run_stages(facts: Facts, compat: Compat) -> Prediction:
    """Return the prediction for the TensorFlow that Python finds first."""
    missing_tensorflow = _explain_missing_tensorflow(facts)
    if missing_tensorflow is not None:
        cause, reason = missing_tensorflow
        return Prediction(
            gpu_registered=False,
            gpu_count=0,
            missing_libraries=(),
            cause=cause,
            import_ok=False,
            reasons=(reason,),
        )
    tensorflow = value_of(facts.tensorflow)
    if tensorflow is None:
        reason = f"TensorFlow could not be examined: {_get_reason(facts.tensorflow)}"
        driver_failure = _find_driver_failure(facts)
        if driver_failure is not None:
            cause, driver_reason = driver_failure
            return _make_prediction(False, cause, (reason, driver_reason), import_ok=None)
        return _make_prediction(None, None, (reason,), import_ok=None)
    build = describe_build(tensorflow, compat)
    if build.is_rocm:
        reason = "This is a ROCm build, for AMD GPUs: what its loader needs is not modelled."
        missing = list_missing_libraries(facts, build)
        return _make_prediction(None, None, (reason,), import_ok=None, missing=missing)
    failure = find_import_failure(facts, tensorflow, build, compat)
    if failure is not None:
        cause, reason = failure
        missing = list_missing_libraries(facts, build)
        return _make_prediction(False, cause, (reason,), import_ok=False, missing=missing)
    return _run_gpu_stages(facts, tensorflow, build, compat)


def _make_prediction(
    registered: bool | None,
    cause: Cause | None,
    reasons: tuple[str, ...],
    *,
    import_ok: bool | None,
    missing: tuple[str, ...] = (),
) -> Prediction:
    """Return a prediction without a GPU: `registered` is False, or None if it is unknown."""
    return Prediction(
        gpu_registered=registered,
        gpu_count=0 if registered is False else None,
        missing_libraries=missing,
        cause=cause,
        import_ok=import_ok,
        reasons=reasons,
    )


def _run_gpu_stages(facts: Facts, tensorflow: TensorFlowFacts, build: Build, compat: Compat) -> Prediction:
    """Return the prediction for a TensorFlow of which no reason is known why its import fails.

    A stage that could not be examined adds a doubt. If a later stage fails, that decides nevertheless.
    """
    missing = list_missing_libraries(facts, build)
    reasons: list[str] = []
    doubts: list[str] = []
    import_doubt = explain_unknown_import(facts, tensorflow, compat)
    import_ok = None if import_doubt else True

    def predict_no_gpu(cause: Cause, reason: str) -> Prediction:
        return _make_prediction(
            False, cause, (*doubts, *reasons, reason), import_ok=import_ok, missing=missing
        )

    if build.has_gpu_code is False:
        return predict_no_gpu(_get_cpu_cause(facts, build), "This build of TensorFlow has no GPU code.")
    if import_doubt:
        doubts.append(import_doubt)
    else:
        reasons.append("import tensorflow: no problems found.")
    variables = facts.environment.variables
    unknown_flags_reason = explain_unknown_xla_flag(build, variables, compat)
    if unknown_flags_reason:
        missing = ()
        return predict_no_gpu(Cause.HIDDEN_BY_ENV, unknown_flags_reason)
    knows_libraries = build.has_gpu_code is not None and bool(build.required_libraries)
    if not knows_libraries:
        doubts.append("What this build needs of CUDA could not be determined from its files.")
    loader = value_of(facts.loader)
    if loader is None:
        doubts.append(f"The loader could not be followed: {_get_reason(facts.loader)}")

    driver_failure = _find_driver_failure(facts)
    if driver_failure is not None:
        return predict_no_gpu(*driver_failure)
    driver = value_of(facts.driver.cuda)
    if driver is None:
        doubts.append(f"The driver did not answer: {_get_reason(facts.driver.cuda)}")
    elif driver.count is None:
        doubts.append("The driver gave no usable answer.")
    else:
        reasons.append(f"The driver shows {driver.count} device{'s' * (driver.count != 1)}.")

    nvml_library = (
        loader.find_resolution("libnvidia-ml.so.1")
        if loader is not None and "libnvidia-ml.so.1" in build.driver_libraries
        else None
    )
    if nvml_library is not None and not nvml_library.ok:
        return predict_no_gpu(Cause.NVML_MISSING, f"libnvidia-ml.so.1 cannot be opened: {nvml_library.error}")
    nvml_facts = value_of(facts.driver.nvml)
    if nvml_library is not None and nvml_facts is not None and nvml_facts.loaded and nvml_facts.init:
        cause = Cause.CONTAINER_NVML_LOST if has_lost_devices(facts) else Cause.NVML_MISSING
        if nvml_facts.init == NVML_VERSION_MISMATCH:
            cause = Cause.DRIVER_LIB_MISMATCH
        return predict_no_gpu(
            cause, f"nvmlInit fails: {nvml_facts.init_error or 'unknown error'} ({nvml_facts.init})."
        )
    if (missing and loader is not None and knows_libraries) or compute_needed_address_space(
        facts, is_import=False
    ) is not None:
        return predict_no_gpu(*_explain_library_failure(facts, build, missing))
    if loader is not None:
        reasons.append("The loader finds every library.")

    disabled_types_reason = explain_disabled_device_types(build, variables)
    if disabled_types_reason:
        return predict_no_gpu(Cause.HIDDEN_BY_ENV, disabled_types_reason)
    devices = driver.devices if driver is not None else ()
    attribute_errors = [device.attribute_error for device in devices if device.attribute_error is not None]
    if attribute_errors and build.has_trait("attributes-queried"):
        return predict_no_gpu(
            Cause.DRIVER_INIT_UNKNOWN,
            f"The driver's attributes cannot be queried (error {attribute_errors[0]}).",
        )
    usable_devices = select_registered_devices(devices, build, variables)
    if driver is not None and driver.count is not None and not usable_devices:
        if select_registered_devices(devices, build, {}):
            return predict_no_gpu(
                Cause.HIDDEN_BY_ENV, "TF_MIN_GPU_MULTIPROCESSOR_COUNT leaves every device out."
            )
        return predict_no_gpu(
            Cause.GPU_TOO_OLD, f"No device has compute capability {build.min_capability} or higher."
        )
    if doubts:
        return _make_prediction(None, None, (*reasons, doubts[0]), import_ok=import_ok, missing=missing)
    return Prediction(
        gpu_registered=True,
        gpu_count=len(usable_devices),
        missing_libraries=(),
        cause=None,
        import_ok=True,
        reasons=tuple(reasons),
    )


def _find_driver_failure(facts: Facts) -> tuple[Cause, str] | None:
    """Return why the driver shows TensorFlow no device, as (cause, sentence); None if it shows one or is unknown."""
    loader, driver = value_of(facts.loader), value_of(facts.driver.cuda)
    libcuda = loader.find_resolution("libcuda.so.1") if loader is not None else None
    if libcuda is not None and not libcuda.ok:
        return find_missing_driver_cause(facts, libcuda), f"libcuda.so.1 cannot be opened: {libcuda.error}"
    if driver is None:
        # Without an answer of the driver, the variable alone decides if its first entry is no device.
        first_entry = facts.environment.variables.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0].strip()
        hides_all = first_entry in ("", "NoDevFiles") or first_entry.startswith("-")
        return (Cause.HIDDEN_BY_ENV, "CUDA_VISIBLE_DEVICES hides every device.") if hides_all else None
    result = predict_driver_stage(facts, driver)
    return result if isinstance(result, tuple) else None


def _explain_library_failure(facts: Facts, build: Build, missing: tuple[str, ...]) -> tuple[Cause, str]:
    """Return (cause, sentence) for CUDA libraries that cannot be loaded: they are missing, or too large for a limit."""
    if missing:
        return choose_libraries_cause(facts, build), f"The loader cannot open {', '.join(missing)}."
    reason = "The limit of the address space (ulimit -v) is too low for the CUDA libraries."
    return Cause.NOT_PERMITTED, reason


def _explain_missing_tensorflow(facts: Facts) -> tuple[Cause, str] | None:
    """Return (cause, sentence) if this Python cannot run or has no usable TensorFlow; otherwise None."""
    if isinstance(facts.python, UnusablePython) and facts.python.trouble is not None:
        trouble = facts.python.trouble
        if trouble.ended and trouble.kind != "rubbish":
            cause = Cause.NOT_PERMITTED if trouble.kind == "denied" else Cause.PYTHON_UNUSABLE
            return cause, f"{trouble.path} {trouble.how}: no program runs in it."
    unreadable = find_unreadable_package(facts)
    if unreadable is not None:
        return (
            Cause.NOT_PERMITTED,
            f"{unreadable.closed} is not readable by this user, and import tensorflow needs it.",
        )
    distributions = find_distributions_without_package(facts)
    if distributions:
        message = f"{distributions[0].name} {distributions[0].version} is registered as installed, but its files are missing."
        return Cause.DAMAGED_FILE, message
    if isinstance(facts.tensorflow, Absent):
        return Cause.TENSORFLOW_MISSING, f"TensorFlow is not installed: {facts.tensorflow.why}"
    return None


def _get_reason(fact: object) -> str:
    """Return the reason why a fact is absent or unknown; "" if it is known."""
    return fact.why if isinstance(fact, (Absent, Unknown)) else ""


def _get_cpu_cause(facts: Facts, build: Build) -> Cause:
    """Return why the installed build has no GPU code."""
    if facts.machine.system == "Windows" and build.has_trait("windows-without-gpu"):
        return Cause.WINDOWS_NATIVE_UNSUPPORTED
    python = value_of(facts.python)
    if python is not None and len(list_installed_builds(facts)) > 1:
        return Cause.BOTH_PACKAGES
    return Cause.CPU_ONLY_BUILD


def explain_unknown_xla_flag(build: Build, variables: dict[str, str], compat: Compat) -> str:
    """Return a message if TF_XLA_FLAGS contains an unknown flag, which ends the process; otherwise "".

    Names that cannot be flags of TensorFlow are ignored.
    """
    value = variables.get("TF_XLA_FLAGS", "").strip()
    if (
        not value.startswith("-")
        or build.minor_numbers < versions.parse(compat.flags.unknown_flag_fatal_since).release
    ):
        return ""
    flags = [argument.lstrip("-").partition("=")[0] for argument in value.split() if argument.startswith("-")]
    unknown_flags = [
        name
        for name in flags
        if name not in compat.flags.xla_flags and re.fullmatch(r"[a-z0-9_]{2,100}", name)
    ]
    return (
        f"TF_XLA_FLAGS names {unknown_flags[0]!r}, which no release supports: TensorFlow ends the process."
        if unknown_flags
        else ""
    )


def explain_disabled_device_types(build: Build, variables: dict[str, str]) -> str:
    """Return why TF_ENABLED_DEVICE_TYPES excludes the GPU; "" if it does not.

    TensorFlow compares the entries literally, so " GPU" and "gpu" do not count. Without CPU in the list, listing
    the devices raises an exception.
    """
    value = variables.get("TF_ENABLED_DEVICE_TYPES", "")
    if not value or not build.has_trait("enabled-device-types"):
        return ""
    device_types = value.split(",")
    if "GPU" not in device_types:
        return f"TF_ENABLED_DEVICE_TYPES={value!r} does not name GPU."
    return (
        ""
        if "CPU" in device_types
        else f"TF_ENABLED_DEVICE_TYPES={value!r} leaves out CPU, without which listing fails."
    )


def select_registered_devices(
    devices: Sequence[CudaDevice], build: Build, variables: dict[str, str]
) -> tuple[CudaDevice, ...]:
    """Return the devices that TensorFlow registers: those with a sufficient capability and size.

    A device whose capability or size is unknown counts as sufficient.
    """
    new_enough_devices = [
        device
        for device in devices
        if device.compute_capability is None
        or versions.is_at_least(device.compute_capability, build.min_capability)
    ]
    multiprocessor_counts = [device.multiprocessors for device in devices if device.multiprocessors]
    minimum = min(
        DEFAULT_MIN_MULTIPROCESSORS, max(multiprocessor_counts, default=DEFAULT_MIN_MULTIPROCESSORS)
    )
    minimum_setting = variables.get("TF_MIN_GPU_MULTIPROCESSOR_COUNT", "").strip()
    if re.fullmatch(r"[+-]?[0-9]{1,18}", minimum_setting):
        minimum = int(minimum_setting)
    return tuple(
        device
        for device in new_enough_devices
        if device.multiprocessors is None or device.multiprocessors >= minimum
    )
