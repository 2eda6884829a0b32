"""Merge equal cluster specifications from several sources, so that each cluster is evaluated once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tfdoctor.core.findings import Severity
from tfdoctor.core.text import clean_line
from tfdoctor.extensions.cluster.models import ClusterSource, ClusterSpecification, Fault

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["merge_clusters"]


def merge_clusters(sources: Sequence[ClusterSource]) -> list[tuple[str, ClusterSpecification]]:
    """Return (source, specification) for each distinct cluster, with the tasks of all its specifications.

    All sources should describe the same cluster. A cluster that differs from that of the first source gets a fault for
    each task whose address differs.
    """
    groups: list[tuple[str, list[ClusterSpecification]]] = []
    """The source and the specifications of each distinct cluster."""
    group_indices: dict[object, int] = {}
    for cluster_source in sources:
        for cluster_spec in cluster_source.specifications:
            cluster_key = _make_cluster_key(cluster_spec)
            if cluster_key in group_indices:
                _, equal_specs = groups[group_indices[cluster_key]]
                equal_specs.append(cluster_spec)
                continue
            if cluster_key is not None:  # unreadable specifications are never equal
                group_indices[cluster_key] = len(groups)
            new_spec = cluster_spec
            if groups and len(sources) > 1:
                first_source, first_specs = groups[0]
                new_spec = _add_difference_faults(cluster_spec, first_specs[0], first_source)
            groups.append((cluster_source.name, [new_spec]))
    return [(source, _merge_specifications(specifications)) for source, specifications in groups]


def _make_cluster_key(cluster_spec: ClusterSpecification) -> object:
    """Return a key that equal clusters share, whatever the order of their jobs.

    Return None if the specification could not be read.
    """
    if cluster_spec.jobs is None:
        return None
    return frozenset((job, frozenset(tasks.items())) for job, tasks in cluster_spec.jobs.items())


def _merge_specifications(specifications: Sequence[ClusterSpecification]) -> ClusterSpecification:
    """Merge equal specifications into one with all of their tasks, and with each of their faults once."""
    first, *others = specifications
    tasks = tuple(task for spec in specifications for task in spec.tasks)
    faults = dict.fromkeys(fault for spec in others for fault in spec.faults if fault not in first.faults)
    return replace(first, tasks=tasks, faults=(*first.faults, *faults))


def _add_difference_faults(
    cluster_spec: ClusterSpecification, first_spec: ClusterSpecification, first_source: str
) -> ClusterSpecification:
    """Return the specification with a fault for each task whose address differs in the first source."""
    addresses, first_addresses = dict(cluster_spec.addresses), dict(first_spec.addresses)
    faults = list(cluster_spec.faults)
    for task in dict.fromkeys((*first_addresses, *addresses)):
        if (
            cluster_spec.jobs is None
            or first_spec.jobs is None
            or addresses.get(task) == first_addresses.get(task)
        ):
            continue
        message = (
            f"{clean_line(str(task), limit=120)} is {_format_address(addresses.get(task))} here and "
            f"{_format_address(first_addresses.get(task))} in "
            f"{clean_line(first_source, limit=120)}."
        )
        fix = "Give every process of a cluster the same addresses."
        faults.append(Fault("cluster-address", Severity.ERROR, str(task), message, fix))
    return replace(cluster_spec, faults=tuple(faults))


def _format_address(address: str | None) -> str:
    return f'"{clean_line(address, limit=120)}"' if address is not None else "not there"
