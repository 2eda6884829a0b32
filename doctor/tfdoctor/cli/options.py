"""The options that several commands share. All others are declared in the signature of their command."""

from __future__ import annotations

import enum
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from tfdoctor.cli import completion_values
from tfdoctor.core.records import dataclass
from tfdoctor.remedies.tools import Tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = [
    "MAX_SETTINGS_FOLDERS",
    "SETTINGS_FILES",
    "Driver",
    "FailOn",
    "FailOnOption",
    "For",
    "Force",
    "Format",
    "FormatOption",
    "From",
    "Gpus",
    "Html",
    "Ignore",
    "Index",
    "Installer",
    "Installers",
    "Json",
    "NoDeep",
    "OnlyErrors",
    "Output",
    "Packages",
    "Python",
    "Quiet",
    "Simulate",
    "SimulatedDriver",
    "Timeout",
    "Yes",
    "argument",
    "check_finite",
    "choose_format",
    "command",
    "option",
    "verbose_option",
]

Command = TypeVar("Command")


@dataclass(frozen=True, slots=True)
class OptionSpec:
    """An option or an argument, which `main` converts for Typer. Command modules need not import Typer."""

    kind: Literal["option", "argument"]
    names: tuple[str, ...]
    """The names as the user types them. If empty, Typer derives the name from the parameter."""
    settings: dict[str, Any]
    """The keyword arguments for Typer."""


def option(text: str, *names: str, **settings: Any) -> OptionSpec:
    """Return an option with the help text `text`.

    `settings` are keyword arguments for Typer, such as `metavar`, `min` and `autocompletion` (see
    `completion_values`).
    """
    return OptionSpec("option", names, {"help": text, **settings})


def argument(text: str, **settings: Any) -> OptionSpec:
    """Return an argument. The parameters are those of `option`."""
    return OptionSpec("argument", (), {"help": text, **settings})


def command(*examples: str) -> Callable[[Command], Command]:
    """Return a decorator that marks a function as a command, with command lines to show in its help.

    The decorator is named in pyproject.toml, so that ruff knows that Typer evaluates the annotations at run time.
    """

    def add_examples(function: Command) -> Command:
        function.examples = examples  # type: ignore[attr-defined]
        return function

    return add_examples


def check_finite(value: float | None) -> float | None:
    """Return the number unchanged. Raise BadParameter if it is infinite or NaN.

    Typer's `min` and `max` do not reject these values.
    """
    if value is not None and not math.isfinite(value):
        import typer

        raise typer.BadParameter("expected a number of seconds.")
    return value


def choose_format(output_format: Format, *, as_json: bool) -> Format:
    """Return the output format that `--format` and `--json` request. Raise UsageError if they exclude each other."""
    if as_json and output_format not in (Format.text, Format.json):
        from tfdoctor.core.errors import UsageError

        msg = f"--json and --format {output_format.value} exclude each other."
        raise UsageError(msg)
    return Format.json if as_json else output_format


def verbose_option(text: str) -> OptionSpec:
    """Return the `--verbose` option with a command's help text."""
    return option(text, "--verbose", "-v")


class FailOn(str, enum.Enum):
    """The lowest severity of a finding that makes the exit status 1."""

    error = "error"
    warning = "warning"
    never = "never"

    def is_reached(self, findings: Iterable[Any]) -> bool:
        """Return whether a finding is at least this severe."""
        from tfdoctor.core.findings import Severity

        return self is not FailOn.never and any(
            finding.severity >= Severity[self.name.upper()] for finding in findings
        )


class Format(str, enum.Enum):
    """An output format."""

    text = "text"
    json = "json"
    markdown = "markdown"


class Installer(str, enum.Enum):
    """The tool that installs packages."""

    uv = "uv"
    pip = "pip"


SETTINGS_FILES = ("tfdoctor.toml", "pyproject.toml")
"""The files that can have settings (see `cli.configuration`), the more important one first."""
MAX_SETTINGS_FOLDERS = 40
"""The maximum number of folders above the working folder in which they are looked for."""

Html = Annotated[
    Path | None,
    option("Also write the result to this file as a page for a browser, redacted.", metavar="FILE"),
]
Force = Annotated[bool, option("Replace an existing file.", "--force")]
Json = Annotated[bool, option("Print JSON.", "--json")]
Quiet = Annotated[bool, option("Print only the verdict.", "--quiet", "-q")]
OnlyErrors = Annotated[bool, option("Print only errors.", "--quiet", "-q")]
FailOnOption = Annotated[FailOn, option("Exit with status 1 if any finding is at least this severe.")]
Ignore = Annotated[
    list[str] | None,
    option(
        "Ignore this finding: TFD112. Repeat it for others.",
        metavar="CODE",
        autocompletion=completion_values.complete_code,
    ),
]
FormatOption = Annotated[Format, option("Print in this format.", "--format")]
Output = Annotated[
    Path | None,
    option("Write the output to this file instead of the terminal.", "--output", "-o", metavar="FILE"),
]
Timeout = Annotated[
    float,
    option(
        "Limit of the examination in seconds. On a busy machine, 10 becomes up to 60.",
        min=1,
        max=3600,
        metavar="SECONDS",
        callback=check_finite,
    ),
]
Python = Annotated[str | None, option("The Python to examine, as for `check`.", metavar="PATH")]
From = Annotated[
    Path | None,
    option("Use a recorded machine (made by `capture`) instead of this one.", "--from", metavar="RECORDING"),
]
Packages = Annotated[
    list[str] | None, option('Also install this package: pandas, "scipy<1.12".', metavar="P")
]
Gpus = Annotated[
    list[str] | None,
    option(
        "Plan for this GPU instead of this machine's. Repeat it for several GPUs.",
        metavar="NAME|CC",
        autocompletion=completion_values.complete_gpu,
    ),
]
Driver = Annotated[str | None, option("Plan for this driver.", metavar="V")]
SimulatedDriver = Annotated[
    str | None, option("With --simulate: simulate this driver. Default: the newest.", metavar="V")
]
Simulate = Annotated[
    list[str] | None,
    option(
        "Simulate this GPU, so that none is needed.",
        metavar="NAME|CC",
        autocompletion=completion_values.complete_gpu,
    ),
]
For = Annotated[
    Tool | None,
    option(
        "Show commands that install packages for this tool.",
        "--for",
        metavar="|".join(tool.value for tool in Tool),
    ),
]
Index = Annotated[str | None, option("The package index, without a password.", metavar="URL")]
Installers = Annotated[Installer | None, option("The installer. Default: uv if it is available.")]
Yes = Annotated[bool, option("Do not ask.", "--yes", "-y")]
NoDeep = Annotated[bool, option("Do not run TensorFlow at the end, even if there is a GPU.", "--no-deep")]
