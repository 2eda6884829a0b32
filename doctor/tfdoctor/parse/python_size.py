"""How large a text of Python is: its tree takes several hundred bytes of memory for each word and sign."""

from __future__ import annotations

import re
from itertools import islice

__all__ = ["MAX_TOKENS", "has_many_tokens"]

MAX_TOKENS = 500_000
"""Words and signs of a text that is parsed; a tree of so many takes some 450 MB."""
_TOKEN = re.compile(r"""#[^\n]*|\"{3}.*?\"{3}|'{3}.*?'{3}|"[^"\n]*"|'[^'\n]*'|\w+|[^\s\w]""", re.S)


def has_many_tokens(text: str) -> bool:
    """Return whether a text has more words and signs than MAX_TOKENS; comments and strings are one each."""
    return len(text) > MAX_TOKENS and any(islice(_TOKEN.finditer(text), MAX_TOKENS, None))
