"""What a shell completes an option's value with: a function for each, which loads what it needs when it is called.

Each takes what is typed of the word and returns (value, what it is) of all that begin so; case does not matter.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["causes_and_codes", "codes", "gpus", "kinds", "releases"]

Values = list[tuple[str, str]]
_SPACE = re.compile(r"[\s(),;/]+")
"""What a name is written without: it is one word of a shell then, and means the same (`compat.gpus`)."""


def releases(incomplete: str) -> Values:
    """Of TensorFlow, newest first."""
    from tfdoctor.compat import Compat

    rows = reversed(Compat.load().releases)
    return _filter_values(incomplete, {row.version: row.released for row in rows}.items())


def gpus(incomplete: str) -> Values:
    """Return cards by name, without GeForce, and their compute capability."""
    from tfdoctor.compat import Compat

    names = {
        _SPACE.sub("-", gpu.name.removeprefix("GeForce ")).strip("-"): f"compute capability {gpu.capability}"
        for gpu in Compat.load().gpus
    }
    return _filter_values(_SPACE.sub("-", incomplete), names.items(), incomplete)


def codes(incomplete: str) -> Values:
    """Return the findings of `check`."""
    from tfdoctor.rules import ALL_RULES

    return _filter_values(incomplete, ((rule.code, rule.title) for rule in ALL_RULES))


def causes_and_codes(incomplete: str) -> Values:
    """Return what `explain` knows by a word."""
    from tfdoctor.explain import catalogue

    known = catalogue()
    causes = ((entry.cause.value, entry.meaning) for entry in known.causes)
    return _filter_values(incomplete, [*((rule.code, rule.title) for rule in known.rules), *causes])


def kinds(incomplete: str) -> Values:
    """Of output, that `parse` knows."""
    from tfdoctor.parse.registry import PARSERS

    return _filter_values(incomplete, [("auto", "Find out."), *((kind, "") for kind in PARSERS)])


def _filter_values(typed: str, known: Iterable[tuple[str, str]], kept: str | None = None) -> Values:
    """Return those that begin with `typed`.

    What stands there already stays as it is: some shells ask for that.
    """
    kept = typed if kept is None else kept
    length = len(typed)
    return [
        (f"{kept}{value[length:]}", text)
        for value, text in known
        if value[:length].casefold() == typed.casefold()
    ]
