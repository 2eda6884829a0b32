"""Functions that complete the values of options in a shell.

Each function takes the typed part of a value, and returns (value, description) for all values that begin with it,
regardless of case. Modules are imported only when a function is called.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["complete_cause_or_code", "complete_code", "complete_gpu", "complete_kind", "complete_release"]

Completions = list[tuple[str, str]]
_SEPARATORS = re.compile(r"[\s(),;/]+")
"""Matches characters that are replaced to make a GPU name a single shell word.

`compat.gpus` reads both forms.
"""


def complete_release(incomplete: str) -> Completions:
    """Return the TensorFlow releases, newest first, with their release dates."""
    from tfdoctor.compat import Compat

    releases_newest_first = reversed(Compat.load().releases)
    return _filter_values(
        incomplete, {release.version: release.release_date for release in releases_newest_first}.items()
    )


def complete_gpu(incomplete: str) -> Completions:
    """Return the names of the GPUs, without "GeForce", with their compute capabilities."""
    from tfdoctor.compat import Compat

    names = {
        _SEPARATORS.sub("-", gpu.name.removeprefix("GeForce ")).strip(
            "-"
        ): f"compute capability {gpu.capability}"
        for gpu in Compat.load().gpus
    }
    return _filter_values(_SEPARATORS.sub("-", incomplete), names.items(), incomplete)


def complete_code(incomplete: str) -> Completions:
    """Return the codes of the `check` rules, with their titles."""
    from tfdoctor.rules import ALL_RULES

    return _filter_values(incomplete, ((rule.code, rule.title) for rule in ALL_RULES))


def complete_cause_or_code(incomplete: str) -> Completions:
    """Return the codes that `explain` accepts with their titles, and the causes with their meanings."""
    from tfdoctor.cli.explain import load_documentation
    from tfdoctor.diagnosis.explain import list_entries

    entries = list_entries(load_documentation())
    causes = ((entry.cause.value, entry.meaning) for entry in entries.causes)
    return _filter_values(incomplete, [*((rule.code, rule.title) for rule in entries.rules), *causes])


def complete_kind(incomplete: str) -> Completions:
    """Return the kinds of output that `parse` accepts."""
    from tfdoctor.probes.parsers.registry import PARSERS

    return _filter_values(incomplete, [("auto", "Find out."), *((kind, "") for kind in PARSERS)])


def _filter_values(
    typed: str, values: Iterable[tuple[str, str]], shown_prefix: str | None = None
) -> Completions:
    """Return the values that begin with `typed`.

    Their beginning is replaced with `shown_prefix`, because some shells require the text exactly as the user typed it.
    None means that this is `typed`.
    """
    shown_prefix = typed if shown_prefix is None else shown_prefix
    length = len(typed)
    return [
        (f"{shown_prefix}{value[length:]}", text)
        for value, text in values
        if value[:length].casefold() == typed.casefold()
    ]
