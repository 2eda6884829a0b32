"""A probe of the listening ports and the addresses of this machine, from the kernel's tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.facts.network import Listening
from tfdoctor.parse.network import parse_ipv4_addresses, parse_ipv6_addresses, parse_listening_ports

if TYPE_CHECKING:
    from tfdoctor.system import System

__all__ = ["probe_listening"]

MAX_TABLE_BYTES = 16 << 20
"""The largest number of bytes read of a table, enough for a hundred thousand sockets."""


def probe_listening(system: System) -> Listening:
    """Return the ports and addresses in /proc/net.

    The ports are None if it does not exist (Windows, macOS).
    """
    ports: set[int] | None = None
    for name in ("tcp", "tcp6"):
        text = _load_text(system, f"/proc/net/{name}")
        if text is not None:
            ports = (ports or set()) | parse_listening_ports(text)
    addresses = parse_ipv4_addresses(_load_text(system, "/proc/net/fib_trie") or "")
    addresses |= parse_ipv6_addresses(_load_text(system, "/proc/net/if_inet6") or "")
    return Listening(frozenset(ports) if ports is not None else None, frozenset(addresses))


def _load_text(system: System, path: str) -> str | None:
    try:
        return system.read_text(path, limit=MAX_TABLE_BYTES)
    except OSError:
        return None
