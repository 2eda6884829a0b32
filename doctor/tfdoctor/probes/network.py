"""Probe the listening ports and the IP addresses of this machine, from the kernel's tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.facts.network import ListeningPorts
from tfdoctor.probes.files import load_text
from tfdoctor.probes.parsers.network import parse_ipv4_addresses, parse_ipv6_addresses, parse_listening_ports

if TYPE_CHECKING:
    from tfdoctor.system import System

__all__ = ["probe_listening"]

MAX_TABLE_BYTES = 16 << 20
"""The maximum number of bytes read from a table, which is enough for a hundred thousand sockets."""


def probe_listening(system: System) -> ListeningPorts:
    """Return the listening ports and the addresses in /proc/net.

    The ports are None if there is no readable table, as on Windows and macOS.
    """
    ports: set[int] | None = None
    for name in ("tcp", "tcp6"):
        text = load_text(system, f"/proc/net/{name}", MAX_TABLE_BYTES)
        if text is not None:
            ports = (ports or set()) | parse_listening_ports(text)
    addresses = parse_ipv4_addresses(load_text(system, "/proc/net/fib_trie", MAX_TABLE_BYTES) or "")
    addresses |= parse_ipv6_addresses(load_text(system, "/proc/net/if_inet6", MAX_TABLE_BYTES) or "")
    return ListeningPorts(frozenset(ports) if ports is not None else None, frozenset(addresses))
