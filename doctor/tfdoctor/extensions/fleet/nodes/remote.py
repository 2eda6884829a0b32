"""Write tfdoctor's zipapp to a private folder on a Dask or Ray worker, run it, and remove it.

This module is sent to a Python without tfdoctor, so it uses only the standard library and plain values.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

__all__ = ["run_here", "run_on_dask"]

GUARD_SCRIPT = 'exec 3<&0; { read -r x <&3 || { kill -9 "-$1"; rm -rf "$2"; }; } >/dev/null 2>&1 &'
"""A shell script that ends the command and removes the folder if the worker is killed."""
POLL_S = 0.5
"""Seconds between two checks for a cancelled task."""


def run_on_dask(
    content: bytes, python: str, arguments: tuple[str, ...], time_limit_s: float, max_output_bytes: int
) -> bytes:
    """Run the command with `run_here`, and stop it if the task is cancelled.

    Dask itself does not stop running tasks.
    """
    try:
        import distributed  # type: ignore[import-not-found, unused-ignore]

        worker = distributed.get_worker()
        key = worker.get_current_task()
    except Exception:
        return run_here(content, python, arguments, time_limit_s, max_output_bytes)

    def is_cancelled() -> bool:
        with contextlib.suppress(Exception):
            task = worker.state.tasks.get(key)
            return task is None or task.state in ("cancelled", "released", "forgotten")
        return False

    return run_here(content, python, arguments, time_limit_s, max_output_bytes, is_cancelled)


def run_here(
    content: bytes,
    python: str,
    arguments: tuple[str, ...],
    time_limit_s: float,
    max_output_bytes: int,
    is_cancelled: Any = None,
) -> bytes:
    """Run the command and return a line of JSON, followed by the output.

    The line has the keys "ended", "why" and "seconds" (see `models.parse_answer`). `content` is the zipapp, and `python`
    is the interpreter that runs it: "" means the worker's own. `max_output_bytes` is the most bytes of output.
    `is_cancelled` is a function that returns whether to stop. None means never.
    """
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tfdoctor-") as folder:
        path = os.path.join(folder, "tfdoctor.pyz")  # noqa: PTH118 - only simple functions are used here
        with open(path, "wb") as file:  # noqa: PTH123
            file.write(content)
        try:
            child = subprocess.Popen(
                [python or sys.executable, path, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, "TMPDIR": folder},
                start_new_session=True,
            )
        except OSError as error:
            return _encode("failed", f"{python}: {error.strerror}", 0.0, b"")
        is_late, error_output = threading.Event(), bytearray()
        error_reader = threading.Thread(target=_collect_tail, args=(child.stderr, error_output), daemon=True)
        error_reader.start()
        guard = _start_guard(child.pid, folder)
        finished = threading.Event()
        threading.Thread(
            target=_watch, args=(child, time_limit_s, is_cancelled, is_late, finished), daemon=True
        ).start()
        output = bytearray()
        try:
            stream: Any = child.stdout
            while len(output) <= max_output_bytes and (chunk := stream.read1(1 << 16)):
                output += chunk
            if len(output) > max_output_bytes:
                _kill(child)
            status = child.wait()
        finally:
            finished.set()
            _kill(child)  # processes that the command started
            with contextlib.suppress(OSError):
                if guard is not None:
                    guard.write(b"\n")
                    guard.close()
        error_reader.join(1)
    seconds = round(time.monotonic() - started, 3)
    if len(output) > max_output_bytes:
        ended, reason = "flooded", f"more than {max_output_bytes >> 20} MiB"
    elif is_late.is_set():
        ended, reason = "timeout", f"no answer within {time_limit_s:g} s"
    elif output.strip():
        ended, reason = "answered", ""
    else:
        last_line = error_output.decode("utf-8", "replace").strip().rpartition("\n")[2][:200]
        ended, reason = "failed", f"exit status {status}{': ' if last_line else ''}{last_line}"
    return _encode(ended, reason, seconds, bytes(output) if ended == "answered" else b"")


def _encode(ended: str, reason: str, seconds: float, output: bytes) -> bytes:
    return json.dumps({"ended": ended, "why": reason, "seconds": seconds}).encode("ascii") + b"\n" + output


def _kill(child: Any) -> None:
    """Kill the command with its process group."""
    with contextlib.suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)


def _collect_tail(stream: Any, tail: bytearray) -> None:
    """Read a stream to its end, and store its last 4096 bytes in `tail`."""
    while chunk := stream.read1(1 << 16):
        tail.extend(chunk)
        del tail[:-4096]


def _watch(child: Any, deadline: float, is_cancelled: Any, is_late: Any, finished: Any) -> None:
    """Kill the command at its deadline, or if the task is cancelled."""
    end_time = time.monotonic() + deadline
    while not finished.wait(min(POLL_S, max(0.0, end_time - time.monotonic()))):
        if time.monotonic() >= end_time:
            is_late.set()
        elif is_cancelled is None or not is_cancelled():
            continue
        _kill(child)
        return


def _start_guard(group: int, folder: str) -> Any:
    """Start the guard shell and return its standard input, or None if there is no shell.

    A line on it stops the guard. Closing it without a line, as happens when this process is killed, makes the guard kill
    the process group and remove the folder.
    """
    try:
        shell = subprocess.Popen(
            ["/bin/sh", "-c", GUARD_SCRIPT, "sh", str(group), folder],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        shell.wait()
    except OSError:
        return None
    return shell.stdin
