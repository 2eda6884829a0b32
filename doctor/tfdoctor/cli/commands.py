"""The commands of tfdoctor: those of the core, and those of extensions."""

from __future__ import annotations

from typing import Any

from tfdoctor.cli.extensions import find_extensions, load_object

__all__ = ["CORE_COMMANDS", "list_commands", "load_command"]

CORE_COMMANDS = {
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
    "explain": "What does a finding's code, a cause, or a message mean?",
    "parse": "What does this output of nvidia-smi, nvcc, ldconfig … say?",
    "capture": "Record what `check` looks at, so that others can judge it.",
    "report": "Print redacted Markdown for a bug report.",
    "completion": "Set up shell completion of commands, options and values.",
}
"""The first line of the help text of each command of the core.

The module and the function of such a command have the command's name. The rest of the help text is the function's
docstring without its first line.
"""


def list_commands() -> dict[str, str]:
    """Return the first line of the help text of each command, those of extensions last."""
    summaries = {name: extension.summary for name, extension in find_extensions().items()}
    return {**CORE_COMMANDS, **summaries} | CORE_COMMANDS  # no extension replaces a command of the core


def load_command(name: str) -> Any:
    """Import and return the function of a command. Raise KeyError if there is no such command."""
    if name in CORE_COMMANDS:
        return load_object(f"tfdoctor.cli.{name}:{name}")
    return load_object(find_extensions()[name].command)
