"""Remedies for a Python that a Jupyter kernel starts: variables are set in kernel.json, not in a shell. Pure."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from tfdoctor.advice.pip import check_again
from tfdoctor.causes.steps import SHELL_STEPS

if TYPE_CHECKING:
    from tfdoctor.advice.target import Target
    from tfdoctor.findings import Remedy

_RENAME = re.compile(r'export (\w+)="\$(\w+)"; unset \2')
_EXPORT = re.compile(r"export (\w+)=(.*)", re.DOTALL)
_UNSET = re.compile(r"unset (\w+)")
_PERSISTENT_LINE = re.compile(r"echo .*>> |mkdir -p .*/etc/conda/activate\.d$")
"""Commands that keep a line for later shells; Jupyter does not run activation scripts."""


def adapt_to_kernel(target: Target, remedy: Remedy) -> Remedy:
    """Return the remedy with variables set in kernel.json, whose `env` overrides the shell's variables.

    It has no steps if one of them changes variables of the shell, since `fix` does not change kernel.json.
    """
    path = target.choice.kernel if target.choice is not None else None
    if path is None:
        return remedy
    changes, rest = [], []
    for command in remedy.commands:
        change = _describe_change(target, command)
        if change:
            changes.append(change)
        else:
            rest.append(command)
    if not changes:
        return remedy
    rest = [command for command in rest if not _PERSISTENT_LINE.match(command)]
    text = f'{remedy.text} In {path}, below "env": {"; ".join(changes)}. Then start the kernel again.'
    return replace(
        remedy,
        text=text,
        commands=tuple(rest) if rest else (check_again(target),),
        steps=() if any(isinstance(step, SHELL_STEPS) for step in remedy.steps) else remedy.steps,
    )


def _describe_change(target: Target, command: str) -> str:
    """Describe the change of kernel.json that replaces a shell command.

    Empty if the command sets no variable, or removes one that the kernel does not set.
    """
    kernel_sets = target.choice.kernel_sets if target.choice is not None else ()
    if (match := _RENAME.fullmatch(command)) is not None:
        return f'"{match[1]}" in place of "{match[2]}"' if match[2] in kernel_sets else ""
    if (match := _UNSET.fullmatch(command)) is not None:
        return f'take "{match[1]}" out' if match[1] in kernel_sets else ""
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
