"""Why no engine answers, and what to type: each reason is played for real."""

from __future__ import annotations

import gc
import grp
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tfdoctor.engine import Engine, EngineError, connect, connection
from tfdoctor.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="Unix sockets"),
    # Where its first question fails, the SDK leaves its connection to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    yield
    gc.collect()


class Answering:
    """A socket whose every connection is answered with the same bytes, and then closed or kept."""

    def __init__(self, path: Path, answer: bytes, *, keep: bool = False) -> None:
        self.path, self.answer, self.keep = path, answer, keep
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(path))
        self.socket.listen(8)
        self.open: list[socket.socket] = []
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        while True:
            try:
                one, _ = self.socket.accept()
            except OSError:
                return
            self.open.append(one)
            try:
                one.recv(65536)
                one.sendall(self.answer)
                if not self.keep:
                    one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self) -> None:
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.thread.join(5)
        for one in self.open:
            one.close()


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that everybody may enter; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory(prefix="tfdoctor-test-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def http(body: bytes, status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def refused(url: str) -> EngineError:
    with pytest.raises(EngineError) as caught:
        connect(url)
    assert caught.value.message.isprintable()
    return caught.value


def test_an_engine_answers(engine: Engine) -> None:
    assert engine.name in ("docker", "podman")
    assert engine.version
    assert engine.api >= (1, 24)
    assert "runc" in engine.runtimes or engine.name == "podman"


def test_docker_host_is_followed(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", engine.url)
    other = connect()
    assert other.url == engine.url
    other.client.close()


def test_there_is_no_socket(place: Path) -> None:
    failure = refused(f"unix://{place}/none.sock")
    assert failure.kind == "engine-missing"
    assert str(place / "none.sock") in failure.message
    assert "systemctl start docker" in failure.hint


def test_a_socket_that_nobody_serves_any_more(place: Path) -> None:
    Answering(place / "s", b"").close()
    failure = refused(f"unix://{place}/s")
    assert failure.kind == "engine-silent"
    assert "refused" in failure.message
    assert "systemctl start docker" in failure.hint


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x00\xff\x1b[31m garbage\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        http(b"<html>hello</html>"),
        http(b"[]"),
        http(b'"text"'),
        http(b"null"),
        http(b"{}"),
        http(b'{"ApiVersion": 7}'),
        http(b'{"ApiVersion": "x.y", "Version": ["a"], "Components": "a"}'),
        http(b'{"ApiVersion": "1.41", "Version": null, "Components": [1, null], "Runtimes": 5}'),
        http(b'{"message": "no"}', "500 Internal Server Error"),
        http(b'{"message": "no"}', "404 Not Found"),
        http(b"[" * 100_000),
        b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{",
    ],
    ids=range(15),
)
def test_what_is_not_an_engine(place: Path, answer: bytes) -> None:
    one = Answering(place / "s", answer)
    try:
        failure = refused(f"unix://{place}/s")
    finally:
        one.close()
    assert failure.kind == "engine-silent"
    assert str(place / "s") in failure.message


def test_a_socket_that_hangs(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CONNECT_TIMEOUT", 1)
    one = Answering(place / "s", b"", keep=True)
    began = time.monotonic()
    try:
        failure = refused(f"unix://{place}/s")
    finally:
        one.close()
    assert time.monotonic() - began < 5
    assert failure.kind == "engine-silent"
    assert "timed out" in failure.message


@pytest.mark.parametrize("url", ["docker", "/var/run/docker.sock", "ftp://host", "unix:/a", "\x1b[31m"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(UsageError, match="is not the address of an engine") as caught:
        connect(url)
    assert "unix:///var/run/docker.sock" in caught.value.hint
    assert "\x1b" not in caught.value.message


@pytest.mark.parametrize(
    "url",
    ["tcp://", "tcp://127.0.0.1:1", "tcp://127.0.0.1:x", "http://[::1", "tcp://127.0.0.1:99999999"],
)
def test_addresses_that_lead_nowhere(url: str) -> None:
    assert refused(url).kind in ("engine-silent", "engine-missing")


# ---------------------------------------------------------------- permission

CHILD = """
import os, sys
from tfdoctor.engine import EngineError, connect
import docker.transport, grp, pwd
os.setgroups([]); os.setgid(65534); os.setuid(65534)
os.environ["USER"] = os.environ["LOGNAME"] = "somebody-else"
try:
    connect(sys.argv[1])
except EngineError as error:
    print(error.kind, error.message, error.hint, sep="\\n")
"""
as_nobody = pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="needs root to be nobody")


def told_to_nobody(url: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, url], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.splitlines()


@as_nobody
def test_the_group_of_the_socket_is_named(place: Path) -> None:
    one = Answering(place / "s", b"")
    group = next(group for group in grp.getgrall() if group.gr_gid not in (0, 65534))
    os.chown(place / "s", 0, group.gr_gid)
    (place / "s").chmod(0o660)
    try:
        kind, message, hint = told_to_nobody(f"unix://{place}/s")
    finally:
        one.close()
    assert kind == "engine-permission"
    assert str(place / "s") in message
    assert hint == (
        f"sudo usermod -aG {group.gr_name} nobody   then log in again (or for this shell: newgrp {group.gr_name})"
    )


@as_nobody
def test_no_group_helps_where_the_socket_is_closed_to_it(place: Path) -> None:
    one = Answering(place / "s", b"")
    (place / "s").chmod(0o600)
    try:
        kind, _, hint = told_to_nobody(f"unix://{place}/s")
    finally:
        one.close()
    assert kind == "engine-permission"
    assert "usermod" not in hint
    assert "rootless" in hint


@as_nobody
def test_a_real_engine_and_a_folder_that_may_not_be_entered(place: Path) -> None:
    (place / "closed").mkdir(mode=0o700)
    one = Answering(place / "closed" / "s", b"")
    try:
        kind, message, _ = told_to_nobody(f"unix://{place}/closed/s")
    finally:
        one.close()
    assert kind == "engine-permission"
    assert "you may not use" in message
