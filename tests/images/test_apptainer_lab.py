"""Tests of Apptainer definitions, which run like in Apptainer on small systems in folders, without an engine.

Opt-in, like all tests that need real wheels (TFDOCTOR_LAB=1); root is required. The CUDA libraries and the driver are
stand-ins.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab import environments, standins
from lab.engine import Unavailable, cache_folder, make_debian_tar
from lab.images import CERTIFICATES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Prepare = Callable[[Path], None]

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        not environments.is_lab_enabled(),
        reason="set TFDOCTOR_LAB=1 to carry out definitions (half a gigabyte each)",
    ),
    pytest.mark.skipif(
        not hasattr(os, "geteuid") or os.geteuid() != 0, reason="a system in a folder needs root"
    ),
]

CUDA_10_0 = (
    *(f"lib{name}.so.10.0" for name in ("cudart", "cublas", "cufft", "curand", "cusolver", "cusparse")),
    "libcudnn.so.7",
)
LIST_GPUS = (
    "from tensorflow.python.client import device_lib as d; import tensorflow as tf; "
    "print(tf.__version__, tf.test.is_built_with_cuda(), tf.config.experimental.list_physical_devices('GPU'))"
)
MICROMAMBA = """#!/bin/sh
# A stand-in: what it is told is kept, and the libraries come from a folder.
echo "$CONDA_OVERRIDE_CUDA $*" >/told
while [ "$1" != --prefix ]; do shift; done
install -d "$2/lib" && cp -a /stand-ins/* "$2/lib/" && touch "$2/lib/libnvrtc.so.10.0"
"""


def _find_tool(name: str) -> str:
    path = shutil.which(name)
    assert path is not None, name
    return path


class System:
    """A small system in a folder, like that of a container."""

    def __init__(self, root: Path, archive: Path) -> None:
        self.root = root
        root.mkdir()
        subprocess.run([_find_tool("tar"), "-C", str(root), "-xf", str(archive)], check=True)
        shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")

    def run(self, script: str, *options: str) -> str:
        """Run a script in the system's shell and return its output; mounts are private and end with the script."""
        (self.root / "script").write_text(script, encoding="utf-8")
        command = 'mount -t proc proc "$0/proc" && exec chroot "$0" /bin/sh "$@" /script'
        result = subprocess.run(
            [_find_tool("unshare"), "--mount", "--fork", "sh", "-c", command, str(self.root), *options],
            env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"},
            capture_output=True,
            text=True,
            check=False,
            timeout=1200,
        )
        assert result.returncode == 0, result.stdout[-1000:] + result.stderr[-3000:]
        return result.stdout


def run_definition(definition: str, folder: Path, bases: Mapping[str, tuple[Path, Prepare]]) -> System:
    """Return the system that a definition builds.

    `bases` maps the start of an image's name to the archive that stands in for it and a function that prepares it.
    """
    stages: dict[str, System] = {}
    for number, text in enumerate(re.split(r"^(?=Bootstrap: docker$)", definition, flags=re.MULTILINE)[1:]):
        head, *rest = re.split(r"^%", text, flags=re.MULTILINE)
        header = dict(line.split(": ", 1) for line in head.splitlines() if line)
        sections = {name: body for name, _, body in (section.partition("\n") for section in rest)}
        archive, prepare = next(base for name, base in bases.items() if header["From"].startswith(name))
        system = System(folder / f"system-{number}", archive)
        prepare(system.root)
        for name, body in sections.items():
            if name.startswith("files from "):
                for line in body.split("\n"):
                    if line.strip():
                        source, target = line.split()
                        origin = stages[name.removeprefix("files from ")].root
                        shutil.copytree(
                            origin / source.lstrip("/"), system.root / target.lstrip("/"), symlinks=True
                        )
        system.run(sections["post"], "-ex")
        for name in ("environment", "runscript"):
            (system.root / name).write_text(sections.get(name, ""), encoding="utf-8")
        stages[header.get("Stage", "image")] = system
    return system


def make_definition(*arguments: str) -> str:
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "tfdoctor",
            "build",
            *arguments,
            "--ca-cert",
            CERTIFICATES,
            "--emit",
            "apptainer",
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return result.stdout


@pytest.fixture
def archive(request: pytest.FixtureRequest) -> Path:
    try:
        return make_debian_tar(request.param, cache_folder())
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for system_folder in tmp_path.glob("system-*"):
        shutil.rmtree(system_folder, ignore_errors=True)


def list_gpus(system: System, cache: Path) -> str:
    """Return TensorFlow's list of GPUs if started like `apptainer run --nv`, with the driver on LD_LIBRARY_PATH."""
    standins.write_driver(system.root / ".singularity.d/libs", cache, gpus=2)
    start = ". /environment; export LD_LIBRARY_PATH=/.singularity.d/libs; . /runscript"
    return system.run(f'set -- -c "{LIST_GPUS}"; {start}')


@pytest.mark.parametrize("archive", ["bullseye"], indirect=True)
def test_official_recipe_finds_the_gpus(archive: Path, folder: Path, standin_cache: Path) -> None:
    def with_cuda(root: Path) -> None:
        for name in CUDA_10_0:
            standins.write_library(root / "usr/local/cuda-10.0/lib64" / name, standin_cache)
        (root / "etc/ld.so.conf.d/cuda.conf").write_text("/usr/local/cuda-10.0/lib64\n", encoding="ascii")
        subprocess.run([_find_tool("ldconfig"), "-r", str(root)], check=True)

    text = make_definition(
        "--tf", "1.14", "--python-version", "2.7", "--recipe", "official", "--package", "six"
    )
    system = run_definition(text, folder, {"tensorflow/tensorflow:1.14.0-gpu": (archive, with_cuda)})
    assert "GPU:1" in list_gpus(system, standin_cache)


@pytest.mark.skipif(not environments.is_full_run(), reason="minutes: TFDOCTOR_LAB_FULL=1")
@pytest.mark.parametrize("archive", ["bullseye"], indirect=True)
def test_build_is_reproducible(archive: Path, folder: Path) -> None:
    """Build twice with real wheels: content, owner, mode and time of all files are the same."""
    arguments = (
        "--tf",
        "2.8",
        "--python-version",
        "3.9",
        "--recipe",
        "pip-cuda",
        "--base",
        "debian:bullseye",
    )
    text = make_definition(*arguments)
    builds = []
    for name in ("first", "second"):
        (folder / name).mkdir()
        system = run_definition(text, folder / name, {"debian:bullseye": (archive, lambda _: None)})
        builds.append(describe_files(system.root))
        shutil.rmtree(folder / name)
    first, second = builds
    assert any(name.endswith("/libcudart.so.11.0") for name in first)
    assert any(name.startswith("usr/lib/python3.9/__pycache__/") for name in first), "what an import compiled"
    assert {name for name in first.keys() | second.keys() if first.get(name) != second.get(name)} == set()


def hash_file(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def describe_files(root: Path) -> dict[str, tuple[object, ...]]:
    """Return the mode, owner, group, time in seconds and content of each path that the steps left."""
    entries: dict[str, tuple[object, ...]] = {}
    for parent, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(parent) / name
            status, relative = path.lstat(), str(path.relative_to(root))
            if relative in ("script", "environment", "runscript", "etc/resolv.conf", "proc"):
                continue
            content = str(path.readlink()) if path.is_symlink() else ""
            if stat.S_ISREG(status.st_mode):
                content = hash_file(path)
            entries[relative] = (
                status.st_mode,
                status.st_uid,
                status.st_gid,
                status.st_mtime_ns // 10**9,
                content,
            )
    return entries


@pytest.mark.skipif(not environments.is_full_run(), reason="minutes: TFDOCTOR_LAB_FULL=1")
@pytest.mark.parametrize("archive", ["bookworm"], indirect=True)
def test_conda_recipe_finds_the_gpus(archive: Path, folder: Path, standin_cache: Path) -> None:
    """The packages of conda-forge are stand-ins; their location, and that TensorFlow finds them, is tested for real."""
    python = next(iter(sorted(Path.home().glob(".pyenv/versions/3.7.*"))), None)
    if python is None:
        pytest.skip("there is no Python 3.7")

    def with_micromamba(root: Path) -> None:
        for name in CUDA_10_0:
            standins.write_library(root / "stand-ins" / name, standin_cache)
        program = root / "usr/local/bin/micromamba"
        program.write_text(MICROMAMBA, encoding="ascii")
        program.chmod(0o755)

    def with_python(root: Path) -> None:
        shutil.copytree(python, root / "usr/local", symlinks=True, dirs_exist_ok=True)

    text = make_definition("--tf", "1.14", "--recipe", "conda-cuda", "--package", "six")
    bases = {
        "mambaorg/micromamba:": (archive, with_micromamba),
        "python:3.7-slim": (archive, with_python),
    }
    system = run_definition(text, folder, bases)
    arguments = (folder / "system-0/told").read_text(encoding="ascii").split()
    assert arguments[:2] == ["10.0", "create"]
    assert arguments[-2:] == ["cudatoolkit=10.0", "cudnn=7.6"]
    assert "GPU:1" in list_gpus(system, standin_cache)
