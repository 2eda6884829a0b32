"""The curves of a bench as an SVG for light and dark pages.

The axes are logarithmic, 95 % intervals are bands, and crossovers are marked.
"""

from __future__ import annotations

import math
import textwrap
from html import escape
from typing import TYPE_CHECKING

from tfdoctor.render.bench import UNITS, format_duration, format_size, group_curves
from tfdoctor.render.placement import COLOURS
from tfdoctor.text import clean_line, join_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.bench import Bench, Crossover, Timed

__all__ = ["bench_svg"]

CHART_WIDTH, PANEL, LEFT, RIGHT, TOP = 760, 250, 70, 24, 60
DASHES = ("", "6 3", "2 3", "8 3 2 3")
"""Dash patterns, for readers who cannot tell the colours apart."""
SHAPE = (
    "text{font:12px sans-serif}.title{font-size:14px;font-weight:600}.head{font-weight:600}"
    ".grid{stroke-width:1}.mark{stroke-dasharray:3 3}.limit{stroke-width:1.5;fill:none}"
)
LIGHT = "text{fill:#1f2328}.page{fill:#ffffff}.grid{stroke:#d0d7de}.mark,.limit{stroke:#1f2328}"
DARK = "text{fill:#e6edf3}.page{fill:#0d1117}.grid{stroke:#30363d}.mark,.limit{stroke:#e6edf3}"
STYLES = {
    "auto": f"{SHAPE}{LIGHT}@media(prefers-color-scheme:dark){{{DARK}}}",
    "light": SHAPE + LIGHT,
    "dark": SHAPE + DARK,
}
LIMIT_DASHES = ("1 3", "1 6", "1 9", "4 2 1 2", "7 2 1 2")
"""Dash patterns of the limits, which have no colour."""


def bench_svg(bench: Bench, style: str = "auto") -> str:
    """Return one panel for each kind of work, with seconds over size. All external text is escaped.

    `style`: "light", "dark", or "auto" (the reader's preference).
    """
    panels: dict[str, dict[str, list[Timed]]] = {}
    for title, pieces in group_curves(bench.runs).items():
        kind = " ".join(part for part in (pieces[0].workload, pieces[0].model) if part)
        panels.setdefault(kind, {})[title] = pieces
    # Wrap the headline instead of cutting it: its end may say that the device is not a card.
    headline = bench.summary
    if bench.much_disturbed:
        headline = f"The measurement was disturbed. {headline}"
    if bench.stopped:
        headline = f"It ended before its time. {headline}"
    title_lines = textwrap.wrap(clean_line(headline, limit=1000), 84)[:5] or [""]
    parts, top = [], TOP + 18 * (len(title_lines) - 1)
    for kind, lines in panels.items():
        panel, rows = _draw_panel(bench, kind, lines, top)
        parts += panel
        top += PANEL + 18 * rows + 56
    title_rows = "".join(
        f'<text class="title" x="16" y="{26 + 18 * row}">{escape(line)}</text>'
        for row, line in enumerate(title_lines)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {CHART_WIDTH} {top}" '
        f'width="{CHART_WIDTH}" height="{top}" role="img">'
        f"<title>{escape(clean_line(bench.summary, limit=300))}</title><style>{STYLES[style]}</style>"
        f'<rect class="page" width="{CHART_WIDTH}" height="{top}"/>{title_rows}'
        f"{''.join(parts)}</svg>\n"
    )


def _draw_panel(bench: Bench, kind: str, lines: dict[str, list[Timed]], top: int) -> tuple[list[str], int]:
    """Return the SVG elements of a panel, and the number of rows in its legend."""
    pieces = [run for line in lines.values() for run in line]
    seconds = [value for run in pieces if run.seconds for value in (run.seconds.low, run.seconds.high)]
    x = _Axis([float(run.size) for run in pieces], LEFT, CHART_WIDTH - RIGHT)
    y = _Axis(
        [_round_to_tick(min(seconds), down=True), _round_to_tick(max(seconds), down=False)],
        top + PANEL,
        top + 8,
    )
    out = [f'<text class="head" x="{LEFT}" y="{top - 6}">{escape(kind)}: seconds a call (log)</text>']
    for tick in y.decades():
        offset = y.locate(tick)
        out.append(
            f'<line class="grid" x1="{LEFT}" x2="{CHART_WIDTH - RIGHT}" y1="{offset:.1f}" y2="{offset:.1f}"/>'
        )
        out.append(
            f'<text x="{LEFT - 8}" y="{offset + 4:.1f}" text-anchor="end">{format_duration(tick)}</text>'
        )
    sizes = sorted({run.size for run in pieces})
    for size in sizes:
        offset = x.locate(size)
        out.append(
            f'<line class="grid" x1="{offset:.1f}" x2="{offset:.1f}" y1="{top + 8}" y2="{top + PANEL}"/>'
        )
        out.append(
            f'<text x="{offset:.1f}" y="{top + PANEL + 16}" text-anchor="middle">{format_size(size)}</text>'
        )
    out.append(
        f'<text x="{CHART_WIDTH - RIGHT}" y="{top + PANEL + 32}" text-anchor="end">'
        f"{escape(UNITS[pieces[0].workload])} (log)</text>"
    )
    rows = [*lines]
    for number, (label, points) in enumerate(_find_limits(bench, pieces)):
        dash = LIMIT_DASHES[number % len(LIMIT_DASHES)]
        visible = _clip_line(points, x, y)
        if len(visible) < 2:  # far below all measured times
            continue
        out.append(f'<polyline class="limit" points="{" ".join(visible)}" stroke-dasharray="{dash}"/>')
        offset = top + PANEL + 36 + 18 * len(rows)
        out.append(
            f'<line class="limit" x1="16" x2="44" y1="{offset}" y2="{offset}" stroke-dasharray="{dash}"/>'
            f'<text x="52" y="{offset + 4}">{escape(label)}</text>'
        )
        rows.append(label)
    for number, (title, line) in enumerate(lines.items()):
        colour, dash = COLOURS[number % len(COLOURS)], DASHES[number % len(DASHES)]
        out += _draw_line(line, x, y, colour, dash)
        row = top + PANEL + 36 + 18 * number
        out.append(
            f'<line x1="16" x2="44" y1="{row}" y2="{row}" stroke="{colour}" stroke-width="3" '
            f'stroke-dasharray="{dash}"/><text x="52" y="{row + 4}">{escape(title)}</text>'
        )
    out += _draw_crossovers(bench, kind, x, top)
    return out, len(rows)


def _draw_crossovers(bench: Bench, kind: str, x: _Axis, top: int) -> list[str]:
    """Return a line at each crossover; devices with the same crossover share one label."""
    by_crossover: dict[tuple[int, str], list[str]] = {}
    for cross in bench.crossover:
        name = " ".join(part for part in (cross.workload, cross.model) if part)
        if name == kind and cross.size is not None:
            by_crossover.setdefault((cross.size, _format_type(cross, bench)), []).append(cross.device)
    out = []
    for number, ((size, dtype), devices) in enumerate(by_crossover.items()):
        offset = x.locate(size)
        # Put the label on the side of the line that has more space.
        fits_right = offset < (LEFT + CHART_WIDTH - RIGHT) / 2
        anchor = f'x="{offset + 4:.1f}"' if fits_right else f'x="{offset - 4:.1f}" text-anchor="end"'
        out.append(
            f'<line class="mark" x1="{offset:.1f}" x2="{offset:.1f}" y1="{top + 8}" y2="{top + PANEL}"/>'
            f'<text {anchor} y="{top + 20 + 15 * number}">'
            f"{escape(join_words(devices))}{dtype} faster from {format_size(size)}</text>"
        )
    return out


def _format_type(cross: Crossover, bench: Bench) -> str:
    """Return the type of a crossover if the bench has several types, else nothing."""
    return f" in {escape(cross.dtype)}" if len({other.dtype for other in bench.crossover}) > 1 else ""


def _draw_line(line: Sequence[Timed], x: _Axis, y: _Axis, colour: str, dash: str) -> list[str]:
    """Return the SVG elements of a curve: its band, its line and its points."""
    points = [(x.locate(run.size), run.seconds, run) for run in line if run.seconds is not None]
    band = [f"{offset:.1f},{y.locate(interval.high):.1f}" for offset, interval, _ in points]
    band += [f"{offset:.1f},{y.locate(interval.low):.1f}" for offset, interval, _ in reversed(points)]
    path = " ".join(f"{offset:.1f},{y.locate(interval.median):.1f}" for offset, interval, _ in points)
    bar = ""
    if len(points) == 1:  # a band needs two sizes
        offset, interval, _ = points[0]
        ends = f'y1="{y.locate(interval.low):.1f}" y2="{y.locate(interval.high):.1f}"'
        bar = f'<line x1="{offset:.1f}" x2="{offset:.1f}" {ends} stroke="{colour}" stroke-width="6" opacity="0.4"/>'
    dots = [
        f'<circle cx="{offset:.1f}" cy="{y.locate(interval.median):.1f}" r="3" fill="{colour}"><title>'
        f"{format_size(run.size)}: {format_duration(interval.median)} "
        f"({format_duration(interval.low)} to {format_duration(interval.high)})"
        "</title></circle>"
        for offset, interval, run in points
    ]
    return [
        f'<polygon points="{" ".join(band)}" fill="{colour}" opacity="0.2"/>',
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>',
        bar,
        *dots,
    ]


def _find_limits(bench: Bench, pieces: Sequence[Timed]) -> list[tuple[str, list[tuple[int, float]]]]:
    """Return (label, [(size, seconds)]) of the times that no curve can beat.

    These are given by the peak speed of the cards, or by the link speed for copies.
    """
    if pieces[0].workload == "copy":
        return _find_link_limits(bench, pieces)
    devices_by_peak: dict[tuple[str, float], list[str]] = {}
    for dtype in dict.fromkeys(run.dtype for run in pieces):
        for device in bench.devices:
            peak = device.peaks.get(dtype)
            timed = any(run.devices == (device.device,) and run.dtype == dtype for run in pieces)
            if peak is not None and timed:
                devices_by_peak.setdefault((dtype, peak), []).append(device.device)
    flop_by_size = sorted({(run.size, run.flop) for run in pieces if run.flop is not None})
    if len(flop_by_size) < 2:
        return []
    return [
        (
            f"the peak of {join_words(devices)} in {dtype}: {peak / 1000:.3g} TFLOP/s",
            [(size, flop / peak / 1e9) for size, flop in flop_by_size],
        )
        for (dtype, peak), devices in devices_by_peak.items()
    ]


def _find_link_limits(bench: Bench, pieces: Sequence[Timed]) -> list[tuple[str, list[tuple[int, float]]]]:
    pairs_by_link: dict[tuple[str, float], list[str]] = {}
    for link in bench.links:
        if link.gbps is not None and any(set(run.devices) == {link.one, link.other} for run in pieces):
            pairs_by_link.setdefault((link.how, link.gbps), []).append(f"{link.one} to {link.other}")
    bytes_by_size = sorted({(run.size, run.bytes) for run in pieces if run.bytes is not None})
    return [
        (
            f"{clean_line(link_type, limit=40)}, {join_words(pairs)}: {gbps:.3g} GB/s",
            [(size, count / gbps / 1e9) for size, count in bytes_by_size],
        )
        for (link_type, gbps), pairs in pairs_by_link.items()
        if len(bytes_by_size) > 1
    ]


def _clip_line(points: Sequence[tuple[int, float]], x: _Axis, y: _Axis) -> list[str]:
    """Return the points of a line from where it enters the picture."""
    out: list[str] = []
    previous: tuple[float, float] | None = None
    for size, seconds in points:
        offset, height = x.locate(size), y.locate(max(seconds, y.low * 1e-6))
        floor = y.locate(y.low)
        if seconds >= y.low:
            if previous is not None and previous[1] > floor:
                fraction = (previous[1] - floor) / (previous[1] - height)
                out.append(f"{previous[0] + (offset - previous[0]) * fraction:.1f},{floor:.1f}")
            out.append(f"{offset:.1f},{height:.1f}")
        previous = offset, height
    return out


class _Axis:
    """A logarithmic axis from the smallest to the largest value."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        self.low, self.high = min(values), max(values)
        if self.high <= self.low:
            self.low, self.high = self.low / 2, self.high * 2
        self._start, self._end = start, end

    def locate(self, value: float) -> float:
        """Return the position of a value on the axis."""
        fraction = math.log(value / self.low) / math.log(self.high / self.low)
        return self._start + (self._end - self._start) * fraction

    def decades(self) -> list[float]:
        """Return the powers of ten in range, and 2 and 5 times each if the range is small."""
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        steps = (1,) if self.high / self.low > 300 else (1, 2, 5)
        ticks = [10.0**power * step for power in range(first, last + 1) for step in steps]
        return [tick for tick in ticks if self.low * 0.999 <= tick <= self.high * 1.001]


def _round_to_tick(value: float, *, down: bool) -> float:
    """Return the next 1, 2, 5, 10 … below or above the value."""
    power = math.floor(math.log10(value))
    steps = [10.0**power * step for step in (1, 2, 5, 10)]
    return (
        max(step_value for step_value in steps if step_value <= value * 1.001)
        if down
        else min(step_value for step_value in steps if step_value >= value * 0.999)
    )
