"""Tests of asking a registry: a local server plays good and broken ones; Debian's registry is used if installed."""

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
import requests
from hypothesis import given
from hypothesis import strategies as st

from tfdoctor.images.engine import registry
from tfdoctor.images.engine.registry import apply_mirror, parse_reference, query_registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Answer = Callable[[http.server.BaseHTTPRequestHandler], None]

DIGEST = "sha256:" + "a" * 64


class FakeRegistry:
    """A fake registry that sends the given answers and records the requests."""

    def __init__(self) -> None:
        self.manifest: Answer = lambda handler: reply(handler, 404)
        self.token: Answer = lambda handler: reply(handler, 404)
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        fake = self

        class RegistryHandler(http.server.BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                fake.requests.append((self.command, self.path, dict(self.headers)))
                (fake.token if self.path.startswith("/token") else fake.manifest)(self)

            do_GET = do_HEAD  # noqa: N815 - the name is http.server's

            def log_message(self, *args: object) -> None:
                """Discard the log of the server."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), RegistryHandler)
        self.server.daemon_threads = True
        self.host = f"127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def name(self) -> str:
        return f"{self.host}/library/thing:1.0"

    def challenge(self, realm: str | None = None) -> str:
        realm = realm or f"http://{self.host}/token"
        return f'Bearer realm="{realm}",service="s",scope="repository:library/thing:pull"'


def reply(
    handler: http.server.BaseHTTPRequestHandler, status: int, body: bytes = b"", **headers: str
) -> None:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(body)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRegistry]:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setattr(registry, "REQUEST_TIMEOUTS_S", (0.5, 0.5))
    fake_registry = FakeRegistry()
    yield fake_registry
    fake_registry.server.shutdown()
    fake_registry.server.server_close()


def test_image_in_the_registry_is_found(fake: FakeRegistry) -> None:
    fake.manifest = lambda handler: reply(handler, 200, Docker_Content_Digest=DIGEST)
    answer = query_registry(fake.name)
    assert (answer.state, answer.digest, answer.message, answer.reference) == ("there", DIGEST, "", fake.name)
    ((method, path, headers),) = fake.requests
    assert (method, path) == ("HEAD", "/v2/library/thing/manifests/1.0")
    assert "oci.image.index" in headers["Accept"]
    assert "Authorization" not in headers


def test_reference_with_a_digest_is_requested_by_digest(fake: FakeRegistry) -> None:
    fake.manifest = lambda handler: reply(handler, 200)
    assert query_registry(f"{fake.name}@{DIGEST}").state == "there"
    assert fake.requests[0][1].endswith(f"/manifests/{DIGEST}")


@pytest.mark.parametrize("digest", ["", "sha256:abc", "sha256:" + "A" * 64, "x" * 5000])
def test_invalid_digest_is_ignored(fake: FakeRegistry, digest: str) -> None:
    fake.manifest = lambda handler: reply(handler, 200, Docker_Content_Digest=digest)
    answer = query_registry(fake.name)
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
def test_status_of_the_registry_gives_the_state(
    fake: FakeRegistry, status: int, state: str, said: str
) -> None:
    fake.manifest = lambda handler: reply(handler, status)
    answer = query_registry(fake.name)
    assert answer.state == state
    assert answer.digest is None
    assert said in answer.message
    assert fake.host in answer.message


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
def test_rate_limit_gives_the_seconds_to_wait(fake: FakeRegistry, after: str, seconds: int | None) -> None:
    fake.manifest = lambda handler: reply(handler, 429, Retry_After=after)
    answer = query_registry(fake.name)
    assert (answer.state, answer.retry_after) == ("limited", seconds)
    assert ("asks to wait" in answer.message) is bool(seconds)


@pytest.mark.parametrize("field", ["token", "access_token"])
def test_an_anonymous_token_is_fetched_and_used(fake: FakeRegistry, field: str) -> None:
    def manifest(handler: http.server.BaseHTTPRequestHandler) -> None:
        if handler.headers.get("Authorization") == "Bearer t0k":
            reply(handler, 200, Docker_Content_Digest=DIGEST)
        else:
            reply(handler, 401, WWW_Authenticate=fake.challenge())

    fake.manifest = manifest
    fake.token = lambda handler: reply(handler, 200, json.dumps({field: "t0k"}).encode())
    assert query_registry(fake.name).digest == DIGEST
    method, path, headers = fake.requests[1]
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
def test_invalid_token_is_not_used(fake: FakeRegistry, body: bytes) -> None:
    fake.manifest = lambda handler: reply(handler, 401, WWW_Authenticate=fake.challenge())
    fake.token = lambda handler: reply(handler, 200, body)
    assert query_registry(fake.name).state in ("login", "unreachable")
    assert all("Evil" not in headers for _, _, headers in fake.requests)
    assert sum(path.startswith("/token") for _, path, _ in fake.requests) == 1


def test_endless_token_is_abandoned(fake: FakeRegistry) -> None:
    sent = 0

    def endless(handler: http.server.BaseHTTPRequestHandler) -> None:
        nonlocal sent
        handler.send_response(200)
        handler.end_headers()
        try:
            while sent < 50_000_000:
                handler.wfile.write(b" " * 65_536)
                sent += 65_536
        except OSError:
            pass

    fake.manifest = lambda handler: reply(handler, 401, WWW_Authenticate=fake.challenge())
    fake.token = endless
    assert query_registry(fake.name).state == "login"
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
def test_token_is_requested_over_https_or_loopback_only(
    fake: FakeRegistry, challenge: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        socket, "getaddrinfo", _allow_loopback_only(socket.getaddrinfo)
    )  # no other host may be resolved, let alone connected to
    fake.manifest = lambda handler: reply(handler, 401, WWW_Authenticate=challenge)
    answer = query_registry(fake.name)
    assert answer.state == ("unreachable" if "[::1" in challenge else "login")
    assert [path for _, path, _ in fake.requests] == ["/v2/library/thing/manifests/1.0"]


def _allow_loopback_only(getaddrinfo: Callable[..., object]) -> Callable[..., object]:
    def resolve(host: object, *args: object, **kwargs: object) -> object:
        assert host in ("127.0.0.1", b"127.0.0.1"), host
        return getaddrinfo(host, *args, **kwargs)

    return resolve


def test_password_of_netrc_is_not_sent(
    fake: FakeRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login somebody password planted\n", encoding="utf-8")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    request_count = 0

    def manifest(handler: http.server.BaseHTTPRequestHandler) -> None:
        nonlocal request_count
        request_count += 1
        if request_count == 1:
            reply(handler, 307, Location=f"http://{fake.host}/v2/elsewhere")
        elif handler.headers.get("Authorization") == "Bearer t":
            reply(handler, 200)
        else:
            reply(handler, 401, WWW_Authenticate=fake.challenge())

    fake.manifest = manifest
    fake.token = lambda handler: reply(handler, 200, b'{"token": "t"}')
    assert query_registry(fake.name).state == "there"
    sent = [headers["Authorization"] for _, _, headers in fake.requests if "Authorization" in headers]
    assert sent == ["Bearer t"]


def test_token_is_not_sent_to_another_host(fake: FakeRegistry) -> None:
    other = FakeRegistry()
    other.manifest = lambda handler: reply(handler, 200)

    def manifest(handler: http.server.BaseHTTPRequestHandler) -> None:
        if "Authorization" in handler.headers:
            reply(handler, 307, Location=f"http://localhost:{other.server.server_address[1]}/blob")
        else:
            reply(handler, 401, WWW_Authenticate=fake.challenge())

    fake.manifest = manifest
    fake.token = lambda handler: reply(handler, 200, b'{"token": "secret"}')
    try:
        assert query_registry(fake.name).state == "there"
        assert "Authorization" not in other.requests[0][2]
    finally:
        other.server.shutdown()
        other.server.server_close()


# ---------------------------------------------------------------- broken registries


def test_hanging_registry_times_out(fake: FakeRegistry) -> None:
    fake.manifest = lambda _: time.sleep(1.5)
    start = time.monotonic()
    answer = query_registry(fake.name)
    assert time.monotonic() - start < 1.4
    assert answer.state == "unreachable"
    assert "did not answer in time" in answer.message


def test_endless_redirection_is_abandoned(fake: FakeRegistry) -> None:
    fake.manifest = lambda handler: reply(handler, 302, Location=handler.path)
    assert query_registry(fake.name).state == "unreachable"
    assert len(fake.requests) <= 40


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
def test_invalid_http_is_reported(fake: FakeRegistry, raw: bytes) -> None:
    def manifest(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.wfile.write(raw)
        handler.close_connection = True

    fake.manifest = manifest
    answer = query_registry(fake.name)
    assert answer.state == ("login" if b"401" in raw else "unreachable")
    assert answer.message.isprintable()


def test_closed_port_is_unreachable(fake: FakeRegistry) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    answer = query_registry(f"127.0.0.1:{port}/thing")
    assert answer.state == "unreachable"
    assert answer.message


def test_missing_certificate_file_is_unreachable(fake: FakeRegistry) -> None:
    answer = query_registry("localhost.invalid/thing:1", ca_file="/nowhere/ca.pem")
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
def test_reference_is_parsed(text: str, parts: tuple[str, str, str, str | None]) -> None:
    reference = parse_reference(text)
    assert (reference.registry, reference.repository, reference.tag, reference.digest) == parts
    reparsed = parse_reference(reference.name)
    assert (reparsed.registry, reparsed.repository, reparsed.tag, reparsed.digest) == parts


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
def test_mirror_is_applied_to_a_name(text: str, mirror: str | None, name: str) -> None:
    assert apply_mirror(text, mirror) == name


@given(st.text(max_size=200))
def test_any_text_can_be_parsed(text: str) -> None:
    reference = parse_reference(text)
    assert isinstance(reference.name, str)
    apply_mirror(text, "corp:5000/x")


# ---------------------------------------------------------------- a real registry

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
    """Yield the address of Debian's docker-registry, without a password, for one test."""
    program = shutil.which("docker-registry") or shutil.which("registry")
    if program is None:
        pytest.skip("docker-registry is not installed")
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    config = tmp_path / "config.yml"
    config.write_text(CONFIG % (tmp_path / "store", port), encoding="utf-8")
    with subprocess.Popen(
        [program, "serve", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            for _ in range(100):
                with socket.socket() as client:
                    if client.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.1)
            yield f"127.0.0.1:{port}"
        finally:
            process.kill()


def test_image_pushed_to_debians_registry_is_found(real_registry: str, tmp_path: Path) -> None:
    missing = query_registry(f"{real_registry}/tfdoctor/nothing:1")
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
    answer = query_registry(name)
    assert answer.state == "there"
    assert answer.digest is not None
    assert answer.digest in pushed
    assert query_registry(f"{real_registry}/tfdoctor/one@{answer.digest}").state == "there"
    assert query_registry(f"{real_registry}/tfdoctor/one:2").state == "missing"


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("python:3", "https://registry-1.docker.io/v2/library/python"),
        ("localhost/a:1", "http://localhost/v2/a"),
        ("localhost:5000/a:1", "http://localhost:5000/v2/a"),
        ("127.0.0.1:1/a", "http://127.0.0.1:1/v2/a"),
        ("mirror.example:5000/a/b", "https://mirror.example:5000/v2/a/b"),
    ],
)
def test_url_of_a_repository(name: str, url: str) -> None:
    assert parse_reference(name).url == url


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (requests.exceptions.SSLError("x"), "certificate is not trusted"),
        (requests.exceptions.ProxyError("x"), "the proxy refuses"),
        (requests.exceptions.ReadTimeout("x"), "did not answer in time"),
        (OSError("Name or service not known"), "name cannot be resolved"),
        (OSError("Temporary failure in name resolution"), "name cannot be resolved"),
        (OSError("Failed to resolve 'x'"), "name cannot be resolved"),
        (OSError("Connection refused"), "connection refused"),
        (OSError("Network is unreachable"), "no route to it"),
        (OSError("No route to host"), "no route to it"),
        (OSError("anything \x1b else"), "anything"),
    ],
)
def test_reason_why_a_registry_did_not_answer(error: Exception, reason: str) -> None:
    assert reason in registry._describe_error(error)
