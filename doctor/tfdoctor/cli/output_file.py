"""Write to the file of `-o` what a command would print."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import TYPE_CHECKING

from tfdoctor.core.errors import UsageError
from tfdoctor.core.text import clean_line
from tfdoctor.system.writing import check_output_file, write_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["check_output", "redirect_output"]

STDOUT_PATH = Path("-")


def check_output(
    output: Path | None,
    *,
    force: bool,
    input_paths: Iterable[Path | str | None] = (),
    other_outputs: Iterable[Path | None] = (),
) -> None:
    """Raise UsageError or Error if the file of `-o` cannot be written. None and `-` are standard output.

    `other_outputs` are the files of other options, which must be different ones.
    """
    if output is None or output == STDOUT_PATH:
        return
    check_output_file(output, force=force, input_paths=input_paths)
    if any(other is not None and other.resolve() == output.resolve() for other in other_outputs):
        message = f"-o: {clean_line(str(output))} is also the file of another option."
        raise UsageError(message, hint="Name another place.")


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
