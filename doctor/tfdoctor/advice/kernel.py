"""What a shell would be told is told to a Jupyter kernel where that starts the Python: its kernel.json. Pure."""

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
_KEEP = re.compile(r"echo .*>> |mkdir -p .*/etc/conda/activate\.d$")
"""What keeps a line for the next shell: Jupyter runs no activation."""


def adapt_to_kernel(target: Target, remedy: Remedy) -> Remedy:
    """Return the remedy where it can have an effect: a kernel's own `env` counts for more than the shell's variables.

    It has no steps then: kernel.json is its owner's to change.
    """
    path = target.choice.kernel if target.choice is not None else None
    if path is None:
        return remedy
    changes, rest = [], []
    for command in remedy.commands:
        change = _change(target, command)
        if change:
            changes.append(change)
        else:
            rest.append(command)
    if not changes:
        return remedy
    rest = [command for command in rest if not _KEEP.match(command)]
    text = f'{remedy.text} In {path}, below "env": {"; ".join(changes)}. Then start the kernel again.'
    return replace(
        remedy,
        text=text,
        commands=tuple(rest) if rest else (check_again(target),),
        steps=() if any(isinstance(step, SHELL_STEPS) for step in remedy.steps) else remedy.steps,
    )


def _change(target: Target, command: str) -> str:
    """Return what a shell's line becomes.

    Empty for one that is none, or takes away what the kernel does not set.
    """
    own = target.choice.kernel_sets if target.choice is not None else ()
    if (match := _RENAME.fullmatch(command)) is not None:
        return f'"{match[1]}" in place of "{match[2]}"' if match[2] in own else ""
    if (match := _UNSET.fullmatch(command)) is not None:
        return f'take "{match[1]}" out' if match[1] in own else ""
    if (match := _EXPORT.fullmatch(command)) is None:
        return ""
    name = match[1]
    before = target.variables.get(name, "")
    said = match[2].replace(f"${{{name}:+:${name}}}", f":{before}" if before else "")
    try:
        words = shlex.split(said)
    except ValueError:
        words = [said]
    return f'"{name}": {json.dumps(words[0] if len(words) == 1 else said, ensure_ascii=False)}'
