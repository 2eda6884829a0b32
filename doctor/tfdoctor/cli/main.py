"""The Typer application. The module of a command is imported only if the command is called."""

from __future__ import annotations

import functools
import inspect
import shlex
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from typer.core import TyperGroup

from tfdoctor.cli.commands import CORE_COMMANDS, list_commands, load_command
from tfdoctor.core.errors import UsageError
from tfdoctor.core.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GLOBAL_OPTIONS = ("--version", "-V", "--help", "-h")
"""The options that may precede a command."""

SCHEMA_PARAMETER = "json_schema"

EXIT_STATUS_MEANINGS = {
    0: "nothing found",
    1: "found",
    2: "wrong request",
    3: "could not be done",
    130: "interrupted",
}


class _Commands(Mapping[str, Any]):
    """The Click commands by name. The module of a command is imported when the command is looked up."""

    def __init__(self) -> None:
        self._loaded_commands: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded_commands:
            function = _adapt_to_typer(load_command(name), name)
            details = inspect.cleandoc(function.__doc__).partition("\n\n")[2]
            app = typer.Typer(add_completion=False, rich_markup_mode=None)
            app.command(
                name,
                help=f"{CORE_COMMANDS.get(name) or list_commands()[name]}\n\n{details}",
                # In `run`, everything after the program's name belongs to the program.
                context_settings={"allow_interspersed_args": name != "run"},
            )(function)
            self._loaded_commands[name] = typer.main.get_command(app)
        return self._loaded_commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(list_commands())

    def __len__(self) -> int:
        return len(list_commands())


def _adapt_to_typer(function: Any, name: str) -> Any:
    """Wrap a command function with a signature for Typer: each `OptionSpec` becomes an object of Typer.

    A command whose output has a schema gets the option `--json-schema`.
    """
    hints = inspect.get_annotations(function, eval_str=True)  # get_type_hints adds `Optional` on Python 3.10
    signature = inspect.signature(function)
    parameters = [
        parameter.replace(annotation=_make_annotation(hints[parameter.name]))
        for parameter in signature.parameters.values()
    ]
    from tfdoctor.compat.folder import data_dir

    schema = data_dir("schemas") / f"{name}.schema.json"
    if schema.is_file():
        parameters.append(_make_schema_parameter(schema))

    @functools.wraps(function)
    def run_command(**arguments: Any) -> Any:
        arguments.pop(SCHEMA_PARAMETER, None)
        return function(**arguments)

    adapted: Any = run_command
    adapted.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    adapted.__signature__ = signature.replace(parameters=parameters, return_annotation=int)
    return adapted


def _make_schema_parameter(schema: Path) -> inspect.Parameter:
    """Return the parameter of `--json-schema`, which prints the schema and exits."""

    def print_schema(is_given: bool) -> None:
        if is_given:
            sys.stdout.write(schema.read_text(encoding="utf-8"))
            raise typer.Exit

    text = "Print the JSON Schema of the --json output and exit."
    setting = typer.Option("--json-schema", callback=print_schema, is_eager=True, help=text)
    return inspect.Parameter(
        SCHEMA_PARAMETER,
        inspect.Parameter.KEYWORD_ONLY,
        default=False,
        annotation=Annotated[bool, setting],
    )


def _make_annotation(hint: Any) -> Any:
    """Convert an annotation with an `OptionSpec` to an annotation for Typer."""
    value_type, spec = get_args(hint)
    factory: Any = typer.Option if spec.kind == "option" else typer.Argument
    return Annotated[value_type, factory(*spec.names, **spec.settings)]


class _Group(TyperGroup):
    """The command group. Its help text lists the commands without importing them, and fits on one screen."""

    def format_help_text(self, _ctx: Any, formatter: Any) -> None:
        """Write the text directly below the usage, without an empty line, so that the help fits in 24 lines."""
        with formatter.indentation():
            formatter.write_text(inspect.cleandoc(main.__doc__ or ""))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        self.format_commands(ctx, formatter)

    def format_epilog(self, _ctx: Any, formatter: Any) -> None:
        """Write the epilog directly below the commands, for the same reason."""
        formatter.write_text(self.epilog or "")

    def format_commands(self, _ctx: Any, formatter: Any) -> None:
        """Write the section without the empty line above it, so that the help fits in 24 lines."""
        formatter.write_heading("Commands")
        with formatter.indentation():
            formatter.write_dl(list(list_commands().items()))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        arguments = _normalize_arguments(args)
        _check_order(arguments)
        return super().parse_args(ctx, arguments)


def _normalize_arguments(arguments: list[str]) -> list[str]:
    """Replace `help`, `help COMMAND` and `version`, which many users try first, with --help and --version."""
    if arguments == ["version"]:
        return ["--version"]
    if arguments[:1] == ["help"]:
        return [*(argument for argument in arguments[1:2] if argument not in ("help", "version")), "--help"]
    return arguments


def _check_order(arguments: list[str]) -> None:
    """Raise UsageError if a command's option precedes the command."""
    first_argument = arguments[0] if arguments else ""
    if not first_argument.startswith("-") or first_argument in GLOBAL_OPTIONS:
        return
    commands = list_commands()
    index = next((position for position, argument in enumerate(arguments) if argument in commands), None)
    if index is None:
        corrected = ["check", *arguments]
        msg = f"{clean_line(first_argument)} is an option of a command, and no command is named."
    else:
        corrected = [arguments[index], *arguments[:index], *arguments[index + 1 :]]
        msg = f"{clean_line(first_argument)} is an option of a command; it comes after `{arguments[index]}`."
    raise UsageError(msg, hint=clean_line(f"tfdoctor {shlex.join(corrected)}", limit=500))


def _print_version(is_given: bool) -> None:
    """Print the version and exit if the option is given."""
    if is_given:
        from tfdoctor import __version__

        sys.stdout.write(f"tfdoctor {__version__}\n")
        raise typer.Exit


def main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Why TensorFlow does not see your GPU, and what to type so that it does."""


def make_command_group() -> Any:
    """Return the Click group that parses a command line and calls the command."""
    app = typer.Typer(
        name="tfdoctor",
        cls=_Group,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["--help", "-h"]},
        epilog="Exit status: "  # one line, without 130, which is the usual status after Ctrl-C
        f"{', '.join(f'{status} {meaning}' for status, meaning in EXIT_STATUS_MEANINGS.items() if status < 130)}.",
    )
    app.callback()(main)
    group: Any = typer.main.get_command(app)
    group.commands = _Commands()
    return group
