"""Draw the output of tfdoctor: docs/pictures/*.svg, each for a light and a dark page.

    python scripts/make_pictures.py            # needs tfdoctor importable (the development environment)
    python scripts/make_pictures.py --check    # exit 1 where a picture is stale
    python scripts/make_pictures.py --look DIR # the usual screens in terminals of two sizes, to be looked at

Every picture shows a real run of its command on a machine that comes with tfdoctor (`--from demo:NAME`). The SVG names fonts that
readers have and downloads none. `draw_terminal(command_text, output, theme, size)` is pure.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import pty
import shlex
import struct
import subprocess
import sys
import termios
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.style import Style

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
COLUMNS = 80
FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace"
SIZE, ADVANCE, LINE, EDGE, BAR = 14, 8.43, 19, 18, 34
"""Pixels: height and width of a character, height of a line, the margin, height of the title bar."""

RUNS = {
    "sick": ("tfdoctor", "check", "--from", "demo:plain-pip-install"),
    "fixed": ("tfdoctor", "check", "--from", "demo:healthy-one-gpu"),
}
"""The commands of the moving picture: before and after the remedy."""
TOUR_SECONDS = (8, 4, 8)
"""How long the scenes of the moving picture are shown: the problem, the command that fixes it, the result."""
SCREENS = {
    **RUNS,
    "driver": ("tfdoctor", "check", "--from", "tests/hosts/driver-below-cuda-12"),
    "hidden": ("tfdoctor", "check", "--from", "tests/hosts/hidden-by-slurm"),
    "log-2": ("tfdoctor", "diagnose", "tests/logs/lab/2.21.0-all-missing.log"),
    "log-1": ("tfdoctor", "diagnose", "tests/logs/lab/1.14.0-all-missing.log"),
    "recommend": ("tfdoctor", "recommend", "--gpu", "RTX 5090"),
    "matrix": ("tfdoctor", "matrix"),
    "release": ("tfdoctor", "matrix", "--tf", "2.20"),
    "explain": ("tfdoctor", "explain", "Skipping registering GPU devices"),
    "build": ("tfdoctor", "build", "--tf", "1.14", "--dry-run"),
    "help": ("tfdoctor", "--help"),
}
"""The screens that --look draws."""
SIZES = ((80, 24), (120, 40))
"""Columns and lines of the terminals that --look draws."""


@dataclass(frozen=True)
class Theme:
    """The colours for a light or a dark page."""

    paper: str
    edge: str
    ink: str
    faint: str
    red: str
    green: str
    yellow: str

    def get_color(self, style: Style) -> str:
        """Return the colour of a piece of text."""
        number = style.color.number if style.color is not None else None
        colours = {1: self.red, 2: self.green, 3: self.yellow}
        return colours.get((number or 0) % 8, self.faint if style.dim else self.ink)


THEMES = {
    "light": Theme("#ffffff", "#d1d9e0", "#1f2328", "#59636e", "#c21c2b", "#1a7f37", "#8a6100"),
    "dark": Theme("#0d1117", "#3d444d", "#e6edf3", "#9198a1", "#ff7b72", "#3fb950", "#d29922"),
}


def draw_terminal(
    command_text: str, output: str, theme: Theme, size: tuple[int, int | None] = (COLUMNS, None)
) -> str:
    """Return the SVG of a terminal that shows a command and its `output` (with ANSI colours).

    size: columns and, if the picture is a screen, lines. A screen shows the last lines and the next prompt.
    """
    lines = [
        Text.assemble(("$ ", "dim"), (command_text, "bold")),
        *(Text.from_ansi(text_line) for text_line in output.splitlines()),
    ]
    columns, rows = size
    if rows is not None:
        folded = (
            part for line in [*lines, Text("$ ")] for part in line.divide(range(columns, len(line), columns))
        )
        lines = list(folded)[-rows:]
    width = round(2 * EDGE + columns * ADVANCE)
    height = BAR + (rows or len(lines)) * LINE + EDGE
    parts = [
        *_draw_window(width, height, "\n".join(line.plain for line in lines), theme),
        f'<g font-family="{FONT}" font-size="{SIZE}" xml:space="preserve" style="white-space:pre">',
    ]
    return "\n".join([*parts, *_draw_lines(lines, theme), "</g>", "</svg>"]) + "\n"


def _write_tour_rules() -> str:
    """Return the CSS that shows the scenes of the tour one after the other. Without it, the first one is shown."""
    total = sum(TOUR_SECONDS)
    rules = [f".s{{animation:{total}s infinite step-end}}"]
    for number in range(len(TOUR_SECONDS)):
        first, last = (100 * sum(TOUR_SECONDS[:count]) // total for count in (number, number + 1))
        opacity_by_percent = {0: int(number == 0), first: 1, last: 0, 100: int(last == 100)}
        steps = "".join(f"{percent}%{{opacity:{opacity}}}" for percent, opacity in opacity_by_percent.items())
        rules.append(
            f".s{number}{{opacity:{int(number == 0)};animation-name:k{number}}}@keyframes k{number}{{{steps}}}"
        )
    return "".join([*rules, "@media (prefers-reduced-motion:reduce){.s{animation:none}}"])


def _draw_window(width: int, height: int, title: str, theme: Theme) -> Iterator[str]:
    """Yield the beginning of an SVG and the frame of its terminal."""
    frame = f'width="{width - 1}" height="{height - 1}" rx="8" fill="{theme.paper}" stroke="{theme.edge}"'
    extent = f'width="{width}" height="{height}"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {extent} role="img">'
    yield f"<title>{escape(title)}</title>"
    yield f'<rect x="0.5" y="0.5" {frame}/>'
    for number in range(3):
        yield f'<circle cx="{EDGE + 2 + 18 * number}" cy="17" r="5.5" fill="{theme.edge}"/>'


def _draw_lines(lines: Sequence[Text], theme: Theme) -> Iterator[str]:
    """Yield the elements of the lines of a terminal."""
    for number, line in enumerate(lines):
        y = BAR + number * LINE + SIZE
        for column, text, style in _split_styles(line):
            weight = ' font-weight="700"' if style.bold else ""
            yield (
                f'<text x="{EDGE + column * ADVANCE:.1f}" y="{y}" textLength="{len(text) * ADVANCE:.1f}"'
                f' lengthAdjust="spacingAndGlyphs" fill="{theme.get_color(style)}"{weight}>{escape(text)}</text>'
            )


def draw_tour(theme: Theme) -> str:
    """Return the moving SVG of `check`, the command that it prints, and `check` after that.

    Where nothing may move (a setting of the reader), or where CSS is not known, it is the first scene.
    """
    sick, fixed = (
        [
            Text.assemble(("$ ", "dim"), (shlex.join(RUNS[name]), "bold")),
            *map(Text.from_ansi, run(RUNS[name]).splitlines()),
        ]
        for name in ("sick", "fixed")
    )
    report = json.loads(run((*RUNS["sick"], "--json")))
    command = report["findings"][0]["remedies"][0]["commands"][0]
    typed = [*sick, Text.assemble(("$ ", "dim"), (command, "bold"))]
    scenes = (sick, typed, fixed)
    width, height = round(2 * EDGE + COLUMNS * ADVANCE), BAR + len(typed) * LINE + EDGE
    title = "\n".join(line.plain for line in [*typed, *fixed])
    parts = [*_draw_window(width, height, title, theme), f"<style>{_write_tour_rules()}</style>"]
    for number, lines in enumerate(scenes):
        parts += [
            f'<g class="s s{number}" font-family="{FONT}" font-size="{SIZE}" xml:space="preserve" style="white-space:pre">',
            *_draw_lines(lines, theme),
            "</g>",
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _split_styles(line: Text) -> Iterator[tuple[int, str, Style]]:
    """Yield (column, stripped text, style) for each run of text in one style."""
    column = 0
    for segment in line.render(Console(color_system="standard", force_terminal=True), end=""):
        text = segment.text.strip(" ")
        if text:
            indent = len(segment.text) - len(segment.text.lstrip(" "))
            yield column + indent, text, segment.style or Console().get_style("none")
        column += len(segment.text)


def run(command: tuple[str, ...]) -> str:
    """Return the output of a command with colours, 80 columns wide."""
    plain = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env=plain
        | {
            "COLUMNS": str(COLUMNS),
            "FORCE_COLOR": "1",
            "TERM": "xterm-256color",
            "TFDOCTOR_CALLED": "tfdoctor",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in {0, 1}:
        sys.exit(done.stderr)
    return done.stdout


def record_terminal(command: tuple[str, ...], columns: int, rows: int) -> str:
    """Return what a command prints on a terminal of this size."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    plain = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "COLUMNS"}}
    with subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env=plain | {"TERM": "xterm-256color", "TFDOCTOR_CALLED": "tfdoctor"},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    ):
        os.close(terminal)
        output = b""
        with contextlib.suppress(OSError):  # the command has closed it
            while chunk := os.read(controller, 65536):
                output += chunk
    os.close(controller)
    return output.decode().replace("\r\n", "\n")


def draw_screens(folder: Path) -> None:
    """Draw the usual screens in terminals of each size, dark and light."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, command in SCREENS.items():
        for size in SIZES:
            output = record_terminal(command, *size)
            for theme, colours in THEMES.items():
                path = folder / f"{name}-{size[0]}x{size[1]}-{theme}.svg"
                path.write_text(draw_terminal(shlex.join(command), output, colours, size), encoding="utf-8")


def draw_pictures() -> dict[Path, str]:
    """Return the SVG of every picture by its path."""
    return {PICTURES / f"tour-{theme}.svg": draw_tour(colours) for theme, colours in THEMES.items()}


def main() -> int:
    """Draw or check the pictures and return the exit status."""
    parser = argparse.ArgumentParser(description="Draw what tfdoctor prints: docs/pictures/*.svg.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where a picture is stale")
    parser.add_argument(
        "--look", metavar="DIR", type=Path, help="draw the usual screens there, to be looked at"
    )
    options = parser.parse_args()
    if options.look is not None:
        draw_screens(options.look)
        return 0
    check: bool = options.check
    stale = [
        (path, text)
        for path, text in draw_pictures().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    for path, text in stale:
        if check:
            print(f"{path.name} is stale: run python scripts/make_pictures.py", file=sys.stderr)
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
