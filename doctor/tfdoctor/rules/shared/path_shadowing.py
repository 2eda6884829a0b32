"""Find the libraries that entries of LD_LIBRARY_PATH or LD_PRELOAD put before better ones."""

from __future__ import annotations

import dataclasses
import posixpath
from typing import TYPE_CHECKING

from tfdoctor.core.findings import Evidence, Remedy
from tfdoctor.core.records import dataclass
from tfdoctor.core.text import split_path_list
from tfdoctor.rules.shared import variable_origins

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.core.facts import LoaderFacts, RemovedEntriesResult, ReplacedLibrary, Resolution
    from tfdoctor.core.findings import Finding
    from tfdoctor.rules.base import RuleContext


@dataclass(frozen=True, slots=True)
class Shadowing:
    """Entries of a variable that keep the loader from finding a better library."""

    removal_result: RemovedEntriesResult
    """The result of resolving the libraries without these entries."""
    harmful_files: tuple[ReplacedLibrary, ...]
    """The files that cause the problem, each with the file that it hides."""


def find_shadowing(context: RuleContext, sonames: Sequence[str] = ()) -> Shadowing | None:
    """Find the entries that hide the libraries `sonames`. Without `sonames`, find those that break the import.

    Return the entries whose removal solves the most failures. Return None if no removal helps, or if each that
    helps breaks something else.
    """
    loader = context.loader
    if loader is None:
        return None
    best_count, best_result = 0, None
    for removal_result in loader.without:
        solved_count = _count_solved(loader, removal_result, sonames)
        if solved_count > best_count:
            best_count, best_result = solved_count, removal_result
    if best_result is None:
        return None
    unresolved = (
        [resolution for resolution in loader.resolutions if resolution.soname in sonames]
        if sonames
        else list(loader.import_needs)
    )
    return Shadowing(best_result, _select_harmful_files(best_result, unresolved, sonames))


def _count_solved(loader: LoaderFacts, removal_result: RemovedEntriesResult, sonames: Sequence[str]) -> int:
    """Count the failures that removing the entries solves; 0 if the removal breaks something else."""
    resolved_now = {resolution.soname for resolution in loader.resolutions if resolution.ok}
    resolved_without = {resolution.soname for resolution in removal_result.resolutions if resolution.ok}
    if resolved_now - resolved_without or (removal_result.import_needs and not loader.import_needs):
        return 0
    if not sonames:
        return int(bool(loader.import_needs) and not removal_result.import_needs)
    return len({*sonames} & (resolved_without - resolved_now))


def _select_harmful_files(
    removal_result: RemovedEntriesResult, failures: Sequence[Resolution], sonames: Sequence[str]
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
    # the loader's errors begin with the path of the file
    error_paths = {resolution.error.split(": ")[0] for resolution in failures}
    harmful_files = [
        replaced
        for replaced in removal_result.instead
        if replaced.path in involved_paths | error_paths or replaced.soname in sonames
    ]
    return tuple(harmful_files or removal_result.instead)


def find_driver_shadowing(context: RuleContext, path: str) -> Shadowing | None:
    """Return the entries through which the loader finds the libcuda at `path`; None if there are none."""
    for removal_result in context.loader.without if context.loader is not None else ():
        harmful_file = next((replaced for replaced in removal_result.instead if replaced.path == path), None)
        if harmful_file is not None:
            return Shadowing(removal_result, (harmful_file,))
    return None


def _normalize_path(path: str | None) -> str:
    """Return a path normalized for display; "" for None."""
    return posixpath.normpath(path) if path else ""


def _get_first_hidden_file(shadowing: Shadowing) -> str:
    """Return the path of the file that the first harmful file hides; "" if it hides none."""
    return _normalize_path(shadowing.harmful_files[0].other) if shadowing.harmful_files else ""


def format_harmful_entries(shadowing: Shadowing) -> str:
    """Return the variable and its entries, such as "LD_LIBRARY_PATH (/old/lib64)"."""
    return f"{shadowing.removal_result.variable} ({', '.join(shadowing.removal_result.entries)})"


def make_entry_removal_remedy(context: RuleContext, shadowing: Shadowing) -> Remedy:
    """Return the remedy to remove the entries where they are set."""
    name, entries = shadowing.removal_result.variable, shadowing.removal_result.entries
    value = context.facts.environment.variables.get(name, "")
    remaining = [entry for entry in split_path_list(name, value) if entry not in entries]
    hidden_file = _get_first_hidden_file(shadowing)
    benefit = f": {hidden_file} is found then" if hidden_file else ""
    text = f"Take {', '.join(entries)} off {name} where TensorFlow runs{benefit}."
    return variable_origins.make_entries_removal_remedy(context, name, entries, remaining, text)


def list_hidden_file_evidence(context: RuleContext, shadowing: Shadowing) -> list[Evidence]:
    """Return the harmful files, the files they hide and the lines that add the entries, as evidence."""
    name = shadowing.removal_result.variable
    file_evidence = [
        Evidence(
            replaced.path,
            f"comes through {name}; without it {_normalize_path(replaced.other) or 'nothing of that name'}",
        )
        for replaced in shadowing.harmful_files[:4]
    ]
    return [
        *file_evidence,
        *(
            evidence
            for entry in shadowing.removal_result.entries
            for evidence in variable_origins.list_origin_evidence(context, name, entry)
        ),
    ]


def add_shadowing_explanation(
    context: RuleContext, finding: Finding, sonames: Sequence[str] = (), *, title: str = ""
) -> Finding:
    """Return the finding with an explanation of the file that hides a better library.

    Its only remedy is then to remove the entries that put that file first. If nothing hides a library, return
    the finding unchanged. `title` replaces the title about that file.
    """
    shadowing = find_shadowing(context, sonames)
    if shadowing is None:
        return finding
    name = shadowing.removal_result.variable
    first_file = shadowing.harmful_files[0] if shadowing.harmful_files else None
    origins = "".join(
        variable_origins.format_origin_sentence(context, name, entry)
        for entry in shadowing.removal_result.entries
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
        remedies=(make_entry_removal_remedy(context, shadowing),),
    )
