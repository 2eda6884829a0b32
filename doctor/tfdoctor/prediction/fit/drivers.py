"""Find out which driver is installed, and whether a driver supports a GPU."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.facts import SmiFacts, value_of
from tfdoctor.core.findings import Cause

if TYPE_CHECKING:
    from tfdoctor.compat import Compat
    from tfdoctor.compat.releases import Platform
    from tfdoctor.core.facts import Facts
    from tfdoctor.prediction.fit.models import HostGpu

__all__ = [
    "find_driver_refusal",
    "find_driver_version",
    "find_first_driver",
    "find_newest_driver",
    "is_windows_driver",
    "list_known_drivers",
    "list_refusal_limits",
]


_LINUX_BRANCH_STEP = 5
"""The step between the numbers of driver branches for Linux, except the oldest."""


def find_driver_version(facts: Facts) -> tuple[str, str] | None:
    """Return (driver version, source) from the kernel module, NVML or nvidia-smi; None if not known."""
    driver = facts.driver
    module, nvml, smi = value_of(driver.kernel_module), value_of(driver.nvml), value_of(driver.smi)
    if module is not None and module.version and versions.is_version(module.version):
        return module.version, getattr(driver.kernel_module, "source", "")
    if nvml is not None and nvml.driver_version and versions.is_version(nvml.driver_version):
        return nvml.driver_version, "nvmlSystemGetDriverVersion"
    if isinstance(smi, SmiFacts) and smi.driver_version and versions.is_version(smi.driver_version):
        return smi.driver_version, getattr(driver.smi, "source", "nvidia-smi")
    return None


def find_newest_driver(compat: Compat, driver: str, platform: Platform = "linux") -> str:
    """Return the newest known driver of a branch: `"550.54.15"` for `"550"`.

    A complete version and an unknown branch are returned unchanged.
    """
    if "." in driver:
        return driver
    branch = versions.major(driver)
    drivers = list_known_drivers(compat, platform)
    return next((version for version in drivers if versions.major(version) == branch), driver)


def list_known_drivers(compat: Compat, platform: Platform = "linux") -> list[str]:
    """Return the drivers in the tables of CUDA releases and their minimum drivers, newest first."""
    drivers = {
        driver
        for release in compat.cuda_releases
        for minimum in [compat.find_driver_minimum(release.version, platform)]
        for driver in (minimum.toolkit_driver, minimum.minimum)
    }
    return sorted(filter(None, drivers), key=versions.parse_numbers, reverse=True)


def is_windows_driver(compat: Compat, driver: str) -> bool:
    """Return whether a driver is known to exist for Windows only, such as 546.12.

    Windows has the branches of Linux and branches of its own. The newer branches of Linux are multiples of five.
    """
    branch = versions.major(driver)
    linux_branches = {versions.major(known) for known in list_known_drivers(compat)}
    windows_branches = {versions.major(known) for known in list_known_drivers(compat, "windows")}
    first_regular = max((known for known in linux_branches if known % _LINUX_BRANCH_STEP), default=0)
    is_irregular = (
        first_regular < branch < max(linux_branches, default=0) and branch % _LINUX_BRANCH_STEP != 0
    )
    return branch not in linux_branches and (branch in windows_branches or is_irregular)


def _find_dropped_support(compat: Compat, driver: str, gpu: HostGpu) -> tuple[Cause, str, str] | None:
    """Return (cause, reason, source) if the driver's branch no longer supports the GPU, else None."""
    unsupported_gpus = compat.cards.find_unsupported(gpu.capability)
    if unsupported_gpus is None or not versions.is_at_least(driver, unsupported_gpus.first_branch_without):
        return None
    limit = f"the last branch for compute capability {gpu.capability} is {unsupported_gpus.last_branch}"
    reason = f"driver {driver} does not drive the {gpu.name}: {limit}"
    return Cause.NO_DEVICE, reason, f"cards.toml: [[ended]] {unsupported_gpus.name}"


def find_driver_refusal(
    compat: Compat, driver: str, gpu: HostGpu, platform: Platform = "linux"
) -> tuple[Cause, str, str] | None:
    """Return (cause, reason, source) if a driver is known not to support a GPU, else None.

    Either the driver is newer than the last branch that supports the GPU, or the GPU is newer than the CUDA version of
    the driver.
    """
    dropped_support = _find_dropped_support(compat, driver, gpu)
    driver_capability = (
        None if dropped_support is not None else _find_driver_capability(compat, driver, platform)
    )
    if driver_capability is None:
        return dropped_support
    cuda, newest, series = driver_capability
    if versions.parse_capability(gpu.capability) > versions.parse_capability(newest):
        explanation = f"it speaks CUDA {cuda}, which knows cards up to compute capability {newest}"
    elif any(gpu.capability in entry.capabilities for entry in compat.all_cuda_series) and not any(
        gpu.capability in entry.capabilities and versions.is_at_least(series, entry.version)
        for entry in compat.all_cuda_series
    ):  # such as 10.3, which is newer than 12.0
        explanation = f"it speaks CUDA {cuda}, which does not know compute capability {gpu.capability} yet"
    else:
        return None
    return (
        Cause.DRIVER_TOO_OLD,
        f"driver {driver} is older than the {gpu.name}: {explanation}",
        f"cuda.toml: [[series]] {series}",
    )


@lru_cache(maxsize=256)
def find_first_driver(compat: Compat, gpu: HostGpu, platform: Platform = "linux") -> str | None:
    """Return the oldest known driver that is new enough for a GPU; None if every known driver is too old."""
    for driver in reversed(list_known_drivers(compat, platform)):
        refusal = find_driver_refusal(compat, driver, gpu, platform)
        if refusal is None or refusal[0] is not Cause.DRIVER_TOO_OLD:
            return driver
    return None


def list_refusal_limits(compat: Compat, platform: Platform = "linux") -> frozenset[str]:
    """Return the driver versions at which the result of `find_driver_refusal` can change."""
    branches = [
        entry.driver_branch.lstrip("R") for entry in compat.all_cuda_series if entry.driver_branch is not None
    ]
    limits = {*list_known_drivers(compat, platform), *branches}
    next_branch = str(max(map(versions.major, limits)) + 1)  # the CUDA version of this branch is not known
    return frozenset(
        {*limits, next_branch, *(entry.first_branch_without for entry in compat.cards.unsupported_gpus)}
    )


@lru_cache(maxsize=256)
def _find_driver_capability(compat: Compat, driver: str, platform: Platform) -> tuple[str, str, str] | None:
    """Return (CUDA version, newest compute capability, series) of a driver; None if not known."""
    cuda = compat.find_newest_cuda_for_driver(find_newest_driver(compat, driver, platform), platform)
    if cuda is None:
        return None
    # The oldest toolkits have no entry. Use the next newer toolkit: a GPU that is too new for it is too new for them as well.
    not_older = [series for series in compat.all_cuda_series if versions.is_at_least(series.version, cuda)]
    if not not_older:
        return None
    series = not_older[0]
    return cuda, series.capabilities[-1], series.version
