"""Answer questions from the tables: which TensorFlow supports a Python, and which one has GPU code for an ARM machine."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.findings import Remedy
from tfdoctor.core.text import join_words
from tfdoctor.diagnosis.questions import MAX_QUESTION_CHARS, Question

if TYPE_CHECKING:
    from tfdoctor.compat import Compat
    from tfdoctor.compat.arm64 import Arm64Kind

__all__ = ["find_table_question"]

_PYTHON = re.compile(r"\bpython ?(?P<version>[23]\.\d{1,2})\b")
_TENSORFLOW = re.compile(r"\b(?:tensorflow|tf)[ =]{0,3}(?P<version>[12]\.\d{1,2})\b")
_SUPPORT = re.compile(r"\b(?:support|work|compatible|wheel|available|runs? on|which|for|with)")
_ARM = re.compile(r"\b(?:aarch64|arm64|arm)\b")
_APPLE = re.compile(r"\b(?:mac|macos|macbook|apple|m[1-9])\b")
_GENERIC_WORDS = frozenset(("and", "with", "other", "machines", "servers"))
"""Words in the names of kinds of ARM machines that identify none."""


def find_table_question(query: str, compat: Compat) -> Question | None:
    """Return the question with its answer, or None if it is not one that the tables answer."""
    text = " ".join(query[:MAX_QUESTION_CHARS].lower().split())
    if ":" in text:  # a message
        return None
    return _find_python_question(text, compat) or _find_arm_question(text, compat)


def _find_python_question(text: str, compat: Compat) -> Question | None:
    """Return the question whether TensorFlow supports a version of Python, or None."""
    match = _PYTHON.search(text)
    if match is None or not re.search(r"\b(?:tensorflow|tf)\b", text) or not _SUPPORT.search(text):
        return None
    python = match["version"]
    tensorflow = _TENSORFLOW.search(text)
    if tensorflow is not None:
        return _answer_for_release(tensorflow["version"], python, compat)
    finals = compat.list_releases_for_python(python, gpu=None)
    matrix_remedy = Remedy("See what each release needs.", ("tfdoctor matrix",))
    if finals:
        names = list(dict.fromkeys(versions.major_minor(release.version) for release in finals))
        span = f"{names[0]} has" if len(names) == 1 else f"{names[-1]} to {names[0]} have"
        return Question("", f"TensorFlow {span} wheels for Python {python} on Linux.", matrix_remedy)
    candidates = [release.version for release in compat.releases if python in release.linux_pythons]
    newest = compat.newest
    candidate_note = f"; the candidate {candidates[-1]} has one" if candidates else ""
    answer = (
        f"No final release of TensorFlow has a wheel for Python {python} on Linux (as of {compat.as_of}){candidate_note}. "
        f"The newest, {newest.version}, has wheels for Python {join_words(newest.linux_pythons)}."
    )
    return Question("", answer, matrix_remedy)


def _answer_for_release(minor: str, python: str, compat: Compat) -> Question | None:
    """Return whether the releases of a minor version have wheels for a Python; None if there are no such releases."""
    releases = [
        release
        for release in compat.releases
        if release.package == "tensorflow" and versions.major_minor(release.version) == minor
    ]
    if not releases:
        return None
    newest = releases[-1]
    has_wheel = python in newest.linux_pythons
    pythons = join_words(newest.linux_pythons)
    return Question(
        "",
        f"{'Yes' if has_wheel else 'No'}: TensorFlow {newest.version} has wheels for Python {pythons} on Linux.",
        Remedy("See what it needs.", (f"tfdoctor matrix --tf {minor}",)),
    )


def _find_arm_question(text: str, compat: Compat) -> Question | None:
    """Return the question which TensorFlow has GPU code for an ARM machine, or None."""
    kind = _find_arm_kind(text, compat)
    if _APPLE.search(text) or (kind is None and not _ARM.search(text)):
        return None
    note = compat.arm64.index.note
    if kind is None:
        remedy = Remedy("On that machine, see which builds of NVIDIA's fit it.", ("tfdoctor recommend",))
        return Question("", f"{note} NVIDIA has builds for its own ARM machines.", remedy)
    if not kind.build_sources:
        remedy = Remedy("See what works without the GPU.", ("tfdoctor recommend",))
        return Question("", f"{note} No TensorFlow with GPU code is known for {kind.name}.", remedy)
    source = kind.build_sources[0]
    return Question(
        "", note, Remedy(f"For {kind.name}: {source.text} ({source.evidence}).", (source.command,))
    )


def _find_arm_kind(text: str, compat: Compat) -> Arm64Kind | None:
    """Return the kind of ARM machines that the text names, or None if it names none or several."""
    words = set(re.findall(r"\w+", text)) - _GENERIC_WORDS
    scores = {
        kind.name: len(words & {*re.findall(r"\w+", kind.name.lower()), *kind.name_words})
        for kind in compat.arm64.kinds
    }
    best = [kind for kind in compat.arm64.kinds if scores[kind.name] == max(scores.values()) > 0]
    return best[0] if len(best) == 1 else None
