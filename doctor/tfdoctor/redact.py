"""Scrubbing of text that comes from outside: logs, file names, what other programs print.

`clean` makes text safe to show in a terminal; `redact` removes what tells who and where somebody is.
Both are idempotent. `Redactor` (redaction.py) does the same for a whole recording: what it replaces stays
recognisable, so that the recording is judged as the machine was.
"""

from __future__ import annotations

import re

_ANSI = re.compile(r"\x1b(?:\[[0-9;?]{0,32}[ -/]?[@-~]|\][^\x07\x1b]{0,2048}(?:\x07|\x1b\\)?|[@-Z\\-_])")
# Everything a terminal might act on: C0 but tab and newline, DEL, C1, line and paragraph separators, and
# the bidirectional controls, which can make a path read as another one.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")

_MORE = " […]"
_HOME = re.compile(r"(/home/|/Users/|[A-Za-z]:\\Users\\)([^/\\\s:;'\"]+)")
_SECRET = re.compile(
    r"(?i)\b([a-z0-9_]{0,40}(?:token|secret|passw(?:or)?d|api_?key|credential)[a-z0-9_]{0,20})(\s{0,3}[=:]\s{0,3})(\S+)"
)
_IPV4 = re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])")
_UUID = re.compile(r"(?i)\b((?:GPU|MIG)-)?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")


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


def redact(text: str) -> str:
    """Text without the names of users, tokens, network addresses and device UUIDs.

    Versions such as 10.1.243.0 look like addresses; only addresses whose four parts are at most 255 and
    that do not follow a version-like word are replaced, so a version may be replaced too often, an address
    never too seldom.
    """
    text = _SECRET.sub(lambda m: f"{m[1]}{m[2]}<redacted>", text)
    text = _HOME.sub(lambda m: f"{m[1]}<user>", text)
    text = _UUID.sub(lambda m: f"{m[1] or ''}<uuid>", text)
    return _IPV4.sub(
        lambda m: "<ip>" if all(int(part) <= 255 for part in m[0].split(".")) else m[0],
        text,
    )
