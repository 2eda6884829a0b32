"""Text that comes from outside (logs, file names, what other programs print) made safe to show in a terminal.

It tells who and where somebody is as before: what is to be published goes through `privacy`, too.
"""

from __future__ import annotations

import re

_ANSI = re.compile(r"\x1b(?:\[[0-9;?]{0,32}[ -/]?[@-~]|\][^\x07\x1b]{0,2048}(?:\x07|\x1b\\)?|[@-Z\\-_])")
# Everything a terminal might act on: C0 but tab and newline, DEL, C1, line and paragraph separators, and
# the bidirectional controls, which can make a path read as another one.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")

_MORE = " […]"


def clean(text: str, *, limit: int = 4000) -> str:
    """Text that is safe to print: no escape sequences, no control characters, at most `limit` characters."""
    if len(text) <= limit and text.isprintable():
        return text  # as nearly all is
    if len(text) > limit and not (text.endswith(_MORE) and len(text) <= limit + len(_MORE)):
        text = text[:limit] + _MORE
    text = _ANSI.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _LONE_SURROGATE.sub("\ufffd", _CONTROL.sub("\ufffd", text))


def clean_line(text: str, *, limit: int = 400) -> str:
    """`clean`, on one line: runs of white space become one space."""
    return " ".join(clean(text, limit=limit).split())
