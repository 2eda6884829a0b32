"""The stand-in is built once, whole, and only where it can be; it says what it is, and unasked it is dead."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import tfdoctor.payload
from lab.softgpu import warnings_of
from tfdoctor.errors import install_hint
from tfdoctor.simulate import build
from tfdoctor.simulate.build import CompilerError, build_software_gpu, build_stand_in, find_cache_folder
from tfdoctor.simulate.compute_libraries import LibrarySet
from tfdoctor.simulate.sources import LIBRARIES
from tfdoctor.system import LiveSystem

PATH = os.environ.get("PATH", os.defpath)
pytestmark = pytest.mark.skipif(
    shutil.which("cc") is None or os.uname().machine != "x86_64", reason="needs a C compiler for x86-64"
)


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setattr(build.importlib.util, "find_spec", lambda _: None)
    return {"PATH": PATH, "XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path)}


def compiler(folder: Path, text: str) -> str:
    """A PATH with this program as the only compiler."""
    folder.mkdir()
    program = folder / "cc"
    program.write_text(f"#!/bin/sh\n{text}\n", encoding="ascii")
    program.chmod(0o755)
    return str(folder)


def run_question(folder: Path, **variables: str) -> dict[str, dict[str, object]]:
    """What libcuda and NVML answer to the driver's payload."""
    script = Path(tfdoctor.payload.__file__).with_name("driver.py")
    here = LiveSystem(env={"PATH": PATH, "LD_LIBRARY_PATH": str(folder), **variables})
    done = here.run([sys.executable, "-S", str(script), "libcuda.so.1", "libnvidia-ml.so.1"], timeout=60)
    answer: dict[str, dict[str, object]] = {}
    for line in done.stdout.splitlines():
        answer.update(json.loads(line.removeprefix("tfdoctor-payload:")))
    return answer


def test_it_is_built_once_and_nothing_else_is_left(env: dict[str, str]) -> None:
    place = build_stand_in(env)
    before = (place / "libcuda.so.1").stat().st_mtime_ns
    assert sorted(one.name for one in place.iterdir()) == sorted(LIBRARIES)
    assert build_stand_in(env) == place
    assert (place / "libcuda.so.1").stat().st_mtime_ns == before
    assert list(find_cache_folder(env).iterdir()) == [place]


def test_it_answers_as_the_driver_that_was_asked_for(env: dict[str, str]) -> None:
    variables = {
        "STANDIN_GPUS": "2",
        "STANDIN_CC": "89,120",
        "STANDIN_NAME": "A (simulated);B (simulated)",
        "STANDIN_CUDA": "12040",
        "STANDIN_DRIVER": "550.54.15",
        "STANDIN_MEM_MIB": "16384",
    }
    answer = run_question(build_stand_in(env), **variables)
    cuda, nvml = answer["cuda"], answer["nvml"]
    assert (cuda["init"], cuda["version"], cuda["count"], cuda["stand_in"]) == (0, 12040, 2, True)
    devices = cuda["devices"]
    assert isinstance(devices, list)
    assert [one["compute_capability"] for one in devices] == ["8.9", "12.0"]
    assert [one["name"] for one in devices] == ["A (simulated)", "B (simulated)"]
    assert (nvml["init"], nvml["driver_version"], nvml["count"]) == (0, "550.54.15", 2)


def test_nobody_takes_it_for_a_driver_afterwards(env: dict[str, str]) -> None:
    """Left on a search path it is as dead as the toolkit's stub, and says what it is."""
    answer = run_question(build_stand_in(env))
    assert answer["cuda"]["init"] == 34
    assert answer["cuda"]["stand_in"] is True
    assert answer["nvml"]["init"] == 9


def test_no_device_where_the_driver_knows_no_card(env: dict[str, str]) -> None:
    assert run_question(build_stand_in(env), STANDIN_GPUS="0")["cuda"]["init"] == 100


def test_without_a_compiler_it_says_how_to_get_one(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(CompilerError) as refused:
        build_stand_in({**env, "PATH": str(tmp_path / "empty")})
    assert "there is no C compiler here" in refused.value.message
    assert install_hint("ziglang") in refused.value.hint


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ('echo "$0 1.0"; [ "$1" = --version ] || { echo "no\033[31m headers" >&2; exit 1; }', "no"),
        ('[ "$1" = --version ] && { echo 1.0; exit 0; }; sleep 100', "did not"),
        ("exit 3", "3"),
    ],
)
def test_a_compiler_that_fails_or_hangs_is_named(
    env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, said: str
) -> None:
    monkeypatch.setattr(build, "_C_TIMEOUT_S", 1.0)
    path = f"{compiler(tmp_path / 'bin', program)}:/bin:/usr/bin"
    monkeypatch.setattr(build, "COMPILERS", (("cc", "c++"),))
    with pytest.raises(CompilerError) as refused:
        build_stand_in({**env, "PATH": path})
    assert "/bin/cc" in refused.value.message
    assert said in refused.value.message
    assert "\x1b" not in refused.value.message
    assert not list(find_cache_folder(env).glob("*/*"))


def test_the_next_compiler_is_tried(env: dict[str, str], tmp_path: Path) -> None:
    path = f"{compiler(tmp_path / 'bin', 'exit 3')}:{PATH}"
    assert (build_stand_in({**env, "PATH": path}) / "libcuda.so.1").is_file()


def test_what_is_cut_off_or_anybodys_is_built_again(env: dict[str, str]) -> None:
    place = build_stand_in(env)
    (place / "libcuda.so.1").unlink()
    assert (build_stand_in(env) / "libcuda.so.1").is_file()
    place.chmod(0o777)
    assert build_stand_in(env).stat().st_mode & 0o022 == 0


def test_a_cache_that_cannot_be_written_is_said(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file", encoding="ascii")
    with pytest.raises(Exception, match="cannot be written to") as refused:
        build_stand_in(env)
    assert refused.type is not CompilerError


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("cuda", "cudnn"), [("10.0", "7.6"), ("11.2", "8.1"), ("12.2", "8.9"), ("12.5", "9.3")]
)
def test_the_libraries_that_compute_compile_without_a_warning(cuda: str, cudnn: str) -> None:
    assert warnings_of(cuda, cudnn) == ""


def test_it_starts_with_an_old_glibc(env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What an old image could not load is not taken for built."""
    monkeypatch.setattr(build, "GLIBC", (2, 1))
    with pytest.raises(CompilerError, match=r"needs glibc 2\."):
        build_stand_in(env)


@pytest.mark.few(0)  # half a minute
@pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler")
def test_what_computes_is_built_once_for_what_a_tensorflow_opens(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = LibrarySet(("libcudart.so.12", "libcublas.so.12", "libcufft.so.11"), "12.5.1", "9.3")
    place = build_software_gpu(wanted, env, glibc=(99,))
    names = [*wanted.sonames, "libcuda.so.1", "libnccl.so.2", "libnvidia-ml.so.1"]
    assert sorted(one.name for one in place.iterdir()) == sorted(names)
    assert list(find_cache_folder(env).iterdir()) == [place]
    dead = run_question(place)["cuda"]
    assert (dead["init"], dead["stand_in"], dead["software"]) == (34, True, True)
    monkeypatch.setattr(build, "build_computing", lambda *_, **__: "was built again")
    assert build_software_gpu(wanted, env, glibc=(99,)) == place
    with pytest.raises(
        CompilerError, match="needs glibc"
    ):  # what an image from before this machine would load
        build_software_gpu(wanted, env, glibc=(2, 2))
    with pytest.raises(CompilerError, match="was built again"):
        build_software_gpu(replace(wanted, cudnn="9.4"), env, glibc=(99,))


def test_without_a_cxx_compiler_it_is_named(env: dict[str, str], tmp_path: Path) -> None:
    path = compiler(tmp_path / "bin", 'exec /usr/bin/cc "$@"')
    with pytest.raises(CompilerError, match=r"c\+\+"):
        build_software_gpu(
            LibrarySet(("libcudart.so.12",), "12.5", "9.3"), {**env, "PATH": path}, glibc=(99,)
        )
