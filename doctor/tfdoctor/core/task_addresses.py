"""Parse the address and the index of a task of a cluster by the rules of TensorFlow's gRPC server and of gRPC's resolver.

The rules are in tensorflow/core/distributed_runtime/rpc/grpc_channel.cc (ValidateHostPortPair) and in gRPC's
doc/naming.md.
"""

from __future__ import annotations

import ipaddress
import math
import re
from typing import Any

from tfdoctor.core.records import dataclass

__all__ = ["Address", "is_local_host", "normalize_host", "parse_address", "parse_index"]

MAX_ADDRESS_CHARS = 1000
"""The maximum number of characters in an address. A host name has at most 253."""
_LOCAL_HOST_NAMES = frozenset(
    {"localhost", "localhost.localdomain", "localhost4", "localhost6", "ip6-localhost", "ip6-loopback"}
)


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a task."""

    text: str
    """The address as it appears in the specification."""
    host: str = ""
    """The host in lower case, without brackets and a final dot. Empty if unknown."""
    port: int | None = None
    """The port. None if it is missing or invalid."""
    fault: str = ""
    """The defect as a clause, such as "it has no port". Empty if the address is valid."""


def parse_address(text: str) -> Address:
    """Parse HOST:PORT or [IPv6]:PORT. For anything else, return an address with a `fault`."""
    if len(text) > MAX_ADDRESS_CHARS:
        return Address(text, fault="it is far longer than a name can be")
    if not text:
        return Address(text, fault="it is empty")
    if text.startswith("/bns/"):  # Google's internal names, which TensorFlow accepts unchanged
        return Address(text, host=text)
    scheme_match = re.match(r"([A-Za-z][A-Za-z0-9+.-]{0,30}):/{1,3}", text)
    if scheme_match:
        return Address(text, fault=f"it begins with {scheme_match[0]}, and TensorFlow takes HOST:PORT alone")
    if "/" in text:
        return Address(text, fault="it has a slash, and TensorFlow takes HOST:PORT alone")
    if text != text.strip():
        return Address(text, fault="it begins or ends with white space")
    if re.search(r"[\s,;@'\"\\?#%<>{}|^`]|[\x00-\x1f\x7f]", text.partition("]")[2] or text):
        return Address(text, fault="it has a character that no address has")
    return _parse_bracketed_address(text) if text.startswith("[") else _parse_named_address(text)


def _parse_bracketed_address(text: str) -> Address:
    """Parse a text that begins with a bracket: [IPv6]:PORT."""
    ipv6_text, closing_bracket, port_part = text[1:].partition("]")
    if not closing_bracket:
        return Address(text, fault="the bracket is not closed")
    try:
        host = str(ipaddress.IPv6Address(ipv6_text))
    except ValueError:
        return Address(text, fault=f"{ipv6_text} is no IPv6 address")
    if not port_part:
        return Address(text, host, fault="it has no port")
    if not port_part.startswith(":"):
        return Address(text, host, fault="a colon and the port must follow the bracket")
    return _add_port(text, host, port_part[1:])


def _parse_named_address(text: str) -> Address:
    """Parse a text that does not begin with a bracket: HOST:PORT."""
    host, colon, port = text.rpartition(":")
    if ":" in host:  # an IPv6 address, with or without a port, or something else
        try:
            ipaddress.IPv6Address(text)
        except ValueError:
            try:
                ipaddress.IPv6Address(host)
            except ValueError:
                return Address(text, fault="it has more than one colon")
        return Address(text, fault="an IPv6 address must stand in brackets: [ADDRESS]:PORT")
    if not colon:
        if text.isascii() and text.isdigit():
            return Address(text, fault="it is a number without a host")
        missing_colon_match = re.fullmatch(r"(localhost)(\d{2,5})", text, re.IGNORECASE)
        if missing_colon_match:
            return Address(
                text,
                fault=f"the colon between {missing_colon_match[1]} and {missing_colon_match[2]} is missing, so it has no port",
            )
        return Address(text, _normalize_name(text), fault="it has no port")
    if not host:
        return Address(text, fault="it has no host before the colon")
    if fault := _find_host_fault(host):
        return Address(text, fault=fault)
    return _add_port(text, _normalize_name(host), port)


def _add_port(text: str, host: str, port_text: str) -> Address:
    """Return the address with this port, or with a fault if the port is invalid."""
    if not port_text:
        return Address(text, host, fault="no port follows the colon")
    if not (port_text.isascii() and port_text.isdigit()):
        return Address(text, host, fault=f"{port_text} is no number of a port")
    if len(port_text) > 8 or not 0 <= int(port_text) <= 65535:
        return Address(text, host, fault=f"there is no port {port_text}: the last one is 65535")
    if int(port_text) == 0:
        return Address(text, host, 0, fault="port 0 means any free port, which the other tasks cannot know")
    return Address(text, host, int(port_text))


def _find_host_fault(host: str) -> str:
    """Return the reason why a host name is invalid, as a clause; empty if it is valid.

    Underscores are valid, because gRPC's resolver accepts them.
    """
    if re.fullmatch(r"[\d.]+", host):
        try:
            ipaddress.IPv4Address(host)
        except ValueError:
            return f"{host} is no IPv4 address"
    labels = host.removesuffix(".").split(".")
    if not all(labels):
        return "a part of its name is empty"
    if len(host) > 254 or any(len(label) > 63 for label in labels):
        return "its name is longer than names can be"
    return ""


def _normalize_name(host: str) -> str:
    return host.lower().removesuffix(".")


def is_local_host(host: str) -> bool:
    """Return whether the host means the local machine on every machine, such as localhost or 0.0.0.0."""
    if host in _LOCAL_HOST_NAMES or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    ipv4_address = getattr(address, "ipv4_mapped", None)
    address = ipv4_address if ipv4_address is not None else address
    return address.is_loopback or address.is_unspecified


def normalize_host(host: str) -> str:
    """Return the host, or "localhost" for every host that means the local machine.

    All of these reach the same server, because TensorFlow's server listens on all addresses of its machine.
    """
    return "localhost" if is_local_host(host) else host


def parse_index(value: Any) -> int | None:
    """Convert an index with int(), as TensorFlow does. Return None if that fails or it is far too large."""
    if isinstance(value, (bool, int)):
        return int(value) if abs(value) < 1 << 63 else None
    if isinstance(value, float):
        return int(value) if math.isfinite(value) and abs(value) < 1 << 63 else None
    if isinstance(value, str) and len(value) < 30:
        try:
            return int(value)
        except ValueError:
            return None
    return None
