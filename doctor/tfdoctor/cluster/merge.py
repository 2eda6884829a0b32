"""Merging of equal cluster specifications from several files or servers, so that each is evaluated once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tfdoctor.cluster.models import ClusterSource, Fault, Written
from tfdoctor.findings import Severity
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["merge_clusters"]


def merge_clusters(specs: Sequence[ClusterSource]) -> list[tuple[str, Written]]:
    """Return (source, cluster) of each different cluster, with the tasks of all texts that contain it.

    A cluster that differs from the first file's gets a fault at each task that differs, because all files should
    describe one cluster.
    """
    groups: list[tuple[str, list[Written]]] = []
    """Source of each different cluster, and the specifications that agree with it."""
    group_indices: dict[object, int] = {}
    for spec in specs:
        for written in spec.written:
            key = _make_key(written)
            if key in group_indices:
                groups[group_indices[key]][1].append(written)
                continue
            if key is not None:
                group_indices[key] = len(groups)
            first = (groups[0][0], groups[0][1][0]) if groups and len(specs) > 1 else None
            groups.append((spec.source, [_add_difference_faults(written, first) if first else written]))
    return [(source, _merge_writers(specifications)) for source, specifications in groups]


def _make_key(written: Written) -> object:
    """Return a key that equal clusters share, whatever the order of their jobs; None if the text could not be read."""
    if written.jobs is None:
        return None
    return frozenset((job, frozenset(tasks.items())) for job, tasks in written.jobs.items())


def _merge_writers(specifications: Sequence[Written]) -> Written:
    """Return one cluster with the tasks and all different faults of equal specifications."""
    first, *others = specifications
    tasks = tuple(task for spec in specifications for task in spec.tasks)
    faults = dict.fromkeys(fault for spec in others for fault in spec.faults if fault not in first.faults)
    return replace(first, tasks=tasks, faults=(*first.faults, *faults))


def _add_difference_faults(written: Written, first: tuple[str, Written]) -> Written:
    """Return the specification with a fault for each task whose address differs from that in the first file."""
    source, first_written = first
    addresses, first_addresses = dict(written.addresses), dict(first_written.addresses)
    faults = list(written.faults)
    for task in dict.fromkeys((*first_addresses, *addresses)):
        if (
            written.jobs is None
            or first_written.jobs is None
            or addresses.get(task) == first_addresses.get(task)
        ):
            continue
        message = (
            f"{clean_line(str(task), limit=120)} is {_format_address(addresses.get(task))} here and "
            f"{_format_address(first_addresses.get(task))} in "
            f"{clean_line(source, limit=120)}."
        )
        fix = "Give every process of a cluster the same addresses."
        faults.append(Fault("cluster-address", Severity.ERROR, str(task), message, fix))
    return replace(written, faults=tuple(faults))


def _format_address(address: str | None) -> str:
    return f'"{clean_line(address, limit=120)}"' if address is not None else "not there"
