"""Compare the `check --json` results of many hosts: which hosts are equal, and how the others differ.

`parse_result` parses one host's result, `GatheredResults` stores all of them compactly, and `evaluate_fleet` compares them.
`nodes` runs the check on the hosts.
"""

from __future__ import annotations

from tfdoctor.cli.extensions import Extension

__all__ = ["EXTENSION"]

EXTENSION = Extension(
    summary="Compare hosts, and find those that differ.",
    subcommands={
        "run": (
            "Run `check` on many hosts, and compare them.",
            "tfdoctor.extensions.fleet.command:run_fleet",
        ),
        "report": (
            "Compare results that are already there.",
            "tfdoctor.extensions.fleet.command:report_fleet",
        ),
    },
    example="tfdoctor fleet report DIR",
    pages="tfdoctor.extensions.fleet.codes:FLEET_PAGES",
)
