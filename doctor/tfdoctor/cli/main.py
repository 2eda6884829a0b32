"""The Typer application. The module of a command is imported only if the command is called."""

from __future__ import annotations

import functools
import inspect
import re
import shlex
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from typer.core import TyperCommand, TyperGroup

from tfdoctor.cli.commands import CORE_COMMANDS, list_commands, list_groups, load_command, load_subcommands
from tfdoctor.core.docstrings import read_docstring
from tfdoctor.core.errors import UsageError
from tfdoctor.core.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GLOBAL_OPTIONS = ("--version", "-V", "--help", "-h")
"""The options that may precede a command."""

SCHEMA_PARAMETER = "json_schema"

EXIT_STATUS_MEANINGS = {
    0: "no problem",
    1: "problem",
    2: "wrong request",
    3: "could not be done",
    130: "interrupted",
}


HELP_FOOTER = """\
Examples: tfdoctor check · tfdoctor diagnose train.log · tfdoctor install
Options:  -h, --help · -V, --version · --color auto|always|never · --debug
"""
MIN_GROUPED_OPTIONS = 12
"""From this number of options on, the help of a command shows them in groups."""
MAIN_OPTIONS = "Options"
"""The title of the first group: what a newcomer needs. It has all options that OPTION_GROUPS does not name."""
OPTION_GROUPS = {
    "Machine": ("--gpu", "--driver", "--anywhere", "--simulate", "--from", "--against", "--platform"),
    "How it runs": (
        *(
            "--dry-run",
            "--yes",
            "--no-verify",
            "--no-deep",
            "--timeout",
            "--installer",
            "--no-cache",
            "--push",
        ),
        *("--even-if-changed", "--memory", "--resume", "--pass-on", "--runner"),
    ),
    "Image": ("--base", "--dev", "--copy", "--entrypoint", "--uid", "--pin"),
    "Network": ("--registry", "--index", "--ca-cert", "--proxy", "--network"),
    "Output": (
        *("--print", "--emit", "--html", "--junit", "--svg", "--png", "--output", "--force", "--fail-on"),
        *("--format", "--json", "--verbose", "--quiet", "--json-schema", "--help"),
    ),
}
"""The options of each further group, by its title, in the order of the help."""
RENAMED_OPTIONS = {
    "check": {"--facts": "--from"},
    "report": {"--facts": "--from"},
    "recommend": {"--facts": "--from", "--python": "--python-version"},
    "matrix": {"--cc": "--gpu", "--python": "--python-version"},
    "lint": {"--gpus": "--gpu-count"},
}
"""Unlisted spellings of options that programs use, by command: {spelling: option}."""


class _Commands(Mapping[str, Any]):
    """The Click commands by name. The module of a command is imported when the command is looked up."""

    def __init__(self) -> None:
        self._loaded_commands: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded_commands:
            summary = CORE_COMMANDS.get(name) or list_commands()[name]
            subcommands = load_subcommands(name)
            app = typer.Typer(name=name, add_completion=False, rich_markup_mode=None)
            if subcommands:
                app.callback(help=summary)(lambda: None)
                for subcommand, (first_line, function) in subcommands.items():
                    _add_command(app, f"{name} {subcommand}", function, first_line)
            else:
                _add_command(app, name, load_command(name), summary)
            self._loaded_commands[name] = typer.main.get_command(app)
        return self._loaded_commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(list_commands())

    def __len__(self) -> int:
        return len(list_commands())


def _add_command(app: Any, path: str, function: Any, summary: str) -> None:
    """Add a command, such as `check` or `fleet run`, to a Typer application.

    Its help is `summary`, the docstring without its first line, and the examples.
    """
    details = read_docstring(function).partition("\n\n")[2]
    examples = "\n".join(f"  {example}" for example in function.examples)
    app.command(
        path.rpartition(" ")[2],
        cls=_Command,
        help=f"{summary}\n\n{details}",
        epilog=f"\b\nExamples:\n{examples}" if examples else None,
        # In `run`, everything after the program's name belongs to the program.
        context_settings={"allow_interspersed_args": path != "run"},
    )(_adapt_to_typer(function, path.partition(" ")[0]))


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


def _describe_default(record: tuple[str, str]) -> tuple[str, str]:
    """Return a help record with "Default: 10 (1 to 3600)." in place of Click's "[default: 10.0; 1<=x<=3600]"."""
    names, text = record
    match = re.search(r" *\[(?:default: ([^;\]]+?)(?:\.0)?)?(?:; )?(?:(\d+)<=x<=(\d+))?\]\Z", text)
    if match is None:
        return record
    default, low, high = match.groups()
    limits = f"{low} to {high}" if low else ""
    notes = (f" Default: {default}{f' ({limits})' if limits else ''}.") if default else f" ({limits})"
    return names, text[: match.start()] + notes


class _Command(TyperCommand):
    """A command. If it has many options, its help shows them in groups."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and the options."""
        arguments: list[tuple[list[str], tuple[str, str]]] = []
        options: list[tuple[list[str], tuple[str, str]]] = []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                is_argument = parameter.param_type_name == "argument"
                (arguments if is_argument else options).append((parameter.opts, _describe_default(record)))
        further_groups = {}
        for title, names in OPTION_GROUPS.items() if len(options) >= MIN_GROUPED_OPTIONS else ():
            members = [option for name in names for option in options if name in option[0]]
            further_groups[title] = members
            options = [option for option in options if option not in members]
        groups = {"Arguments": arguments, MAIN_OPTIONS: options, **further_groups}
        for title, members in groups.items():
            if members:
                with formatter.section(title):
                    formatter.write_dl([record for _, record in members])


class _Group(TyperGroup):
    """The command group. Its help text lists the commands without importing them, and fits on one screen."""

    def format_help_text(self, _ctx: Any, formatter: Any) -> None:
        """Write the text directly below the usage, without an empty line, so that the help fits in 24 lines."""
        with formatter.indentation():
            formatter.write_text(read_docstring(main))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        self.format_commands(ctx, formatter)

    def format_epilog(self, _ctx: Any, formatter: Any) -> None:
        """Write the examples, the options and the exit status."""
        formatter.write(f"\n{self.epilog}\n")

    def format_commands(self, _ctx: Any, formatter: Any) -> None:
        """Write a line for each command, with the title of its group in front of the first one."""
        groups = list_groups()
        title_width = max(map(len, groups)) + 2
        name_width = max(len(name) for commands in groups.values() for name, _ in commands) + 2
        formatter.write("\n")
        for title, commands in groups.items():
            for number, (name, summary) in enumerate(commands):
                column = "" if number else title
                formatter.write(f"{column:{title_width}}{name:{name_width}}{summary}\n")

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        arguments = _normalize_arguments(args)
        _check_order(arguments)
        return super().parse_args(ctx, arguments)


def _normalize_arguments(arguments: list[str]) -> list[str]:
    """Replace `help`, `help COMMAND` and `version`, which many users try first, and RENAMED_OPTIONS."""
    renamed_options = RENAMED_OPTIONS.get(arguments[0], {}) if arguments else {}
    if renamed_options:
        end = arguments.index("--") if "--" in arguments else len(arguments)
        words = [argument.partition("=") for argument in arguments[:end]]
        arguments = [
            "".join((renamed_options.get(word[0], word[0]), *word[1:])) for word in words
        ] + arguments[end:]
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
        sys.stdout.write(f"tfdoctor {_describe_version()}\n")
        raise typer.Exit


def _describe_version() -> str:
    """Return the version, the commit if it is known, and the date of the tables."""
    from tfdoctor import __version__
    from tfdoctor.compat import Compat
    from tfdoctor.compat.folder import find_commit

    commit = find_commit()
    commit_text = f"commit {commit}, " if commit else ""
    return f"{__version__} ({commit_text}tables of {Compat.load().as_of})"


def main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Find out why TensorFlow does not use your GPU, and how to fix it."""


def make_command_group() -> Any:
    """Return the Click group that parses a command line and calls the command."""
    app = typer.Typer(
        name="tfdoctor",
        cls=_Group,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["--help", "-h"]},
        epilog=f"{HELP_FOOTER}Exit status: "  # one line, without 130, which is the usual status after Ctrl-C
        f"{', '.join(f'{status} {meaning}' for status, meaning in EXIT_STATUS_MEANINGS.items() if status < 130)}.",
    )
    app.callback()(main)
    group: Any = typer.main.get_command(app)
    group.commands = _Commands()
    return group


def iter_commands(group: Any) -> Iterator[tuple[str, Any]]:
    """Yield (name, Click command) for each command that can be called, such as `fleet run`."""
    for name, command in group.commands.items():
        subcommands = getattr(command, "commands", {})
        yield from ((f"{name} {subcommand}", item) for subcommand, item in subcommands.items())
        if not subcommands:
            yield name, command
