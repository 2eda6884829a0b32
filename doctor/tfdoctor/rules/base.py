"""What a rule is, and what it may answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Union

from tfdoctor.advice import target_of
from tfdoctor.facts import Absent, Known, Unknown, value_of
from tfdoctor.findings import Cause, Evidence, Finding, Outcome, OutcomeKind, Remedy, Severity
from tfdoctor.predict import Build, MissingLibrary, build_of, explain_missing

if TYPE_CHECKING:
    from tfdoctor.advice import Target
    from tfdoctor.compat import Compat
    from tfdoctor.facts import Facts, LoaderFacts, PythonFacts, TensorFlowFacts
    from tfdoctor.findings import Observation, Prediction


@dataclass(frozen=True)
class Context:
    """What a rule may look at. Nothing here does I/O."""

    facts: Facts
    compat: Compat
    prediction: Prediction
    observed: Observation | None = None
    """What TensorFlow did, where it was run (`--deep`)."""

    @cached_property
    def python(self) -> PythonFacts | None:
        return value_of(self.facts.python)

    @cached_property
    def tensorflow(self) -> TensorFlowFacts | None:
        return value_of(self.facts.tensorflow)

    @cached_property
    def loader(self) -> LoaderFacts | None:
        return value_of(self.facts.loader)

    @cached_property
    def build(self) -> Build | None:
        """The installed TensorFlow build; None where there is none or it could not be examined."""
        return build_of(self.tensorflow, self.compat) if self.tensorflow is not None else None

    @cached_property
    def target(self) -> Target:
        """What remedies are made for."""
        return target_of(self.facts, self.compat)

    @cached_property
    def missing(self) -> tuple[MissingLibrary, ...]:
        """The CUDA libraries that the loader cannot give, each with its reason."""
        return explain_missing(self.facts, self.build) if self.build is not None else ()

    def missing_because(self, *causes: Cause) -> tuple[MissingLibrary, ...]:
        return tuple(missing for missing in self.missing if missing.cause in causes)


@dataclass(frozen=True, slots=True)
class NotApplicable:
    """The rule has nothing to look at here, for this reason."""

    why: str


@dataclass(frozen=True, slots=True)
class CouldNotCheck:
    """The rule would have looked, and the facts it needs are unknown."""

    why: str


Result = Union[Sequence[Finding], NotApplicable, CouldNotCheck]  # noqa: UP007 - Python 3.10 evaluates it


@dataclass(frozen=True, slots=True)
class Rule:
    """One check. Its module's docstring is its documentation (`tfdoctor explain CODE`)."""

    code: str
    """"TFD101": for ever; retired, never used again."""
    name: str
    """The module's name, with hyphens."""
    title: str
    causes: tuple[Cause, ...]
    """The causes that its findings can have."""
    check: Callable[[Context], Result]

    def finding(
        self,
        cause: Cause,
        severity: Severity,
        explanation: str,
        *,
        title: str = "",
        evidence: Sequence[Evidence] = (),
        remedies: Sequence[Remedy] = (),
    ) -> Finding:
        """A finding of this rule."""
        return Finding(
            code=self.code,
            cause=cause,
            severity=severity,
            title=title or self.title,
            explanation=explanation,
            evidence=tuple(evidence),
            remedies=tuple(remedies),
        )

    def run(self, context: Context) -> Outcome:
        """The rule's one outcome on these facts; a crash is an outcome, too."""
        try:
            result = self.check(context)
        except Exception as error:  # one rule's defect must not hide what the others found
            return Outcome(self.code, OutcomeKind.CRASHED, why=f"{type(error).__name__}: {error}")
        if isinstance(result, NotApplicable):
            return Outcome(self.code, OutcomeKind.NOT_APPLICABLE, why=result.why)
        if isinstance(result, CouldNotCheck):
            return Outcome(self.code, OutcomeKind.COULD_NOT_CHECK, why=result.why)
        if result:
            return Outcome(self.code, OutcomeKind.FOUND, findings=tuple(result))
        return Outcome(self.code, OutcomeKind.CLEAN)


def unanswered(fact: Known[Any] | Absent | Unknown, what: str) -> NotApplicable | CouldNotCheck | None:
    """The outcome of a rule whose fact is not known; None where it is."""
    if isinstance(fact, Absent):
        return NotApplicable(fact.why or f"{what} is not there")
    if isinstance(fact, Unknown):
        return CouldNotCheck(f"{what}: {fact.why}")
    return None


def seen(fact: Known[Any] | Absent | Unknown, text: str) -> Evidence:
    """Evidence with the fact's own source."""
    return Evidence(getattr(fact, "source", "") or "", text)


def sentences(docstring: str, heading: str) -> str:
    """The text below a `heading` of a rule's docstring, up to the next one."""
    match = re.search(
        rf"^{re.escape(heading)}\n-+\n(.*?)(?=^\S[^\n]*\n-+\n|\Z)", docstring, re.MULTILINE | re.DOTALL
    )
    return match[1].strip() if match else ""


def without_libraries(context: Context) -> NotApplicable | CouldNotCheck | None:
    """The outcome of every rule about CUDA libraries where there is nothing to ask; None where there is."""
    refused = unanswered(context.facts.tensorflow, "TensorFlow")
    if refused is not None:
        return refused
    if context.build is None or context.build.gpu is False or context.build.rocm:
        return NotApplicable("this TensorFlow opens no CUDA library")
    refused = unanswered(context.facts.loader, "the loader")
    if refused is not None:
        return CouldNotCheck(refused.why)
    if not context.build.required:
        return CouldNotCheck("which CUDA libraries this build needs could not be learned from its files")
    return None


def linked_hard(context: Context) -> NotApplicable | None:
    """The outcome of rules about registration where CUDA is linked, so that the import fails before it."""
    if context.build is not None and context.build.linkage == "needed":
        return NotApplicable(
            "this TensorFlow links CUDA: what is missing fails the import, which TFD207 explains"
        )
    return None
