"""Read files and list folders that need not exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfdoctor.system import System


def load_text(system: System, path: str, limit: int = 1 << 16) -> str | None:
    """Return at most `limit` bytes of a file as text, or None if it cannot be read."""
    try:
        return system.read_text(path, limit=limit)
    except OSError:
        return None


def list_names(system: System, folder: str) -> list[str]:
    """Return the names in a folder, or an empty list if it cannot be listed."""
    try:
        return system.listdir(folder)
    except OSError:
        return []
