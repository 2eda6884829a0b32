"""What is there and may not be read, as a user who may not read it: real files, real modes, glibc's own word.

Root may read everything: there the questions are asked by a child that has become nobody.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tfdoctor.payload
from tfdoctor.facts import CLOSED, DENIED, NOEXEC
from tfdoctor.probes.loader import Process
from tfdoctor.system import LiveSystem
from tfdoctor.system.payloads import files_of

if TYPE_CHECKING:
    from collections.abc import Iterator

NOBODY = 65534
BECOME = f"""
import os, sys
if os.geteuid() == 0:
    os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
"""
LOADER = f"""
import ctypes, json, sys
from tfdoctor.facts import Known, LoaderFacts
from tfdoctor.probes import permissions
from tfdoctor.probes.loader import Process
from tfdoctor.system import LiveSystem
import tfdoctor.probes.processes, subprocess, tempfile
{BECOME}
system = LiveSystem()
process = Process(system, sys.executable, dict(os.environ), glibc=None)
name = sys.argv[1]
found = process.dlopen(name, process._main)
try:
    ctypes.CDLL(name)
    said = ""
except OSError as error:
    said = str(error)
facts = LoaderFacts(None, (), (), (found,), (), ())
denied = permissions.with_denied(system, Known(facts, "test")).value.denied
print(json.dumps({{
    "error": found.error, "said": said, "tried": [[t.path, t.problem] for t in found.tried],
    "denied": [[d.path, d.closed, d.owner, d.own, d.mode] for d in denied],
}}))
"""


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that everybody may reach, with a library in it. pytest's own folders are for its user alone."""
    sources = (Path("/lib/x86_64-linux-gnu/libm.so.6"), Path("/lib64/libm.so.6"), Path("/usr/lib/libm.so.6"))
    source = next((path for path in sources if path.exists()), None)
    if source is None:
        pytest.skip("another kind of machine")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if os.geteuid() == 0 and any(not above.stat().st_mode & 1 for above in folder.parents):
            pytest.skip("temporary files are where nobody else may look")
        folder.chmod(0o755)
        there = folder / "lib"
        there.mkdir(mode=0o755)
        shutil.copy(source, there / "libtfdoctorprobe.so.1")
        (there / "libtfdoctorprobe.so.1").chmod(0o755)
        yield folder


def run_question(script: str, *arguments: str, **env: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return json.loads(done.stdout.splitlines()[-1])


def owner() -> str:
    import pwd

    return pwd.getpwuid(os.geteuid()).pw_name


@pytest.mark.parametrize("closed", ["file", "folder", "above"])
def test_what_may_not_be_read_is_not_absent(public: Path, closed: str) -> None:
    library = public / "lib/libtfdoctorprobe.so.1"
    shut = {"file": library, "folder": library.parent, "above": public / "shut"}[closed]
    if closed == "above":
        (public / "shut").mkdir()
        library.parent.rename(public / "shut/lib")
        library = public / "shut/lib/libtfdoctorprobe.so.1"
    shut.chmod(0)
    try:
        seen = run_question(LOADER, library.name, LD_LIBRARY_PATH=str(library.parent))
    finally:
        shut.chmod(0o755)
    # The loader itself says "No such file or directory", and the model agrees.
    assert (
        seen["error"]
        == seen["said"]
        == f"{library.name}: cannot open shared object file: No such file or directory"
    )
    problem = DENIED if closed == "file" else CLOSED
    assert [str(library), problem] in seen["tried"]
    [entry] = seen["denied"]
    assert entry == [str(library), str(shut), owner(), os.geteuid() != 0, "0"]


def test_a_noexec_file_system_is_told_as_the_loader_tells_it(public: Path) -> None:
    library = public / "lib/libtfdoctorprobe.so.1"
    system = LiveSystem(env={"LD_LIBRARY_PATH": str(library.parent)})
    process = Process(system, sys.executable, system.env, noexec=[str(public)])
    found = process.dlopen(library.name, None)
    assert found.error == f"{library}: {NOEXEC}"
    assert Process(system, sys.executable, system.env).dlopen(library.name, None).ok


def test_noexec_on_a_real_file_system(public: Path) -> None:
    """In a mount namespace of its own, where this machine lets one be made."""
    unshare = shutil.which("unshare")
    script = public / "try.sh"
    script.write_text(
        f'set -e\nmount --bind "{public}" "{public}"\nmount -o remount,bind,noexec "{public}"\n'
        f'exec "{sys.executable}" -c "$1" "$2"\n'
    )
    said = "import ctypes, sys\ntry: ctypes.CDLL(sys.argv[1])\nexcept OSError as e: print(e)"
    if unshare is None or os.geteuid() != 0:
        pytest.skip("no mount namespace here")
    namespace = [unshare, "-m", "sh", str(script)]
    library = str(public / "lib/libtfdoctorprobe.so.1")
    done = subprocess.run([*namespace, said, library], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("mounting is not allowed here")
    assert done.stdout.strip() == f"{library}: {NOEXEC}"
    payload = str(Path(tfdoctor.payload.__file__).with_name("target.py"))
    asking = "import runpy, sys; sys.path.insert(0, ''); runpy.run_path(sys.argv[1], run_name='__main__')"
    told = subprocess.run(
        [*namespace, asking, payload],
        env={**os.environ, "PYTHONPATH": str(public)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "tfdoctor-payload:" in told.stdout, told.stderr[-500:]
    answer = json.loads(told.stdout.partition("tfdoctor-payload:")[2].splitlines()[0])
    assert [str(public), str(public)] in answer["noexec"]


TARGET = f"""
import __future__, errno, importlib.util, json, os, pkgutil, platform, pwd, re, runpy, struct, sys, sysconfig
sysconfig.get_config_vars(), sysconfig.get_platform(), platform.python_version(), platform.machine()
{BECOME}
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""The standard library may be where nobody can read it: what is needed of it is imported before."""


@pytest.mark.parametrize("closed", ["tensorflow", ".", "tensorflow-2.20.0.dist-info/METADATA"])
def test_packages_that_may_not_be_read(public: Path, closed: str) -> None:
    site = public / "packages"
    (site / "tensorflow/python").mkdir(parents=True)
    (site / "tensorflow/__init__.py").touch()
    (site / "tensorflow-2.20.0.dist-info").mkdir()
    (site / "tensorflow-2.20.0.dist-info/METADATA").write_text("Name: tensorflow\nVersion: 2.20.0\n")
    for part in files_of(Path(tfdoctor.payload.__file__).with_name("target.py")):
        shutil.copy(part, public)
        (public / part.name).chmod(0o644)
    payload = public / "target.py"
    shut = site / closed
    before = shut.stat().st_mode
    shut.chmod(0)
    try:
        done = subprocess.run(
            [sys.executable, "-c", TARGET, str(payload)],
            env={**os.environ, "PYTHONPATH": str(site)},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    finally:
        shut.chmod(before)
    assert done.returncode == 0, done.stderr[-800:]
    answer = json.loads(done.stdout.partition("tfdoctor-payload:")[2].splitlines()[0])
    forbids = {entry[1] for entry in answer["closed"]}
    assert str(shut) in {os.path.normpath(path) for path in forbids}
    assert (answer["tensorflow"] is None) == (closed in ("tensorflow", "."))
    if closed != ".":
        assert ("tensorflow", "2.20.0") in {(d["name"], d["version"]) for d in answer["distributions"]}
