"""Codes and causes, explained: what `tfdoctor explain` and docs/rules.md show. Pure.

A rule's documentation is its module's docstring: a first line, then the sections of `HEADINGS`.
"""

from __future__ import annotations

import difflib
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdoctor.causes import HARMLESS, MISREAD, RELEASE
from tfdoctor.dockerfile.checks import DOCKERFILE_RULES
from tfdoctor.errors import UsageError
from tfdoctor.findings import Cause
from tfdoctor.rules import ALL_RULES
from tfdoctor.rules.base import sentences
from tfdoctor.rules.retired import RETIRED, living

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.dockerfile.checks.base import DockerfileRule
    from tfdoctor.rules.base import Rule
    from tfdoctor.rules.retired import Retired

HEADINGS = ("What it means", "How it is seen", "What to do")
"""The sections of every rule's docstring, in this order."""


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and the text below it, paragraphs apart by an empty line."""

    heading: str
    text: str


@dataclass(frozen=True, slots=True)
class RuleEntry:
    """A rule with its documentation."""

    code: str
    name: str
    title: str
    causes: tuple[Cause, ...]
    summary: str
    """The docstring's first paragraph, on one line."""
    sections: tuple[Section, ...]

    @property
    def any_cause(self) -> bool:
        """Whether it passes on whatever cause the data names: it then says nothing about any one of them."""
        return set(self.causes) == set(Cause)


@dataclass(frozen=True, slots=True)
class CauseEntry:
    """A cause, what it means, and the codes of the rules that can name it."""

    cause: Cause
    meaning: str
    codes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer to one question; `query` is None where everything was asked for."""

    query: str | None
    rules: tuple[RuleEntry, ...]
    causes: tuple[CauseEntry, ...]
    related: tuple[RuleEntry, ...] = ()
    """Other rules that can name one of `causes`."""
    retired: Retired | None = None
    """What was asked for, where it is gone; `rules` are then those that tell it now."""


LOG_CODES = {
    cause.row.code: cause
    for cause in sorted(Cause, key=lambda cause: cause.row.code)
    if cause.row.code not in {rule.code for rule in ALL_RULES}
}
"""Codes that only `diagnose` gives → their cause."""
LOG_NOTES = {
    HARMLESS: RuleEntry(
        HARMLESS,
        "harmless-messages",
        "Messages in a log that look bad and are harmless",
        (),
        "Lines that frighten and decide nothing.",
        (
            Section(
                "What it means",
                "A healthy log is full of lines that frighten: no NUMA node, a factory registered twice, no "
                "TensorRT, instructions that the processor could do besides.",
            ),
            Section("What to do", "Nothing: they do not decide whether TensorFlow uses the GPU."),
        ),
    ),
    MISREAD: RuleEntry(
        MISREAD,
        "easily-misread",
        "Lines in a log that are easily taken for the opposite",
        (),
        "Lines that say less than they seem to.",
        (
            Section(
                "What it means",
                "A line says less than it seems to: XLA_GPU devices are no registered GPUs, a library that was "
                "opened is not all of them, a card that is found need not be used.",
            ),
            Section("What to do", "Read the verdict, which weighs the lines that decide."),
        ),
    ),
    RELEASE: RuleEntry(
        RELEASE,
        "which-tensorflow",
        "Which TensorFlow wrote a log, by the lines of its source",
        (),
        "Lines that tell the release.",
        (
            Section(
                "What it means",
                "A message names the file and the line of TensorFlow's source that logs it, and these change from "
                "release to release: what all of a log's lines have in common is the release that wrote it. A line "
                "that no release has is of another build, and lines without a release in common are of several "
                "TensorFlows.",
            ),
            Section("What to do", "Nothing. Where the release is not known, put yours into the commands."),
        ),
    ),
}
"""Codes of `diagnose` that name no cause."""


def rule_entry(rule: Rule | DockerfileRule) -> RuleEntry:
    """The rule and its documentation."""
    text = sys.modules[rule.check.__module__].__doc__ or ""
    return RuleEntry(
        code=rule.code,
        name=rule.name,
        title=rule.title,
        causes=rule.causes,
        summary=" ".join(text.strip().partition("\n\n")[0].split()),
        sections=tuple(Section(heading, sentences(text, heading)) for heading in HEADINGS),
    )


EXPLAINED: tuple[Rule | DockerfileRule, ...] = (*ALL_RULES, *DOCKERFILE_RULES)
"""The rules of `check`, and those of `build --check`."""


def catalogue(rules: Sequence[Rule | DockerfileRule] = EXPLAINED) -> Explanation:
    """All rules, by code, and all causes, in the vocabulary's order."""
    entries = tuple(rule_entry(rule) for rule in sorted(rules, key=lambda rule: rule.code))
    return Explanation(None, entries, tuple(_cause_entry(cause, entries) for cause in Cause))


def lookup(
    query: str,
    rules: Sequence[Rule | DockerfileRule] = EXPLAINED,
    retired: Sequence[Retired] = RETIRED,
) -> Explanation:
    """What is known under a code ("TFD203", "203"), a rule's name or a cause; case does not matter.

    Where a rule and a cause share the word, the rule is shown, and with it the cause and the other rules
    that can name it. A retired code leads to those that stand for it today. Raises UsageError, with the nearest
    names, where there is nothing of that name.
    """
    everything = catalogue(rules)
    word = query.strip().lower().replace("_", "-")
    code = f"TFD{word}" if re.fullmatch(r"\d{3}", word) else word.upper()
    named = tuple(entry for entry in everything.rules if code == entry.code or word == entry.name)
    gone = next((row for row in retired if code == row.code or word == row.name), None)
    if gone is not None and not named:
        today = living(gone.code, retired)
        named = tuple(entry for entry in everything.rules if entry.code in today)
    if code in LOG_NOTES:
        named = (LOG_NOTES[code],)
    logged = LOG_CODES.get(code)
    causes = tuple(entry for entry in everything.causes if word == entry.cause.value or entry.cause is logged)
    if not named and not causes and gone is None:
        known = [*(entry.code for entry in everything.rules), *(entry.name for entry in everything.rules)]
        known += [*LOG_CODES, *LOG_NOTES]
        raise _unknown(query, word, code, [*known, *(entry.cause.value for entry in everything.causes)])
    if not causes:
        wanted = {cause for entry in named if not entry.any_cause for cause in entry.causes}
        causes = tuple(entry for entry in everything.causes if entry.cause in wanted)
    having = tuple(
        entry
        for entry in everything.rules
        if entry not in named and any(entry.code in cause.codes for cause in causes)
    )
    if not named and len(having) == 1:
        named, having = having, ()
    return Explanation(query, named, causes, having, gone)


def _cause_entry(cause: Cause, entries: Sequence[RuleEntry]) -> CauseEntry:
    codes = tuple(entry.code for entry in entries if cause in entry.causes and not entry.any_cause)
    return CauseEntry(cause, cause.row.meaning, codes)


def _unknown(query: str, word: str, code: str, known: Sequence[str]) -> UsageError:
    names = list(dict.fromkeys(known))
    begun = [name for name in names if len(code) > 3 and name.startswith(code)][:4]
    near = begun or difflib.get_close_matches(word, names, n=4, cutoff=0.6)
    near += [name for name in difflib.get_close_matches(code, names, n=3, cutoff=0.75) if name not in near]
    if not near and len(word) > 2:
        near = [name for name in names if word in name][:4]
    hint = "`tfdoctor explain` lists every code and cause."
    if near:
        hint = f"did you mean {_choice(near)}? {hint}"
    shown = query if len(query) <= 60 else query[:60] + "…"
    return UsageError(f"no rule and no cause is called {shown!r}", hint=hint)


def _choice(names: Sequence[str]) -> str:
    quoted = [f"`{name}`" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"
