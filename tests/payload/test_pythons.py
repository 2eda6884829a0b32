"""The payload on every Python of this machine, from 2.7 up: it must run where TensorFlow runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tfdoctor.payload
from tfdoctor.facts import Known, value_of
from tfdoctor.facts.python import Choice
from tfdoctor.probes import driver, python
from tfdoctor.system import LiveSystem, payloads
from tfdoctor.system.payloads import run_payload

VERSIONS = ("2.7", *(f"3.{minor}" for minor in range(5, 15)))
SCRIPTS = sorted(Path(tfdoctor.payload.__file__).parent.glob("*.py"))


def interpreters() -> dict[str, str]:
    """Minor version → an interpreter that answers: one of pyenv's, else on PATH, where its slow shims are, too."""
    found = {}
    for version in VERSIONS:
        ready = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
        for candidate in (*map(str, ready), shutil.which(f"python{version}")):
            if candidate and answers(candidate):
                found[version] = candidate
                break
    return found


def answers(candidate: str) -> bool:
    try:
        return subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


PYTHONS = interpreters() or {"this one": sys.executable}
on_every_python = pytest.mark.parametrize("version", PYTHONS)


@on_every_python
def test_the_target_answers(version: str) -> None:
    path = PYTHONS[version]
    facts, _ = python.probe(LiveSystem(), Choice(path, path), asked=True, timeout=60)
    assert isinstance(facts, Known)
    if version in VERSIONS:
        assert facts.value.version.startswith(f"{version}.")
        assert facts.value.tag == f"cp{version.replace('.', '')}"
    assert facts.value.site_packages
    assert Path(facts.value.prefix).is_dir()


class Elsewhere(LiveSystem):
    """A machine on which tfdoctor has no Python of its own, as in a container: the target's asks the driver."""

    own_python = None


@pytest.mark.skipif("CS_GNU_LIBC_VERSION" not in getattr(os, "confstr_names", ()), reason="no glibc here")
@on_every_python
def test_every_python_tells_the_glibc_that_it_runs_with(version: str) -> None:
    """Without it the loader is not followed, and no library is looked for."""
    path = PYTHONS[version]
    facts, _ = python.probe(LiveSystem(), Choice(path, path), asked=True, timeout=60)
    assert isinstance(facts, Known)
    assert f"glibc {facts.value.glibc}" == os.confstr("CS_GNU_LIBC_VERSION")


@on_every_python
def test_a_driver_that_is_not_there(version: str) -> None:
    cuda, nvml = driver.probe_libraries(
        Elsewhere(),
        PYTHONS[version],
        timeout=60,
        libcuda="libcuda-of-nobody.so.1",
        libnvml="libnvml-of-nobody.so.1",
    )
    answer = value_of(cuda)
    assert answer is not None
    assert not answer.loaded
    assert "libcuda-of-nobody.so.1" in answer.load_error
    answer_nvml = value_of(nvml)
    assert answer_nvml is not None
    assert not answer_nvml.loaded


@on_every_python
def test_every_script_compiles(version: str) -> None:
    code = "import sys\nfor path in sys.argv[1:]: compile(open(path, 'rb').read(), path, 'exec')"
    done = subprocess.run(
        [PYTHONS[version], "-c", code, *SCRIPTS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python has no PYTHONSAFEPATH yet")
def test_where_python_leaves_the_scripts_folder_out_the_first_of_pythonpath_stays(tmp_path: Path) -> None:
    (tmp_path / "given.py").write_text("x = 1\n", encoding="utf-8")
    env = {**os.environ, "PYTHONSAFEPATH": "1", "PYTHONPATH": str(tmp_path)}
    system = LiveSystem(env=env)
    answer, _ = run_payload(system, sys.executable, "target", timeout=60)
    assert answer["sys_path"][0] == str(tmp_path)
    wanted = json.dumps({"modules": [["given", []]], "sources": []})
    answer, _ = run_payload(system, sys.executable, "rehearse", [wanted], timeout=60)
    assert answer["module:0"]["file"] == str(tmp_path / "given.py")


@on_every_python
def test_nothing_is_written_and_nothing_is_said_beside_the_answer(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A copy: beside the package itself, other tests' interpreters write what they compile.
    payload, elsewhere = tmp_path / "payload", tmp_path / "elsewhere"
    shutil.copytree(
        Path(tfdoctor.payload.__file__).parent, payload, ignore=shutil.ignore_patterns("__pycache__")
    )
    elsewhere.mkdir()
    monkeypatch.setattr(payloads, "_FOLDER", payload)
    before = sorted(payload.rglob("*"))
    system = LiveSystem(cwd=str(elsewhere))
    _, result = run_payload(system, PYTHONS[version], "target", timeout=60)
    assert result.stderr == ""
    assert len(result.stdout.splitlines()) == 1
    assert not list(elsewhere.iterdir())
    assert sorted(payload.rglob("*")) == before


def test_python_2_can_read_every_payload() -> None:
    """It takes no file for one that is not ASCII, where no encoding is declared."""
    for path in sorted(Path(tfdoctor.payload.__file__).parent.rglob("*.py")):
        assert path.read_bytes().isascii(), path.name
