"""Choose the entries of compat/remedies.toml that apply to what was seen."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.causes.steps import Remedy

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from tfdoctor.compat.remedies import BookEntry
    from tfdoctor.core.causes import Cause

__all__ = ["choose_entries", "fill_placeholders", "make_book_remedy"]

MAX_ENTRIES = 2
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")


def choose_entries(
    entries: Iterable[BookEntry],
    cause: Cause,
    list_lines: Callable[[str], Iterable[str]],
    releases: Collection[str],
) -> tuple[BookEntry, ...]:
    """Return the entries that apply, the one with the most conditions first.

    `list_lines` returns the lines that match a signature. `releases` are the versions of TensorFlow that are possible;
    empty if any is. An entry is left out if a more specific one is for the same lines.
    """

    def is_seen(signature: str, pattern: str) -> bool:
        return any(re.search(pattern, line) for line in list_lines(signature))

    fitting = [
        entry
        for entry in entries
        if cause.value in entry.causes
        and all(is_seen(signature, pattern) for signature, pattern in entry.seen.items())
        and not any(is_seen(signature, pattern) for signature, pattern in entry.unless.items())
        and (not entry.versions or _are_all_in(releases, entry.versions))
    ]
    chosen: list[BookEntry] = []
    for entry in sorted(fitting, key=_count_conditions, reverse=True):
        if not entry.seen or not any(entry.seen.items() <= other.seen.items() for other in chosen):
            chosen.append(entry)
    return tuple(chosen[:MAX_ENTRIES])


def _are_all_in(releases: Collection[str], specifiers: str) -> bool:
    return bool(releases) and all(versions.satisfies(release, specifiers) for release in releases)


def _count_conditions(entry: BookEntry) -> tuple[int, int]:
    """Return the numbers of conditions that must hold and that must not hold. The first counts more."""
    return len(entry.seen) + bool(entry.versions), len(entry.unless)


def make_book_remedy(entry: BookEntry, values: Mapping[str, str]) -> Remedy:
    """Return the remedy of an entry. `values` replace the placeholders in its text and commands.

    A command with a placeholder that has no value is left out.
    """
    return Remedy(
        fill_placeholders(entry.text, values),
        tuple(
            fill_placeholders(command, values)
            for command in entry.commands
            if values.keys() >= set(_PLACEHOLDER.findall(command))
        ),
        changes_system=entry.changes_system,
    )


def fill_placeholders(text: str, values: Mapping[str, str]) -> str:
    """Replace each `{name}` with its value. Braces in a value, which can come from a log, stay as they are."""
    return _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), text)
