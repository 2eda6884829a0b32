"""How a Python behaves that did not answer: what it does bare, and where its start stands still."""

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

BARE = "tfdoctor-bare:"
_HELLO = f"import sys; sys.stdout.write('{BARE}%d.%d' % sys.version_info[:2]); sys.stdout.flush()"
PROMPT = 1.5
"""Seconds within which a Python that is neither slow nor far away starts without its site-packages."""
_PTH = lazy_pattern(r"^Processing .pth file: '([^'\n]{1,1000}\.pth)'", re.MULTILINE)
_CUSTOM = lazy_pattern(
    r"(?:from|matches|File) ['\"]?(/[^'\"\n]{0,1000}/(?:sitecustomize|usercustomize)(?:/__init__)?\.py)\b"
)
_LOADER = re.compile(rb"/[\w./+-]{1,200}/ld[\w.-]{0,60}\.so[\w.]{0,10}\0")


def behaviour(
    system: System, python: str, first: CommandResult, *, timeout: float
) -> tuple[Trouble | None, str]:
    """Return (what is the matter with `python`, the same as half a sentence), after `first`, which was no answer.

    None: it starts, and too slowly; nothing is known to be wrong with it. `timeout`: for all tries, in seconds.
    """
    if first.failure in (Failure.NOT_FOUND, Failure.PERMISSION, Failure.OS_ERROR):
        return _explain_not_started(system, python, first), first.describe_end()
    bare, traced = _run_both(system, python, timeout)
    starts = bare.stdout.startswith(BARE)
    at = _last_at(traced.stderr)
    if first.failure is Failure.TIMEOUT:
        if traced.failure is Failure.NOT_FOUND or (starts and traced.failure is not Failure.TIMEOUT):
            return None, first.describe_end()  # it starts; its packages, or the machine, are slow
        if starts and bare.seconds >= PROMPT:
            return None, f"{first.describe_end()}, and its bare start alone took {bare.seconds:.0f} s"
        if starts:
            how = "does not get through its own start (site)"
            return Trouble("site", python, how, clean_line(first.stderr, limit=300), "", at, ended=False), how
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
            at,
        ), first.describe_end()
    kind = "killed" if (first.returncode or 0) < 0 else "exited" if first.returncode else "rubbish"
    how = first.describe_end() if kind != "rubbish" else "does not answer as a Python does"
    return Trouble(kind, python, how, _get_output(first)), how


def _run_both(system: System, python: str, timeout: float) -> tuple[CommandResult, CommandResult]:
    """Without its site-packages, and with an account of its start; side by side."""
    results: dict[str, CommandResult] = {}

    def run(key: str, *arguments: str) -> None:
        results[key] = system.run([python, *arguments], timeout=timeout, env=quiet_variables(system), key=key)

    tries = (
        threading.Thread(target=run, args=("python:bare", "-E", "-S", "-c", _HELLO), daemon=True),
        threading.Thread(target=run, args=("python:traced", "-v", "-c", ""), daemon=True),
    )
    for one in tries:
        one.start()
    for one in tries:
        one.join()
    return results["python:bare"], results["python:traced"]


def _starts_without_home(system: System, python: str, timeout: float) -> bool:
    """Return whether only PYTHONHOME, which tells it where its own library is, keeps it from starting."""
    env, key = quiet_variables(system), "python:without-home"
    result = system.run([python, "-c", _HELLO], timeout=timeout, env=env, unset=("PYTHONHOME",), key=key)
    return result.stdout.startswith(BARE)


def _last_at(account: str) -> tuple[str, ...]:
    """Return the file of site's that `python -v` spoke of last."""
    found = [(m.start(), m[1]) for pattern in (_PTH, _CUSTOM) for m in pattern.finditer(account)]
    return (clean_line(max(found)[1]),) if found else ()


def _get_output(result: CommandResult) -> str:
    text = result.stderr.strip() or result.stdout.strip()
    lines = [line for line in text.splitlines() if line.strip()]
    said = clean_line(" | ".join(lines[-2:]), limit=240)
    return "something that is no text" if said.count("\ufffd") > len(said) // 10 else said


def _explain_not_started(system: System, python: str, result: CommandResult) -> Trouble:
    """Return the kernel would not start it: why, as the file's first bytes tell."""
    if result.failure is Failure.PERMISSION:
        return Trouble("denied", python, result.describe_end())
    try:
        head = system.read_bytes(python, limit=8192)
    except OSError as error:
        return Trouble("not-started", python, result.describe_end(), detail=clean_line(error.strerror or ""))
    if not head:
        return Trouble("not-started", python, result.describe_end(), detail="the file is empty")
    needs = ""
    if head.startswith(b"#!"):
        words = head[2:400].split(b"\n")[0].decode("utf-8", "replace").split()
        needs = words[0] if words else ""
    elif head.startswith(b"\x7fELF"):
        match = _LOADER.search(head)
        needs = match[0].rstrip(b"\0").decode("ascii", "replace") if match is not None else ""
    if needs.startswith("/") and not system.exists(needs):
        what = "its interpreter" if head.startswith(b"#!") else "the dynamic loader that it names,"
        return Trouble(
            "not-started", python, result.describe_end(), detail=f"{what} {clean_line(needs)} is not there"
        )
    detail = "" if head.startswith((b"\x7fELF", b"#!")) else "the file is no program"
    if head.startswith(b"\x7fELF") and result.failure is Failure.OS_ERROR:
        detail = f"{posixpath.basename(python)} is a program for another processor"
    return Trouble("not-started", python, result.describe_end(), detail=detail)
