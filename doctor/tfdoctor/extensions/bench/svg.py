"""Draw the curves of a benchmark as an SVG that is readable on light and dark pages.

Both axes are logarithmic. Bands are 95 % confidence intervals, and vertical lines mark the crossovers.
"""

from __future__ import annotations

import math
import textwrap
from html import escape
from typing import TYPE_CHECKING

from tfdoctor.core.text import clean_line, join_words
from tfdoctor.extensions.bench.render import SIZE_UNITS, format_duration, format_size, group_curves
from tfdoctor.render.placement import COLOURS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.extensions.bench.models import Bench, Crossover, Measurement

__all__ = ["make_bench_svg"]

CHART_WIDTH, PANEL_HEIGHT, LEFT_MARGIN, RIGHT_MARGIN, TOP_MARGIN = 760, 250, 70, 24, 60
"""The width of the chart, the height of a panel, and the left, right and top margins, in pixels."""
TEXT_ROW_HEIGHT = 18
"""The height of a line of the title or of the legend, in pixels."""
DASHES = ("", "6 3", "2 3", "8 3 2 3")
"""The dash patterns of the curves, for readers who cannot tell the colours apart."""
BASE_STYLE = (
    "text{font:12px sans-serif}.title{font-size:14px;font-weight:600}.head{font-weight:600}"
    ".grid{stroke-width:1}.mark{stroke-dasharray:3 3}.limit{stroke-width:1.5;fill:none}"
)
LIGHT_STYLE = "text{fill:#1f2328}.page{fill:#ffffff}.grid{stroke:#d0d7de}.mark,.limit{stroke:#1f2328}"
DARK_STYLE = "text{fill:#e6edf3}.page{fill:#0d1117}.grid{stroke:#30363d}.mark,.limit{stroke:#e6edf3}"
STYLES = {
    "auto": f"{BASE_STYLE}{LIGHT_STYLE}@media(prefers-color-scheme:dark){{{DARK_STYLE}}}",
    "light": BASE_STYLE + LIGHT_STYLE,
    "dark": BASE_STYLE + DARK_STYLE,
}
LIMIT_DASHES = ("1 3", "1 6", "1 9", "4 2 1 2", "7 2 1 2")
"""The dash patterns of the lines for limits of the hardware, which all have the same colour."""


def make_bench_svg(bench: Bench, style: str = "auto") -> str:
    """Return an SVG that shows the seconds by size, with a panel for each kind of work.

    External text in it is escaped. `style` is "light", "dark", or "auto" for the reader's preference.
    """
    panels: dict[str, dict[str, list[Measurement]]] = {}
    for title, curve in group_curves(bench.measurements).items():
        kind = " ".join(part for part in (curve[0].workload, curve[0].model) if part)
        panels.setdefault(kind, {})[title] = curve
    # Wrap the headline instead of cutting it: its end may say that the device is not a GPU.
    headline = bench.summary
    if bench.serious_disturbance_text:
        headline = f"The measurement was disturbed. {headline}"
    if bench.stop_reason:
        headline = f"It ended before its time. {headline}"
    title_lines = textwrap.wrap(clean_line(headline, limit=1000), 84)[:5] or [""]
    parts, top = [], TOP_MARGIN + TEXT_ROW_HEIGHT * (len(title_lines) - 1)
    for kind, curve_by_title in panels.items():
        panel, legend_rows = _draw_panel(bench, kind, curve_by_title, top)
        parts += panel
        top += PANEL_HEIGHT + TEXT_ROW_HEIGHT * legend_rows + 56
    title_rows = "".join(
        f'<text class="title" x="16" y="{26 + TEXT_ROW_HEIGHT * row}">{escape(line)}</text>'
        for row, line in enumerate(title_lines)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {CHART_WIDTH} {top}" '
        f'width="{CHART_WIDTH}" height="{top}" role="img">'
        f"<title>{escape(clean_line(bench.summary, limit=300))}</title><style>{STYLES[style]}</style>"
        f'<rect class="page" width="{CHART_WIDTH}" height="{top}"/>{title_rows}'
        f"{''.join(parts)}</svg>\n"
    )


def _draw_panel(
    bench: Bench, kind: str, curve_by_title: dict[str, list[Measurement]], top: int
) -> tuple[list[str], int]:
    """Return the SVG elements of a panel that begins at `top`, and the number of rows in its legend."""
    measurements = [measurement for curve in curve_by_title.values() for measurement in curve]
    intervals = [measurement.seconds for measurement in measurements if measurement.seconds]
    interval_ends = [end for interval in intervals for end in (interval.low, interval.high)]
    x_axis = _Axis(
        [float(measurement.size) for measurement in measurements], LEFT_MARGIN, CHART_WIDTH - RIGHT_MARGIN
    )
    y_axis = _Axis(
        [_round_to_tick(min(interval_ends), down=True), _round_to_tick(max(interval_ends), down=False)],
        top + PANEL_HEIGHT,
        top + 8,
    )
    elements = [
        f'<text class="head" x="{LEFT_MARGIN}" y="{top - 6}">{escape(kind)}: seconds a call (log)</text>'
    ]
    for tick in y_axis.list_ticks():
        position = y_axis.locate(tick)
        elements.append(
            f'<line class="grid" x1="{LEFT_MARGIN}" x2="{CHART_WIDTH - RIGHT_MARGIN}" y1="{position:.1f}" y2="{position:.1f}"/>'
        )
        elements.append(
            f'<text x="{LEFT_MARGIN - 8}" y="{position + 4:.1f}" text-anchor="end">{format_duration(tick)}</text>'
        )
    sizes = sorted({measurement.size for measurement in measurements})
    for size in sizes:
        position = x_axis.locate(size)
        elements.append(
            f'<line class="grid" x1="{position:.1f}" x2="{position:.1f}" y1="{top + 8}" y2="{top + PANEL_HEIGHT}"/>'
        )
        elements.append(
            f'<text x="{position:.1f}" y="{top + PANEL_HEIGHT + 16}" text-anchor="middle">{format_size(size)}</text>'
        )
    elements.append(
        f'<text x="{CHART_WIDTH - RIGHT_MARGIN}" y="{top + PANEL_HEIGHT + 32}" text-anchor="end">'
        f"{escape(SIZE_UNITS[measurements[0].workload])} (log)</text>"
    )
    labels = [*curve_by_title]
    for number, (label, points) in enumerate(_find_limits(bench, measurements)):
        dash = LIMIT_DASHES[number % len(LIMIT_DASHES)]
        visible = _clip_line(points, x_axis, y_axis)
        if len(visible) < 2:  # far below all measured times
            continue
        elements.append(f'<polyline class="limit" points="{" ".join(visible)}" stroke-dasharray="{dash}"/>')
        position = top + PANEL_HEIGHT + 36 + TEXT_ROW_HEIGHT * len(labels)
        elements.append(
            f'<line class="limit" x1="16" x2="44" y1="{position}" y2="{position}" stroke-dasharray="{dash}"/>'
            f'<text x="52" y="{position + 4}">{escape(label)}</text>'
        )
        labels.append(label)
    for number, (title, curve) in enumerate(curve_by_title.items()):
        colour, dash = COLOURS[number % len(COLOURS)], DASHES[number % len(DASHES)]
        elements += _draw_curve(curve, x_axis, y_axis, colour, dash)
        legend_y = top + PANEL_HEIGHT + 36 + TEXT_ROW_HEIGHT * number
        elements.append(
            f'<line x1="16" x2="44" y1="{legend_y}" y2="{legend_y}" stroke="{colour}" stroke-width="3" '
            f'stroke-dasharray="{dash}"/><text x="52" y="{legend_y + 4}">{escape(title)}</text>'
        )
    elements += _draw_crossovers(bench, kind, x_axis, top)
    return elements, len(labels)


def _draw_crossovers(bench: Bench, kind: str, x_axis: _Axis, top: int) -> list[str]:
    """Return the SVG elements of the crossovers. Devices with the same crossover share a line."""
    devices_by_crossover: dict[tuple[int, str], list[str]] = {}
    for crossover in bench.crossovers:
        name = " ".join(part for part in (crossover.workload, crossover.model) if part)
        if name == kind and crossover.min_faster_size is not None:
            devices_by_crossover.setdefault(
                (crossover.min_faster_size, _format_type(crossover, bench)), []
            ).append(crossover.device)
    elements = []
    for index, ((size, dtype), devices) in enumerate(devices_by_crossover.items()):
        x = x_axis.locate(size)
        # Put the label on the side of the line that has more space.
        fits_right = x < (LEFT_MARGIN + CHART_WIDTH - RIGHT_MARGIN) / 2
        anchor = f'x="{x + 4:.1f}"' if fits_right else f'x="{x - 4:.1f}" text-anchor="end"'
        elements.append(
            f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{top + 8}" y2="{top + PANEL_HEIGHT}"/>'
            f'<text {anchor} y="{top + 20 + 15 * index}">'
            f"{escape(join_words(devices))}{dtype} faster from {format_size(size)}</text>"
        )
    return elements


def _format_type(crossover: Crossover, bench: Bench) -> str:
    """Return the data type of a crossover as text, or "" if all crossovers have the same type."""
    return f" in {escape(crossover.dtype)}" if len({item.dtype for item in bench.crossovers}) > 1 else ""


def _draw_curve(
    curve: Sequence[Measurement], x_axis: _Axis, y_axis: _Axis, colour: str, dash: str
) -> list[str]:
    """Return the SVG elements of a curve: its band, its line and its points."""
    points = [
        (x_axis.locate(measurement.size), measurement.seconds, measurement)
        for measurement in curve
        if measurement.seconds is not None
    ]
    band = [f"{x:.1f},{y_axis.locate(interval.high):.1f}" for x, interval, _ in points]
    band += [f"{x:.1f},{y_axis.locate(interval.low):.1f}" for x, interval, _ in reversed(points)]
    path = " ".join(f"{x:.1f},{y_axis.locate(interval.median):.1f}" for x, interval, _ in points)
    error_bar = ""
    if len(points) == 1:  # a band needs two sizes
        x, interval, _ = points[0]
        ends = f'y1="{y_axis.locate(interval.low):.1f}" y2="{y_axis.locate(interval.high):.1f}"'
        error_bar = (
            f'<line x1="{x:.1f}" x2="{x:.1f}" {ends} stroke="{colour}" stroke-width="6" opacity="0.4"/>'
        )
    dots = [
        f'<circle cx="{x:.1f}" cy="{y_axis.locate(interval.median):.1f}" r="3" fill="{colour}"><title>'
        f"{format_size(measurement.size)}: {format_duration(interval.median)} "
        f"({format_duration(interval.low)} to {format_duration(interval.high)})"
        "</title></circle>"
        for x, interval, measurement in points
    ]
    return [
        f'<polygon points="{" ".join(band)}" fill="{colour}" opacity="0.2"/>',
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>',
        error_bar,
        *dots,
    ]


def _find_limits(
    bench: Bench, measurements: Sequence[Measurement]
) -> list[tuple[str, list[tuple[int, float]]]]:
    """Return (label, [(size, seconds)]) for each limit: the shortest times that the hardware allows.

    A limit follows from the peak speed of a GPU, or for copies from the speed of the link.
    """
    if measurements[0].workload == "copy":
        return _find_link_limits(bench, measurements)
    devices_by_peak: dict[tuple[str, float], list[str]] = {}
    for dtype in dict.fromkeys(measurement.dtype for measurement in measurements):
        for device in bench.devices:
            peak = device.peak_gflops_by_dtype.get(dtype)
            was_timed = any(m.devices == (device.device,) and m.dtype == dtype for m in measurements)
            if peak is not None and was_timed:
                devices_by_peak.setdefault((dtype, peak), []).append(device.device)
    flop_by_size = sorted(
        {
            (measurement.size, measurement.flop_count)
            for measurement in measurements
            if measurement.flop_count is not None
        }
    )
    if len(flop_by_size) < 2:  # one point makes no line
        return []
    return [
        (
            f"the peak of {join_words(devices)} in {dtype}: {peak / 1000:.3g} TFLOP/s",
            [(size, flop / peak / 1e9) for size, flop in flop_by_size],
        )
        for (dtype, peak), devices in devices_by_peak.items()
    ]


def _find_link_limits(
    bench: Bench, measurements: Sequence[Measurement]
) -> list[tuple[str, list[tuple[int, float]]]]:
    """Return (label, [(size, seconds)]) for each link: the shortest times in which it can copy the data."""
    pairs_by_link: dict[tuple[str, float], list[str]] = {}
    for link in bench.links:
        if link.max_gbps is not None and any(
            set(m.devices) == {link.first_device, link.second_device} for m in measurements
        ):
            pairs_by_link.setdefault((link.description, link.max_gbps), []).append(
                f"{link.first_device} to {link.second_device}"
            )
    bytes_by_size = sorted(
        {(m.size, m.transferred_bytes) for m in measurements if m.transferred_bytes is not None}
    )
    return [
        (
            f"{clean_line(link_type, limit=40)}, {join_words(pairs)}: {gbps:.3g} GB/s",
            [(size, count / gbps / 1e9) for size, count in bytes_by_size],
        )
        for (link_type, gbps), pairs in pairs_by_link.items()
        if len(bytes_by_size) > 1
    ]


def _clip_line(points: Sequence[tuple[int, float]], x_axis: _Axis, y_axis: _Axis) -> list[str]:
    """Return the SVG points of the part of a line that is above the lower edge of the panel."""
    visible_points: list[str] = []
    previous_point: tuple[float, float] | None = None
    for size, seconds in points:
        x, y = x_axis.locate(size), y_axis.locate(max(seconds, y_axis.low * 1e-6))
        floor_y = y_axis.locate(y_axis.low)
        if seconds >= y_axis.low:
            if previous_point is not None and previous_point[1] > floor_y:  # the line enters from below
                previous_x, previous_y = previous_point
                fraction = (previous_y - floor_y) / (previous_y - y)
                visible_points.append(f"{previous_x + (x - previous_x) * fraction:.1f},{floor_y:.1f}")
            visible_points.append(f"{x:.1f},{y:.1f}")
        previous_point = x, y
    return visible_points


class _Axis:
    """A logarithmic axis from the smallest to the largest value.

    `start` and `end` are the positions of these values in pixels.
    """

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        self.low, self.high = min(values), max(values)
        if self.high <= self.low:
            self.low, self.high = self.low / 2, self.high * 2
        self._start, self._end = start, end

    def locate(self, value: float) -> float:
        """Return the position of a value on the axis, in pixels."""
        fraction = math.log(value / self.low) / math.log(self.high / self.low)
        return self._start + (self._end - self._start) * fraction

    def list_ticks(self) -> list[float]:
        """Return the powers of ten on the axis and, if the axis is short, 2 and 5 times these powers."""
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        steps = (1,) if self.high / self.low > 300 else (1, 2, 5)
        ticks = [10.0**power * step for power in range(first, last + 1) for step in steps]
        return [tick for tick in ticks if self.low * 0.999 <= tick <= self.high * 1.001]


def _round_to_tick(value: float, *, down: bool) -> float:
    """Round down or up to the nearest number that is 1, 2 or 5 times a power of ten.

    A value that is such a number, within a tolerance for rounding errors, is not changed.
    """
    power = math.floor(math.log10(value))
    steps = [10.0**power * step for step in (1, 2, 5, 10)]
    return (
        max(candidate for candidate in steps if candidate <= value * 1.001)
        if down
        else min(candidate for candidate in steps if candidate >= value * 0.999)
    )
