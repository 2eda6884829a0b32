"""The comparison of two snapshots: the differences, and which of them explain a finding. Pure."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdoctor.facts import value_of
from tfdoctor.findings import Cause, Severity
from tfdoctor.report.diff.flatten import AREAS, Entry, Snapshot, snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdoctor.facts import Facts
    from tfdoctor.findings import Finding, Report

NOTHING = {"variables": "not set", "packages": "not installed"}
"""Area to the text for a missing value; "none" in other areas."""


class Matters(str, enum.Enum):
    """How important a difference is."""

    EXPLAINS = "explains"
    """It can be the reason of a new finding."""
    MATTERS = "matters"
    """TensorFlow on a GPU depends on it."""
    LITTLE = "little"


@dataclass(frozen=True, slots=True)
class Difference:
    """A value that has changed."""

    area: str
    name: str
    was: str
    now: str
    matters: Matters
    findings: tuple[str, ...] = ()
    """Codes of the findings that it explains."""
    lost: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    """For a list that both sides have: the items in `lost` were removed, those in `new` were added."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The differences between a recorded machine and this one."""

    differences: tuple[Difference, ...]
    """Those that explain a finding first, then by importance and area."""
    recorded_summary: str
    """The summary of the recorded verdict."""
    other_machine_reasons: tuple[str, ...] = ()
    """Reasons to believe that the recording is of another machine; empty if it seems to be the same."""
    environment: tuple[str, str] | None = None
    """(then, now), if another Python environment was examined."""
    new_codes: tuple[str, ...] = ()
    """Codes of the findings that are new."""
    resolved_codes: tuple[str, ...] = ()
    """Codes of the recorded findings that are not there any more."""


def compare(was: Report, now: Report) -> Comparison:
    """Return the comparison of two reports. Either both or neither must be redacted."""
    before, after = snapshot(was.facts), snapshot(now.facts)
    fresh = _find_new_findings(was, now)
    differences: list[Difference] = []
    for key, pair in find_differences(before, after):
        entry = after.get(key) or before[key]
        lost, new = _compare_lists(before.get(key), after.get(key))
        codes = tuple(dict.fromkeys(f.code for f in fresh if _explains(entry, pair, (lost, new), f)))
        matters = Matters.EXPLAINS if codes else Matters.LITTLE if entry.little else Matters.MATTERS
        has_lists = key in before and key in after and max(len(before[key].parts), len(after[key].parts)) > 1
        differences.append(Difference(*key, *pair, matters, codes, *((lost, new) if has_lists else ((), ()))))
    weights = list(Matters)
    differences.sort(
        key=lambda difference: (
            weights.index(difference.matters),
            not _is_about_root(difference, now),
            AREAS.index(difference.area),
        )
    )
    prefixes = tuple(_get_prefix(report.facts) for report in (was, now))
    recorded_codes, current_codes = ({finding.code for finding in report.findings} for report in (was, now))
    return Comparison(
        tuple(differences),
        was.verdict.summary,
        _find_other_machine(was.facts, now.facts),
        (prefixes[0], prefixes[1]) if all(prefixes) and prefixes[0] != prefixes[1] else None,
        tuple(sorted(current_codes - recorded_codes)),
        tuple(sorted(recorded_codes - current_codes)),
    )


def find_differences(before: Snapshot, after: Snapshot) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    """Yield ((area, name), (was, is)) of each difference, without those that follow from another one."""
    for key in dict.fromkeys((*before, *after)):
        pair = _find_change(before.get(key), after.get(key))
        if pair is not None and not _is_consequence(key, before, after):
            yield key, pair


def _get_prefix(facts: Facts) -> str:
    python = value_of(facts.python)
    return python.prefix if python is not None else ""


def _find_change(was: Entry | None, now: Entry | None) -> tuple[str, str] | None:
    """Return (was, is) if they differ, else None.

    A value that was unknown in the recording cannot be compared.
    """
    if was is not None and was.unknown:
        return None
    old = was.value if was is not None else None
    entry = was or now or _NO_ENTRY
    nothing = entry.missing_value or NOTHING.get(entry.area, "none")
    if now is not None and now.unknown:
        return (old, f"not known: {now.unknown}") if old is not None else None
    new = now.value if now is not None else None
    if old == new:
        return None
    return (old if old is not None else nothing), (new if new is not None else nothing)


_NO_ENTRY = Entry("", "", None)


def _compare_lists(was: Entry | None, now: Entry | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the items that a list lost, and those that are new; nothing if only the order differs."""
    old, new = (entry.parts if entry is not None else () for entry in (was, now))
    return tuple(p for p in old if p not in new), tuple(p for p in new if p not in old)


def _is_consequence(key: tuple[str, str], before: Snapshot, after: Snapshot) -> bool:
    """Return whether a difference follows from another one.

    Another TensorFlow opens other libraries; a TensorFlow or driver that is missing has no properties.
    """
    area, name = key
    one_only = (key in before) != (key in after)
    other_tensorflow = _is_different(("TensorFlow", "TensorFlow"), before, after)
    if area == "CUDA libraries" and name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        return _is_different(("driver", {"libcuda.so.1": name}.get(name, "NVML")), before, after)
    if area == "CUDA libraries":
        return one_only and other_tensorflow
    if (area, name) == ("paths", "where TensorFlow looks for CUDA"):
        return other_tensorflow
    if (area, name) in (("driver", "cuInit"), ("driver", "CUDA of the driver")):
        libcuda = [side.get(("driver", "libcuda.so.1")) for side in (before, after)]
        return any(
            (entry.value or "").startswith("cannot be opened") for entry in libcuda if entry is not None
        )
    if area == "cards" and name.startswith("GPU "):
        counts = [side.get(("cards", "cards that the driver shows")) for side in (before, after)]
        return any(entry is not None and entry.value == "0" for entry in counts)
    if area == "cards" and name.endswith((": compute mode", ": MIG")):
        return one_only and _is_different(("driver", "nvidia-smi"), before, after)
    if area == "TensorFlow" and name != "TensorFlow":
        sides = (before.get(("TensorFlow", "TensorFlow")), after.get(("TensorFlow", "TensorFlow")))
        return any(side is None or side.value is None for side in sides)
    if area == "packages" and name in ("tensorflow", "tensorflow-gpu", "tensorflow-cpu", "tf-nightly"):
        sides = (before.get(("TensorFlow", "its package")), after.get(("TensorFlow", "its package")))
        return all(side is not None and side.value == name for side in sides)
    if area == "driver" and name == "kernel module":
        return _is_same_change(key, ("driver", "NVIDIA driver"), before, after)
    return False


def _is_different(key: tuple[str, str], before: Snapshot, after: Snapshot) -> bool:
    return _find_change(before.get(key), after.get(key)) is not None


def _is_same_change(
    key: tuple[str, str],
    other: tuple[str, str],
    before: Snapshot,
    after: Snapshot,
) -> bool:
    return _find_change(before.get(key), after.get(key)) == _find_change(before.get(other), after.get(other))


# ---------------------------------------------------------------- explanations


def _find_new_findings(was: Report, now: Report) -> list[Finding]:
    """Return the findings that are new by code and title, without those that only inform."""
    recorded = {(finding.code, finding.title) for finding in was.findings}
    return [f for f in now.findings if (f.code, f.title) not in recorded and f.severity is not Severity.INFO]


def _is_about_root(difference: Difference, now: Report) -> bool:
    return now.root is not None and now.root.code in difference.findings


def _explains(
    entry: Entry, pair: tuple[str, str], parts: tuple[tuple[str, ...], tuple[str, ...]], finding: Finding
) -> bool:
    """Return whether the finding is about this entry, or has a cause that this entry can have."""
    caused = finding.cause in entry.causes
    if entry.area == "variables" and entry.name.endswith("PATH"):
        in_evidence = any(item.source == entry.name for item in finding.evidence)
        return in_evidence or (caused and _explains_folders(*parts, finding))
    if entry.area == "variables":
        return caused or any(_mentions(_join_texts(finding), word) for word in (entry.name, *entry.aliases))
    if not caused:
        return False
    text = (
        _join_texts(finding)
        + "\n"
        + "\n".join(" ".join((item.full_text, *item.commands)) for item in finding.remedies)
    )
    is_named = any(_mentions(text, word) for word in (entry.name, *entry.aliases))
    if entry.area == "packages":
        return is_named or (pair[1] == NOTHING["packages"] and entry.name.startswith("nvidia-"))
    if entry.area == "container engine":
        return True
    return is_named or not (entry.area in ("CUDA libraries", "paths") or entry.little or entry.by_name)


_LOST_FOLDER_CAUSES = frozenset(
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
"""Causes that the removal of a folder from a path can have."""


def _explains_folders(lost: tuple[str, ...], new: tuple[str, ...], finding: Finding) -> bool:
    """Return whether a change of a path explains the finding.

    It does if the path lost a folder, or if the finding names a new one.
    """
    if finding.cause in _LOST_FOLDER_CAUSES and lost:
        return True
    return any(folder in _join_texts(finding) for folder in new if len(folder) > 1)


def _join_texts(finding: Finding) -> str:
    parts = [finding.title, finding.explanation]
    parts += [f"{evidence.source} {evidence.text}" for evidence in finding.evidence]
    return "\n".join(parts)


def _mentions(text: str, word: str) -> bool:
    return re.search(rf"(?<![\w.-]){re.escape(word)}(?![\w-])", text) is not None


# ---------------------------------------------------------------- same machine


def _find_other_machine(was: Facts, now: Facts) -> tuple[str, ...]:
    """Return the reasons to believe that it is another machine.

    One reason is not enough, because a machine can change, unless it is the processor or WSL.
    """
    reasons = []
    old, new = was.machine, now.machine
    if old.machine != new.machine:
        reasons.append(f"the processor is {new.machine}, not {old.machine}")
    if old.distribution_id != new.distribution_id:
        reasons.append(
            f"the system is {new.distribution or 'another one'}, not {old.distribution or 'known'}"
        )
    cards = [
        {(card.address, card.device_id) for card in value_of(facts.driver.pci) or ()} for facts in (was, now)
    ]
    if all(cards) and not cards[0] & cards[1]:
        reasons.append("it has other cards")
    if old.cpu_flags and new.cpu_flags and len(old.cpu_flags ^ new.cpu_flags) > 8:
        reasons.append("it has another processor")
    if (old.container is None) != (new.container is None):
        reasons.append("one is a container, the other one is not")
    if old.wsl != new.wsl:
        reasons.append("one is WSL, the other one is not")
    is_certain = old.machine != new.machine or old.wsl != new.wsl
    return tuple(reasons) if is_certain or len(reasons) > 1 else ()
