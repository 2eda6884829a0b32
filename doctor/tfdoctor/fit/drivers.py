"""Which driver is there. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.facts import SmiFacts, value_of

if TYPE_CHECKING:
    from tfdoctor.facts import Facts

__all__ = ["driver_version"]


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
