"""Draw what tfdoctor prints: docs/pictures/*.svg, each for a light and a dark page.

    python scripts/make_pictures.py            # needs tfdoctor importable (the development environment)
    python scripts/make_pictures.py --check    # exit 1 where a picture is stale

Every picture is a real run of the command that it shows, on a machine recorded under tests/hosts. The SVG names fonts
that readers have and fetches none. `drawn(shown, output, theme)` is pure.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.style import Style

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
COLUMNS = 80
FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace"
SIZE, ADVANCE, LINE, EDGE, BAR = 14, 8.43, 19, 18, 34
"""Pixels: a letter's height and width, a line, the margin, the window's title bar."""

RUNS = {
    "sick": ("tfdoctor", "check", "--facts", "tests/hosts/plain-pip-install"),
    "fixed": ("tfdoctor", "check", "--facts", "tests/hosts/healthy-one-gpu"),
}
"""Picture → the command whose output it shows."""


@dataclass(frozen=True)
class Theme:
    """The colours of one kind of page."""

    paper: str
    edge: str
    ink: str
    faint: str
    red: str
    green: str
    yellow: str
    cyan: str

    def of(self, style: Style) -> str:
        """The colour of a piece of text."""
        number = style.color.number if style.color is not None else None
        colours = {1: self.red, 2: self.green, 3: self.yellow, 6: self.cyan}
        return colours.get((number or 0) % 8, self.faint if style.dim else self.ink)


THEMES = {
    "light": Theme("#ffffff", "#d1d9e0", "#1f2328", "#59636e", "#c21c2b", "#1a7f37", "#8a6100", "#0550ae"),
    "dark": Theme("#0d1117", "#3d444d", "#e6edf3", "#9198a1", "#ff7b72", "#3fb950", "#d29922", "#79c0ff"),
}


def drawn(shown: str, output: str, theme: Theme) -> str:
    """The SVG of a terminal in which `shown` was typed and `output` (with ANSI colours) came."""
    lines = [
        Text.assemble(("$ ", "dim"), (shown, "bold")),
        *(Text.from_ansi(one) for one in output.splitlines()),
    ]
    width = round(2 * EDGE + COLUMNS * ADVANCE)
    height = BAR + len(lines) * LINE + EDGE
    title = escape("\n".join(line.plain for line in lines))
    size = f'width="{width}" height="{height}"'
    frame = f'width="{width - 1}" height="{height - 1}" rx="8" fill="{theme.paper}" stroke="{theme.edge}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {size} role="img">',
        f"<title>{title}</title>",
        f'<rect x="0.5" y="0.5" {frame}/>',
        *(
            f'<circle cx="{EDGE + 2 + 18 * number}" cy="17" r="5.5" fill="{theme.edge}"/>'
            for number in range(3)
        ),
        f'<g font-family="{FONT}" font-size="{SIZE}" xml:space="preserve">',
    ]
    for number, line in enumerate(lines):
        y = BAR + number * LINE + SIZE
        for column, text, style in _pieces(line):
            weight = ' font-weight="700"' if style.bold else ""
            parts.append(
                f'<text x="{EDGE + column * ADVANCE:.1f}" y="{y}" textLength="{len(text) * ADVANCE:.1f}"'
                f' lengthAdjust="spacingAndGlyphs" fill="{theme.of(style)}"{weight}>{escape(text)}</text>'
            )
    return "\n".join([*parts, "</g>", "</svg>"]) + "\n"


def _pieces(line: Text) -> Iterator[tuple[int, str, Style]]:
    """(column, text without outer blanks, style) of each stretch of a line in one style."""
    column = 0
    for segment in line.render(Console(color_system="standard", force_terminal=True), end=""):
        text = segment.text.strip(" ")
        if text:
            before = len(segment.text) - len(segment.text.lstrip(" "))
            yield column + before, text, segment.style or Console().get_style("none")
        column += len(segment.text)


def run(command: tuple[str, ...]) -> str:
    """What a command prints on a terminal with colours, 80 columns wide."""
    plain = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env=plain | {"COLUMNS": str(COLUMNS), "FORCE_COLOR": "1", "TERM": "xterm-256color"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in {0, 1}:
        sys.exit(done.stderr)
    return done.stdout


def pictures() -> dict[Path, str]:
    """Every picture's file and its SVG."""
    found = {}
    for name, command in RUNS.items():
        output = run(command)
        for theme, colours in THEMES.items():
            found[PICTURES / f"{name}-{theme}.svg"] = drawn(shlex.join(command), output, colours)
    return found


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description="Draw what tfdoctor prints: docs/pictures/*.svg.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where a picture is stale")
    check: bool = parser.parse_args().check
    stale = [
        (path, text)
        for path, text in pictures().items()
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
