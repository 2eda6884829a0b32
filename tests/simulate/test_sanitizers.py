"""The software GPU's own tests with its sources under the sanitizers for addresses and for what C leaves undefined.

It takes minutes: TFDOCTOR_LAB=1 TFDOCTOR_LAB_FULL=1 runs it where the compiler has them.
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


def runtime(name: str) -> str | None:
    """A library of the compiler's; None where it has none of that name."""
    compiler = os.environ.get("CC") or "cc"
    try:
        done = subprocess.run(
            [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    found = done.stdout.strip()
    return found if Path(found).is_absolute() and Path(found).exists() else None


def is_sanitized(folder: Path) -> dict[str, str] | str:
    """The environment of a Python that loads libraries with sanitizers in them; the reason where there can be none."""
    loaded = [runtime("libasan.so"), runtime("libstdc++.so")]
    if None in loaded or runtime("libubsan.so") is None:
        return "the compiler has no sanitizers"
    return {
        **os.environ,
        "LD_PRELOAD": " ".join(filter(None, loaded)),
        "ASAN_OPTIONS": "detect_leaks=0",  # Python itself leaves memory behind
        "TFDOCTOR_SANITIZE": "1",
        "TFDOCTOR_LAB_CACHE": str(folder),
    }


@pytest.mark.few(0)
def test_they_see_what_is_wrong(tmp_path: Path) -> None:
    """That the rest of this file can fail: a read past the end of an array, and a shift that C does not define."""
    env = is_sanitized(tmp_path)
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
    for call, said in (
        ("past(0)", ""),
        ("past(1)", "heap-buffer-overflow"),
        ("shifted(32)", "shift exponent"),
    ):
        code = f"import ctypes; ctypes.CDLL({str(library)!r}).{call}"
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
        )
        assert (said in done.stderr, done.returncode == 0) == (True, not said), done.stderr


@pytest.mark.timeout(1800)
@pytest.mark.skipif(not environments.list_everything(), reason="minutes: TFDOCTOR_LAB_FULL=1")
@pytest.mark.parametrize("tested", TESTED, ids=lambda path: path.stem)
def test_nothing_is_wrong(tested: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    cache = tmp_path_factory.getbasetemp() / "sanitized"
    cache.mkdir(exist_ok=True)
    env = is_sanitized(cache)
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
    done = subprocess.run(
        command, env=env, cwd=HERE.parents[1], capture_output=True, text=True, check=False, timeout=1500
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout
