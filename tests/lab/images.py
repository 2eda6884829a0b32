"""Shared parts of the tests of real images: marks, engines, the command line of tfdoctor, and base images."""

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
from lab.engine import run_podman
from tfdoctor.images.engine import BuildRequest, build, connect

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
        not environments.is_lab_enabled(),
        reason="set TFDOCTOR_LAB=1 to build real images (gigabytes, minutes)",
    ),
]
CUDA_10_0 = (
    *(f"lib{name}.so.10.0" for name in ("cudart", "cublas", "cufft", "curand", "cusolver", "cusparse")),
    "libcudnn.so.7",
)
LAB_BUILD_OPTIONS = ("--anywhere", "--network", "host", "--ca-cert", CERTIFICATES, "--no-verify")
"""Options that `tfdoctor build` needs in the lab, besides a base image."""


def tfdoctor(url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tfdoctor", *arguments],
        env={**os.environ, "DOCKER_HOST": url},
        capture_output=True,
        text=True,
        check=False,
        timeout=2400,
    )


def verify(url: str, image: str, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Run `tfdoctor verify` and return the exit status and the answer."""
    done = tfdoctor(url, "verify", image, "--json", *arguments)
    assert done.returncode in (0, 1), done.stdout[-2000:] + done.stderr[-2000:]
    return done.returncode, json.loads(done.stdout)


def find_failed_stage(answer: dict[str, Any]) -> tuple[str, str]:
    """Return (stage, detail) of the first failed stage."""
    return next((stage["name"], stage["detail"]) for stage in answer["stages"] if stage["status"] == "failed")


def find_status(answer: dict[str, Any], name: str) -> str:
    return str(next(stage["status"] for stage in answer["stages"] if stage["name"] == name))


@dataclass(frozen=True)
class ImageEngine:
    """An engine with at least one GPU, and its own client."""

    program: str
    """"docker" or "podman"."""
    url: str
    client: Callable[..., subprocess.CompletedProcess[str]]
    """A function that runs the client; it raises if that fails, unless `check=False`."""
    base: Callable[[str], str]
    """A function from a release of Debian to the name of its image."""
    cache: Path
    prefix: str = ""
    """Prefix of the names of images that are built here."""

    def make_image_name(self, name: str) -> str:
        return f"{self.prefix}tfdoctor-lab/{name}"

    def remove(self, *tags: str) -> None:
        """Remove images and the leftovers of their builds, because disks are small."""
        self.client("rmi", "--force", *tags, check=False)
        self.client("image", "prune", "--force", check=False)


def make_docker_engine(lab: LabEngine) -> ImageEngine:
    return ImageEngine("docker", lab.url, lab.docker, lab.make_base_image, lab.cache)


@contextlib.contextmanager
def run_podman_engine(cache: Path, gpus: int = 1) -> Iterator[ImageEngine]:
    """Run a private Podman while the block runs. Raise Unavailable."""
    with run_podman(cache=cache, gpus=gpus) as lab:
        yield ImageEngine("podman", lab.url, lab.podman, lab.base, cache, "localhost/")


@dataclass(frozen=True)
class BuiltImage:
    """An image that `build` created."""

    tag: str
    size: int
    seconds: float


def make(url: str, tag: str, *arguments: str) -> BuiltImage:
    began = time.monotonic()
    done = tfdoctor(url, "build", "--tag", tag, *LAB_BUILD_OPTIONS, "--json", *arguments)
    seconds = time.monotonic() - began
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    answer = json.loads(done.stdout)
    assert answer["image"]["tags"] == [tag]
    return BuiltImage(tag, answer["image"]["size_bytes"], seconds)


def derive_image(url: str, base: str, tag: str, steps: str, files: Mapping[str, bytes] | None = None) -> str:
    """Build an image from another one and return its name."""
    engine = connect(url)
    try:
        list(build(engine, BuildRequest(f"FROM {base}\nUSER root\n{steps}\n", files or {}, tag)))
    finally:
        engine.client.close()
    return tag


def make_cuda_10_image(ground: ImageEngine, folder: Path, objects: Sequence[Path] = ()) -> str:
    """Build a Debian with stand-ins of CUDA 10.0, laid out as in TensorFlow's own images, and return its name.

    The stand-ins have the functions that `objects` are linked with.
    """
    symbols_by_library = standins.find_imported_symbols(objects)
    files = {}
    for name in CUDA_10_0:
        symbols = symbols_by_library.get(name.partition(".so")[0], ())
        files[name] = standins.write_library(
            folder / name, ground.cache / "compiled", symbols=symbols
        ).read_bytes()
    steps = "COPY *.so.* /usr/local/cuda-10.0/lib64/\nRUN echo /usr/local/cuda-10.0/lib64 >/etc/ld.so.conf.d/c.conf"
    name = ground.make_image_name("cuda10:2" if objects else "cuda10:1")
    return derive_image(ground.url, ground.base("bullseye"), name, f"{steps} && ldconfig", files)
