"""What a user adds to an image, on a real engine: packages of an index that needs a login, own code, a compiler.

Opt-in (TFDOCTOR_LAB=1). The index server itself comes from the network, and its tests need a Docker client with BuildKit.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import socket
import subprocess
import sys
import tarfile
import time
import zipfile
from typing import TYPE_CHECKING

import pytest

from lab.images import MARKS, derive_image
from tfdoctor.compat import Compat
from tfdoctor.diagnosis.progress import Progress
from tfdoctor.images.engine import BuildFailedError, EngineError, connect
from tfdoctor.images.engine.app_files import read_app_files
from tfdoctor.images.engine.client_build import find_buildkit_client
from tfdoctor.images.engine.image import BuildSettings, build_image
from tfdoctor.images.index_login import IndexLogin
from tfdoctor.images.write import UserAdditions
from tfdoctor.planning import BaseImage, Option, Recipe, Request, recommend
from tfdoctor.prediction.fit.models import Host

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from lab.engine import LabEngine
    from tfdoctor.images.engine import ContainerEngine

pytestmark = MARKS
PASSWORD = "Zq/7:k@%w pen"  # noqa: S105 - of a server on this machine
FORMS_OF_PASSWORD = (b"Zq/7", b"Zq%2F7", b"Wnev")
"""The password as it is, in a URL, and in Base64 behind "me:"."""
TAG = "tfdoctor-lab/private:1"
COMPILE = """\
#!/bin/sh
echo *
id -u
g++ own.cc -o /tmp/own $(python3.11-config --includes) && /tmp/own && echo "$@"
"""


class Listener(Progress):
    """A progress that keeps all that it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def report_line(self, text: str) -> None:
        self.lines.append(text)

    def begin_step(self, number: int, total: int, text: str) -> None:
        self.lines.append(f"{number}/{total} {text}")

    def report_failure(self, step: str, lines: Sequence[str]) -> None:
        self.lines += [step, *lines]


def write_wheel(folder: Path, name: str) -> None:
    """Write a wheel with one module."""
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", "x = 1\n")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the URL of a package index that answers only with a login."""
    folder = tmp_path_factory.mktemp("index")
    packages = folder / "packages"
    packages.mkdir()
    write_wheel(packages, "tfd_private")
    tools = folder / "tools"
    install = [sys.executable, "-m", "pip", "install", "-q", "--target", str(tools), "pypiserver", "passlib"]
    subprocess.run(install, check=True, timeout=300)
    environment = {**os.environ, "PYTHONPATH": str(tools)}
    hash_script = "import sys; from passlib.hash import sha256_crypt as c; print('me:' + c.hash(sys.argv[1]))"
    (folder / "htpasswd").write_text(
        subprocess.run(
            [sys.executable, "-c", hash_script, PASSWORD],
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        ).stdout,
        encoding="ascii",
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [
            *(sys.executable, "-m", "pypiserver", "run", "--interface", "127.0.0.1", "--port", str(port)),
            *("--passwords", str(folder / "htpasswd"), "--authenticate", "list,download,update"),
            *("--disable-fallback", str(packages)),
        ],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/simple/"
    finally:
        server.terminate()
        server.wait(20)


@pytest.fixture(scope="module")
def buildkit_engine(lab_engine: LabEngine) -> Iterator[ContainerEngine]:
    """Yield the engine, with a client of Docker's that has BuildKit first on PATH; skip if there is none."""
    engine = connect(lab_engine.url)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DOCKER_BUILDKIT", raising=False)
        for folder in (None, "/usr/bin"):
            if folder is not None:
                patch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
            if find_buildkit_client(engine) is not None:
                yield engine
                break
        else:
            pytest.skip("Docker's client has no BuildKit")
    engine.client.close()


@pytest.fixture
def with_buildkit(buildkit_engine: ContainerEngine, monkeypatch: pytest.MonkeyPatch) -> ContainerEngine:
    monkeypatch.delenv("DOCKER_BUILDKIT")
    return buildkit_engine


@pytest.fixture(scope="module")
def base(lab_engine: LabEngine) -> Iterator[str]:
    steps = "RUN rm /usr/lib/python3*/EXTERNALLY-MANAGED"
    name = derive_image(
        lab_engine.url, lab_engine.make_base_image("bookworm"), "tfdoctor-lab/python:1", steps
    )
    yield name
    lab_engine.docker("rmi", "--force", name, TAG, check=False)


def build_small_image(
    engine: ContainerEngine,
    base: str,
    listener: Listener,
    additions: UserAdditions,
    login: IndexLogin | None = None,
) -> None:
    """Build an image with the additions and nothing else: NVIDIA's recipe adds no TensorFlow."""
    option = recommend(Compat.load(), Request(tensorflow="2.17", recipe=Recipe.NGC), Host()).options[0]
    assert isinstance(option, Option)
    option = dataclasses.replace(option, python="3.11", base=BaseImage(base, "debian 12", "python3"))
    settings = BuildSettings(TAG, network="host", no_cache=True, login=login)
    build_image(engine, option, additions, settings, listener, is_custom_base=False)


def build_private_image(
    engine: ContainerEngine, base: str, login: IndexLogin, listener: Listener, *packages: str
) -> None:
    """Build an image with packages of the index."""
    additions = UserAdditions(packages, index_url=login.index_url, index_needs_login=True)
    build_small_image(engine, base, listener, additions, login)


def assert_no_password(content: bytes, source: str) -> None:
    assert [form for form in FORMS_OF_PASSWORD if form in content] == [], source


def test_password_is_in_no_layer_and_no_log(
    with_buildkit: ContainerEngine, lab_engine: LabEngine, base: str, index: str
) -> None:
    listener = Listener()
    build_private_image(with_buildkit, base, IndexLogin(index, "me", PASSWORD), listener, "tfd-private")
    run = lab_engine.docker("run", "--rm", TAG, "python3", "-c", "import tfd_private; print(tfd_private.x)")
    assert run.stdout == "1\n"
    assert any("tfd" in line for line in listener.lines)
    assert_no_password("\n".join(listener.lines).encode(), "progress")
    for arguments in (("history", "--no-trunc", TAG), ("image", "inspect", TAG)):
        assert_no_password(lab_engine.docker(*arguments).stdout.encode(), arguments[0])
    assert_no_password((lab_engine.folder / "dockerd.log").read_bytes(), "the engine's log")
    names = []
    with tarfile.open(fileobj=io.BytesIO(b"".join(with_buildkit.client.api.get_image(TAG)))) as image:
        for member in image.getmembers():
            content = image.extractfile(member)
            if content is None:
                continue
            data = content.read()
            assert_no_password(data, member.name)  # the layers are not compressed
            if member.name.endswith("layer.tar"):
                with tarfile.open(fileobj=io.BytesIO(data)) as layer:
                    names += layer.getnames()
    assert any("tfd_private" in name for name in names)
    assert not any("pip.conf" in name for name in names)


def test_wrong_password_fails_and_is_not_shown(with_buildkit: ContainerEngine, base: str, index: str) -> None:
    listener = Listener()
    with pytest.raises(BuildFailedError) as failure:
        build_private_image(
            with_buildkit, base, IndexLogin(index, "me", f"{PASSWORD}x"), listener, "tfd-private"
        )
    text = "\n".join((failure.value.message, failure.value.hint, *failure.value.output, *listener.lines))
    assert_no_password(text.encode(), "the error")
    assert "refuses the login" in failure.value.hint


def test_classic_builder_is_refused(buildkit_engine: ContainerEngine, base: str, index: str) -> None:
    """DOCKER_BUILDKIT=0 selects it."""
    with pytest.raises(EngineError) as failure:
        build_private_image(
            buildkit_engine, base, IndexLogin(index, "me", PASSWORD), Listener(), "tfd-private"
        )
    assert "classic builder would store the password" in failure.value.message


@pytest.mark.usefixtures("buildkit_engine")
@pytest.mark.parametrize("builder", ["classic", "BuildKit"])
def test_own_code_runs_and_compiles(
    lab_engine: LabEngine, base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, builder: str
) -> None:
    """The entrypoint is a script of the user's, which compiles an extension with the image's compiler."""
    (tmp_path / "run.sh").write_text(COMPILE, encoding="ascii")
    (tmp_path / "run.sh").chmod(0o755)
    (tmp_path / "own.cc").write_text("#include <Python.h>\nint main() { return PY_MAJOR_VERSION - 3; }\n")
    (tmp_path / "secret.txt").write_text("x", encoding="ascii")
    (tmp_path / ".dockerignore").write_text("secret.txt\n", encoding="ascii")
    if builder == "BuildKit":
        monkeypatch.delenv("DOCKER_BUILDKIT")
    engine = connect(lab_engine.url)
    additions = UserAdditions(
        has_compilers=True, app=read_app_files(tmp_path), entrypoint=("./run.sh", "compiled in")
    )
    try:
        build_small_image(engine, base, Listener(), additions)
    finally:
        engine.client.close()
    run = lab_engine.docker("run", "--rm", TAG, "argument", check=False)
    assert run.stdout.splitlines() == ["own.cc run.sh", "1000", "compiled in argument"], run.stderr
