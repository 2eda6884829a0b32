"""Hide the facts about a machine's real GPU and driver, so that rules see only the simulated ones."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from tfdoctor.core.facts import KernelFacts, Known, Unknown, value_of

if TYPE_CHECKING:
    from tfdoctor.core.facts import CudaDriver, Fact, Facts

__all__ = ["RealGpuFilter", "find_other_libcuda", "hide_real_gpu"]

_REASON = "the card and its driver are simulated"


class RealGpuFilter:
    """A callback for `examine(modify_facts=…)` that hides the real GPU, and notes another libcuda."""

    other_libcuda: str | None = None
    """The libcuda.so.1 that the loader finds before the stand-in; None if there is none."""

    def __call__(self, facts: Facts) -> Facts:
        """Return the facts for the rules."""
        self.other_libcuda = find_other_libcuda(facts)
        return hide_real_gpu(facts)


def hide_real_gpu(facts: Facts) -> Facts:
    """Return the facts with everything about the real GPU, kernel and nvidia-smi unknown.

    The stand-in counts as a real driver.
    """
    unknown = Unknown(_REASON)
    driver = facts.driver
    return dataclasses.replace(
        facts,
        driver=dataclasses.replace(
            driver,
            pci=unknown,
            kernel_module=unknown,
            modules=unknown,
            nodes=unknown,
            smi=unknown,
            cuda=_as_real_driver(driver.cuda),
            cuda_unhidden=_as_real_driver(driver.cuda_unhidden) if driver.cuda_unhidden is not None else None,
            dxcore=False,
            driver_files=(),
        ),
        kernel=KernelFacts(),
    )


def _as_real_driver(fact: Fact[CudaDriver]) -> Fact[CudaDriver]:
    """Mark a fact about the stand-in as one about a real driver. Any other fact is returned unchanged."""
    if isinstance(fact, Known) and fact.value.stand_in:
        return Known(dataclasses.replace(fact.value, stand_in=False), fact.source)
    return fact


def find_other_libcuda(facts: Facts) -> str | None:
    """Return the libcuda.so.1 that the loader finds before the stand-in; None if there is none.

    `facts` must be the original facts, not the result of `hide_real_gpu`.
    """
    cuda = value_of(facts.driver.cuda)
    if cuda is None or not cuda.loaded or cuda.stand_in:
        return None
    return cuda.path or "libcuda.so.1"
