"""Libraries that an entry of LD_LIBRARY_PATH or LD_PRELOAD puts before a better one."""

from __future__ import annotations

import dataclasses
import posixpath
from typing import TYPE_CHECKING

from tfdoctor.findings import Evidence, Remedy
from tfdoctor.records import dataclass
from tfdoctor.rules.shared import variable_origins
from tfdoctor.text import split_entries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.facts import LoaderFacts, RemovedEntriesResult, ReplacedLibrary, Resolution
    from tfdoctor.findings import Finding
    from tfdoctor.rules.base import RuleContext


@dataclass(frozen=True, slots=True)
class Shadowing:
    """Entries of a variable that keep the loader from finding a better library."""

    without: RemovedEntriesResult
    """The result of resolving the libraries without these entries."""
    harmful_files: tuple[ReplacedLibrary, ...]
    """The files that cause the problem, each with the file that it hides."""


def find_shadowing(context: RuleContext, sonames: Sequence[str] = ()) -> Shadowing | None:
    """Find the entries that hide the libraries `sonames`, or that break the import if it is empty.

    Return the entries whose removal solves the most failures, or None if no removal helps without breaking
    something else.
    """
    loader = context.loader
    best: tuple[int, RemovedEntriesResult] | None = None
    for without in loader.without if loader is not None else ():
        solved = _count_solved(loader, without, sonames) if loader is not None else 0
        if solved and (best is None or solved > best[0]):
            best = (solved, without)
    if loader is None or best is None:
        return None
    unresolved = (
        [resolution for resolution in loader.resolutions if resolution.soname in sonames]
        if sonames
        else list(loader.import_needs)
    )
    return Shadowing(best[1], _select_harmful_files(best[1], unresolved, sonames))


def _count_solved(loader: LoaderFacts, without: RemovedEntriesResult, sonames: Sequence[str]) -> int:
    """Count the failures that removing the entries solves; 0 if the removal breaks something else."""
    resolved_now = {resolution.soname for resolution in loader.resolutions if resolution.ok}
    resolved_without = {resolution.soname for resolution in without.resolutions if resolution.ok}
    if resolved_now - resolved_without or (without.import_needs and not loader.import_needs):
        return 0
    if not sonames:
        return int(bool(loader.import_needs) and not without.import_needs)
    return len({*sonames} & (resolved_without - resolved_now))


def _select_harmful_files(
    without: RemovedEntriesResult, failures: Sequence[Resolution], sonames: Sequence[str]
) -> tuple[ReplacedLibrary, ...]:
    """Return the files that the entries put first and that take part in the failures.

    If none takes part, return all files that the entries put first.
    """
    rejected_paths = {
        attempt.path for resolution in failures for attempt in resolution.tried if attempt.problem
    }
    involved_paths = {
        path for resolution in failures for path in (resolution.path, resolution.needed_by) if path
    } | rejected_paths
    error_paths = {path for resolution in failures for path in (resolution.error.split(": ")[0],)}
    harmful_files = [
        replaced
        for replaced in without.instead
        if replaced.path in involved_paths | error_paths or replaced.soname in sonames
    ]
    return tuple(harmful_files or without.instead)


def find_driver_shadowing(context: RuleContext, path: str) -> Shadowing | None:
    """Return the entries through which the loader finds the libcuda at `path`; None if there are none."""
    for without in context.loader.without if context.loader is not None else ():
        harmful_file = next((replaced for replaced in without.instead if replaced.path == path), None)
        if harmful_file is not None:
            return Shadowing(without, (harmful_file,))
    return None


def _normalize_path(path: str | None) -> str:
    """Return a path normalized for display; "" for None."""
    return posixpath.normpath(path) if path else ""


def _get_first_hidden_file(shadowing: Shadowing) -> str:
    """Return the path of the file that the first harmful file hides; "" if it hides none."""
    return _normalize_path(shadowing.harmful_files[0].other) if shadowing.harmful_files else ""


def format_entries(shadowing: Shadowing) -> str:
    """Return the variable and its entries, such as "LD_LIBRARY_PATH (/old/lib64)"."""
    return f"{shadowing.without.variable} ({', '.join(shadowing.without.entries)})"


def make_removal_remedy(context: RuleContext, shadowing: Shadowing) -> Remedy:
    """Return the remedy to remove the entries where they are set."""
    name, entries = shadowing.without.variable, shadowing.without.entries
    value = context.facts.environment.variables.get(name, "")
    remaining = [entry for entry in split_entries(name, value) if entry not in entries]
    hidden_file = _get_first_hidden_file(shadowing)
    benefit = f": {hidden_file} is found then" if hidden_file else ""
    text = f"Take {', '.join(entries)} off {name} where TensorFlow runs{benefit}."
    return variable_origins.make_remove_entries_remedy(context, name, entries, remaining, text)


def list_hidden_file_evidence(context: RuleContext, shadowing: Shadowing) -> list[Evidence]:
    """Return the harmful files, the files they hide and the lines that add the entries, as evidence."""
    name = shadowing.without.variable
    lines = [
        Evidence(
            replaced.path,
            f"comes through {name}; without it {_normalize_path(replaced.other) or 'nothing of that name'}",
        )
        for replaced in shadowing.harmful_files[:4]
    ]
    return [
        *lines,
        *(
            evidence
            for entry in shadowing.without.entries
            for evidence in variable_origins.list_origin_evidence(context, name, entry)
        ),
    ]


def add_shadowing_explanation(
    context: RuleContext, finding: Finding, sonames: Sequence[str] = (), *, title: str = ""
) -> Finding:
    """Return the finding with an explanation of the file that hides a better library.

    Its only remedy is to remove the entries that put that file first. If nothing hides a library, the finding
    is returned unchanged. `title` replaces the title about that file.
    """
    shadowing = find_shadowing(context, sonames)
    if shadowing is None:
        return finding
    name, first_file = (
        shadowing.without.variable,
        shadowing.harmful_files[0] if shadowing.harmful_files else None,
    )
    origins = "".join(
        variable_origins.format_origin_sentence(context, name, entry) for entry in shadowing.without.entries
    )
    if first_file is None:
        return finding
    hidden_file = _get_first_hidden_file(shadowing)
    hidden_text = (
        f"{hidden_file}, which the loader would take without it" if hidden_file else "what does without it"
    )
    count_text = f" (and {len(shadowing.harmful_files) - 1} more)" if len(shadowing.harmful_files) > 1 else ""
    return dataclasses.replace(
        finding,
        title=title or f"{first_file.path}, which {name} puts first, hides a library that works",
        explanation=f"{name} puts {first_file.path}{count_text} before {hidden_text}.{origins} {finding.explanation}",
        evidence=(*list_hidden_file_evidence(context, shadowing), *finding.evidence),
        remedies=(make_removal_remedy(context, shadowing),),
    )
