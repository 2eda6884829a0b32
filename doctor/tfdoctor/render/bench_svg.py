"""The curves of a bench as a picture (SVG), for light and dark pages: log axes, bands of 95 %, the crossover marked."""

from __future__ import annotations

import math
import textwrap
from html import escape
from typing import TYPE_CHECKING

from tfdoctor.render.bench import curves, duration, number_of
from tfdoctor.render.placement import COLOURS
from tfdoctor.text import clean_line, listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.bench import Bench, Crossover, Timed

__all__ = ["bench_svg"]

WIDE, PANEL, LEFT, RIGHT, TOP = 760, 250, 70, 24, 60
DASHES = ("", "6 3", "2 3", "8 3 2 3")
"""Beside colours, for those who do not see them."""
UNITS = {
    "matmul": "rows of the matrices",
    "conv": "pixels of a side",
    "train": "batch",
    "copy": "bytes",
    "allreduce": "bytes",
}
STYLE = (
    "text{font:12px sans-serif;fill:#1f2328}.title{font-size:14px;font-weight:600}.head{font-weight:600}"
    ".page{fill:#ffffff}.grid{stroke:#d0d7de;stroke-width:1}.mark{stroke:#1f2328;stroke-dasharray:3 3}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.page{fill:#0d1117}.grid{stroke:#30363d}"
    ".mark{stroke:#e6edf3}}"
)


def bench_svg(bench: Bench) -> str:
    """A panel for each kind of work: seconds over size. Everything from outside is text, escaped."""
    panels: dict[str, dict[str, list[Timed]]] = {}
    for title, pieces in curves(bench.runs).items():
        kind = " ".join(part for part in (pieces[0].workload, pieces[0].model) if part)
        panels.setdefault(kind, {})[title] = pieces
    # The first that is said, whole: what is cut off might be that it is no card.
    head = textwrap.wrap(clean_line(bench.summary, limit=1000), 92)[:4] or [""]
    parts, top = [], TOP + 18 * (len(head) - 1)
    for kind, lines in panels.items():
        legend = 18 * len(lines)
        parts += _panel(bench, kind, lines, top)
        top += PANEL + legend + 56
    said = "".join(
        f'<text class="title" x="16" y="{26 + 18 * row}">{escape(line)}</text>'
        for row, line in enumerate(head)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {top}" width="{WIDE}" height="{top}" role="img">'
        f"<title>{escape(clean_line(bench.summary, limit=300))}</title><style>{STYLE}</style>"
        f'<rect class="page" width="{WIDE}" height="{top}"/>{said}'
        f"{''.join(parts)}</svg>\n"
    )


def _panel(bench: Bench, kind: str, lines: dict[str, list[Timed]], top: int) -> list[str]:
    pieces = [one for line in lines.values() for one in line]
    seconds = [value for one in pieces if one.seconds for value in (one.seconds.low, one.seconds.high)]
    x = _Axis([float(one.size) for one in pieces], LEFT, WIDE - RIGHT)
    y = _Axis([_round(min(seconds), down=True), _round(max(seconds), down=False)], top + PANEL, top + 8)
    out = [f'<text class="head" x="{LEFT}" y="{top - 6}">{escape(kind)}: seconds a call (log)</text>']
    for tick in y.decades():
        at = y.at(tick)
        out.append(f'<line class="grid" x1="{LEFT}" x2="{WIDE - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        out.append(f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{duration(tick)}</text>')
    sizes = sorted({one.size for one in pieces})
    for size in sizes:
        at = x.at(size)
        out.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{top + 8}" y2="{top + PANEL}"/>')
        out.append(f'<text x="{at:.1f}" y="{top + PANEL + 16}" text-anchor="middle">{number_of(size)}</text>')
    out.append(
        f'<text x="{WIDE - RIGHT}" y="{top + PANEL + 32}" text-anchor="end">'
        f"{escape(UNITS[pieces[0].workload])} (log)</text>"
    )
    out += _peaks(bench, pieces, x, y)
    for number, (title, line) in enumerate(lines.items()):
        colour, dash = COLOURS[number % len(COLOURS)], DASHES[number % len(DASHES)]
        out += _line(line, x, y, colour, dash)
        row = top + PANEL + 36 + 18 * number
        out.append(
            f'<line x1="16" x2="44" y1="{row}" y2="{row}" stroke="{colour}" stroke-width="3" '
            f'stroke-dasharray="{dash}"/><text x="52" y="{row + 4}">{escape(title)}</text>'
        )
    rows = 0
    for cross in bench.crossover:
        name = " ".join(part for part in (cross.workload, cross.model) if part)
        if name == kind and cross.size is not None:
            at = x.at(cross.size)
            out.append(
                f'<line class="mark" x1="{at:.1f}" x2="{at:.1f}" y1="{top + 8}" y2="{top + PANEL}">'
                f"<title>{escape(cross.device)} is faster from {cross.size} on</title></line>"
                f'<text x="{at + 4:.1f}" y="{top + 20 + 15 * rows}">'
                f"{escape(cross.device)}{_of_type(cross, bench)} faster from {number_of(cross.size)}</text>"
            )
            rows += 1
    return out


def _of_type(cross: Crossover, bench: Bench) -> str:
    """Where there are several types: which one."""
    return f" in {escape(cross.dtype)}" if len({one.dtype for one in bench.crossover}) > 1 else ""


def _line(line: Sequence[Timed], x: _Axis, y: _Axis, colour: str, dash: str) -> list[str]:
    points = [(x.at(one.size), one.seconds, one) for one in line if one.seconds is not None]
    band = [f"{at:.1f},{y.at(known.high):.1f}" for at, known, _ in points]
    band += [f"{at:.1f},{y.at(known.low):.1f}" for at, known, _ in reversed(points)]
    path = " ".join(f"{at:.1f},{y.at(known.median):.1f}" for at, known, _ in points)
    dots = [
        f'<circle cx="{at:.1f}" cy="{y.at(known.median):.1f}" r="3" fill="{colour}"><title>'
        f"{number_of(one.size)}: {duration(known.median)} ({duration(known.low)} to {duration(known.high)})"
        "</title></circle>"
        for at, known, one in points
    ]
    return [
        f'<polygon points="{" ".join(band)}" fill="{colour}" opacity="0.2"/>',
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>',
        *dots,
    ]


def _peaks(bench: Bench, pieces: Sequence[Timed], x: _Axis, y: _Axis) -> list[str]:
    """The time that each card's peak would take: no curve can be below it in float32."""
    counted = sorted({(one.size, one.flop) for one in pieces if one.flop is not None})
    out: list[str] = []
    named: list[str] = []
    for device in bench.devices:
        if device.peak_gflops is None or len(counted) < 2:
            continue
        seen = [(size, flop / device.peak_gflops / 1e9) for size, flop in counted]
        path = " ".join(f"{x.at(size):.1f},{y.at(time):.1f}" for size, time in seen if time >= y.low)
        out.append(
            f'<polyline class="mark" points="{path}" fill="none"><title>the peak of {escape(device.device)} '
            f"in float32: {device.peak_gflops:.0f} GFLOP/s</title></polyline>"
        )
        named.append(device.device)
    if named:
        out.append(
            f'<text x="{WIDE - RIGHT - 6}" y="{y.at(y.low) - 8:.1f}" text-anchor="end">'
            f"fine dots: the peak of {escape(listed(named))} in float32</text>"
        )
    return out


class _Axis:
    """Logarithmic, from the smallest to the largest value."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        self.low, self.high = min(values), max(values)
        if self.high <= self.low:
            self.low, self.high = self.low / 2, self.high * 2
        self._start, self._end = start, end

    def at(self, value: float) -> float:
        """Its place."""
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self._start + (self._end - self._start) * share

    def decades(self) -> list[float]:
        """1, 10, 100 … within; 2 and 5 of each, too, where they are few."""
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        steps = (1,) if self.high / self.low > 300 else (1, 2, 5)
        ticks = [10.0**power * step for power in range(first, last + 1) for step in steps]
        return [one for one in ticks if self.low * 0.999 <= one <= self.high * 1.001]


def _round(value: float, *, down: bool) -> float:
    """The next of 1, 2, 5, 10 … below or above."""
    power = math.floor(math.log10(value))
    steps = [10.0**power * step for step in (1, 2, 5, 10)]
    return (
        max(one for one in steps if one <= value * 1.001)
        if down
        else min(one for one in steps if one >= value * 0.999)
    )
