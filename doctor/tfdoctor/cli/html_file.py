"""Write an HTML page for `--html FILE`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tfdoctor.cli.log_arguments import write_note
from tfdoctor.core.text import clean_line
from tfdoctor.system.identity import make_redactor
from tfdoctor.system.writing import write_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tfdoctor.core.privacy.redactor import Redactor

__all__ = ["write_page", "write_redacted_page"]


def write_page(target: Path, page: bytes, *, force: bool, quiet: bool, remark: str = "redacted") -> None:
    """Write the page and, unless `quiet` is set, print a note that contains `remark`.

    Raise UsageError if the file exists and `force` is not set, and Error if it cannot be written.
    """
    write_file(target, page, force=force, option="--html")
    if not quiet:
        write_note(
            f"{clean_line(str(target))} has the answer as a page ({len(page) // 1000 + 1} kB, {remark})."
        )


def write_redacted_page(
    target: Path, make_page: Callable[[Redactor], bytes], *, force: bool, quiet: bool
) -> None:
    """Write a page that hides the names of this machine. Raise UsageError or Error if it cannot be written."""
    write_page(
        target, make_page(make_redactor(os.environ, include_local_names=True)), force=force, quiet=quiet
    )
