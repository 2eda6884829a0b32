"""What a rule is, and what it may answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, Union

from tfdoctor.advice import target_of
from tfdoctor.facts import Absent, Known, Unknown, value_of
from tfdoctor.findings import Cause, Check, Evidence, Finding, Outcome, OutcomeKind
from tfdoctor.predict import Build, MissingLibrary, build_of, explain_missing
from tfdoctor.predict.failures import failures

if TYPE_CHECKING:
    from tfdoctor.advice import Target
    from tfdoctor.advice.target import InImage
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
"""The areas of a report's first page, each a line."""
_OF_HUNDREDS = {
    "1": DRIVER,
    "2": CUDA,
    "3": TENSORFLOW,
    "4": ENVIRONMENT,
    "6": ENVIRONMENT,
    "7": ENVIRONMENT,
}
"""A code's hundred → the area of its rules, where a rule names no other."""


@dataclass(frozen=True)
class RuleContext:
    """What a rule may look at. Nothing here does I/O."""

    facts: Facts
    compat: Compat
    prediction: Prediction
    observed: Observation | None = None
    """What TensorFlow did, where it was run (`--deep`)."""
    image: InImage | None = None
    """As in `Target`."""

    @property
    def here(self) -> str:
        """Return the phrase for the examined system, for use inside a sentence."""
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
        """Return the installed TensorFlow build; None if there is none or it could not be examined."""
        return build_of(self.tensorflow, self.compat) if self.tensorflow is not None else None

    @cached_property
    def target(self) -> Target:
        """Return the target that remedies are made for."""
        return target_of(self.facts, self.compat, self.image)

    @cached_property
    def missing(self) -> tuple[MissingLibrary, ...]:
        """List the CUDA libraries that the loader cannot find, each with its reason."""
        return explain_missing(self.facts, self.build) if self.build is not None else ()

    @cached_property
    def failures(self) -> tuple[ImportFailure, ...]:
        """List what stops the import of TensorFlow, or of Keras alone, the first failure first."""
        return failures(self.facts, self.compat)

    def select_missing(self, *causes: Cause) -> tuple[MissingLibrary, ...]:
        return tuple(missing for missing in self.missing if missing.cause in causes)


@dataclass(frozen=True, slots=True)
class NotApplicable:
    """The rule has nothing to look at here, for this reason."""

    why: str


@dataclass(frozen=True, slots=True)
class CouldNotCheck:
    """The rule would have looked, and the facts it needs are unknown."""

    why: str


Need = Callable[[RuleContext], Union[NotApplicable, CouldNotCheck, None]]  # noqa: UP007
"""What a rule cannot do without (see `shared/needs`): None where it is there, else the rule's outcome."""
Result = Union[Sequence[Finding], NotApplicable, CouldNotCheck]  # noqa: UP007 - Python 3.10 evaluates it


@dataclass(frozen=True, slots=True)
class Rule(Check):
    """One check. Its module's docstring is its documentation (`tfdoctor explain CODE`)."""

    code: str
    """"TFD101": permanent; retired, never used again."""
    name: str
    """The module's name, with hyphens."""
    title: str
    causes: tuple[Cause, ...]
    """The causes that its findings can have."""
    check: Callable[[RuleContext], Result]
    """Asked where all of `needs` are met."""
    needs: tuple[Need, ...] = ()
    """What it cannot do without, in the order in which that is asked: the first that is not met is its outcome."""
    area: str = ""
    """The area that its findings mark; empty: that of its hundred."""
    row: str = ""
    """The title in a few words, for the area's row; a finding can have its own."""
    beside: bool = False
    """It is about what this machine's containers could have: never the reason of what this Python meets."""
    no_python: bool = False
    """It tells why the Python that is to be examined does not run: where so little is known, it leads."""
    first: int | None = None
    """Its place among what `fix` takes up, of findings that are as severe: the tens TensorFlow itself, the twenties its
    import, the thirties variables that lead to the wrong driver, the forties the libraries' files, the fifties which
    libraries there are, the sixties what they do not do. None: after all of these, as the report has it."""

    @property
    def shown_in(self) -> str | None:
        """Return the area that its findings mark; None for findings about the report itself."""
        return self.area or _OF_HUNDREDS.get(self.code[3])

    def run(self, context: RuleContext) -> Outcome:
        """Return the rule's outcome on these facts; a crash is an outcome, too."""
        try:
            unmet = (need(context) for need in self.needs)
            refused = next((outcome for outcome in unmet if outcome is not None), None)
            result = refused if refused is not None else self.check(context)
        except Exception as error:  # one rule's defect must not hide what the others found
            return Outcome(self.code, OutcomeKind.CRASHED, why=f"{type(error).__name__}: {error}")
        if isinstance(result, NotApplicable):
            return Outcome(self.code, OutcomeKind.NOT_APPLICABLE, why=result.why)
        if isinstance(result, CouldNotCheck):
            return Outcome(self.code, OutcomeKind.COULD_NOT_CHECK, why=result.why)
        if result:
            return Outcome(self.code, OutcomeKind.FOUND, findings=tuple(result))
        return Outcome(self.code, OutcomeKind.CLEAN)


def outcome_if_unknown(
    fact: Known[Any] | Absent | Unknown, what: str
) -> NotApplicable | CouldNotCheck | None:
    """Return the outcome of a rule whose fact is not known; None if the fact is known."""
    if isinstance(fact, Absent):
        return NotApplicable(fact.why or f"{what} is not there")
    if isinstance(fact, Unknown):
        return CouldNotCheck(f"{what}: {fact.why}")
    return None


def require_value(value: T | None) -> T:
    """Return what a rule's `needs` have checked to exist.

    Raises LookupError if none of them has.
    """
    if value is None:
        msg = "the rule asks for something that is not in its needs"
        raise LookupError(msg)
    return value


def evidence_from(fact: Known[Any] | Absent | Unknown, text: str) -> Evidence:
    """Build evidence with the fact's own source."""
    return Evidence(getattr(fact, "source", "") or "", text)


def sentences(docstring: str, heading: str) -> str:
    """Return the text below a `heading` of a rule's docstring, up to the next heading."""
    match = re.search(
        rf"^{re.escape(heading)}\n-+\n(.*?)(?=^\S[^\n]*\n-+\n|\Z)", docstring, re.MULTILINE | re.DOTALL
    )
    return match[1].strip() if match else ""
