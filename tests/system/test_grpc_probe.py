"""Connections to gRPC servers, tested with servers of this process."""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

from tfdoctor.core.facts.network import ConnectionResult
from tfdoctor.system import grpc_probe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SETTINGS = bytes((0, 0, 6, 4, 0, 0, 0, 0, 0)) + b"\0" * 6


@pytest.fixture
def serve() -> Iterator[Callable[..., int]]:
    """Return a function that starts a server with this response, and returns its port."""
    servers: list[socket.socket] = []

    def start(response: bytes, *, closes: bool = True) -> int:
        server = socket.create_server(("127.0.0.1", 0))
        servers.append(server)

        def answer() -> None:
            with contextlib.suppress(OSError):  # the client closes the connection when it has seen enough
                connection, _ = server.accept()
                with connection:
                    connection.recv(len(grpc_probe.PREFACE))
                    for byte in response:  # the header can arrive in pieces
                        connection.sendall(bytes([byte]))
                    if not closes:
                        time.sleep(1)

        threading.Thread(target=answer, daemon=True).start()
        return int(server.getsockname()[1])

    yield start
    for server in servers:
        server.close()


@pytest.mark.parametrize(
    ("response", "closes", "expected"),
    [
        (SETTINGS, True, ConnectionResult(True)),
        (SETTINGS, False, ConnectionResult(True)),
        (SETTINGS[:8], True, ConnectionResult(False, "not-tensorflow")),
        (SETTINGS[:3] + b"\1" + SETTINGS[4:], True, ConnectionResult(False, "not-tensorflow")),
        (SETTINGS[:8] + b"\1", True, ConnectionResult(False, "not-tensorflow")),
        (b"", True, ConnectionResult(False, "not-tensorflow", "it closes the connection")),
        (b"", False, ConnectionResult(False, "timeout", "it takes the connection and says nothing")),
        (b"SSH", False, ConnectionResult(False, "not-tensorflow")),
        (b"HTTP/1.1 400", True, ConnectionResult(False, "not-tensorflow", "it answers as an HTTP/1 server")),
        (b"SSH-2.0-Open", True, ConnectionResult(False, "not-tensorflow", "it answers as an SSH server")),
    ],
)
def test_response_is_classified(
    serve: Callable[..., int], response: bytes, closes: bool, expected: ConnectionResult
) -> None:
    assert grpc_probe.probe_server("127.0.0.1", serve(response, closes=closes), 0.3) == expected


def make_error(number: int) -> OSError:
    return OSError(number, "Some Reason")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (TimeoutError(), ConnectionResult(False, "timeout")),
        (make_error(errno.ECONNREFUSED), ConnectionResult(False, "refused")),
        (make_error(errno.EHOSTUNREACH), ConnectionResult(False, "timeout", "some reason")),
        (make_error(errno.ENETUNREACH), ConnectionResult(False, "timeout", "some reason")),
        (make_error(errno.EHOSTDOWN), ConnectionResult(False, "timeout", "some reason")),
        (make_error(errno.ECONNRESET), ConnectionResult(False, "refused", "the connection is reset")),
        (make_error(errno.EACCES), ConnectionResult(None, detail="Some Reason")),
        (OSError("bare"), ConnectionResult(None, detail="no connection could be made from here")),
    ],
)
def test_connection_error_is_classified(
    monkeypatch: pytest.MonkeyPatch, error: OSError, expected: ConnectionResult
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(grpc_probe.socket.socket, "connect", fail)
    assert grpc_probe._connect(socket.AF_INET, ("127.0.0.1", 1), 0.1) == expected


def test_socket_that_cannot_be_created_is_unknown() -> None:
    result = grpc_probe._connect(-5, ("127.0.0.1", 1), 0.1)
    assert result.ok is None
    assert result.detail


@pytest.mark.parametrize(
    ("error", "detail"),
    [
        (socket.gaierror(socket.EAI_AGAIN, "x"), "the name server does not answer"),
        (socket.gaierror(socket.EAI_NONAME, "x"), ""),
        (UnicodeError(), ""),
        (OverflowError(), None),
        (OSError(), ""),
    ],
)
def test_unresolved_name(monkeypatch: pytest.MonkeyPatch, error: Exception, detail: str | None) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    if detail is None:
        with pytest.raises(OverflowError):
            grpc_probe.probe_server("name", 1, 1)
    else:
        assert grpc_probe.probe_server("name", 1, 1) == ConnectionResult(False, "no-such-name", detail)


def make_addresses(*names: str) -> list[tuple[int, int, int, str, tuple[str, int]]]:
    return [(socket.AF_INET, 1, 6, "", (name, 1)) for name in names]


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ({"a": "timeout", "b": "ok", "c": "refused"}, "ok"),
        ({"a": "timeout", "b": "refused"}, "refused"),
        ({"a": "refused", "b": "not-tensorflow"}, "not-tensorflow"),
        ({"a": None, "b": "timeout"}, "timeout"),
        ({"a": None, "b": None}, None),
    ],
)
def test_best_result_of_all_addresses_is_returned(
    monkeypatch: pytest.MonkeyPatch, results: dict[str, str | None], expected: str | None
) -> None:
    tried: list[str] = []

    def connect(_: int, address: tuple[str, int], seconds: float) -> ConnectionResult:
        assert 0 < seconds <= 5
        tried.append(address[0])
        failure = results[address[0]]
        return ConnectionResult({"ok": True, None: None}.get(failure, False), failure)

    addresses = make_addresses(*results, *results)  # a name can be resolved twice
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: addresses)
    monkeypatch.setattr(grpc_probe, "_connect", connect)
    assert grpc_probe.probe_server("name", 1, 5).failure == expected
    assert tried == (["a", "b"] if expected == "ok" else list(results))


def test_number_and_time_of_attempts_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[object] = []

    def connect(_: int, address: object, __: float) -> ConnectionResult:
        tried.append(address)
        return ConnectionResult(False, "timeout")

    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: make_addresses(*map(str, range(20))))
    monkeypatch.setattr(grpc_probe, "_connect", connect)
    assert not grpc_probe.probe_server("name", 1, 5).ok
    assert len(tried) == grpc_probe.MAX_ADDRESSES
    result = grpc_probe.probe_server("name", 1, 0)
    assert (result.ok, result.detail) == (None, "its name has no address")
    assert len(tried) == grpc_probe.MAX_ADDRESSES


def test_servers_are_tested_in_parallel(monkeypatch: pytest.MonkeyPatch) -> None:
    def probe(host: str, port: int, seconds: float) -> ConnectionResult:
        time.sleep(min(seconds, 5) if host == "slow" else 0.05)
        return ConnectionResult(False, "timeout", str(port)) if host == "slow" else ConnectionResult(True)

    monkeypatch.setattr(grpc_probe, "probe_server", probe)
    started = time.monotonic()
    addresses = [("fast", number) for number in range(40)]
    assert all(result.ok for result in grpc_probe.probe_servers(addresses, seconds=2, total_seconds=3))
    assert time.monotonic() - started < 1.5
    whole, shortened = (
        grpc_probe.probe_servers([("slow", 1)], seconds=seconds, total_seconds=0.3)[0] for seconds in (0.2, 3)
    )
    assert whole == ConnectionResult(False, "timeout", "1")
    unknown = ConnectionResult(None, detail="there was no time to ask")
    assert shortened == unknown
    assert grpc_probe.probe_servers([("fast", 1)], seconds=1, total_seconds=0) == [unknown]
    assert grpc_probe.probe_servers([], seconds=1, total_seconds=1) == []
