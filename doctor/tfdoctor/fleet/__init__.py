"""Compare the `check --json` results of many hosts: which hosts are equal, and how the others differ.

`parse_result` parses one host's result, `GatheredResults` stores all of them compactly, and `evaluate_fleet` compares them.
`nodes` runs the check on the hosts.
"""

from __future__ import annotations

from tfdoctor.fleet.aggregation import GatheredResults
from tfdoctor.fleet.analysis import evaluate_fleet, format_host_names
from tfdoctor.fleet.models import Fleet, FleetFinding, FleetHost, HostGroup, HostResult
from tfdoctor.fleet.peers import parse_peers
from tfdoctor.fleet.results import MAX_ANSWER_BYTES, UnusableResultError, parse_result

__all__ = [
    "MAX_ANSWER_BYTES",
    "Fleet",
    "FleetFinding",
    "FleetHost",
    "GatheredResults",
    "HostGroup",
    "HostResult",
    "UnusableResultError",
    "evaluate_fleet",
    "format_host_names",
    "parse_peers",
    "parse_result",
]
