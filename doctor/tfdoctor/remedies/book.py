"""Choose the entries of compat/remedies.toml that apply to what was seen."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.causes.steps import Remedy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tfdoctor.compat.remedies import BookEntry
    from tfdoctor.core.causes import Cause

__all__ = ["choose_entries", "fill_placeholders", "make_book_remedy"]

MAX_ENTRIES = 2


def choose_entries(
    entries: Iterable[BookEntry],
    cause: Cause,
    list_lines: Callable[[str], Iterable[str]],
    version: str | None,
) -> tuple[BookEntry, ...]:
    """Return the entries that apply, the one with the most conditions first.

    `list_lines` returns the lines that match a signature. `version` is that of TensorFlow, None if it is unknown.
    """

    def is_seen(signature: str, pattern: str) -> bool:
        return any(re.search(pattern, line) for line in list_lines(signature))

    chosen = [
        entry
        for entry in entries
        if cause.value in entry.causes
        and all(is_seen(signature, pattern) for signature, pattern in entry.seen.items())
        and not any(is_seen(signature, pattern) for signature, pattern in entry.unless.items())
        and (not entry.versions or (version is not None and versions.satisfies(version, entry.versions)))
    ]
    return tuple(sorted(chosen, key=_count_conditions, reverse=True)[:MAX_ENTRIES])


def _count_conditions(entry: BookEntry) -> tuple[int, int]:
    """Return the numbers of conditions that must hold and that must not hold. The first counts more."""
    return len(entry.seen) + bool(entry.versions), len(entry.unless)


def make_book_remedy(entry: BookEntry, values: Mapping[str, str]) -> Remedy:
    """Return the remedy of an entry. `values` replace the placeholders in its text and commands."""
    return Remedy(
        fill_placeholders(entry.text, values),
        tuple(fill_placeholders(command, values) for command in entry.commands),
        changes_system=entry.changes_system,
    )


def fill_placeholders(text: str, values: Mapping[str, str]) -> str:
    """Replace each `{name}` with its value. Braces in a value, which can come from a log, stay as they are."""
    return re.sub(r"\{([a-z_]+)\}", lambda match: values.get(match[1], match[0]), text)
