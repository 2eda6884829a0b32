"""What long work tells of itself while it runs: one way for an image, an environment, a fix and a look."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Progress"]


class Progress:
    """Whoever is told. This one is nobody; those of `render.progress` show it to a person."""

    def stage(self, text: str) -> None:
        """Something begins that has no number."""

    def step(self, number: int, total: int, text: str) -> None:
        """A numbered step begins; the one before it has ended."""

    def cached(self) -> None:
        """What the running step makes was there already."""

    def line(self, text: str) -> None:
        """A line that a program prints."""

    def layer(self, name: str, text: str, current: int | None, size: int | None) -> None:
        """How far a part of a download is: bytes of bytes, where that is known."""

    def done(self) -> None:
        """The last step has ended."""

    def failed(self, step: str, lines: Sequence[str]) -> None:
        """The running step has failed. step: its text, "" where it is the one that was told; lines: its output."""
