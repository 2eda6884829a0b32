"""The command line: each command is a module with its signature, and is loaded when it is called."""

from __future__ import annotations

import functools
import inspect
import shlex
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from typer.core import TyperGroup

from tfdoctor.errors import UsageError
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMANDS = {
    "check": "Why does TensorFlow (not) see the GPUs?",
    "diagnose": "What does this TensorFlow log mean?",
    "fix": "Fix what `check` finds, as far as software can.",
    "install": "Make a virtual environment in which TensorFlow sees the GPUs.",
    "build": "Build a container image in which TensorFlow sees the GPUs.",
    "verify": "Test TensorFlow on the GPUs, in an image or an environment.",
    "recommend": "Which TensorFlow works on this machine, and how to install it.",
    "matrix": "Which TensorFlow works with which CUDA, driver, Python and GPU?",
    "run": "Run a program unchanged, and explain its log when it ends.",
    "placement": "Which operations ran on which device, by TensorFlow's log?",
    "bench": "Is the GPU worth it, and why are two slower than one?",
    "cluster": "Is this TF_CONFIG right, and does each task answer?",
    "fleet": "Which host of a cluster is not like the others?",
    "lint": "What in this code keeps TensorFlow from the GPUs?",
    "explain": "What does a finding's code, a cause, or a message mean?",
    "parse": "What does this output of nvidia-smi, nvcc, ldconfig … say?",
    "capture": "Record what `check` looks at, so that others can judge it.",
    "report": "Print redacted Markdown for a bug report.",
    "completion": "Set up shell completion of commands, options and values.",
}
"""A command, which is a module of this folder and the function in it, both of its name → its help's first line.

The rest of its help is what follows the first line of that function's docstring.
"""

OWN_OPTIONS = ("--version", "-V", "--help", "-h")
"""What may come before a command."""

EXIT_STATUS = {
    0: "nothing found",
    1: "found",
    2: "wrong request",
    3: "could not be done",
    130: "interrupted",
}


class _Commands(Mapping[str, Any]):
    """The commands by their names; each one's module is imported when somebody asks for it."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in COMMANDS:
            raise KeyError(name)
        if name not in self._made:
            function = _adapt_to_typer(getattr(import_module(f"tfdoctor.cli.{name}"), name))
            details = inspect.cleandoc(function.__doc__).partition("\n\n")[2]
            alone = typer.Typer(add_completion=False, rich_markup_mode=None)
            alone.command(
                name,
                help=f"{COMMANDS[name]}\n\n{details}",
                # After a program's name all words are that program's.
                context_settings={"allow_interspersed_args": name != "run"},
            )(function)
            self._made[name] = typer.main.get_command(alone)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


def _adapt_to_typer(function: Any) -> Any:
    """Return the function as Typer reads it: a `Spec` in its signature is the option or argument that it describes."""
    hints = inspect.get_annotations(function, eval_str=True)  # get_type_hints of Python 3.10 adds `Optional`
    signature = inspect.signature(function)
    parameters = [
        one.replace(annotation=_make_annotation(hints[one.name])) for one in signature.parameters.values()
    ]

    @functools.wraps(function)
    def run_command(**given: Any) -> Any:
        return function(**given)

    read: Any = run_command
    read.__annotations__ = {one.name: one.annotation for one in parameters}
    read.__signature__ = signature.replace(parameters=parameters, return_annotation=int)
    return read


def _make_annotation(hint: Any) -> Any:
    kind, spec = get_args(hint)
    make: Any = typer.Option if spec.kind == "option" else typer.Argument
    return Annotated[kind, make(*spec.names, **spec.settings)]


class _Group(TyperGroup):
    """Lists the commands without loading them, and nothing that would make its help more than one screen."""

    def format_help_text(self, _ctx: Any, formatter: Any) -> None:
        """Right below the usage: each command has a line, and a screen has 24."""
        with formatter.indentation():
            formatter.write_text(inspect.cleandoc(main.__doc__ or ""))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        self.format_commands(ctx, formatter)

    def format_epilog(self, _ctx: Any, formatter: Any) -> None:
        """Right below the commands, for the same reason."""
        formatter.write_text(self.epilog or "")

    def format_commands(self, _ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = _as_options(args)
        _check_order(words)
        return super().parse_args(ctx, words)


def _as_options(words: list[str]) -> list[str]:
    """Return `help`, `help COMMAND` and `version`, which many type first, as the options that they mean."""
    if words == ["version"]:
        return ["--version"]
    if words[:1] == ["help"]:
        return [*(word for word in words[1:2] if word not in ("help", "version")), "--help"]
    return words


def _check_order(words: list[str]) -> None:
    """Raises UsageError for an option of a command before that command."""
    first = words[0] if words else ""
    if not first.startswith("-") or first in OWN_OPTIONS:
        return
    at = next((place for place, word in enumerate(words) if word in COMMANDS), None)
    if at is None:
        typed = [next(iter(COMMANDS)), *words]
        msg = f"{clean_line(first)} is an option of a command, and no command is named."
    else:
        typed = [words[at], *words[:at], *words[at + 1 :]]
        msg = f"{clean_line(first)} is an option of a command; it comes after `{words[at]}`."
    raise UsageError(msg, hint=clean_line(f"tfdoctor {shlex.join(typed)}", limit=500))


def _version(asked: bool) -> None:
    if asked:
        from tfdoctor import __version__

        sys.stdout.write(f"tfdoctor {__version__}\n")
        raise typer.Exit


def main(
    version: Annotated[
        bool,
        typer.Option("--version", "-V", callback=_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Why TensorFlow does not see your GPU, and what to type so that it does."""


def command_line() -> Any:
    """Return what takes the words of a command line apart, and calls the command."""
    app = typer.Typer(
        name="tfdoctor",
        cls=_Group,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["--help", "-h"]},
        epilog="Exit status: "  # on one line: that of Ctrl-C is everybody's
        f"{', '.join(f'{status} {meaning}' for status, meaning in EXIT_STATUS.items() if status < 130)}.",
    )
    app.callback()(main)
    group: Any = typer.main.get_command(app)
    group.commands = _Commands()
    return group
