"""What a worker of Dask or Ray does on its node: writes the file to a private folder, runs it, takes it away again.

It is sent there as source, to Pythons that have no tfdoctor: the standard library alone, and nothing but plain values.
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

GUARD = 'exec 3<&0; { read -r x <&3 || { kill -9 "-$1"; rm -rf "$2"; }; } >/dev/null 2>&1 &'
"""A shell that outlives us: where the worker is killed, it ends what we started, and takes the folder away."""
LOOK = 0.5
"""Seconds between two looks whether the answer is still wanted."""


def run_on_dask(
    content: bytes, python: str, arguments: tuple[str, ...], deadline: float, largest: int
) -> bytes:
    """`run_here` until the task is cancelled, which Dask itself does not tell one that runs."""
    try:
        import distributed  # type: ignore[import-not-found, unused-ignore]

        worker = distributed.get_worker()
        key = worker.get_current_task()
    except Exception:
        return run_here(content, python, arguments, deadline, largest)

    def is_cancelled() -> bool:
        with contextlib.suppress(Exception):
            task = worker.state.tasks.get(key)
            return task is None or task.state in ("cancelled", "released", "forgotten")
        return False

    return run_here(content, python, arguments, deadline, largest, is_cancelled)


def run_here(
    content: bytes,
    python: str,
    arguments: tuple[str, ...],
    deadline: float,
    largest: int,
    cancelled: Any = None,
) -> bytes:
    """Return a line of JSON, {"ended", "why", "seconds"} as in `models.Answer`, and after it the output.

    python: "" for the worker's own.
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tfdoctor-") as folder:
        path = os.path.join(folder, "tfdoctor.pyz")  # noqa: PTH118 - as plain as can be
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
        late, said = threading.Event(), bytearray()
        listener = threading.Thread(target=_listen, args=(child.stderr, said), daemon=True)
        listener.start()
        guard = _guard(child.pid, folder)
        over = threading.Event()
        threading.Thread(target=_watch, args=(child, deadline, cancelled, late, over), daemon=True).start()
        output = bytearray()
        try:
            stream: Any = child.stdout
            while len(output) <= largest and (piece := stream.read1(1 << 16)):
                output += piece
            if len(output) > largest:
                _kill(child)
            status = child.wait()
        finally:
            over.set()
            _kill(child)  # what it started itself
            with contextlib.suppress(OSError):
                if guard is not None:
                    guard.write(b"\n")
                    guard.close()
        listener.join(1)
    seconds = round(time.monotonic() - began, 3)
    if len(output) > largest:
        ended, why = "flooded", f"more than {largest >> 20} MiB"
    elif late.is_set():
        ended, why = "timeout", f"no answer within {deadline:g} s"
    elif output.strip():
        ended, why = "answered", ""
    else:
        last = said.decode("utf-8", "replace").strip().rpartition("\n")[2][:200]
        ended, why = "failed", f"exit status {status}{': ' if last else ''}{last}"
    return _encode(ended, why, seconds, bytes(output) if ended == "answered" else b"")


def _encode(ended: str, why: str, seconds: float, output: bytes) -> bytes:
    return json.dumps({"ended": ended, "why": why, "seconds": seconds}).encode("ascii") + b"\n" + output


def _kill(child: Any) -> None:
    with contextlib.suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)


def _listen(stream: Any, said: bytearray) -> None:
    while piece := stream.read1(1 << 16):
        said.extend(piece)
        del said[:-4096]


def _watch(child: Any, deadline: float, cancelled: Any, late: Any, over: Any) -> None:
    """End it at its deadline, or where nobody waits for it any more."""
    until = time.monotonic() + deadline
    while not over.wait(min(LOOK, max(0.0, until - time.monotonic()))):
        if time.monotonic() >= until:
            late.set()
        elif cancelled is None or not cancelled():
            continue
        _kill(child)
        return


def _guard(number: int, folder: str) -> Any:
    """Return what a line ends, and the end of this process sets off: see GUARD. None if there is no shell."""
    try:
        shell = subprocess.Popen(
            ["/bin/sh", "-c", GUARD, "sh", str(number), folder],
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
