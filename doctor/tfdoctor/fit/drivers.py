"""The driver branches that NVIDIA ended, and with them what their cards can run. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.facts import SmiFacts, value_of

if TYPE_CHECKING:
    from tfdoctor.facts import Facts

__all__ = ["driver_version", "last_branch"]

LAST_BRANCHES = (("3.0", "390", "391"), ("5.0", "470", "495"), ("7.5", "580", "590"))
"""(below this compute capability, the last driver branch for it, the first without): Fermi; Kepler; Maxwell,
Pascal and Volta."""


def last_branch(capability: str) -> tuple[str, str] | None:
    """(the last driver branch that drives this capability, the first that does not); None for living ones."""
    for below, last, first_without in LAST_BRANCHES:
        if not versions.at_least(capability, below):
            return last, first_without
    return None


def driver_version(facts: Facts) -> tuple[str, str] | None:
    """(the driver's version, where it was seen): the kernel module's, NVML's, else nvidia-smi's."""
    driver = facts.driver
    module, nvml, smi = value_of(driver.kernel_module), value_of(driver.nvml), value_of(driver.smi)
    if module is not None and module.version and versions.is_version(module.version):
        return module.version, getattr(driver.kernel_module, "source", "")
    if nvml is not None and nvml.driver_version and versions.is_version(nvml.driver_version):
        return nvml.driver_version, "nvmlSystemGetDriverVersion"
    if isinstance(smi, SmiFacts) and smi.driver_version and versions.is_version(smi.driver_version):
        return smi.driver_version, getattr(driver.smi, "source", "nvidia-smi")
    return None
