"""Display progress on standard error: animated on a terminal, as lines elsewhere, none with `--quiet`."""

from __future__ import annotations

import contextlib
import re
import time
from typing import TYPE_CHECKING

from tfdoctor.core.text import clean_line
from tfdoctor.diagnosis.progress import Progress
from tfdoctor.render.paragraphs import truncate_text
from tfdoctor.render.terminal import ERR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["open_progress", "show_read_progress"]

REDRAW_INTERVAL_S = 0.1
"""The shortest time between two updates of an animation, in seconds."""
PROGRESS_DELAY_S = 0.8
"""The time before the progress of reading a file is displayed, in seconds."""
MAX_FAILED_LINES = 20
"""The largest number of lines of a failed step that are printed."""


MIN_RATE_SECONDS = 3
"""The time after which the speed of a download is known well enough to say how long the rest takes, in seconds."""
_WHEEL_LINE = re.compile(
    r"\s{0,8}(?:Downloading|Downloaded) (?P<name>[\w.+-]{1,200})(?: \((?P<size>[\d.]{1,12}) ?(?P<unit>[kKMG]i?)B\))?\s*$"
)
"""Matches the lines of uv and pip about one wheel. Only the line at its beginning has the size."""
_UNIT_BYTES = {
    "k": 1e3,
    "K": 1e3,
    "M": 1e6,
    "G": 1e9,
    "ki": 1 << 10,
    "Ki": 1 << 10,
    "Mi": 1 << 20,
    "Gi": 1 << 30,
}


class _QuietProgress(Progress):
    """A display that prints only the output of failed steps, because the error message refers to it."""

    def __init__(self, *, verbose: bool) -> None:
        self._verbose = verbose

    def report_failure(self, step: str, lines: Sequence[str]) -> None:
        self._mark_failed(step)
        self.close()
        if self._verbose or not lines:  # with `verbose`, the lines were printed already
            return
        self._write_line("  its last lines:")
        for line in lines[-MAX_FAILED_LINES:]:
            self._write_line(f"    | {clean_line(line)}")

    def close(self) -> None:
        """Stop the animation, if there is one."""

    def _mark_failed(self, step: str) -> None:
        """Mark a step as failed. An empty text means the running step."""

    def _write_line(self, text: str) -> None:
        ERR.write(f"{text}\n")
        ERR.flush()


class _LineProgress(_QuietProgress):
    """A display that prints a line for each stage and step and, if `verbose` is set, all output."""

    def begin_stage(self, text: str) -> None:
        self._write_line(clean_line(text))

    def begin_step(self, number: int, total: int, text: str) -> None:
        self._write_line(f"  [{number}/{total}] {clean_line(text, limit=100)}")

    def report_cached(self) -> None:
        self._write_line("        from the cache")

    def report_line(self, text: str) -> None:
        if self._verbose:
            self._write_line(f"        {clean_line(text)}")


class _AnimatedProgress(_LineProgress):
    """A display with an animated line for the running step and its latest output.

    Finished steps are printed as lines above it.
    """

    def __init__(self, *, verbose: bool) -> None:
        super().__init__(verbose=verbose)
        from rich.live import Live

        self._console = ERR.make_console()
        self._live_display = Live(console=self._console, refresh_per_second=8, transient=True)
        self._live_display.start()
        self._step = ""
        self._start_time = time.monotonic()
        self._is_cached = False
        self._layers: dict[str, tuple[int, int]] = {}
        self._last_update = 0.0

    def begin_stage(self, text: str) -> None:
        self.end_step()
        self._print(clean_line(text), "bold")

    def begin_step(self, number: int, total: int, text: str) -> None:
        self.end_step()
        self._step, self._start_time = f"[{number}/{total}] {clean_line(text, limit=80)}", time.monotonic()
        self._is_cached, self._layers = False, {}
        self._draw("")

    def report_cached(self) -> None:
        self._is_cached = True

    def report_line(self, text: str) -> None:
        if self._verbose:
            self._print(f"        {clean_line(text)}", "")
        if match := _WHEEL_LINE.match(text):
            name, size_text, unit = match["name"], match["size"], match["unit"]
            if size_text:
                self._layers[name] = (0, int(float(size_text) * _UNIT_BYTES[unit]))
            elif name in self._layers:
                self._layers[name] = (self._layers[name][1], self._layers[name][1])
        self._draw(clean_line(text).strip())

    def report_layer(self, name: str, text: str, current: int | None, size: int | None) -> None:
        if name and size:
            self._layers[name] = (current or 0, size)
        self._draw(text)

    def _describe_amount(self) -> str:
        """Return how much is downloaded, and the time that the rest takes at the same speed, as text."""
        bytes_done = sum(current for current, _ in self._layers.values())
        bytes_total = sum(size for _, size in self._layers.values())
        if not bytes_total:
            return ""
        seconds = time.monotonic() - self._start_time
        text = f"{bytes_done / 1e6:.0f} of {bytes_total / 1e6:.0f} MB"
        if bytes_done and bytes_done < bytes_total and seconds > MIN_RATE_SECONDS:
            seconds_left = int(seconds * (bytes_total - bytes_done) / bytes_done)
            text += f", {seconds_left // 60}:{seconds_left % 60:02} left"
        return text

    def end_step(self) -> None:
        if self._step:
            status = "cached" if self._is_cached else f"{time.monotonic() - self._start_time:.0f} s"
            step = truncate_text(self._step, max(self._console.width - len(status) - 7, 10))
            self._finish_step(f"  ✓ {step}  {status}", "")

    def close(self) -> None:
        self._live_display.stop()

    def _mark_failed(self, step: str) -> None:
        if self._step:
            number = self._step.partition(" ")[0]
            self._finish_step(
                f"  ✗ {number} {clean_line(step, limit=80)}" if step else f"  ✗ {self._step}", "red"
            )

    def _finish_step(self, text: str, style: str) -> None:
        self._print(text, style)
        self._step = ""
        self._live_display.update("")

    def _print(self, text: str, style: str) -> None:
        from rich.text import Text

        self._console.print(Text(text, style=style), no_wrap=True, overflow="ellipsis")

    def _draw(self, detail: str) -> None:
        """Draw the running step with `detail` below it, unless the last update was too recent."""
        from rich.text import Text

        now = time.monotonic()
        if (
            now - self._last_update < REDRAW_INTERVAL_S and detail
        ):  # a new step has no detail and is drawn at once
            return
        self._last_update = now
        amount = self._describe_amount()
        times = f"  {int(now - self._start_time)} s" + (f", {amount}" if amount else "")
        step = truncate_text(self._step, max(self._console.width - len(times) - 5, 10))  # not the times
        line = Text(f"  … {step}{times}", no_wrap=True, overflow="ellipsis")
        if detail:
            line.append(f"\n      {detail}")
        self._live_display.update(line)


@contextlib.contextmanager
def open_progress(*, quiet: bool, verbose: bool = False, animated: bool = True) -> Iterator[Progress]:
    """Yield a progress display.

    With `quiet`, it prints no progress. With `animated`, it is animated on a terminal, which other output would
    disturb. Otherwise it prints plain lines.
    """
    display: _QuietProgress
    if quiet:
        display = _QuietProgress(verbose=verbose)
    elif animated and ERR.is_terminal:
        display = _AnimatedProgress(verbose=verbose)
    else:
        display = _LineProgress(verbose=verbose)
    try:
        yield display
    finally:
        display.close()


# ---------------------------------------------------------------- reading a file


@contextlib.contextmanager
def show_read_progress(name: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that displays the progress of reading a file.

    Its arguments are the number of bytes read and the total. It displays nothing before `PROGRESS_DELAY_S` is over.
    """
    start_time = time.monotonic()
    bars: list[Callable[[int, int], None]] = []
    last_update = 0.0
    with contextlib.ExitStack() as stack:

        def update(bytes_read: int, total_bytes: int) -> None:
            nonlocal last_update
            now = time.monotonic()
            if now - start_time < PROGRESS_DELAY_S or now - last_update < REDRAW_INTERVAL_S:
                return
            last_update = now
            if not bars:
                bars.append(stack.enter_context(_open_bar(name)))
            bars[0](bytes_read, total_bytes)

        yield update


@contextlib.contextmanager
def _open_bar(name: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that updates a progress bar, with the arguments of `show_read_progress`."""
    from rich.progress import BarColumn, DownloadColumn, TaskProgressColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        DownloadColumn(),
    )
    with Bar(*columns, console=ERR.make_console(), transient=True, auto_refresh=False) as bar:
        task = bar.add_task(clean_line(name, limit=40), total=None)

        def update(bytes_read: int, total_bytes: int) -> None:
            bar.update(task, completed=bytes_read, total=total_bytes, refresh=True)

        yield update
