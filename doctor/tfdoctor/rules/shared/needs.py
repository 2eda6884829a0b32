"""What rules cannot do without: each a question whose answer is None, or the outcome of a rule that has to ask it.

A rule names them in `needs`; a need of one rule alone stands in that rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.facts import Absent, Unknown
from tfdoctor.rules.base import CouldNotCheck, NotApplicable, unanswered

if TYPE_CHECKING:
    from tfdoctor.rules.base import Context


def tensorflow(context: Context) -> NotApplicable | CouldNotCheck | None:
    """A TensorFlow in this Python."""
    return unanswered(context.facts.tensorflow, "TensorFlow")


def python(context: Context) -> NotApplicable | CouldNotCheck | None:
    """A Python that answered."""
    return unanswered(context.facts.python, "this Python")


def distributions(context: Context) -> CouldNotCheck | None:
    """What is installed in this Python."""
    if context.python is None or not context.python.distributions:
        return CouldNotCheck("which distributions are installed is not known")
    return None


def driver(context: Context) -> NotApplicable | CouldNotCheck | None:
    """The driver's answer."""
    facts = context.facts
    if facts.machine.system == "Darwin":
        return NotApplicable("there is no CUDA on macOS")
    fact = facts.driver.cuda
    if isinstance(fact, Unknown):
        return CouldNotCheck(f"the driver: {fact.why}")
    if isinstance(fact, Absent):
        return NotApplicable(fact.why or "the driver was not asked")
    return None


def cuda_code(context: Context) -> NotApplicable | CouldNotCheck | None:
    """A TensorFlow with CUDA code."""
    refused = tensorflow(context)
    if refused is not None:
        return refused
    if context.build is None or context.build.gpu is False or context.build.rocm:
        return NotApplicable("this TensorFlow has no CUDA code")
    return None


def cuda_libraries(context: Context) -> NotApplicable | CouldNotCheck | None:
    """A TensorFlow that takes CUDA libraries, of which it is known which, and a loader that can be asked for them."""
    refused = tensorflow(context)
    if refused is not None:
        return refused
    if context.build is None or context.build.gpu is False or context.build.rocm:
        return NotApplicable("this TensorFlow opens no CUDA library")
    refused = unanswered(context.facts.loader, "the loader")
    if refused is not None:
        return CouldNotCheck(refused.why)
    if not context.build.required:
        return CouldNotCheck("which CUDA libraries this build needs could not be determined from its files")
    return None


def opened_late(context: Context) -> NotApplicable | CouldNotCheck | None:
    """A TensorFlow that opens CUDA when it lists GPUs: where CUDA is linked, the import fails before that."""
    if context.build is not None and context.build.linkage == "needed":
        return NotApplicable(
            "this TensorFlow links CUDA: what is missing fails the import, which TFD207 explains"
        )
    return None
