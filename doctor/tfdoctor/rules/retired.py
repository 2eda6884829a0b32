"""Codes that no rule uses any longer. They are permanent: never used again, and whoever asks for one is led on.

A rule that goes leaves a row here: other people's notes, scripts and bug reports name its code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["RETIRED", "RetiredRule", "current_codes"]


@dataclass(frozen=True, slots=True)
class RetiredRule:
    """A rule that is gone."""

    code: str
    name: str
    title: str
    since: str
    """The first version of tfdoctor without it."""
    by: tuple[str, ...]
    """The codes that tell it now, of living or of retired rules; empty where nothing does."""
    why: str
    """A sentence: why it went."""


_SAME = "A Dockerfile is judged by the checks of a machine."
RETIRED: tuple[RetiredRule, ...] = (
    RetiredRule(
        "TFD504",
        "cuda-does-not-fit",
        "The image has a different CUDA than this TensorFlow opens",
        "0.1.0",
        ("TFD202", "TFD207"),
        _SAME,
    ),
    RetiredRule(
        "TFD505",
        "cuda-not-installed",
        "The CUDA libraries that this TensorFlow opens are not in the image",
        "0.1.0",
        ("TFD201", "TFD207"),
        _SAME,
    ),
    RetiredRule(
        "TFD506",
        "cudnn-does-not-fit",
        "The image has no cuDNN that this TensorFlow takes",
        "0.1.0",
        ("TFD205", "TFD206"),
        _SAME,
    ),
    RetiredRule(
        "TFD509", "no-gpu-code", "The TensorFlow in this image has no GPU code", "0.1.0", ("TFD303",), _SAME
    ),
    RetiredRule(
        "TFD512",
        "two-packages",
        "Two TensorFlow packages are installed over each other",
        "0.1.0",
        ("TFD304",),
        _SAME,
    ),
    RetiredRule(
        "TFD514",
        "companion-breaks",
        "NumPy or protobuf is one that this TensorFlow does not stand",
        "0.1.0",
        ("TFD306", "TFD307"),
        _SAME,
    ),
)
"""In the order of their codes."""


def current_codes(code: str, retired: Sequence[RetiredRule] = RETIRED) -> tuple[str, ...]:
    """Return the codes that replace this one today.

    The code itself if it is not retired; empty if nothing replaces it. Raises ValueError if retired
    rules name each other in a circle.
    """
    rows = {row.code: row for row in retired}
    found: dict[str, None] = {}
    _follow(code, rows, (), found)
    return tuple(found)


def _follow(code: str, rows: dict[str, RetiredRule], way: tuple[str, ...], found: dict[str, None]) -> None:
    if code in way:
        msg = f"retired in a circle: {' → '.join((*way, code))}"
        raise ValueError(msg)
    if code not in rows:
        found[code] = None
        return
    for other in rows[code].by:
        _follow(other, rows, (*way, code), found)
