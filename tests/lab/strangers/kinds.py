"""All kinds of changes to an environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab.strangers import kinds_files, kinds_layout, kinds_packages, kinds_place, kinds_shell

if TYPE_CHECKING:
    from lab.strangers.grammar import Change, Meaning
    from lab.strangers.person import User

KINDS = (
    *kinds_packages.KINDS,
    *kinds_files.KINDS,
    *kinds_shell.KINDS,
    *kinds_place.KINDS,
    *kinds_layout.KINDS,
)
BY_NAME = {kind.name: kind for kind in KINDS}


def apply_change(person: User, change: Change) -> None:
    """Apply a change to a user's environment. Raise Undrawn if it is not possible."""
    BY_NAME[change.kind].apply(person, change.words)


def find_meaning(change: Change) -> Meaning:
    """Return the right causes of a change."""
    return BY_NAME[change.kind].mean(change.words)
