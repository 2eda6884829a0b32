"""What listens here, and who answers: what `cluster` asks of the network. Nothing else connects anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.facts.network import Proxy
from tfdoctor.probes.network import probe_listening
from tfdoctor.system.grpc_probe import reach_all

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.facts.network import Listening, Reached
    from tfdoctor.system import System

__all__ = ["connect", "find_proxy", "read_listening"]

TASK_TIMEOUT_S = 5.0
"""Seconds for one task."""
PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
"""What gRPC reads, in its order (gRPC: doc/environment_variables.md)."""


def read_listening(system: System) -> Listening:
    """Return the ports and addresses of this machine."""
    return probe_listening(system)


def connect(places: Sequence[tuple[str, int]], total: float) -> list[Reached]:
    """Return who answers as gRPC does, within `total` seconds."""
    return reach_all(places, seconds=min(TASK_TIMEOUT_S, total), total=total)


def find_proxy(system: System) -> Proxy | None:
    """Return the proxy that gRPC takes; None if no variable names one. gRPC does not read upper case."""
    name = next((name for name in PROXIES if system.env.get(name)), "")
    if not name:
        return None
    listed = "no_grpc_proxy" if system.env.get("no_grpc_proxy") else "no_proxy"
    hosts = (host.strip() for host in system.env.get(listed, "")[:100_000].split(","))
    return Proxy(name, tuple(host for host in hosts if host), listed)
