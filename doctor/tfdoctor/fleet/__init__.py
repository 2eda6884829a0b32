"""Many hosts' results of `check --json`: which of them are alike, and what the odd one has that the others have not.

`read_result` one host's bytes, `Gathered` all of them in little room, `judged` them → the answer. How they were fetched
is `nodes`'.
"""

from __future__ import annotations

from tfdoctor.fleet.aggregation import Gathered
from tfdoctor.fleet.analysis import evaluate_fleet, join_hosts
from tfdoctor.fleet.models import Fleet, FleetFinding, FleetHost, Group, Result
from tfdoctor.fleet.peers import read_peers
from tfdoctor.fleet.results import MAX_ANSWER_BYTES, UnusableError, read_result

__all__ = [
    "MAX_ANSWER_BYTES",
    "Fleet",
    "FleetFinding",
    "FleetHost",
    "Gathered",
    "Group",
    "Result",
    "UnusableError",
    "evaluate_fleet",
    "join_hosts",
    "read_peers",
    "read_result",
]
