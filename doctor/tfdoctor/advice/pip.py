"""Commands that install into one Python, and that look at it again. Pure; every word goes through `quote`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from tfdoctor.advice import user_permissions

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tfdoctor.advice.target import Target

CHECK_AGAIN = "tfdoctor check"


FOUND = ("$", "python3 on", "python on")
"""How `PythonFacts.requested` begins where nobody named the Python."""


def quote(text: str) -> str:
    """Return text as one word of a shell command."""
    return shlex.quote(text)


def pip_install(target: Target, requirements: Iterable[str], *, options: str = "") -> str:
    """Return the command that installs into the examined Python, with the program that this person has (`person`)."""
    return user_permissions.install(target, requirements, options)


def pip_uninstall(target: Target, names: Iterable[str]) -> str:
    """Return the command that removes distributions from the examined Python."""
    return user_permissions.uninstall(target, names)


def venv_with(target: Target, requirements: Iterable[str], python: str = "python3") -> tuple[str, ...]:
    """Return commands that make a fresh virtual environment with these requirements, beside whatever is there."""
    wanted = " ".join(quote(requirement) for requirement in requirements)
    return (
        *user_permissions.new_environment(target, python, "tf-env", wanted),
        "tfdoctor check --python tf-env",
    )


def interpreter(target: Target) -> str:
    """Return the examined Python, to make another environment from."""
    return target.python.executable if target.python is not None else "python3"


def install_commands(target: Target, requirements: Sequence[str]) -> tuple[str, ...]:
    """Return commands that install into this Python, or into a fresh environment where the system manages it."""
    python = target.python
    if python is not None and user_permissions.needs_another(target):
        return venv_with(target, requirements, python.executable)
    return pip_install(target, requirements), check_again(target)


def check_again(target: Target) -> str:
    """Return the command that looks at the same Python once more."""
    python, choice = target.python, target.choice
    if choice is not None and choice.kernel is not None:
        return f"{CHECK_AGAIN} --python {quote(choice.kernel)}"
    if python is None and choice is not None and not choice.how.startswith(FOUND):
        return f"{CHECK_AGAIN} --python {quote(choice.path)}"
    if python is None or python.requested.startswith(FOUND):
        return CHECK_AGAIN
    return f"{CHECK_AGAIN} --python {quote(python.executable)}"
