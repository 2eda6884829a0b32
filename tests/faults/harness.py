"""Helpers of the fault tests: run `tfdoctor` in a child process or in a shell, and write programs that hang."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

HOSTS = Path(__file__).parents[1] / "hosts"
HEALTHY = HOSTS / "healthy-one-gpu"


def run_in_shell(script: str, *, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    """Run a line of bash in which `DOCTOR` stands for tfdoctor."""
    return subprocess.run(
        ["/bin/bash", "-c", script.replace("DOCTOR", f"{sys.executable} -m tfdoctor")],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={**os.environ, **(env or {})},
        timeout=120,
        check=False,
    )


def start_tfdoctor(*args: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start `tfdoctor` and return the running process."""
    return subprocess.Popen(
        [sys.executable, "-m", "tfdoctor", *args],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **(env or {})},
    )


def write_program(path: Path, body: str) -> Path:
    """Write a shell script to `path`, make it executable and return the path."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def wait_for(condition: Callable[[], bool], seconds: float = 30) -> bool:
    """Return whether the condition becomes true within `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def is_alive(pid: int) -> bool:
    """Return whether the process exists and is not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"
