"""The payload on every Python of this machine, from 2.7 on: it must run where TensorFlow runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tfdoctor.payload
from tfdoctor.core.facts import Known, value_of
from tfdoctor.core.facts.python import PythonChoice
from tfdoctor.probes import driver, python
from tfdoctor.system import LiveSystem, payloads
from tfdoctor.system.payloads import run_payload

VERSIONS = ("2.7", *(f"3.{minor}" for minor in range(5, 15)))
SCRIPTS = sorted(Path(tfdoctor.payload.__file__).parent.glob("*.py"))


def find_interpreters() -> dict[str, str]:
    """Map each minor version to an interpreter that runs: one of pyenv's, else the one on PATH.

    pyenv's own come first because its shims on PATH are slow.
    """
    interpreters = {}
    for version in VERSIONS:
        installed = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
        for candidate in (*map(str, installed), shutil.which(f"python{version}")):
            if candidate and can_run(candidate):
                interpreters[version] = candidate
                break
    return interpreters


def can_run(candidate: str) -> bool:
    try:
        return subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


PYTHONS = find_interpreters() or {"this one": sys.executable}
on_every_python = pytest.mark.parametrize("version", PYTHONS)


@on_every_python
def test_probe_returns_the_facts_of_the_interpreter(version: str) -> None:
    path = PYTHONS[version]
    facts, _ = python.probe(LiveSystem(), PythonChoice(path, path), is_requested=True, timeout=60)
    assert isinstance(facts, Known)
    if version in VERSIONS:
        assert facts.value.version.startswith(f"{version}.")
        assert facts.value.tag == f"cp{version.replace('.', '')}"
    assert facts.value.site_packages
    assert Path(facts.value.prefix).is_dir()


class SystemWithoutPython(LiveSystem):
    """A system on which tfdoctor has no Python of its own, as in a container: the target's Python asks the driver."""

    own_python = None


@pytest.mark.skipif("CS_GNU_LIBC_VERSION" not in getattr(os, "confstr_names", ()), reason="no glibc here")
@on_every_python
def test_every_python_reports_its_glibc(version: str) -> None:
    """Without the glibc version the loader is not simulated and no library is resolved."""
    path = PYTHONS[version]
    facts, _ = python.probe(LiveSystem(), PythonChoice(path, path), is_requested=True, timeout=60)
    assert isinstance(facts, Known)
    assert f"glibc {facts.value.glibc}" == os.confstr("CS_GNU_LIBC_VERSION")


@on_every_python
def test_missing_driver_is_reported(version: str) -> None:
    cuda, nvml = driver.probe_libraries(
        SystemWithoutPython(),
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
    process = subprocess.run(
        [PYTHONS[version], "-c", code, *SCRIPTS], capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python has no PYTHONSAFEPATH yet")
def test_safe_path_keeps_the_first_entry_of_pythonpath(tmp_path: Path) -> None:
    (tmp_path / "given.py").write_text("x = 1\n", encoding="utf-8")
    env = {**os.environ, "PYTHONSAFEPATH": "1", "PYTHONPATH": str(tmp_path)}
    system = LiveSystem(env=env)
    answer, _ = run_payload(system, sys.executable, "target", timeout=60)
    assert answer["sys_path"][0] == str(tmp_path)
    request = json.dumps({"modules": [["given", []]], "sources": []})
    answer, _ = run_payload(system, sys.executable, "rehearse", [request], timeout=60)
    assert answer["module:0"]["file"] == str(tmp_path / "given.py")


@on_every_python
def test_payload_writes_no_files_and_prints_only_its_answer(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Use a copy: interpreters of other tests write compiled files beside the package itself.
    payload, working_folder = tmp_path / "payload", tmp_path / "elsewhere"
    shutil.copytree(
        Path(tfdoctor.payload.__file__).parent, payload, ignore=shutil.ignore_patterns("__pycache__")
    )
    working_folder.mkdir()
    monkeypatch.setattr(payloads, "_FOLDER", payload)
    before = sorted(payload.rglob("*"))
    system = LiveSystem(cwd=str(working_folder))
    _, result = run_payload(system, PYTHONS[version], "target", timeout=60)
    assert result.stderr == ""
    assert len(result.stdout.splitlines()) == 1
    assert not list(working_folder.iterdir())
    assert sorted(payload.rglob("*")) == before


def test_payloads_are_ascii() -> None:
    """Python 2 rejects a file that is not ASCII and declares no encoding."""
    for path in sorted(Path(tfdoctor.payload.__file__).parent.rglob("*.py")):
        assert path.read_bytes().isascii(), path.name
