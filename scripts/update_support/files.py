"""Writing of tables, and the errors of downloads: an update that fails leaves every table as it was."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["DownloadError", "report_errors", "write_file"]


class DownloadError(ValueError):
    """What was downloaded is incomplete, damaged, or not what was asked for."""


def write_file(path: Path, text: str) -> None:
    """Replace the file in one step, so that an interruption leaves the old one."""
    part = path.with_name(f"{path.name}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def report_errors(main: Callable[[], int]) -> int:
    """Run a script and return its exit status; 1 after one line if a file, a download or a module is missing."""
    try:
        return main()
    except ModuleNotFoundError as error:
        print(f"{error.name} is not here: uv run {sys.argv[0]}", file=sys.stderr)
        return 1
    except (DownloadError, OSError) as error:  # the errors of requests are OSErrors
        print(f"failed, and the table is as it was: {error}", file=sys.stderr)
        return 1
