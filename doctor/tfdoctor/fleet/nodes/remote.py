"""What a worker of Dask or Ray does on its node: writes the file to a private folder, runs it, takes it away again.

It is sent there as source, to Pythons that have no tfdoctor: the standard library alone, and nothing but plain values.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
import time
from typing import Any

__all__ = ["run_here"]


def run_here(
    content: bytes, python: str, arguments: tuple[str, ...], deadline: float, largest: int
) -> dict[str, Any]:
    """{"ended", "output", "why", "seconds"} as in `models.Answer`. python: "" for the worker's own."""
    import sys

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
                start_new_session=True,
            )
        except OSError as error:
            return {"ended": "failed", "output": b"", "why": f"{python}: {error.strerror}", "seconds": 0.0}
        late = threading.Event()

        def stop(mark: bool = True) -> None:
            if mark:
                late.set()
            with contextlib.suppress(OSError):
                os.killpg(child.pid, signal.SIGKILL)

        said = bytearray()

        def listen() -> None:
            stream: Any = child.stderr
            while piece := stream.read1(1 << 16):
                said.extend(piece)
                del said[:-4096]

        timer = threading.Timer(deadline, stop)
        listener = threading.Thread(target=listen, daemon=True)
        timer.start()
        listener.start()
        output = bytearray()
        try:
            stream: Any = child.stdout
            while len(output) <= largest and (piece := stream.read1(1 << 16)):
                output += piece
            if len(output) > largest:
                stop(mark=False)
            status = child.wait()
        finally:
            timer.cancel()
            stop(mark=False)  # what it started itself
        listener.join(1)
        seconds = round(time.monotonic() - began, 3)
        last = said.decode("utf-8", "replace").strip().rpartition("\n")[2][:200]
        if len(output) > largest:
            return {
                "ended": "flooded",
                "output": b"",
                "why": f"more than {largest >> 20} MiB",
                "seconds": seconds,
            }
        if late.is_set():
            why = f"no answer within {deadline:g} s"
            return {"ended": "timeout", "output": b"", "why": why, "seconds": seconds}
        if output.strip():
            return {"ended": "answered", "output": bytes(output), "why": "", "seconds": seconds}
        why = f"exit status {status}{': ' if last else ''}{last}"
        return {"ended": "failed", "output": b"", "why": why, "seconds": seconds}
