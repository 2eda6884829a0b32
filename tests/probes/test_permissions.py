"""Files that exist but must not be read, with real files, real modes and glibc's own messages.

Root may read everything, so a child process drops its privileges first.
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
from tfdoctor.core.facts import FOLDER_DENIED, NOEXEC_ERROR, PERMISSION_DENIED
from tfdoctor.probes.loader import LoaderProcess
from tfdoctor.system import LiveSystem
from tfdoctor.system.payloads import list_payload_files

if TYPE_CHECKING:
    from collections.abc import Iterator

NOBODY = 65534
DROP_PRIVILEGES = f"""
import os, sys
if os.geteuid() == 0:
    os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
"""
LOADER_SCRIPT = f"""
import ctypes, json, sys
from tfdoctor.core.facts import Known, LoaderFacts
from tfdoctor.probes import permissions
from tfdoctor.probes.loader import LoaderProcess
from tfdoctor.system import LiveSystem
import tfdoctor.probes.processes, subprocess, tempfile
{DROP_PRIVILEGES}
system = LiveSystem()
process = LoaderProcess(system, sys.executable, dict(os.environ), glibc=None)
name = sys.argv[1]
found = process.dlopen(name, process._main)
try:
    ctypes.CDLL(name)
    said = ""
except OSError as error:
    said = str(error)
facts = LoaderFacts(None, (), (), (found,), (), ())
denied = permissions.add_denied_files(system, Known(facts, "test")).value.denied
print(json.dumps({{
    "error": found.error, "said": said, "tried": [[t.path, t.problem] for t in found.tried],
    "denied": [[d.path, d.closed, d.owner, d.own, d.mode] for d in denied],
}}))
"""


@pytest.fixture
def public() -> Iterator[Path]:
    """Yield a folder that every user can reach, with a library in it; pytest's own folders are private to its user."""
    sources = (Path("/lib/x86_64-linux-gnu/libm.so.6"), Path("/lib64/libm.so.6"), Path("/usr/lib/libm.so.6"))
    source = next((path for path in sources if path.exists()), None)
    if source is None:
        pytest.skip("another kind of machine")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if os.geteuid() == 0 and any(not parent.stat().st_mode & 1 for parent in folder.parents):
            pytest.skip("temporary files are where nobody else may look")
        folder.chmod(0o755)
        library_folder = folder / "lib"
        library_folder.mkdir(mode=0o755)
        shutil.copy(source, library_folder / "libtfdoctorprobe.so.1")
        (library_folder / "libtfdoctorprobe.so.1").chmod(0o755)
        yield folder


def run_script(script: str, *arguments: str, **env: str) -> Any:
    """Run a script in a child process and return the JSON of its last line."""
    process = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return json.loads(process.stdout.splitlines()[-1])


def get_user_name() -> str:
    """Return the name of the current user."""
    import pwd

    return pwd.getpwuid(os.geteuid()).pw_name


@pytest.mark.parametrize("closed", ["file", "folder", "above"])
def test_unreadable_library_is_reported_as_denied(public: Path, closed: str) -> None:
    library = public / "lib/libtfdoctorprobe.so.1"
    locked = {"file": library, "folder": library.parent, "above": public / "shut"}[closed]
    if closed == "above":
        (public / "shut").mkdir()
        library.parent.rename(public / "shut/lib")
        library = public / "shut/lib/libtfdoctorprobe.so.1"
    locked.chmod(0)
    try:
        answer = run_script(LOADER_SCRIPT, library.name, LD_LIBRARY_PATH=str(library.parent))
    finally:
        locked.chmod(0o755)
    # The real loader says "No such file or directory", and the model agrees.
    assert (
        answer["error"]
        == answer["said"]
        == f"{library.name}: cannot open shared object file: No such file or directory"
    )
    problem = PERMISSION_DENIED if closed == "file" else FOLDER_DENIED
    assert [str(library), problem] in answer["tried"]
    [entry] = answer["denied"]
    assert entry == [str(library), str(locked), get_user_name(), os.geteuid() != 0, "0"]


def test_noexec_error_equals_the_loaders(public: Path) -> None:
    library = public / "lib/libtfdoctorprobe.so.1"
    system = LiveSystem(env={"LD_LIBRARY_PATH": str(library.parent)})
    process = LoaderProcess(system, sys.executable, system.env, noexec=[str(public)])
    resolution = process.dlopen(library.name, None)
    assert resolution.error == f"{library}: {NOEXEC_ERROR}"
    assert LoaderProcess(system, sys.executable, system.env).dlopen(library.name, None).ok


def test_noexec_on_a_real_file_system(public: Path) -> None:
    """Use a separate mount namespace, if this machine allows one."""
    unshare = shutil.which("unshare")
    script = public / "try.sh"
    script.write_text(
        f'set -e\nmount --bind "{public}" "{public}"\nmount -o remount,bind,noexec "{public}"\n'
        f'exec "{sys.executable}" -c "$1" "$2"\n'
    )
    loading = "import ctypes, sys\ntry: ctypes.CDLL(sys.argv[1])\nexcept OSError as e: print(e)"
    if unshare is None or os.geteuid() != 0:
        pytest.skip("no mount namespace here")
    namespace = [unshare, "-m", "sh", str(script)]
    library = str(public / "lib/libtfdoctorprobe.so.1")
    process = subprocess.run([*namespace, loading, library], capture_output=True, text=True, check=False)
    if process.returncode:
        pytest.skip("mounting is not allowed here")
    assert process.stdout.strip() == f"{library}: {NOEXEC_ERROR}"
    payload = str(Path(tfdoctor.payload.__file__).with_name("target.py"))
    run_payload = (
        "import runpy, sys; sys.path.insert(0, ''); runpy.run_path(sys.argv[1], run_name='__main__')"
    )
    payload_process = subprocess.run(
        [*namespace, run_payload, payload],
        env={**os.environ, "PYTHONPATH": str(public)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "tfdoctor-payload:" in payload_process.stdout, payload_process.stderr[-500:]
    answer = json.loads(payload_process.stdout.partition("tfdoctor-payload:")[2].splitlines()[0])
    assert [str(public), str(public)] in answer["noexec"]


TARGET_SCRIPT = f"""
import __future__, errno, importlib.util, json, os, pkgutil, platform, pwd, re, runpy, struct, sys, sysconfig
sysconfig.get_config_vars(), sysconfig.get_platform(), platform.python_version(), platform.machine()
{DROP_PRIVILEGES}
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs the payload unprivileged; the modules are imported before, because the standard library may be private."""


def run_target_payload(public: Path, locked: Path, script: str, **env: str) -> Any:
    """Return the answer of the payload while a path has no permissions."""
    for part in list_payload_files(Path(tfdoctor.payload.__file__).with_name("target.py")):
        shutil.copy(part, public)
        (public / part.name).chmod(0o644)
    mode = locked.stat().st_mode
    locked.chmod(0)
    try:
        process = subprocess.run(
            [sys.executable, "-c", script, str(public / "target.py")],
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    finally:
        locked.chmod(mode)
    assert process.returncode == 0, process.stderr[-800:]
    return json.loads(process.stdout.partition("tfdoctor-payload:")[2].splitlines()[0])


def test_own_site_packages_below_a_private_folder_are_reported(public: Path) -> None:
    """Python leaves a site-packages that it may not enter off its path."""
    site = public / "private/python3.11/site-packages"
    site.mkdir(parents=True)
    script = TARGET_SCRIPT.replace(
        "sys.argv = sys.argv[1:]", f"sysconfig.get_path = lambda _: {str(site)!r}; sys.argv = sys.argv[1:]"
    )
    answer = run_target_payload(public, public / "private", script)
    assert [entry[:2] for entry in answer["closed"] if entry[0] == str(site)] == [
        [str(site), str(public / "private")]
    ]
    assert answer["site_packages"] == [str(site)]


@pytest.mark.parametrize("closed", ["tensorflow", ".", "tensorflow-2.20.0.dist-info/METADATA"])
def test_unreadable_packages_are_reported(public: Path, closed: str) -> None:
    site = public / "packages"
    (site / "tensorflow/python").mkdir(parents=True)
    (site / "tensorflow/__init__.py").touch()
    (site / "tensorflow-2.20.0.dist-info").mkdir()
    (site / "tensorflow-2.20.0.dist-info/METADATA").write_text("Name: tensorflow\nVersion: 2.20.0\n")
    locked = site / closed
    answer = run_target_payload(public, locked, TARGET_SCRIPT, PYTHONPATH=str(site))
    closed_paths = {entry[1] for entry in answer["closed"]}
    assert str(locked) in {os.path.normpath(path) for path in closed_paths}
    assert (answer["tensorflow"] is None) == (closed in ("tensorflow", "."))
    if closed != ".":
        assert ("tensorflow", "2.20.0") in {
            (distribution["name"], distribution["version"]) for distribution in answer["distributions"]
        }
