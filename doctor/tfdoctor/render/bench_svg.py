"""The curves of a bench as a picture (SVG), for light and dark pages: log axes, bands of 95 %, the crossover marked."""

from __future__ import annotations

import math
import textwrap
from html import escape
from typing import TYPE_CHECKING

from tfdoctor.render.bench import UNITS, curves, duration, number_of
from tfdoctor.render.placement import COLOURS
from tfdoctor.text import clean_line, join_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.bench import Bench, Crossover, Timed

__all__ = ["bench_svg"]

WIDE, PANEL, LEFT, RIGHT, TOP = 760, 250, 70, 24, 60
DASHES = ("", "6 3", "2 3", "8 3 2 3")
"""Beside colours, for those who do not see them."""
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
"""Of lines that no curve can be below: they have no colour."""


def bench_svg(bench: Bench, style: str = "auto") -> str:
    """Return a panel for each kind of work: seconds over size. Everything from outside is text, escaped.

    `style`: "light", "dark", or "auto": as whoever looks at it prefers.
    """
    panels: dict[str, dict[str, list[Timed]]] = {}
    for title, pieces in curves(bench.runs).items():
        kind = " ".join(part for part in (pieces[0].workload, pieces[0].model) if part)
        panels.setdefault(kind, {})[title] = pieces
    # The first that is said, whole: what is cut off might be that it is no card.
    told = bench.summary
    if bench.much_disturbed:
        told = f"The measurement was disturbed. {told}"
    if bench.stopped:
        told = f"It ended before its time. {told}"
    head = textwrap.wrap(clean_line(told, limit=1000), 84)[:5] or [""]
    parts, top = [], TOP + 18 * (len(head) - 1)
    for kind, lines in panels.items():
        panel, rows = _panel(bench, kind, lines, top)
        parts += panel
        top += PANEL + 18 * rows + 56
    said = "".join(
        f'<text class="title" x="16" y="{26 + 18 * row}">{escape(line)}</text>'
        for row, line in enumerate(head)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {top}" width="{WIDE}" height="{top}" role="img">'
        f"<title>{escape(clean_line(bench.summary, limit=300))}</title><style>{STYLES[style]}</style>"
        f'<rect class="page" width="{WIDE}" height="{top}"/>{said}'
        f"{''.join(parts)}</svg>\n"
    )


def _panel(bench: Bench, kind: str, lines: dict[str, list[Timed]], top: int) -> tuple[list[str], int]:
    """Return its parts, and how many rows its legend has."""
    pieces = [one for line in lines.values() for one in line]
    seconds = [value for one in pieces if one.seconds for value in (one.seconds.low, one.seconds.high)]
    x = _Axis([float(one.size) for one in pieces], LEFT, WIDE - RIGHT)
    y = _Axis([_round(min(seconds), down=True), _round(max(seconds), down=False)], top + PANEL, top + 8)
    out = [f'<text class="head" x="{LEFT}" y="{top - 6}">{escape(kind)}: seconds a call (log)</text>']
    for tick in y.decades():
        at = y.locate(tick)
        out.append(f'<line class="grid" x1="{LEFT}" x2="{WIDE - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        out.append(f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{duration(tick)}</text>')
    sizes = sorted({one.size for one in pieces})
    for size in sizes:
        at = x.locate(size)
        out.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{top + 8}" y2="{top + PANEL}"/>')
        out.append(f'<text x="{at:.1f}" y="{top + PANEL + 16}" text-anchor="middle">{number_of(size)}</text>')
    out.append(
        f'<text x="{WIDE - RIGHT}" y="{top + PANEL + 32}" text-anchor="end">'
        f"{escape(UNITS[pieces[0].workload])} (log)</text>"
    )
    rows = [*lines]
    for number, (label, points) in enumerate(_limits(bench, pieces)):
        dash = LIMIT_DASHES[number % len(LIMIT_DASHES)]
        inside = _clip_line(points, x, y)
        if len(inside) < 2:  # far below all that was timed
            continue
        out.append(f'<polyline class="limit" points="{" ".join(inside)}" stroke-dasharray="{dash}"/>')
        at = top + PANEL + 36 + 18 * len(rows)
        out.append(
            f'<line class="limit" x1="16" x2="44" y1="{at}" y2="{at}" stroke-dasharray="{dash}"/>'
            f'<text x="52" y="{at + 4}">{escape(label)}</text>'
        )
        rows.append(label)
    for number, (title, line) in enumerate(lines.items()):
        colour, dash = COLOURS[number % len(COLOURS)], DASHES[number % len(DASHES)]
        out += _line(line, x, y, colour, dash)
        row = top + PANEL + 36 + 18 * number
        out.append(
            f'<line x1="16" x2="44" y1="{row}" y2="{row}" stroke="{colour}" stroke-width="3" '
            f'stroke-dasharray="{dash}"/><text x="52" y="{row + 4}">{escape(title)}</text>'
        )
    out += _crossings(bench, kind, x, top)
    return out, len(rows)


def _crossings(bench: Bench, kind: str, x: _Axis, top: int) -> list[str]:
    """Return a line at each crossover; devices that have the same are named together."""
    same: dict[tuple[int, str], list[str]] = {}
    for cross in bench.crossover:
        name = " ".join(part for part in (cross.workload, cross.model) if part)
        if name == kind and cross.size is not None:
            same.setdefault((cross.size, _format_type(cross, bench)), []).append(cross.device)
    out = []
    for number, ((size, dtype), devices) in enumerate(same.items()):
        at = x.locate(size)
        # Beside the line where there is more room.
        right = at < (LEFT + WIDE - RIGHT) / 2
        place = f'x="{at + 4:.1f}"' if right else f'x="{at - 4:.1f}" text-anchor="end"'
        out.append(
            f'<line class="mark" x1="{at:.1f}" x2="{at:.1f}" y1="{top + 8}" y2="{top + PANEL}"/>'
            f'<text {place} y="{top + 20 + 15 * number}">'
            f"{escape(join_words(devices))}{dtype} faster from {number_of(size)}</text>"
        )
    return out


def _format_type(cross: Crossover, bench: Bench) -> str:
    """Return where there are several types: which one."""
    return f" in {escape(cross.dtype)}" if len({one.dtype for one in bench.crossover}) > 1 else ""


def _line(line: Sequence[Timed], x: _Axis, y: _Axis, colour: str, dash: str) -> list[str]:
    points = [(x.locate(one.size), one.seconds, one) for one in line if one.seconds is not None]
    band = [f"{at:.1f},{y.locate(known.high):.1f}" for at, known, _ in points]
    band += [f"{at:.1f},{y.locate(known.low):.1f}" for at, known, _ in reversed(points)]
    path = " ".join(f"{at:.1f},{y.locate(known.median):.1f}" for at, known, _ in points)
    bar = ""
    if len(points) == 1:  # one size makes no band
        at, known, _ = points[0]
        ends = f'y1="{y.locate(known.low):.1f}" y2="{y.locate(known.high):.1f}"'
        bar = f'<line x1="{at:.1f}" x2="{at:.1f}" {ends} stroke="{colour}" stroke-width="6" opacity="0.4"/>'
    dots = [
        f'<circle cx="{at:.1f}" cy="{y.locate(known.median):.1f}" r="3" fill="{colour}"><title>'
        f"{number_of(one.size)}: {duration(known.median)} ({duration(known.low)} to {duration(known.high)})"
        "</title></circle>"
        for at, known, one in points
    ]
    return [
        f'<polygon points="{" ".join(band)}" fill="{colour}" opacity="0.2"/>',
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>',
        bar,
        *dots,
    ]


def _limits(bench: Bench, pieces: Sequence[Timed]) -> list[tuple[str, list[tuple[int, float]]]]:
    """Return (its name, [(size, seconds)]) of what no curve can be below: the cards' peaks, or what the ways carry."""
    if pieces[0].workload == "copy":
        return _ways(bench, pieces)
    known: dict[tuple[str, float], list[str]] = {}
    for dtype in dict.fromkeys(one.dtype for one in pieces):
        for device in bench.devices:
            peak = device.peaks.get(dtype)
            timed = any(one.devices == (device.device,) and one.dtype == dtype for one in pieces)
            if peak is not None and timed:
                known.setdefault((dtype, peak), []).append(device.device)
    counted = sorted({(one.size, one.flop) for one in pieces if one.flop is not None})
    if len(counted) < 2:
        return []
    return [
        (
            f"the peak of {join_words(devices)} in {dtype}: {peak / 1000:.3g} TFLOP/s",
            [(size, flop / peak / 1e9) for size, flop in counted],
        )
        for (dtype, peak), devices in known.items()
    ]


def _ways(bench: Bench, pieces: Sequence[Timed]) -> list[tuple[str, list[tuple[int, float]]]]:
    known: dict[tuple[str, float], list[str]] = {}
    for link in bench.links:
        if link.gbps is not None and any(set(one.devices) == {link.one, link.other} for one in pieces):
            known.setdefault((link.how, link.gbps), []).append(f"{link.one} to {link.other}")
    counted = sorted({(one.size, one.bytes) for one in pieces if one.bytes is not None})
    return [
        (
            f"{clean_line(how, limit=40)}, {join_words(pairs)}: {gbps:.3g} GB/s",
            [(size, count / gbps / 1e9) for size, count in counted],
        )
        for (how, gbps), pairs in known.items()
        if len(counted) > 1
    ]


def _clip_line(points: Sequence[tuple[int, float]], x: _Axis, y: _Axis) -> list[str]:
    """Return the part of a line that is not below the picture, from where it comes in."""
    out: list[str] = []
    before: tuple[float, float] | None = None
    for size, seconds in points:
        at, height = x.locate(size), y.locate(max(seconds, y.low * 1e-6))
        floor = y.locate(y.low)
        if seconds >= y.low:
            if before is not None and before[1] > floor:
                share = (before[1] - floor) / (before[1] - height)
                out.append(f"{before[0] + (at - before[0]) * share:.1f},{floor:.1f}")
            out.append(f"{at:.1f},{height:.1f}")
        before = at, height
    return out


class _Axis:
    """Logarithmic, from the smallest to the largest value."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        self.low, self.high = min(values), max(values)
        if self.high <= self.low:
            self.low, self.high = self.low / 2, self.high * 2
        self._start, self._end = start, end

    def locate(self, value: float) -> float:
        """Its place."""
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self._start + (self._end - self._start) * share

    def decades(self) -> list[float]:
        """Return 1, 10, 100 … within; 2 and 5 of each, too, where they are few."""
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        steps = (1,) if self.high / self.low > 300 else (1, 2, 5)
        ticks = [10.0**power * step for power in range(first, last + 1) for step in steps]
        return [one for one in ticks if self.low * 0.999 <= one <= self.high * 1.001]


def _round(value: float, *, down: bool) -> float:
    """Return the next of 1, 2, 5, 10 … below or above."""
    power = math.floor(math.log10(value))
    steps = [10.0**power * step for step in (1, 2, 5, 10)]
    return (
        max(one for one in steps if one <= value * 1.001)
        if down
        else min(one for one in steps if one >= value * 0.999)
    )
