"""The progress of long work, for images, environments, fixes and probes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Progress"]


class Progress:
    """A progress display that ignores everything; the classes in `render.progress` print it."""

    def stage(self, text: str) -> None:
        """Begin a stage, which has no number."""

    def step(self, number: int, total: int, text: str) -> None:
        """Begin a numbered step; the previous one has ended."""

    def cached(self) -> None:
        """Report that the result of the running step was in the cache."""

    def line(self, text: str) -> None:
        """Report a line of a program's output."""

    def layer(self, name: str, text: str, current: int | None, size: int | None) -> None:
        """Report how much of a part of a download is done, in bytes; None if unknown."""

    def done(self) -> None:
        """Report that the last step has ended."""

    def failed(self, step: str, lines: Sequence[str]) -> None:
        """Report that the running step failed.

        step: its text, or "" if it is the step last reported; lines: its output.
        """
