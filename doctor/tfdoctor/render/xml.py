"""Escape external text for XML."""

from __future__ import annotations

import re
from xml.sax.saxutils import escape, quoteattr

from tfdoctor.core.text import clean

__all__ = ["escape_element", "quote_attribute"]

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Matches a character that XML 1.0 does not allow."""


def escape_element(text: str) -> str:
    """Escape a text for the content of an element."""
    return escape(_NOT_XML.sub("\ufffd", clean(text, limit=60_000)))


def quote_attribute(text: str) -> str:
    """Escape a text and put it in quotes, as the value of an attribute."""
    return quoteattr(_NOT_XML.sub("\ufffd", clean(text, limit=2000)))
