"""Options that several commands have alike."""

from __future__ import annotations

import math
from typing import Annotated

import typer

__all__ = ["Timeout", "finite"]


def finite(value: float | None) -> float | None:
    """No `nan`: it is neither below nor above a limit, and every look would have ended before it began."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter("a number of seconds is meant.")
    return value


Timeout = Annotated[
    float,
    typer.Option(
        min=1, max=3600, metavar="SECONDS", callback=finite, help="The longest that looking may take."
    ),
]
