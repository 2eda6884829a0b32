"""Compare two snapshots: find the differences between them, and the findings that they explain."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdoctor.core.facts import value_of
from tfdoctor.core.findings import Cause, Severity
from tfdoctor.diagnosis.diff.flatten import AREAS, Entry, Snapshot, make_snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdoctor.core.facts import Facts
    from tfdoctor.core.findings import Finding, Report

MISSING_VALUE_TEXTS = {"variables": "not set", "packages": "not installed"}
"""The text for a missing value, by area. In all other areas it is "none"."""
_NO_ENTRY = Entry("", "", None)
"""Stands for an entry that neither of the two snapshots has."""
_REMOVED_FOLDER_CAUSES = frozenset(
    {
        Cause.LIBS_NOT_INSTALLED,
        Cause.LIBS_NOT_ON_PATH,
        Cause.LIBS_TRANSITIVE,
        Cause.LIBS_WRONG_VERSION,
        Cause.CUDNN_MISSING,
        Cause.IMPORT_MISSING_CUDA_LIB,
        Cause.TENSORFLOW_MISSING,
    }
)
"""The causes of findings that appear if a folder is removed from a search path."""
_MAX_CHANGED_FLAGS = 8
"""The largest number of differing processor flags that a kernel or microcode update can explain."""


class Importance(str, enum.Enum):
    """The importance of a difference."""

    EXPLAINS = "explains"
    """The difference may be the reason for a new finding."""
    MATTERS = "matters"
    """TensorFlow depends on the value to use a GPU."""
    MINOR = "little"
    """The difference seldom matters."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A value that has changed."""

    area: str
    name: str
    old_value: str
    new_value: str
    importance: Importance
    findings: tuple[str, ...] = ()
    """The codes of the findings that the difference explains."""
    removed_items: tuple[str, ...] = ()
    """If the value is a list, the items that only the old list has."""
    added_items: tuple[str, ...] = ()
    """If the value is a list, the items that only the new list has."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The differences between a recorded machine and this one."""

    differences: tuple[Difference, ...]
    """The differences, sorted by importance and then by area."""
    recorded_summary: str
    """The summary of the recorded verdict."""
    other_machine_reasons: tuple[str, ...] = ()
    """Reasons to believe that the recording was made on another machine. Empty if they are too weak."""
    environment_prefixes: tuple[str, str] | None = None
    """(recorded prefix, current prefix) if the Python environments differ, else None."""
    new_codes: tuple[str, ...] = ()
    """The codes of findings that only this machine has."""
    resolved_codes: tuple[str, ...] = ()
    """The codes of findings that only the recording has."""


def compare(recorded: Report, current: Report) -> Comparison:
    """Compare the report on a recording with the current report.

    Either both reports must be redacted, or neither.
    """
    before, after = make_snapshot(recorded.facts), make_snapshot(current.facts)
    new_findings = _find_new_findings(recorded, current)
    differences: list[Difference] = []
    for key, change in find_differences(before, after):
        entry = after.get(key) or before[key]
        removed, added = _compare_lists(before.get(key), after.get(key))
        codes = tuple(
            dict.fromkeys(
                finding.code
                for finding in new_findings
                if _explains(entry, change, (removed, added), finding)
            )
        )
        importance = (
            Importance.EXPLAINS if codes else Importance.MINOR if entry.is_minor else Importance.MATTERS
        )
        has_lists = (
            key in before
            and key in after
            and max(len(before[key].list_items), len(after[key].list_items)) > 1
        )
        area, name = key
        old_value, new_value = change
        differences.append(
            Difference(
                area=area,
                name=name,
                old_value=old_value,
                new_value=new_value,
                importance=importance,
                findings=codes,
                removed_items=removed if has_lists else (),
                added_items=added if has_lists else (),
            )
        )
    importance_order = list(Importance)
    differences.sort(
        key=lambda difference: (
            importance_order.index(difference.importance),
            not _is_about_root(difference, current),
            AREAS.index(difference.area),
        )
    )
    recorded_prefix, current_prefix = (_get_prefix(report.facts) for report in (recorded, current))
    is_same_environment = not (recorded_prefix and current_prefix) or recorded_prefix == current_prefix
    recorded_codes, current_codes = (
        {finding.code for finding in report.findings} for report in (recorded, current)
    )
    return Comparison(
        differences=tuple(differences),
        recorded_summary=recorded.verdict.summary,
        other_machine_reasons=_find_other_machine(recorded.facts, current.facts),
        environment_prefixes=None if is_same_environment else (recorded_prefix, current_prefix),
        new_codes=tuple(sorted(current_codes - recorded_codes)),
        resolved_codes=tuple(sorted(recorded_codes - current_codes)),
    )


def find_differences(before: Snapshot, after: Snapshot) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    """Yield ((area, name), (old value, new value)) for each difference that does not follow from another."""
    for key in dict.fromkeys((*before, *after)):
        change = _find_change(before.get(key), after.get(key))
        if change is not None and not _is_consequence(key, before, after):
            yield key, change


def _get_prefix(facts: Facts) -> str:
    python = value_of(facts.python)
    return python.prefix if python is not None else ""


def _find_change(before: Entry | None, after: Entry | None) -> tuple[str, str] | None:
    """Return (old value, new value) if they differ, else None.

    If the recorded value is unknown, it cannot be compared, so return None as well.
    """
    if before is not None and before.unknown_reason:
        return None
    old_value = before.value if before is not None else None
    entry = before or after or _NO_ENTRY
    missing_text = entry.missing_value or MISSING_VALUE_TEXTS.get(entry.area, "none")
    if after is not None and after.unknown_reason:
        return (old_value, f"not known: {after.unknown_reason}") if old_value is not None else None
    new_value = after.value if after is not None else None
    if old_value == new_value:
        return None
    return (old_value if old_value is not None else missing_text), (
        new_value if new_value is not None else missing_text
    )


def _compare_lists(before: Entry | None, after: Entry | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the items that only the old list has, and those that only the new one has."""
    old_items, new_items = (entry.list_items if entry is not None else () for entry in (before, after))
    return tuple(item for item in old_items if item not in new_items), tuple(
        item for item in new_items if item not in old_items
    )


def _is_consequence(key: tuple[str, str], before: Snapshot, after: Snapshot) -> bool:
    """Return whether a difference follows from another one.

    For example, another release of TensorFlow opens other libraries, and a missing driver has no properties.
    """
    area, name = key
    is_on_one_side = (key in before) != (key in after)
    has_other_tensorflow = _is_different(("TensorFlow", "TensorFlow"), before, after)
    if area == "CUDA libraries" and name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        # In the area "driver", the entry of libnvidia-ml.so.1 is called "NVML".
        driver_entry = "NVML" if name == "libnvidia-ml.so.1" else name
        return _is_different(("driver", driver_entry), before, after)
    if area == "CUDA libraries":
        return is_on_one_side and has_other_tensorflow
    if (area, name) == ("paths", "where TensorFlow looks for CUDA"):
        return has_other_tensorflow
    if (area, name) in (("driver", "cuInit"), ("driver", "CUDA of the driver")):
        libcuda_entries = [snapshot.get(("driver", "libcuda.so.1")) for snapshot in (before, after)]
        return any(  # `flatten` begins the value with these words if libcuda cannot be opened
            (entry.value or "").startswith("cannot be opened")
            for entry in libcuda_entries
            if entry is not None
        )
    if area == "cards" and name.startswith("GPU "):
        counts = [snapshot.get(("cards", "cards that the driver shows")) for snapshot in (before, after)]
        return any(entry is not None and entry.value == "0" for entry in counts)
    if area == "cards" and name.endswith((": compute mode", ": MIG")):
        return is_on_one_side and _is_different(("driver", "nvidia-smi"), before, after)
    if area == "TensorFlow" and name != "TensorFlow":
        entries = (before.get(("TensorFlow", "TensorFlow")), after.get(("TensorFlow", "TensorFlow")))
        return any(entry is None or entry.value is None for entry in entries)
    if area == "packages" and name in ("tensorflow", "tensorflow-gpu", "tensorflow-cpu", "tf-nightly"):
        entries = (before.get(("TensorFlow", "its package")), after.get(("TensorFlow", "its package")))
        return all(entry is not None and entry.value == name for entry in entries)
    if area == "driver" and name == "kernel module":
        return _is_same_change(key, ("driver", "NVIDIA driver"), before, after)
    return False


def _is_different(key: tuple[str, str], before: Snapshot, after: Snapshot) -> bool:
    return _find_change(before.get(key), after.get(key)) is not None


def _is_same_change(
    key: tuple[str, str],
    other_key: tuple[str, str],
    before: Snapshot,
    after: Snapshot,
) -> bool:
    return _find_change(before.get(key), after.get(key)) == _find_change(
        before.get(other_key), after.get(other_key)
    )


# ---------------------------------------------------------------- explanations


def _find_new_findings(recorded: Report, current: Report) -> list[Finding]:
    """Return the current findings that the recording does not have, except those of severity INFO."""
    recorded_keys = {(finding.code, finding.title) for finding in recorded.findings}
    return [
        finding
        for finding in current.findings
        if (finding.code, finding.title) not in recorded_keys and finding.severity is not Severity.INFO
    ]


def _is_about_root(difference: Difference, current: Report) -> bool:
    return current.root_finding is not None and current.root_finding.code in difference.findings


def _explains(
    entry: Entry,
    change: tuple[str, str],
    list_changes: tuple[tuple[str, ...], tuple[str, ...]],
    finding: Finding,
) -> bool:
    """Return whether a change of the entry can explain the finding.

    A variable can explain a finding that mentions it, or one with a cause among the entry's `causes`. Any other entry
    needs such a cause. Packages, libraries, paths and minor entries must usually be mentioned as well. `change` is
    (old value, new value), and `list_changes` is (removed items, added items) if the value is a list.
    """
    has_same_cause = finding.cause in entry.causes
    if entry.area == "variables" and entry.name.endswith("PATH"):
        in_evidence = any(item.source == entry.name for item in finding.evidence)
        removed, added = list_changes
        return in_evidence or (has_same_cause and _do_folders_explain(removed, added, finding))
    if entry.area == "variables":
        return has_same_cause or any(
            _mentions(_join_texts(finding), word) for word in (entry.name, *entry.aliases)
        )
    if not has_same_cause:
        return False
    text = (
        _join_texts(finding)
        + "\n"
        + "\n".join(" ".join((item.full_text, *item.commands)) for item in finding.remedies)
    )
    is_named = any(_mentions(text, word) for word in (entry.name, *entry.aliases))
    if entry.area == "packages":
        _, new_value = change
        is_removed = new_value == MISSING_VALUE_TEXTS["packages"]
        return is_named or (is_removed and entry.name.startswith("nvidia-"))
    if entry.area == "container engine":
        return True
    return is_named or not (entry.area in ("CUDA libraries", "paths") or entry.is_minor or entry.needs_name)


def _do_folders_explain(removed: tuple[str, ...], added: tuple[str, ...], finding: Finding) -> bool:
    """Return whether a change of a search path explains the finding.

    Removed folders explain it if its cause is in `_REMOVED_FOLDER_CAUSES`. An added folder must be mentioned in it.
    """
    if finding.cause in _REMOVED_FOLDER_CAUSES and removed:
        return True
    return any(folder in _join_texts(finding) for folder in added if len(folder) > 1)


def _join_texts(finding: Finding) -> str:
    parts = [finding.title, finding.explanation]
    parts += [f"{evidence.source} {evidence.text}" for evidence in finding.evidence]
    return "\n".join(parts)


def _mentions(text: str, word: str) -> bool:
    """Return whether the text contains the word, and not only as a part of a longer name or version."""
    return re.search(rf"(?<![\w.-]){re.escape(word)}(?![\w-])", text) is not None


# ---------------------------------------------------------------- same machine


def _find_other_machine(recorded: Facts, current: Facts) -> tuple[str, ...]:
    """Return the reasons to believe that the two reports are about different machines, or () if they are too weak.

    A single reason suffices only if it is the processor architecture or WSL, because anything else of a machine can
    change.
    """
    reasons = []
    old, new = recorded.machine, current.machine
    if old.machine != new.machine:
        reasons.append(f"the processor is {new.machine}, not {old.machine}")
    if old.distribution_id != new.distribution_id:
        reasons.append(
            f"the system is {new.distribution or 'another one'}, not {old.distribution or 'the same'}"
        )
    old_cards, new_cards = (
        {(card.address, card.device_id) for card in value_of(facts.driver.pci) or ()}
        for facts in (recorded, current)
    )
    if old_cards and new_cards and not old_cards & new_cards:
        reasons.append("it has other cards")
    if old.cpu_flags and new.cpu_flags and len(old.cpu_flags ^ new.cpu_flags) > _MAX_CHANGED_FLAGS:
        reasons.append("it has another processor")
    if (old.container is None) != (new.container is None):
        reasons.append("one is a container, the other one is not")
    if old.wsl != new.wsl:
        reasons.append("one is WSL, the other one is not")
    is_certain = old.machine != new.machine or old.wsl != new.wsl
    return tuple(reasons) if is_certain or len(reasons) > 1 else ()
