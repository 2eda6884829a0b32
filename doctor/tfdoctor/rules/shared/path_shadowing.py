"""Which library an entry of LD_LIBRARY_PATH or LD_PRELOAD puts before a better one."""

from __future__ import annotations

import dataclasses
import posixpath
from typing import TYPE_CHECKING

from tfdoctor.findings import Evidence, Remedy
from tfdoctor.records import dataclass
from tfdoctor.rules.shared import variable_origins
from tfdoctor.text import entries_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.facts import Instead, LoaderFacts, Resolution, Without
    from tfdoctor.findings import Finding
    from tfdoctor.rules.base import RuleContext


@dataclass(frozen=True, slots=True)
class Shadowing:
    """Entries of a variable, without which the loader gives what it does not give with them."""

    without: Without
    chief: tuple[Instead, ...]
    """The files that do the harm, and what they hide."""


def find_shadowing(context: RuleContext, sonames: Sequence[str] = ()) -> Shadowing | None:
    """Find what breaks TensorFlow's import (no `sonames`), or keeps these libraries from opening.

    The fewest entries that help most; None if something else would be lost without them.
    """
    loader = context.loader
    best: tuple[int, Without] | None = None
    for without in loader.without if loader is not None else ():
        helped = _count_solved(loader, without, sonames) if loader is not None else 0
        if helped and (best is None or helped > best[0]):
            best = (helped, without)
    if loader is None or best is None:
        return None
    failed = [r for r in loader.resolutions if r.soname in sonames] if sonames else list(loader.import_needs)
    return Shadowing(best[1], _chief(best[1], failed, sonames))


def _count_solved(loader: LoaderFacts, without: Without, sonames: Sequence[str]) -> int:
    """Count the failures that are gone; 0 if something fails that did not fail before."""
    now = {r.soname for r in loader.resolutions if r.ok}
    then = {r.soname for r in without.resolutions if r.ok}
    if now - then or (without.import_needs and not loader.import_needs):
        return 0
    if not sonames:
        return int(bool(loader.import_needs) and not without.import_needs)
    return len({*sonames} & (then - now))


def _chief(without: Without, failed: Sequence[Resolution], sonames: Sequence[str]) -> tuple[Instead, ...]:
    stopped = {t.path for r in failed for t in r.tried if t.problem}
    guilty = {path for r in failed for path in (r.path, r.needed_by) if path} | stopped
    named = {path for r in failed for path in (r.error.split(": ")[0],)}
    chosen = [i for i in without.instead if i.path in guilty | named or i.soname in sonames]
    return tuple(chosen or without.instead)


def find_driver_shadowing(context: RuleContext, path: str) -> Shadowing | None:
    """Find what puts this libcuda before another one, or before none."""
    for without in context.loader.without if context.loader is not None else ():
        there = next((i for i in without.instead if i.path == path), None)
        if there is not None:
            return Shadowing(without, (there,))
    return None


def _plain(path: str | None) -> str:
    """Normalize a path for display; empty if there is none."""
    return posixpath.normpath(path) if path else ""


def _first_hidden_file(hiding: Shadowing) -> str:
    """Return the file that the first of the harmful files hides; empty if it hides none."""
    return _plain(hiding.chief[0].other) if hiding.chief else ""


def format_entries(hiding: Shadowing) -> str:
    """Return the variable and its entries: "LD_LIBRARY_PATH (/old/lib64)"."""
    return f"{hiding.without.variable} ({', '.join(hiding.without.entries)})"


def removal_remedy(context: RuleContext, hiding: Shadowing) -> Remedy:
    """Return the remedy that removes the entries where they were set."""
    name, entries = hiding.without.variable, hiding.without.entries
    value = context.facts.environment.variables.get(name, "")
    kept = [entry for entry in entries_of(name, value) if entry not in entries]
    other = _first_hidden_file(hiding)
    good = f": {other} is found then" if other else ""
    text = f"Take {', '.join(entries)} off {name} where TensorFlow runs{good}."
    return variable_origins.remove_entries_remedy(context, name, entries, kept, text)


def evidence_of_hidden_files(context: RuleContext, hiding: Shadowing) -> list[Evidence]:
    """List the files, what they hide, and the line that puts them there."""
    name = hiding.without.variable
    lines = [
        Evidence(i.path, f"comes through {name}; without it {_plain(i.other) or 'nothing of that name'}")
        for i in hiding.chief[:4]
    ]
    return [
        *lines,
        *(
            one
            for entry in hiding.without.entries
            for one in variable_origins.origin_evidence(context, name, entry)
        ),
    ]


def with_shadowing(
    context: RuleContext, finding: Finding, sonames: Sequence[str] = (), *, title: str = ""
) -> Finding:
    """Return the finding with the file that hides the better library and its removal as first remedy.

    Return it unchanged if nothing hides a library. `title` replaces the title about the hidden file.
    """
    hiding = find_shadowing(context, sonames)
    if hiding is None:
        return finding
    name, first = hiding.without.variable, hiding.chief[0] if hiding.chief else None
    who = "".join(variable_origins.origin_sentence(context, name, entry) for entry in hiding.without.entries)
    if first is None:
        return finding
    other = _first_hidden_file(hiding)
    good = f"{other}, which the loader would take without it" if other else "what does without it"
    more = f" (and {len(hiding.chief) - 1} more)" if len(hiding.chief) > 1 else ""
    return dataclasses.replace(
        finding,
        title=title or f"{first.path}, which {name} puts first, hides a library that works",
        explanation=f"{name} puts {first.path}{more} before {good}.{who} {finding.explanation}",
        evidence=(*evidence_of_hidden_files(context, hiding), *finding.evidence),
        remedies=(removal_remedy(context, hiding),),
    )
