"""What activating an environment does to environment variables: measured by doing it, fixed in its scripts.

A virtual environment has bin/activate (and one for fish and csh), conda runs what lies in etc/conda/activate.d. The
text of a script is changed by pure functions; nothing here writes.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tfdoctor.causes.steps import Export, Prepend, Rename, Unset
from tfdoctor.text import entries_of, lazy_pattern

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdoctor.causes.steps import ShellStep
    from tfdoctor.system import System

__all__ = [
    "BEGIN",
    "END",
    "NOTHING",
    "activate",
    "edit_script",
    "kind_of",
    "list_inherited",
    "new_scripts",
    "scripts_of",
]

BEGIN = "# >>> tfdoctor fix >>>"
END = "# <<< tfdoctor fix <<<"
NOTHING = ": # "
"""What begins a line that was taken out, in any shell."""
MAX_SCRIPT_BYTES = 1 << 20
"""Bytes of a script that are read."""
SECONDS = 10.0
_DUMP = "import json,os,sys; sys.stdout.write(json.dumps({k: v for k, v in os.environ.items()}))"
_SOURCE = 'for script in "$@"; do . "$script"; done >/dev/null 2>&1; exec "$TFDOCTOR_DUMP" -I -S -c "$TFDOCTOR_CODE"'


def kind_of(prefix: str) -> str | None:
    """Return "conda", "venv", or None if nothing is activated."""
    if Path(prefix, "conda-meta").is_dir():
        return "conda"
    return "venv" if Path(prefix, "pyvenv.cfg").is_file() else None


def scripts_of(prefix: str) -> tuple[Path, ...]:
    """Return the scripts that activating runs, those for other shells than sh among them."""
    if kind_of(prefix) == "conda":
        folder = Path(prefix, "etc/conda/activate.d")
        found = [*folder.glob("*.sh"), *folder.glob("*.fish"), *folder.glob("*.csh")]
    else:
        found = [Path(prefix, "bin", name) for name in ("activate", "activate.fish", "activate.csh")]
    return tuple(sorted(path for path in found if path.is_file() and path.stat().st_size <= MAX_SCRIPT_BYTES))


def new_scripts(prefix: str) -> tuple[Path, ...]:
    """Return where lines of our own go: the scripts of a virtual environment, a file of our own for conda."""
    if kind_of(prefix) == "conda":
        return (Path(prefix, "etc/conda/activate.d/tfdoctor.sh"),)
    return tuple(path for path in scripts_of(prefix) if path.parent == Path(prefix, "bin"))


def activate(system: System, prefix: str) -> dict[str, str] | None:
    """Return the environment variables after activation in sh.

    None if nothing is activated, or it cannot be told.
    """
    scripts = [str(path) for path in scripts_of(prefix) if path.suffix not in (".fish", ".csh")]
    shell = system.which("bash") or system.which("sh")
    if not scripts or shell is None:
        return None
    result = system.run(
        [shell, "-c", _SOURCE, "activate", *scripts],
        timeout=SECONDS,
        env={"TFDOCTOR_DUMP": sys.executable, "TFDOCTOR_CODE": _DUMP},
        unset=("BASH_ENV", "ENV"),
        key="activate",
    )
    try:
        found = json.loads(result.stdout) if result.ok else None
    except ValueError:
        return None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        return None
    own = {"TFDOCTOR_DUMP", "TFDOCTOR_CODE", "_", "SHLVL"}
    kept = {name: value for name, value in system.env.items() if name in own or name in ("BASH_ENV", "ENV")}
    return {str(name): value for name, value in found.items() if name not in own} | kept


def list_inherited(system: System, prefix: str) -> frozenset[str]:
    """Return the variables that this process has and that no script of the activation names."""
    texts = [script.read_text("utf-8", "replace") for script in scripts_of(prefix)]
    words = {word for text in texts for word in re.findall(r"\w+", text)}
    return frozenset(system.env) - words


# ---------------------------------------------------------------- changing a script's text


def edit_script(text: str, name: str, steps: Sequence[ShellStep]) -> str:
    """Return a script's text without what the steps speak against: lines that set it become comments, entries go.

    name: the script's file name, whose ending tells the shell. Lines of a block of our own are left alone.
    """
    lines = text.split("\n")
    inside = False
    for index, line in enumerate(lines):
        if line in (BEGIN, END):
            inside = line == BEGIN
        if inside or line.lstrip().startswith("#"):
            continue
        for step in steps:
            lines[index] = _neutralize_line(lines[index], name, step)
    return "\n".join(lines)


# One word of a shell, whole: its quotes end on its line, and no command stands in it or behind it.
_WORD = r"""(?:[^\s;&|<>()`"'\\#]|"(?:[^"`\\$]|\\.|\$(?!\())*"|'[^']*'|\\.|(?<!\s)\#)"""
_ONE_VALUE = lazy_pattern(rf"{_WORD}*(?:\s+\#.*|\s*)")
_VALUES = lazy_pattern(rf"(?:\s+{_WORD}+)*(?:\s+\#.*|\s*)")


def _assignment(name: str, variable: str) -> re.Pattern[str]:
    """Return a line that gives the variable a value, whole."""
    if name.endswith(".fish"):
        return re.compile(rf"\s*set\s+(-\S+\s+)*{re.escape(variable)}(?=\s|$)(?P<value>.*)$")
    if name.endswith(".csh"):
        return re.compile(rf"\s*setenv\s+{re.escape(variable)}(?=\s|$)(?P<value>.*)$")
    return re.compile(rf"\s*(export\s+)?{re.escape(variable)}=(?P<value>.*)$")


def _neutralize_line(line: str, name: str, step: ShellStep) -> str:
    """Return a line that does more than give the variable a value, or goes on in the next one, is left as it is."""
    if isinstance(step, Prepend):
        return line
    variable = step.wrong if isinstance(step, Rename) else step.name
    match = _assignment(name, variable).match(line)
    if match is None:
        return line
    if isinstance(step, Rename):
        return re.sub(rf"\b{re.escape(step.wrong)}\b", step.right, line)
    value = match["value"]
    if not (_VALUES if name.endswith((".fish", ".csh")) else _ONE_VALUE).fullmatch(value):
        return line
    if isinstance(step, (Unset, Export)):
        return _comment_out(line)
    for entry in step.entries:
        value = _drop_entry(value, entry)
    if value == match["value"]:
        return line
    own = rf"\$\{{?{re.escape(variable)}\b(?::?[+-][^}}]*)?\}}?"
    if not re.sub(rf"{own}|[\"':\s]", "", value):
        return _comment_out(line)
    return line[: match.start("value")] + value


def _comment_out(line: str) -> str:
    """Return the line as a comment behind a command that does nothing: it may be all that an `if` has."""
    text = line.lstrip()
    return f"{line[: len(line) - len(text)]}{NOTHING}{text.rstrip()}  # taken out by tfdoctor fix"


def _drop_entry(value: str, entry: str) -> str:
    """Return the value of a search path without one entry, with or without the colon beside it."""
    whole = rf"(?<![^\s\"':=]){re.escape(entry.rstrip('/'))}/?(?![^\s\"':$;])"
    value = re.sub(rf"{whole}:", "", value)
    value = re.sub(rf":{whole}", "", value)
    return re.sub(whole, "", value)


# ---------------------------------------------------------------- lines of our own


def with_block(text: str, name: str, steps: Sequence[ShellStep]) -> str:
    """Return a script's text with a block that does the steps, after what a block before it did."""
    lines = list(_list_own_lines(text))
    for step in steps:
        wanted = list(_lines(name, step))
        if not any(lines[at : at + len(wanted)] == wanted for at in range(len(lines))):
            lines += wanted
    rest = _drop_block(text)
    block = "\n".join([BEGIN, *lines, END])
    return f"{rest.rstrip(chr(10))}\n{block}\n" if rest.strip() else f"{block}\n"


def _list_own_lines(text: str) -> list[str]:
    lines = text.split("\n")
    if BEGIN not in lines or END not in lines:
        return []
    return lines[lines.index(BEGIN) + 1 : lines.index(END)]


def _drop_block(text: str) -> str:
    lines = text.split("\n")
    if BEGIN not in lines or END not in lines:
        return text
    return "\n".join(lines[: lines.index(BEGIN)] + lines[lines.index(END) + 1 :])


def _lines(name: str, step: ShellStep) -> tuple[str, ...]:
    if name.endswith(".fish"):
        return _fish(step)
    return _csh(step) if name.endswith(".csh") else _sh(step)


def _q(text: str) -> str:
    return shlex.quote(text)


def _fish_q(text: str) -> str:
    """Within single quotes fish knows backslashes."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _csh_q(text: str) -> str:
    """csh looks for its history also within single quotes, and a line's end ends them."""
    escaped = text.replace("'", "'\\''").replace("!", "\\!").replace("\n", "\\\n")
    return f"'{escaped}'"


def _spellings(entries: Sequence[str]) -> tuple[str, ...]:
    """Return each with and without a slash at its end."""
    found = (one for entry in entries for one in (entry.rstrip("/") or "/", f"{entry.rstrip('/')}/"))
    return tuple(dict.fromkeys(found))


def _filter(name: str, entries: Sequence[str]) -> str:
    """Return a pipeline that prints a search path without some entries."""
    wanted = " ".join(f"-e {_q(one)}" for one in _spellings(entries))
    # grep ends with 1 where nothing is left, which `set -e -o pipefail` takes for a failure.
    return f"printf '%s\\n' \"${name}\" | tr ':' '\\n' | grep -vxF {wanted} | paste -sd: - || :"


def _sh(step: ShellStep) -> tuple[str, ...]:
    if isinstance(step, Export):
        return (f"export {step.name}={_q(step.value)}",)
    if isinstance(step, Unset):
        return (f"unset {step.name}",)
    if isinstance(step, Rename):
        return (
            f'if [ -n "${{{step.wrong}:-}}" ]; then export {step.right}="${{{step.wrong}}}"; unset {step.wrong}; fi',
        )
    if isinstance(step, Prepend):
        joined = _q(":".join(step.folders))
        return (f'export {step.name}={joined}"${{{step.name}:+:${step.name}}}"',)
    kept = _filter(step.name, step.entries)
    return (
        f'if [ -n "${{{step.name}:-}}" ]; then {step.name}="$({kept})"; fi',
        f'if [ -n "${{{step.name}:-}}" ]; then export {step.name}; else unset {step.name}; fi',
    )


def _fish(step: ShellStep) -> tuple[str, ...]:
    if isinstance(step, Export):
        return (f"set -gx {step.name} {_fish_q(step.value)}",)
    if isinstance(step, Unset):
        return (f"set -e {step.name}",)
    if isinstance(step, Rename):
        return (f"if set -q {step.wrong}; set -gx {step.right} ${step.wrong}; set -e {step.wrong}; end",)
    if isinstance(step, Prepend):
        return (f"set -gx --path {step.name} {' '.join(map(_fish_q, step.folders))} ${step.name}",)
    wrong = " ".join(map(_fish_q, _spellings(step.entries)))
    name = step.name
    return (
        f"if set -q {name}",
        f"set -l tfdoctor_wrong {wrong}",
        "set -l tfdoctor_kept",
        f"for f in (string split : -- (string join : -- ${name}))",
        "contains -- $f $tfdoctor_wrong; or set -a tfdoctor_kept $f",
        "end",
        f"if count $tfdoctor_kept >/dev/null; set -gx --path {name} $tfdoctor_kept; else; set -e {name}; end",
        "end",
    )


def _csh(step: ShellStep) -> tuple[str, ...]:
    """Return `if (…) command` would expand the variable also where it is not set."""
    name = step.wrong if isinstance(step, Rename) else step.name
    if isinstance(step, Export):
        return (f"setenv {name} {_csh_q(step.value)}",)
    if isinstance(step, Unset):
        return (f"unsetenv {name}",)
    if isinstance(step, Rename):
        return (f"if ($?{name}) then", f'setenv {step.right} "${name}"', f"unsetenv {name}", "endif")
    if isinstance(step, Prepend):
        joined = _csh_q(":".join(step.folders))
        return (
            f"if ($?{name}) then",
            f'setenv {name} {joined}":${name}"',
            "else",
            f"setenv {name} {joined}",
            "endif",
        )
    # No pipeline has an entry in it: within "`…`" csh expands also what single quotes hold.
    wrong = " && ".join(f'"x$tfdoctor_one" != {_csh_q(f"x{one}")}' for one in _spellings(step.entries))
    return (
        f"if ($?{name}) then",
        "unset tfdoctor_kept",
        f"foreach tfdoctor_one (\"`printenv {name} | tr ':' '\\n'`\")",
        f"if ({wrong}) then",
        "if ($?tfdoctor_kept) then",
        'set tfdoctor_kept = "${tfdoctor_kept}:$tfdoctor_one"',
        "else",
        'set tfdoctor_kept = "$tfdoctor_one"',
        "endif",
        "endif",
        "end",
        "if ($?tfdoctor_kept) then",
        f'setenv {name} "$tfdoctor_kept"',
        "else",
        f"unsetenv {name}",
        "endif",
        "endif",
    )


def needs_block(steps: Sequence[ShellStep], env: Mapping[str, str]) -> tuple[ShellStep, ...]:
    """Return the steps that the variables, as activation leaves them, do not satisfy yet."""
    return tuple(step for step in steps if not _is_satisfied(step, env))


def _is_satisfied(step: ShellStep, env: Mapping[str, str]) -> bool:
    if isinstance(step, Export):
        return env.get(step.name) == step.value
    if isinstance(step, Unset):
        return step.name not in env
    if isinstance(step, Rename):
        return step.wrong not in env
    entries = {entry.rstrip("/") for entry in entries_of(step.name, env.get(step.name, ""))}
    if isinstance(step, Prepend):
        return all(folder.rstrip("/") in entries for folder in step.folders)
    return not entries & {entry.rstrip("/") for entry in step.entries}
