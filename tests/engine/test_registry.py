"""Asking a registry: a local server plays good, bad and broken ones; Debian's own registry where it is installed."""

from __future__ import annotations

import http.server
import json
import shutil
import socket
import subprocess
import threading
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdoctor.engine import registry
from tfdoctor.engine.registry import apply_mirror, ask_registry, parse_reference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Answer = Callable[[http.server.BaseHTTPRequestHandler], None]

DIGEST = "sha256:" + "a" * 64


class Played:
    """A registry that answers as it is told, and remembers what it was asked."""

    def __init__(self) -> None:
        self.manifest: Answer = lambda to: reply(to, 404)
        self.token: Answer = lambda to: reply(to, 404)
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        played = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                played.asked.append((self.command, self.path, dict(self.headers)))
                (played.token if self.path.startswith("/token") else played.manifest)(self)

            do_GET = do_HEAD  # noqa: N815 - the name is http.server's

            def log_message(self, *args: object) -> None:
                """Silence."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.host = f"127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def name(self) -> str:
        return f"{self.host}/library/thing:1.0"

    def challenge(self, realm: str | None = None) -> str:
        realm = realm or f"http://{self.host}/token"
        return f'Bearer realm="{realm}",service="s",scope="repository:library/thing:pull"'


def reply(to: http.server.BaseHTTPRequestHandler, status: int, body: bytes = b"", **headers: str) -> None:
    to.send_response(status)
    for name, value in headers.items():
        to.send_header(name.replace("_", "-"), value)
    to.send_header("Content-Length", str(len(body)))
    to.end_headers()
    if to.command != "HEAD":
        to.wfile.write(body)


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setattr(registry, "TIMEOUT", (0.5, 0.5))
    one = Played()
    yield one
    one.server.shutdown()
    one.server.server_close()


def test_it_is_there(played: Played) -> None:
    played.manifest = lambda to: reply(to, 200, Docker_Content_Digest=DIGEST)
    answer = ask_registry(played.name)
    assert (answer.state, answer.digest, answer.text, answer.reference) == ("there", DIGEST, "", played.name)
    ((method, path, headers),) = played.asked
    assert (method, path) == ("HEAD", "/v2/library/thing/manifests/1.0")
    assert "oci.image.index" in headers["Accept"]
    assert "Authorization" not in headers


def test_a_digest_is_asked_for_by_digest(played: Played) -> None:
    played.manifest = lambda to: reply(to, 200)
    assert ask_registry(f"{played.name}@{DIGEST}").state == "there"
    assert played.asked[0][1].endswith(f"/manifests/{DIGEST}")


@pytest.mark.parametrize("digest", ["", "sha256:abc", "sha256:" + "A" * 64, "x" * 5000])
def test_a_digest_that_is_none_is_not_taken(played: Played, digest: str) -> None:
    played.manifest = lambda to: reply(to, 200, Docker_Content_Digest=digest)
    answer = ask_registry(played.name)
    assert (answer.state, answer.digest) == ("there", None)


@pytest.mark.parametrize(
    ("status", "state", "said"),
    [
        (404, "missing", "is not in the registry"),
        (401, "login", "docker login"),
        (403, "login", "docker login"),
        (500, "unclear", "status 500"),
        (503, "unclear", "status 503"),
        (204, "unclear", "status 204"),
    ],
)
def test_what_a_status_means(played: Played, status: int, state: str, said: str) -> None:
    played.manifest = lambda to: reply(to, status)
    answer = ask_registry(played.name)
    assert answer.state == state
    assert answer.digest is None
    assert said in answer.text
    assert played.host in answer.text


@pytest.mark.parametrize(
    ("after", "seconds"),
    [
        ("21600", 21600),
        ("0", 0),
        ("-5", None),
        ("soon", None),
        ("9" * 30, None),
        ("\xb2", None),
        ("1.5", None),
    ],
)
def test_the_limit_is_reached(played: Played, after: str, seconds: int | None) -> None:
    played.manifest = lambda to: reply(to, 429, Retry_After=after)
    answer = ask_registry(played.name)
    assert (answer.state, answer.retry_after) == ("limited", seconds)
    assert ("asks to wait" in answer.text) is bool(seconds)


@pytest.mark.parametrize("field", ["token", "access_token"])
def test_an_anonymous_token_is_fetched_and_used(played: Played, field: str) -> None:
    def manifest(to: http.server.BaseHTTPRequestHandler) -> None:
        if to.headers.get("Authorization") == "Bearer t0k":
            reply(to, 200, Docker_Content_Digest=DIGEST)
        else:
            reply(to, 401, WWW_Authenticate=played.challenge())

    played.manifest = manifest
    played.token = lambda to: reply(to, 200, json.dumps({field: "t0k"}).encode())
    assert ask_registry(played.name).digest == DIGEST
    method, path, headers = played.asked[1]
    assert method == "GET"
    assert "service=s" in path
    assert "pull" in path
    assert "Authorization" not in headers


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"not json",
        b'{"token": 5}',
        b'{"token": "a\\nEvil: 1"}',
        b'{"token": "a\\rb"}',
        b'{"token": "\xc3\xa9"}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"token": "' + b"x" * 1_000_000 + b'"}',
    ],
    ids=range(11),
)
def test_a_token_that_is_none_is_not_used(played: Played, body: bytes) -> None:
    played.manifest = lambda to: reply(to, 401, WWW_Authenticate=played.challenge())
    played.token = lambda to: reply(to, 200, body)
    assert ask_registry(played.name).state in ("login", "unreachable")
    assert all("Evil" not in headers for _, _, headers in played.asked)
    assert sum(path.startswith("/token") for _, path, _ in played.asked) == 1


def test_a_token_without_an_end_is_left(played: Played) -> None:
    sent = 0

    def endless(to: http.server.BaseHTTPRequestHandler) -> None:
        nonlocal sent
        to.send_response(200)
        to.end_headers()
        try:
            while sent < 50_000_000:
                to.wfile.write(b" " * 65_536)
                sent += 65_536
        except OSError:
            pass

    played.manifest = lambda to: reply(to, 401, WWW_Authenticate=played.challenge())
    played.token = endless
    assert ask_registry(played.name).state == "login"
    assert sent < 50_000_000


@pytest.mark.parametrize(
    "challenge",
    [
        "Basic realm=x",
        "Bearer",
        "Bearer realm=unquoted",
        'Bearer realm="http://registry.example/token"',
        'Bearer realm="http://localhost.registry.example/token"',
        'Bearer realm="http://127.0.0.1@registry.example/token"',
        'Bearer realm="file:///etc/passwd"',
        'Bearer realm="ftp://127.0.0.1/x"',
        'Bearer realm="//127.0.0.1/token"',
        'Bearer realm="http://[::1"',
        "Bearer " + 'a="b",' * 2000,
    ],
)
def test_only_tokens_from_https_or_this_machine(
    played: Played, challenge: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        socket, "getaddrinfo", _allow_loopback_only(socket.getaddrinfo)
    )  # no name is asked for, let alone connected to
    played.manifest = lambda to: reply(to, 401, WWW_Authenticate=challenge)
    answer = ask_registry(played.name)
    assert answer.state == ("unreachable" if "[::1" in challenge else "login")
    assert [path for _, path, _ in played.asked] == ["/v2/library/thing/manifests/1.0"]


def _allow_loopback_only(real: Callable[..., object]) -> Callable[..., object]:
    def look(host: object, *args: object, **kwargs: object) -> object:
        assert host in ("127.0.0.1", b"127.0.0.1"), host
        return real(host, *args, **kwargs)

    return look


def test_no_password_of_netrc_is_sent(
    played: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login somebody password planted\n", encoding="utf-8")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    seen = 0

    def manifest(to: http.server.BaseHTTPRequestHandler) -> None:
        nonlocal seen
        seen += 1
        if seen == 1:
            reply(to, 307, Location=f"http://{played.host}/v2/elsewhere")
        elif to.headers.get("Authorization") == "Bearer t":
            reply(to, 200)
        else:
            reply(to, 401, WWW_Authenticate=played.challenge())

    played.manifest = manifest
    played.token = lambda to: reply(to, 200, b'{"token": "t"}')
    assert ask_registry(played.name).state == "there"
    sent = [headers["Authorization"] for _, _, headers in played.asked if "Authorization" in headers]
    assert sent == ["Bearer t"]


def test_a_token_does_not_follow_to_another_host(played: Played) -> None:
    other = Played()
    other.manifest = lambda to: reply(to, 200)

    def manifest(to: http.server.BaseHTTPRequestHandler) -> None:
        if "Authorization" in to.headers:
            reply(to, 307, Location=f"http://localhost:{other.server.server_address[1]}/blob")
        else:
            reply(to, 401, WWW_Authenticate=played.challenge())

    played.manifest = manifest
    played.token = lambda to: reply(to, 200, b'{"token": "secret"}')
    try:
        assert ask_registry(played.name).state == "there"
        assert "Authorization" not in other.asked[0][2]
    finally:
        other.server.shutdown()
        other.server.server_close()


# ---------------------------------------------------------------- broken ones


def test_a_registry_that_hangs(played: Played) -> None:
    played.manifest = lambda _: time.sleep(1.5)
    began = time.monotonic()
    answer = ask_registry(played.name)
    assert time.monotonic() - began < 1.4
    assert answer.state == "unreachable"
    assert "did not answer in time" in answer.text


def test_a_redirection_that_never_ends(played: Played) -> None:
    played.manifest = lambda to: reply(to, 302, Location=to.path)
    assert ask_registry(played.name).state == "unreachable"
    assert len(played.asked) <= 40


@pytest.mark.parametrize(
    "raw",
    [
        b"\xff\xff\xff\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: " + b"a" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: a\r\n" * 500 + b"\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: \xff\xfe://\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: http://[::1\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: gopher://127.0.0.1/\r\n\r\n",
        b"HTTP/1.1 401 X\r\nWWW-Authenticate: Bearer \xff\x80\r\n\r\n",
        b"",
    ],
    ids=range(9),
)
def test_what_is_no_http_is_an_answer_all_the_same(played: Played, raw: bytes) -> None:
    def manifest(to: http.server.BaseHTTPRequestHandler) -> None:
        to.wfile.write(raw)
        to.close_connection = True

    played.manifest = manifest
    answer = ask_registry(played.name)
    assert answer.state == ("login" if b"401" in raw else "unreachable")
    assert answer.text.isprintable()


def test_nobody_listens(played: Played) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    answer = ask_registry(f"127.0.0.1:{port}/thing")
    assert answer.state == "unreachable"
    assert answer.text


def test_a_certificate_that_is_not_there(played: Played) -> None:
    answer = ask_registry("localhost.invalid/thing:1", ca_file="/nowhere/ca.pem")
    assert answer.state == "unreachable"


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("python", ("docker.io", "library/python", "latest", None)),
        ("python:3.12-slim", ("docker.io", "library/python", "3.12-slim", None)),
        ("nvidia/cuda:12.6.3-base", ("docker.io", "nvidia/cuda", "12.6.3-base", None)),
        ("docker.io/python:3", ("docker.io", "library/python", "3", None)),
        ("index.docker.io/library/python", ("docker.io", "library/python", "latest", None)),
        ("nvcr.io/nvidia/tensorflow:25.02-tf2-py3", ("nvcr.io", "nvidia/tensorflow", "25.02-tf2-py3", None)),
        ("localhost/a:1", ("localhost", "a", "1", None)),
        ("corp:5000/a/b/c", ("corp:5000", "a/b/c", "latest", None)),
        (f"corp:5000/a@{DIGEST}", ("corp:5000", "a", "latest", DIGEST)),
        (f"python:3@{DIGEST}", ("docker.io", "library/python", "3", DIGEST)),
    ],
)
def test_a_name_taken_apart(text: str, parts: tuple[str, str, str, str | None]) -> None:
    one = parse_reference(text)
    assert (one.registry, one.repository, one.tag, one.digest) == parts
    again = parse_reference(one.name)
    assert (again.registry, again.repository, again.tag, again.digest) == parts


@pytest.mark.parametrize(
    ("text", "mirror", "name"),
    [
        ("python:3.12", None, "python:3.12"),
        ("python:3.12", "corp:5000/hub", "corp:5000/hub/library/python:3.12"),
        ("python:3.12", "corp:5000/hub/", "corp:5000/hub/library/python:3.12"),
        ("nvidia/cuda:1", "corp.example", "corp.example/nvidia/cuda:1"),
        ("nvcr.io/nvidia/tensorflow:1", "corp:5000", "corp:5000/nvidia/tensorflow:1"),
        ("nvcr.io/nvidia/tensorflow:1", "corp:5000/", "corp:5000/nvcr.io/nvidia/tensorflow:1"),
        (f"python@{DIGEST}", "corp:5000", f"corp:5000/library/python@{DIGEST}"),
        (f"python:3@{DIGEST}", "corp:5000", f"corp:5000/library/python@{DIGEST}"),
    ],
)
def test_the_name_on_a_mirror(text: str, mirror: str | None, name: str) -> None:
    assert apply_mirror(text, mirror) == name


@given(st.text(max_size=200))
def test_any_text_can_be_taken_apart(text: str) -> None:
    one = parse_reference(text)
    assert isinstance(one.name, str)
    apply_mirror(text, "corp:5000/x")


# ---------------------------------------------------------------- the real thing

CONFIG = """\
version: 0.1
log: {level: error}
storage:
  filesystem: {rootdirectory: %s}
http:
  addr: 127.0.0.1:%d
"""


@pytest.fixture
def real_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Debian's docker-registry, without a password, for one test."""
    program = shutil.which("docker-registry") or shutil.which("registry")
    if program is None:
        pytest.skip("docker-registry is not installed")
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = tmp_path / "config.yml"
    config.write_text(CONFIG % (tmp_path / "store", port), encoding="utf-8")
    with subprocess.Popen(
        [program, "serve", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            for _ in range(100):
                with socket.socket() as one:
                    if one.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.1)
            yield f"127.0.0.1:{port}"
        finally:
            process.kill()


def test_debians_registry_and_what_the_engine_pushed(real_registry: str, tmp_path: Path) -> None:
    missing = ask_registry(f"{real_registry}/tfdoctor/nothing:1")
    assert missing.state == "missing"
    docker = shutil.which("docker")
    if (
        docker is None
        or subprocess.run([docker, "version"], capture_output=True, timeout=60, check=False).returncode
    ):
        pytest.skip("no engine runs: only what is missing was asked for")
    name = f"{real_registry}/tfdoctor/one:1"
    (tmp_path / "context").mkdir()
    (tmp_path / "context" / "Dockerfile").write_text(
        "FROM scratch\nLABEL a=b\nCOPY Dockerfile /\n", encoding="utf-8"
    )
    build = [docker, "build", "-q", "-t", name, str(tmp_path / "context")]
    subprocess.run(build, check=True, capture_output=True, timeout=120)
    try:
        pushed = subprocess.run(
            [docker, "push", name], capture_output=True, text=True, timeout=120, check=True
        ).stdout
    finally:
        subprocess.run([docker, "rmi", name], capture_output=True, timeout=60, check=False)
    there = ask_registry(name)
    assert there.state == "there"
    assert there.digest is not None
    assert there.digest in pushed
    assert ask_registry(f"{real_registry}/tfdoctor/one@{there.digest}").state == "there"
    assert ask_registry(f"{real_registry}/tfdoctor/one:2").state == "missing"
