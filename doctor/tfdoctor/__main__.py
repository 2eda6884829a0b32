"""`python -m tfdoctor`, and the command `tfdoctor`: from the first moment on Ctrl-C and poverty end it quietly."""

from __future__ import annotations

import gc
import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # the first moments are short: nothing is loaded that Python has not loaded by itself
    from typing import NoReturn

GC_THRESHOLD_OBJECTS = 100_000
"""New objects between two searches for circles of garbage; `check` makes fewer."""


def run() -> NoReturn:
    """Run the command line; what it is made of is loaded here."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))  # nothing was started yet
    gc.set_threshold(GC_THRESHOLD_OBJECTS)
    _restart_without_pythonpath()
    try:
        from tfdoctor.cli.startup import run as command
    except (ImportError, MemoryError, OSError, RuntimeError) as error:
        if isinstance(error, ImportError):
            _restart_without_loader_variables()
        why = "there is not enough memory" if isinstance(error, MemoryError) else str(error)
        if sys.stderr is not None:
            sys.stderr.write(f"tfdoctor: it could not be loaded: {why}.\n")
        sys.exit(3)
    try:
        command()
    except SystemExit as end:
        _leave(end.code)
        raise
    except MemoryError:  # too little even to say so in the usual way
        os.write(2, b"tfdoctor: there is not enough memory.\n")
        os._exit(3)
    except ImportError:  # of a part that is loaded late; only where the next start may do better
        _restart_without_loader_variables()
        raise


def _leave(status: object) -> None:
    """End at once: CPython's farewell takes a tenth of `check`. All children have ended.

    Where a profiler or a tracer listens, it wants the farewell: return.
    """
    if not isinstance(status, int) or sys.gettrace() is not None or sys.getprofile() is not None:
        return
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):  # CPython says so
        return
    os._exit(status)


def _restart_without_pythonpath() -> None:
    """Start once more without PYTHONPATH's folders before tfdoctor's own: those are the examined Python's matter."""
    listed = os.environ.get("PYTHONPATH", "")
    if not listed or sys.flags.ignore_environment:
        return
    home = os.path.realpath(os.path.dirname(os.path.dirname(__file__)))  # noqa: PTH120 - pathlib takes long to load
    if home in {os.path.realpath(folder) for folder in listed.split(os.pathsep) if folder}:
        return  # it is itself found through it
    if os.path.basename(sys.argv[0]) != "__main__.py":  # noqa: PTH119
        words = [sys.argv[0]]
    elif sys.version_info >= (3, 11):
        words = ["-P", "-m", "tfdoctor"]
    else:
        return
    try:
        os.execv(sys.executable, [sys.executable, "-E", *words, *sys.argv[1:]])  # noqa: S606 - itself, once more
    except OSError:
        return


def _restart_without_loader_variables() -> None:
    """Start once more without LD_LIBRARY_PATH and LD_PRELOAD, which may give this Python a library that it cannot use.

    What they were stands in TFDOCTOR_LOADER: `system.live` examines the machine with it.
    """
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "LD_PRELOAD") if name in os.environ}
    if not kept or "TFDOCTOR_LOADER" in os.environ:
        return
    env = {name: text for name, text in os.environ.items() if name not in kept}
    env["TFDOCTOR_LOADER"] = "\n".join(f"{name}={text}" for name, text in kept.items())
    try:
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], env)  # noqa: S606 - itself, once more
    except OSError:
        return


if __name__ == "__main__":
    run()
