"""`tfdoctor build` when the world breaks: registries that refuse or hang up, a full disk, an engine that dies.

The first are always on where an engine answers; what needs an engine that may be harmed is on with the lab.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from engine.conftest import containers_of
from lab.engine import Unavailable
from lab.engine import engine as private_engine
from lab.small import small_root
from tfdoctor.engine import BuildFailedError, BuildRequest, EngineError, build, connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lab.engine import LabEngine
    from tfdoctor.engine import ContainerEngine

TAG = "tfdoctor-test/faults:1"


class Registry:
    """A registry on loopback; `manifest` decides about manifests, blobs break off in the middle."""

    def __init__(self, manifest: Callable[[http.server.BaseHTTPRequestHandler], None] | None) -> None:
        outer = self
        self.layer = b"x" * 5_000_000
        config = json.dumps(
            {
                "architecture": "amd64",
                "os": "linux",
                "rootfs": {"type": "layers", "diff_ids": [digest(self.layer)]},
            }
        ).encode()
        self.blobs = {digest(config): config, digest(self.layer): self.layer}
        kind = "application/vnd.docker.distribution.manifest.v2+json"
        self.manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": kind,
                "config": {
                    "mediaType": "application/vnd.docker.container.image.v1+json",
                    "size": len(config),
                    "digest": digest(config),
                },
                "layers": [
                    {
                        "mediaType": "application/vnd.docker.image.rootfs.diff.tar.gzip",
                        "size": len(self.layer),
                        "digest": digest(self.layer),
                    }
                ],
            }
        ).encode()
        self.cut = 0

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do_HEAD(self) -> None:
                self.do_GET()

            def do_GET(self) -> None:
                if self.path == "/v2/":
                    answer(self, 200, b"{}")
                elif "/manifests/" in self.path:
                    if manifest is not None:
                        manifest(self)
                    else:
                        answer(
                            self,
                            200,
                            outer.manifest,
                            Content_Type=kind,
                            Docker_Content_Digest=digest(outer.manifest),
                        )
                else:
                    self.blob(outer.blobs[self.path.rpartition("/")[2]])

            def blob(self, content: bytes) -> None:
                whole = content is not outer.layer
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content if whole else content[: len(content) // 2])
                if not whole:
                    outer.cut += 1
                    self.close_connection = True
                    self.connection.shutdown(2)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.name = f"localhost:{self.server.server_address[1]}/corp/base:1"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def answer(to: http.server.BaseHTTPRequestHandler, status: int, body: bytes = b"{}", **headers: str) -> None:
    to.send_response(status)
    for name, value in headers.items():
        to.send_header(name.replace("_", "-"), value)
    to.send_header("Content-Length", str(len(body)))
    to.end_headers()
    if to.command != "HEAD":
        to.wfile.write(body)


def tfdoctor_build(url: str, base: str, folder: Path, *words: str) -> subprocess.Popen[str]:
    (folder / "scratch").mkdir()
    options = ("--tf", "2.20", "--python", "3.11", "--anywhere", "--no-verify", "--tag", TAG, "--base", base)
    environment = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    return subprocess.Popen(
        [sys.executable, "-m", "tfdoctor", "build", *options, *words],
        env={**environment, "DOCKER_HOST": url, "TMPDIR": str(folder / "scratch")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def check_failure(process: subprocess.Popen[str], folder: Path, seconds: float = 100) -> str:
    """What it said; it ended with 3, without a traceback and without temporary files."""
    with process:
        out, said = process.communicate(timeout=seconds)
    assert (process.returncode, out) == (3, ""), said
    assert "Traceback" not in said
    assert list((folder / "scratch").iterdir()) == []
    return said


# ---------------------------------------------------------------- registries


@pytest.mark.parametrize(
    ("status", "headers", "said"),
    [
        (404, {}, "is not in the registry"),
        (401, {"WWW_Authenticate": 'Basic realm="corp"'}, "docker login localhost"),
        (403, {}, "docker login localhost"),
        (429, {"Retry_After": "600"}, "asks to wait 600 seconds"),
    ],
)
def test_a_registry_that_refuses(
    engine: ContainerEngine,
    small: str,
    nothing_left: None,
    tmp_path: Path,
    status: int,
    headers: dict[str, str],
    said: str,
) -> None:
    registry = Registry(lambda to: answer(to, status, **headers))
    try:
        told = check_failure(tfdoctor_build(engine.url, registry.name, tmp_path), tmp_path)
    finally:
        registry.close()
    assert said in told
    assert registry.name in told
    assert "--base" in told
    assert engine.image(TAG) is None


def test_a_registry_with_trouble_of_its_own(
    engine: ContainerEngine, small: str, nothing_left: None, tmp_path: Path
) -> None:
    registry = Registry(lambda to: answer(to, 500, b"<html>\x1b[31moops"))
    try:
        told = check_failure(tfdoctor_build(engine.url, registry.name, tmp_path), tmp_path)
    finally:
        registry.close()
    assert f"pulling {registry.name}" in told
    assert "\x1b" not in told


def test_nobody_serves_the_registry(
    engine: ContainerEngine, small: str, nothing_left: None, tmp_path: Path
) -> None:
    told = check_failure(tfdoctor_build(engine.url, "localhost:1/corp/base:1", tmp_path), tmp_path)
    assert "the registry localhost:1 does not answer" in told
    assert "--registry MIRROR" in told


def test_the_network_is_cut_in_the_middle_of_a_layer(
    engine: ContainerEngine, lab_engine: LabEngine, small: str, nothing_left: None, tmp_path: Path
) -> None:
    """The lab's engine tries once; others try for a minute and more."""
    registry = Registry(None)
    try:
        told = check_failure(tfdoctor_build(lab_engine.url, registry.name, tmp_path), tmp_path, 250)
    finally:
        registry.close()
    assert registry.cut
    assert f"pulling {registry.name}" in told
    assert engine.image(registry.name) is None


# ---------------------------------------------------------------- engines that may be harmed


@pytest.fixture
def tiny_disk(lab_engine: LabEngine, tmp_path: Path) -> Iterator[LabEngine]:
    """An engine whose images lie on a file system of 300 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=300m", "tmpfs", str(disk)],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted: {mounted.stderr}")
    try:
        with private_engine(cache=lab_engine.cache, data=disk) as one:
            yield one
    except Unavailable as why:
        pytest.skip(str(why))
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)  # noqa: S607


def test_the_engines_disk_is_full(tiny_disk: LabEngine) -> None:
    engine = connect(tiny_disk.url)
    engine.client.api.import_image_from_data(small_root(), repository="small", tag="1")
    for steps, files in (
        ("RUN dd if=/dev/zero of=/big bs=1000000 count=400\n", {}),
        ("COPY big /big\nCOPY big /big2\nCOPY big /big3\n", {"big": os.urandom(100_000_000)}),
    ):
        with pytest.raises((BuildFailedError, EngineError)) as caught:
            list(build(engine, BuildRequest(f"FROM small:1\n{steps}", files, TAG)))
        assert "disk is full" in caught.value.hint
        assert "docker builder prune" in caught.value.hint
        assert containers_of(engine, "small:1") == []
        assert engine.image(TAG) is None
    engine.client.close()


def test_the_engine_dies_in_the_middle_of_a_build(lab_engine: LabEngine, tmp_path: Path) -> None:
    try:
        with private_engine(cache=lab_engine.cache) as one:
            engine = connect(one.url)
            engine.client.api.import_image_from_data(small_root(), repository="small", tag="1")
            steps = "COPY apt-get /usr/bin/apt-get\nRUN python3 -c \"import os; os.chmod('/usr/bin/apt-get', 0o755)\"\n"
            script = b"#!/bin/sh\nsleep 100\n"
            list(build(engine, BuildRequest(f"FROM small:1\n{steps}", {"apt-get": script}, "slow:1")))
            process = tfdoctor_build(one.url, "slow:1", tmp_path, "-v", "--network", "none")
            deadline = time.monotonic() + 60
            while not any("no-install" in name for name in containers_of(engine, "small:1")):
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < deadline
                time.sleep(0.1)
            engine.client.close()
            assert one.process is not None
            one.process.kill()
            told = check_failure(process, tmp_path)
    except Unavailable as why:
        pytest.skip(str(why))
    assert "building the image" in told
    assert "the engine went away" in told.lower()
