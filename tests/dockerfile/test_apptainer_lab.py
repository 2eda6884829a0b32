"""Apptainer's definitions, carried out as Apptainer does, on small systems in folders; no engine is asked.

Opt-in as all that needs real wheels (TFDOCTOR_LAB=1), and needs root. The CUDA libraries and the driver are stand-ins.
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
from lab.engine import Unavailable, cache_folder, debian
from lab.images import CERTIFICATES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Prepare = Callable[[Path], None]

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        not environments.parse_wanted(),
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
LIST = (
    "from tensorflow.python.client import device_lib as d; import tensorflow as tf; "
    "print(tf.__version__, tf.test.is_built_with_cuda(), tf.config.experimental.list_physical_devices('GPU'))"
)
MICROMAMBA = """#!/bin/sh
# A stand-in: what it is told is kept, and the libraries come from a folder.
echo "$CONDA_OVERRIDE_CUDA $*" >/told
while [ "$1" != --prefix ]; do shift; done
install -d "$2/lib" && cp -a /stand-ins/* "$2/lib/" && touch "$2/lib/libnvrtc.so.10.0"
"""


def _tool(name: str) -> str:
    found = shutil.which(name)
    assert found is not None, name
    return found


class System:
    """A small system in a folder, as a container has it."""

    def __init__(self, root: Path, archive: Path) -> None:
        self.root = root
        root.mkdir()
        subprocess.run([_tool("tar"), "-C", str(root), "-xf", str(archive)], check=True)
        shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")

    def run(self, script: str, *words: str) -> str:
        """What a script of its shell prints. Mounts are seen by it alone, and go with it."""
        (self.root / "script").write_text(script, encoding="utf-8")
        inside = 'mount -t proc proc "$0/proc" && exec chroot "$0" /bin/sh "$@" /script'
        done = subprocess.run(
            [_tool("unshare"), "--mount", "--fork", "sh", "-c", inside, str(self.root), *words],
            env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"},
            capture_output=True,
            text=True,
            check=False,
            timeout=1200,
        )
        assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
        return done.stdout


def carry_out(definition: str, folder: Path, bases: Mapping[str, tuple[Path, Prepare]]) -> System:
    """The system that a definition makes; `bases`: the beginning of an image's name → what stands in for it."""
    made: dict[str, System] = {}
    for number, text in enumerate(re.split(r"^(?=Bootstrap: docker$)", definition, flags=re.MULTILINE)[1:]):
        head, *rest = re.split(r"^%", text, flags=re.MULTILINE)
        header = dict(line.split(": ", 1) for line in head.splitlines() if line)
        sections = {name: body for name, _, body in (one.partition("\n") for one in rest)}
        archive, prepare = next(base for name, base in bases.items() if header["From"].startswith(name))
        system = System(folder / f"system-{number}", archive)
        prepare(system.root)
        for name, body in sections.items():
            if name.startswith("files from "):
                for line in body.split("\n"):
                    if line.strip():
                        source, target = line.split()
                        origin = made[name.removeprefix("files from ")].root
                        shutil.copytree(
                            origin / source.lstrip("/"), system.root / target.lstrip("/"), symlinks=True
                        )
        system.run(sections["post"], "-ex")
        for name in ("environment", "runscript"):
            (system.root / name).write_text(sections.get(name, ""), encoding="utf-8")
        made[header.get("Stage", "image")] = system
    return system


def definition_of(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tfdoctor", "build", *words, "--ca-cert", CERTIFICATES, "--emit", "apptainer"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout


@pytest.fixture
def archive(request: pytest.FixtureRequest) -> Path:
    try:
        return debian(request.param, cache_folder())
    except Unavailable as why:
        pytest.skip(str(why))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for one in tmp_path.glob("system-*"):
        shutil.rmtree(one, ignore_errors=True)


def start_system(system: System, cache: Path) -> str:
    """TensorFlow's list of GPUs, as `apptainer run --nv` starts it: the driver's libraries on LD_LIBRARY_PATH."""
    standins.driver(system.root / ".singularity.d/libs", cache, gpus=2)
    start = ". /environment; export LD_LIBRARY_PATH=/.singularity.d/libs; . /runscript"
    return system.run(f'set -- -c "{LIST}"; {start}')


@pytest.mark.parametrize("archive", ["bullseye"], indirect=True)
def test_the_official_recipe(archive: Path, folder: Path, standin_cache: Path) -> None:
    def with_cuda(root: Path) -> None:
        for name in CUDA_10_0:
            standins.library(root / "usr/local/cuda-10.0/lib64" / name, standin_cache)
        (root / "etc/ld.so.conf.d/cuda.conf").write_text("/usr/local/cuda-10.0/lib64\n", encoding="ascii")
        subprocess.run([_tool("ldconfig"), "-r", str(root)], check=True)

    text = definition_of("--tf", "1.14", "--python", "2.7", "--recipe", "official", "--package", "six")
    system = carry_out(text, folder, {"tensorflow/tensorflow:1.14.0-gpu": (archive, with_cuda)})
    assert "GPU:1" in start_system(system, standin_cache)


@pytest.mark.skipif(not environments.list_everything(), reason="minutes: TFDOCTOR_LAB_FULL=1")
@pytest.mark.parametrize("archive", ["bullseye"], indirect=True)
def test_the_same_files_each_time(archive: Path, folder: Path) -> None:
    """All steps with wheels, twice: content, owners, modes and times of all files are the same."""
    words = ("--tf", "2.8", "--python", "3.9", "--recipe", "pip-cuda", "--base", "debian:bullseye")
    text = definition_of(*words)
    found = []
    for name in ("first", "second"):
        (folder / name).mkdir()
        system = carry_out(text, folder / name, {"debian:bullseye": (archive, lambda _: None)})
        found.append(files_of(system.root))
        shutil.rmtree(folder / name)
    first, second = found
    assert any(name.endswith("/libcudart.so.11.0") for name in first)
    assert any(name.startswith("usr/lib/python3.9/__pycache__/") for name in first), "what an import compiled"
    assert {name for name in first.keys() | second.keys() if first.get(name) != second.get(name)} == set()


def digest_of(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            found.update(piece)
    return found.hexdigest()


def files_of(root: Path) -> dict[str, tuple[object, ...]]:
    """Path → kind and mode, owner, time, content of all that the steps left."""
    found: dict[str, tuple[object, ...]] = {}
    for place, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(place) / name
            seen, short = path.lstat(), str(path.relative_to(root))
            if short in ("script", "environment", "runscript", "etc/resolv.conf", "proc"):
                continue
            content = str(path.readlink()) if path.is_symlink() else ""
            if stat.S_ISREG(seen.st_mode):
                content = digest_of(path)
            found[short] = (seen.st_mode, seen.st_uid, seen.st_gid, seen.st_mtime_ns // 10**9, content)
    return found


@pytest.mark.skipif(not environments.list_everything(), reason="minutes: TFDOCTOR_LAB_FULL=1")
@pytest.mark.parametrize("archive", ["bookworm"], indirect=True)
def test_cuda_from_conda(archive: Path, folder: Path, standin_cache: Path) -> None:
    """What conda-forge has is a stand-in; where it goes and that TensorFlow finds it there is not."""
    python = next(iter(sorted(Path.home().glob(".pyenv/versions/3.7.*"))), None)
    if python is None:
        pytest.skip("there is no Python 3.7")

    def with_micromamba(root: Path) -> None:
        for name in CUDA_10_0:
            standins.library(root / "stand-ins" / name, standin_cache)
        program = root / "usr/local/bin/micromamba"
        program.write_text(MICROMAMBA, encoding="ascii")
        program.chmod(0o755)

    def with_python(root: Path) -> None:
        shutil.copytree(python, root / "usr/local", symlinks=True, dirs_exist_ok=True)

    text = definition_of("--tf", "1.14", "--recipe", "conda-cuda", "--package", "six")
    bases = {
        "mambaorg/micromamba:": (archive, with_micromamba),
        "python:3.7-slim": (archive, with_python),
    }
    system = carry_out(text, folder, bases)
    told = (folder / "system-0/told").read_text(encoding="ascii").split()
    assert told[:2] == ["10.0", "create"]
    assert told[-2:] == ["cudatoolkit=10.0", "cudnn=7.6"]
    assert "GPU:1" in start_system(system, standin_cache)
