"""Tests of connecting to real local sockets, and of parsing the kernel's network tables."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

from tfdoctor.core.facts.network import ConnectionResult, ListeningPorts
from tfdoctor.probes.network import probe_listening
from tfdoctor.probes.parsers.network import parse_ipv4_addresses, parse_ipv6_addresses, parse_listening_ports
from tfdoctor.system import LiveSystem
from tfdoctor.system.grpc_probe import PREFACE, probe_server, probe_servers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SETTINGS = bytes((0, 0, 6, 4, 0, 0, 0, 0, 0)) + bytes(6)


@contextlib.contextmanager
def run_server(answer: bytes | None, received: list[bytes] | None = None) -> Iterator[int]:
    """Yield the port of a server that sends `answer` to each client and closes; with None it sends nothing and waits.

    The received data is appended to `heard`.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stop = threading.Event()

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        if answer is None:
                            stop.wait(5)
                            continue
                        data = connection.recv(1000)
                        if received is not None:
                            received.append(data)
                        connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            stop.set()
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            thread.join(5)


def test_grpc_server_is_reached_with_the_preface() -> None:
    received: list[bytes] = []
    with run_server(SETTINGS, received) as port:
        assert probe_server("127.0.0.1", port, 2).ok is True
    assert received == [PREFACE]


@pytest.mark.parametrize(
    ("answer", "why", "detail"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "not-tensorflow", "HTTP/1"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "not-tensorflow", "SSH"),
        (b"", "not-tensorflow", "closes"),
        (b"\0\0", "not-tensorflow", ""),
        (bytes((0, 0, 0, 7, 0, 0, 0, 0, 0)), "not-tensorflow", ""),
        (None, "timeout", "says nothing"),
    ],
)
def test_other_servers_are_not_tensorflow(answer: bytes | None, why: str, detail: str) -> None:
    with run_server(answer) as port:
        result = probe_server("127.0.0.1", port, 0.3)
    assert (result.ok, result.failure) == (False, why)
    assert detail in result.detail


def test_closed_port_and_unknown_name() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert probe_server("127.0.0.1", port, 1) == ConnectionResult(False, "refused")
    assert probe_server("x" * 70 + ".invalid", 1, 1).failure == "no-such-name"


def test_peers_are_probed_in_parallel() -> None:
    with run_server(None) as silent, run_server(SETTINGS) as port:
        addresses = [("127.0.0.1", silent)] * 3 + [("127.0.0.1", port)]
        start = time.monotonic()
        results = probe_servers(addresses, seconds=0.4, total_seconds=0.8)
        seconds = time.monotonic() - start
    assert results[3].ok is True
    assert [result.ok for result in results[:3]] == [False] * 3
    assert seconds < 1.1, "one after the other they take 1.2 seconds"


def test_peer_without_time_left_is_unknown() -> None:
    with run_server(None) as silent:
        results = probe_servers([("127.0.0.1", silent)] * 200, seconds=0.2, total_seconds=0.3)
    assert any(result.ok is None for result in results)


TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:08AE 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12345 1 0 100 0 0 10 0
   1: 0100007F:A1B2 0100007F:08AE 01 00000000:00000000 00:00000000 00000000     0        0 12346 1 0 20 4 30 10 -1
"""
TRIE = """\
Local:
  +-- 0.0.0.0/0 3 0 5
        |-- 10.0.0.7
           /32 host LOCAL
        |-- 10.0.0.255
           /32 link BROADCAST
        |-- 127.0.0.1
           /32 host LOCAL
"""
INET6 = (
    "fe80000000000000021122fffe334455 02 40 20 80     eth0\n00000000000000000000000000000001 01 80 10 80 lo\n"
)


def test_kernel_tables_are_parsed() -> None:
    assert parse_listening_ports(TCP) == {2222}
    assert parse_ipv4_addresses(TRIE) == {"10.0.0.7", "127.0.0.1"}
    assert parse_ipv6_addresses(INET6) == {"fe80::211:22ff:fe33:4455", "::1"}
    for parse in (parse_listening_ports, parse_ipv4_addresses, parse_ipv6_addresses):
        assert not parse("a b c 0A\n\x00|-- 999.1.1.1\n /32 host LOCAL\nzz 1")


def test_listening_with_and_without_kernel_tables(tmp_path: Path) -> None:
    assert probe_listening(LiveSystem(str(tmp_path))) == ListeningPorts(None, frozenset())
    (tmp_path / "proc/net").mkdir(parents=True)
    for name, text in (("tcp", TCP), ("fib_trie", TRIE), ("if_inet6", INET6)):
        (tmp_path / "proc/net" / name).write_text(text)
    listening = probe_listening(LiveSystem(str(tmp_path)))
    assert listening.ports == {2222}
    assert "10.0.0.7" in listening.addresses
