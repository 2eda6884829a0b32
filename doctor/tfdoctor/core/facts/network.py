"""Dataclasses for the facts about the network: listening ports, proxies and connections."""

from __future__ import annotations

from tfdoctor.core.records import dataclass

__all__ = ["ConnectionResult", "ListeningPorts", "Proxy"]


@dataclass(frozen=True, slots=True)
class ListeningPorts:
    """The listening ports and the addresses of this machine, or of the container that tfdoctor runs in."""

    ports: frozenset[int] | None
    """The TCP ports on which a program listens; None if they are not known."""
    addresses: frozenset[str]
    """The addresses of this machine, as `ipaddress` formats them; empty if they are not known."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """The proxy through which gRPC, and therefore TensorFlow's distributed servers, connect."""

    variable: str
    """The environment variable that names the proxy."""
    excluded_hosts: tuple[str, ...]
    """The entries for hosts that need no proxy: ends of host names, addresses and networks."""
    listed_in: str = "no_proxy"
    """The variable that lists those hosts."""


@dataclass(frozen=True, slots=True)
class ConnectionResult:
    """The result of connecting to an address."""

    ok: bool | None
    """Whether the connection succeeded; None if it could not be tried."""
    failure: str | None = None
    """"refused", "timeout", "no-such-name" or "not-tensorflow"; None for other failures, or if it succeeded."""
    detail: str = ""
    """Details, as a clause for a message."""
