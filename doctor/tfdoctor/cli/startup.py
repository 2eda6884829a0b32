"""The entry point: run a command and report its errors. Typer is imported only if it must parse the command line."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import threading
from typing import TYPE_CHECKING, NoReturn

from tfdoctor.cli import stdio
from tfdoctor.cli.fast_parser import parse_check, parse_connect
from tfdoctor.errors import Error, ExitCode
from tfdoctor.system import signals

if TYPE_CHECKING:
    from tfdoctor.cli.fast_parser import CheckOptions

__all__ = ["run"]


def run() -> NoReturn:
    """Run a command and exit with a documented status, even after an unexpected error."""
    own_arguments = sys.argv[1 : sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    for name in ("COLUMNS", "LINES"):  # Rich reads them and fails if they are not numbers
        if not re.fullmatch(r"[0-9]{1,9}", os.environ.get(name, "0")):
            del os.environ[name]
    received: list[int] = []
    status: int = ExitCode.INTERRUPTED
    with stdio.ensure_standard_streams():
        try:
            with signals.handle_termination_signals() as received:
                status = _flush_output(_run_command(own_arguments, received))
        except KeyboardInterrupt:  # a second Ctrl-C, while the first is reported
            _report_interrupt(received)
    by_signal = [number for number in received if number != signal.SIGINT]
    if by_signal:
        signals.end_with_signal(by_signal[0])
    # CPython kills itself by SIGINT if the exception left code that `exec` runs, such as a dataclass's. Threads that
    # still run end in pthread_exit, which aborts the process if libgcc_s cannot be opened any more.
    if received or threading.active_count() > 1:
        os._exit(int(status))
    sys.exit(int(status))


def _run_command(own_arguments: list[str], received: list[int]) -> int:
    """Run the command and return the exit status.

    `own_arguments` are the arguments before `--`; those after it belong to another program. `received` has the
    numbers of the signals so far.
    """
    wants_json = "--json" in own_arguments
    try:
        if "TFDOCTOR_CALLED" in os.environ:
            from tfdoctor.render import program_name

            program_name.get_program_name()  # reads and removes the variable before child processes are started
        options = parse_check(sys.argv[1:])
        status = _run_typer() if options is None else _run_check(options)
    except KeyboardInterrupt:
        return _report_interrupt(received)
    except BrokenPipeError:  # `tfdoctor check | head`: nobody reads the rest
        stdio.discard_output(sys.stdout)
        return ExitCode.OK
    except SystemExit as end:
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        stdio.discard_output(sys.stdout)  # Typer catches it first if the answer is longer than a buffer
        return ExitCode.OK
    except Error as error:
        return _report_error(error.exit_code, error.kind, error.message, error.hint, wants_json)
    except OSError as error:
        return _report_system_error(error, wants_json)
    except MemoryError:
        return _report_error(ExitCode.IMPOSSIBLE, "memory", "there is not enough memory.", "", wants_json)
    except ImportError as error:
        if stdio.may_loader_variables_fail():
            raise
        msg = f"a part of tfdoctor could not be loaded: {error}."
        return _report_error(ExitCode.IMPOSSIBLE, "import", msg, "", wants_json)
    except Exception as error:
        if received and _is_interruption(error):
            return _report_interrupt(received)
        if hasattr(error, "format_message"):  # Typer's own usage errors have it
            version_options = {"--version", "-V"} & set(own_arguments)
            hint = (
                f"`tfdoctor {version_options.pop()}` takes no other arguments."
                if version_options
                else "Try --help."
            )
            return _report_error(ExitCode.USAGE, "usage", error.format_message(), hint, wants_json)
        return _report_defect(error, wants_json)
    if status == ExitCode.INTERRUPTED and received:  # Typer turns a KeyboardInterrupt into this status
        return _report_interrupt(received)
    return status


def _is_interruption(error: BaseException | None) -> bool:
    """Return whether a KeyboardInterrupt led to this error.

    CPython's locks fail with another error if the signal arrives between two of their steps.
    """
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _run_check(options: CheckOptions) -> int:
    """Run `check` with options that are already parsed."""
    from tfdoctor.cli.check import check

    return check(**options)


def _run_typer() -> int:
    """Run any command line that the fast parser of `check` does not handle, and return the exit status."""
    connect_options = parse_connect(sys.argv[1:])
    if connect_options is not None:
        from tfdoctor.cli.cluster import cluster

        return cluster(**connect_options)

    import typer

    from tfdoctor.cli.main import command_line

    arguments = sys.argv[1:]
    try:
        code = command_line()(arguments or ["--help"], standalone_mode=False)
    except typer.Exit as end:
        return end.exit_code
    except typer.Abort:
        raise KeyboardInterrupt from None
    if not arguments:  # the help was printed, but without a command that is wrong usage
        return ExitCode.USAGE
    return code if isinstance(code, int) else ExitCode.OK


def _flush_output(status: int) -> int:
    """Flush standard output. Return `status`, or another exit status if the output cannot be written."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        stdio.discard_output(sys.stdout)
        return ExitCode.OK
    except OSError as error:
        stdio.discard_output(sys.stdout)
        _write_error(f"tfdoctor: standard output cannot be written: {error.strerror or error}.")
        return ExitCode.IMPOSSIBLE
    return status


def _report_interrupt(received: list[int]) -> ExitCode:
    """Return the exit status after a signal, and print a message if it was Ctrl-C."""
    if all(number == signal.SIGINT for number in received):
        _write_error("Interrupted.")
    return ExitCode.INTERRUPTED


def _report_system_error(error: OSError, wants_json: bool) -> ExitCode:
    """Report an operating system error and return the exit status."""
    if _flush_output(ExitCode.OK) is not ExitCode.OK:
        return ExitCode.IMPOSSIBLE
    message = f"{error.strerror or error}"
    return _report_error(ExitCode.IMPOSSIBLE, "system", message, str(error.filename or ""), wants_json)


def _report_defect(error: Exception, wants_json: bool) -> ExitCode:
    """Report a defect of tfdoctor with its traceback, and return the exit status.

    If no thread can be started, that is reported instead, because the limits of the user are the cause.
    """
    if isinstance(error, RuntimeError) and "new thread" in str(error):
        hint = "See `ulimit -u` and `ulimit -v`."
        return _report_error(
            ExitCode.IMPOSSIBLE, "system", "no thread can be started here.", hint, wants_json
        )
    import traceback

    _write_error("".join(traceback.format_exception(error)).rstrip("\n"))
    msg = f"this is a defect of tfdoctor ({type(error).__name__}); nothing was judged."
    return _report_error(ExitCode.IMPOSSIBLE, "defect", msg, "Report it with the lines above.", wants_json)


MAX_MESSAGE_CHARS = 4000


def _report_error(code: ExitCode, kind: str, message: str, hint: str, wants_json: bool) -> ExitCode:
    """Report an error and return the exit status `code`.

    With `wants_json`, the report is JSON on standard output, or text on standard error if that cannot be written.
    """
    from tfdoctor.text import clean, strip_credentials

    secret_arguments = [argument for argument in sys.argv[1:] if "@" in argument]
    message, hint = (
        strip_credentials(text[:MAX_MESSAGE_CHARS], secret_arguments) for text in (message, hint)
    )
    if wants_json:
        from tfdoctor.render.json import write_json

        document = {
            "schema_version": 1,
            "error": {"code": int(code), "kind": kind, "message": message, "hint": hint},
        }
        try:
            write_json(document)
            sys.stdout.flush()
        except OSError:
            stdio.discard_output(sys.stdout)
        else:
            return code
    _write_error(f"tfdoctor: {_format_as_called(clean(message, limit=1000))}")
    if hint:
        _write_error(f"hint: {_format_as_called(clean(hint, limit=1000))}")
    return code


def _format_as_called(text: str) -> str:
    """Return the text with tfdoctor commands as the user types them, or unchanged if the module cannot be loaded."""
    try:
        from tfdoctor.render import program_name
    except (ImportError, OSError):
        return text
    return program_name.adapt_commands(text)


def _write_error(text: str) -> None:
    """Write a line to standard error, if possible."""
    with contextlib.suppress(OSError):
        encoding = sys.stderr.encoding or "ascii"
        sys.stderr.write(text.encode(encoding, "replace").decode(encoding) + "\n")
