"""The IPython magic `%tfdoctor`.

It checks the kernel's Python and shows the result as HTML in notebooks. All other commands run in a child process, as
on the command line, and their output is passed on.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from tfdoctor.cli.fast_parser import parse_check

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdoctor.api.shapes import Check
    from tfdoctor.cli.fast_parser import CheckOptions
    from tfdoctor.core.findings import Report
    from tfdoctor.environments.models import FixOffer

__all__ = ["CheckResult", "tfdoctor_magic"]

DISPLAYABLE_OPTIONS = {"python", "deep", "timeout"}
"""The options of `check` whose result can still be shown as HTML."""

PYTHON_COMMANDS = ("fix", "capture", "report")
"""The commands, besides `check`, that examine a Python interpreter."""


class CheckResult:
    """A result of `check` that IPython displays as HTML in a notebook and as text elsewhere."""

    def __init__(self, report: Report, offer: FixOffer | None, notes: Sequence[str]) -> None:
        self._report = report
        self._offer = offer
        self._notes = tuple(notes)

    @property
    def answer(self) -> Check:
        """The result as the document that `tfdoctor.check` returns."""
        from tfdoctor.api.calls import convert_to_json_values
        from tfdoctor.render.report import make_report_json

        document: Check = convert_to_json_values(make_report_json(self._report))
        return document

    def __repr__(self) -> str:
        from tfdoctor.render.report import render_report

        text = render_report(self._report, offer=self._offer, check_command="%tfdoctor check")
        return "\n".join([text.rstrip("\n"), *self._notes])

    def _repr_html_(self) -> str:
        from tfdoctor.render.notebook import make_report_html

        return make_report_html(self._report, offer=self._offer, notes=self._notes)


def tfdoctor_magic(line: str) -> CheckResult | None:
    """Run the magic `%tfdoctor`: check this kernel's Python, or run another tfdoctor command.

    `%tfdoctor` and `%tfdoctor check [--deep] [--python PATH] [--timeout SECONDS]` return the result for display. All
    other commands, such as `%tfdoctor explain TFD203`, run as on the command line and return None.
    """
    try:
        arguments = shlex.split(line)
    except ValueError as error:
        sys.stderr.write(f"tfdoctor: {error}.\n")
        return None
    arguments = arguments or ["check"]
    options = parse_check(arguments)
    if options is not None and _is_displayable(options):
        return _run_check(options)
    _run_command([*arguments, "--python", sys.executable] if _lacks_python(arguments, options) else arguments)
    return None


def _lacks_python(arguments: Sequence[str], options: CheckOptions | None) -> bool:
    """Return whether the command examines a Python interpreter that the arguments do not name.

    `options` are the parsed options of `check`; None means another command.
    """
    if options is not None:
        return options["python"] is None and options["recording_path"] is None
    return arguments[0] in PYTHON_COMMANDS and not any(
        argument.startswith(("--python", "--from")) for argument in arguments
    )


def _is_displayable(options: CheckOptions) -> bool:
    """Return whether no option outside DISPLAYABLE_OPTIONS differs from the defaults of `check`."""
    displayable = dict.fromkeys(DISPLAYABLE_OPTIONS)
    return {**options, **displayable} == {**(parse_check(["check"]) or {}), **displayable}


def _run_check(options: CheckOptions) -> CheckResult | None:
    """Check the interpreter in the options, or else this kernel's. If that fails, print the Error and return None."""
    from tfdoctor.api.calls import handle_signals
    from tfdoctor.compat import Compat
    from tfdoctor.core.errors import Error
    from tfdoctor.diagnosis import examine, make_live_system
    from tfdoctor.environments.fix_availability import find_fix_offer
    from tfdoctor.system.live import get_process_variables

    python, notes, start_variables = options["python"], [], None
    if python is None:
        python = sys.executable
        start_variables = get_process_variables()
        notes = _describe_late_changes(start_variables)
    system = make_live_system(python, env=start_variables or os.environ)
    try:
        with handle_signals():
            report = examine(
                system, Compat.load(), python=python, deep=options["deep"], timeout=options["timeout"]
            )
    except Error as error:
        sys.stderr.write(f"tfdoctor: {error.message}\n" + (f"hint: {error.hint}\n" if error.hint else ""))
        return None
    return CheckResult(report, find_fix_offer(report, system), notes)


def _describe_late_changes(start_variables: Mapping[str, str]) -> list[str]:
    """Return warnings about variables of the dynamic loader that have changed since this process started.

    The loader reads them only at the start. `start_variables` are those that the process started with.
    """
    names = ("LD_LIBRARY_PATH", "LD_PRELOAD")
    return [
        f"{name} was changed since this Python started. Its loader does not see that: set it before the start."
        for name in names
        if start_variables.get(name) != os.environ.get(name)
    ]


def _run_command(arguments: Sequence[str]) -> None:
    """Run a tfdoctor command without input, and print its output line by line."""
    env = {**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "80"}
    with subprocess.Popen(
        [sys.executable, "-m", "tfdoctor", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=env,
        encoding="utf-8",
        errors="replace",
    ) as process:
        try:
            for line in process.stdout or ():
                sys.stdout.write(line)
        except KeyboardInterrupt:
            process.terminate()
            process.wait()
            raise


def load_ipython_extension(ipython: Any) -> None:
    """Register `%tfdoctor`, for `%load_ext tfdoctor` in IPython or a notebook."""
    ipython.register_magic_function(tfdoctor_magic, "line", "tfdoctor")
