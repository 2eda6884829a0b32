"""Tests of the errors and hints if no engine answers; each cause is reproduced for real."""

from __future__ import annotations

import gc
import grp
import json
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

from tfdoctor.core.errors import UsageError
from tfdoctor.images.engine import ContainerEngine, EngineError, connect, connection
from tfdoctor.system.contexts import hash_context_name

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="Unix sockets"),
    # If its first request fails, the SDK leaves its connection to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def _collect_garbage() -> Iterator[None]:
    yield
    gc.collect()


class FakeServer:
    """A Unix socket server that sends the same bytes to every client, then closes the connection or keeps it."""

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
                client, _ = self.socket.accept()
            except OSError:
                return
            self.open.append(client)
            try:
                client.recv(65536)
                client.sendall(self.answer)
                if not self.keep:
                    client.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self) -> None:
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.thread.join(5)
        for client in self.open:
            client.close()


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """Yield a folder that every user may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="tfdoctor-test-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def http(body: bytes, status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def get_refusal(url: str) -> EngineError:
    with pytest.raises(EngineError) as caught:
        connect(url)
    assert caught.value.message.isprintable()
    return caught.value


def test_an_engine_answers(engine: ContainerEngine) -> None:
    assert engine.name in ("docker", "podman")
    assert engine.version
    assert engine.api_version >= (1, 24)
    assert "runc" in engine.runtimes or engine.name == "podman"


def test_docker_host_is_followed(engine: ContainerEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", engine.url)
    other = connect()
    assert other.url == engine.url
    other.client.close()


def test_missing_socket_is_reported(shared_folder: Path) -> None:
    failure = get_refusal(f"unix://{shared_folder}/none.sock")
    assert failure.kind == "engine-missing"
    assert str(shared_folder / "none.sock") in failure.message
    assert "systemctl start docker" in failure.hint


def test_socket_in_a_closed_folder_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only root may enter Podman's /run/podman."""
    real_stat = os.stat

    def stat(path: str, *arguments: object, **options: object) -> os.stat_result:
        if str(path) == "/run/podman/podman.sock":
            raise PermissionError(13, "Permission denied", path)
        return real_stat(path, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "stat", stat)
    assert "unix:///run/podman/podman.sock" in connection._list_default_addresses()


def test_socket_without_a_server_is_reported(shared_folder: Path) -> None:
    FakeServer(shared_folder / "s", b"").close()
    failure = get_refusal(f"unix://{shared_folder}/s")
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
def test_server_that_is_not_an_engine_is_reported(shared_folder: Path, answer: bytes) -> None:
    server = FakeServer(shared_folder / "s", answer)
    try:
        failure = get_refusal(f"unix://{shared_folder}/s")
    finally:
        server.close()
    assert failure.kind == "engine-silent"
    assert str(shared_folder / "s") in failure.message


def test_hanging_socket_times_out(shared_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CONNECT_TIMEOUT_S", 1)
    server = FakeServer(shared_folder / "s", b"", keep=True)
    start = time.monotonic()
    try:
        failure = get_refusal(f"unix://{shared_folder}/s")
    finally:
        server.close()
    assert time.monotonic() - start < 5
    assert failure.kind == "engine-silent"
    assert "timed out" in failure.message


@pytest.mark.parametrize("url", ["docker", "/var/run/docker.sock", "ftp://host", "unix:/a", "\x1b[31m"])
def test_invalid_address_raises(url: str) -> None:
    with pytest.raises(UsageError, match="is not the address of an engine") as caught:
        connect(url)
    assert "unix:///var/run/docker.sock" in caught.value.hint
    assert "\x1b" not in caught.value.message


@pytest.mark.parametrize(
    "url",
    ["tcp://", "tcp://127.0.0.1:1", "tcp://127.0.0.1:x", "http://[::1", "tcp://127.0.0.1:99999999"],
)
def test_unreachable_address_is_reported(url: str) -> None:
    assert get_refusal(url).kind in ("engine-silent", "engine-missing")


def test_no_start_command_for_a_remote_engine() -> None:
    assert "systemctl" not in get_refusal("tcp://127.0.0.1:1").hint


def test_ssh_address_is_refused_with_a_workaround(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "ssh://somebody@host")
    with pytest.raises(EngineError, match="through ssh") as caught:
        connect()
    assert caught.value.kind == "engine-ssh"
    assert "docker.sock somebody@host &" in caught.value.hint


@pytest.mark.parametrize(
    ("address", "typed"),
    [
        ("ssh://me@far:2222", "-p 2222 me@far"),
        ("ssh://far", "far"),
        ("ssh://me@far:22/var/run/docker.sock", "-p 22 me@far"),
        ("ssh://a;b:1", "-p 1 'a;b'"),
        ("ssh://far:x", "far:x"),
    ],
)
def test_ssh_hint_has_the_port_as_an_option(address: str, typed: str) -> None:
    assert f"/var/run/docker.sock {typed} &" in get_refusal(address).hint


@pytest.mark.parametrize(
    ("socket", "typed"),
    [
        ("/run/user/1000/docker.sock", "systemctl --user start docker "),
        ("RUNTIME/docker.sock", "systemctl --user start docker "),
        ("RUNTIME/podman/podman.sock", "systemctl --user start podman.socket"),
        ("/run/podman/podman.sock", "sudo systemctl start podman.socket"),
        ("HOME/.docker/desktop/docker.sock", "Start Docker Desktop"),
        ("HOME/.docker/run/docker.sock", "Start Docker Desktop"),
        ("/var/run/none/docker.sock", "sudo systemctl start docker"),
    ],
)
def test_hint_starts_the_engine_of_the_socket(
    socket: str, typed: str, shared_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(shared_folder))
    path = socket.replace("RUNTIME", str(shared_folder)).replace("HOME", str(shared_folder))
    hint = get_refusal(f"unix://{path}").hint
    assert typed in hint
    assert typed.startswith("sudo") == ("sudo" in hint)


# ---------------------------------------------------------------- contexts


@pytest.fixture
def contexts(shared_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return Docker's configuration folder, which has a context `other` for the socket shared_folder/s."""
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.delenv("DOCKER_CONTEXT", raising=False)
    folder = shared_folder / "docker"
    monkeypatch.setenv("DOCKER_CONFIG", str(folder))
    meta = folder / "contexts" / "meta" / hash_context_name("other")
    meta.mkdir(parents=True)
    endpoints = {"docker": {"Host": f"unix://{shared_folder}/s", "SkipTLSVerify": False}}
    (meta / "meta.json").write_text(json.dumps({"Name": "other", "Endpoints": endpoints}), encoding="utf-8")
    return folder


def get_context_error(shared_folder: Path) -> str:
    """Return the error of `connect` if the socket is served by something that is not an engine."""
    server = FakeServer(shared_folder / "s", http(b"[]"))
    try:
        with pytest.raises(EngineError) as caught:
            connect()
    finally:
        server.close()
    return caught.value.message


def test_docker_context_variable_is_followed(
    contexts: Path, shared_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONTEXT", "other")
    message = get_context_error(shared_folder)
    assert str(shared_folder / "s") in message
    assert "context other" in message


def test_current_context_is_followed(contexts: Path, shared_folder: Path) -> None:
    (contexts / "config.json").write_text('{"currentContext": "other"}', encoding="utf-8")
    assert str(shared_folder / "s") in get_context_error(shared_folder)


def test_docker_host_overrides_the_context(
    contexts: Path, shared_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (contexts / "config.json").write_text('{"currentContext": "none"}', encoding="utf-8")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{shared_folder}/s")
    assert str(shared_folder / "s") in get_context_error(shared_folder)


def test_missing_context_raises(contexts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONTEXT", "gone")
    with pytest.raises(EngineError, match="context gone is not there") as caught:
        connect()
    assert caught.value.kind == "engine-context"
    assert "docker context ls" in caught.value.hint


def test_tls_keys_of_a_context_are_used(
    contexts: Path, shared_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = contexts / "contexts" / "tls" / hash_context_name("other") / "docker"
    keys.mkdir(parents=True)
    for name in ("cert.pem", "key.pem", "ca.pem"):
        (keys / name).write_text("", encoding="utf-8")
    meta = contexts / "contexts" / "meta" / hash_context_name("other") / "meta.json"
    meta.write_text('{"Endpoints": {"docker": {"Host": "tcp://127.0.0.1:1"}}}', encoding="utf-8")
    monkeypatch.setenv("DOCKER_CONTEXT", "other")
    tls_options: list[object] = []
    monkeypatch.setattr(connection, "TLSConfig", lambda **options: tls_options.append(options))
    with pytest.raises(EngineError):
        connect()
    client_cert = (str(keys / "cert.pem"), str(keys / "key.pem"))
    assert tls_options == [{"client_cert": client_cert, "ca_cert": str(keys / "ca.pem"), "verify": True}]


# ---------------------------------------------------------------- permission

CHILD = """
import os, sys
from tfdoctor.images.engine import EngineError, connect
import docker.transport, grp, pwd
os.setgroups([]); os.setgid(65534); os.setuid(65534)
os.environ["USER"] = os.environ["LOGNAME"] = "somebody-else"
try:
    connect(sys.argv[1])
except EngineError as error:
    print(error.kind, error.message, error.hint, sep="\\n")
"""
as_nobody = pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="needs root to be nobody")


def connect_as_nobody(url: str) -> list[str]:
    """Return the kind, message and hint of the error that `connect` raises as the user nobody."""
    result = subprocess.run(
        [sys.executable, "-c", CHILD, url], capture_output=True, text=True, check=True, timeout=60
    )
    return result.stdout.splitlines()


@as_nobody
def test_hint_names_the_group_of_the_socket(shared_folder: Path) -> None:
    server = FakeServer(shared_folder / "s", b"")
    group = next(group for group in grp.getgrall() if group.gr_gid not in (0, 65534))
    os.chown(shared_folder / "s", 0, group.gr_gid)
    (shared_folder / "s").chmod(0o660)
    try:
        kind, message, hint = connect_as_nobody(f"unix://{shared_folder}/s")
    finally:
        server.close()
    assert kind == "engine-permission"
    assert str(shared_folder / "s") in message
    assert hint == (
        f"sudo usermod -aG {group.gr_name} nobody   then log in again (or for this shell: newgrp {group.gr_name})"
    )


@as_nobody
def test_no_group_hint_if_the_group_has_no_access(shared_folder: Path) -> None:
    server = FakeServer(shared_folder / "s", b"")
    (shared_folder / "s").chmod(0o600)
    try:
        kind, _, hint = connect_as_nobody(f"unix://{shared_folder}/s")
    finally:
        server.close()
    assert kind == "engine-permission"
    assert "usermod" not in hint
    assert "rootless" in hint


@as_nobody
def test_closed_folder_is_a_permission_error(shared_folder: Path) -> None:
    (shared_folder / "closed").mkdir(mode=0o700)
    server = FakeServer(shared_folder / "closed" / "s", b"")
    try:
        kind, message, _ = connect_as_nobody(f"unix://{shared_folder}/closed/s")
    finally:
        server.close()
    assert kind == "engine-permission"
    assert "you may not use" in message


def test_answer_without_end_is_given_up(shared_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_RESPONSE_BYTES", 1 << 20)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
    server = FakeServer(shared_folder / "s", head + b'{"a": "' + b"A" * (3 << 20))
    failure = get_refusal(f"unix://{shared_folder}/s")
    server.close()
    assert "larger than 1 MiB" in failure.message
