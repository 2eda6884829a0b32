"""What listens on this machine, and who answered from it."""

from __future__ import annotations

from tfdoctor.records import dataclass

__all__ = ["Listening", "Proxy", "Reached"]


@dataclass(frozen=True, slots=True)
class Listening:
    """Of this machine, or of the container that this runs in."""

    ports: frozenset[int] | None
    """TCP ports at which something listens; None: could not be known."""
    addresses: frozenset[str]
    """This machine's own addresses, as `ipaddress` writes them; empty: not known."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """The proxy through which gRPC connects, TensorFlow's servers among them."""

    variable: str
    """Which variable names it."""
    without: tuple[str, ...]
    """Hosts that are connected to without it, as they are written: ends of names, addresses, networks."""
    listed_in: str = "no_proxy"
    """The variable that lists them."""


@dataclass(frozen=True, slots=True)
class Reached:
    """What came of connecting to one address."""

    ok: bool | None
    """None: it could not be tried."""
    why: str | None = None
    """"refused", "timeout", "no-such-name", "not-tensorflow"."""
    detail: str = ""
    """What was seen, as half a sentence."""
