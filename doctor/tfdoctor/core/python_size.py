"""Limit the size of Python source, because its syntax tree takes hundreds of bytes per token."""

from __future__ import annotations

import re
from itertools import islice

__all__ = ["MAX_TOKENS", "has_many_tokens"]

MAX_TOKENS = 500_000
"""The maximum number of tokens in a text that is parsed. The syntax tree of so many takes about 450 MB."""
_TOKEN = re.compile(r"""#[^\n]*|\"{3}.*?\"{3}|'{3}.*?'{3}|"[^"\n]*"|'[^'\n]*'|\w+|[^\s\w]""", re.S)


def has_many_tokens(text: str) -> bool:
    """Return whether a text has more than MAX_TOKENS tokens. A comment or string counts as one token."""
    return len(text) > MAX_TOKENS and any(islice(_TOKEN.finditer(text), MAX_TOKENS, None))
