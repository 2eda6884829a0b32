"""Parse TOML on every supported Python version."""

from __future__ import annotations

import importlib
import sys
from typing import Any

__all__ = ["TomlError", "loads"]


class TomlError(ValueError):
    """The text is not valid TOML."""


def loads(text: str) -> dict[str, Any]:
    """Return the tables of a TOML text. Raise TomlError if it is invalid."""
    module: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        tables: dict[str, Any] = module.loads(text)
    except (ValueError, RecursionError) as error:
        raise TomlError(str(error) or "nested too deeply") from error
    return tables
