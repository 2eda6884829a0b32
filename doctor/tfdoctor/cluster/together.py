"""Several files of one cluster, or several servers of one file: what is the same cluster is judged once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tfdoctor.cluster.models import Fault, Spec, Written
from tfdoctor.findings import Severity
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["together"]


def together(specs: Sequence[Spec]) -> list[tuple[str, Written]]:
    """(source, cluster) of each different cluster, with the tasks of all that write the same one.

    A cluster that differs from the first file's gets a fault at each task that does: they are told to be one.
    """
    made: list[tuple[str, Written]] = []
    for spec in specs:
        for written in spec.written:
            for place, (source, other) in enumerate(made):
                if written.jobs is not None and written.jobs == other.jobs:
                    faults = other.faults + tuple(one for one in written.faults if one not in other.faults)
                    made[place] = (
                        source,
                        replace(other, tasks=(*other.tasks, *written.tasks), faults=faults),
                    )
                    break
            else:
                first = made[0] if made and len(specs) > 1 else None
                made.append((spec.source, _differs(written, first) if first else written))
    return made


def _differs(written: Written, first: tuple[str, Written]) -> Written:
    source, other = first
    here, there = dict(written.addresses), dict(other.addresses)
    faults = list(written.faults)
    for task in dict.fromkeys((*there, *here)):
        if written.jobs is None or other.jobs is None or here.get(task) == there.get(task):
            continue
        message = (
            f"{clean_line(str(task), limit=120)} is {_named(here.get(task))} here and {_named(there.get(task))} in "
            f"{clean_line(source, limit=120)}."
        )
        fix = "Give every process of a cluster the same addresses."
        faults.append(Fault("cluster-address", Severity.ERROR, str(task), message, fix))
    return replace(written, faults=tuple(faults))


def _named(address: str | None) -> str:
    return f'"{clean_line(address, limit=120)}"' if address is not None else "not there"
