"""The software GPU's own tests, with its sources compiled with the address and undefined-behaviour sanitizers.

It takes minutes: TFDOCTOR_LAB=1 TFDOCTOR_LAB_FULL=1 runs it if the compiler has the sanitizers.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab import environments
from lab.softgpu import SANITIZED

HERE = Path(__file__).resolve().parent
TESTED = [*sorted(HERE.glob("test_ptx_*.py")), *sorted(HERE.glob("test_calls*.py")), HERE / "test_nccl.py"]


def find_compiler_library(name: str) -> str | None:
    """Return the path of one of the compiler's libraries, or None if it has none of that name."""
    compiler = os.environ.get("CC") or "cc"
    try:
        process = subprocess.run(
            [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    path = process.stdout.strip()
    return path if Path(path).is_absolute() and Path(path).exists() else None


def sanitizer_environment(folder: Path) -> dict[str, str] | str:
    """Return the environment of a Python that loads sanitized libraries, or the reason why there is none."""
    preloaded = [find_compiler_library("libasan.so"), find_compiler_library("libstdc++.so")]
    if None in preloaded or find_compiler_library("libubsan.so") is None:
        return "the compiler has no sanitizers"
    return {
        **os.environ,
        "LD_PRELOAD": " ".join(filter(None, preloaded)),
        "ASAN_OPTIONS": "detect_leaks=0",  # Python itself does not free all of its memory
        "TFDOCTOR_SANITIZE": "1",
        "TFDOCTOR_LAB_CACHE": str(folder),
    }


@pytest.mark.few(0)
def test_sanitizers_detect_errors(tmp_path: Path) -> None:
    """Show that the other test can fail, with a read past the end of an array and an undefined shift."""
    env = sanitizer_environment(tmp_path)
    if isinstance(env, str):
        pytest.skip(env)
    source = tmp_path / "wrong.c"
    source.write_text(
        "#include <stdlib.h>\n"
        "int past(int n) { int *p = malloc(4); int v = p[n]; free(p); return v; }\n"
        "int shifted(int n) { return 1 << n; }\n",
        encoding="ascii",
    )
    library = tmp_path / "wrong.so"
    compiler = os.environ.get("CC") or "cc"
    command = [compiler, *SANITIZED, "-shared", "-fPIC", "-o", str(library), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    for call, message in (
        ("past(0)", ""),
        ("past(1)", "heap-buffer-overflow"),
        ("shifted(32)", "shift exponent"),
    ):
        code = f"import ctypes; ctypes.CDLL({str(library)!r}).{call}"
        process = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
        )
        assert (message in process.stderr, process.returncode == 0) == (True, not message), process.stderr


@pytest.mark.timeout(1800)
@pytest.mark.skipif(not environments.is_full_run(), reason="minutes: TFDOCTOR_LAB_FULL=1")
@pytest.mark.parametrize("tested", TESTED, ids=lambda path: path.stem)
def test_software_gpu_passes_with_sanitizers(
    tested: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cache = tmp_path_factory.getbasetemp() / "sanitized"
    cache.mkdir(exist_ok=True)
    env = sanitizer_environment(cache)
    if isinstance(env, str):
        pytest.skip(env)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-n0",
        f"--basetemp={tmp_path / 'inner'}",
        str(tested),
    ]
    process = subprocess.run(
        command, env=env, cwd=HERE.parents[1], capture_output=True, text=True, check=False, timeout=1500
    )
    assert process.returncode == 0, process.stdout[-6000:] + process.stderr[-3000:]
    assert " passed" in process.stdout
    assert "skipped" not in process.stdout
