"""Two snapshots beside each other: what differs, and what of it explains a finding. Pure."""

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
"""Area → how it is said there that something is not there; "none" elsewhere."""


class Matters(str, enum.Enum):
    """How much a difference weighs."""

    EXPLAINS = "explains"
    """It can be the reason of a finding that was not there then."""
    MATTERS = "matters"
    """TensorFlow on a GPU depends on it."""
    LITTLE = "little"


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is another one now."""

    area: str
    name: str
    was: str
    is_: str
    matters: Matters
    findings: tuple[str, ...] = ()
    """Codes of the findings that it explains."""
    lost: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    """Of a list that is there on both sides: what is not in it any more, and what was not in it then."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """This machine beside a recorded one."""

    differences: tuple[Difference, ...]
    """What explains a finding first, then by weight and area."""
    then: str
    """The verdict's sentence then."""
    elsewhere: tuple[str, ...] = ()
    """What speaks for another machine, in sentences; empty where it seems the same."""
    environment: tuple[str, str] | None = None
    """(then, now) where another Python environment is examined."""
    fresh: tuple[str, ...] = ()
    """Codes of the findings that were not there then."""
    gone: tuple[str, ...] = ()
    """Codes of the findings of then that are not there now."""


def compare(was: Report, now: Report) -> Comparison:
    """Compare two reports. Both must be redacted alike, or neither."""
    before, after = snapshot(was.facts), snapshot(now.facts)
    fresh = _find_new_findings(was, now)
    found: list[Difference] = []
    for key, pair in find_differences(before, after):
        entry = after.get(key) or before[key]
        lost, new = _compare_lists(before.get(key), after.get(key))
        codes = tuple(dict.fromkeys(f.code for f in fresh if _explains(entry, pair, (lost, new), f)))
        matters = Matters.EXPLAINS if codes else Matters.LITTLE if entry.little else Matters.MATTERS
        lists = key in before and key in after and max(len(before[key].parts), len(after[key].parts)) > 1
        found.append(Difference(*key, *pair, matters, codes, *((lost, new) if lists else ((), ()))))
    weights = list(Matters)
    found.sort(
        key=lambda one: (weights.index(one.matters), not _is_about_root(one, now), AREAS.index(one.area))
    )
    prefixes = tuple(_prefix(report.facts) for report in (was, now))
    then, here = ({finding.code for finding in report.findings} for report in (was, now))
    return Comparison(
        tuple(found),
        was.verdict.summary,
        _find_other_machine(was.facts, now.facts),
        (prefixes[0], prefixes[1]) if all(prefixes) and prefixes[0] != prefixes[1] else None,
        tuple(sorted(here - then)),
        tuple(sorted(then - here)),
    )


def find_differences(before: Snapshot, after: Snapshot) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    """Yield ((area, name), (was, is)) of what differs, without what follows from another difference."""
    for key in dict.fromkeys((*before, *after)):
        pair = _find_change(before.get(key), after.get(key))
        if pair is not None and not _follows(key, before, after):
            yield key, pair


def _prefix(facts: Facts) -> str:
    python = value_of(facts.python)
    return python.prefix if python is not None else ""


def _find_change(was: Entry | None, now: Entry | None) -> tuple[str, str] | None:
    """Return (was, is) if they differ. What was unknown then cannot be compared."""
    if was is not None and was.unknown:
        return None
    old = was.value if was is not None else None
    entry = was or now or _NO_ENTRY
    nothing = entry.otherwise or NOTHING.get(entry.area, "none")
    if now is not None and now.unknown:
        return (old, f"not known: {now.unknown}") if old is not None else None
    new = now.value if now is not None else None
    if old == new:
        return None
    return (old if old is not None else nothing), (new if new is not None else nothing)


_NO_ENTRY = Entry("", "", None)


def _compare_lists(was: Entry | None, now: Entry | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what a list has lost, and what is new in it; nothing if only the order differs."""
    old, new = (entry.parts if entry is not None else () for entry in (was, now))
    return tuple(p for p in old if p not in new), tuple(p for p in new if p not in old)


def _follows(key: tuple[str, str], before: Snapshot, after: Snapshot) -> bool:
    """Return whether a difference follows from another one.

    Another TensorFlow opens other names; a TensorFlow or driver that is gone has no properties.
    """
    area, name = key
    one_only = (key in before) != (key in after)
    other_tensorflow = _differs(("TensorFlow", "TensorFlow"), before, after)
    if area == "CUDA libraries" and name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        return _differs(("driver", {"libcuda.so.1": name}.get(name, "NVML")), before, after)
    if area == "CUDA libraries":
        return one_only and other_tensorflow
    if (area, name) == ("paths", "where TensorFlow looks for CUDA"):
        return other_tensorflow
    if (area, name) in (("driver", "cuInit"), ("driver", "CUDA of the driver")):
        libcuda = [side.get(("driver", "libcuda.so.1")) for side in (before, after)]
        return any((one.value or "").startswith("cannot be opened") for one in libcuda if one is not None)
    if area == "cards" and name.startswith("GPU "):
        counts = [side.get(("cards", "cards that the driver shows")) for side in (before, after)]
        return any(one is not None and one.value == "0" for one in counts)
    if area == "cards" and name.endswith((": compute mode", ": MIG")):
        return one_only and _differs(("driver", "nvidia-smi"), before, after)
    if area == "TensorFlow" and name != "TensorFlow":
        sides = (before.get(("TensorFlow", "TensorFlow")), after.get(("TensorFlow", "TensorFlow")))
        return any(side is None or side.value is None for side in sides)
    if area == "packages" and name in ("tensorflow", "tensorflow-gpu", "tensorflow-cpu", "tf-nightly"):
        sides = (before.get(("TensorFlow", "its package")), after.get(("TensorFlow", "its package")))
        return all(side is not None and side.value == name for side in sides)
    if area == "driver" and name == "kernel module":
        return _is_same_change(key, ("driver", "NVIDIA driver"), before, after)
    return False


def _differs(key: tuple[str, str], before: Snapshot, after: Snapshot) -> bool:
    return _find_change(before.get(key), after.get(key)) is not None


def _is_same_change(
    one: tuple[str, str],
    other: tuple[str, str],
    before: Snapshot,
    after: Snapshot,
) -> bool:
    return _find_change(before.get(one), after.get(one)) == _find_change(before.get(other), after.get(other))


# ---------------------------------------------------------------- what explains what


def _find_new_findings(was: Report, now: Report) -> list[Finding]:
    """Return the findings of now that did not exist then, by code and title, without those that only inform."""
    known = {(finding.code, finding.title) for finding in was.findings}
    return [f for f in now.findings if (f.code, f.title) not in known and f.severity is not Severity.INFO]


def _is_about_root(difference: Difference, now: Report) -> bool:
    return now.root is not None and now.root.code in difference.findings


def _explains(
    entry: Entry, pair: tuple[str, str], parts: tuple[tuple[str, ...], tuple[str, ...]], finding: Finding
) -> bool:
    """Return whether the finding is about this entry, or about a cause that this entry decides."""
    caused = finding.cause in entry.causes
    if entry.area == "variables" and entry.name.endswith("PATH"):
        told = any(one.source == entry.name for one in finding.evidence)
        return told or (caused and _explains_folders(*parts, finding))
    if entry.area == "variables":
        return caused or any(_mentions(_text(finding), word) for word in (entry.name, *entry.said))
    if not caused:
        return False
    text = (
        _text(finding)
        + "\n"
        + "\n".join(" ".join((one.full_text, *one.commands)) for one in finding.remedies)
    )
    named = any(_mentions(text, word) for word in (entry.name, *entry.said))
    if entry.area == "packages":
        return named or (pair[1] == NOTHING["packages"] and entry.name.startswith("nvidia-"))
    if entry.area == "container engine":
        return True
    return named or not (entry.area in ("CUDA libraries", "paths") or entry.little or entry.by_name)


_GONE = frozenset(
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
"""What can come of a folder that is no longer on a path."""


def _explains_folders(lost: tuple[str, ...], new: tuple[str, ...], finding: Finding) -> bool:
    """Return whether a path explains the finding: by a folder that it lost, else by a new one that is named."""
    if finding.cause in _GONE and lost:
        return True
    return any(folder in _text(finding) for folder in new if len(folder) > 1)


def _text(finding: Finding) -> str:
    parts = [finding.title, finding.explanation]
    parts += [f"{one.source} {one.text}" for one in finding.evidence]
    return "\n".join(parts)


def _mentions(text: str, word: str) -> bool:
    return re.search(rf"(?<![\w.-]){re.escape(word)}(?![\w-])", text) is not None


# ---------------------------------------------------------------- is it the same machine?


def _find_other_machine(was: Facts, now: Facts) -> tuple[str, ...]:
    """Return what speaks for another machine: two of these, as one alone can have changed."""
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
    certain = old.machine != new.machine or old.wsl != new.wsl
    return tuple(reasons) if certain or len(reasons) > 1 else ()
