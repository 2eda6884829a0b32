"""The first run of scripts/tfdoctor: what it says of the network while pip is at work, and where it makes its place."""

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

from tfdoctor.parse.toml import loads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parents[1]
BASH = shutil.which("bash") or ""
pytestmark = pytest.mark.skipif(not BASH or sys.platform == "win32", reason="no bash")
SECONDS = 40
"""Until the trouble has its name, on a machine that is busy: minutes are what pip's own patience takes."""
NOBODY = 65534


def pip_script(folder: Path, body: str) -> Path:
    """An environment whose Python is a shell script."""
    python = folder / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    python.chmod(0o755)
    return folder / "env"


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """A command that a later test runs in this process would end it at once, for fear of a thread still at work."""
    before = set(threading.enumerate())
    yield
    until = time.monotonic() + 10
    while set(threading.enumerate()) - before and time.monotonic() < until:
        time.sleep(0.05)
    assert not set(threading.enumerate()) - before


@pytest.fixture
def real_pip(tmp_path: Path) -> Path:
    done = subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("no pip")
    return pip_script(tmp_path, f'exec {sys.executable} "$@"')


def environment(**more: str) -> dict[str, str]:
    """None of the settings of whoever runs the tests."""
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": "/nowhere",
        "PIP_CONFIG_FILE": os.devnull,
        "LANG": "C.UTF-8",
        **more,
    }


def knows_localhost() -> None:
    try:
        socket.getaddrinfo("localhost", None)
    except OSError:
        pytest.skip("this machine does not know localhost")


def pip_of(env: Path, *words: str, **variables: str) -> tuple[int, list[tuple[float, str]], str]:
    """(exit status, what it says and after how many seconds, standard output) of pip_of in environment.bash."""
    command = [BASH, "-c", 'source "$1"; shift; pip_of "$@"', "./scripts/tfdoctor"]
    started = time.monotonic()
    with subprocess.Popen(
        [*command, str(ROOT / "scripts" / "environment.bash"), str(env), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(**variables),
        text=True,
    ) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        said = [(time.monotonic() - started, line.rstrip("\n")) for line in process.stderr]
        out = process.stdout.read()
    return process.returncode, said, out


@contextlib.contextmanager
def silent() -> Iterator[int]:
    """A port that accepts and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        kept: list[socket.socket] = []

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    kept.append(server.accept()[0])

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)  # wakes who waits in accept
            thread.join(10)
            for one in kept:
                one.close()


@contextlib.contextmanager
def refuse() -> Iterator[int]:
    """A port at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@contextlib.contextmanager
def make_answering(
    handler: type[http.server.BaseHTTPRequestHandler], context: ssl.SSLContext | None = None
) -> Iterator[int]:
    """A server of HTTP, or with a context of HTTPS."""
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


def refuses_with(status: int, reason: str) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status, reason)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return type("Proxy", (Handler,), {"do_CONNECT": Handler.do_GET})


def list_named(said: list[tuple[float, str]], text: str, hint: str) -> None:
    """One sentence, its hint, and nothing raw; in time."""
    lines = [line for _, line in said]
    assert lines[0].startswith("tfdoctor: "), lines
    found = [number for number, line in enumerate(lines) if text in line]
    assert len(found) == 1, lines
    assert hint in lines[found[0] + 1]
    assert lines[found[0] + 1].startswith("hint: ")
    assert said[found[0]][0] < SECONDS
    assert not [line for line in lines if "Retrying" in line or "urllib3" in line]
    assert lines[-1].startswith("tfdoctor: pip gave up; what it said stands in ")
    assert Path(lines[-1].rpartition(" ")[2]).read_text(encoding="utf-8")


Servers = "Callable[[], contextlib.AbstractContextManager[int]]"


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("server", "variable", "scheme", "says", "hint"),
    [
        (
            silent,
            "HTTPS_PROXY",
            "http://me:secret@",
            "the package index does not answer through the proxy of HTTPS_PROXY.",
            "env -u HTTPS_PROXY",
        ),
        (
            refuse,
            "HTTPS_PROXY",
            "http://me:se/cr@et@",
            "the package index cannot be reached through the proxy of HTTPS_PROXY.",
            "HTTPS_PROXY=http",
        ),
        (
            refuse,
            "PIP_PROXY",
            "http://",
            "the package index cannot be reached through the proxy of pip's setting.",
            "HTTPS_PROXY=http",
        ),
        (
            lambda: make_answering(refuses_with(407, "Proxy Authentication Required")),
            "HTTPS_PROXY",
            "http://",
            "the proxy of HTTPS_PROXY wants a user and a password",
            "USER:PASSWORD",
        ),
        (silent, "PIP_INDEX_URL", "https://", "the package index does not answer", "HTTPS_PROXY=http"),
        (refuse, "PIP_INDEX_URL", "https://", "the package index cannot be reached", "PIP_INDEX_URL=URL"),
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
def test_the_trouble_has_its_name_at_once(
    server: Callable[[], contextlib.AbstractContextManager[int]],
    variable: str,
    scheme: str,
    says: str,
    hint: str,
    real_pip: Path,
) -> None:
    host = "127.0.0.1"
    if scheme == "https://":
        knows_localhost()
        host = "localhost"  # some pips fail on an address by themselves
    with server() as port:
        # How long pip tries without these: test_patience_of_ones_own_holds.
        hasty = {variable: f"{scheme}{host}:{port}", "PIP_TIMEOUT": "3", "PIP_RETRIES": "1"}
        status, said, out = pip_of(real_pip, "download", "--no-deps", "x", **hasty)
    assert (status, out) == (3, "")
    list_named(said, says.format(port), hint)
    assert "secret" not in "".join(line for _, line in said)


def test_an_authority_of_the_networks_own(real_pip: Path, tmp_path: Path) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl")
    knows_localhost()
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, "-days", "2"]
    words += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([openssl, *map(str, words)], capture_output=True, check=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    with make_answering(refuses_with(404, "Not Found"), context) as port:
        index = f"https://localhost:{port}/simple"  # some pips fail on an address by themselves
        status, said, _ = pip_of(real_pip, "download", "--no-deps", "x", PIP_INDEX_URL=index)
        assert status == 3
        list_named(said, "a certificate that nobody vouches for here", "PIP_CERT=/")
        # With the hint taken the certificate is no matter any more.
        _, said, _ = pip_of(real_pip, "download", "--no-deps", "x", PIP_INDEX_URL=index, PIP_CERT=str(cert))
    lines = " ".join(line for _, line in said)
    assert "certificate" not in lines
    assert "No matching distribution found for x" in lines  # its own trouble is shown as pip says it


def test_what_is_no_trouble_of_the_network_is_shown_whole(tmp_path: Path) -> None:
    env = pip_script(tmp_path, 'case "$*" in *config*) exit;; esac; echo one; echo "ERROR: two" >&2; exit 1')
    status, said, out = pip_of(env, "install", "x")
    assert (status, [line for _, line in said], out) == (3, ["one", "ERROR: two"], "")


def test_nothing_is_said_where_all_goes_well(tmp_path: Path) -> None:
    env = pip_script(tmp_path, "echo Collecting x; echo Downloading x-1.whl")
    assert pip_of(env, "install", "x") == (0, [], "")


@pytest.mark.few(0)
def test_silence_is_told(tmp_path: Path) -> None:
    env = pip_script(tmp_path, 'case "$*" in *config*) exit;; esac; sleep 12; echo done')
    status, said, _ = pip_of(env, "install", "x", HTTPS_PROXY="//u:hunt/er@2@proxy.example:3128")
    assert status == 0
    ((seconds, line),) = said
    assert line == (
        "tfdoctor: pip has been silent for 10 seconds (it goes through the proxy of HTTPS_PROXY); waiting …"
    )
    assert seconds < 12 + SECONDS


def test_patience_of_ones_own_holds(tmp_path: Path) -> None:
    """Whoever has set how long pip tries keeps it."""
    body = 'case "$*" in *config*) echo "$CONFIG";; *) echo "$@" > "$ASKED";; esac'
    env, asked = pip_script(tmp_path, body), tmp_path / "asked"
    for config, kept in (
        ("", "--timeout 8 --retries 2"),
        ("global.timeout='60'", "--retries 2"),
        (":env:.default-timeout='9'\nglobal.retries='1'", ""),
    ):
        pip_of(env, "install", "x", CONFIG=config, ASKED=str(asked))
        words = asked.read_text(encoding="utf-8").split()
        assert " ".join(words[words.index("x") + 1 : words.index("--progress-bar")]) == kept


def test_somebody_who_looks_on_sees_it_move(tmp_path: Path) -> None:
    env = pip_script(
        tmp_path, "echo Collecting docker; echo '  Downloading docker-7.1.0.whl (147 kB)'; sleep 1"
    )
    terminal, theirs = pty.openpty()
    command = [BASH, "-c", 'source "$1"; pip_of "$2" install x', "x"]
    subprocess.run(
        [*command, str(ROOT / "scripts" / "environment.bash"), str(env)],
        stderr=theirs,
        env=environment(),
        check=True,
    )
    os.close(theirs)
    parts = []
    with contextlib.suppress(OSError):  # all was read, and nobody writes any more
        while parts[-1:] != [b""]:
            parts.append(os.read(terminal, 4096))
    os.close(terminal)
    seen = b"".join(parts).decode()
    assert "\r\x1b[K  Collecting docker" in seen
    assert "\r\x1b[K  Downloading docker-7.1.0.whl" in seen
    assert seen.endswith("\r\x1b[K")


def test_what_builds_it_is_what_the_project_says() -> None:
    """pip is given it by name, so that its downloads are seen."""
    wanted = loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    text = (ROOT / "scripts" / "environment.bash").read_text(encoding="utf-8")
    for one in wanted:
        assert f"install '{one}' editables" in text


# ---------------------------------------------------------------- whose checkout it is


def as_nobody(command: list[str], **how: object) -> subprocess.CompletedProcess[str]:
    """Root may write everywhere: then as somebody else."""
    if os.geteuid() == 0:
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            pytest.skip("no setpriv")
        command = [setpriv, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *command]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, **how)


@pytest.fixture
def foreign(tmp_path: Path) -> Iterator[Path]:
    """A checkout that may be read and not written, and beside it `home`, which may be written."""
    checkout = tmp_path / "checkout"
    (checkout / "scripts").mkdir(parents=True)
    for name in ("tfdoctor", "environment.bash"):
        shutil.copy(ROOT / "scripts" / name, checkout / "scripts")
    shutil.copy(ROOT / "pyproject.toml", checkout)
    (tmp_path / "home").mkdir()
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_uid == os.geteuid() and path != Path(
            "/tmp"
        ):  # pytest's folders are their owner's alone
            path.chmod(path.stat().st_mode | 0o755)
    (tmp_path / "home").chmod(0o777)
    checkout.chmod(0o555)
    yield checkout
    checkout.chmod(0o755)


def make_sample(folder: Path, checkout: Path) -> None:
    """An environment that is whole; its Python prints its own path."""
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    (folder / "bin" / "python").write_text('#!/bin/sh\necho "$0"\n', encoding="utf-8")
    (folder / "bin" / "python").chmod(0o755)
    state = f"{checkout}\n{(ROOT / 'pyproject.toml').read_text(encoding='utf-8')}"
    (folder / "complete").write_text(state, encoding="utf-8")


def test_a_checkout_of_somebody_elses(foreign: Path) -> None:
    """The environment is made in the user's cache, where its Python is asked for first."""
    home = foreign.parent / "home"
    python = foreign.parent / "bin" / "python3.14"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\ncase "$*" in *"-m venv"*) echo "$@" >> {home}/asked; exit 1;; esac\n')
    python.chmod(0o755)
    env = {"PATH": f"{python.parent}:/usr/bin:/bin", "HOME": str(home)}
    done = as_nobody([str(foreign / "scripts" / "tfdoctor"), "version"], env=env)
    assert done.returncode == 3
    folder = Path((home / "asked").read_text(encoding="utf-8").split()[-1])
    assert folder.parent == home / ".cache" / "tfdoctor"
    assert f"private environment in {folder} with" in done.stderr
    assert not (foreign / ".venv-run").exists()
    make_sample(folder, foreign)
    done = as_nobody([str(foreign / "scripts" / "tfdoctor"), "version"], env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{folder}/bin/python\n", "")


def test_one_that_its_owner_has_made_is_everybodys(foreign: Path) -> None:
    foreign.chmod(0o755)
    make_sample(foreign / ".venv-run", foreign)
    foreign.chmod(0o555)
    env = {"PATH": "/usr/bin:/bin", "HOME": str(foreign.parent / "home")}
    done = as_nobody([str(foreign / "scripts" / "tfdoctor"), "version"], env=env)
    assert (done.returncode, done.stdout) == (0, f"{foreign}/.venv-run/bin/python\n")
    assert not (foreign.parent / "home" / ".cache").exists()


def test_no_place_at_all(foreign: Path) -> None:
    env = {"PATH": "/usr/bin:/bin", "HOME": "/nowhere"}
    done = as_nobody([str(foreign / "scripts" / "tfdoctor"), "version"], env=env)
    assert (done.returncode, done.stdout) == (3, "")
    assert f"neither {foreign} nor /nowhere/.cache can be written to" in done.stderr
    assert "hint: name a folder that you may write to: XDG_CACHE_HOME=FOLDER" in done.stderr
