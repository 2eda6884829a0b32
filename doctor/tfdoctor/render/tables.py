"""Format tables as text with Rich."""

from __future__ import annotations

import io

from rich.console import Console

__all__ = ["get_text", "make_console"]


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
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n") + "\n"
