"""The first run of scripts/tfdoctor: its messages about network problems during pip, and its environment folder."""

from __future__ import annotations

import contextlib
import http.server
import os
import pty
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tfdoctor.core.toml import loads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parents[1]
BASH = shutil.which("bash") or ""
pytestmark = pytest.mark.skipif(not BASH or sys.platform == "win32", reason="no bash")
MAX_MESSAGE_DELAY_S = 40
"""Seconds within which a network problem must be named, on a busy machine.

pip's own retries take minutes.
"""
NOBODY_ID = 65534


def make_fake_environment(folder: Path, body: str) -> Path:
    """Create an environment whose Python is a shell script, and return its folder."""
    python = folder / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    python.chmod(0o755)
    return folder / "env"


@pytest.fixture(autouse=True)
def wait_for_threads() -> Iterator[None]:
    """Wait for the threads of a test to end.

    A command that a later test runs in this process would exit at once because of a running thread.
    """
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + 10
    while set(threading.enumerate()) - before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not set(threading.enumerate()) - before


@pytest.fixture
def real_pip(tmp_path: Path) -> Path:
    done = subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("no pip")
    return make_fake_environment(tmp_path, f'exec {sys.executable} "$@"')


def make_environment(**more: str) -> dict[str, str]:
    """Return environment variables without the settings of the caller."""
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": "/nowhere",
        "PIP_CONFIG_FILE": os.devnull,
        "LANG": "C.UTF-8",
        **more,
    }


def require_localhost() -> None:
    try:
        socket.getaddrinfo("localhost", None)
    except OSError:
        pytest.skip("this machine does not know localhost")


def run_pip(env: Path, *arguments: str, **variables: str) -> tuple[int, list[tuple[float, str]], str]:
    """Run pip_of of environment.bash.

    Return the exit status, the lines of standard error with their seconds, and standard output.
    """
    command = [BASH, "-c", 'source "$1"; shift; pip_of "$@"', "./scripts/tfdoctor"]
    started = time.monotonic()
    with subprocess.Popen(
        [*command, str(ROOT / "scripts" / "environment.bash"), str(env), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=make_environment(**variables),
        text=True,
    ) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        messages = [(time.monotonic() - started, line.rstrip("\n")) for line in process.stderr]
        out = process.stdout.read()
    return process.returncode, messages, out


@contextlib.contextmanager
def serve_silence() -> Iterator[int]:
    """Listen on a port that accepts connections and never answers, and yield the port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        connections: list[socket.socket] = []

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connections.append(server.accept()[0])

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits in accept
            thread.join(10)
            for connection in connections:
                connection.close()


@contextlib.contextmanager
def find_closed_port() -> Iterator[int]:
    """Yield a port at which no server listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@contextlib.contextmanager
def serve_http(
    handler: type[http.server.BaseHTTPRequestHandler], context: ssl.SSLContext | None = None
) -> Iterator[int]:
    """Serve HTTP, or with a context HTTPS, and yield the port."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        server.handle_error = lambda *_: None
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join(10)


def make_refusing_handler(status: int, reason: str) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status, reason)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    return type("Proxy", (Handler,), {"do_CONNECT": Handler.do_GET})


def assert_problem_named(messages: list[tuple[float, str]], text: str, hint: str) -> None:
    """Assert that the messages name one problem with its hint in time, and show nothing raw."""
    lines = [line for _, line in messages]
    assert lines[0].startswith("tfdoctor: "), lines
    matches = [number for number, line in enumerate(lines) if text in line]
    assert len(matches) == 1, lines
    assert hint in lines[matches[0] + 1]
    assert lines[matches[0] + 1].startswith("hint: ")
    assert messages[matches[0]][0] < MAX_MESSAGE_DELAY_S
    assert not [line for line in lines if "Retrying" in line or "urllib3" in line]
    assert lines[-1].startswith("tfdoctor: pip gave up; what it said stands in ")
    assert Path(lines[-1].rpartition(" ")[2]).read_text(encoding="utf-8")


Servers = "Callable[[], contextlib.AbstractContextManager[int]]"


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("server", "variable", "scheme", "says", "hint"),
    [
        (
            serve_silence,
            "HTTPS_PROXY",
            "http://me:secret@",
            "the package index does not answer through the proxy of HTTPS_PROXY.",
            "env -u HTTPS_PROXY",
        ),
        (
            find_closed_port,
            "HTTPS_PROXY",
            "http://me:se/cr@et@",
            "the package index cannot be reached through the proxy of HTTPS_PROXY.",
            "HTTPS_PROXY=http",
        ),
        (
            find_closed_port,
            "PIP_PROXY",
            "http://",
            "the package index cannot be reached through the proxy of pip's setting.",
            "HTTPS_PROXY=http",
        ),
        (
            lambda: serve_http(make_refusing_handler(407, "Proxy Authentication Required")),
            "HTTPS_PROXY",
            "http://",
            "the proxy of HTTPS_PROXY wants a user and a password",
            "USER:PASSWORD",
        ),
        (serve_silence, "PIP_INDEX_URL", "https://", "the package index does not answer", "HTTPS_PROXY=http"),
        (
            find_closed_port,
            "PIP_INDEX_URL",
            "https://",
            "the package index cannot be reached",
            "PIP_INDEX_URL=URL",
        ),
    ],
    ids=[
        "silent proxy",
        "refusing proxy",
        "pip's proxy",
        "proxy with a password",
        "silent index",
        "refusing index",
    ],
)
def test_network_problem_is_named_early(
    server: Callable[[], contextlib.AbstractContextManager[int]],
    variable: str,
    scheme: str,
    says: str,
    hint: str,
    real_pip: Path,
) -> None:
    host = "127.0.0.1"
    if scheme == "https://":
        require_localhost()
        host = "localhost"  # some versions of pip fail on an IP address
    with server() as port:
        # test_pip_timeout_of_the_user_is_kept covers how long pip tries by default.
        variables = {variable: f"{scheme}{host}:{port}", "PIP_TIMEOUT": "3", "PIP_RETRIES": "1"}
        status, messages, out = run_pip(real_pip, "download", "--no-deps", "x", **variables)
    assert (status, out) == (3, "")
    assert_problem_named(messages, says.format(port), hint)
    assert "secret" not in "".join(line for _, line in messages)


@pytest.mark.few(0)
def test_unknown_certificate_authority_is_named(real_pip: Path, tmp_path: Path) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl")
    require_localhost()
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    arguments = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, "-days", "2"]
    arguments += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([openssl, *map(str, arguments)], capture_output=True, check=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    with serve_http(make_refusing_handler(404, "Not Found"), context) as port:
        index = f"https://localhost:{port}/simple"  # some versions of pip fail on an IP address
        status, messages, _ = run_pip(real_pip, "download", "--no-deps", "x", PIP_INDEX_URL=index)
        assert status == 3
        assert_problem_named(messages, "a certificate that nobody vouches for here", "PIP_CERT=/")
        # If the user follows the hint, the certificate is accepted.
        _, messages, _ = run_pip(
            real_pip, "download", "--no-deps", "x", PIP_INDEX_URL=index, PIP_CERT=str(cert)
        )
    lines = " ".join(line for _, line in messages)
    assert "certificate" not in lines
    assert "No matching distribution found for x" in lines  # other errors are shown as pip prints them


def test_other_pip_errors_are_shown_unchanged(tmp_path: Path) -> None:
    env = make_fake_environment(
        tmp_path, 'case "$*" in *config*) exit;; esac; echo one; echo "ERROR: two" >&2; exit 1'
    )
    status, messages, out = run_pip(env, "install", "x")
    assert (status, [line for _, line in messages], out) == (3, ["one", "ERROR: two"], "")


def test_successful_pip_prints_nothing(tmp_path: Path) -> None:
    env = make_fake_environment(tmp_path, "echo Collecting x; echo Downloading x-1.whl")
    assert run_pip(env, "install", "x") == (0, [], "")


@pytest.mark.few(0)
def test_silence_of_pip_is_reported(tmp_path: Path) -> None:
    env = make_fake_environment(tmp_path, 'case "$*" in *config*) exit;; esac; sleep 12; echo done')
    status, messages, _ = run_pip(env, "install", "x", HTTPS_PROXY="//u:hunt/er@2@proxy.example:3128")
    assert status == 0
    ((seconds, line),) = messages
    assert line == (
        "tfdoctor: pip has been silent for 10 seconds (it goes through the proxy of HTTPS_PROXY); waiting …"
    )
    assert seconds < 12 + MAX_MESSAGE_DELAY_S


def test_pip_timeout_of_the_user_is_kept(tmp_path: Path) -> None:
    """Keep a timeout or retry count that the user has set."""
    body = 'case "$*" in *config*) echo "$CONFIG";; *) echo "$@" > "$ASKED";; esac'
    env, record = make_fake_environment(tmp_path, body), tmp_path / "asked"
    for config, added in (
        ("", "--timeout 8 --retries 2"),
        ("global.timeout='60'", "--retries 2"),
        (":env:.default-timeout='9'\nglobal.retries='1'", ""),
    ):
        run_pip(env, "install", "x", CONFIG=config, ASKED=str(record))
        arguments = record.read_text(encoding="utf-8").split()
        assert " ".join(arguments[arguments.index("x") + 1 : arguments.index("--progress-bar")]) == added


def test_progress_is_shown_on_a_terminal(tmp_path: Path) -> None:
    env = make_fake_environment(
        tmp_path, "echo Collecting docker; echo '  Downloading docker-7.1.0.whl (147 kB)'; sleep 1"
    )
    terminal, child_terminal = pty.openpty()
    command = [BASH, "-c", 'source "$1"; pip_of "$2" install x', "x"]
    subprocess.run(
        [*command, str(ROOT / "scripts" / "environment.bash"), str(env)],
        stderr=child_terminal,
        env=make_environment(),
        check=True,
    )
    os.close(child_terminal)
    chunks = []
    with contextlib.suppress(OSError):  # everything was read and the other end is closed
        while chunks[-1:] != [b""]:
            chunks.append(os.read(terminal, 4096))
    os.close(terminal)
    output = b"".join(chunks).decode()
    assert "\r\x1b[K  Collecting docker" in output
    assert "\r\x1b[K  Downloading docker-7.1.0.whl" in output
    assert output.endswith("\r\x1b[K")


def test_build_requirements_match_pyproject() -> None:
    """pip gets the build requirements by name, so that their downloads are shown."""
    requires = loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    text = (ROOT / "scripts" / "environment.bash").read_text(encoding="utf-8")
    for requirement in requires:
        assert f"install '{requirement}' editables" in text


# ---------------------------------------------------------------- checkout of another user


def run_as_nobody(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
    """Run a command as a user other than root, because root may write everywhere."""
    if os.geteuid() == 0:
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            pytest.skip("no setpriv")
        command = [setpriv, f"--reuid={NOBODY_ID}", f"--regid={NOBODY_ID}", "--clear-groups", *command]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, **options)


@pytest.fixture
def read_only_checkout(tmp_path: Path) -> Iterator[Path]:
    """A checkout that is read-only for the user.

    The folder `home` beside it is writable.
    """
    checkout = tmp_path / "checkout"
    (checkout / "scripts").mkdir(parents=True)
    for name in ("tfdoctor", "environment.bash"):
        shutil.copy(ROOT / "scripts" / name, checkout / "scripts")
    shutil.copy(ROOT / "pyproject.toml", checkout)
    (tmp_path / "home").mkdir()
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_uid == os.geteuid() and path != Path(
            "/tmp"
        ):  # pytest's folders are private to their owner
            path.chmod(path.stat().st_mode | 0o755)
    (tmp_path / "home").chmod(0o777)
    checkout.chmod(0o555)
    yield checkout
    checkout.chmod(0o755)


def make_sample(folder: Path, checkout: Path) -> None:
    """Create a complete environment whose Python prints its own path."""
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    (folder / "bin" / "python").write_text('#!/bin/sh\necho "$0"\n', encoding="utf-8")
    (folder / "bin" / "python").chmod(0o755)
    state = f"{checkout}\n{(ROOT / 'pyproject.toml').read_text(encoding='utf-8')}"
    (folder / "complete").write_text(state, encoding="utf-8")


def test_foreign_checkout_uses_the_users_cache(read_only_checkout: Path) -> None:
    """Create the environment in the user's cache, and reuse it from there."""
    home = read_only_checkout.parent / "home"
    python = read_only_checkout.parent / "bin" / "python3.14"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\ncase "$*" in *"-m venv"*) echo "$@" >> {home}/asked; exit 1;; esac\n')
    python.chmod(0o755)
    env = {"PATH": f"{python.parent}:/usr/bin:/bin", "HOME": str(home)}
    done = run_as_nobody([str(read_only_checkout / "scripts" / "tfdoctor"), "version"], env=env)
    assert done.returncode == 3
    folder = Path((home / "asked").read_text(encoding="utf-8").split()[-1])
    assert folder.parent == home / ".cache" / "tfdoctor"
    assert f"private environment in {folder} with" in done.stderr
    assert not (read_only_checkout / ".venv-run").exists()
    make_sample(folder, read_only_checkout)
    done = run_as_nobody([str(read_only_checkout / "scripts" / "tfdoctor"), "version"], env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{folder}/bin/python\n", "")


def test_environment_of_the_owner_is_used(read_only_checkout: Path) -> None:
    read_only_checkout.chmod(0o755)
    make_sample(read_only_checkout / ".venv-run", read_only_checkout)
    read_only_checkout.chmod(0o555)
    env = {"PATH": "/usr/bin:/bin", "HOME": str(read_only_checkout.parent / "home")}
    done = run_as_nobody([str(read_only_checkout / "scripts" / "tfdoctor"), "version"], env=env)
    assert (done.returncode, done.stdout) == (0, f"{read_only_checkout}/.venv-run/bin/python\n")
    assert not (read_only_checkout.parent / "home" / ".cache").exists()


def test_no_writable_folder_is_reported(read_only_checkout: Path) -> None:
    env = {"PATH": "/usr/bin:/bin", "HOME": "/nowhere"}
    done = run_as_nobody([str(read_only_checkout / "scripts" / "tfdoctor"), "version"], env=env)
    assert (done.returncode, done.stdout) == (3, "")
    assert f"neither {read_only_checkout} nor /nowhere/.cache can be written to" in done.stderr
    assert "hint: name a folder that you may write to: XDG_CACHE_HOME=FOLDER" in done.stderr
