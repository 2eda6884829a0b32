"""What the kernels of the release that wrote a log say of operations on the CPU, and of those that were refused.

Only of wheels for NVIDIA's GPUs there are lists (compat/kernels.json): of other devices nothing is said. Where a log
can be of several releases, only what is so in all of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tfdoctor.placement.models import Lacking, OnCpu, PlacementData, Refusal, find_kind, find_task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.compat.kernels import Kernels, OfOperation, Types

__all__ = ["find_cpu_operations", "needs_kernels", "with_reasons"]

_REASONS = ("no-kernel", "no-kernel-for-type")


def needs_kernels(found: PlacementData) -> bool:
    """Return whether kernels would say more; then the log's release is worth the time."""
    if any(one.reason in _REASONS for one in found.refused):
        return True
    return _has_only_nvidia(found) and any(find_kind(row.device) == "CPU" for row in found.ops)


def find_cpu_operations(found: PlacementData, kernels: Kernels, era: str | None) -> OnCpu | None:
    """Return the operations on a CPU, of tasks with a GPU, that have no GPU kernel, or none for some types.

    None: the release is not known or was not measured, or there is no GPU that it is known of.
    """
    releases = kernels.list_measured(era) if era else ()
    if not releases or not _has_only_nvidia(found):
        return None
    with_gpu = {one.task for one in found.devices if one.kind == "GPU"}
    counts: dict[str, int] = {}
    for row in found.ops:
        if find_kind(row.device) == "CPU" and find_task(row.device) in with_gpu:
            counts[row.op] = counts.get(row.op, 0) + row.count
    none, fewer = [], []
    for op, count in sorted(counts.items(), key=lambda one: (-one[1], one[0])):
        every = _find_in_all(kernels, releases, op)
        if every and all(one.gpu is None for one in every):
            none.append(Lacking(op, count))
        elif every and all(one.gpu is not None for one in every):
            lacking = _find_missing_types(every)
            if lacking:
                fewer.append(Lacking(op, count, *lacking))
    return OnCpu(_format_era(era or ""), tuple(none), tuple(fewer))


def with_reasons(found: PlacementData, kernels: Kernels, era: str | None) -> PlacementData:
    """Return the same; a refusal whose message lists no kernels is explained by those of the release."""
    releases = kernels.list_measured(era) if era else ()
    if not releases:
        return found
    refused = tuple(_explain(one, found, kernels, releases, era or "") for one in found.refused)
    return replace(found, refused=refused)


def _explain(
    one: Refusal, found: PlacementData, kernels: Kernels, releases: Sequence[str], era: str
) -> Refusal:
    kind = find_kind(one.wanted or "")
    if one.op is None or one.reason not in _REASONS or kind not in ("CPU", "GPU"):
        return one
    if kind == "GPU" and not _has_only_nvidia(found):
        return one
    every = _find_in_all(kernels, releases, one.op)
    there = [row.gpu if kind == "GPU" else row.cpu for row in every]
    if not there or (None in there and any(types is not None for types in there)):
        return one
    if there[0] is None:
        told = f"{_format_era(era)} has no {kind} kernel for it"
        return replace(one, reason=one.reason if one.listed else "no-kernel", told=told)
    reason = one.reason if one.listed else "no-kernel-for-type"
    for name, asked in one.types:
        limits = [types[name] for types in there if types is not None and name in types]
        if len(limits) == len(there) and not any(asked in types for types in limits):
            has = ", ".join(sorted(frozenset.intersection(*limits)))
            told = f"{_format_era(era)} has {kind} kernels for {has}, none for {asked}"
            return replace(one, reason=reason, told=told)
    told = f"{_format_era(era)} has {kind} kernels for it, and none that takes these types and settings"
    return replace(one, reason=reason, told=told)


def _has_only_nvidia(found: PlacementData) -> bool:
    """Return whether there are GPUs, all NVIDIA's: TensorFlow names a compute capability of no other."""
    gpus = [one for one in found.devices if one.kind == "GPU"]
    return bool(gpus) and all(one.compute_capability is not None for one in gpus)


def _find_in_all(kernels: Kernels, releases: Sequence[str], op: str) -> list[OfOperation]:
    """Return its kernels in each of the releases; none if one of them does not have it."""
    found = [kernels.find_kernels(release, op) for release in releases]
    every = [one for one in found if one is not None]
    return every if len(every) == len(found) else []


def _find_missing_types(every: Sequence[OfOperation]) -> tuple[str, tuple[str, ...], tuple[str, ...]] | None:
    """Return (attribute, types of GPU kernels, types of CPU kernels alone) in all of the releases.

    It is the attribute with the most of the latter. None: there is none.
    """
    best: tuple[str, tuple[str, ...], tuple[str, ...]] | None = None
    for name in sorted({name for one in every for name in one.gpu or ()}):
        limits = [(_limit(one.cpu, name), _limit(one.gpu, name)) for one in every]
        if any(cpu is None or gpu is None for cpu, gpu in limits):
            continue
        missing = frozenset.intersection(
            *((cpu or frozenset()) - (gpu or frozenset()) for cpu, gpu in limits)
        )
        taken = frozenset.intersection(*(gpu or frozenset() for _, gpu in limits))
        if missing and (best is None or len(missing) > len(best[2])):
            best = name, tuple(sorted(taken)), tuple(sorted(missing))
    return best


def _limit(types: Types | None, name: str) -> frozenset[str] | None:
    return types.get(name) if types is not None else None


def _format_era(era: str) -> str:
    """Format the releases: "TensorFlow 2.10", "TensorFlow 2.4 to 2.11"."""
    return f"TensorFlow {era.replace('-', ' to ')}"
