"""Make untrusted text safe to print, and compile regular expressions on demand.

Untrusted text comes from logs, file names and the output of other programs. Text that is safe to print may still contain
personal data, which `privacy` removes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "clean",
    "clean_line",
    "join_first",
    "join_words",
    "lower_first",
    "make_lazy_pattern",
    "upper_first",
]

# The patterns limit repetitions, so that long lines take linear time.
# Terminal escape sequences: CSI (ESC [), OSC (ESC ]) and two-character sequences.
_ESCAPE_SEQUENCE = re.compile(
    r"\x1b(?:\[[0-9;?]{0,32}[ -/]?[@-~]|\][^\x07\x1b]{0,2048}(?:\x07|\x1b\\)?|[@-Z\\-_])"
)
# All characters that a terminal may interpret: C0 except tab and newline, DEL, C1, line and paragraph separators, and
# bidirectional controls. The latter can make one path look like another one.
_CONTROL_CHAR = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]"
)
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_TRUNCATION_MARK = " […]"
"""The end of a text that was truncated."""
# `user:password@` or `token@` after `//`, or `user:password@` before a host, but not the `@sha256:` of an image.
_URL_CREDENTIALS = re.compile(
    r"(?P<scheme>(?:\b[a-zA-Z][a-zA-Z0-9+.-]{0,30}:)?//)(?:[^\s`'\"]{0,200}:[^\s`'\"]{0,200}|[^\s`'\"@/]{0,500})@"
    r"|(?<![\w/.@-])[\w.+-]{1,64}:(?!//)[^\s`'\"]{1,500}@(?!sha256:)(?=[\w.\[-])"
)
# A query parameter of a URL with a name such as access_token or X-Amz-Signature.
_SECRET_PARAMETER = re.compile(
    r"(?i)([?&][\w-]{0,40}(?:token|key|secret|pass\w{0,10}|sig|signature|code)=)[^&\s`'\"]{1,500}"
)
CAPITALIZED_NAMES = ("TensorFlow", "Tensor", "Python", "Docker", "Podman", "Keras", "Jupyter", "Slurm")
"""Beginnings of names that are capitalized even within a sentence."""


def clean(text: str, *, limit: int = 4000) -> str:
    """Return the text without escape sequences and control characters, truncated to `limit` characters."""
    if len(text) <= limit and text.isprintable():
        return text  # the usual case
    # A text that ends with the mark was truncated already, and is not truncated again.
    if len(text) > limit and not (
        text.endswith(_TRUNCATION_MARK) and len(text) <= limit + len(_TRUNCATION_MARK)
    ):
        text = text[:limit] + _TRUNCATION_MARK
    text = _ESCAPE_SEQUENCE.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _LONE_SURROGATE.sub("\ufffd", _CONTROL_CHAR.sub("\ufffd", text))


def clean_line(text: str, *, limit: int = 400) -> str:
    """Return the text like `clean`, but on one line: white space becomes single spaces."""
    return " ".join(clean(text, limit=limit).split())


def strip_credentials(text: str, values: Iterable[str] = ()) -> str:
    """Return the text without the user names, passwords and tokens in its URLs.

    `values` are URLs that the text may contain. Their passwords are removed even if they contain spaces or quotes.
    """
    for value in values:
        credentials, separator, _ = value.rpartition("@")
        secret = credentials.rpartition("//")[2]
        # The text may contain the secret as it is, cleaned, or escaped as in a Python string.
        for spelling in (
            (secret, clean_line(secret), repr(secret)[1:-1]) if separator and ":" in credentials else ()
        ):
            text = text.replace(f"{spelling}@", "")
    text = _URL_CREDENTIALS.sub(lambda match: match["scheme"] or "", text)
    return _SECRET_PARAMETER.sub(r"\1…", text)


def join_words(words: Sequence[str]) -> str:
    """Join words for a sentence: "a, b and c"."""
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def join_first(words: Sequence[str], count: int) -> str:
    """Join the first `count` words, and add the number of the others: "a, b and 3 more"."""
    text = ", ".join(words[:count])
    return text if len(words) <= count else f"{text} and {len(words) - count} more"


def lower_first(text: str) -> str:
    """Convert the first letter to lower case, for use within a sentence.

    Names (`CAPITALIZED_NAMES`) and abbreviations are not changed.
    """
    if len(text) > 1 and text[0].isupper() and text[1].islower() and not text.startswith(CAPITALIZED_NAMES):
        return text[0].lower() + text[1:]
    return text


def upper_first(text: str) -> str:
    """Convert the first letter to upper case."""
    return text[:1].upper() + text[1:]


class _LazyPattern:
    """A regular expression that is compiled when one of its attributes is first used.

    Compiling a pattern takes as long as loading a small module. `check` defines about a hundred patterns, and uses a few
    dozen of them.
    """

    def __init__(self, pattern: str, flags: int) -> None:
        self._pattern = pattern
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copy and pickle look these up, which needs no compiled pattern
            raise AttributeError(name)
        attribute = getattr(re.compile(self._pattern, self._flags), name)
        setattr(self, name, attribute)
        return attribute


def make_lazy_pattern(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Return a pattern like re.compile, but compile it at its first use. Errors are raised then.

    The functions of `re` do not accept it: call `make_lazy_pattern(…).sub(…)`, not `re.sub(make_lazy_pattern(…), …)`.
    """
    return cast("re.Pattern[str]", _LazyPattern(pattern, flags))


def split_path_list(name: str, value: str) -> list[str]:
    """Return the non-empty entries of a variable that holds a list of paths.

    The loader also accepts semicolons in LD_LIBRARY_PATH and white space in LD_PRELOAD.
    """
    separator = {"LD_LIBRARY_PATH": "[:;]", "LD_PRELOAD": r"[:\s]"}.get(name, ":")
    return [entry for entry in re.split(separator, value) if entry]
