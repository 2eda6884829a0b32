"""Explanations of CPU operations and of refusals, from the kernels of the release that wrote the log.

The lists of kernels (compat/kernels.json) cover wheels for NVIDIA's GPUs only, so nothing is reported for
other devices. If several releases can have written the log, only what holds for all of them is reported.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tfdoctor.placement.models import (
    CpuOperations,
    MissingKernel,
    PlacementData,
    Refusal,
    find_kind,
    find_task,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.compat.kernels import Kernels, OperationKernels, Types

__all__ = ["explain_refusals", "find_cpu_operations", "needs_kernels"]

_REASONS = ("no-kernel", "no-kernel-for-type")


def needs_kernels(placement: PlacementData) -> bool:
    """Return whether kernels can add information, so that finding the log's release is worth the time."""
    if any(refusal.reason in _REASONS for refusal in placement.refused):
        return True
    return _has_only_nvidia(placement) and any(find_kind(count.device) == "CPU" for count in placement.ops)


def find_cpu_operations(placement: PlacementData, kernels: Kernels, era: str | None) -> CpuOperations | None:
    """Return the CPU operations, in tasks with a GPU, that have no GPU kernel, or none for some types.

    None if the release is not known or its kernels were not measured, or if the GPUs are not NVIDIA's.
    """
    releases = kernels.list_measured(era) if era else ()
    if not releases or not _has_only_nvidia(placement):
        return None
    gpu_tasks = {item.task for item in placement.devices if item.kind == "GPU"}
    counts: dict[str, int] = {}
    for op_count in placement.ops:
        if find_kind(op_count.device) == "CPU" and find_task(op_count.device) in gpu_tasks:
            counts[op_count.op] = counts.get(op_count.op, 0) + op_count.count
    without_gpu, partial = [], []
    for op, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        kernels_of_op = _find_in_all(kernels, releases, op)
        if kernels_of_op and all(item.gpu is None for item in kernels_of_op):
            without_gpu.append(MissingKernel(op, count))
        elif kernels_of_op and all(item.gpu is not None for item in kernels_of_op):
            lacking = _find_missing_types(kernels_of_op)
            if lacking:
                partial.append(MissingKernel(op, count, *lacking))
    return CpuOperations(_format_era(era or ""), tuple(without_gpu), tuple(partial))


def explain_refusals(placement: PlacementData, kernels: Kernels, era: str | None) -> PlacementData:
    """Return the data with refusals explained by the release's kernels if they can be.

    Data of an unknown or unmeasured release is returned unchanged.
    """
    releases = kernels.list_measured(era) if era else ()
    if not releases:
        return placement
    refused = tuple(
        _explain_refusal(refusal, placement, kernels, releases, era or "") for refusal in placement.refused
    )
    return replace(placement, refused=refused)


def _explain_refusal(
    refusal: Refusal, placement: PlacementData, kernels: Kernels, releases: Sequence[str], era: str
) -> Refusal:
    """Return the refusal with a reason and explanation from the kernels; unchanged if they do not explain it."""
    kind = find_kind(refusal.wanted or "")
    if refusal.op is None or refusal.reason not in _REASONS or kind not in ("CPU", "GPU"):
        return refusal
    if kind == "GPU" and not _has_only_nvidia(placement):
        return refusal
    kernels_of_op = _find_in_all(kernels, releases, refusal.op)
    kernel_types = [operation.gpu if kind == "GPU" else operation.cpu for operation in kernels_of_op]
    if not kernel_types or (None in kernel_types and any(types is not None for types in kernel_types)):
        return refusal
    if kernel_types[0] is None:
        explanation = f"{_format_era(era)} has no {kind} kernel for it"
        return replace(refusal, reason=refusal.reason if refusal.listed else "no-kernel", told=explanation)
    reason = refusal.reason if refusal.listed else "no-kernel-for-type"
    for name, data_type in refusal.types:
        limits = [types[name] for types in kernel_types if types is not None and name in types]
        if len(limits) == len(kernel_types) and not any(data_type in types for types in limits):
            supported = ", ".join(sorted(frozenset.intersection(*limits)))
            explanation = f"{_format_era(era)} has {kind} kernels for {supported}, none for {data_type}"
            return replace(refusal, reason=reason, told=explanation)
    explanation = (
        f"{_format_era(era)} has {kind} kernels for it, and none that takes these types and settings"
    )
    return replace(refusal, reason=reason, told=explanation)


def _has_only_nvidia(placement: PlacementData) -> bool:
    """Return whether there are GPUs and all are NVIDIA's, the only ones with a compute capability in the log."""
    gpus = [device for device in placement.devices if device.kind == "GPU"]
    return bool(gpus) and all(device.compute_capability is not None for device in gpus)


def _find_in_all(kernels: Kernels, releases: Sequence[str], op: str) -> list[OperationKernels]:
    """Return the kernels of an operation in each release; empty if one of the releases lacks the operation."""
    results = [kernels.find_kernels(release, op) for release in releases]
    found = [result for result in results if result is not None]
    return found if len(found) == len(results) else []


def _find_missing_types(
    kernels_of_op: Sequence[OperationKernels],
) -> tuple[str, tuple[str, ...], tuple[str, ...]] | None:
    """Return (attribute, types of GPU kernels, types of CPU kernels only) that hold in all releases.

    Choose the attribute with the most types of CPU kernels only; None if there is none.
    """
    best: tuple[str, tuple[str, ...], tuple[str, ...]] | None = None
    for name in sorted({name for operation in kernels_of_op for name in operation.gpu or ()}):
        limits = [
            (_get_types(operation.cpu, name), _get_types(operation.gpu, name)) for operation in kernels_of_op
        ]
        if any(cpu is None or gpu is None for cpu, gpu in limits):
            continue
        missing = frozenset.intersection(
            *((cpu or frozenset()) - (gpu or frozenset()) for cpu, gpu in limits)
        )
        supported = frozenset.intersection(*(gpu or frozenset() for _, gpu in limits))
        if missing and (best is None or len(missing) > len(best[2])):
            best = name, tuple(sorted(supported)), tuple(sorted(missing))
    return best


def _get_types(types: Types | None, name: str) -> frozenset[str] | None:
    """Return the types that kernels accept for an attribute; None if they do not limit it or do not exist."""
    return types.get(name) if types is not None else None


def _format_era(era: str) -> str:
    """Format the releases as "TensorFlow 2.10" or "TensorFlow 2.4 to 2.11"."""
    return f"TensorFlow {era.replace('-', ' to ')}"
