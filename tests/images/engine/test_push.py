"""Tests of pushing an image to a registry (Debian's docker-registry on loopback) and of pinning a base by digest."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from images.engine.conftest import PREFIX
from tfdoctor.compat import Compat
from tfdoctor.diagnosis.progress import Progress
from tfdoctor.images.engine import BuildRequest, EngineError, build, query_registry
from tfdoctor.images.engine.image import pin_base
from tfdoctor.images.engine.push import parse_push_messages, push
from tfdoctor.planning import Method, Recipe, Request
from tfdoctor.planning.arguments import make_plan
from tfdoctor.prediction.fit.models import Host

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdoctor.images.engine import ContainerEngine

DIGEST = f"sha256:{'b' * 64}"
CONFIG = """\
version: 0.1
log: {{level: error}}
storage: {{filesystem: {{rootdirectory: {folder}}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""


def find_free_port() -> int:
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture(scope="module")
def registry(engine: ContainerEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip("docker-registry is not installed")
    if not engine.url.startswith("unix://"):
        pytest.skip("the engine has another loopback")
    folder, port = tmp_path_factory.mktemp("registry"), find_free_port()
    (folder / "config.yml").write_text(CONFIG.format(folder=folder / "data", port=port), encoding="ascii")
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(
            [program, "serve", str(folder / "config.yml")],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "OTEL_TRACES_EXPORTER": "none"},
        ) as process,
    ):
        try:
            deadline = time.monotonic() + 30
            while query_registry(f"127.0.0.1:{port}/none:1").state == "unreachable":
                assert process.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.1)
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(30)


def test_pushed_image_is_in_the_registry(engine: ContainerEngine, small: str, registry: str) -> None:
    tag = f"{registry}/{PREFIX}/pushed:1"
    list(build(engine, BuildRequest(f"FROM {small}\nRUN echo 1 >/one\n", {}, tag)))
    try:
        digest = push(engine, tag, Progress())
        answer = query_registry(tag)
        image = engine.find_image(tag)
    finally:
        engine.remove_image(tag, force=True)
    assert (answer.state, answer.digest) == ("there", digest)
    assert image is not None
    assert image.digests == (f"{registry}/{PREFIX}/pushed@{digest}",)


def test_base_is_pinned_to_its_digest(engine: ContainerEngine, slow_base: str, registry: str) -> None:
    """`build` does this if the engine has the base from a registry; plain Docker accepts the name."""
    tag = f"{registry}/{PREFIX}/base:1"
    engine.client.api.tag(slow_base, tag.rpartition(":")[0], "1")
    request = Request("2.15.1", "3.11", method=Method.CONTAINER, recipe=Recipe.PIP_CUDA, base=tag)
    option = make_plan(Compat.load(), request, Host()).options[0]
    try:
        assert pin_base(engine, option) == option, "no registry has it yet"
        digest = push(engine, tag, Progress())
        pinned = pin_base(engine, option)
        assert pinned.base is not None
        assert pinned.base.reference == f"{tag}@{digest}"
        assert pin_base(engine, pinned) == pinned
        image_name = f"{PREFIX}/on:1"
        list(build(engine, BuildRequest(f"FROM {pinned.base.reference}\nRUN echo 2 >/two\n", {}, image_name)))
        assert engine.remove_image(image_name, force=True)
    finally:
        engine.remove_image(tag, force=True)


def test_push_to_a_missing_registry_raises(engine: ContainerEngine, small: str) -> None:
    tag = f"127.0.0.1:{find_free_port()}/{PREFIX}/none:1"
    engine.client.api.tag(small, tag.rpartition(":")[0], "1")
    try:
        with pytest.raises(EngineError, match=f"pushing {tag}"):
            push(engine, tag, Progress())
    finally:
        engine.remove_image(tag, force=True)


def test_push_of_a_missing_image_raises(engine: ContainerEngine) -> None:
    with pytest.raises(EngineError):
        push(engine, f"127.0.0.1:1/{PREFIX}/none:9", Progress())


def test_digest_is_read_from_the_push_events() -> None:
    events = [{"status": "Pushing", "id": "ab", "progressDetail": {"current": 1, "total": 2}}]
    docker = [{"aux": {"Tag": "1", "Digest": DIGEST, "Size": 5}}]
    podman = [{"status": f"1: digest: {DIGEST} size: 5"}]
    assert parse_push_messages([*events, *docker], "x:1", Progress()) == DIGEST
    assert parse_push_messages([*events, *podman], "x:1", Progress()) == DIGEST
    with pytest.raises(EngineError, match="did not report"):
        parse_push_messages(events, "x:1", Progress())
    with pytest.raises(EngineError, match="denied") as caught:
        parse_push_messages(
            [{"error": "denied: requested access to the resource is denied"}], "x:1", Progress()
        )
    assert "docker login" in caught.value.hint
