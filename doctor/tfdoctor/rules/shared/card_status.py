"""Helpers for the rules about the condition of the GPUs, as nvidia-smi reports it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.facts import Absent, SmiFacts, Unknown, value_of
from tfdoctor.rules.base import CouldNotCheck, NotApplicable

if TYPE_CHECKING:
    from tfdoctor.core.facts import GpuCondition, SmiGpu
    from tfdoctor.rules.base import RuleContext


def require_gpu_conditions(context: RuleContext) -> NotApplicable | CouldNotCheck | None:
    """Require that nvidia-smi reports the condition of the GPUs."""
    smi = context.facts.driver.smi
    if isinstance(smi, Unknown):
        return CouldNotCheck(f"nvidia-smi: {smi.why}")
    if isinstance(smi, Absent):
        return NotApplicable(smi.why or "there is no nvidia-smi to ask")
    if not isinstance(smi.value, SmiFacts):
        return NotApplicable("nvidia-smi does not answer, which TFD112 explains")
    if not list_gpu_conditions(context):
        return NotApplicable("this nvidia-smi does not tell the cards' condition")
    return None


def list_gpu_conditions(context: RuleContext) -> list[tuple[SmiGpu, GpuCondition]]:
    """Return the GPUs whose condition nvidia-smi reports, each with its condition."""
    smi = value_of(context.facts.driver.smi)
    if not isinstance(smi, SmiFacts):
        return []
    return [(gpu, gpu.health) for gpu in smi.gpus if gpu.health is not None]


def format_smi_gpu(gpu: SmiGpu) -> str:
    """Return the label of a GPU, such as "NVIDIA A100 (0000:01:00.0)"."""
    name = gpu.name or f"GPU {gpu.index}"
    return f"{name} ({gpu.pci_bus_id})" if gpu.pci_bus_id else name
