"""The base of all rules: the context that a rule receives and the results that it may return."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, Union

from tfdoctor.core.facts import Absent, Known, Unknown, value_of
from tfdoctor.core.findings import Cause, Evidence, Finding, Outcome, OutcomeKind, RuleBase
from tfdoctor.prediction.build import Build, describe_build
from tfdoctor.prediction.failures import list_import_failures
from tfdoctor.prediction.libraries import MissingLibrary, explain_missing_libraries
from tfdoctor.remedies.target import build_target

if TYPE_CHECKING:
    from tfdoctor.compat import Compat
    from tfdoctor.core.facts import Facts, LoaderFacts, PythonFacts, TensorFlowFacts
    from tfdoctor.core.findings import Observation, Prediction
    from tfdoctor.prediction.failures import ImportFailure
    from tfdoctor.remedies.target import Target, TargetImage

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
"""The areas of the report's summary, which has one line for each."""
_AREA_BY_FIRST_DIGIT = {
    "1": DRIVER,
    "2": CUDA,
    "3": TENSORFLOW,
    "4": ENVIRONMENT,
    "6": ENVIRONMENT,
    "7": ENVIRONMENT,
}
"""The default area of a rule, by the first digit of its code (the 1 of TFD101)."""


@dataclass(frozen=True)
class RuleContext:
    """The facts and data that a rule may use. It does no I/O."""

    facts: Facts
    compat: Compat
    prediction: Prediction
    observation: Observation | None = None
    """Result of running TensorFlow (`--deep`); None if it was not run."""
    image: TargetImage | None = None
    """The examined image, as in `Target`; None if a machine is examined."""

    @property
    def location_phrase(self) -> str:
        """ "on this machine" or "in this image", for use inside a sentence."""
        return "on this machine" if self.image is None else "in this image"

    @property
    def tensorflow_name(self) -> str:
        """ "TensorFlow" and its version, if that is known."""
        version = self.build.version if self.build is not None else None
        return f"TensorFlow {version}" if version else "TensorFlow"

    @cached_property
    def python(self) -> PythonFacts | None:
        """The examined Python; None if it is not known."""
        return value_of(self.facts.python)

    @cached_property
    def tensorflow(self) -> TensorFlowFacts | None:
        """The facts about the installed TensorFlow; None if there is none or it is not known."""
        return value_of(self.facts.tensorflow)

    @cached_property
    def loader(self) -> LoaderFacts | None:
        """The libraries as the dynamic loader resolves them; None if they are not known."""
        return value_of(self.facts.loader)

    @cached_property
    def build(self) -> Build | None:
        """The installed TensorFlow build; None if there is none or it could not be examined."""
        return describe_build(self.tensorflow, self.compat) if self.tensorflow is not None else None

    @cached_property
    def target(self) -> Target:
        """The Python, machine and user for which remedies are made."""
        return build_target(self.facts, self.compat, self.image)

    @cached_property
    def missing_libraries(self) -> tuple[MissingLibrary, ...]:
        """The CUDA libraries that the loader cannot resolve, each with its cause."""
        return explain_missing_libraries(self.facts, self.build) if self.build is not None else ()

    @cached_property
    def import_failures(self) -> tuple[ImportFailure, ...]:
        """The failures that stop the import of TensorFlow, or of Keras alone, in the order in which they occur."""
        return list_import_failures(self.facts, self.compat)

    def select_missing_libraries(self, *causes: Cause) -> tuple[MissingLibrary, ...]:
        """Return the missing libraries that have one of these causes."""
        return tuple(missing for missing in self.missing_libraries if missing.cause in causes)


@dataclass(frozen=True, slots=True)
class NotApplicable:
    """The result of a rule that does not apply to this system."""

    reason: str


@dataclass(frozen=True, slots=True)
class CouldNotCheck:
    """The result of a rule that applies to this system but whose facts are unknown."""

    reason: str


Prerequisite = Callable[[RuleContext], Union[NotApplicable, CouldNotCheck, None]]  # noqa: UP007
"""A condition that must be met before a rule is checked (see `shared/prerequisites`).

The function returns None if it is met, else the result of the rule.
"""
Result = Union[Sequence[Finding], NotApplicable, CouldNotCheck]  # noqa: UP007 - Python 3.10 evaluates it
"""The result of a rule: its findings, or why it has none. An empty sequence means that there is no problem."""


@dataclass(frozen=True, slots=True)
class Rule(RuleBase):
    """One rule. The docstring of its module is its documentation (`tfdoctor explain CODE`)."""

    code: str
    """The permanent code, such as "TFD101". It is never used again after the rule is retired."""
    name: str
    """The name of the module, with hyphens."""
    title: str
    causes: tuple[Cause, ...]
    """The causes that its findings can have."""
    check: Callable[[RuleContext], Result]
    """The function that applies the rule. It is called only if all prerequisites in `needs` are met."""
    needs: tuple[Prerequisite, ...] = ()
    """The prerequisites, in the order in which they are tested. The first unmet one decides the outcome."""
    area: str = ""
    """The area of the findings; "" means the area that belongs to the first digit of the code."""
    short_title: str = ""
    """The title in a few words, for the summary line of the area. A finding can override it."""
    containers_only: bool = False
    """True if the rule concerns only containers that this machine could start.

    Its findings never explain this Python's problems.
    """
    explains_broken_python: bool = False
    """True if the rule explains why the examined Python does not run. Its finding then comes first."""
    fix_order: int | None = None
    """Position in the order in which `fix` handles findings of equal severity.

    * 10 to 19: TensorFlow itself
    * 20 to 29: its import
    * 30 to 39: variables that lead to the wrong driver
    * 40 to 49: the library files
    * 50 to 59: the choice of installed libraries
    * 60 to 69: functions that the libraries lack

    None means after all of these, in the order of the report.
    """

    @property
    def summary_area(self) -> str | None:
        """The area whose status the findings change; None if they concern the report itself."""
        return self.area or _AREA_BY_FIRST_DIGIT.get(self.code[3])

    def run(self, context: RuleContext) -> Outcome:
        """Run the rule and return its outcome, which is CRASHED if the rule raises an exception."""
        try:
            prerequisite_results = (prerequisite(context) for prerequisite in self.needs)
            unmet_result = next((result for result in prerequisite_results if result is not None), None)
            result = unmet_result if unmet_result is not None else self.check(context)
        except Exception as error:  # a defect of one rule must not hide the findings of the others
            return Outcome(self.code, OutcomeKind.CRASHED, reason=f"{type(error).__name__}: {error}")
        if isinstance(result, NotApplicable):
            return Outcome(self.code, OutcomeKind.NOT_APPLICABLE, reason=result.reason)
        if isinstance(result, CouldNotCheck):
            return Outcome(self.code, OutcomeKind.COULD_NOT_CHECK, reason=result.reason)
        if result:
            return Outcome(self.code, OutcomeKind.FOUND, findings=tuple(result))
        return Outcome(self.code, OutcomeKind.CLEAN)


def require_known_fact(
    fact: Known[Any] | Absent | Unknown, name: str
) -> NotApplicable | CouldNotCheck | None:
    """Return the result of a rule that cannot run without this fact; None if the fact is known.

    `name` names the fact in the reason.
    """
    if isinstance(fact, Absent):
        return NotApplicable(fact.why or f"{name} is not there")
    if isinstance(fact, Unknown):
        return CouldNotCheck(f"{name}: {fact.why}")
    return None


def get_required_value(value: T | None) -> T:
    """Return a value whose presence the rule's `needs` have already checked.

    Raise LookupError if it is None, because then a prerequisite is missing from `needs`.
    """
    if value is None:
        msg = "the rule asks for something that is not in its needs"
        raise LookupError(msg)
    return value


def make_fact_evidence(fact: Known[Any] | Absent | Unknown, text: str) -> Evidence:
    """Return evidence with the text and the source of the fact."""
    return Evidence(getattr(fact, "source", "") or "", text)


def extract_section(docstring: str, heading: str) -> str:
    """Return the text below an underlined heading of a rule's docstring; "" if it lacks the heading."""
    # the text ends at the next underlined heading, or at the end of the docstring
    match = re.search(
        rf"^{re.escape(heading)}\n-+\n(.*?)(?=^\S[^\n]*\n-+\n|\Z)", docstring, re.MULTILINE | re.DOTALL
    )
    return match[1].strip() if match else ""
