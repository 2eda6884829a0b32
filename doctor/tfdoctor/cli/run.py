"""`tfdoctor run`: a program as it is, and at its end what its log meant."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from typing import TYPE_CHECKING, Annotated

from tfdoctor.cli.options import FailOn, Quiet, argument, command, option, verbose_option
from tfdoctor.errors import Error, UsageError
from tfdoctor.findings import Severity
from tfdoctor.running.launch import (
    make_loader_environment,
    make_placement_environment,
    open_standard_streams,
)
from tfdoctor.system import signals
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.running.log_worker import Analyst
    from tfdoctor.running.passthrough import Passthrough

NOT_EXECUTABLE, NOT_FOUND = 126, 127
"""What shells, `env` and `nohup` end with where the program could not be started."""


@command
def run(
    words: Annotated[
        list[str] | None, argument("The program and its arguments.", metavar="-- COMMAND…")
    ] = None,
    verbose_loader: Annotated[
        bool,
        option(
            "Make TensorFlow name the libraries it cannot open (TF_CPP_VMODULE), or leave the environment unchanged.",
            "--verbose-loader/--no-verbose-loader",
        ),
    ] = True,
    placement: Annotated[
        bool,
        option(
            "Make TensorFlow log where operations go, and say it at the end; the program stays as it is.",
            "--placement",
        ),
    ] = False,
    fail_on: Annotated[
        FailOn,
        option(
            "Exit with status 1 if the program itself ended with 0 and any finding is at least this severe."
        ),
    ] = FailOn.never,
    verbose: Annotated[bool, verbose_option("Show all evidence.")] = False,
    quiet: Quiet = False,
) -> int:
    """Run it, pass everything through, say what the log meant. Returns the exit status, or dies by its signal.

    Input, output, signals and the exit status are the program's (126, 127: it could not be started; a signal
    that ends it ends tfdoctor, too). The answer goes to standard error.
    """
    if not words:
        raise UsageError("no command to run.", hint="tfdoctor run -- python train.py")
    if os.name != "posix":
        raise Error(
            "run needs Linux or another POSIX system.", hint="python train.py 2>&1 | tfdoctor diagnose"
        )
    from tfdoctor.running.log_worker import Analyst
    from tfdoctor.running.passthrough import Passthrough, hold_signals

    open_standard_streams()
    environment, asked = make_placement_environment(os.environ) if placement else (dict(os.environ), [])
    notes: list[str] = []
    if verbose_loader:
        environment, notes = make_loader_environment(environment)
    with signals.as_ever(), hold_signals() as mask:
        analyst = Analyst(placement=placement)
        program = Passthrough(words, environment, mask, analyst.take)
        try:
            program.start()
        except OSError as error:
            analyst.kill()
            return _cannot_start(words[0], error)

        def receive_message() -> bool:
            message = analyst.receive()
            if isinstance(message, str) and not quiet:
                program.write_line(message)
            return message is not None

        status = program.wait({analyst.says: receive_message}, analyst.flush)
    found = False
    try:
        found = _conclude(
            words, status, program, analyst, (notes, asked), fail_on, verbose=verbose, quiet=quiet
        )
    except signals.EndedError:
        raise
    except (KeyboardInterrupt, OSError):  # nobody wants to read it, or nobody can
        pass
    except Exception as error:  # the program's status stands whatever becomes of our words
        with contextlib.suppress(OSError):
            sys.stderr.write(f"tfdoctor: its log could not be judged ({type(error).__name__}).\n")
    finally:
        analyst.kill()
    if status < 0:
        signals.die(-status)
    return 1 if found and status == 0 else status


def _cannot_start(name: str, error: OSError) -> int:
    """Say why, as a shell would; 127 where it is not there, 126 where it cannot be executed."""
    shown = clean_line(name, limit=300) or "''"
    missing = not name or isinstance(error, (FileNotFoundError, NotADirectoryError))
    if missing and shutil.which(name) is not None:
        why = "the interpreter in its first line, or its loader, does not exist"
    elif missing:
        why = "there is no such command" if os.sep not in name else "there is no such file"
    else:
        why = error.strerror or str(error)
    sys.stderr.write(f"tfdoctor: cannot run {shown}: {why}.\n")
    return NOT_FOUND if missing else NOT_EXECUTABLE


def _conclude(
    words: Sequence[str],
    status: int,
    program: Passthrough,
    analyst: Analyst,
    notes: tuple[Sequence[str], Sequence[str]],
    fail_on: FailOn,
    *,
    verbose: bool,
    quiet: bool,
) -> bool:
    """Write the answer to standard error. Returns whether it has a finding at or above `fail_on`.

    notes: where TensorFlow said more because of us: of what it opens, and of where operations go.
    """
    from tfdoctor.render.run_summary import render_run
    from tfdoctor.render.terminal import ERR

    answer = analyst.answer()
    text = render_run(
        words,
        status,
        answer.report if answer is not None else None,
        known=answer is not None and answer.known,
        failures=program.failures,
        lost=analyst.lost,
        notes=notes[0] if answer is not None and answer.loader_seen else (),
        placement=answer.placement if answer is not None else None,
        placed=notes[1],
        verbose=verbose,
        quiet=quiet,
        **ERR.looks,
    )
    ERR.write(f"\n{text}" if program.has_open_line else text)
    ERR.flush()
    if answer is None or fail_on is FailOn.never:
        return False
    least = Severity[fail_on.value.upper()]
    placed = answer.placement.findings if answer.placement is not None else ()
    return any(finding.severity >= least for finding in (*answer.report.findings, *placed))
