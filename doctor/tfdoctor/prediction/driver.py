"""Predict the driver stages: libcuda is opened, cuInit succeeds, and a device is visible."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.facts import Known, Resolution, SmiFailure, value_of
from tfdoctor.core.findings import Cause
from tfdoctor.prediction.libraries import list_forbidden_files

if TYPE_CHECKING:
    from tfdoctor.core.facts import CudaDriver, Facts

NVML_ERROR_UNKNOWN = 999
CAUSE_BY_INIT_RESULT = {
    34: Cause.STUB_LIBCUDA,  # CUDA_ERROR_STUB_LIBRARY
    35: Cause.DRIVER_TOO_OLD,  # cudaErrorInsufficientDriver
    36: Cause.DRIVER_TOO_OLD,  # cudaErrorCallRequiresNewerDriver
    100: Cause.NO_DEVICE,  # CUDA_ERROR_NO_DEVICE
    303: Cause.NO_DRIVER,  # CUDA_ERROR_SHARED_OBJECT_INIT_FAILED
    803: Cause.DRIVER_LIB_MISMATCH,  # CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
    804: Cause.COMPAT_NOT_SUPPORTED,  # CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE
}
"""Root causes by the result of cuInit. Any other error is treated like CUDA_ERROR_UNKNOWN."""


def find_missing_driver_cause(facts: Facts, resolution: Resolution) -> Cause:
    """Return why libcuda.so.1 cannot be opened, given how the loader resolved it."""
    if facts.machine.wsl and (
        facts.driver.dxcore or any("/wsl/" in path for path in facts.driver.driver_files)
    ):
        return Cause.WSL_LIBCUDA
    if list_forbidden_files(resolution, is_elsewhere=True):
        return Cause.NOT_PERMITTED
    if resolution.path or list_driver_files(facts):
        # The file exists, but the loader rejects it or does not search its folder.
        return Cause.NO_DRIVER
    if facts.machine.container and host_has_gpu(facts):
        return Cause.CONTAINER_NO_GPU
    return Cause.NO_DRIVER


def list_driver_files(facts: Facts) -> tuple[str, ...]:
    """Return the libcuda.so* files of installed drivers, without the toolkit's stubs and cuda-compat."""
    return tuple(
        path for path in facts.driver.driver_files if "/stubs/" not in path and "/compat" not in path
    )


def host_has_gpu(facts: Facts) -> bool:
    """Return whether the host has a GPU or NVIDIA's kernel module.

    This works in containers, too, because they see the host's /proc and /sys.
    """
    return isinstance(facts.driver.pci, Known) or isinstance(facts.driver.kernel_module, Known)


def predict_driver_stage(facts: Facts, driver: CudaDriver) -> tuple[Cause, str] | int | None:
    """Return the number of devices that the driver shows; None if it is unknown.

    If the driver fails or shows no device, return (cause, sentence) instead.
    """
    if driver.crashed:
        return Cause.DRIVER_INIT_UNKNOWN, f"libcuda.so.1 crashes when it is asked ({driver.crashed})."
    if not driver.loaded:
        return Cause.NO_DRIVER, f"libcuda.so.1 cannot be opened: {driver.load_error}"
    if driver.stand_in:
        message = f"{driver.path or 'libcuda.so.1'} is tfdoctor's stand-in for `--simulate`, not the driver."
        return Cause.STUB_LIBCUDA, message
    if driver.init is None:
        return Cause.STUB_LIBCUDA, f"{driver.path or 'libcuda.so.1'} is not a driver: {driver.load_error}"
    if (driver.init != 0 or not driver.count) and is_hidden_by_environment(facts):
        return Cause.HIDDEN_BY_ENV, "CUDA_VISIBLE_DEVICES hides every device."
    if driver.init == 100 or (driver.init == 0 and driver.count == 0):  # CUDA_ERROR_NO_DEVICE, CUDA_SUCCESS
        if has_lost_devices(facts):
            return Cause.CONTAINER_NVML_LOST, "The container was cut off from the devices while it ran."
        if is_linux_driver_in_wsl(facts, driver):
            return Cause.WSL_LIBCUDA, f"{driver.path} is not WSL's libcuda and shows no device."
        return find_no_device_cause(facts), "The driver shows no device."
    if driver.init != 0:
        if is_stub(driver):
            return Cause.STUB_LIBCUDA, f"{driver.path} is the toolkit's stub, not the driver."
        return find_init_failure_cause(facts, driver), f"cuInit fails: {driver.init_name} ({driver.init})."
    return driver.count


def find_init_failure_cause(facts: Facts, driver: CudaDriver) -> Cause:
    """Return why cuInit failed, from its error code and, if the code has several causes, from other facts."""
    cause = CAUSE_BY_INIT_RESULT.get(driver.init or 0, Cause.DRIVER_INIT_UNKNOWN)
    if driver.init in (803, 804):
        # Both codes mean that libcuda and the kernel module do not match. A GeForce returns 804 for either reason.
        # The path of the loaded file distinguishes cuda-compat from a driver update without a restart.
        if is_cuda_compat(facts, driver):
            return Cause.COMPAT_NOT_SUPPORTED
        return Cause.DRIVER_LIB_MISMATCH if find_kernel_module_mismatch(facts) else cause
    if cause is not Cause.DRIVER_INIT_UNKNOWN:
        return cause
    if find_kernel_module_mismatch(facts):
        return Cause.DRIVER_LIB_MISMATCH
    if has_lost_devices(facts):
        return Cause.CONTAINER_NVML_LOST
    if is_linux_driver_in_wsl(facts, driver):
        return Cause.WSL_LIBCUDA
    return cause


def is_cuda_compat(facts: Facts, driver: CudaDriver) -> bool:
    """Return whether the loaded libcuda belongs to cuda-compat, even if it is a container runtime's link."""
    path = driver.path or ""
    file_name = path.rpartition("/")[2]
    has_version = file_name.rpartition("libcuda.so.")[2].count(".") > 0  # such as libcuda.so.550.54.14
    return "/compat/" in path or (
        has_version and any(file.endswith(f"/compat/{file_name}") for file in facts.driver.driver_files)
    )


def has_lost_devices(facts: Facts) -> bool:
    """Return whether a running container lost its devices, which NVML reports as "Unknown Error"."""
    if not facts.machine.container:
        return False
    smi, nvml = value_of(facts.driver.smi), value_of(facts.driver.nvml)
    smi_failed = isinstance(smi, SmiFailure) and smi.kind == "nvml_unknown_error"
    return smi_failed or (nvml is not None and nvml.init == NVML_ERROR_UNKNOWN)


def is_linux_driver_in_wsl(facts: Facts, driver: CudaDriver) -> bool:
    """Return whether WSL loaded a Linux driver's libcuda. Only WSL's own libcuda can use the GPU there."""
    if not facts.machine.wsl or facts.machine.container or not facts.driver.dxcore:
        return False
    # WSL mounts its own libcuda in /usr/lib/wsl.
    return bool(driver.path) and "/wsl/" not in (driver.path or "")


def is_stub(driver: CudaDriver) -> bool:
    """Return whether the loaded libcuda is the link-time stub of the toolkit."""
    return driver.init == 34 or "/stubs/" in (driver.path or "")


def is_hidden_by_environment(facts: Facts) -> bool:
    """Return whether the driver would show devices without CUDA_VISIBLE_DEVICES."""
    if facts.driver.cuda_unhidden is None:
        return False
    driver_without_variable = value_of(facts.driver.cuda_unhidden)
    return driver_without_variable is not None and bool(driver_without_variable.count)


def find_no_device_cause(facts: Facts) -> Cause:
    """Return why the driver works but shows no device."""
    if facts.machine.container and isinstance(facts.driver.kernel_module, Known) and not has_gpu_nodes(facts):
        return Cause.CONTAINER_NO_GPU
    return Cause.NO_DEVICE


def has_gpu_nodes(facts: Facts) -> bool:
    """Return whether /dev has a GPU node (nvidia0 …, or dxg in WSL), not only nvidiactl."""
    nodes = value_of(facts.driver.nodes)
    return nodes is not None and any(name[-1].isdigit() or name.endswith("dxg") for name in nodes.names)


def find_kernel_module_mismatch(facts: Facts) -> tuple[str, str] | None:
    """Return the versions of the kernel module and of libcuda or NVML if they differ.

    Return None if they are equal, or if one of them is unknown.
    """
    module, nvml = value_of(facts.driver.kernel_module), value_of(facts.driver.nvml)
    user_version = nvml.driver_version if nvml is not None and nvml.driver_version else None
    driver = value_of(facts.driver.cuda)
    if user_version is None and driver is not None and driver.path:
        file_version = driver.path.rpartition("libcuda.so.")[2]
        user_version = file_version if file_version.count(".") >= 1 else None
    if module is None or user_version is None or versions.compare(module.version, user_version) == 0:
        return None
    return module.version, user_version
