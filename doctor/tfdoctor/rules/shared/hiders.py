"""Which library an entry of LD_LIBRARY_PATH or LD_PRELOAD puts before a better one."""

from __future__ import annotations

import dataclasses
import posixpath
from typing import TYPE_CHECKING

from tfdoctor.findings import Evidence, Remedy
from tfdoctor.records import dataclass
from tfdoctor.rules.shared import origins
from tfdoctor.text import entries_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.facts import Instead, LoaderFacts, Resolution, Without
    from tfdoctor.findings import Finding
    from tfdoctor.rules.base import Context


@dataclass(frozen=True, slots=True)
class Hiding:
    """Entries of a variable, without which the loader gives what it does not give with them."""

    without: Without
    chief: tuple[Instead, ...]
    """The files that do the harm, and what they hide."""


def hider(context: Context, sonames: Sequence[str] = ()) -> Hiding | None:
    """What keeps TensorFlow's import from working (no `sonames`), or these libraries from opening.

    The fewest entries that help most; none where something else would be lost without them.
    """
    loader = context.loader
    best: tuple[int, Without] | None = None
    for without in loader.without if loader is not None else ():
        helped = _helped(loader, without, sonames) if loader is not None else 0
        if helped and (best is None or helped > best[0]):
            best = (helped, without)
    if loader is None or best is None:
        return None
    failed = [r for r in loader.resolutions if r.soname in sonames] if sonames else list(loader.import_needs)
    return Hiding(best[1], _chief(best[1], failed, sonames))


def _helped(loader: LoaderFacts, without: Without, sonames: Sequence[str]) -> int:
    """How many failures are gone; 0 where something fails that did not."""
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


def driver_hider(context: Context, path: str) -> Hiding | None:
    """What puts this libcuda before another one, or before none."""
    for without in context.loader.without if context.loader is not None else ():
        there = next((i for i in without.instead if i.path == path), None)
        if there is not None:
            return Hiding(without, (there,))
    return None


def _plain(path: str | None) -> str:
    """A path as people write it."""
    return posixpath.normpath(path) if path else ""


def _other(hiding: Hiding) -> str:
    """The file that the first of the harmful ones hides; empty where it hides none."""
    return _plain(hiding.chief[0].other) if hiding.chief else ""


def door(hiding: Hiding) -> str:
    """ "LD_LIBRARY_PATH (/old/lib64)": what puts it there."""
    return f"{hiding.without.variable} ({', '.join(hiding.without.entries)})"


def remedy(context: Context, hiding: Hiding) -> Remedy:
    """How the entries go, where they were set."""
    name, entries = hiding.without.variable, hiding.without.entries
    value = context.facts.environment.variables.get(name, "")
    kept = [entry for entry in entries_of(name, value) if entry not in entries]
    other = _other(hiding)
    good = f": {other} is found then" if other else ""
    text = f"Take {', '.join(entries)} off {name} where TensorFlow runs{good}."
    return origins.takes_off(context, name, entries, kept, text)


def evidence(context: Context, hiding: Hiding) -> list[Evidence]:
    """The files, what they hide, and the line that puts them there."""
    name = hiding.without.variable
    lines = [
        Evidence(i.path, f"comes through {name}; without it {_plain(i.other) or 'nothing of that name'}")
        for i in hiding.chief[:4]
    ]
    return [
        *lines,
        *(one for entry in hiding.without.entries for one in origins.evidence(context, name, entry)),
    ]


def amended(context: Context, finding: Finding, sonames: Sequence[str] = (), *, title: str = "") -> Finding:
    """The finding with what hides the better library: named, and taken away first. As it was where nothing does.

    `title` in place of what hides what.
    """
    hiding = hider(context, sonames)
    if hiding is None:
        return finding
    name, first = hiding.without.variable, hiding.chief[0] if hiding.chief else None
    who = "".join(origins.said(context, name, entry) for entry in hiding.without.entries)
    if first is None:
        return finding
    other = _other(hiding)
    good = f"{other}, which the loader would take without it" if other else "what does without it"
    more = f" (and {len(hiding.chief) - 1} more)" if len(hiding.chief) > 1 else ""
    return dataclasses.replace(
        finding,
        title=title or f"{first.path}, which {name} puts first, hides a library that works",
        explanation=f"{name} puts {first.path}{more} before {good}.{who} {finding.explanation}",
        evidence=(*evidence(context, hiding), *finding.evidence),
        remedies=(remedy(context, hiding),),
    )
