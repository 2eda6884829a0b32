"""A PYTHONPATH that breaks other programs does not break tfdoctor, which has to report it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from faults.harness import HEALTHY

NEEDS_PYTHON_311 = pytest.mark.skipif(sys.version_info < (3, 11), reason="-P is of 3.11")


def run_tfdoctor(
    *arguments: str, path: Path, module: bool, tmp_path: Path
) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "tfdoctor"
    script.write_text("from tfdoctor.__main__ import run\nrun()\n", encoding="utf-8")
    program = ["-m", "tfdoctor"] if module else [str(script)]
    return subprocess.run(
        [sys.executable, *program, *arguments],
        env={**os.environ, "PYTHONPATH": str(path)},
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("module", [pytest.param(True, marks=NEEDS_PYTHON_311), False])
@pytest.mark.parametrize("name", ["typer", "packaging", "click", "json"])
def test_foreign_modules_are_not_imported(tmp_path: Path, name: str, module: bool) -> None:
    path = tmp_path / "path"
    path.mkdir()
    (path / f"{name}.py").write_text("raise RuntimeError('hostile')\n", encoding="utf-8")
    result = run_tfdoctor("check", "--from", str(HEALTHY), "-q", path=path, module=module, tmp_path=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert "will use" in result.stdout


@pytest.mark.parametrize("module", [pytest.param(True, marks=NEEDS_PYTHON_311), False])
def test_variables_of_a_sitecustomize_are_not_those_of_the_shell(tmp_path: Path, module: bool) -> None:
    path = tmp_path / "path"
    path.mkdir()
    (path / "sitecustomize.py").write_text(
        "import os; os.environ['TF_GPU_ALLOCATOR'] = 'x'\n", encoding="utf-8"
    )
    arguments = ("check", "--json", "--python", sys.executable)
    result = run_tfdoctor(*arguments, path=path, module=module, tmp_path=tmp_path)
    origins = json.loads(result.stdout)["facts"]["environment"]["origins"]
    (origin,) = [origin for origin in origins if origin["name"] == "TF_GPU_ALLOCATOR"]
    assert (origin["by"], origin["path"]) == ("start", str(path / "sitecustomize.py"))


def test_tfdoctor_found_through_pythonpath_starts(tmp_path: Path) -> None:
    import tfdoctor as package

    path = Path(package.__file__).parents[1]
    result = run_tfdoctor("--version", path=path, module=False, tmp_path=tmp_path)
    assert result.returncode == 0, result.stderr


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs cc")
def test_tfdoctor_starts_with_a_broken_libz(tmp_path: Path) -> None:
    """Start despite an empty libz on LD_LIBRARY_PATH and record the file in the facts of the examined Python."""
    source = tmp_path / "z.c"
    source.write_text("int nothing;\n", encoding="utf-8")
    library = tmp_path / "libz.so.1"
    command = ["cc", "-shared", "-fPIC", "-Wl,-soname,libz.so.1", "-o", str(library), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    env = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    zlib_import = subprocess.run(
        [sys.executable, "-c", "import zlib"], env=env, capture_output=True, check=False
    )
    if zlib_import.returncode == 127:  # the loader's status; if zlib is a separate module, an ImportError
        pytest.skip("Python itself is linked with libz, as Debian's is: no program that needs it runs")
    result = subprocess.run(
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
    assert result.returncode == 0, result.stderr
    facts = json.loads(result.stdout)["facts"]
    assert facts["environment"]["variables"]["LD_LIBRARY_PATH"] == str(tmp_path)
    assert str(library) in facts["python"]["known"]["carried"]


def test_help_without_docstrings(tmp_path: Path) -> None:
    """PYTHONOPTIMIZE=2, which some images set, leaves the docstrings out; they are the help and the pages of `explain`."""
    for arguments in (["check", "--help"], ["explain", "TFD101"], ["--help"]):
        screens = [
            subprocess.run(
                [sys.executable, "-m", "tfdoctor", *arguments],
                env={**os.environ, "PYTHONOPTIMIZE": level},
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=120,
                check=True,
            ).stdout
            for level in ("", "2")
        ]
        assert screens[0] == screens[1]
        assert len(screens[0]) > 500
