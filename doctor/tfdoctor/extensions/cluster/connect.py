"""Parse the command that `fleet run --connect` runs on hosts, some of which have no Typer."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfdoctor.cli.fast_parser import VALUE_OPTIONS
from tfdoctor.cli.options import FailOn

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["CONNECT_COMMAND", "run_connect"]

CONNECT_COMMAND = ("cluster", "--connect", "--json", "--fail-on", "never")
"""The command, which `--timeout SECONDS --tf-config JSON` follows."""


def run_connect(words: Sequence[str]) -> int | None:
    """Run the command and return its exit status. Return None for any other command line."""
    if len(words) != len(CONNECT_COMMAND) + 4:
        return None
    *command, timeout_option, timeout, config_option, tf_config = words
    if (*command, timeout_option, config_option) != (*CONNECT_COMMAND, "--timeout", "--tf-config"):
        return None
    _, timeout_pattern, _ = VALUE_OPTIONS["--timeout"]
    if re.fullmatch(timeout_pattern, timeout) is None or not tf_config.startswith("{"):
        return None
    from tfdoctor.extensions.cluster.command import cluster

    return cluster(
        connect=True, as_json=True, fail_on=FailOn.never, timeout=float(timeout), tf_config=tf_config
    )
