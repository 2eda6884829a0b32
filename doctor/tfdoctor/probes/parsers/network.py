"""Parse the kernel's tables in /proc/net: tcp, tcp6, fib_trie and if_inet6 (see proc(5))."""

from __future__ import annotations

import ipaddress
import re

__all__ = ["parse_ipv4_addresses", "parse_ipv6_addresses", "parse_listening_ports"]

_LISTEN = "0A"  # TCP_LISTEN in hexadecimal


def parse_listening_ports(text: str) -> set[int]:
    """Return the ports in state LISTEN in /proc/net/tcp or tcp6."""
    ports = set()
    for line in text.splitlines():
        fields = line.split(maxsplit=4)
        if len(fields) > 4 and fields[3] == _LISTEN:
            port = fields[1].rpartition(":")[2]
            if re.fullmatch(r"[0-9A-Fa-f]{4}", port):
                ports.add(int(port, 16))
    return ports


def parse_ipv4_addresses(text: str) -> set[str]:
    """Return the IPv4 addresses of this machine. /proc/net/fib_trie marks them with "/32 host LOCAL"."""
    addresses = set()
    for address in re.findall(r"\|--\s{1,4}([\d.]{7,15})\n\s{1,200}/32 host LOCAL", text):
        try:
            addresses.add(str(ipaddress.IPv4Address(address)))
        except ValueError:
            continue
    return addresses


def parse_ipv6_addresses(text: str) -> set[str]:
    """Return the IPv6 addresses of this machine, from /proc/net/if_inet6."""
    lines = (line.split(maxsplit=1)[:1] for line in text.splitlines())
    return {
        str(ipaddress.IPv6Address(int(fields[0], 16)))
        for fields in lines
        if fields and re.fullmatch(r"[0-9A-Fa-f]{32}", fields[0])
    }
