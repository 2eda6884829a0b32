"""A PYTHONPATH that breaks others does not break tfdoctor, which has to tell of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from faults.harness import HEALTHY

NEW_ENOUGH = pytest.mark.skipif(sys.version_info < (3, 11), reason="-P is of 3.11")


def tfdoctor(*words: str, path: Path, module: bool, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "tfdoctor"
    script.write_text("from tfdoctor.__main__ import run\nrun()\n", encoding="utf-8")
    start = ["-m", "tfdoctor"] if module else [str(script)]
    return subprocess.run(
        [sys.executable, *start, *words],
        env={**os.environ, "PYTHONPATH": str(path)},
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("module", [pytest.param(True, marks=NEW_ENOUGH), False])
@pytest.mark.parametrize("name", ["typer", "packaging", "click", "json"])
def test_a_module_of_another_is_not_taken(tmp_path: Path, name: str, module: bool) -> None:
    path = tmp_path / "path"
    path.mkdir()
    (path / f"{name}.py").write_text("raise RuntimeError('hostile')\n", encoding="utf-8")
    done = tfdoctor("check", "--facts", str(HEALTHY), "-q", path=path, module=module, tmp_path=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "will use" in done.stdout


def test_where_it_is_found_through_it_it_stays(tmp_path: Path) -> None:
    import tfdoctor as package

    path = Path(package.__file__).parents[1]
    done = tfdoctor("--version", path=path, module=False, tmp_path=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs cc")
def test_a_library_that_its_own_python_cannot_use(tmp_path: Path) -> None:
    """An empty libz on LD_LIBRARY_PATH: tfdoctor starts without it, and says so of the examined Python's."""
    source = tmp_path / "z.c"
    source.write_text("int nothing;\n", encoding="utf-8")
    library = tmp_path / "libz.so.1"
    words = ["cc", "-shared", "-fPIC", "-Wl,-soname,libz.so.1", "-o", str(library), str(source)]
    subprocess.run(words, check=True, capture_output=True)
    env = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    alone = subprocess.run([sys.executable, "-c", "import zlib"], env=env, capture_output=True, check=False)
    if alone.returncode == 127:  # the loader's; where zlib is a module of its own it is an ImportError
        pytest.skip("Python itself is linked with libz, as Debian's is: no program that needs it runs")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tfdoctor",
            "check",
            "--json",
            "--fail-on",
            "never",
            "--python",
            sys.executable,
        ],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)["facts"]
    assert facts["environment"]["variables"]["LD_LIBRARY_PATH"] == str(tmp_path)
    assert str(library) in facts["python"]["known"]["carried"]
