"""Why no engine answers, and what to type: each reason is played for real."""

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

from tfdoctor.engine import ContainerEngine, EngineError, connect, connection
from tfdoctor.errors import UsageError
from tfdoctor.system.contexts import identity_of

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


def get_refusal(url: str) -> EngineError:
    with pytest.raises(EngineError) as caught:
        connect(url)
    assert caught.value.message.isprintable()
    return caught.value


def test_an_engine_answers(engine: ContainerEngine) -> None:
    assert engine.name in ("docker", "podman")
    assert engine.version
    assert engine.api >= (1, 24)
    assert "runc" in engine.runtimes or engine.name == "podman"


def test_docker_host_is_followed(engine: ContainerEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", engine.url)
    other = connect()
    assert other.url == engine.url
    other.client.close()


def test_there_is_no_socket(place: Path) -> None:
    failure = get_refusal(f"unix://{place}/none.sock")
    assert failure.kind == "engine-missing"
    assert str(place / "none.sock") in failure.message
    assert "systemctl start docker" in failure.hint


def test_a_socket_in_a_folder_that_nobody_may_enter_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Podman's /run/podman is root's alone."""
    real_stat = os.stat

    def stat(path: str, *arguments: object, **options: object) -> os.stat_result:
        if str(path) == "/run/podman/podman.sock":
            raise PermissionError(13, "Permission denied", path)
        return real_stat(path, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "stat", stat)
    assert "unix:///run/podman/podman.sock" in connection._usual()


def test_a_socket_that_nobody_serves_any_more(place: Path) -> None:
    Answering(place / "s", b"").close()
    failure = get_refusal(f"unix://{place}/s")
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
        failure = get_refusal(f"unix://{place}/s")
    finally:
        one.close()
    assert failure.kind == "engine-silent"
    assert str(place / "s") in failure.message


def test_a_socket_that_hangs(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CONNECT_TIMEOUT", 1)
    one = Answering(place / "s", b"", keep=True)
    began = time.monotonic()
    try:
        failure = get_refusal(f"unix://{place}/s")
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
    assert get_refusal(url).kind in ("engine-silent", "engine-missing")


def test_an_engine_over_the_network_is_not_started_here() -> None:
    assert "systemctl" not in get_refusal("tcp://127.0.0.1:1").hint


def test_an_engine_behind_ssh_is_refused_with_the_reason_and_a_way(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_a_port_of_ssh_is_typed_as_ssh_takes_it(address: str, typed: str) -> None:
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
def test_each_engine_is_started_in_its_own_way(
    socket: str, typed: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place))
    path = socket.replace("RUNTIME", str(place)).replace("HOME", str(place))
    hint = get_refusal(f"unix://{path}").hint
    assert typed in hint
    assert typed.startswith("sudo") == ("sudo" in hint)


# ---------------------------------------------------------------- contexts


@pytest.fixture
def contexts(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of Docker's client, with a context `other` that leads to place/s."""
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.delenv("DOCKER_CONTEXT", raising=False)
    folder = place / "docker"
    monkeypatch.setenv("DOCKER_CONFIG", str(folder))
    meta = folder / "contexts" / "meta" / identity_of("other")
    meta.mkdir(parents=True)
    endpoints = {"docker": {"Host": f"unix://{place}/s", "SkipTLSVerify": False}}
    (meta / "meta.json").write_text(json.dumps({"Name": "other", "Endpoints": endpoints}), encoding="utf-8")
    return folder


def run_question(place: Path) -> str:
    """Whom `connect` asks: nothing but nonsense answers there."""
    one = Answering(place / "s", http(b"[]"))
    try:
        with pytest.raises(EngineError) as caught:
            connect()
    finally:
        one.close()
    return caught.value.message


def test_the_context_of_the_variable_is_taken(
    contexts: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONTEXT", "other")
    told = run_question(place)
    assert str(place / "s") in told
    assert "context other" in told


def test_the_context_that_was_chosen_is_taken(contexts: Path, place: Path) -> None:
    (contexts / "config.json").write_text('{"currentContext": "other"}', encoding="utf-8")
    assert str(place / "s") in run_question(place)


def test_the_address_of_the_variable_comes_before_a_context(
    contexts: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (contexts / "config.json").write_text('{"currentContext": "none"}', encoding="utf-8")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{place}/s")
    assert str(place / "s") in run_question(place)


def test_a_context_that_is_not_there_is_not_passed_over(
    contexts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONTEXT", "gone")
    with pytest.raises(EngineError, match="context gone is not there") as caught:
        connect()
    assert caught.value.kind == "engine-context"
    assert "docker context ls" in caught.value.hint


def test_a_contexts_keys_are_used(contexts: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = contexts / "contexts" / "tls" / identity_of("other") / "docker"
    keys.mkdir(parents=True)
    for name in ("cert.pem", "key.pem", "ca.pem"):
        (keys / name).write_text("", encoding="utf-8")
    meta = contexts / "contexts" / "meta" / identity_of("other") / "meta.json"
    meta.write_text('{"Endpoints": {"docker": {"Host": "tcp://127.0.0.1:1"}}}', encoding="utf-8")
    monkeypatch.setenv("DOCKER_CONTEXT", "other")
    taken: list[object] = []
    monkeypatch.setattr(connection, "TLSConfig", lambda **words: taken.append(words))
    with pytest.raises(EngineError):
        connect()
    own = (str(keys / "cert.pem"), str(keys / "key.pem"))
    assert taken == [{"client_cert": own, "ca_cert": str(keys / "ca.pem"), "verify": True}]


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


def list_told(url: str) -> list[str]:
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
        kind, message, hint = list_told(f"unix://{place}/s")
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
        kind, _, hint = list_told(f"unix://{place}/s")
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
        kind, message, _ = list_told(f"unix://{place}/closed/s")
    finally:
        one.close()
    assert kind == "engine-permission"
    assert "you may not use" in message
