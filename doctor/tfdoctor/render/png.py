"""Our SVG charts as PNG, if the extra `plot` is installed: resvg, a wheel without dependencies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.errors import Error, install_hint

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["make_png_converter"]

FONTS = (
    "DejaVu Sans",
    "Liberation Sans",
    "Noto Sans",
    "Arial",
    "Helvetica",
    "Roboto",
    "Ubuntu",
    "Cantarell",
    "Open Sans",
    "FreeSans",
    "Nimbus Sans",
    "Segoe UI",
)
"""Fonts to try: resvg draws text with fonts of the system, and omits it silently if none has the name."""
SAMPLE_SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20">'
    '<text x="2" y="15" style="font:12px sans-serif">Ag</text></svg>'
)
ZOOM = 2
"""Pixels of the PNG for each pixel of the SVG."""


def make_png_converter() -> Callable[[str], bytes]:
    """Return the function that converts an SVG to a PNG.

    Raises Error if the extra or a font is missing.
    """
    try:
        from resvg_py import svg_to_bytes
    except ImportError:
        message = "PNG needs resvg-py, which is not installed beside tfdoctor."
        raise Error(message, hint=install_hint("resvg-py")) from None
    blank = svg_to_bytes(svg_string=SAMPLE_SVG, skip_system_fonts=True)
    font = next(
        (name for name in FONTS if svg_to_bytes(svg_string=SAMPLE_SVG, sans_serif_family=name) != blank), None
    )
    if font is None:
        message = f"PNG needs a font for its text, and this system has none of {', '.join(FONTS[:4])} …"
        raise Error(message, hint="apt-get install fonts-dejavu-core")

    def paint(svg: str) -> bytes:
        png: bytes = svg_to_bytes(svg_string=svg, sans_serif_family=font, zoom=ZOOM)
        return png

    return paint
