"""What a person is told while something runs: of a build a line that moves in a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING

from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tfdoctor.engine import BuildEvent, BuildFailedError

__all__ = ["Plain", "Silent", "Terminal", "to_a_person", "watching"]

_REDRAW = 0.1
"""Seconds between two pictures of the moving line."""


def to_a_person(*, quiet: bool) -> Callable[[str], None]:
    """Tells a person at a terminal why nothing happens; nobody else."""

    def tell(text: str) -> None:
        if sys.stderr.isatty() and not quiet:
            sys.stderr.write(f"{text}\n")

    return tell


class Silent:
    """Says nothing."""

    def stage(self, text: str) -> None:
        """Nothing."""

    def event(self, event: BuildEvent) -> None:
        """Nothing."""

    def failed(self, error: BuildFailedError) -> None:
        """Nothing: the error itself is told."""

    def close(self) -> None:
        """Nothing."""


class Plain(Silent):
    """One line for each stage and step, to standard error; with `verbose` all output."""

    def __init__(self, *, verbose: bool) -> None:
        self._verbose = verbose
        self._began = time.monotonic()

    def _say(self, text: str) -> None:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    def stage(self, text: str) -> None:
        self._say(clean_line(text))

    def event(self, event: BuildEvent) -> None:
        if event.kind == "step":
            self._say(f"  [{event.number}/{event.total}] {clean_line(event.text, limit=100)}")
        elif event.kind == "cached":
            self._say("        from the cache")
        elif event.kind == "output" and self._verbose:
            self._say(f"        {clean_line(event.text, limit=400)}")

    def failed(self, error: BuildFailedError) -> None:
        if self._verbose or not error.output:
            return
        self._say("  its last lines:")
        for line in error.output[-20:]:
            self._say(f"    | {clean_line(line, limit=400)}")


class Terminal(Plain):
    """Finished steps as lines with their seconds; the running one moves below them, with its newest output."""

    def __init__(self, *, verbose: bool) -> None:
        super().__init__(verbose=verbose)
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        self._text = Text
        self._console = Console(file=sys.stderr, highlight=False, markup=False, emoji=False)
        self._live = Live(console=self._console, refresh_per_second=8, transient=True)
        self._live.start()
        self._step: BuildEvent | None = None
        self._from = time.monotonic()
        self._cached = False
        self._layers: dict[str, tuple[int, int]] = {}
        self._drawn = 0.0

    def stage(self, text: str) -> None:
        self._finish()
        self._console.print(self._text(clean_line(text), style="bold"))

    def event(self, event: BuildEvent) -> None:
        if event.kind == "step":
            self._finish()
            self._step, self._from, self._cached, self._layers = event, time.monotonic(), False, {}
            self._draw("")
        elif event.kind == "cached":
            self._cached = True
        elif event.kind == "output":
            if self._verbose:
                self._console.print(self._text(f"        {clean_line(event.text)}", style="dim"))
            self._draw(clean_line(event.text))
        elif event.kind == "layer":
            self._layer(event)
        elif event.kind == "image":
            self._finish()

    def _layer(self, event: BuildEvent) -> None:
        if event.layer and event.size:
            self._layers[event.layer] = (event.current or 0, event.size)
        done = sum(current for current, _ in self._layers.values())
        total = sum(size for _, size in self._layers.values())
        amount = f"  {done / 1e6:.0f} of {total / 1e6:.0f} MB" if total else ""
        self._draw(f"{event.text}{amount}")

    def _draw(self, detail: str) -> None:
        now = time.monotonic()
        if now - self._drawn < _REDRAW and detail:
            return
        self._drawn = now
        seconds = int(now - self._from)
        what = ""
        if self._step is not None:
            what = f"[{self._step.number}/{self._step.total}] {clean_line(self._step.text, limit=70)}"
        line = self._text(f"  … {what} {seconds} s", style="cyan", no_wrap=True, overflow="ellipsis")
        if detail:
            line.append(f"\n      {detail}", style="dim")
        self._live.update(line)

    def _finish(self) -> None:
        if self._step is None:
            return
        seconds = time.monotonic() - self._from
        how = "cached" if self._cached else f"{seconds:.0f} s"
        self._console.print(
            self._text(
                f"  ✓ [{self._step.number}/{self._step.total}] {clean_line(self._step.text, limit=80)}  {how}"
            ),
            no_wrap=True,
            overflow="ellipsis",
        )
        self._step = None
        self._live.update(self._text(""))

    def failed(self, error: BuildFailedError) -> None:
        if self._step is not None:
            self._console.print(
                self._text(
                    f"  ✗ [{self._step.number}/{self._step.total}] {clean_line(error.step, limit=80)}",
                    style="red",
                )
            )
            self._step = None
        self.close()
        super().failed(error)

    def close(self) -> None:
        self._live.stop()


@contextlib.contextmanager
def watching(*, quiet: bool, verbose: bool) -> Iterator[Silent]:
    """Who watches: nobody, a person at a terminal, or a log."""
    watcher: Silent
    if quiet:
        watcher = Silent()
    elif sys.stderr.isatty():
        watcher = Terminal(verbose=verbose)
    else:
        watcher = Plain(verbose=verbose)
    try:
        yield watcher
    finally:
        watcher.close()
