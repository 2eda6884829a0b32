"""Explain CPU operations and refusals by the kernels of the release that wrote the log.

The kernel lists (compat/kernels.json) cover wheels for NVIDIA's GPUs only, so nothing is reported for other
devices. If several releases can have written the log, a fact is reported only if it holds for all of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tfdoctor.logs.placement.models import (
    CpuOperations,
    MissingKernel,
    PlacementData,
    Refusal,
    get_device_kind,
    get_device_task,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.compat.kernels import Kernels, OperationKernels, Types

__all__ = ["explain_refusals", "find_cpu_operations", "needs_kernels"]

_EXPLAINABLE_REASONS = ("no-kernel", "no-kernel-for-type")
"""The values of `Refusal.reason` that the kernel lists can explain."""


def needs_kernels(data: PlacementData) -> bool:
    """Return whether the kernel lists can explain anything, so that it is worth finding the log's release."""
    if any(refusal.reason in _EXPLAINABLE_REASONS for refusal in data.refusals):
        return True
    return _has_only_nvidia_gpus(data) and any(
        get_device_kind(count.device) == "CPU" for count in data.op_counts
    )


def find_cpu_operations(
    data: PlacementData, kernels: Kernels, release_range: str | None
) -> CpuOperations | None:
    """Return the CPU operations that have no GPU kernel, or none for some types.

    Only tasks with a GPU are considered. Return None if the release is unknown or its kernels were not measured.
    Also return None if there is no GPU or if one of them is not NVIDIA's.
    """
    releases = kernels.list_measured(release_range) if release_range else ()
    if not releases or not _has_only_nvidia_gpus(data):
        return None
    gpu_tasks = {item.task for item in data.devices if item.kind == "GPU"}
    count_by_op: dict[str, int] = {}
    for op_count in data.op_counts:
        if get_device_kind(op_count.device) == "CPU" and get_device_task(op_count.device) in gpu_tasks:
            count_by_op[op_count.op] = count_by_op.get(op_count.op, 0) + op_count.count
    without_kernel, with_missing_types = [], []
    for op, count in sorted(count_by_op.items(), key=lambda item: (-item[1], item[0])):
        op_kernels = _find_kernels_in_all(kernels, releases, op)
        if op_kernels and all(item.gpu_types is None for item in op_kernels):
            without_kernel.append(MissingKernel(op, count))
        elif op_kernels and all(item.gpu_types is not None for item in op_kernels):
            missing_types = _find_missing_types(op_kernels)
            if missing_types is not None:
                attribute, gpu_types, cpu_only_types = missing_types
                with_missing_types.append(MissingKernel(op, count, attribute, gpu_types, cpu_only_types))
    return CpuOperations(
        release_range_text=_format_releases(release_range or ""),
        without_gpu_kernel=tuple(without_kernel),
        with_fewer_gpu_types=tuple(with_missing_types),
    )


def explain_refusals(data: PlacementData, kernels: Kernels, release_range: str | None) -> PlacementData:
    """Return the data with explanations of the refusals that the release's kernels explain.

    The data is returned unchanged if the release is unknown or its kernels were not measured.
    """
    releases = kernels.list_measured(release_range) if release_range else ()
    if not releases:
        return data
    refused = tuple(
        _explain_refusal(refusal, data, kernels, releases, release_range or "") for refusal in data.refusals
    )
    return replace(data, refusals=refused)


def _explain_refusal(
    refusal: Refusal, data: PlacementData, kernels: Kernels, releases: Sequence[str], era: str
) -> Refusal:
    """Return the refusal with a reason and an explanation, or unchanged if the kernels do not explain it."""
    kind = get_device_kind(refusal.requested_device or "")
    if refusal.op is None or refusal.reason not in _EXPLAINABLE_REASONS or kind not in ("CPU", "GPU"):
        return refusal
    if kind == "GPU" and not _has_only_nvidia_gpus(data):
        return refusal
    op_kernels = _find_kernels_in_all(kernels, releases, refusal.op)
    kernel_types = [operation.gpu_types if kind == "GPU" else operation.cpu_types for operation in op_kernels]
    if not kernel_types or (None in kernel_types and any(types is not None for types in kernel_types)):
        return refusal  # unknown, or only some of the releases have a kernel
    if kernel_types[0] is None:
        explanation = f"{_format_releases(era)} has no {kind} kernel for it"
        return replace(
            refusal, reason=refusal.reason if refusal.lists_kernels else "no-kernel", explanation=explanation
        )
    reason = refusal.reason if refusal.lists_kernels else "no-kernel-for-type"
    for attribute, data_type in refusal.type_attributes:
        type_sets = [types[attribute] for types in kernel_types if types is not None and attribute in types]
        if len(type_sets) == len(kernel_types) and not any(data_type in types for types in type_sets):
            supported = ", ".join(sorted(frozenset.intersection(*type_sets)))
            explanation = f"{_format_releases(era)} has {kind} kernels for {supported}, none for {data_type}"
            return replace(refusal, reason=reason, explanation=explanation)
    explanation = (
        f"{_format_releases(era)} has {kind} kernels for it, and none that takes these types and settings"
    )
    return replace(refusal, reason=reason, explanation=explanation)


def _has_only_nvidia_gpus(data: PlacementData) -> bool:
    """Return whether there are GPUs and all of them are NVIDIA's.

    TensorFlow prints a compute capability only for NVIDIA's GPUs.
    """
    gpus = [device for device in data.devices if device.kind == "GPU"]
    return bool(gpus) and all(device.compute_capability is not None for device in gpus)


def _find_kernels_in_all(kernels: Kernels, releases: Sequence[str], op: str) -> list[OperationKernels]:
    """Return the kernels of an operation in each release, or an empty list if a release does not have the operation."""
    op_kernels = [kernels.find_kernels(release, op) for release in releases]
    known_kernels = [operation for operation in op_kernels if operation is not None]
    return known_kernels if len(known_kernels) == len(op_kernels) else []


def _find_missing_types(
    op_kernels: Sequence[OperationKernels],
) -> tuple[str, tuple[str, ...], tuple[str, ...]] | None:
    """Return (attribute, types with GPU kernels, types with only CPU kernels) that hold in all releases.

    The attribute is the one with the most types that only CPU kernels accept. Return None if there is none.
    """
    best: tuple[str, tuple[str, ...], tuple[str, ...]] | None = None
    max_cpu_only = 0
    for attribute in sorted({name for operation in op_kernels for name in operation.gpu_types or ()}):
        type_sets = [
            (_get_types(operation.cpu_types, attribute), _get_types(operation.gpu_types, attribute))
            for operation in op_kernels
        ]
        if any(cpu_types is None or gpu_types is None for cpu_types, gpu_types in type_sets):
            continue
        cpu_only = frozenset.intersection(
            *((cpu_types or frozenset()) - (gpu_types or frozenset()) for cpu_types, gpu_types in type_sets)
        )
        supported = frozenset.intersection(*(gpu_types or frozenset() for _, gpu_types in type_sets))
        if len(cpu_only) > max_cpu_only:
            max_cpu_only = len(cpu_only)
            best = attribute, tuple(sorted(supported)), tuple(sorted(cpu_only))
    return best


def _get_types(types_by_attribute: Types | None, attribute: str) -> frozenset[str] | None:
    """Return the types that kernels accept for an attribute, or None if there are no kernels or no limit."""
    return types_by_attribute.get(attribute) if types_by_attribute is not None else None


def _format_releases(era: str) -> str:
    """Format the releases as "TensorFlow 2.10" or "TensorFlow 2.4 to 2.11"."""
    return f"TensorFlow {era.replace('-', ' to ')}"
