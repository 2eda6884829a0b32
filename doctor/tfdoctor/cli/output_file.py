"""Write to the file of `-o` what a command would print."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import TYPE_CHECKING

from tfdoctor.system.writing import check_output_file, write_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["check_output", "redirect_output"]

STDOUT_PATH = Path("-")


def check_output(output: Path | None, *, force: bool, input_paths: Iterable[Path | str | None] = ()) -> None:
    """Raise UsageError or Error if the file of `-o` cannot be written. None and `-` are standard output."""
    if output is not None and output != STDOUT_PATH:
        check_output_file(output, force=force, input_paths=input_paths)


@contextlib.contextmanager
def redirect_output(output: Path | None, *, force: bool) -> Iterator[None]:
    """Write what is printed on standard output within the block to the file of `-o`, at its end.

    If the block raises an error, the file is not written.
    """
    if output is None or output == STDOUT_PATH:
        yield
        return
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="")
    with contextlib.redirect_stdout(stream):
        yield
    stream.flush()
    write_file(output, stream.buffer.getvalue(), force=force)
