"""`%tfdoctor` in IPython and notebooks: `check` of the Python that runs there, as HTML where that is shown.

Everything else is the command line's: it runs in a child process, and what it prints is passed on.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from tfdoctor.cli.fast_parser import plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdoctor.api.shapes import Check
    from tfdoctor.cli.fast_parser import Options
    from tfdoctor.environment.models import Offer
    from tfdoctor.findings import Report

__all__ = ["Shown", "tfdoctor_magic"]

SHOWN_HERE = {"python", "deep", "timeout"}
"""The options of `check` whose answer is shown as a notebook shows it."""

OF_A_PYTHON = ("fix", "capture", "report")
"""Commands that examine one, besides `check`."""


class Shown:
    """An answer of `check`: HTML in a notebook, text elsewhere, and `answer` for programs."""

    def __init__(self, report: Report, fix: Offer | None, notes: Sequence[str]) -> None:
        self._report = report
        self._fix = fix
        self._notes = tuple(notes)

    @property
    def answer(self) -> Check:
        """Return what `tfdoctor.check` returns."""
        from tfdoctor.api.calls import as_printed
        from tfdoctor.render.report import report_json

        answer: Check = as_printed(report_json(self._report))
        return answer

    def __repr__(self) -> str:
        from tfdoctor.render.report import render_report

        text = render_report(self._report, fix=self._fix, typed="%tfdoctor check")
        return "\n".join([text.rstrip("\n"), *self._notes])

    def _repr_html_(self) -> str:
        from tfdoctor.render.notebook import report_html

        return report_html(self._report, fix=self._fix, notes=self._notes)


def tfdoctor_magic(line: str) -> Shown | None:
    """Return %tfdoctor: why TensorFlow does (not) see the GPUs in this kernel's Python.

    `%tfdoctor` and `%tfdoctor check [--deep] [--python PATH]` show the answer here; what else the command line takes,
    `%tfdoctor explain TFD203`, is run as it is.
    """
    try:
        words = shlex.split(line)
    except ValueError as error:
        sys.stderr.write(f"tfdoctor: {error}.\n")
        return None
    words = words or ["check"]
    options = plain(words)
    if options is not None and _can_be_shown(options):
        return _check_kernel(options)
    _run([*words, "--python", sys.executable] if _lacks_python(words, options) else words)
    return None


def _lacks_python(words: Sequence[str], options: Options | None) -> bool:
    """Return whether the command line would choose a Python itself: the one of this kernel is meant."""
    if options is not None:
        return options["python"] is None and options["facts"] is None
    return words[0] in OF_A_PYTHON and not any(word.startswith(("--python", "--facts")) for word in words)


def _can_be_shown(options: Options) -> bool:
    shown = dict.fromkeys(SHOWN_HERE)
    return {**options, **shown} == {**(plain(["check"]) or {}), **shown}


def _check_kernel(options: Options) -> Shown | None:
    from tfdoctor.api.calls import handle_signals
    from tfdoctor.compat import Compat
    from tfdoctor.environment.fix_availability import offer
    from tfdoctor.errors import Error
    from tfdoctor.examine import examine, live_machine
    from tfdoctor.system.live import get_process_variables

    python, notes, env = options["python"], [], None
    if python is None:
        python = sys.executable
        env = get_process_variables()
        notes = _note_late_changes(env)
    system = live_machine(python, env=env or os.environ)
    try:
        with handle_signals():
            report = examine(
                system, Compat.load(), python=python, deep=options["deep"], timeout=options["timeout"]
            )
    except Error as error:
        sys.stderr.write(f"tfdoctor: {error.message}\n" + (f"hint: {error.hint}\n" if error.hint else ""))
        return None
    return Shown(report, offer(report, system), notes)


def _note_late_changes(env: Mapping[str, str]) -> list[str]:
    """Return notes on variables that were changed here without effect: the loader reads them at the start."""
    names = ("LD_LIBRARY_PATH", "LD_PRELOAD")
    return [
        f"{name} was changed since this Python started. Its loader does not see that: set it before the start."
        for name in names
        if env.get(name) != os.environ.get(name)
    ]


def _run(words: Sequence[str]) -> None:
    """Run the command line and pass its output on as it comes; nobody can be asked there."""
    env = {**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "80"}
    with subprocess.Popen(
        [sys.executable, "-m", "tfdoctor", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=env,
        encoding="utf-8",
        errors="replace",
    ) as process:
        try:
            for text in process.stdout or ():
                sys.stdout.write(text)
        except KeyboardInterrupt:
            process.terminate()
            process.wait()
            raise


def load_ipython_extension(ipython: Any) -> None:
    """`%load_ext tfdoctor` in IPython or a notebook: gives it `%tfdoctor`."""
    ipython.register_magic_function(tfdoctor_magic, "line", "tfdoctor")
