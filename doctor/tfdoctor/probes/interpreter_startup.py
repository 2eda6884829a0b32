"""Diagnose a Python that did not answer: start it without site-packages, and trace its startup."""

from __future__ import annotations

import posixpath
import re
import threading
from typing import TYPE_CHECKING

from tfdoctor.core.facts.python import StartupFailure
from tfdoctor.core.text import clean_line, make_lazy_pattern
from tfdoctor.system.payloads import make_payload_variables
from tfdoctor.system.result import Failure

if TYPE_CHECKING:
    from tfdoctor.system import CommandResult, System

BARE_MARKER = "tfdoctor-bare:"
"""The beginning of the output of a Python that works."""
_VERSION_CODE = (
    f"import sys; sys.stdout.write('{BARE_MARKER}%d.%d' % sys.version_info[:2]); sys.stdout.flush()"
)
"""Code that prints the marker and the version."""
PROMPT_START_S = 1.5
"""The time in seconds within which a Python on a local disk starts without site-packages.

If it takes longer, the machine or the disk is slow.
"""
_PTH_FILE = make_lazy_pattern(r"^Processing .pth file: '([^'\n]{1,1000}\.pth)'", re.MULTILINE)
"""A line of `python -v` about a .pth file."""
_CUSTOMIZE_FILE = make_lazy_pattern(
    r"(?:from|matches|File) ['\"]?(/[^'\"\n]{0,1000}/(?:sitecustomize|usercustomize)(?:/__init__)?\.py)\b"
)
"""The path of a sitecustomize or usercustomize module in the output of `python -v`."""
_LOADER_PATH = re.compile(rb"/[\w./+-]{1,200}/ld[\w.-]{0,60}\.so[\w.]{0,10}\0")
"""The path of the dynamic loader in an ELF program."""


def diagnose_startup(
    system: System, python: str, first_result: CommandResult, *, timeout: float
) -> tuple[StartupFailure | None, str]:
    """Return (failure, description) for a Python that gave no valid answer.

    `first_result` is the result of the query that got no answer. The failure is None if the Python is only too slow.
    `timeout` is the time limit in seconds for each further command.
    """
    if first_result.failure in (Failure.NOT_FOUND, Failure.PERMISSION, Failure.OS_ERROR):
        return _explain_not_started(system, python, first_result), first_result.describe_outcome()
    bare_result, traced_result = _run_bare_and_traced(system, python, timeout)
    starts_bare = bare_result.stdout.startswith(BARE_MARKER)
    last_file = _find_last_startup_file(traced_result.stderr)
    if first_result.failure is Failure.TIMEOUT:
        if traced_result.failure is Failure.NOT_FOUND or (
            starts_bare and traced_result.failure is not Failure.TIMEOUT
        ):
            # The Python starts, but its site-packages or the machine are slow.
            return None, first_result.describe_outcome()
        if starts_bare and bare_result.seconds >= PROMPT_START_S:
            return (
                None,
                f"{first_result.describe_outcome()}, and its bare start alone took {bare_result.seconds:.0f} s",
            )
        if starts_bare:
            description = "does not finish starting up (it loads site-packages)"
            return StartupFailure(
                kind="site",
                path=python,
                how=description,
                said=clean_line(first_result.stderr, limit=300),
                files=last_file,
                ended=False,
            ), description
        description = f"did not answer within {first_result.seconds + timeout:.0f} s"
        return StartupFailure(
            "silent", python, description, _get_output(first_result), ended=False
        ), description
    if system.env.get("PYTHONHOME") and _starts_without_pythonhome(system, python, timeout):
        return StartupFailure(
            "home", python, first_result.describe_outcome(), _get_output(first_result)
        ), first_result.describe_outcome()
    if starts_bare and traced_result.returncode:
        return StartupFailure(
            kind="site",
            path=python,
            how=f"stops while it loads site-packages: it {first_result.describe_outcome()}",
            said=_get_output(first_result),
            files=last_file,
        ), first_result.describe_outcome()
    kind = (
        "killed" if (first_result.returncode or 0) < 0 else "exited" if first_result.returncode else "rubbish"
    )
    description = first_result.describe_outcome() if kind != "rubbish" else "is not a Python"
    return StartupFailure(kind, python, description, _get_output(first_result)), description


def _run_bare_and_traced(system: System, python: str, timeout: float) -> tuple[CommandResult, CommandResult]:
    """Run the Python without site-packages and, in parallel, with verbose messages."""
    results: dict[str, CommandResult] = {}

    def run(key: str, *arguments: str) -> None:
        results[key] = system.run(
            [python, *arguments], timeout=timeout, env=make_payload_variables(system), key=key
        )

    threads = (
        threading.Thread(target=run, args=("python:bare", "-E", "-S", "-c", _VERSION_CODE), daemon=True),
        threading.Thread(target=run, args=("python:traced", "-v", "-c", ""), daemon=True),
    )
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results["python:bare"], results["python:traced"]


def _starts_without_pythonhome(system: System, python: str, timeout: float) -> bool:
    """Return whether the Python starts without PYTHONHOME, so that this variable is the reason."""
    env, key = make_payload_variables(system), "python:without-home"
    result = system.run(
        [python, "-c", _VERSION_CODE], timeout=timeout, env=env, unset=("PYTHONHOME",), key=key
    )
    return result.stdout.startswith(BARE_MARKER)


def _find_last_startup_file(verbose_output: str) -> tuple[str, ...]:
    """Return the last .pth file or sitecustomize module in the output of `python -v`, if any, as a tuple."""
    files_by_position = [
        (match.start(), match[1])
        for pattern in (_PTH_FILE, _CUSTOMIZE_FILE)
        for match in pattern.finditer(verbose_output)
    ]
    if not files_by_position:
        return ()
    _, last_file = max(files_by_position)
    return (clean_line(last_file),)


def _get_output(result: CommandResult) -> str:
    """Return the last two lines of a command's output, or a note that the output is not text.

    The list of threads, with which a fatal error of Python ends, is omitted. More than a tenth of U+FFFD, which replaces
    invalid bytes, means that it is not text.
    """
    text = result.stderr.strip() or result.stdout.strip()
    lines = [line for line in text.partition("\nCurrent thread 0x")[0].splitlines() if line.strip()]
    output = clean_line(" | ".join(lines[-2:]), limit=240)
    return "something that is no text" if output.count("\ufffd") > len(output) // 10 else output


def _explain_not_started(system: System, python: str, result: CommandResult) -> StartupFailure:
    """Return why the kernel did not start a program, according to the first bytes of its file."""
    if result.failure is Failure.PERMISSION:
        return StartupFailure("denied", python, result.describe_outcome())
    try:
        head = system.read_bytes(python, limit=8192)
    except OSError as error:
        return StartupFailure(
            "not-started", python, result.describe_outcome(), detail=clean_line(error.strerror or "")
        )
    if not head:
        return StartupFailure("not-started", python, result.describe_outcome(), detail="the file is empty")
    interpreter = ""
    if head.startswith(b"#!"):
        arguments = head[2:400].split(b"\n")[0].decode("utf-8", "replace").split()
        interpreter = arguments[0] if arguments else ""
    elif head.startswith(b"\x7fELF"):
        match = _LOADER_PATH.search(head)
        interpreter = match[0].rstrip(b"\0").decode("ascii", "replace") if match is not None else ""
    if interpreter.startswith("/") and not system.exists(interpreter):
        description = "its interpreter" if head.startswith(b"#!") else "the dynamic loader that it names,"
        return StartupFailure(
            "not-started",
            python,
            result.describe_outcome(),
            detail=f"{description} {clean_line(interpreter)} is not there",
        )
    detail = "" if head.startswith((b"\x7fELF", b"#!")) else "the file is no program"
    if head.startswith(b"\x7fELF") and result.failure is Failure.OS_ERROR:
        detail = f"{posixpath.basename(python)} is a program for another processor"
    return StartupFailure("not-started", python, result.describe_outcome(), detail=detail)
