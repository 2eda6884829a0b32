"""How every command starts and ends. Typer is loaded where its reading of the command line is needed."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import threading
from typing import TYPE_CHECKING, NoReturn

from tfdoctor.cli import stdio
from tfdoctor.cli.fast_parser import parse_connect, plain
from tfdoctor.errors import Error, ExitCode
from tfdoctor.system import signals

if TYPE_CHECKING:
    from tfdoctor.cli.fast_parser import Options

__all__ = ["run"]


def run() -> NoReturn:
    """The entry point: run a command and turn every end into a documented exit status."""
    ours = sys.argv[1 : sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    for name in ("COLUMNS", "LINES"):  # Rich reads them, and fails on what is no number
        if not re.fullmatch(r"[0-9]{1,9}", os.environ.get(name, "0")):
            del os.environ[name]
    came: list[int] = []
    status: int = ExitCode.INTERRUPTED
    with stdio.standard_streams():
        try:
            with signals.handle_ending_signals() as came:
                status = _flush_output(_run_to_end(ours, came))
        except KeyboardInterrupt:  # while something else was told
            _make_interrupt_code(came)
    by_signal = [number for number in came if number != signal.SIGINT]
    if by_signal:
        signals.die(by_signal[0])
    # CPython dies by SIGINT where the exception left a text that `exec` ran: a dataclass's, say. And a thread that is
    # still at work ends with CPython in pthread_exit, which aborts where libgcc_s cannot be opened any more.
    if came or threading.active_count() > 1:
        os._exit(int(status))
    sys.exit(int(status))


def _run_to_end(ours: list[str], came: list[int]) -> int:
    """Run the command; ours: the words that are not another program's. Returns the exit status."""
    wants_json = "--json" in ours
    try:
        if "TFDOCTOR_CALLED" in os.environ:
            from tfdoctor.render import program_name

            program_name.name()  # now: what we start has no use for the variable that says it
        options = plain(sys.argv[1:])
        status = _run_typer() if options is None else _check(options)
    except KeyboardInterrupt:
        return _make_interrupt_code(came)
    except BrokenPipeError:  # `tfdoctor check | head`: nobody is left to tell
        stdio.give_up(sys.stdout)
        return ExitCode.OK
    except SystemExit as end:
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        stdio.give_up(sys.stdout)  # Typer saw it first, where the answer was longer than a buffer
        return ExitCode.OK
    except Error as error:
        return _fail(error.exit_code, error.kind, error.message, error.hint, wants_json)
    except OSError as error:
        return _system_failed(error, wants_json)
    except MemoryError:
        return _fail(ExitCode.IMPOSSIBLE, "memory", "there is not enough memory.", "", wants_json)
    except ImportError as error:
        if stdio.may_be_loader():
            raise
        msg = f"a part of tfdoctor could not be loaded: {error}."
        return _fail(ExitCode.IMPOSSIBLE, "import", msg, "", wants_json)
    except Exception as error:
        if came and _is_interruption(error):
            return _make_interrupt_code(came)
        if hasattr(error, "format_message"):  # Typer's own usage errors have it
            asked = {"--version", "-V"} & set(ours)
            hint = f"`tfdoctor {asked.pop()}` takes no other arguments." if asked else "Try --help."
            return _fail(ExitCode.USAGE, "usage", error.format_message(), hint, wants_json)
        return _defect(error, wants_json)
    if status == ExitCode.INTERRUPTED and came:  # Typer turns a KeyboardInterrupt into this status
        return _make_interrupt_code(came)
    return status


def _is_interruption(error: BaseException | None) -> bool:
    """Return whether a signal's exception led to this one: CPython's locks fail where it comes between two steps."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _check(options: Options) -> int:
    from tfdoctor.cli.check import check

    return check(**options)


def _run_typer() -> int:
    """Whatever else was asked for."""
    on_host = parse_connect(sys.argv[1:])
    if on_host is not None:
        from tfdoctor.cli.cluster import cluster

        return cluster(**on_host)

    import typer

    from tfdoctor.cli.main import command_line

    words = sys.argv[1:]
    try:
        code = command_line()(words or ["--help"], standalone_mode=False)
    except typer.Exit as end:
        return end.exit_code
    except typer.Abort:
        raise KeyboardInterrupt from None
    if not words:  # the whole help, where its reader looks; but nothing was asked for, let alone done
        return ExitCode.USAGE
    return code if isinstance(code, int) else ExitCode.OK


def _flush_output(status: int) -> int:
    """Return the exit status, once everything is written."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        stdio.give_up(sys.stdout)
        return ExitCode.OK
    except OSError as error:
        stdio.give_up(sys.stdout)
        _say(f"tfdoctor: standard output cannot be written: {error.strerror or error}.")
        return ExitCode.IMPOSSIBLE
    return status


def _make_interrupt_code(came: list[int]) -> ExitCode:
    if all(number == signal.SIGINT for number in came):
        _say("Interrupted.")
    return ExitCode.INTERRUPTED


def _system_failed(error: OSError, wants_json: bool) -> ExitCode:
    """Return what the system refused, maybe the answer itself."""
    if _flush_output(ExitCode.OK) is not ExitCode.OK:
        return ExitCode.IMPOSSIBLE
    message = f"{error.strerror or error}"
    return _fail(ExitCode.IMPOSSIBLE, "system", message, str(error.filename or ""), wants_json)


def _defect(error: Exception, wants_json: bool) -> ExitCode:
    if isinstance(error, RuntimeError) and "new thread" in str(error):
        hint = "See `ulimit -u` and `ulimit -v`."
        return _fail(ExitCode.IMPOSSIBLE, "system", "no thread can be started here.", hint, wants_json)
    import traceback

    _say("".join(traceback.format_exception(error)).rstrip("\n"))
    msg = f"this is a defect of tfdoctor ({type(error).__name__}); nothing was judged."
    return _fail(ExitCode.IMPOSSIBLE, "defect", msg, "Report it with the lines above.", wants_json)


MAX_MESSAGE_CHARS = 4000


def _fail(code: ExitCode, kind: str, message: str, hint: str, wants_json: bool) -> ExitCode:
    from tfdoctor.text import clean, strip_credentials

    values = [word for word in sys.argv[1:] if "@" in word]
    message, hint = (strip_credentials(text[:MAX_MESSAGE_CHARS], values) for text in (message, hint))
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
            stdio.give_up(sys.stdout)
        else:
            return code
    _say(f"tfdoctor: {_as_called(clean(message, limit=1000))}")
    if hint:
        _say(f"hint: {_as_called(clean(hint, limit=1000))}")
    return code


def _as_called(text: str) -> str:
    """With our commands as they are typed here; as it is where no file can be opened any more."""
    try:
        from tfdoctor.render import program_name
    except (ImportError, OSError):
        return text
    return program_name.as_called(text)


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        encoding = sys.stderr.encoding or "ascii"
        sys.stderr.write(text.encode(encoding, "replace").decode(encoding) + "\n")
