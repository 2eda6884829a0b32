"""Text that comes from outside (logs, file names, what other programs print) made safe to show in a terminal, and
the regular expressions that read it, which cost nothing until they are used.

Safe text tells who and where somebody is as before: what is to be published goes through `privacy`, too.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["clean", "clean_line", "join_words", "lazy_pattern", "lower_first", "upper_first"]

_ANSI = re.compile(r"\x1b(?:\[[0-9;?]{0,32}[ -/]?[@-~]|\][^\x07\x1b]{0,2048}(?:\x07|\x1b\\)?|[@-Z\\-_])")
# Everything a terminal might act on: C0 but tab and newline, DEL, C1, line and paragraph separators, and
# the bidirectional controls, which can make a path read as another one.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")

_TRUNCATION_MARK = " […]"


def clean(text: str, *, limit: int = 4000) -> str:
    """Make text safe to print: no escape sequences or control characters, at most `limit` characters."""
    if len(text) <= limit and text.isprintable():
        return text  # as nearly all is
    if len(text) > limit and not (
        text.endswith(_TRUNCATION_MARK) and len(text) <= limit + len(_TRUNCATION_MARK)
    ):
        text = text[:limit] + _TRUNCATION_MARK
    text = _ANSI.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _LONE_SURROGATE.sub("\ufffd", _CONTROL.sub("\ufffd", text))


def clean_line(text: str, *, limit: int = 400) -> str:
    """`clean`, on one line: runs of white space become one space."""
    return " ".join(clean(text, limit=limit).split())


_CREDENTIALS = re.compile(
    r"(?P<scheme>(?:\b[a-zA-Z][a-zA-Z0-9+.-]{0,30}:)?//)(?:[^\s`'\"]{0,200}:[^\s`'\"]{0,200}|[^\s`'\"@/]{0,500})@"
    r"|(?<![\w/.@-])[\w.+-]{1,64}:(?!//)[^\s`'\"]{1,500}@(?!sha256:)(?=[\w.\[-])"
)


_IN_QUERY = re.compile(
    r"(?i)([?&][\w-]{0,40}(?:token|key|secret|pass\w{0,10}|sig|signature|code)=)[^&\s`'\"]{1,500}"
)


def strip_credentials(text: str, values: Iterable[str] = ()) -> str:
    """Return the text without the users and passwords of its addresses.

    `values`: addresses that the text may quote; their passwords may have spaces and quotes in them.
    """
    for value in values:
        before, at, _ = value.rpartition("@")
        secret = before.rpartition("//")[2]
        for spelled in (secret, clean_line(secret), repr(secret)[1:-1]) if at and ":" in before else ():
            text = text.replace(f"{spelled}@", "")
    text = _CREDENTIALS.sub(lambda match: match["scheme"] or "", text)
    return _IN_QUERY.sub(r"\1…", text)


def join_words(parts: Sequence[str]) -> str:
    """Join the parts as in "a, b and c"."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else "".join(parts)


NAMES = ("TensorFlow", "Tensor", "Python", "Docker", "Podman", "Keras", "Jupyter", "Slurm")
"""What keeps its capital in the middle of a sentence."""


def lower_first(text: str) -> str:
    """Convert a title to the second half of a sentence; names and codes keep their capitals."""
    if len(text) > 1 and text[0].isupper() and text[1].islower() and not text.startswith(NAMES):
        return text[0].lower() + text[1:]
    return text


def upper_first(text: str) -> str:
    """Convert the first letter to upper case, for words that begin a sentence."""
    return text[:1].upper() + text[1:]


class _LazyPattern:
    """Stands for a compiled expression: whatever is asked of it first compiles it. Compiling one takes as long as
    loading a small module, and `check` loads a hundred to use some dozens."""

    def __init__(self, pattern: str, flags: int) -> None:
        self._pattern = pattern
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # none of an expression's own: who copies or pickles asks for them
            raise AttributeError(name)
        found = getattr(re.compile(self._pattern, self._flags), name)
        setattr(self, name, found)
        return found


def lazy_pattern(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Return a pattern like re.compile does, but compile it at its first use.

    Errors are raised then, too: when the first method or attribute is used. The functions of `re`
    themselves do not accept it: `lazy_pattern(…).sub(…)`, not `re.sub(lazy_pattern(…), …)`.
    """
    return cast("re.Pattern[str]", _LazyPattern(pattern, flags))


def entries_of(name: str, value: str) -> list[str]:
    """List the entries of a variable that is a list of paths, without the empty ones.

    The loader also accepts semicolons in LD_LIBRARY_PATH and white space in LD_PRELOAD.
    """
    between = {"LD_LIBRARY_PATH": "[:;]", "LD_PRELOAD": r"[:\s]"}.get(name, ":")
    return [entry for entry in re.split(between, value) if entry]
