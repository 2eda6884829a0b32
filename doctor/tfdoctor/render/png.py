"""Convert tfdoctor's SVG charts to PNG with resvg, which the extra `plot` installs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.errors import Error, make_install_command

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
"""The fonts to try. resvg draws text with a font of the system, and silently omits it if the font is missing."""
SAMPLE_SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20">'
    '<text x="2" y="15" style="font:12px sans-serif">Ag</text></svg>'
)
"""An SVG with text, which shows whether a font is installed."""
PIXEL_RATIO = 2
"""The number of pixels of the PNG for each pixel of the SVG, in each direction."""


def make_png_converter() -> Callable[[str], bytes]:
    """Return a function that converts an SVG to a PNG.

    Raise Error if resvg is not installed, or if the system has none of the fonts.
    """
    try:
        from resvg_py import svg_to_bytes
    except ImportError:
        message = "PNG needs resvg-py, which is not installed next to tfdoctor."
        raise Error(message, hint=make_install_command("resvg-py")) from None
    # resvg omits the text if a font is not installed. The picture is then the same as without any fonts.
    svg_without_text = svg_to_bytes(svg_string=SAMPLE_SVG, skip_system_fonts=True)
    font = next(
        (
            name
            for name in FONTS
            if svg_to_bytes(svg_string=SAMPLE_SVG, sans_serif_family=name) != svg_without_text
        ),
        None,
    )
    if font is None:
        message = f"PNG needs a font for its text, and this system has none of {', '.join(FONTS[:4])} …"
        raise Error(message, hint="apt-get install fonts-dejavu-core")

    def convert(svg: str) -> bytes:
        png: bytes = svg_to_bytes(svg_string=svg, sans_serif_family=font, zoom=PIXEL_RATIO)
        return png

    return convert
