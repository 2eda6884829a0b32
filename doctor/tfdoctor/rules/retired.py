"""The codes of removed rules, which are never reused, and the codes that replace them.

A removed rule keeps an entry here, because notes, scripts and bug reports of users name its code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["RETIRED_RULES", "RetiredRule", "find_current_codes"]


@dataclass(frozen=True, slots=True)
class RetiredRule:
    """A rule that was removed."""

    code: str
    name: str
    title: str
    removed_in: str
    """The first version of tfdoctor without the rule."""
    successors: tuple[str, ...]
    """The codes of the rules that report the same problem now; empty if there are none.

    These rules may be retired themselves.
    """
    reason: str
    """A sentence with the reason why the rule was removed."""


_REASON_MACHINE_CHECKS = "A Dockerfile is judged by the checks of a machine."
RETIRED_RULES: tuple[RetiredRule, ...] = (
    RetiredRule(
        "TFD504",
        "cuda-does-not-fit",
        "The image has a different CUDA than this TensorFlow opens",
        "0.1.0",
        ("TFD202", "TFD207"),
        _REASON_MACHINE_CHECKS,
    ),
    RetiredRule(
        "TFD505",
        "cuda-not-installed",
        "The CUDA libraries that this TensorFlow opens are not in the image",
        "0.1.0",
        ("TFD201", "TFD207"),
        _REASON_MACHINE_CHECKS,
    ),
    RetiredRule(
        "TFD506",
        "cudnn-does-not-fit",
        "The image has no cuDNN that this TensorFlow takes",
        "0.1.0",
        ("TFD205", "TFD206"),
        _REASON_MACHINE_CHECKS,
    ),
    RetiredRule(
        "TFD509",
        "no-gpu-code",
        "The TensorFlow in this image has no GPU code",
        "0.1.0",
        ("TFD303",),
        _REASON_MACHINE_CHECKS,
    ),
    RetiredRule(
        "TFD512",
        "two-packages",
        "Two TensorFlow packages are installed over each other",
        "0.1.0",
        ("TFD304",),
        _REASON_MACHINE_CHECKS,
    ),
    RetiredRule(
        "TFD514",
        "companion-breaks",
        "NumPy or protobuf is one that this TensorFlow does not stand",
        "0.1.0",
        ("TFD306", "TFD307"),
        _REASON_MACHINE_CHECKS,
    ),
)
"""The retired rules in the order of their codes."""


def find_current_codes(code: str, retired: Sequence[RetiredRule] = RETIRED_RULES) -> tuple[str, ...]:
    """Return the current codes that replace a code, or the code itself if it is not retired.

    The tuple is empty if no current rule replaces it. Raise ValueError if retired rules replace each other in a
    circle.
    """
    rules = {rule.code: rule for rule in retired}
    codes: dict[str, None] = {}
    _collect_current(code, rules, (), codes)
    return tuple(codes)


def _collect_current(
    code: str, rules: dict[str, RetiredRule], path: tuple[str, ...], current_codes: dict[str, None]
) -> None:
    """Add the current codes that replace `code` to `current_codes`.

    `path` holds the codes that led to this one. Raise ValueError if it already contains `code`.
    """
    if code in path:
        msg = f"retired in a circle: {' → '.join((*path, code))}"
        raise ValueError(msg)
    if code not in rules:
        current_codes[code] = None
        return
    for successor in rules[code].successors:
        _collect_current(successor, rules, (*path, code), current_codes)
