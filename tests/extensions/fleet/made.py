"""Results of a made-up fleet, each from a recorded machine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from recorded import HOSTS, load_report
from tfdoctor.extensions.fleet.aggregation import GatheredResults
from tfdoctor.extensions.fleet.results import parse_result
from tfdoctor.render.report import make_report_json

if TYPE_CHECKING:
    from collections.abc import Mapping

UUID_PART = "5b6a-4788"
"""Part of the identifier of every GPU of the recorded machines."""


def answer(host: str, number: int = 0, **changes: Any) -> dict[str, Any]:
    """Return the output of `check --json` on a recorded machine, with GPU identifiers made unique by `number`."""
    text = json.dumps(make_report_json(load_report(HOSTS / host))).replace(UUID_PART, f"5b6a-{number:04x}")
    return {**json.loads(text), **changes}


def with_value(original: dict[str, Any], area: str, name: str, value: str | None) -> dict[str, Any]:
    """Return the same answer with a different value to compare."""
    values = [entry for entry in original["values"] if (entry["area"], entry["name"]) != (area, name)]
    return {**original, "values": [*values, {"area": area, "name": name, "value": value}]}


def gather_results(answers: Mapping[str, dict[str, Any]]) -> GatheredResults:
    """Return all answers, parsed as if read from files."""
    gathered = GatheredResults()
    for name, result in answers.items():
        gathered.add(name, parse_result(json.dumps(result).encode()))
    return gathered
