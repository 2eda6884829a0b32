"""Options that several commands share, each written once; a command's own options stand in its signature."""

from __future__ import annotations

import enum
import math
from typing import Annotated, Any, TypeVar

import typer

__all__ = [
    "Driver",
    "FailOn",
    "Gpus",
    "Index",
    "Installer",
    "Installers",
    "Json",
    "NoDeep",
    "OnlyErrors",
    "Packages",
    "Python",
    "Quiet",
    "Severe",
    "Timeout",
    "command",
    "finite",
    "verbose_option",
]

Command = TypeVar("Command")


def command(function: Command) -> Command:
    """Marks a command: Typer reads the annotations of its signature when it runs (so does ruff, by pyproject.toml)."""
    return function


def finite(value: float | None) -> float | None:
    """No `nan`: it is neither below nor above a limit, and every look would have ended before it began."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter("expected a number of seconds.")
    return value


def verbose_option(help_: str) -> Any:
    """`-v`, which shows something else of each command."""
    return typer.Option("--verbose", "-v", help=help_)


class FailOn(str, enum.Enum):
    """From which severity on a finding makes the exit status 1."""

    error = "error"
    warning = "warning"
    never = "never"


class Installer(str, enum.Enum):
    """What installs."""

    uv = "uv"
    pip = "pip"


Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the verdict alone.")]
OnlyErrors = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Severe = Annotated[FailOn, typer.Option(help="Exit with status 1 if any finding is at least this severe.")]
Timeout = Annotated[
    float,
    typer.Option(
        min=1, max=3600, metavar="SECONDS", callback=finite, help="Stop looking after this many seconds."
    ),
]
Python = Annotated[str | None, typer.Option(metavar="PATH", help="The Python to examine, as for `check`.")]
Packages = Annotated[
    list[str] | None, typer.Option(metavar="P", help='Install this, too: pandas, "scipy<1.12".')
]
Gpus = Annotated[
    list[str] | None, typer.Option(metavar="NAME|CC", help="For this card instead of this machine's.")
]
Driver = Annotated[str | None, typer.Option(metavar="V", help="For this driver.")]
Index = Annotated[str | None, typer.Option(metavar="URL", help="The package index, without a password.")]
Installers = Annotated[Installer | None, typer.Option(help="What installs. Default: uv where there is one.")]
NoDeep = Annotated[
    bool, typer.Option("--no-deep", help="Do not run TensorFlow at the end, also where there is a GPU.")
]
