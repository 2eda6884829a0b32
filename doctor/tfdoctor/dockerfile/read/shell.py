"""What a shell would make of a RUN instruction: its simple commands, with variables put in as far as they are known.

Not a shell: conditions and loops are read as if every command ran, and what a command prints is unknown. A word of
which a part could not be known says so (`Word.known`). Pure, linear in the text.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["Command", "Expanded", "Redirect", "Word", "commands", "expand"]

LONGEST_VALUE = 4096
"""Characters of an expanded value; beyond, it counts as unknown."""
MAX_SHELL_DEPTH = 3
"""`sh -c` within `sh -c`."""
MAX_COMMANDS = 20_000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\+?=")
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ash"})
_BEFORE = frozenset(
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
"""Words before a command that change nothing here."""


@dataclass(frozen=True, slots=True)
class Expanded:
    """A text with its variables put in."""

    text: str
    known: bool
    """False: something in it could not be known."""


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a command."""

    text: str
    known: bool
    line: int


@dataclass(frozen=True, slots=True)
class Redirect:
    """`>FILE` after a word."""

    operator: str
    target: str
    after: int
    """How many words stand before it."""
    glued: bool
    """Whether it follows its word without a space: `tensorflow>=2.4`."""


@dataclass(frozen=True, slots=True)
class Command:
    """One simple command."""

    words: tuple[Word, ...]
    redirects: tuple[Redirect, ...] = ()
    piped: bool = False
    """Whether it reads what the command before it prints."""

    @property
    def name(self) -> str:
        """The program, without its folder: `"pip3"`."""
        return self.words[0].text.rpartition("/")[2] if self.words else ""

    @property
    def text(self) -> str:
        return " ".join(word.text for word in self.words)

    @property
    def line(self) -> int:
        return self.words[0].line if self.words else 0


def expand(
    text: str, variables: Mapping[str, str | None], *, default: str | None = None, depth: int = 0
) -> Expanded:
    """Return `$A`, `${A}`, `${A:-x}`, `${A:+x}`, `${A/x/y}`, `${A%x}`… put in; no quotes are taken away.

    `variables`: None is a variable whose value is not known. A name that is not there is unknown, too, unless
    `default` says what it stands for.
    """
    parts: list[str] = []
    known = True
    at = size = 0
    while at < len(text):
        mark = text.find("$", at)
        if mark < 0 or size > LONGEST_VALUE:
            parts.append(text[at:])
            break
        parts.append(text[at:mark])
        value, at = _variable(text, mark, variables, default, depth)
        if value is None:
            known = False
        else:
            parts.append(value)
            size += len(value)
    result = "".join(parts)
    if len(result) > LONGEST_VALUE and size:
        return Expanded(result[:LONGEST_VALUE], False)
    return Expanded(result, known)


def _variable(
    text: str, mark: int, variables: Mapping[str, str | None], default: str | None, depth: int
) -> tuple[str | None, int]:
    """Return the value of what begins with the `$` at `mark`, and the place after it."""
    if text.startswith("${", mark):
        end = _find_closing(text, mark + 2, "{", "}")
        if end < 0:
            return text[mark:], len(text)
        return _expand_braced(text[mark + 2 : end], variables, default, depth), end + 1
    if text.startswith("$(", mark):
        end = _find_closing(text, mark + 2, "(", ")")
        return None, (end + 1 if end >= 0 else len(text))
    match = _NAME.match(text, mark + 1)
    if match is None:
        return "$", mark + 1
    return variables.get(match[0], default), match.end()


def _find_closing(text: str, at: int, opening: str, closing: str) -> int:
    depth = 1
    # What is longer than this is no parameter; the bound keeps hostile text linear.
    for place in range(at, min(len(text), at + LONGEST_VALUE)):
        if text[place] == opening:
            depth += 1
        elif text[place] == closing:
            depth -= 1
            if depth == 0:
                return place
    return -1


def _expand_braced(
    inner: str, variables: Mapping[str, str | None], default: str | None, depth: int
) -> str | None:
    match = _NAME.match(inner)
    if match is None or depth > 4:
        return None
    name, rest = match[0], inner[match.end() :]
    declared = name in variables
    value = variables.get(name, default)
    if not rest:
        return value

    def expand_other(text: str) -> str | None:
        found = expand(text, variables, default=default, depth=depth + 1)
        return found.text if found.known else None

    # A variable that nobody declares counts as unset here: that is what the form is for.
    if rest.startswith((":-", "-")):
        if declared and value is None:
            return None
        return value if value else expand_other(rest.removeprefix(":")[1:])
    if rest.startswith((":+", "+")):
        if declared and value is None:
            return None
        return expand_other(rest.removeprefix(":")[1:]) if value else ""
    if value is None:
        return None
    if rest.startswith("/"):
        every = rest.startswith("//")
        old, _, new = rest.lstrip("/").partition("/")
        plain = not set(old) & set("*?[\\")
        return value.replace(old, new, -1 if every else 1) if old and plain else None
    if rest.startswith((":?", "?")):
        return value
    return _trim_pattern(value, rest)


def _trim_pattern(value: str, rest: str) -> str | None:
    """Return `${A%.*}` and `${A#v}`, for the two patterns that versions are cut with."""
    if rest.startswith("%"):
        pattern = rest.lstrip("%")
        if pattern == ".*":
            return value.partition(".")[0] if rest.startswith("%%") else value.rpartition(".")[0] or value
        return value.removesuffix(pattern) if not set(pattern) & set("*?[") else None
    if rest.startswith("#"):
        pattern = rest.lstrip("#")
        return value.removeprefix(pattern) if not set(pattern) & set("*?[") else None
    return None


# ---------------------------------------------------------------- words and commands


@dataclass(slots=True)
class _CommandBuilder:
    """A command that is being read."""

    words: list[Word]
    redirects: list[Redirect]
    piped: bool = False


def commands(
    text: str,
    line_at: Callable[[int], int],
    variables: dict[str, str | None],
    *,
    exec_form: bool = False,
    depth: int = 0,
) -> Iterator[Command]:
    """Yield the simple commands of a RUN, in order.

    Assignments (`A=1`, `export A=1`) are written into `variables`.
    """
    if exec_form and (words := _exec_words(text, line_at)):
        yield from _unwrap_command(_CommandBuilder(words, []), variables, depth)
        return
    for number, making in enumerate(_split(text, line_at, variables)):
        if number >= MAX_COMMANDS:
            return
        yield from _unwrap_command(making, variables, depth)


def _exec_words(text: str, line_at: Callable[[int], int]) -> list[Word]:
    """Return `["pip", "install", …]`: JSON, and no shell that puts variables in."""
    if not text.lstrip().startswith("["):
        return []
    try:
        value = json.loads(text.strip())
    except (ValueError, RecursionError):
        return []
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        return []
    return [Word(one, True, line_at(0)) for one in value]


def _unwrap_command(
    making: _CommandBuilder, variables: dict[str, str | None], depth: int
) -> Iterator[Command]:
    """Yield the command without what comes before it; the script of a `sh -c` in its place."""
    words, shift = list(making.words), 0
    exporting = bool(words) and words[0].text in ("export", "declare", "readonly", "local", "ARG", "ENV")
    if exporting:
        words.pop(0)
        shift += 1
    while words:
        match = _ASSIGNMENT.match(words[0].text)
        if match is not None:
            _assign(
                variables,
                match[1],
                words[0],
                words[0].text[match.end() :],
                alone=exporting or len(words) == 1,
            )
        elif exporting or words[0].text in _BEFORE:
            pass
        elif shift and words[0].text.startswith("-"):
            pass  # sudo -H, env -i
        else:
            break
        words.pop(0)
        shift += 1
    if not words:
        return
    name = words[0].text.rpartition("/")[2]
    if name in _SHELLS and depth < MAX_SHELL_DEPTH and (script := _script(words)) is not None:
        yield from commands(script.text, lambda _: script.line, variables, depth=depth + 1)
        return
    redirects = tuple(
        Redirect(one.operator, one.target, max(one.after - shift, 0), one.glued) for one in making.redirects
    )
    yield Command(tuple(words), redirects, making.piped)


def _assign(variables: dict[str, str | None], name: str, word: Word, value: str, *, alone: bool) -> None:
    """`A=1;` holds for what follows; `A=1 command` for that command alone, and need not be remembered."""
    if alone:
        variables[name] = value if word.known else None


def _script(words: list[Word]) -> Word | None:
    """Return the script of `bash -exc '…'`."""
    for place, word in enumerate(words[1:], 1):
        if not word.text.startswith("-"):
            return None
        if "c" in word.text.lstrip("-") and not word.text.startswith("--") and place + 1 < len(words):
            return words[place + 1]
    return None


def _split(
    text: str, line_at: Callable[[int], int], variables: dict[str, str | None]
) -> Iterator[_CommandBuilder]:
    """Yield words and redirections, command by command."""
    making = _CommandBuilder([], [])
    at, end = 0, len(text)
    while at < end:
        char = text[at]
        if char in " \t":
            at += 1
        elif char == "\\" and at + 1 < end and text[at + 1] == "\n":
            at += 2
        elif char == "#":
            found = text.find("\n", at)
            at = end if found < 0 else found
        elif char in "\n;|&()":
            two = text[at : at + 2]
            if two in ("&>",):
                at += 1
                continue
            if making.words or making.redirects:
                yield making
            making = _CommandBuilder([], [], piped=char == "|" and two != "||")
            at += 2 if two in ("&&", "||", ";;", "|&") else 1
        elif char in "<>":
            at = _redirection(text, at, line_at, variables, making)
        else:
            word, following = _word(text, at, line_at, variables)
            if word.text.isdigit() and following < end and text[following] in "<>":
                at = following  # 2>file
                continue
            making.words.append(word)
            at = following
    if making.words or making.redirects:
        yield making


def _redirection(
    text: str,
    at: int,
    line_at: Callable[[int], int],
    variables: dict[str, str | None],
    making: _CommandBuilder,
) -> int:
    glued = at > 0 and text[at - 1] not in " \t\n0123456789" and bool(making.words)
    if at > 0 and text[at - 1].isdigit() and making.words:
        # `2>x` names a descriptor; `tensorflow2>x` does not.
        glued = len(making.words[-1].text) > 1 and making.words[-1].text[-1] == text[at - 1]
    start = at
    while at < len(text) and text[at] in "<>&|" and at - start < 3:
        at += 1
    operator = text[start:at]
    while at < len(text) and text[at] in " \t":
        at += 1
    if at < len(text) and text[at] not in "\n;|&()<>":
        word, at = _word(text, at, line_at, variables)
        making.redirects.append(Redirect(operator, word.text, len(making.words), glued))
    return at


def _word(
    text: str, at: int, line_at: Callable[[int], int], variables: dict[str, str | None]
) -> tuple[Word, int]:
    """Return the word that begins at `at`, quotes taken away, and the place after it."""
    start, end = at, len(text)
    parts: list[str] = []
    known = True
    while at < end:
        char = text[at]
        if char in " \t\n;|&()<>":
            break
        if char == "'":
            close = text.find("'", at + 1)
            close = end if close < 0 else close
            parts.append(text[at + 1 : close])
            at = close + 1
        elif char == '"':
            inner, at = _read_quoted(text, at + 1)
            found = expand(inner, variables)
            parts.append(found.text)
            known = known and found.known and "`" not in inner
        elif char == "\\":
            parts.append("" if text[at + 1 : at + 2] == "\n" else text[at + 1 : at + 2])
            at += 2
        elif char == "$":
            value, at = _variable(text, at, variables, None, 0)
            known = known and value is not None
            parts.append(value or "")
        elif char == "`":
            close = text.find("`", at + 1)
            at = end if close < 0 else close + 1
            known = False
        else:
            match = _PLAIN.match(text, at)
            stop = match.end() if match is not None else at + 1
            parts.append(text[at:stop])
            at = stop
    return Word("".join(parts), known, line_at(start)), max(at, start + 1)


_PLAIN = re.compile(r"[^ \t\n;|&()<>'\"\\$`]+")
_IN_QUOTES = re.compile(r'[^"\\]*')


def _read_quoted(text: str, at: int) -> tuple[str, int]:
    """Return the inside of double quotes from `at` on, and the place after the closing one."""
    parts: list[str] = []
    while at < len(text):
        match = _IN_QUOTES.match(text, at)
        if match is not None:
            parts.append(match[0])
            at = match.end()
        if at >= len(text):
            break
        if text[at] == '"':
            return "".join(parts), at + 1
        follower = text[at + 1 : at + 2]
        parts.append(follower if follower in '"\\`' else "" if follower == "\n" else "\\" + follower)
        at += 2
    return "".join(parts), at
