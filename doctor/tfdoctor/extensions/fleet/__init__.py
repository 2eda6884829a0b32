"""Compare the `check --json` results of many hosts: which hosts are equal, and how the others differ.

`parse_result` parses one host's result, `GatheredResults` stores all of them compactly, and `evaluate_fleet` compares them.
`nodes` runs the check on the hosts.
"""

from __future__ import annotations

from tfdoctor.cli.extensions import Extension

__all__ = ["EXTENSION"]

EXTENSION = Extension(
    summary="Which host of a cluster is not like the others?",
    command="tfdoctor.extensions.fleet.command:fleet",
    example="tfdoctor fleet report DIR",
    pages="tfdoctor.extensions.fleet.codes:FLEET_PAGES",
)
