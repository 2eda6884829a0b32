"""The facts about the network: listening ports, proxies, and results of connections."""

from __future__ import annotations

from tfdoctor.records import dataclass

__all__ = ["Listening", "Proxy", "Reached"]


@dataclass(frozen=True, slots=True)
class Listening:
    """The listening ports and the addresses of this machine, or of the container that tfdoctor runs in."""

    ports: frozenset[int] | None
    """TCP ports at which something listens; None if that is not known."""
    addresses: frozenset[str]
    """This machine's own addresses as `ipaddress` formats them; empty if not known."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """The proxy that gRPC, and so TensorFlow's distributed servers, connects through."""

    variable: str
    """The environment variable that names it."""
    without: tuple[str, ...]
    """Hosts that are connected to directly, as written: ends of names, addresses, networks."""
    listed_in: str = "no_proxy"
    """The variable that lists those hosts."""


@dataclass(frozen=True, slots=True)
class Reached:
    """The result of connecting to one address."""

    ok: bool | None
    """Whether it succeeded; None if it could not be tried."""
    why: str | None = None
    """"refused", "timeout", "no-such-name", "not-tensorflow"."""
    detail: str = ""
    """The observation as a clause for a message."""
