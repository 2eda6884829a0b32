"""Format tables as text with Rich."""

from __future__ import annotations

import io
import re
from typing import Any

from rich.console import Console
from rich.text import Text as RichText

__all__ = ["ProseText", "get_text", "make_console"]

_CODE = re.compile(r"`[^`\n]{1,38}`")
"""Matches code in backticks that fits in a line of a narrow terminal."""
_CODE_SPACE = "\ue000"
"""Stands for a space in code while Rich wraps lines, because a command that is broken cannot be copied."""


class ProseText(RichText):
    """A text that is wrapped between words, but not in code in backticks."""

    def __init__(self, text: str = "", style: Any = "", **settings: Any) -> None:
        text = _CODE.sub(lambda match: match[0].replace(" ", _CODE_SPACE), text)
        super().__init__(text, style, **settings)


def make_console(columns: int, *, coloured: bool) -> Console:
    """Return a console that writes to memory. It takes text literally, without markup or highlighting."""
    return Console(
        file=io.StringIO(),
        width=columns,
        force_terminal=coloured,
        no_color=not coloured,
        color_system="standard" if coloured else None,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )


def get_text(console: Console) -> str:
    """Return the text that was printed to a console from `make_console`, without trailing spaces."""
    text: str = console.file.getvalue().replace(_CODE_SPACE, " ")  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n") + "\n"
