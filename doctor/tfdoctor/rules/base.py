"""The base of all rules: what a rule receives and what it may return."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, Union

from tfdoctor.advice import target_of
from tfdoctor.facts import Absent, Known, Unknown, value_of
from tfdoctor.findings import Cause, Check, Evidence, Finding, Outcome, OutcomeKind
from tfdoctor.predict import Build, MissingLibrary, describe_build, explain_missing
from tfdoctor.predict.failures import list_import_failures

if TYPE_CHECKING:
    from tfdoctor.advice import Target
    from tfdoctor.advice.target import TargetImage
    from tfdoctor.compat import Compat
    from tfdoctor.facts import Facts, LoaderFacts, PythonFacts, TensorFlowFacts
    from tfdoctor.findings import Observation, Prediction
    from tfdoctor.predict.failures import ImportFailure

T = TypeVar("T")
GPU, DRIVER, CUDA, CUDNN, TENSORFLOW, LOADER, ENVIRONMENT = (
    "GPU",
    "Driver",
    "CUDA",
    "cuDNN",
    "TensorFlow",
    "Loader",
    "Environment",
)
"""The areas of the first page of a report; each is one line."""
_AREA_BY_HUNDREDS = {
    "1": DRIVER,
    "2": CUDA,
    "3": TENSORFLOW,
    "4": ENVIRONMENT,
    "6": ENVIRONMENT,
    "7": ENVIRONMENT,
}
"""The area of a rule that names none, by the first digit of its code."""


@dataclass(frozen=True)
class RuleContext:
    """The facts and data that a rule may use. Nothing here does I/O."""

    facts: Facts
    compat: Compat
    prediction: Prediction
    observed: Observation | None = None
    """Result of running TensorFlow (`--deep`); None if it was not run."""
    image: TargetImage | None = None
    """The image that is examined, as in `Target`; None for a machine."""

    @property
    def location_phrase(self) -> str:
        """ "on this machine" or "in this image", for use inside a sentence."""
        return "on this machine" if self.image is None else "in this image"

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
        """The installed TensorFlow build; None if there is none or it could not be examined."""
        return describe_build(self.tensorflow, self.compat) if self.tensorflow is not None else None

    @cached_property
    def target(self) -> Target:
        """The target of the remedies."""
        return target_of(self.facts, self.compat, self.image)

    @cached_property
    def missing(self) -> tuple[MissingLibrary, ...]:
        """The CUDA libraries that the loader cannot resolve, each with its cause."""
        return explain_missing(self.facts, self.build) if self.build is not None else ()

    @cached_property
    def failures(self) -> tuple[ImportFailure, ...]:
        """The failures that stop the import of TensorFlow, or of Keras alone, the first failure first."""
        return list_import_failures(self.facts, self.compat)

    def select_missing(self, *causes: Cause) -> tuple[MissingLibrary, ...]:
        """Return the missing libraries that have one of these causes."""
        return tuple(missing for missing in self.missing if missing.cause in causes)


@dataclass(frozen=True, slots=True)
class NotApplicable:
    """Outcome of a rule that does not apply to this system."""

    reason: str


@dataclass(frozen=True, slots=True)
class CouldNotCheck:
    """Outcome of a rule that applies to this system but whose facts are unknown."""

    reason: str


Need = Callable[[RuleContext], Union[NotApplicable, CouldNotCheck, None]]  # noqa: UP007
"""A requirement of a rule (see `shared/prerequisites`): returns None if it is met, else the rule's outcome."""
Result = Union[Sequence[Finding], NotApplicable, CouldNotCheck]  # noqa: UP007 - Python 3.10 evaluates it


@dataclass(frozen=True, slots=True)
class Rule(Check):
    """One rule. The docstring of its module is its documentation (`tfdoctor explain CODE`)."""

    code: str
    """"TFD101": permanent, and never used again after the rule is retired."""
    name: str
    """The name of the module, with hyphens."""
    title: str
    causes: tuple[Cause, ...]
    """The causes that its findings can have."""
    check: Callable[[RuleContext], Result]
    """Runs only if all of `needs` are met."""
    needs: tuple[Need, ...] = ()
    """The requirements, in the order in which they are tested. The first that is not met decides the outcome."""
    area: str = ""
    """The area of its findings; empty for the area of the code's hundred."""
    short_title: str = ""
    """The title in a few words, for the area's line. A finding can have its own."""
    containers_only: bool = False
    """True if the rule concerns only containers that this machine could start.

    Its findings never explain this Python's problems.
    """
    explains_broken_python: bool = False
    """True if the rule explains why the examined Python does not run. Its finding then comes first."""
    fix_order: int | None = None
    """Position in the order in which `fix` handles findings of equal severity.

    Ten and above: TensorFlow itself; twenty: its import; thirty: variables that lead to the wrong driver;
    forty: the files of the libraries; fifty: which libraries are installed; sixty: what they fail to do.
    None: after all of these, in the order of the report.
    """

    @property
    def shown_area(self) -> str | None:
        """The area that its findings mark; None for findings about the report itself."""
        return self.area or _AREA_BY_HUNDREDS.get(self.code[3])

    def run(self, context: RuleContext) -> Outcome:
        """Return the rule's outcome on these facts. An exception becomes an outcome as well."""
        try:
            outcomes = (need(context) for need in self.needs)
            unmet = next((outcome for outcome in outcomes if outcome is not None), None)
            result = unmet if unmet is not None else self.check(context)
        except Exception as error:  # a defect of one rule must not hide the findings of the others
            return Outcome(self.code, OutcomeKind.CRASHED, reason=f"{type(error).__name__}: {error}")
        if isinstance(result, NotApplicable):
            return Outcome(self.code, OutcomeKind.NOT_APPLICABLE, reason=result.reason)
        if isinstance(result, CouldNotCheck):
            return Outcome(self.code, OutcomeKind.COULD_NOT_CHECK, reason=result.reason)
        if result:
            return Outcome(self.code, OutcomeKind.FOUND, findings=tuple(result))
        return Outcome(self.code, OutcomeKind.CLEAN)


def outcome_if_unknown(
    fact: Known[Any] | Absent | Unknown, name: str
) -> NotApplicable | CouldNotCheck | None:
    """Return the outcome of a rule that needs this fact; None if the fact is known.

    `what` names the fact in the reason.
    """
    if isinstance(fact, Absent):
        return NotApplicable(fact.why or f"{name} is not there")
    if isinstance(fact, Unknown):
        return CouldNotCheck(f"{name}: {fact.why}")
    return None


def require_value(value: T | None) -> T:
    """Return a value that a rule's `needs` have checked to exist.

    Raise LookupError if it is None, because then no need has checked it.
    """
    if value is None:
        msg = "the rule asks for something that is not in its needs"
        raise LookupError(msg)
    return value


def evidence_from(fact: Known[Any] | Absent | Unknown, text: str) -> Evidence:
    """Build evidence that has the fact's source."""
    return Evidence(getattr(fact, "source", "") or "", text)


def section_text(docstring: str, heading: str) -> str:
    """Return the text below `heading` in a rule's docstring, up to the next heading; empty if it has none."""
    match = re.search(
        rf"^{re.escape(heading)}\n-+\n(.*?)(?=^\S[^\n]*\n-+\n|\Z)", docstring, re.MULTILINE | re.DOTALL
    )
    return match[1].strip() if match else ""
