"""Commands that install packages into one Python and check it again; all arguments are quoted."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from tfdoctor.remedies import user_permissions

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tfdoctor.remedies.target import Target

CHECK_COMMAND = "tfdoctor check"
DEFAULT_CHOICE_PREFIXES = ("$", "python3 on", "python on")
"""Prefixes of `PythonFacts.requested` and `PythonChoice.how` which mean that the user named no Python."""


def quote(text: str) -> str:
    """Quote text as one argument of a shell command."""
    return shlex.quote(text)


def format_pip_install(target: Target, requirements: Iterable[str], *, options: str = "") -> str:
    """Return the command that installs requirements into the examined Python, with pip or uv."""
    return user_permissions.format_install_command(target, requirements, options)


def format_pip_uninstall(target: Target, names: Iterable[str]) -> str:
    """Return the command that removes distributions from the examined Python."""
    return user_permissions.format_uninstall_command(target, names)


def make_venv_commands(
    target: Target, requirements: Iterable[str], python: str = "python3"
) -> tuple[str, ...]:
    """Return the commands that create a new virtual environment with these requirements, and check it."""
    arguments = " ".join(quote(requirement) for requirement in requirements)
    return (
        *user_permissions.make_environment_commands(target, python, "tf-env", arguments),
        "tfdoctor check --python tf-env",
    )


def get_interpreter(target: Target) -> str:
    """Return the path of the examined Python, or "python3" if it is not known."""
    return target.python.executable if target.python is not None else "python3"


def make_install_commands(target: Target, requirements: Sequence[str]) -> tuple[str, ...]:
    """Return the commands that install requirements into the examined Python and check it.

    If the system or another user owns that Python, the commands create a new environment instead.
    """
    python = target.python
    if python is not None and user_permissions.needs_new_environment(target):
        return make_venv_commands(target, requirements, python.executable)
    return format_pip_install(target, requirements), format_check_command(target)


def format_check_command(target: Target) -> str:
    """Return the command that checks the same Python again."""
    python, choice = target.python, target.choice
    if choice is not None and choice.kernel is not None:
        return f"{CHECK_COMMAND} --python {quote(choice.kernel)}"
    if python is None and choice is not None and not choice.how.startswith(DEFAULT_CHOICE_PREFIXES):
        return f"{CHECK_COMMAND} --python {quote(choice.path)}"
    if python is None or python.requested.startswith(DEFAULT_CHOICE_PREFIXES):
        return CHECK_COMMAND
    return f"{CHECK_COMMAND} --python {quote(python.executable)}"
