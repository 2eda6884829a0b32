"""Tests of `tfdoctor build` under faults: failing registries, a full disk, an engine that dies.

Most registry tests need any engine that answers; tests that may damage the engine need the lab.
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

from images.engine.conftest import containers_of
from lab.engine import Unavailable
from lab.engine import run_engine as private_engine
from lab.small import make_small_root
from tfdoctor.images.engine import BuildFailedError, BuildRequest, EngineError, build, connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lab.engine import LabEngine
    from tfdoctor.images.engine import ContainerEngine

TAG = "tfdoctor-test/faults:1"


class Registry:
    """A registry on loopback that cuts off its layer in the middle.

    `manifest` answers requests for manifests; if it is None, the registry sends its own.
    """

    def __init__(self, manifest: Callable[[http.server.BaseHTTPRequestHandler], None] | None) -> None:
        registry = self
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

        class FaultyHandler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do_HEAD(self) -> None:
                self.do_GET()

            def do_GET(self) -> None:
                if self.path == "/v2/":
                    send_answer(self, 200, b"{}")
                elif "/manifests/" in self.path:
                    if manifest is not None:
                        manifest(self)
                    else:
                        send_answer(
                            self,
                            200,
                            registry.manifest,
                            Content_Type=kind,
                            Docker_Content_Digest=digest(registry.manifest),
                        )
                else:
                    self.blob(registry.blobs[self.path.rpartition("/")[2]])

            def blob(self, content: bytes) -> None:
                complete = content is not registry.layer
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content if complete else content[: len(content) // 2])
                if not complete:
                    registry.cut += 1
                    self.close_connection = True
                    self.connection.shutdown(2)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), FaultyHandler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.name = f"localhost:{self.server.server_address[1]}/corp/base:1"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def send_answer(
    handler: http.server.BaseHTTPRequestHandler, status: int, body: bytes = b"{}", **headers: str
) -> None:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(body)


def tfdoctor_build(url: str, base: str, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    (folder / "scratch").mkdir()
    options = (
        "--tf",
        "2.20",
        "--python-version",
        "3.11",
        "--anywhere",
        "--no-verify",
        "--tag",
        TAG,
        "--base",
        base,
    )
    environment = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    return subprocess.Popen(
        [sys.executable, "-m", "tfdoctor", "build", *options, *arguments],
        env={**environment, "DOCKER_HOST": url, "TMPDIR": str(folder / "scratch")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def check_failure(process: subprocess.Popen[str], folder: Path, seconds: float = 100) -> str:
    """Return stderr; assert exit code 3, no traceback and no temporary files."""
    with process:
        stdout, stderr = process.communicate(timeout=seconds)
    assert (process.returncode, stdout) == (3, ""), stderr
    assert "Traceback" not in stderr
    assert list((folder / "scratch").iterdir()) == []
    return stderr


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
def test_registry_refusal_is_explained(
    engine: ContainerEngine,
    small: str,
    nothing_left: None,
    tmp_path: Path,
    status: int,
    headers: dict[str, str],
    said: str,
) -> None:
    registry = Registry(lambda handler: send_answer(handler, status, **headers))
    try:
        stderr = check_failure(tfdoctor_build(engine.url, registry.name, tmp_path), tmp_path)
    finally:
        registry.close()
    assert said in stderr
    assert registry.name in stderr
    assert "--base" in stderr
    assert engine.find_image(TAG) is None


def test_registry_server_error_is_reported(
    engine: ContainerEngine, small: str, nothing_left: None, tmp_path: Path
) -> None:
    registry = Registry(lambda handler: send_answer(handler, 500, b"<html>\x1b[31moops"))
    try:
        stderr = check_failure(tfdoctor_build(engine.url, registry.name, tmp_path), tmp_path)
    finally:
        registry.close()
    assert f"pulling {registry.name}" in stderr
    assert "\x1b" not in stderr


def test_unreachable_registry_is_reported(
    engine: ContainerEngine, small: str, nothing_left: None, tmp_path: Path
) -> None:
    stderr = check_failure(tfdoctor_build(engine.url, "localhost:1/corp/base:1", tmp_path), tmp_path)
    assert "the registry localhost:1 does not answer" in stderr
    assert "--registry MIRROR" in stderr


def test_connection_lost_during_a_layer_is_reported(
    engine: ContainerEngine, lab_engine: LabEngine, small: str, nothing_left: None, tmp_path: Path
) -> None:
    """The lab's engine tries once; other engines retry for a minute or more."""
    registry = Registry(None)
    try:
        stderr = check_failure(tfdoctor_build(lab_engine.url, registry.name, tmp_path), tmp_path, 250)
    finally:
        registry.close()
    assert registry.cut
    assert f"pulling {registry.name}" in stderr
    assert engine.find_image(registry.name) is None


# ---------------------------------------------------------------- a full disk and a killed engine


@pytest.fixture
def tiny_disk(lab_engine: LabEngine, tmp_path: Path) -> Iterator[LabEngine]:
    """Yield an engine whose images are on a file system of 300 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=300m", "tmpfs", str(disk)],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    )
    if mount.returncode:
        pytest.skip(f"no tmpfs can be mounted: {mount.stderr}")
    try:
        with private_engine(cache=lab_engine.cache, data=disk) as private:
            yield private
    except Unavailable as reason:
        pytest.skip(str(reason))
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)  # noqa: S607


def test_full_disk_of_the_engine_is_reported(tiny_disk: LabEngine) -> None:
    engine = connect(tiny_disk.url)
    engine.client.api.import_image_from_data(make_small_root(), repository="small", tag="1")
    for steps, files in (
        ("RUN dd if=/dev/zero of=/big bs=1000000 count=400\n", {}),
        ("COPY big /big\nCOPY big /big2\nCOPY big /big3\n", {"big": os.urandom(100_000_000)}),
    ):
        with pytest.raises((BuildFailedError, EngineError)) as caught:
            list(build(engine, BuildRequest(f"FROM small:1\n{steps}", files, TAG)))
        assert "disk is full" in caught.value.hint
        assert "docker builder prune" in caught.value.hint
        assert containers_of(engine, "small:1") == []
        assert engine.find_image(TAG) is None
    engine.client.close()


def test_engine_killed_during_a_build_is_reported(lab_engine: LabEngine, tmp_path: Path) -> None:
    try:
        with private_engine(cache=lab_engine.cache) as private:
            engine = connect(private.url)
            engine.client.api.import_image_from_data(make_small_root(), repository="small", tag="1")
            steps = "COPY apt-get /usr/bin/apt-get\nRUN python3 -c \"import os; os.chmod('/usr/bin/apt-get', 0o755)\"\n"
            script = b"#!/bin/sh\nsleep 100\n"
            list(build(engine, BuildRequest(f"FROM small:1\n{steps}", {"apt-get": script}, "slow:1")))
            process = tfdoctor_build(private.url, "slow:1", tmp_path, "-v", "--network", "none")
            deadline = time.monotonic() + 60
            while not any("no-install" in name for name in containers_of(engine, "small:1")):
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < deadline
                time.sleep(0.1)
            engine.client.close()
            assert private.process is not None
            private.process.kill()
            stderr = check_failure(process, tmp_path)
    except Unavailable as reason:
        pytest.skip(str(reason))
    assert "building the image" in stderr
    assert "the engine went away" in stderr.lower()
