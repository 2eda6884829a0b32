"""Network queries for the `tfdoctor cluster` command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.facts.network import Proxy
from tfdoctor.probes.network import probe_listening
from tfdoctor.system.grpc_probe import probe_servers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.core.facts.network import ConnectionResult, ListeningPorts
    from tfdoctor.system import System

__all__ = ["connect_to_tasks", "find_proxy", "read_listening_ports"]

TASK_TIMEOUT_S = 5.0
"""The time limit in seconds for the connection to one task."""
PROXY_VARIABLES = ("grpc_proxy", "https_proxy", "http_proxy")
"""The variables from which gRPC takes its proxy, in order of precedence (gRPC: doc/environment_variables.md)."""


def read_listening_ports(system: System) -> ListeningPorts:
    """Return the listening ports and the addresses of this machine."""
    return probe_listening(system)


def connect_to_tasks(addresses: Sequence[tuple[str, int]], timeout: float) -> list[ConnectionResult]:
    """Connect to the tasks at these (host, port) addresses, and return whether each is a gRPC server.

    `timeout` is the time limit in seconds for all connections together.
    """
    return probe_servers(addresses, seconds=min(TASK_TIMEOUT_S, timeout), total_seconds=timeout)


def find_proxy(system: System) -> Proxy | None:
    """Return the proxy that gRPC uses, or None if no variable names one.

    Only lower-case names are read, because gRPC ignores the others.
    """
    name = next((name for name in PROXY_VARIABLES if system.env.get(name)), "")
    if not name:
        return None
    exceptions_variable = "no_grpc_proxy" if system.env.get("no_grpc_proxy") else "no_proxy"
    hosts = (host.strip() for host in system.env.get(exceptions_variable, "")[:100_000].split(","))
    return Proxy(name, tuple(host for host in hosts if host), exceptions_variable)
