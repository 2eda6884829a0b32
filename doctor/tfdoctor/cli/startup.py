"""The entry point, which runs a command and reports errors. Typer is imported only if it is needed."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import threading
from typing import TYPE_CHECKING, NoReturn

from tfdoctor.cli import stdio
from tfdoctor.cli.fast_parser import parse_check
from tfdoctor.core.errors import Error, ExitCode
from tfdoctor.system import signals

if TYPE_CHECKING:
    from tfdoctor.cli.fast_parser import CheckOptions

__all__ = ["run"]

MAX_MESSAGE_CHARS = 4000


def run() -> NoReturn:
    """Run the command and exit with a documented status, even after an unexpected error."""
    arguments = sys.argv[1 : sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    for name in ("COLUMNS", "LINES"):  # Rich reads them and fails if they are not numbers
        if not re.fullmatch(r"[0-9]{1,9}", os.environ.get(name, "0")):
            del os.environ[name]
    received_signals: list[int] = []
    status: int = ExitCode.INTERRUPTED
    with stdio.ensure_standard_streams():
        try:
            with signals.handle_termination_signals() as received_signals:
                status = _flush_output(_run_command(arguments, received_signals))
        except KeyboardInterrupt:  # a second Ctrl-C, while the first is reported
            _report_interrupt(received_signals)
    termination_signals = [number for number in received_signals if number != signal.SIGINT]
    if termination_signals:
        signals.end_with_signal(termination_signals[0])
    # `sys.exit` is not safe here: CPython kills itself with SIGINT if a KeyboardInterrupt left code that `exec` runs,
    # such as that of a dataclass. Threads that still run end in pthread_exit, which aborts the process if libgcc_s
    # can no longer be opened.
    if received_signals or threading.active_count() > 1:
        os._exit(int(status))
    sys.exit(int(status))


def _take_global_options() -> None:
    """Remove `--debug` and `--color WHEN` from the arguments, and apply them. Raise UsageError if WHEN is unknown.

    They may stand anywhere, except after `--` and after the program of `run`.
    """
    words, kept = sys.argv[1:], sys.argv[:1]
    while words:
        word = words.pop(0)
        if word == "--" or (kept[1:2] == ["run"] and not word.startswith("-")):
            words.insert(0, word)
            break
        if word == "--debug":
            from tfdoctor.system import debug_log

            debug_log.enable()
        elif word == "--color" or word.startswith("--color="):
            from tfdoctor.render import terminal

            terminal.set_color(word.partition("=")[2] if "=" in word else words.pop(0) if words else "")
        else:
            kept.append(word)
    sys.argv[:] = [*kept, *words]


def _run_command(arguments: list[str], received_signals: list[int]) -> int:
    """Run the command and return the exit status.

    `arguments` are those before `--`; those after it belong to another program. `received_signals` has the numbers of
    the signals that have arrived so far.
    """
    wants_json = "--json" in arguments or "--format json" in " ".join(arguments).replace("=", " ")
    try:
        if any(argument.startswith(("--color", "--debug")) for argument in arguments):
            _take_global_options()
        if "TFDOCTOR_CALLED" in os.environ:
            from tfdoctor.render import program_name

            program_name.get_program_name()  # reads and removes the variable before child processes are started
        options = parse_check(sys.argv[1:])
        status = _run_other_command() if options is None else _run_check(options)
    except KeyboardInterrupt:
        return _report_interrupt(received_signals)
    except BrokenPipeError:  # for example in `tfdoctor check | head`
        stdio.discard_output(sys.stdout)
        return ExitCode.OK
    except SystemExit as exit_error:
        if not isinstance(exit_error.__context__, BrokenPipeError):
            raise
        stdio.discard_output(sys.stdout)  # Typer turns a BrokenPipeError during the command into SystemExit
        return ExitCode.OK
    except Error as error:
        return _report_error(error.exit_code, error.kind, error.message, error.hint, wants_json)
    except OSError as error:
        return _report_system_error(error, wants_json)
    except MemoryError:
        return _report_error(ExitCode.IMPOSSIBLE, "memory", "there is not enough memory.", "", wants_json)
    except ImportError as error:
        if stdio.can_loader_variables_break_imports():
            raise
        msg = f"a part of tfdoctor could not be loaded: {error}."
        return _report_error(ExitCode.IMPOSSIBLE, "import", msg, "", wants_json)
    except Exception as error:
        if received_signals and _is_interruption(error):
            return _report_interrupt(received_signals)
        if hasattr(error, "format_message"):  # Typer's own usage errors have it
            version_options = {"--version", "-V"} & set(arguments)
            hint = (
                f"`tfdoctor {version_options.pop()}` takes no other arguments."
                if version_options
                else "Try --help."
            )
            return _report_error(ExitCode.USAGE, "usage", error.format_message(), hint, wants_json)
        return _report_defect(error, wants_json)
    if (
        status == ExitCode.INTERRUPTED and received_signals
    ):  # Typer turns a KeyboardInterrupt into this status
        return _report_interrupt(received_signals)
    return status


def _is_interruption(error: BaseException | None) -> bool:
    """Return whether a KeyboardInterrupt led to this error.

    If the signal arrives while CPython acquires a lock, another error can replace it.
    """
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _run_check(options: CheckOptions) -> int:
    """Run `check` with the parsed options, and return the exit status."""
    from tfdoctor.cli.check import check

    return check(**options)


def _run_other_command() -> int:
    """Run a command line that is not a simple `check`, and return the exit status.

    Typer parses it, unless an extension can run it without Typer.
    """
    from tfdoctor.cli.commands import CORE_COMMANDS

    arguments, is_incomplete = sys.argv[1:], len(sys.argv) < 2
    if arguments and arguments[0] not in CORE_COMMANDS and not arguments[0].startswith("-"):
        from tfdoctor.cli.extensions import find_extensions, load_object

        extension = find_extensions().get(arguments[0])
        if extension is not None and extension.run_without_typer:
            status = load_object(extension.run_without_typer)(arguments)
            if status is not None:
                return int(status)
        is_incomplete = len(arguments) == 1 and extension is not None and bool(extension.subcommands)
    import typer

    from tfdoctor.cli.main import make_command_group

    try:
        words = [*arguments, "--help"] if is_incomplete else arguments
        status = make_command_group()(words, standalone_mode=False)
    except typer.Exit as typer_exit:
        return typer_exit.exit_code
    except typer.Abort:
        raise KeyboardInterrupt from None
    if is_incomplete:  # the help was printed, but without a command that is wrong usage
        return ExitCode.USAGE
    return status if isinstance(status, int) else ExitCode.OK


def _flush_output(status: int) -> int:
    """Flush standard output, and return `status`, or the exit status to use if that fails."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        stdio.discard_output(sys.stdout)
        return status
    except OSError as error:
        stdio.discard_output(sys.stdout)
        _write_error(f"tfdoctor: standard output cannot be written: {error.strerror or error}.")
        return ExitCode.IMPOSSIBLE
    return status


def _report_interrupt(received_signals: list[int]) -> ExitCode:
    """Print a message if only Ctrl-C was received, and return the exit status after a signal."""
    if all(number == signal.SIGINT for number in received_signals):
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

    If no thread could be started, report the limits of the user instead, because they are the cause.
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


def _report_error(exit_code: ExitCode, kind: str, message: str, hint: str, wants_json: bool) -> ExitCode:
    """Report an error and return the exit status `exit_code`.

    With `wants_json`, write JSON to standard output; if that fails, or without it, write text to standard error.
    """
    from tfdoctor.core.text import clean, strip_credentials

    secret_arguments = [argument for argument in sys.argv[1:] if "@" in argument]
    message, hint = (
        strip_credentials(text[:MAX_MESSAGE_CHARS], secret_arguments) for text in (message, hint)
    )
    if wants_json:
        from tfdoctor.render.json import make_document_head, write_json

        document = {
            **make_document_head("error"),
            "error": {"code": int(exit_code), "kind": kind, "message": message, "hint": hint},
        }
        try:
            write_json(document)
            sys.stdout.flush()
        except OSError:
            stdio.discard_output(sys.stdout)
        else:
            return exit_code
    _write_error(f"tfdoctor: {_adapt_commands(clean(message, limit=1000))}")
    if hint:
        _write_error(f"hint: {_adapt_commands(clean(hint, limit=1000))}")
    return exit_code


def _adapt_commands(text: str) -> str:
    """Return the text with tfdoctor's commands as the user types them, or unchanged if that is impossible."""
    try:
        from tfdoctor.render import program_name
    except (ImportError, OSError):
        return text
    return program_name.adapt_commands(text)


def _write_error(text: str) -> None:
    """Write a line to standard error. Ignore an OSError."""
    with contextlib.suppress(OSError):
        encoding = sys.stderr.encoding or "ascii"
        sys.stderr.write(text.encode(encoding, "replace").decode(encoding) + "\n")
