"""Explain CPU operations and refusals by the kernels of the release that wrote the log.

The kernel lists (compat/kernels.json) cover wheels for NVIDIA's GPUs only, so nothing is reported for other
devices. If several releases can have written the log, a fact is reported only if it holds for all of them.
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
"""The values of `Refusal.reason` that the kernel lists can explain."""


def needs_kernels(placement: PlacementData) -> bool:
    """Return whether the kernel lists can explain anything, so that it is worth finding the log's release."""
    if any(refusal.reason in _REASONS for refusal in placement.refused):
        return True
    return _has_only_nvidia(placement) and any(find_kind(count.device) == "CPU" for count in placement.ops)


def find_cpu_operations(placement: PlacementData, kernels: Kernels, era: str | None) -> CpuOperations | None:
    """Return the CPU operations that have no GPU kernel, or none for some types.

    Only tasks with a GPU are considered. Return None if the release is unknown, if its kernels were not measured,
    or unless there are GPUs and all of them are NVIDIA's.
    """
    releases = kernels.list_measured(era) if era else ()
    if not releases or not _has_only_nvidia(placement):
        return None
    gpu_tasks = {item.task for item in placement.devices if item.kind == "GPU"}
    count_by_op: dict[str, int] = {}
    for op_count in placement.ops:
        if find_kind(op_count.device) == "CPU" and find_task(op_count.device) in gpu_tasks:
            count_by_op[op_count.op] = count_by_op.get(op_count.op, 0) + op_count.count
    without_kernel, with_missing_types = [], []
    for op, count in sorted(count_by_op.items(), key=lambda item: (-item[1], item[0])):
        op_kernels = _find_in_all(kernels, releases, op)
        if op_kernels and all(item.gpu is None for item in op_kernels):
            without_kernel.append(MissingKernel(op, count))
        elif op_kernels and all(item.gpu is not None for item in op_kernels):
            missing_types = _find_missing_types(op_kernels)
            if missing_types:
                with_missing_types.append(MissingKernel(op, count, *missing_types))
    return CpuOperations(_format_era(era or ""), tuple(without_kernel), tuple(with_missing_types))


def explain_refusals(placement: PlacementData, kernels: Kernels, era: str | None) -> PlacementData:
    """Return the data with explanations of the refusals that the release's kernels explain.

    The data is returned unchanged if the release is unknown or its kernels were not measured.
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
    """Return the refusal with a reason and an explanation, or unchanged if the kernels do not explain it."""
    kind = find_kind(refusal.wanted or "")
    if refusal.op is None or refusal.reason not in _REASONS or kind not in ("CPU", "GPU"):
        return refusal
    if kind == "GPU" and not _has_only_nvidia(placement):
        return refusal
    op_kernels = _find_in_all(kernels, releases, refusal.op)
    kernel_types = [operation.gpu if kind == "GPU" else operation.cpu for operation in op_kernels]
    if not kernel_types or (None in kernel_types and any(types is not None for types in kernel_types)):
        return refusal
    if kernel_types[0] is None:
        explanation = f"{_format_era(era)} has no {kind} kernel for it"
        return replace(
            refusal, reason=refusal.reason if refusal.listed else "no-kernel", explanation=explanation
        )
    reason = refusal.reason if refusal.listed else "no-kernel-for-type"
    for name, data_type in refusal.types:
        type_sets = [types[name] for types in kernel_types if types is not None and name in types]
        if len(type_sets) == len(kernel_types) and not any(data_type in types for types in type_sets):
            supported = ", ".join(sorted(frozenset.intersection(*type_sets)))
            explanation = f"{_format_era(era)} has {kind} kernels for {supported}, none for {data_type}"
            return replace(refusal, reason=reason, explanation=explanation)
    explanation = (
        f"{_format_era(era)} has {kind} kernels for it, and none that takes these types and settings"
    )
    return replace(refusal, reason=reason, explanation=explanation)


def _has_only_nvidia(placement: PlacementData) -> bool:
    """Return whether there are GPUs and all of them are NVIDIA's.

    Only for NVIDIA's GPUs does the log contain a compute capability.
    """
    gpus = [device for device in placement.devices if device.kind == "GPU"]
    return bool(gpus) and all(device.compute_capability is not None for device in gpus)


def _find_in_all(kernels: Kernels, releases: Sequence[str], op: str) -> list[OperationKernels]:
    """Return the kernels of an operation in each release, or an empty list if a release lacks it."""
    results = [kernels.find_kernels(release, op) for release in releases]
    known_kernels = [result for result in results if result is not None]
    return known_kernels if len(known_kernels) == len(results) else []


def _find_missing_types(
    op_kernels: Sequence[OperationKernels],
) -> tuple[str, tuple[str, ...], tuple[str, ...]] | None:
    """Return (attribute, types with GPU kernels, types with only CPU kernels) that hold in all releases.

    The attribute is the one with the most types that only CPU kernels accept. Return None if there is none.
    """
    best: tuple[str, tuple[str, ...], tuple[str, ...]] | None = None
    for name in sorted({name for operation in op_kernels for name in operation.gpu or ()}):
        type_sets = [
            (_get_types(operation.cpu, name), _get_types(operation.gpu, name)) for operation in op_kernels
        ]
        if any(cpu is None or gpu is None for cpu, gpu in type_sets):
            continue
        missing = frozenset.intersection(
            *((cpu or frozenset()) - (gpu or frozenset()) for cpu, gpu in type_sets)
        )
        supported = frozenset.intersection(*(gpu or frozenset() for _, gpu in type_sets))
        if missing and (best is None or len(missing) > len(best[2])):
            best = name, tuple(sorted(supported)), tuple(sorted(missing))
    return best


def _get_types(types: Types | None, name: str) -> frozenset[str] | None:
    """Return the types that kernels accept for an attribute, or None if there are no kernels or no limit."""
    return types.get(name) if types is not None else None


def _format_era(era: str) -> str:
    """Format the releases as "TensorFlow 2.10" or "TensorFlow 2.4 to 2.11"."""
    return f"TensorFlow {era.replace('-', ' to ')}"
