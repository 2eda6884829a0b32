"""Functions with which the parsers clean text, strip margins and convert values.

All functions take linear time: no regular expression nests quantifiers, and no two adjacent quantifiers match
the same character. Digits are written ``[0-9]`` because ``\\d`` also matches digits of other scripts.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tfdoctor.core.records import dataclass
from tfdoctor.core.text import make_lazy_pattern

if TYPE_CHECKING:
    import re

# CSI sequences (colour, cursor), OSC sequences (window titles), and the two-character escapes.
_ANSI = make_lazy_pattern(r"\x1b(?:\[[0-?]*[ -/]*[@-~]?|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
# C0 and C1 controls except tab and newline, zero-width characters, directional marks, byte order mark.
_CONTROL_CHARS = make_lazy_pattern(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\u200b-\u200f\u202a-\u202e\u2060\ufeff]"
)
_NEWLINE_RUNS = make_lazy_pattern(r"\r+\n?")
_UNICODE_SPACES = make_lazy_pattern(r"[\u00a0\u2002-\u200a\u202f\u3000]")

# A version of a driver, toolkit or library, as NVIDIA prints it: two to five groups of digits.
VERSION_PATTERN = r"[0-9]{1,9}(?:\.[0-9]{1,9}){1,4}"

_INTEGER = make_lazy_pattern(r"[+-]?[0-9]{1,18}")
_MEBIBYTES = make_lazy_pattern(r"([0-9]{1,15}) {0,20}(?:MiB|MB)?")
# Texts that tools print instead of an unavailable value.
_PLACEHOLDERS = frozenset({
    "", "-", "n/a", "[n/a]", "na", "none", "(null)", "null", "err!", "not found", "[not found]",
    "unknown error", "[unknown error]", "not supported", "[not supported]", "not available",
    "[not available]", "insufficient permissions", "[insufficient permissions]",
})  # fmt: skip

# Prefixes that quotes, boxes and comments, pod names, docker compose or time stamps add to each line.
# The "host: " of pdsh and srun is not included, because it cannot be distinguished from a key.
_MARGIN_PATTERNS = tuple(
    make_lazy_pattern(pattern)
    for pattern in (
        r"[>│┃#|`＃] ?",
        r"\[(?:pod|container)/[^\]\s]{1,200}\] ?",
        r"[A-Za-z0-9][A-Za-z0-9_.-]{0,80} {1,20}\| ?",
        r"[0-9]{4}(?:-[0-9]{2}){2}[T ][0-9]{2}(?::[0-9]{2}){2}[0-9.,]{0,12}(?:Z|[+-][0-9]{2}:?[0-9]{2})? ?",
    )
)
_MAX_SAMPLE_LINES = 500
_QUOTE_CHARS = " \t>│┃|`*#＃"


@dataclass(frozen=True, slots=True)
class Parsed:
    """Base class of all parse results, which can be converted to JSON."""

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as plain dicts, lists, strings, numbers, booleans and None."""
        return {field.name: to_plain(getattr(self, field.name)) for field in dataclasses.fields(self)}


def to_plain(value: Any) -> Any:
    """Return ``value`` with `Parsed` objects converted to dicts and tuples to lists, at any depth."""
    if isinstance(value, Parsed):
        return value.as_dict()
    if isinstance(value, Mapping):
        return {str(key): to_plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(inner) for inner in value]
    return value


def clean(text: str) -> str:
    r"""Return ``text`` without ANSI escapes and control characters, with ``\n`` and plain spaces only."""
    text = _NEWLINE_RUNS.sub(_replace_newlines, _ANSI.sub("", text))
    return _UNICODE_SPACES.sub(" ", _CONTROL_CHARS.sub("", text))


def _replace_newlines(match: re.Match[str]) -> str:
    r"""Return one newline for a run of ``\r`` that ends in ``\n``, otherwise one for each ``\r``."""
    return "\n" if match[0].endswith("\n") else "\n" * len(match[0])


def has_ansi(text: str) -> bool:
    """Return whether ``text`` contains terminal escape sequences."""
    return "\x1b[" in text


def clean_lines(text: str) -> list[str]:
    """Return the lines of ``clean(text)`` without margins and trailing spaces. The indentation stays."""
    return strip_margins([line.rstrip() for line in clean(text).split("\n")])


def strip_margins(lines: list[str]) -> list[str]:
    """Return ``lines`` without the margins that quotes, boxes, comments or logs added to most of them."""
    for _ in range(3):  # margins can be nested, for example a quoted log
        sample = list(itertools.islice((line for line in lines if line.strip()), _MAX_SAMPLE_LINES))
        margin = next((pattern for pattern in _MARGIN_PATTERNS if _is_common_margin(pattern, sample)), None)
        if margin is None:
            break
        lines = [_strip_line_margin(line, margin) for line in lines]
    return lines


def _is_common_margin(margin: re.Pattern[str], sample: list[str]) -> bool:
    """Return whether a margin pattern matches at least two lines and more than 60 % of the sample."""
    match_count = sum(margin.match(line) is not None for line in sample)
    return match_count >= 2 and match_count * 10 > len(sample) * 6


def _strip_line_margin(line: str, margin: re.Pattern[str]) -> str:
    """Return ``line`` without the margin. The closing mark of a box or code span is removed, too."""
    match = margin.match(line)
    if not match:
        return line
    mark = match[0].strip()
    content = line[match.end() :]
    return content.rstrip(mark).rstrip() if mark in ("│", "┃", "|", "`") else content


def unquote(line: str) -> str:
    """Return ``line`` without indentation, quote marks, comment signs and backticks around it."""
    return line.lstrip(_QUOTE_CHARS).rstrip(" \t`│┃")


def to_int(text: str) -> int | None:
    """Return ``text`` as an integer, or None if it is not an integer or has more than 18 digits."""
    text = text.strip()
    return int(text) if _INTEGER.fullmatch(text) else None


def to_mib(text: str) -> int | None:
    """Return the number of MiB in ``1024MiB``, ``1024 MiB`` or ``1024``, or None for any other text.

    Old drivers print ``1024MB``, which has the same meaning.
    """
    match = _MEBIBYTES.fullmatch(text.strip())
    return int(match[1]) if match else None


def is_placeholder(text: str) -> bool:
    """Return whether ``text`` is empty or a placeholder for a missing value, such as N/A or (null)."""
    return text.strip().lower() in _PLACEHOLDERS


def value_or_none(text: str | None) -> str | None:
    """Return ``text`` stripped, or None if it is missing or a placeholder."""
    return None if text is None or is_placeholder(text) else text.strip()


def parse_listed_version(text: str | None) -> str | None:
    """Return a version without a remark such as ``[Deprecated; …]``, or None if there is no version."""
    if text is None or text.lower().startswith("deprecated"):
        return None
    return value_or_none(text.split("[")[0])


def is_fence(line: str) -> bool:
    """Return whether ``line`` is a Markdown code fence."""
    return line.lstrip().startswith(("```", "~~~"))
