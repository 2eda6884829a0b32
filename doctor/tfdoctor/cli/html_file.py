"""Write an HTML page for `--html FILE`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.cli.log_arguments import write_note
from tfdoctor.core.text import clean_line
from tfdoctor.system.writing import write_file

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["write_page"]


def write_page(target: Path, page: bytes, *, force: bool, quiet: bool, remark: str = "redacted") -> None:
    """Write the page and, unless `quiet` is set, print a note that contains `remark`.

    Raise UsageError if the file exists and `force` is not set, and Error if it cannot be written.
    """
    write_file(target, page, force=force, option="--html")
    if not quiet:
        write_note(
            f"{clean_line(str(target))} has the answer as a page ({len(page) // 1000 + 1} kB, {remark})."
        )
