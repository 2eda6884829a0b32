"""Addresses of the project. The build of the package loads this file alone, so it imports nothing of tfdoctor."""

from __future__ import annotations

import re

__all__ = [
    "PROJECT",
    "format_address",
    "format_docs_url",
    "format_repository_url",
    "format_rule_url",
    "is_published",
]

PROJECT = "OWNER/tfdoctor"
"""The owner and the name of the repository on the forge. All addresses follow from it.

While the owner is OWNER, the project is published nowhere: no screen and no JSON has a link, and `scripts/release`
refuses to make a release.
"""


def is_published() -> bool:
    """Return whether `PROJECT` names a real repository."""
    return not PROJECT.startswith("OWNER/")


def format_repository_url(path: str = "") -> str:
    """Return the address of the repository, or of a path in it such as "issues"."""
    return f"https://github.com/{PROJECT}" + (f"/{path}" if path else "")


def format_address() -> str:
    """Return the mail address of the authors: that of the account, which the forge shows and does not deliver."""
    return f"{PROJECT.partition('/')[0]}@users.noreply.github.com"


def format_docs_url(version: str, page: str = "") -> str:
    """Return the address of a page of the documentation of a version. The page ends in a slash."""
    owner, _, name = PROJECT.partition("/")
    return f"https://{owner.lower()}.github.io/{name}/{version}/{page}"


def format_rule_url(code: str, version: str) -> str | None:
    """Return the address of the page about a code, or None if the project or the code has none."""
    if not is_published() or re.fullmatch(r"TFD\d{3}", code) is None:
        return None
    return format_docs_url(version, f"codes/{code}/")
