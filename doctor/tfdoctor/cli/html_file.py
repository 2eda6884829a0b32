"""Write the HTML page of `--html FILE`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.cli.log_arguments import write_note
from tfdoctor.system.writing import write_file
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["write_page"]


def write_page(target: Path, page: bytes, *, force: bool, quiet: bool, remark: str = "redacted") -> None:
    """Write the page and print a note about it unless `quiet`. `remark` is a phrase for that note.

    Raise UsageError if the file exists and not `force`, and Error if it cannot be written.
    """
    write_file(target, page, force=force, option="--html")
    if not quiet:
        write_note(
            f"{clean_line(str(target))} has the answer as a page ({len(page) // 1000 + 1} kB, {remark})."
        )
