"""The stand-in is built once and completely; it identifies itself, and without its variables it fails."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import tfdoctor.payload
from lab.softgpu import list_warnings
from tfdoctor.core.errors import make_install_command
from tfdoctor.system import LiveSystem
from tfdoctor.verification.simulate import build
from tfdoctor.verification.simulate.build import (
    CompilerError,
    build_software_gpu,
    build_stand_in,
    find_cache_folder,
)
from tfdoctor.verification.simulate.compute_libraries import LibrarySet
from tfdoctor.verification.simulate.sources import SOURCE_BY_SONAME

PATH = os.environ.get("PATH", os.defpath)
pytestmark = pytest.mark.skipif(
    shutil.which("cc") is None or os.uname().machine != "x86_64", reason="needs a C compiler for x86-64"
)


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setattr(build.importlib.util, "find_spec", lambda _: None)
    return {"PATH": PATH, "XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path)}


def write_compiler(folder: Path, text: str) -> str:
    """Return a PATH on which this program is the only compiler."""
    folder.mkdir()
    program = folder / "cc"
    program.write_text(f"#!/bin/sh\n{text}\n", encoding="ascii")
    program.chmod(0o755)
    return str(folder)


def probe_stand_in(folder: Path, **variables: str) -> dict[str, dict[str, object]]:
    """Return what libcuda and NVML answer to the driver's payload."""
    script = Path(tfdoctor.payload.__file__).with_name("driver.py")
    system = LiveSystem(env={"PATH": PATH, "LD_LIBRARY_PATH": str(folder), **variables})
    process = system.run([sys.executable, "-S", str(script), "libcuda.so.1", "libnvidia-ml.so.1"], timeout=60)
    answer: dict[str, dict[str, object]] = {}
    for line in process.stdout.splitlines():
        answer.update(json.loads(line.removeprefix("tfdoctor-payload:")))
    return answer


def test_stand_in_is_built_once(env: dict[str, str]) -> None:
    folder = build_stand_in(env)
    before = (folder / "libcuda.so.1").stat().st_mtime_ns
    assert sorted(path.name for path in folder.iterdir()) == sorted(SOURCE_BY_SONAME)
    assert build_stand_in(env) == folder
    assert (folder / "libcuda.so.1").stat().st_mtime_ns == before
    assert list(find_cache_folder(env).iterdir()) == [folder]


def test_stand_in_answers_as_the_requested_driver(env: dict[str, str]) -> None:
    variables = {
        "STANDIN_GPUS": "2",
        "STANDIN_CC": "89,120",
        "STANDIN_NAME": "A (simulated);B (simulated)",
        "STANDIN_CUDA": "12040",
        "STANDIN_DRIVER": "550.54.15",
        "STANDIN_MEM_MIB": "16384",
    }
    answer = probe_stand_in(build_stand_in(env), **variables)
    cuda, nvml = answer["cuda"], answer["nvml"]
    assert (cuda["init"], cuda["version"], cuda["count"], cuda["stand_in"]) == (0, 12040, 2, True)
    devices = cuda["devices"]
    assert isinstance(devices, list)
    assert [device["compute_capability"] for device in devices] == ["8.9", "12.0"]
    assert [device["name"] for device in devices] == ["A (simulated)", "B (simulated)"]
    assert (nvml["init"], nvml["driver_version"], nvml["count"]) == (0, "550.54.15", 2)


def test_stand_in_without_variables_fails(env: dict[str, str]) -> None:
    """On a search path it fails like the toolkit's stub, and identifies itself."""
    answer = probe_stand_in(build_stand_in(env))
    assert answer["cuda"]["init"] == 34
    assert answer["cuda"]["stand_in"] is True
    assert answer["nvml"]["init"] == 9


def test_stand_in_without_gpus_reports_no_device(env: dict[str, str]) -> None:
    assert probe_stand_in(build_stand_in(env), STANDIN_GPUS="0")["cuda"]["init"] == 100


def test_missing_compiler_error_suggests_one(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(CompilerError) as caught:
        build_stand_in({**env, "PATH": str(tmp_path / "empty")})
    assert "there is no C compiler here" in caught.value.message
    assert make_install_command("ziglang") in caught.value.hint


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ('echo "$0 1.0"; [ "$1" = --version ] || { echo "no\033[31m headers" >&2; exit 1; }', "no"),
        ('[ "$1" = --version ] && { echo 1.0; exit 0; }; sleep 100', "did not"),
        ("exit 3", "3"),
    ],
)
def test_failing_or_hanging_compiler_is_named(
    env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, said: str
) -> None:
    monkeypatch.setattr(build, "_C_TIMEOUT_S", 1.0)
    path = f"{write_compiler(tmp_path / 'bin', program)}:/bin:/usr/bin"
    monkeypatch.setattr(build, "COMPILERS", (("cc", "c++"),))
    with pytest.raises(CompilerError) as caught:
        build_stand_in({**env, "PATH": path})
    assert "/bin/cc" in caught.value.message
    assert said in caught.value.message
    assert "\x1b" not in caught.value.message
    assert not list(find_cache_folder(env).glob("*/*"))


def test_next_compiler_is_tried(env: dict[str, str], tmp_path: Path) -> None:
    path = f"{write_compiler(tmp_path / 'bin', 'exit 3')}:{PATH}"
    assert (build_stand_in({**env, "PATH": path}) / "libcuda.so.1").is_file()


def test_incomplete_or_writable_build_is_rebuilt(env: dict[str, str]) -> None:
    folder = build_stand_in(env)
    (folder / "libcuda.so.1").unlink()
    assert (build_stand_in(env) / "libcuda.so.1").is_file()
    folder.chmod(0o777)
    assert build_stand_in(env).stat().st_mode & 0o022 == 0


def test_unwritable_cache_is_reported(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file", encoding="ascii")
    with pytest.raises(Exception, match="cannot be written to") as caught:
        build_stand_in(env)
    assert caught.type is not CompilerError


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("cuda", "cudnn"), [("10.0", "7.6"), ("11.2", "8.1"), ("12.2", "8.9"), ("12.5", "9.3")]
)
def test_compute_libraries_compile_without_warnings(cuda: str, cudnn: str) -> None:
    assert list_warnings(cuda, cudnn) == ""


def test_stand_in_that_needs_a_newer_glibc_is_rejected(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library that an old image cannot load is rejected."""
    monkeypatch.setattr(build, "DEFAULT_MAX_GLIBC", (2, 1))
    with pytest.raises(CompilerError, match=r"needs glibc 2\."):
        build_stand_in(env)


@pytest.mark.few(0)  # takes half a minute
@pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler")
def test_software_gpu_is_built_once_per_library_set(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    library_set = LibrarySet(("libcudart.so.12", "libcublas.so.12", "libcufft.so.11"), "12.5.1", "9.3")
    folder = build_software_gpu(library_set, env, glibc=(99,))
    names = [*library_set.sonames, "libcuda.so.1", "libnccl.so.2", "libnvidia-ml.so.1"]
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    assert list(find_cache_folder(env).iterdir()) == [folder]
    cuda = probe_stand_in(folder)["cuda"]
    assert (cuda["init"], cuda["stand_in"], cuda["software"]) == (34, True, True)
    monkeypatch.setattr(build, "build_compute_libraries", lambda *_, **__: "was built again")
    assert build_software_gpu(library_set, env, glibc=(99,)) == folder
    with pytest.raises(CompilerError, match="needs glibc"):  # an image with a much older glibc cannot load it
        build_software_gpu(library_set, env, glibc=(2, 2))
    with pytest.raises(CompilerError, match="was built again"):
        build_software_gpu(replace(library_set, cudnn="9.4"), env, glibc=(99,))


def test_missing_cxx_compiler_is_named(env: dict[str, str], tmp_path: Path) -> None:
    path = write_compiler(tmp_path / "bin", 'exec /usr/bin/cc "$@"')
    with pytest.raises(CompilerError, match=r"c\+\+"):
        build_software_gpu(
            LibrarySet(("libcudart.so.12",), "12.5", "9.3"), {**env, "PATH": path}, glibc=(99,)
        )
