"""A probe of a Python that did not answer: its start without site-packages, and where it hangs."""

from __future__ import annotations

import posixpath
import re
import threading
from typing import TYPE_CHECKING

from tfdoctor.facts.python import Trouble
from tfdoctor.system.payloads import quiet_variables
from tfdoctor.system.result import Failure
from tfdoctor.text import clean_line, lazy_pattern

if TYPE_CHECKING:
    from tfdoctor.system import CommandResult, System

BARE_MARKER = "tfdoctor-bare:"
_HELLO = f"import sys; sys.stdout.write('{BARE_MARKER}%d.%d' % sys.version_info[:2]); sys.stdout.flush()"
PROMPT_START_S = 1.5
"""The time in seconds within which a Python on a fast, local disk starts without its site-packages."""
_PTH = lazy_pattern(r"^Processing .pth file: '([^'\n]{1,1000}\.pth)'", re.MULTILINE)
_CUSTOM = lazy_pattern(
    r"(?:from|matches|File) ['\"]?(/[^'\"\n]{0,1000}/(?:sitecustomize|usercustomize)(?:/__init__)?\.py)\b"
)
_LOADER = re.compile(rb"/[\w./+-]{1,200}/ld[\w.-]{0,60}\.so[\w.]{0,10}\0")


def diagnose_startup(
    system: System, python: str, first: CommandResult, *, timeout: float
) -> tuple[Trouble | None, str]:
    """Return (the trouble of `python`, a description of it) after `first`, which gave no answer.

    The trouble is None if the Python starts, only too slowly. `timeout` (seconds) is for all tries.
    """
    if first.failure in (Failure.NOT_FOUND, Failure.PERMISSION, Failure.OS_ERROR):
        return _explain_not_started(system, python, first), first.describe_end()
    bare, traced = _run_both(system, python, timeout)
    starts = bare.stdout.startswith(BARE_MARKER)
    last_file = _find_last_startup_file(traced.stderr)
    if first.failure is Failure.TIMEOUT:
        if traced.failure is Failure.NOT_FOUND or (starts and traced.failure is not Failure.TIMEOUT):
            return None, first.describe_end()  # it starts, but its packages or the machine are slow
        if starts and bare.seconds >= PROMPT_START_S:
            return None, f"{first.describe_end()}, and its bare start alone took {bare.seconds:.0f} s"
        if starts:
            how = "does not get through its own start (site)"
            return Trouble(
                "site", python, how, clean_line(first.stderr, limit=300), "", last_file, ended=False
            ), how
        how = f"did not answer within {first.seconds + timeout:.0f} s"
        return Trouble("silent", python, how, _get_output(first), ended=False), how
    if system.env.get("PYTHONHOME") and _starts_without_home(system, python, timeout):
        return Trouble("home", python, first.describe_end(), _get_output(first)), first.describe_end()
    if starts and traced.returncode:
        return Trouble(
            "site",
            python,
            f"ends in its own start (site): it {first.describe_end()}",
            _get_output(first),
            "",
            last_file,
        ), first.describe_end()
    kind = "killed" if (first.returncode or 0) < 0 else "exited" if first.returncode else "rubbish"
    how = first.describe_end() if kind != "rubbish" else "does not answer as a Python does"
    return Trouble(kind, python, how, _get_output(first)), how


def _run_both(system: System, python: str, timeout: float) -> tuple[CommandResult, CommandResult]:
    """Run the Python without its site-packages and, at the same time, with a verbose startup."""
    results: dict[str, CommandResult] = {}

    def run(key: str, *arguments: str) -> None:
        results[key] = system.run([python, *arguments], timeout=timeout, env=quiet_variables(system), key=key)

    threads = (
        threading.Thread(target=run, args=("python:bare", "-E", "-S", "-c", _HELLO), daemon=True),
        threading.Thread(target=run, args=("python:traced", "-v", "-c", ""), daemon=True),
    )
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results["python:bare"], results["python:traced"]


def _starts_without_home(system: System, python: str, timeout: float) -> bool:
    """Return whether the Python starts without PYTHONHOME, so that this variable is to blame."""
    env, key = quiet_variables(system), "python:without-home"
    result = system.run([python, "-c", _HELLO], timeout=timeout, env=env, unset=("PYTHONHOME",), key=key)
    return result.stdout.startswith(BARE_MARKER)


def _find_last_startup_file(verbose_output: str) -> tuple[str, ...]:
    """Return the last .pth file or sitecustomize module in the output of `python -v`.

    Empty if there is none.
    """
    matches = [(m.start(), m[1]) for pattern in (_PTH, _CUSTOM) for m in pattern.finditer(verbose_output)]
    return (clean_line(max(matches)[1]),) if matches else ()


def _get_output(result: CommandResult) -> str:
    """Return the last two lines of a command's output, or a note that it is not text."""
    text = result.stderr.strip() or result.stdout.strip()
    lines = [line for line in text.splitlines() if line.strip()]
    output = clean_line(" | ".join(lines[-2:]), limit=240)
    return "something that is no text" if output.count("\ufffd") > len(output) // 10 else output


def _explain_not_started(system: System, python: str, result: CommandResult) -> Trouble:
    """Return why the kernel did not start a program, according to the first bytes of the file."""
    if result.failure is Failure.PERMISSION:
        return Trouble("denied", python, result.describe_end())
    try:
        head = system.read_bytes(python, limit=8192)
    except OSError as error:
        return Trouble("not-started", python, result.describe_end(), detail=clean_line(error.strerror or ""))
    if not head:
        return Trouble("not-started", python, result.describe_end(), detail="the file is empty")
    interpreter = ""
    if head.startswith(b"#!"):
        arguments = head[2:400].split(b"\n")[0].decode("utf-8", "replace").split()
        interpreter = arguments[0] if arguments else ""
    elif head.startswith(b"\x7fELF"):
        match = _LOADER.search(head)
        interpreter = match[0].rstrip(b"\0").decode("ascii", "replace") if match is not None else ""
    if interpreter.startswith("/") and not system.exists(interpreter):
        description = "its interpreter" if head.startswith(b"#!") else "the dynamic loader that it names,"
        return Trouble(
            "not-started",
            python,
            result.describe_end(),
            detail=f"{description} {clean_line(interpreter)} is not there",
        )
    detail = "" if head.startswith((b"\x7fELF", b"#!")) else "the file is no program"
    if head.startswith(b"\x7fELF") and result.failure is Failure.OS_ERROR:
        detail = f"{posixpath.basename(python)} is a program for another processor"
    return Trouble("not-started", python, result.describe_end(), detail=detail)
