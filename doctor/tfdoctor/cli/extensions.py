"""Find the extensions, which add commands to tfdoctor.

An extension is an entry point of the group `tfdoctor.commands`. Its name is that of the command, and its value is an
`Extension`. Other distributions can add some, too.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Extension", "find_extensions", "load_object"]

GROUP = "tfdoctor.commands"


@dataclass(frozen=True, slots=True)
class Extension:
    """The parts of an extension, as "MODULE:NAME". A part is imported when it is used."""

    summary: str
    """The first line of the command's help text."""
    command: str = ""
    """The function of the command. Empty if it has subcommands."""
    subcommands: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """(first line of the help text, function) of each subcommand, by name."""
    example: str = ""
    """A command line that shows the findings of the extension on the user's machine."""
    pages: str = ""
    """The tuple of `CodePage` that `explain` prints for its findings."""
    run_without_typer: str = ""
    """A function that gets the words of the command line and returns the exit status.

    It returns None if Typer must parse the command line. It is for hosts that have no Typer.
    """


@functools.cache
def find_extensions() -> Mapping[str, Extension]:
    """Return the extensions that are installed, by the name of their command.

    An extension that cannot be imported is left out.
    """
    from importlib import metadata  # it takes long to load, and the commands of the core do not need it

    found: dict[str, Extension] = {}
    for entry_point in sorted(metadata.entry_points(group=GROUP), key=lambda entry_point: entry_point.name):
        try:
            extension = entry_point.load()
        except Exception:  # noqa: S112 - code of another distribution
            continue
        if isinstance(extension, Extension):
            found.setdefault(entry_point.name, extension)
    return found


def load_object(reference: str) -> Any:
    """Import and return the object that "MODULE:NAME" names."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)
