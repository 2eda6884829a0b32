"""Parse the simple commands of a RUN instruction, and expand variables whose values are known.

Conditions and loops are read as if every command ran, and the output of commands is unknown. `Word.is_known` is False
if a part of the word is unknown. The time is linear in the length of the text.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["Command", "ExpandedText", "Redirect", "Word", "expand_variables", "parse_commands"]

MAX_VALUE_CHARS = 4096
"""The largest length of an expanded value. A longer value is unknown."""
MAX_SHELL_DEPTH = 3
"""The largest depth of nested `sh -c` commands that are read."""
MAX_COMMANDS = 20_000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\+?=")
_PLAIN_CHARS = re.compile(r"[^ \t\n;|&()<>'\"\\$`]+")
_QUOTED_CHARS = re.compile(r'[^"\\]*')
_HARMLESS_ALTERNATIVE = re.compile(r"\|\|\s{0,20}(?:true\b|:|echo\b|printf\b|exit 0\b)")
"""What follows a command whose failure has no effect."""
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ash"})
_PREFIX_WORDS = frozenset(
    {
        "sudo",
        "env",
        "exec",
        "time",
        "nice",
        "command",
        "then",
        "do",
        "else",
        "!",
        "if",
        "elif",
        "while",
        "until",
        "{",
    }
)
"""Words that may precede a command without changing what it does to the image."""


@dataclass(frozen=True, slots=True)
class ExpandedText:
    """A text with its variables expanded."""

    text: str
    is_known: bool
    """Whether the whole text is known."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command."""

    text: str
    is_known: bool
    """Whether the whole word is known."""
    line: int


@dataclass(frozen=True, slots=True)
class Redirect:
    """A redirection such as `>FILE`."""

    operator: str
    target: str
    word_count: int
    """The number of words of the command before the redirection."""
    is_attached: bool
    """Whether there is no space between the previous word and it, as in `tensorflow>=2.4`."""


@dataclass(frozen=True, slots=True)
class Command:
    """A simple command: a program with its arguments and redirections."""

    words: tuple[Word, ...]
    """The program and its arguments, without quotes."""
    redirects: tuple[Redirect, ...] = ()
    is_piped: bool = False
    """Whether the command reads the output of the previous one."""
    ignores_failure: bool = False
    """Whether nothing happens if the command fails, as in `COMMAND || true`."""

    @property
    def name(self) -> str:
        """The program without its folder, such as `pip3`."""
        return self.words[0].text.rpartition("/")[2] if self.words else ""

    @property
    def text(self) -> str:
        return " ".join(word.text for word in self.words)

    @property
    def line(self) -> int:
        return self.words[0].line if self.words else 0


def expand_variables(
    text: str, variables: Mapping[str, str | None], *, default: str | None = None, depth: int = 0
) -> ExpandedText:
    """Expand `$A`, `${A}`, `${A:-x}`, `${A:+x}`, `${A/x/y}`, `${A%x}` and similar forms, but keep quotes.

    A variable whose value in `variables` is None is unknown. A name that is not in `variables` has the value `default`,
    or is unknown if that is None. `depth` counts nested expressions.
    """
    parts: list[str] = []
    is_known = True
    position = size = 0
    while position < len(text):
        dollar = text.find("$", position)
        if dollar < 0 or size > MAX_VALUE_CHARS:
            parts.append(text[position:])
            break
        parts.append(text[position:dollar])
        value, position = _parse_variable(text, dollar, variables, default, depth)
        if value is None:
            is_known = False
        else:
            parts.append(value)
            size += len(value)
    result = "".join(parts)
    if len(result) > MAX_VALUE_CHARS and size:
        return ExpandedText(result[:MAX_VALUE_CHARS], False)
    return ExpandedText(result, is_known)


def _parse_variable(
    text: str, dollar: int, variables: Mapping[str, str | None], default: str | None, depth: int
) -> tuple[str | None, int]:
    """Return the value of the expression whose `$` is at index `dollar`, and the index after it.

    The value is None if it is unknown.
    """
    if text.startswith("${", dollar):
        end = _find_closing(text, dollar + 2, "{", "}")
        if end < 0:
            return text[dollar:], len(text)
        return _expand_braced(text[dollar + 2 : end], variables, default, depth), end + 1
    if text.startswith("$(", dollar):
        end = _find_closing(text, dollar + 2, "(", ")")
        return None, (end + 1 if end >= 0 else len(text))
    match = _NAME.match(text, dollar + 1)
    if match is None:
        return "$", dollar + 1
    return variables.get(match[0], default), match.end()


def _find_closing(text: str, start: int, opening: str, closing: str) -> int:
    """Return the index of the closing bracket, or -1 if there is none within MAX_VALUE_CHARS."""
    depth = 1
    # No real expression is longer. Without the limit, hostile text could take quadratic time.
    for index in range(start, min(len(text), start + MAX_VALUE_CHARS)):
        if text[index] == opening:
            depth += 1
        elif text[index] == closing:
            depth -= 1
            if depth == 0:
                return index
    return -1


def _expand_braced(
    expression: str, variables: Mapping[str, str | None], default: str | None, depth: int
) -> str | None:
    """Return the value of `${expression}`, or None if it is unknown or nested too deeply."""
    match = _NAME.match(expression)
    if match is None or depth > 4:
        return None
    name, operation = match[0], expression[match.end() :]
    is_declared = name in variables
    value = variables.get(name, default)
    if not operation:
        return value

    def expand_alternative(text: str) -> str | None:
        """Return the text after the operator with its variables expanded; None if it is not known."""
        expanded = expand_variables(text, variables, default=default, depth=depth + 1)
        return expanded.text if expanded.is_known else None

    # These forms exist for unset variables, so an undeclared variable counts as unset and not as unknown.
    if operation.startswith((":-", "-")):
        if is_declared and value is None:
            return None
        return value if value else expand_alternative(operation.removeprefix(":")[1:])
    if operation.startswith((":+", "+")):
        if is_declared and value is None:
            return None
        return expand_alternative(operation.removeprefix(":")[1:]) if value else ""
    if value is None:
        return None
    if operation.startswith("/"):
        replaces_all = operation.startswith("//")
        pattern, _, replacement = operation.lstrip("/").partition("/")
        is_literal = not set(pattern) & set("*?[\\")
        return (
            value.replace(pattern, replacement, -1 if replaces_all else 1) if pattern and is_literal else None
        )
    if operation.startswith((":?", "?")):
        return value
    return _trim_pattern(value, operation)


def _trim_pattern(value: str, operation: str) -> str | None:
    """Return the value of an expression such as `${A%.*}` or `${A#v}`, which often shorten versions.

    `operation` is the part after the name. Return None if its pattern is not supported.
    """
    if operation.startswith("%"):
        pattern = operation.lstrip("%")
        if pattern == ".*":
            return (
                value.partition(".")[0] if operation.startswith("%%") else value.rpartition(".")[0] or value
            )
        return value.removesuffix(pattern) if not set(pattern) & set("*?[") else None
    if operation.startswith("#"):
        pattern = operation.lstrip("#")
        return value.removeprefix(pattern) if not set(pattern) & set("*?[") else None
    return None


# ---------------------------------------------------------------- commands


@dataclass(slots=True)
class _CommandBuilder:
    """A command while its words are read."""

    words: list[Word]
    redirects: list[Redirect]
    is_piped: bool = False
    ignores_failure: bool = False


def parse_commands(
    text: str,
    line_at: Callable[[int], int],
    variables: dict[str, str | None],
    *,
    exec_form: bool = False,
    depth: int = 0,
) -> Iterator[Command]:
    """Yield the simple commands of a RUN instruction, in order.

    Assignments (`A=1`, `export A=1`) change `variables`. `line_at` returns the line of a character index. With
    `exec_form`, the text may be a JSON list. `depth` counts nested `sh -c` commands.
    """
    if exec_form and (words := _parse_exec_form(text, line_at)):
        yield from _unwrap_command(_CommandBuilder(words, []), variables, depth)
        return
    for number, builder in enumerate(_split_commands(text, line_at, variables)):
        if number >= MAX_COMMANDS:
            return
        yield from _unwrap_command(builder, variables, depth)


def _parse_exec_form(text: str, line_at: Callable[[int], int]) -> list[Word]:
    """Return the words of the exec form `["pip", "install", …]`, or an empty list for any other text.

    No shell expands variables in this form.
    """
    if not text.lstrip().startswith("["):
        return []
    try:
        value = json.loads(text.strip())
    except (ValueError, RecursionError):
        return []
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        return []
    return [Word(word, True, line_at(0)) for word in value]


def _unwrap_command(
    builder: _CommandBuilder, variables: dict[str, str | None], depth: int
) -> Iterator[Command]:
    """Yield the command without words such as `sudo` and `A=1` before it, or the commands of `sh -c`."""
    words, removed_count = list(builder.words), 0
    is_export = bool(words) and words[0].text in ("export", "declare", "readonly", "local", "ARG", "ENV")
    if is_export:
        words.pop(0)
        removed_count += 1
    while words:
        match = _ASSIGNMENT.match(words[0].text)
        if match is not None:
            if is_export or len(words) == 1:  # the assignment in `A=1 command` applies to that command only
                variables[match[1]] = words[0].text[match.end() :] if words[0].is_known else None
        elif is_export or words[0].text in _PREFIX_WORDS:
            pass
        elif removed_count and words[0].text.startswith("-"):
            pass  # an option of a preceding word, as in sudo -H and env -i
        else:
            break
        words.pop(0)
        removed_count += 1
    if not words:
        return
    name = words[0].text.rpartition("/")[2]
    if name in _SHELLS and depth < MAX_SHELL_DEPTH and (script := _find_script(words)) is not None:
        yield from parse_commands(script.text, lambda _: script.line, variables, depth=depth + 1)
        return
    redirects = tuple(
        Redirect(
            redirect.operator,
            redirect.target,
            max(redirect.word_count - removed_count, 0),
            redirect.is_attached,
        )
        for redirect in builder.redirects
    )
    yield Command(tuple(words), redirects, builder.is_piped, builder.ignores_failure)


def _find_script(words: list[Word]) -> Word | None:
    """Return the script of a command such as `bash -exc '…'`, or None if it has no `-c`."""
    for index, word in enumerate(words[1:], 1):
        if not word.text.startswith("-"):
            return None
        if "c" in word.text.lstrip("-") and not word.text.startswith("--") and index + 1 < len(words):
            return words[index + 1]
    return None


def _split_commands(
    text: str, line_at: Callable[[int], int], variables: dict[str, str | None]
) -> Iterator[_CommandBuilder]:
    """Yield the words and redirections of each command in the text."""
    builder = _CommandBuilder([], [])
    position, end = 0, len(text)
    while position < end:
        char = text[position]
        if char in " \t":
            position += 1
        elif char == "\\" and position + 1 < end and text[position + 1] == "\n":
            position += 2
        elif char == "#":
            line_end = text.find("\n", position)
            position = end if line_end < 0 else line_end
        elif char in "\n;|&()":
            operator = text[position : position + 2]
            if operator == "&>":  # a redirection: the next round reads the `>`
                position += 1
                continue
            builder.ignores_failure = _HARMLESS_ALTERNATIVE.match(text, position) is not None
            if builder.words or builder.redirects:
                yield builder
            builder = _CommandBuilder([], [], is_piped=char == "|" and operator != "||")
            position += 2 if operator in ("&&", "||", ";;", "|&") else 1
        elif char in "<>":
            position = _parse_redirection(text, position, line_at, variables, builder)
        else:
            word, word_end = _parse_word(text, position, line_at, variables)
            if word.text.isdigit() and word_end < end and text[word_end] in "<>":
                position = word_end  # 2>file
                continue
            builder.words.append(word)
            position = word_end
    if builder.words or builder.redirects:
        yield builder


def _parse_redirection(
    text: str,
    position: int,
    line_at: Callable[[int], int],
    variables: dict[str, str | None],
    builder: _CommandBuilder,
) -> int:
    """Add the redirection at `position` to the command, and return the index after it."""
    is_glued = position > 0 and text[position - 1] not in " \t\n0123456789&" and bool(builder.words)
    if position > 0 and text[position - 1].isdigit() and builder.words:
        # In `2>x`, the digit is a file descriptor. In `tensorflow2>x`, it belongs to the word.
        is_glued = len(builder.words[-1].text) > 1 and builder.words[-1].text[-1] == text[position - 1]
    start = position
    while position < len(text) and text[position] in "<>&|" and position - start < 3:
        position += 1
    operator = text[start:position]
    while position < len(text) and text[position] in " \t":
        position += 1
    if position < len(text) and text[position] not in "\n;|&()<>":
        word, position = _parse_word(text, position, line_at, variables)
        builder.redirects.append(Redirect(operator, word.text, len(builder.words), is_glued))
    return position


def _parse_word(
    text: str, position: int, line_at: Callable[[int], int], variables: dict[str, str | None]
) -> tuple[Word, int]:
    """Return the word at `position` without its quotes, and the index after it."""
    start, end = position, len(text)
    parts: list[str] = []
    is_known = True
    while position < end:
        char = text[position]
        if char in " \t\n;|&()<>":
            break
        if char == "'":
            closing = text.find("'", position + 1)
            closing = end if closing < 0 else closing
            parts.append(text[position + 1 : closing])
            position = closing + 1
        elif char == '"':
            inner, position = _parse_quoted(text, position + 1)
            expanded = expand_variables(inner, variables)
            parts.append(expanded.text)
            is_known = is_known and expanded.is_known and "`" not in inner
        elif char == "\\":
            parts.append(
                "" if text[position + 1 : position + 2] == "\n" else text[position + 1 : position + 2]
            )
            position += 2
        elif char == "$":
            value, position = _parse_variable(text, position, variables, None, 0)
            is_known = is_known and value is not None
            parts.append(value or "")
        elif char == "`":
            closing = text.find("`", position + 1)
            position = end if closing < 0 else closing + 1
            is_known = False
        else:
            match = _PLAIN_CHARS.match(text, position)
            after_plain = match.end() if match is not None else position + 1
            parts.append(text[position:after_plain])
            position = after_plain
    return Word("".join(parts), is_known, line_at(start)), max(position, start + 1)


def _parse_quoted(text: str, position: int) -> tuple[str, int]:
    """Return the double-quoted text that begins at `position`, and the index after the closing quote."""
    parts: list[str] = []
    while position < len(text):
        match = _QUOTED_CHARS.match(text, position)
        if match is not None:
            parts.append(match[0])
            position = match.end()
        if position >= len(text):
            break
        if text[position] == '"':
            return "".join(parts), position + 1
        escaped_char = text[position + 1 : position + 2]
        parts.append(
            escaped_char if escaped_char in '"\\`' else "" if escaped_char == "\n" else "\\" + escaped_char
        )
        position += 2
    return "".join(parts), position
