"""Find the variables that an environment's activation sets, and edit the text of its activate scripts.

A virtual environment has bin/activate, and variants of it for fish and csh. conda runs the scripts in
etc/conda/activate.d. This module only returns changed texts; environments/actions.py writes them to the files.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tfdoctor.core.causes.steps import RenameVariable
from tfdoctor.core.text import make_lazy_pattern

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.core.causes.steps import VariableStep
    from tfdoctor.system import System

__all__ = [
    "BLOCK_BEGIN",
    "BLOCK_END",
    "NO_OP_PREFIX",
    "detect_activation_kind",
    "edit_script",
    "list_activate_scripts",
    "list_editable_scripts",
    "list_inherited_variables",
    "read_activated_variables",
]

BLOCK_BEGIN = "# >>> tfdoctor fix >>>"
"""The first line of the block that tfdoctor adds to a script."""
BLOCK_END = "# <<< tfdoctor fix <<<"
"""The last line of that block."""
NO_OP_PREFIX = ": # "
"""The start of a line that was commented out, valid in every shell."""
MAX_SCRIPT_BYTES = 1 << 20
"""The largest size of a script that is read, in bytes."""
ACTIVATION_TIMEOUT_S = 10.0
"""The time limit in seconds for the activate scripts."""
_DUMP_CODE = "import json,os,sys; sys.stdout.write(json.dumps({k: v for k, v in os.environ.items()}))"
# Source the scripts, discard their output, and print the variables as JSON with tfdoctor's own Python.
_SOURCE_COMMAND = 'for script in "$@"; do . "$script"; done >/dev/null 2>&1; exec "$TFDOCTOR_DUMP" -I -S -c "$TFDOCTOR_CODE"'
# Part of a shell word. Quotes must end on the same line, and `;`, `|`, `$(…)` and the like are excluded: a line with a
# second command does more than set the variable, so it must not be edited.
_WORD_PART = r"""(?:[^\s;&|<>()`"'\\#]|"(?:[^"`\\$]|\\.|\$(?!\())*"|'[^']*'|\\.|(?<!\s)\#)"""
# The value of an assignment in sh, and the values in fish and csh, each with an optional comment.
_ONE_VALUE = make_lazy_pattern(rf"{_WORD_PART}*(?:\s+\#.*|\s*)")
_MANY_VALUES = make_lazy_pattern(rf"(?:\s+{_WORD_PART}+)*(?:\s+\#.*|\s*)")


def detect_activation_kind(prefix: str) -> str | None:
    """Return the kind of an environment: "conda", "venv", or None if it cannot be activated."""
    if Path(prefix, "conda-meta").is_dir():
        return "conda"
    return "venv" if Path(prefix, "pyvenv.cfg").is_file() else None


def list_activate_scripts(prefix: str) -> tuple[Path, ...]:
    """Return the activate scripts for sh, fish and csh, except those that are too large."""
    if detect_activation_kind(prefix) == "conda":
        folder = Path(prefix, "etc/conda/activate.d")
        paths = [*folder.glob("*.sh"), *folder.glob("*.fish"), *folder.glob("*.csh")]
    else:
        paths = [Path(prefix, "bin", name) for name in ("activate", "activate.fish", "activate.csh")]
    return tuple(sorted(path for path in paths if path.is_file() and path.stat().st_size <= MAX_SCRIPT_BYTES))


def list_editable_scripts(prefix: str) -> tuple[Path, ...]:
    """Return the scripts to which tfdoctor adds lines.

    In a virtual environment these are the activate scripts. In a conda environment there is one separate file, which may
    not exist yet.
    """
    if detect_activation_kind(prefix) == "conda":
        return (Path(prefix, "etc/conda/activate.d/tfdoctor.sh"),)
    return tuple(path for path in list_activate_scripts(prefix) if path.parent == Path(prefix, "bin"))


def read_activated_variables(system: System, prefix: str) -> dict[str, str] | None:
    """Run the activate scripts in a shell, and return the environment variables after that.

    Return None if there is no script or no shell, or if a script fails.
    """
    scripts = [str(path) for path in list_activate_scripts(prefix) if path.suffix not in (".fish", ".csh")]
    shell = system.which("bash") or system.which("sh")
    if not scripts or shell is None:
        return None
    result = system.run(
        [shell, "-c", _SOURCE_COMMAND, "activate", *scripts],
        timeout=ACTIVATION_TIMEOUT_S,
        env={"TFDOCTOR_DUMP": sys.executable, "TFDOCTOR_CODE": _DUMP_CODE},
        unset=("BASH_ENV", "ENV"),
        key="activate",
    )
    try:
        variables = json.loads(result.stdout) if result.ok else None
    except ValueError:
        return None
    if not isinstance(variables, dict) or not all(isinstance(value, str) for value in variables.values()):
        return None
    # Undo what running the scripts in a child shell has changed: its own variables, and those that were unset.
    temporary_names = {"TFDOCTOR_DUMP", "TFDOCTOR_CODE", "_", "SHLVL"}
    restored_variables = {
        name: value
        for name, value in system.env.items()
        if name in temporary_names or name in ("BASH_ENV", "ENV")
    }
    # The shell was started without the entries that name the working folder.
    if "LD_LIBRARY_PATH" in list_inherited_variables(system, prefix):
        restored_variables["LD_LIBRARY_PATH"] = system.env["LD_LIBRARY_PATH"]
    return {
        str(name): value for name, value in variables.items() if name not in temporary_names
    } | restored_variables


def list_inherited_variables(system: System, prefix: str) -> frozenset[str]:
    """Return the names of this process's variables that no activate script mentions."""
    texts = [script.read_text("utf-8", "replace") for script in list_activate_scripts(prefix)]
    names = {name for text in texts for name in re.findall(r"\w+", text)}
    return frozenset(system.env) - names


# ---------------------------------------------------------------- editing a script


def edit_script(text: str, script_name: str, steps: Sequence[VariableStep]) -> str:
    """Return the text of a script with the steps applied to its lines.

    Lines that set a variable to be removed become comments, and unwanted list entries are removed. `script_name` is the file
    name of the script; its suffix identifies the shell. Lines in tfdoctor's own block are not changed.
    """
    lines = text.split("\n")
    in_block = False
    for index, line in enumerate(lines):
        if line in (BLOCK_BEGIN, BLOCK_END):
            in_block = line == BLOCK_BEGIN
        if in_block or line.lstrip().startswith("#"):
            continue
        for step in steps:
            lines[index] = _neutralize_line(lines[index], script_name, step)
    return "\n".join(lines)


def _compile_assignment(script_name: str, variable: str) -> re.Pattern[str]:
    """Return the pattern of a line that sets the variable in the shell of the script."""
    if script_name.endswith(".fish"):
        return re.compile(rf"\s*set\s+(-\S+\s+)*{re.escape(variable)}(?=\s|$)(?P<value>.*)$")
    if script_name.endswith(".csh"):
        return re.compile(rf"\s*setenv\s+{re.escape(variable)}(?=\s|$)(?P<value>.*)$")
    return re.compile(rf"\s*(export\s+)?{re.escape(variable)}=(?P<value>.*)$")


def _neutralize_line(line: str, script_name: str, step: VariableStep) -> str:
    """Return a line with a step applied.

    The line is returned unchanged if it does more than set the variable, or if it continues on the next line.
    """
    value_patterns = _MANY_VALUES if script_name.endswith((".fish", ".csh")) else _ONE_VALUE
    match = _compile_assignment(script_name, step.names[0]).match(line)
    if match is None or not (isinstance(step, RenameVariable) or value_patterns.fullmatch(match["value"])):
        return line
    new_line = step.edit_line(line, match.start("value"))
    return _comment_out(line) if new_line is None else new_line


def _comment_out(line: str) -> str:
    """Return the line as a comment after a command that does nothing.

    A plain comment would make the script invalid if the line is the only one in an `if`.
    """
    text = line.lstrip()
    return f"{line[: len(line) - len(text)]}{NO_OP_PREFIX}{text.rstrip()}  # taken out by tfdoctor fix"


# ---------------------------------------------------------------- added lines


def update_block(text: str, script_name: str, steps: Sequence[VariableStep]) -> str:
    """Return the text of a script with tfdoctor's block at its end, which contains the lines for the steps.

    The lines of an existing block are kept, and no line is added twice.
    """
    other_text, lines = _split_block(text)
    for step in steps:
        new_lines = list(_format_lines(script_name, step))
        # A step may have several lines, which must follow each other.
        if not any(lines[index : index + len(new_lines)] == new_lines for index in range(len(lines))):
            lines += new_lines
    block = "\n".join([BLOCK_BEGIN, *lines, BLOCK_END])
    return f"{other_text.rstrip(chr(10))}\n{block}\n" if other_text.strip() else f"{block}\n"


def _split_block(text: str) -> tuple[str, list[str]]:
    """Return (the text of a script without tfdoctor's block, the lines in the block)."""
    lines = text.split("\n")
    if BLOCK_BEGIN not in lines or BLOCK_END not in lines:
        return text, []
    begin, end = lines.index(BLOCK_BEGIN), lines.index(BLOCK_END)
    return "\n".join(lines[:begin] + lines[end + 1 :]), lines[begin + 1 : end]


def _format_lines(script_name: str, step: VariableStep) -> tuple[str, ...]:
    """Return the lines that apply a step in the shell of the script."""
    if script_name.endswith(".fish"):
        return step.format_for_fish()
    return step.format_for_csh() if script_name.endswith(".csh") else step.format_for_sh()
