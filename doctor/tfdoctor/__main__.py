"""The entry point of `python -m tfdoctor` and of the command `tfdoctor`.

The process ends without a traceback if the user interrupts it or if memory runs out.
"""

from __future__ import annotations

import gc
import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # to start quickly, import only modules that Python has loaded already
    from typing import NoReturn

GC_THRESHOLD_OBJECTS = 100_000
"""The number of new objects after which garbage is collected. `check` creates fewer, so it runs without a collection."""


def run() -> NoReturn:
    """Run the command line. Its modules are imported here so that an import error can be reported."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))  # no child process to stop yet
    gc.set_threshold(GC_THRESHOLD_OBJECTS)
    _restart_without_pythonpath()
    try:
        from tfdoctor.cli.startup import run as command
    except (ImportError, MemoryError, OSError, RuntimeError) as error:
        if isinstance(error, ImportError):
            _restart_without_loader_variables()
        reason = "there is not enough memory" if isinstance(error, MemoryError) else str(error)
        if sys.stderr is not None:
            if os.environ.get("PYTHONHOME") and not sys.flags.ignore_environment:
                reason += ". PYTHONHOME gives this Python another one's modules: type `unset PYTHONHOME`"
            sys.stderr.write(f"tfdoctor: it could not be loaded: {reason}.\n")
        sys.exit(3)  # ExitCode.IMPOSSIBLE
    try:
        command()
    except SystemExit as exit_request:
        _exit_immediately(exit_request.code)
        raise
    except MemoryError:  # too little is left for the usual error message
        os.write(2, b"tfdoctor: there is not enough memory.\n")
        os._exit(3)  # ExitCode.IMPOSSIBLE
    except ImportError:  # from a module that is imported late
        _restart_without_loader_variables()
        raise


def _exit_immediately(status: object) -> None:
    """Exit without CPython's cleanup, which takes a tenth of the time of `check`.

    Return if a profiler or tracer is active, because it needs the cleanup, or if flushing fails.
    """
    if not isinstance(status, int) or sys.gettrace() is not None or sys.getprofile() is not None:
        return
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):  # CPython reports this itself
        return
    os._exit(status)


def _restart_without_pythonpath() -> None:
    """Restart without PYTHONPATH, whose modules could replace those of tfdoctor.

    Do nothing if Python finds tfdoctor itself through PYTHONPATH.
    """
    python_path = os.environ.get("PYTHONPATH", "")
    if not python_path or sys.flags.ignore_environment:
        return
    package_parent = os.path.realpath(os.path.dirname(os.path.dirname(__file__)))  # noqa: PTH120 - pathlib takes long to load
    if package_parent in {os.path.realpath(folder) for folder in python_path.split(os.pathsep) if folder}:
        return
    if os.path.basename(sys.argv[0]) != "__main__.py":  # noqa: PTH119
        arguments = [sys.argv[0]]
    elif sys.version_info >= (3, 11):
        arguments = ["-P", "-m", "tfdoctor"]
    else:
        return
    try:
        os.execve(  # noqa: S606 - runs tfdoctor again
            sys.executable, [sys.executable, "-E", *arguments, *sys.argv[1:]], _read_start_variables()
        )
    except OSError:
        return


def _read_start_variables() -> dict[bytes, bytes]:
    """Return the variables that this process was started with: a sitecustomize.py may have changed them since.

    Raise OSError if the system does not tell.
    """
    with open("/proc/self/environ", "rb") as stream:  # noqa: PTH123 - pathlib takes long to load
        entries = [entry.partition(b"=") for entry in stream.read().split(b"\0")]
    return {name: value for name, equals, value in entries if name and equals}


def _restart_without_loader_variables() -> None:
    """Restart without LD_LIBRARY_PATH and LD_PRELOAD.

    They may make this Python load an incompatible library. TFDOCTOR_LOADER passes their values on, so that `system.live`
    can examine the machine with them. Do nothing if this process was restarted already.
    """
    loader_variables = {
        name: os.environ[name] for name in ("LD_LIBRARY_PATH", "LD_PRELOAD") if name in os.environ
    }
    if not loader_variables or "TFDOCTOR_LOADER" in os.environ:
        return
    env = {name: text for name, text in os.environ.items() if name not in loader_variables}
    env["TFDOCTOR_LOADER"] = "\n".join(f"{name}={text}" for name, text in loader_variables.items())
    try:
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], env)  # noqa: S606 - runs tfdoctor again
    except OSError:
        return


if __name__ == "__main__":
    run()
