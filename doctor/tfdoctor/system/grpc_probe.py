"""Test connections to other machines as TensorFlow's gRPC opens them, up to the start of HTTP/2.

A test opens a TCP connection and sends the HTTP/2 preface with an empty SETTINGS frame (RFC 9113, 3.4). A gRPC
server responds with a SETTINGS frame, and the test closes the connection. Other HTTP/2 servers without TLS respond
in the same way. The grpcio package is a heavy dependency and could not detect more.
"""

from __future__ import annotations

import errno
import socket
import threading
import time
from typing import TYPE_CHECKING

from tfdoctor.core.facts.network import ConnectionResult

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["probe_server", "probe_servers"]

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""The HTTP/2 client preface and a SETTINGS frame of length 0."""
FRAME_HEADER_BYTES = 9
"""Size of a frame header: three bytes for the length, one for the type, one for flags, four for the stream."""
SETTINGS_FRAME_TYPE = 4
"""The frame type of SETTINGS."""
MAX_CONNECTIONS = 64
"""Limit for the connections that are tested at the same time."""
MAX_ADDRESSES = 8
"""Limit for the addresses of a host name that are tried."""


def probe_server(host: str, port: int, seconds: float) -> ConnectionResult:
    """Test whether a gRPC server responds within `seconds`, which do not include the name resolution.

    Errors become part of the result and are not raised.
    """
    try:
        address_infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        is_temporary = error.errno == socket.EAI_AGAIN
        return ConnectionResult(
            False, "no-such-name", "the name server does not answer" if is_temporary else ""
        )
    except (UnicodeError, OSError, ValueError):
        return ConnectionResult(False, "no-such-name")
    deadline = time.monotonic() + seconds
    results = []
    addresses = list(dict.fromkeys((family, address) for family, _, _, _, address in address_infos))[
        :MAX_ADDRESSES
    ]
    for family, address in addresses:
        remaining_s = deadline - time.monotonic()
        if remaining_s <= 0:
            break
        results.append(_connect(family, address, remaining_s))
        if results[-1].ok:
            return results[-1]
    # If all addresses failed, report the first of these failures that occurred.
    for reason in ("not-tensorflow", "refused", "timeout"):
        for result in results:
            if result.failure == reason:
                return result
    return results[0] if results else ConnectionResult(None, detail="its name has no address")


def _connect(family: int, address: object, seconds: float) -> ConnectionResult:
    """Connect to one address, and test the server."""
    deadline = time.monotonic() + seconds
    try:
        with socket.socket(family, socket.SOCK_STREAM) as connection:
            connection.settimeout(seconds)
            try:
                connection.connect(address)  # type: ignore[arg-type] # from getaddrinfo
            except OSError as error:
                return _make_failure(error)
            return _exchange_preface(connection, deadline)
    except OSError as error:
        return ConnectionResult(None, detail=error.strerror or "no connection could be made from here")


def _make_failure(error: OSError) -> ConnectionResult:
    """Return the result that corresponds to an error of `socket.connect`."""
    if isinstance(error, TimeoutError):
        return ConnectionResult(False, "timeout")
    if error.errno == errno.ECONNREFUSED:
        return ConnectionResult(False, "refused")
    if error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ETIMEDOUT):
        return ConnectionResult(False, "timeout", (error.strerror or "").lower())
    if error.errno == errno.ECONNRESET:
        return ConnectionResult(False, "refused", "the connection is reset")
    return ConnectionResult(None, detail=error.strerror or "no connection could be made from here")


def _exchange_preface(connection: socket.socket, deadline: float) -> ConnectionResult:
    """Send the HTTP/2 preface, and classify the response."""
    received = b""
    try:
        connection.sendall(PREFACE)
        while len(received) < FRAME_HEADER_BYTES:
            connection.settimeout(max(0.01, deadline - time.monotonic()))
            data = connection.recv(FRAME_HEADER_BYTES - len(received))
            if not data:
                break
            received += data
    except TimeoutError:
        if not received:
            return ConnectionResult(False, "timeout", "it takes the connection and says nothing")
    except OSError:
        if not received:
            return ConnectionResult(False, "not-tensorflow", "it resets the connection")
    # A gRPC server sends a SETTINGS frame of stream 0.
    if (
        len(received) == FRAME_HEADER_BYTES
        and received[3] == SETTINGS_FRAME_TYPE
        and received[5:] == bytes(4)
    ):
        return ConnectionResult(True)
    if not received:
        return ConnectionResult(False, "not-tensorflow", "it closes the connection")
    detail = "it answers as an HTTP/1 server" if received.startswith(b"HTTP/") else ""
    detail = "it answers as an SSH server" if received.startswith(b"SSH-") else detail
    return ConnectionResult(False, "not-tensorflow", detail)


def probe_servers(
    addresses: Sequence[tuple[str, int]], *, seconds: float, total_seconds: float
) -> list[ConnectionResult]:
    """Return the result of `probe_server` for each address. The addresses are tested in parallel.

    `seconds` is the time limit for one address, and `total_seconds` is the limit for all. The result of an address whose
    test has not ended at the limit is unknown.
    """
    results: list[ConnectionResult | None] = [None] * len(addresses)
    indexes = iter(range(len(addresses)))
    index_lock = threading.Lock()
    stopped = threading.Event()
    deadline = time.monotonic() + total_seconds

    def test_addresses() -> None:
        while not stopped.is_set():
            with index_lock:
                index = next(indexes, None)
            if index is None:
                return
            host, port = addresses[index]
            limit_s = min(seconds, deadline - time.monotonic())
            if limit_s <= 0:
                return
            result = probe_server(host, port, limit_s)
            if result.failure != "timeout" or limit_s >= seconds * 0.9:  # a shortened attempt proves nothing
                results[index] = result

    threads = [
        threading.Thread(target=test_addresses, name="reaching", daemon=True)
        for _ in range(min(MAX_CONNECTIONS, len(addresses)))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline + 0.2 - time.monotonic()))
    stopped.set()
    return [
        result if result is not None else ConnectionResult(None, detail="there was no time to ask")
        for result in results
    ]
