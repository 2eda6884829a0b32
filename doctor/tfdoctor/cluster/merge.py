"""Several files of one cluster, or several servers of one file: what is the same cluster is judged once."""

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
    """Return (source, cluster) of each different cluster, with the tasks of all that write the same one.

    A cluster that differs from the first file's gets a fault at each task that does: they are told to be one.
    """
    made: list[tuple[str, list[Written]]] = []
    """Source, and the cluster as each of its writers has it."""
    places: dict[object, int] = {}
    for spec in specs:
        for written in spec.written:
            key = _key(written)
            if key in places:
                made[places[key]][1].append(written)
                continue
            if key is not None:
                places[key] = len(made)
            first = (made[0][0], made[0][1][0]) if made and len(specs) > 1 else None
            made.append((spec.source, [_differs(written, first) if first else written]))
    return [(source, _merge_writers(several)) for source, several in made]


def _key(written: Written) -> object:
    """Return what the same clusters have alike, whatever the order of their jobs; None: it could not be read."""
    if written.jobs is None:
        return None
    return frozenset((job, frozenset(tasks.items())) for job, tasks in written.jobs.items())


def _merge_writers(several: Sequence[Written]) -> Written:
    """Return one cluster with the tasks and the different faults of all that write it."""
    first, *others = several
    tasks = tuple(task for one in several for task in one.tasks)
    faults = dict.fromkeys(fault for one in others for fault in one.faults if fault not in first.faults)
    return replace(first, tasks=tasks, faults=(*first.faults, *faults))


def _differs(written: Written, first: tuple[str, Written]) -> Written:
    source, other = first
    here, there = dict(written.addresses), dict(other.addresses)
    faults = list(written.faults)
    for task in dict.fromkeys((*there, *here)):
        if written.jobs is None or other.jobs is None or here.get(task) == there.get(task):
            continue
        message = (
            f"{clean_line(str(task), limit=120)} is {_format_address(here.get(task))} here and "
            f"{_format_address(there.get(task))} in "
            f"{clean_line(source, limit=120)}."
        )
        fix = "Give every process of a cluster the same addresses."
        faults.append(Fault("cluster-address", Severity.ERROR, str(task), message, fix))
    return replace(written, faults=tuple(faults))


def _format_address(address: str | None) -> str:
    return f'"{clean_line(address, limit=120)}"' if address is not None else "not there"
