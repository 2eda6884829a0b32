"""What the tests of real images share: when they run, the engines, how `tfdoctor` is asked, images to begin with."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from lab import environments, standins
from lab.engine import podman
from tfdoctor.engine import BuildRequest, build, connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from lab.engine import LabEngine

CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
MARKS = [
    pytest.mark.engine,
    pytest.mark.tensorflow,
    pytest.mark.timeout(3000),
    pytest.mark.skipif(
        not environments.parse_wanted(),
        reason="set TFDOCTOR_LAB=1 to build real images (gigabytes, minutes)",
    ),
]
CUDA_10_0 = (
    *(f"lib{name}.so.10.0" for name in ("cudart", "cublas", "cufft", "curand", "cusolver", "cusparse")),
    "libcudnn.so.7",
)
HERE = ("--anywhere", "--network", "host", "--ca-cert", CERTIFICATES, "--no-verify")
"""What a `tfdoctor build` needs in the lab, beside a base that is there."""


def tfdoctor(url: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tfdoctor", *words],
        env={**os.environ, "DOCKER_HOST": url},
        capture_output=True,
        text=True,
        check=False,
        timeout=2400,
    )


def verify(url: str, image: str, *words: str) -> tuple[int, dict[str, Any]]:
    """(exit status, answer)."""
    done = tfdoctor(url, "verify", image, "--json", *words)
    assert done.returncode in (0, 1), done.stdout[-2000:] + done.stderr[-2000:]
    return done.returncode, json.loads(done.stdout)


def first_failed(answer: dict[str, Any]) -> tuple[str, str]:
    """(stage, detail)."""
    return next((one["name"], one["detail"]) for one in answer["stages"] if one["status"] == "failed")


def status(answer: dict[str, Any], name: str) -> str:
    return str(next(one["status"] for one in answer["stages"] if one["name"] == name))


@dataclass(frozen=True)
class Ground:
    """An engine with one GPU or more, and its own client."""

    program: str
    """docker or podman."""
    url: str
    client: Callable[..., subprocess.CompletedProcess[str]]
    """Its words → how it ended; raises where it fails, unless `check=False`."""
    base: Callable[[str], str]
    """A release of Debian → the name of an image of it."""
    cache: Path
    prefix: str = ""
    """Of the names of images that are made here."""

    def list_named(self, name: str) -> str:
        return f"{self.prefix}tfdoctor-lab/{name}"

    def remove(self, *tags: str) -> None:
        """With what the builds of them have left: disks are small."""
        self.client("rmi", "--force", *tags, check=False)
        self.client("image", "prune", "--force", check=False)


def docker_ground(lab: LabEngine) -> Ground:
    return Ground("docker", lab.url, lab.docker, lab.base, lab.cache)


@contextlib.contextmanager
def podman_ground(cache: Path, gpus: int = 1) -> Iterator[Ground]:
    """Raises Unavailable."""
    with podman(cache=cache, gpus=gpus) as one:
        yield Ground("podman", one.url, one.podman, one.base, cache, "localhost/")


@dataclass(frozen=True)
class Built:
    """An image, and what `build` said of it."""

    tag: str
    size: int
    seconds: float


def make(url: str, tag: str, *words: str) -> Built:
    began = time.monotonic()
    done = tfdoctor(url, "build", "--tag", tag, *HERE, "--json", *words)
    seconds = time.monotonic() - began
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    answer = json.loads(done.stdout)
    assert answer["image"]["tags"] == [tag]
    return Built(tag, answer["image"]["size_bytes"], seconds)


def derived(url: str, base: str, tag: str, steps: str, files: Mapping[str, bytes] | None = None) -> str:
    """The name of an image that goes on from another one."""
    engine = connect(url)
    try:
        list(build(engine, BuildRequest(f"FROM {base}\nUSER root\n{steps}\n", files or {}, tag)))
    finally:
        engine.client.close()
    return tag


def with_cuda_10(ground: Ground, folder: Path, objects: Sequence[Path] = ()) -> str:
    """The name of a Debian with stand-ins of CUDA 10.0, as in TensorFlow's own images; with the functions that
    `objects` are linked with."""
    wanted = standins.wanted_symbols(objects)
    files = {}
    for name in CUDA_10_0:
        symbols = wanted.get(name.partition(".so")[0], ())
        files[name] = standins.library(folder / name, ground.cache / "compiled", symbols=symbols).read_bytes()
    steps = "COPY *.so.* /usr/local/cuda-10.0/lib64/\nRUN echo /usr/local/cuda-10.0/lib64 >/etc/ld.so.conf.d/c.conf"
    name = ground.list_named("cuda10:2" if objects else "cuda10:1")
    return derived(ground.url, ground.base("bullseye"), name, f"{steps} && ldconfig", files)
