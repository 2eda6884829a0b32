"""The steps that change environment variables, and the lines of sh, fish and csh that do the same."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from tfdoctor.core.records import dataclass
from tfdoctor.core.text import split_path_list

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "PrependEntries",
    "RemoveEntries",
    "RenameVariable",
    "SetVariable",
    "UnsetVariable",
    "VariableStep",
]


class VariableStep:
    """A step that changes environment variables when the environment is activated."""

    __slots__ = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the variables that it changes."""
        raise NotImplementedError

    @property
    def values(self) -> tuple[str, ...]:
        """The values that a script with the step contains."""
        return ()

    def apply(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the variables after the step."""
        raise NotImplementedError

    def is_satisfied(self, env: Mapping[str, str]) -> bool:
        """Return whether the variables are already as the step requires."""
        return self.apply(env) == dict(env)

    def format_command(self, env: Mapping[str, str]) -> str:  # noqa: ARG002
        """Return the command for a shell with these variables."""
        (line,) = self.format_for_sh()
        return line

    def edit_line(self, line: str, start: int) -> str | None:  # noqa: ARG002
        """Return a script's line that sets the variable, without what the step removes; None to take it out.

        `start` is the position of the value in the line.
        """
        return None

    def format_for_sh(self) -> tuple[str, ...]:
        """Return the lines for sh, which bash and zsh also run."""
        raise NotImplementedError

    def format_for_fish(self) -> tuple[str, ...]:
        """Return the lines for fish."""
        raise NotImplementedError

    def format_for_csh(self) -> tuple[str, ...]:
        """Return the lines for csh.

        Each `if` is a block: `if ($?x) command` on one line would expand the variable even if it is not set.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class SetVariable(VariableStep):
    """Set an environment variable when the environment is activated."""

    name: str
    value: str

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def values(self) -> tuple[str, ...]:
        return (self.value,)

    def apply(self, env: Mapping[str, str]) -> dict[str, str]:
        return {**env, self.name: self.value}

    def format_for_sh(self) -> tuple[str, ...]:
        return (f"export {self.name}={shlex.quote(self.value)}",)

    def format_for_fish(self) -> tuple[str, ...]:
        return (f"set -gx {self.name} {_quote_for_fish(self.value)}",)

    def format_for_csh(self) -> tuple[str, ...]:
        return (f"setenv {self.name} {_quote_for_csh(self.value)}",)


@dataclass(frozen=True, slots=True)
class UnsetVariable(VariableStep):
    """Unset an environment variable when the environment is activated."""

    name: str

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    def apply(self, env: Mapping[str, str]) -> dict[str, str]:
        return {name: value for name, value in env.items() if name != self.name}

    def format_for_sh(self) -> tuple[str, ...]:
        return (f"unset {self.name}",)

    def format_for_fish(self) -> tuple[str, ...]:
        return (f"set -e {self.name}",)

    def format_for_csh(self) -> tuple[str, ...]:
        return (f"unsetenv {self.name}",)


@dataclass(frozen=True, slots=True)
class RenameVariable(VariableStep):
    """Move the value of a misspelt environment variable to the right one when the environment is activated."""

    wrong_name: str
    right_name: str

    @property
    def names(self) -> tuple[str, ...]:
        return self.wrong_name, self.right_name

    def apply(self, env: Mapping[str, str]) -> dict[str, str]:
        if self.wrong_name not in env:
            return dict(env)
        kept = {name: value for name, value in env.items() if name != self.wrong_name}
        return {**kept, self.right_name: env[self.wrong_name]}

    def format_command(self, env: Mapping[str, str]) -> str:  # noqa: ARG002
        return f'export {self.right_name}="${self.wrong_name}"; unset {self.wrong_name}'

    def edit_line(self, line: str, start: int) -> str:  # noqa: ARG002
        return re.sub(rf"\b{re.escape(self.wrong_name)}\b", self.right_name, line)

    def format_for_sh(self) -> tuple[str, ...]:
        return (
            (
                f'if [ -n "${{{self.wrong_name}:-}}" ]; then export {self.right_name}="${{{self.wrong_name}}}"; '
                f"unset {self.wrong_name}; fi"
            ),
        )

    def format_for_fish(self) -> tuple[str, ...]:
        wrong, right = self.wrong_name, self.right_name
        return (f"if set -q {wrong}; set -gx {right} ${wrong}; set -e {wrong}; end",)

    def format_for_csh(self) -> tuple[str, ...]:
        wrong, right = self.wrong_name, self.right_name
        return (f"if ($?{wrong}) then", f'setenv {right} "${wrong}"', f"unsetenv {wrong}", "endif")


@dataclass(frozen=True, slots=True)
class PrependEntries(VariableStep):
    """Put folders first on a search path when the environment is activated."""

    name: str
    folders: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def values(self) -> tuple[str, ...]:
        return self.folders

    def apply(self, env: Mapping[str, str]) -> dict[str, str]:
        entries = split_path_list(self.name, env.get(self.name, ""))
        if {folder.rstrip("/") for folder in self.folders} <= {entry.rstrip("/") for entry in entries}:
            return dict(env)
        return {**env, self.name: ":".join((*self.folders, *entries))}

    def edit_line(self, line: str, start: int) -> str:  # noqa: ARG002
        return line

    def format_for_sh(self) -> tuple[str, ...]:
        joined = shlex.quote(":".join(self.folders))
        return (f'export {self.name}={joined}"${{{self.name}:+:${self.name}}}"',)

    def format_for_fish(self) -> tuple[str, ...]:
        return (f"set -gx --path {self.name} {' '.join(map(_quote_for_fish, self.folders))} ${self.name}",)

    def format_for_csh(self) -> tuple[str, ...]:
        name, joined = self.name, _quote_for_csh(":".join(self.folders))
        return (
            f"if ($?{name}) then",
            f'setenv {name} {joined}":${name}"',
            "else",
            f"setenv {name} {joined}",
            "endif",
        )


@dataclass(frozen=True, slots=True)
class RemoveEntries(VariableStep):
    """Remove entries from a search path when the environment is activated.

    An empty entry means the working folder, as "." does: with one of them the other is removed as well.
    """

    name: str
    entries: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def values(self) -> tuple[str, ...]:
        return self.entries

    def list_remaining(self, env: Mapping[str, str]) -> tuple[str, ...]:
        """Return the entries of the variable that remain after the step."""
        unwanted = {entry.rstrip("/") for entry in self.entries}
        entries = split_path_list(self.name, env.get(self.name, ""))
        return tuple(entry for entry in entries if entry.rstrip("/") not in unwanted)

    def apply(self, env: Mapping[str, str]) -> dict[str, str]:
        value = env.get(self.name, "")
        has_empty_entry = "" in value.replace(";", ":").split(":") and "" in self._list_spellings()
        remaining = self.list_remaining(env)
        if len(remaining) == len(split_path_list(self.name, value)) and not has_empty_entry:
            return dict(env)
        others = {name: text for name, text in env.items() if name != self.name}
        return {**others, self.name: ":".join(remaining)} if remaining else others

    def is_satisfied(self, env: Mapping[str, str]) -> bool:
        return not env.get(self.name) or self.apply(env) == dict(env)

    def format_command(self, env: Mapping[str, str]) -> str:
        remaining = self.list_remaining(env)
        return f"export {self.name}={shlex.quote(':'.join(remaining))}" if remaining else f"unset {self.name}"

    def edit_line(self, line: str, start: int) -> str | None:
        value = line[start:]
        for entry in filter(None, (entry.rstrip("/") for entry in self.entries)):
            # The entry must not be part of a longer path. `${NAME:+:$NAME}` may follow it directly.
            pattern = rf"(?<![^\s\"':=]){re.escape(entry)}/?(?![^\s\"':$;])"
            for separated_pattern in (f"{pattern}:", f":{pattern}", pattern):
                value = re.sub(separated_pattern, "", value)
        if value == line[start:]:
            return line
        # If only `$NAME` or `${NAME:+:$NAME}` remains, the line sets nothing any more.
        variable_reference = rf"\$\{{?{re.escape(self.name)}\b(?::?[+-][^}}]*)?\}}?"
        is_empty = not re.sub(rf"{variable_reference}|[\"':\s]", "", value)
        return None if is_empty else line[:start] + value

    def _list_spellings(self) -> tuple[str, ...]:
        """Return the spellings of each entry: without and with a trailing slash, and "" for the working folder."""
        spellings = dict.fromkeys(
            spelling
            for entry in self.entries
            for spelling in (
                entry.rstrip("/") or ("/" if entry else ""),
                f"{entry.rstrip('/')}/" if entry else ".",
            )
        )
        return (*spellings, *(("",) if "." in spellings and "" not in spellings else ()))

    def format_for_sh(self) -> tuple[str, ...]:
        patterns = " ".join(f"-e {shlex.quote(spelling)}" for spelling in self._list_spellings())
        # grep exits with 1 if no line is left, which `set -e -o pipefail` treats as a failure
        pipeline = (
            f"printf '%s\\n' \"${self.name}\" | tr ':' '\\n' | grep -vxF {patterns} | paste -sd: - || :"
        )
        return (
            f'if [ -n "${{{self.name}:-}}" ]; then {self.name}="$({pipeline})"; fi',
            f'if [ -n "${{{self.name}:-}}" ]; then export {self.name}; else unset {self.name}; fi',
        )

    def format_for_fish(self) -> tuple[str, ...]:
        wrong_entries = " ".join(map(_quote_for_fish, self._list_spellings()))
        name = self.name
        return (
            f"if set -q {name}",
            f"set -l tfdoctor_wrong {wrong_entries}",
            "set -l tfdoctor_kept",
            f"for f in (string split : -- (string join : -- ${name}))",
            "contains -- $f $tfdoctor_wrong; or set -a tfdoctor_kept $f",
            "end",
            f"if count $tfdoctor_kept >/dev/null; set -gx --path {name} $tfdoctor_kept; else; set -e {name}; end",
            "end",
        )

    def format_for_csh(self) -> tuple[str, ...]:
        name = self.name
        # The entries are not part of a pipeline: within "`…`" csh expands even single-quoted text.
        condition = " && ".join(
            f'"x$tfdoctor_one" != {_quote_for_csh(f"x{entry}")}' for entry in self._list_spellings()
        )
        return (
            f"if ($?{name}) then",
            "unset tfdoctor_kept",
            f"foreach tfdoctor_one (\"`printenv {name} | tr ':' '\\n'`\")",
            f"if ({condition}) then",
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


def _quote_for_fish(text: str) -> str:
    """Quote a word for fish, which interprets backslashes within single quotes."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _quote_for_csh(text: str) -> str:
    """Quote a word for csh, which expands `!` and forbids plain line breaks within single quotes."""
    escaped = text.replace("'", "'\\''").replace("!", "\\!").replace("\n", "\\\n")
    return f"'{escaped}'"
