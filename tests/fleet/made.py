"""Made-up results of a fleet, each from a recorded machine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from recorded import HOSTS, report
from tfdoctor.fleet import Gathered, read_result
from tfdoctor.render.report import report_json

if TYPE_CHECKING:
    from collections.abc import Mapping

OWN = "5b6a-4788"
"""In every card's identifier of the recorded machines."""


def answer(host: str, number: int = 0, **changed: Any) -> dict[str, Any]:
    """What `check --json` prints on a recorded machine, whose cards have identifiers of their own."""
    text = json.dumps(report_json(report(HOSTS / host))).replace(OWN, f"5b6a-{number:04x}")
    return {**json.loads(text), **changed}


def with_value(made: dict[str, Any], area: str, name: str, value: str | None) -> dict[str, Any]:
    """The same answer with another value to compare."""
    values = [one for one in made["values"] if (one["area"], one["name"]) != (area, name)]
    return {**made, "values": [*values, {"area": area, "name": name, "value": value}]}


def gather_results(answers: Mapping[str, dict[str, Any]]) -> Gathered:
    """All of them, read as from files."""
    found = Gathered()
    for name, one in answers.items():
        found.add(name, read_result(json.dumps(one).encode()))
    return found
