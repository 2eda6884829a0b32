"""The commands of tfdoctor: those of the core, and those of extensions."""

from __future__ import annotations

from typing import Any

from tfdoctor.cli.extensions import find_extensions, load_object

__all__ = ["CORE_COMMANDS", "list_commands", "list_groups", "load_command", "load_subcommands"]

CORE_COMMANDS = {
    "check": "Find out why TensorFlow does not use the GPU.",
    "diagnose": "Explain a TensorFlow log.",
    "run": "Run a program unchanged, and explain its log.",
    "explain": "Explain a code, a cause or a message.",
    "fix": "Fix what `check` finds, as far as software can.",
    "install": "Install TensorFlow for the GPU, in a new folder.",
    "recommend": "Recommend a TensorFlow for a GPU and a driver.",
    "matrix": "Look up which TensorFlow needs which CUDA.",
    "build": "Build an image with TensorFlow for the GPU.",
    "verify": "Test TensorFlow on the GPUs of an image or Python.",
    "capture": "Record a machine, to examine it elsewhere.",
    "report": "Print redacted Markdown for a bug report.",
    "parse": "Convert the output of nvidia-smi, nvcc, ldconfig … to JSON.",
    "completion": "Set up shell completion of commands, options and values.",
}
"""The first line of the help text of each command of the core.

The module and the function of such a command have the command's name. The rest of the help text is the function's
docstring without its first line.
"""
HELP_GROUPS = {
    "Diagnose": ("check", "diagnose", "run", "explain"),
    "Install and fix": ("fix", "install", "recommend", "matrix"),
    "Containers": ("build", "verify"),
    "Code and clusters": ("lint", "bench", "cluster", "fleet"),
    "Share": ("capture", "report", "mcp"),
}
"""The commands in the order of `tfdoctor --help`. Commands of other distributions follow them."""
UNLISTED_COMMANDS = ("parse", "completion")
"""The commands that `tfdoctor --help` leaves out, because few users need them."""


def list_commands() -> dict[str, str]:
    """Return the first line of the help text of each command, those of extensions last."""
    summaries = {name: extension.summary for name, extension in find_extensions().items()}
    return {**CORE_COMMANDS, **summaries} | CORE_COMMANDS  # no extension replaces a command of the core


def list_groups() -> dict[str, list[tuple[str, str]]]:
    """Return (command, first line of its help text) for each command that is listed, by title of its group."""
    summaries = list_commands()
    groups = {title: [name for name in names if name in summaries] for title, names in HELP_GROUPS.items()}
    grouped_names = {name for names in groups.values() for name in names}
    groups["Other"] = [name for name in summaries if name not in {*grouped_names, *UNLISTED_COMMANDS}]
    return {title: [(name, summaries[name]) for name in names] for title, names in groups.items() if names}


def load_command(name: str) -> Any:
    """Import and return the function of a command. Raise KeyError if there is no such command."""
    if name in CORE_COMMANDS:
        return load_object(f"tfdoctor.cli.{name}:{name}")
    return load_object(find_extensions()[name].command)


def load_subcommands(name: str) -> dict[str, tuple[str, Any]]:
    """Import the functions of a command's subcommands and return (first line of the help text, function) by name.

    The result is empty if the command has none.
    """
    if name in CORE_COMMANDS or name not in find_extensions():
        return {}
    subcommands = find_extensions()[name].subcommands
    return {
        subcommand: (summary, load_object(reference))
        for subcommand, (summary, reference) in subcommands.items()
    }
