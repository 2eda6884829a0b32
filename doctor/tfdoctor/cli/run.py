"""The `tfdoctor run` command, which runs a program unchanged and explains its log at the end."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from tfdoctor.cli.options import FailOn, Quiet, argument, command, option, verbose_option
from tfdoctor.core.causes.steps import Remedy
from tfdoctor.core.errors import Error, UsageError
from tfdoctor.core.text import clean_line
from tfdoctor.system import signals
from tfdoctor.verification.running.launch import (
    make_loader_environment,
    make_placement_environment,
    replace_unusable_streams,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.logs.report import LogReport
    from tfdoctor.verification.running.log_worker import LogWorker
    from tfdoctor.verification.running.passthrough import Passthrough
    from tfdoctor.verification.running.python_watch import PythonWatch

NOT_EXECUTABLE_STATUS, NOT_FOUND_STATUS = 126, 127
"""The exit statuses that shells, `env` and `nohup` use if a program cannot be started."""


@command("tfdoctor run python train.py", "tfdoctor run --placement python train.py")
def run(
    words: Annotated[
        list[str] | None, argument("The program and its arguments.", metavar="-- COMMAND…")
    ] = None,
    verbose_loader: Annotated[
        bool,
        option(
            "Make TensorFlow name the libraries it cannot open (TF_CPP_VMODULE), or leave the environment unchanged.",
            "--verbose-loader/--no-verbose-loader",
            show_default=False,
        ),
    ] = True,
    placement: Annotated[
        bool,
        option(
            "Make TensorFlow log on which device each operation runs, and show a summary at the end.",
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
    """Run a program unchanged, explain its log, and return its exit status or die by its signal.

    Input, output, signals and the exit status are the program's (126, 127: it could not be started; a signal
    that ends it ends tfdoctor, too). The answer goes to standard error. If something is wrong, the machine and the
    program's Python are examined as `tfdoctor check` does, so that the remedy is for them.
    """
    if not words:
        raise UsageError("no command to run.", hint="tfdoctor run -- python train.py")
    if os.name != "posix":
        raise Error(
            "run needs Linux or another POSIX system.", hint="python train.py 2>&1 | tfdoctor diagnose"
        )
    from tfdoctor.verification.running.log_worker import LogWorker
    from tfdoctor.verification.running.passthrough import Passthrough, hold_signals
    from tfdoctor.verification.running.python_watch import PythonWatch

    replace_unusable_streams()
    environment, placement_notes = (
        make_placement_environment(os.environ) if placement else (dict(os.environ), [])
    )
    loader_notes: list[str] = []
    if verbose_loader:
        environment, loader_notes = make_loader_environment(environment)
    with signals.use_default_signals(), hold_signals() as signal_mask:
        log_worker = LogWorker(with_placement=placement)
        program = Passthrough(words, environment, signal_mask, log_worker.queue_output)
        watch = PythonWatch(
            {name: os.environ.get(name) for name in environment if environment[name] != os.environ.get(name)}
        )
        try:
            program.start()
        except OSError as error:
            log_worker.kill()
            return _report_start_failure(words[0], error)
        watch.start()

        def receive_message() -> bool:
            message = log_worker.receive()
            if isinstance(message, str) and not quiet:
                program.write_line(message)
            return message is not None

        status = program.wait({log_worker.answer_pipe: receive_message}, log_worker.flush)
        watch.stop()
    has_finding = False
    try:
        has_finding = _write_report(
            words,
            status,
            program,
            log_worker,
            watch,
            fail_on,
            loader_notes=loader_notes,
            placement_notes=placement_notes,
            verbose=verbose,
            quiet=quiet,
        )
    except signals.TerminationError:
        raise
    except (KeyboardInterrupt, OSError):  # Ctrl-C during the report, or the report cannot be written
        pass
    except Exception as error:  # a defect in the explanation must not change the program's status
        with contextlib.suppress(OSError):
            sys.stderr.write(f"tfdoctor: its log could not be judged ({type(error).__name__}).\n")
    finally:
        log_worker.kill()
    if status < 0:
        signals.end_with_signal(-status)
    return 1 if has_finding and status == 0 else status


def _report_start_failure(name: str, error: OSError) -> int:
    """Print why the program cannot be started, and return the exit status that a shell uses for this.

    The status is 127 if the program does not exist, and 126 if it cannot be executed.
    """
    display_name = clean_line(name, limit=300) or "''"
    is_missing = not name or isinstance(error, (FileNotFoundError, NotADirectoryError))
    if is_missing and shutil.which(name) is not None:
        reason = "the interpreter in its first line, or its loader, does not exist"
    elif is_missing:
        reason = "there is no such command" if os.sep not in name else "there is no such file"
    else:
        reason = error.strerror or str(error)
    sys.stderr.write(f"tfdoctor: cannot run {display_name}: {reason}.\n")
    return NOT_FOUND_STATUS if is_missing else NOT_EXECUTABLE_STATUS


def _write_report(
    command_line: Sequence[str],
    status: int,
    program: Passthrough,
    log_worker: LogWorker,
    watch: PythonWatch,
    fail_on: FailOn,
    *,
    loader_notes: Sequence[str],
    placement_notes: Sequence[str],
    verbose: bool,
    quiet: bool,
) -> bool:
    """Write the report to standard error, and return whether a finding is at least as severe as `fail_on`.

    The notes are about log lines that tfdoctor caused: `loader_notes` about those with library names, and
    `placement_notes` about those with placements. If the log could not be analysed, the result is False.
    """
    from tfdoctor.render.run_summary import render_run
    from tfdoctor.render.terminal import ERR

    result = log_worker.wait_for_answer()
    report = result.report if result is not None else None
    if result is not None and result.is_tensorflow_log and result.report.root_finding is not None:
        report = _add_machine_facts(command_line[0], watch, result.report)
    text = render_run(
        command_line,
        status,
        report,
        has_messages=result is not None and result.is_tensorflow_log,
        failures=program.failures,
        lost_bytes=log_worker.dropped_bytes,
        notes=loader_notes if result is not None and result.has_loader_lines else (),
        placement=result.placement if result is not None else None,
        placement_notes=placement_notes,
        verbose=verbose,
        quiet=quiet,
        **ERR.layout,
    )
    ERR.write(f"\n{text}" if program.has_open_line else text)
    ERR.flush()
    if result is None or report is None:
        return False
    placement_findings = result.placement.findings if result.placement is not None else ()
    return fail_on.is_reached((*report.findings, *placement_findings))


def _add_machine_facts(program: str, watch: PythonWatch, report: LogReport) -> LogReport:
    """Return the report with what `check` finds on this machine and in the Python of the program.

    That Python is the program, or the process below it that loaded TensorFlow. The report is unchanged if there is
    neither, or if the machine cannot be examined.
    """
    from tfdoctor.compat import Compat
    from tfdoctor.diagnosis import examine, find_program_python, make_live_system
    from tfdoctor.environments.fix_availability import find_fix_offer
    from tfdoctor.logs.report import adapt_to_machine, merge_host_finding

    system = make_live_system(None)
    try:
        python, env = find_program_python(system, program), None
        if python is None:
            python, env = watch.python, watch.env
        if python is None:
            return report
        compat = Compat.load()
        system = make_live_system(python, env)
        machine_report = examine(system, compat, python=python)
        offer = find_fix_offer(machine_report, system)
    except (Error, OSError):
        return report
    finally:
        system.stop()
    root = machine_report.root_finding
    if root is not None and offer is not None and root in offer.findings:
        text = next((remedy.text for remedy in root.remedies if remedy.steps), "Repair the environment.")
        root = replace(root, remedies=(Remedy(text, (offer.command,)), *root.remedies))
    report = adapt_to_machine(report, machine_report, compat, python, can_fix=offer is not None)
    return merge_host_finding(report, machine_report.verdict.cause, root)
