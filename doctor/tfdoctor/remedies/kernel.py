"""Adapt remedies to a Python that Jupyter starts: its variables are set in kernel.json, not in a shell."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from tfdoctor.core.causes.steps import VariableStep
from tfdoctor.remedies.pip import format_check_command

if TYPE_CHECKING:
    from tfdoctor.core.findings import Remedy
    from tfdoctor.remedies.target import Target

# The commands of remedies that change variables (see `commands._format_variable_step`).
_RENAME = re.compile(r'export (\w+)="\$(\w+)"; unset \2')
_EXPORT = re.compile(r"export (\w+)=(.*)", re.DOTALL)
_UNSET = re.compile(r"unset (\w+)")
_PERSIST_COMMAND = re.compile(r"echo .*>> |mkdir -p .*/etc/conda/activate\.d$")
"""Commands that set a variable for later shells. They have no effect, because Jupyter runs no activation scripts."""


def adapt_to_kernel(target: Target, remedy: Remedy) -> Remedy:
    """Return the remedy with its variables set in kernel.json, whose `env` overrides the shell's.

    If a step changes shell variables, the result has no steps, because `fix` does not change
    kernel.json. A remedy is returned unchanged if it sets no variables or if there is no kernel.json.
    """
    path = target.choice.kernel if target.choice is not None else None
    if path is None:
        return remedy
    env_changes, other_commands = [], []
    for command in remedy.commands:
        env_change = _describe_change(target, command)
        if env_change:
            env_changes.append(env_change)
        else:
            other_commands.append(command)
    if not env_changes:
        return remedy
    other_commands = [command for command in other_commands if not _PERSIST_COMMAND.match(command)]
    text = f'{remedy.text} In {path}, below "env": {"; ".join(env_changes)}. Then start the kernel again.'
    return replace(
        remedy,
        text=text,
        commands=tuple(other_commands) if other_commands else (format_check_command(target),),
        steps=() if any(isinstance(step, VariableStep) for step in remedy.steps) else remedy.steps,
    )


def _describe_change(target: Target, command: str) -> str:
    """Return a clause about the kernel.json change that replaces a shell command.

    Return "" if the command changes no variable, or removes a variable that kernel.json does not set.
    """
    kernel_variables = target.choice.kernel_sets if target.choice is not None else ()
    if (match := _RENAME.fullmatch(command)) is not None:
        return f'"{match[1]}" in place of "{match[2]}"' if match[2] in kernel_variables else ""
    if (match := _UNSET.fullmatch(command)) is not None:
        return f'take "{match[1]}" out' if match[1] in kernel_variables else ""
    if (match := _EXPORT.fullmatch(command)) is None:
        return ""
    name = match[1]
    current = target.variables.get(name, "")
    value = match[2].replace(f"${{{name}:+:${name}}}", f":{current}" if current else "")
    try:
        arguments = shlex.split(value)
    except ValueError:
        arguments = [value]
    return f'"{name}": {json.dumps(arguments[0] if len(arguments) == 1 else value, ensure_ascii=False)}'
