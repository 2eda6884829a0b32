"""The interface for reporting the progress of long operations, such as building an image."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Progress"]


class Progress:
    """A progress display that shows nothing. Its subclasses in `render.progress` print the progress."""

    def begin_stage(self, text: str) -> None:
        """Begin a stage without a number."""

    def begin_step(self, number: int, total: int, text: str) -> None:
        """Begin a numbered step, which ends the previous one."""

    def report_cached(self) -> None:
        """Report that the result of the running step was in the cache."""

    def report_line(self, text: str) -> None:
        """Report a line of a program's output."""

    def report_layer(self, name: str, text: str, current: int | None, size: int | None) -> None:
        """Report how many of the `size` bytes of one layer were downloaded; None means unknown."""

    def end_step(self) -> None:
        """Report that the running step has ended."""

    def report_failure(self, step: str, lines: Sequence[str]) -> None:
        """Report that a step failed.

        `step` is the text of the step, or "" for the running step. `lines` is its output.
        """
