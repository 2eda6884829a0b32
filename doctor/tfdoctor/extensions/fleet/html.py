"""The HTML page of `fleet`: the summary, the grid and every host outside the largest group.

Unlike the other pages, this one contains host names, because it has to say which hosts have a problem.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfdoctor.core.causes.codes import FLEET_CODES
from tfdoctor.core.findings import Severity, Status
from tfdoctor.core.text import clean_line
from tfdoctor.extensions.fleet.analysis import format_host_names
from tfdoctor.extensions.fleet.render import COLUMNS, format_cell, format_state
from tfdoctor.render.finding import STATUS_BY_SEVERITY, choose_status
from tfdoctor.render.html.check import make_status_values
from tfdoctor.render.html.document import render_page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.extensions.fleet.models import Fleet, HostGroup

__all__ = ["make_fleet_html"]

MAX_GROUPS, MAX_HOSTS = 300, 3000
"""The largest numbers of groups and of hosts in a table, so that the page stays readable."""
MAX_DIFFERENCES = 12
"""The largest number of differences in a cell of the grid."""
STATUS_BY_STATE = {"ok": Status.GOOD, "found": STATUS_BY_SEVERITY[Severity.ERROR]}
"""The status of a group, by its state."""


def make_fleet_html(fleet: Fleet) -> bytes:
    """Return the HTML page of a fleet. The texts must already be redacted."""
    other_hosts = [item for item in fleet.hosts if item.group_number != 1]
    groups = fleet.groups[:MAX_GROUPS]
    return render_page(
        "fleet",
        title=fleet.summary,
        status=make_status_values(choose_status(fleet.findings)),
        about=f"{len(fleet.hosts):,} hosts, {fleet.engine}",
        common=[{"word": word, "value": clean_line(value, limit=200)} for word, value in fleet.common_values],
        findings=[
            {
                "status": make_status_values(STATUS_BY_SEVERITY[item.severity]),
                "code": FLEET_CODES[item.kind],
                "hosts": format_host_names(item.hosts),
                "all": list(item.hosts[:MAX_HOSTS]),
                "message": item.message,
                "fix": item.remedy,
            }
            for item in fleet.findings
        ],
        heads=list(COLUMNS),
        groups=[_make_group_values(item) for item in groups],
        more_groups=len(fleet.groups) - len(groups),
        hosts=[
            {
                "name": item.name,
                "state": format_state(item),
                "group": "" if item.group_number is None else str(item.group_number),
                "why": item.failure_reason or item.cause or "",
            }
            for item in other_hosts[:MAX_HOSTS]
        ],
        more_hosts=max(0, len(other_hosts) - MAX_HOSTS),
    )


def _make_group_values(group: HostGroup) -> dict[str, Any]:
    return {
        "number": str(group.number),
        "hosts": f"{len(group.hosts):,}",
        "like": group.hosts[0],
        "status": make_status_values(
            STATUS_BY_SEVERITY[Severity.WARNING] if group.is_unknown else STATUS_BY_STATE[group.state]
        ),
        "state": format_state(group),
        "cause": group.cause if group.state != "ok" and group.cause else "",
        "cards": group.card_description,
        "cells": [
            {"sign": format_cell(group, column), "values": _list_differences(group, areas)}
            for column, areas in COLUMNS.items()
        ],
    }


def _list_differences(group: HostGroup, areas: Sequence[str]) -> list[str]:
    """Return the first differences between a group and group 1 in these areas, as text."""
    differences = [(name, values) for (area, name), values in group.differences.items() if area in areas]
    return [
        f"{name}: {clean_line(value, limit=120)} (group 1: {clean_line(first_value, limit=120)})"
        for name, (value, first_value) in differences[:MAX_DIFFERENCES]
    ]
