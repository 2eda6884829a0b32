"""What `fleet` says, as a page: the answer, the grid, and every host that is not as most are.

It names hosts, as no other page does: which one is sick is the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfdoctor.causes.codes import FLEET
from tfdoctor.findings import Severity, Status
from tfdoctor.fleet import join_hosts
from tfdoctor.render.finding import MARKS, SEVERITY_STATUS
from tfdoctor.render.fleet import COLUMNS, cell, state_word
from tfdoctor.render.html.document import document
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.fleet import Fleet, Group

__all__ = ["fleet_html"]

MOST_GROUPS, MOST_HOSTS = 300, 3000
"""Rows of a table; a page stays readable."""
STATUS = {"ok": Status.GOOD, "found": SEVERITY_STATUS[Severity.ERROR]}


def fleet_html(answer: Fleet) -> bytes:
    """Return the page."""
    worst = max((one.severity for one in answer.findings), default=None)
    status = SEVERITY_STATUS[worst] if worst is not None else Status.GOOD
    odd = [one for one in answer.hosts if one.group != 1]
    groups = answer.groups[:MOST_GROUPS]
    return document(
        "fleet",
        title=answer.summary,
        status=_sign(status),
        about=f"{len(answer.hosts):,} hosts, {answer.engine}",
        common=[{"word": word, "value": clean_line(value, limit=200)} for word, value in answer.common],
        findings=[
            {
                "status": _sign(SEVERITY_STATUS[one.severity]),
                "code": FLEET[one.name],
                "hosts": join_hosts(one.hosts),
                "all": list(one.hosts[:MOST_HOSTS]),
                "message": one.message,
                "fix": one.fix,
            }
            for one in answer.findings
        ],
        heads=list(COLUMNS),
        groups=[_row(one) for one in groups],
        more_groups=len(answer.groups) - len(groups),
        hosts=[
            {
                "name": one.name,
                "state": state_word(one),
                "group": "" if one.group is None else str(one.group),
                "why": one.why or one.cause or "",
            }
            for one in odd[:MOST_HOSTS]
        ],
        more_hosts=max(0, len(odd) - MOST_HOSTS),
    )


def _sign(status: Status) -> dict[str, str]:
    return {"status": status.value, "sign": MARKS[status]}


def _row(one: Group) -> dict[str, Any]:
    return {
        "number": str(one.number),
        "hosts": f"{len(one.hosts):,}",
        "like": one.hosts[0],
        "status": _sign(SEVERITY_STATUS[Severity.WARNING] if one.unknown else STATUS[one.state]),
        "state": state_word(one),
        "cause": one.cause if one.state != "ok" and one.cause else "",
        "cards": one.cards,
        "cells": [{"sign": cell(one, head), "values": _values(one, COLUMNS[head])} for head in COLUMNS],
    }


def _values(one: Group, areas: Sequence[str]) -> list[str]:
    found = [(name, pair) for (area, name), pair in one.differs.items() if area in areas]
    return [
        f"{name}: {clean_line(here, limit=120)} (group 1: {clean_line(there, limit=120)})"
        for name, (here, there) in found[:12]
    ]
