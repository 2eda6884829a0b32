"""What rules cannot do without: each a question whose answer is None, or the outcome of a rule that has to ask it.

A rule names them in `needs`; a need of one rule alone stands in that rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.facts import Absent, Unknown
from tfdoctor.rules.base import CouldNotCheck, NotApplicable, outcome_if_unknown

if TYPE_CHECKING:
    from tfdoctor.rules.base import RuleContext


def require_tensorflow(context: RuleContext) -> NotApplicable | CouldNotCheck | None:
    """Require a TensorFlow in this Python."""
    return outcome_if_unknown(context.facts.tensorflow, "TensorFlow")


def require_python(context: RuleContext) -> NotApplicable | CouldNotCheck | None:
    """Require a Python that answered."""
    return outcome_if_unknown(context.facts.python, "this Python")


def require_distributions(context: RuleContext) -> CouldNotCheck | None:
    """Require that the distributions of this Python are known."""
    if context.python is None or not context.python.distributions:
        return CouldNotCheck("which distributions are installed is not known")
    return None


def require_driver(context: RuleContext) -> NotApplicable | CouldNotCheck | None:
    """Require the driver's answer."""
    facts = context.facts
    if facts.machine.system == "Darwin":
        return NotApplicable("there is no CUDA on macOS")
    fact = facts.driver.cuda
    if isinstance(fact, Unknown):
        return CouldNotCheck(f"the driver: {fact.why}")
    if isinstance(fact, Absent):
        return NotApplicable(fact.why or "the driver was not asked")
    return None


def require_cuda_code(context: RuleContext) -> NotApplicable | CouldNotCheck | None:
    """Require a TensorFlow with CUDA code."""
    refused = require_tensorflow(context)
    if refused is not None:
        return refused
    if context.build is None or context.build.gpu is False or context.build.rocm:
        return NotApplicable("this TensorFlow has no CUDA code")
    return None


def require_cuda_libraries(context: RuleContext) -> NotApplicable | CouldNotCheck | None:
    """Require a TensorFlow with known CUDA libraries, and a loader whose results are known."""
    refused = require_tensorflow(context)
    if refused is not None:
        return refused
    if context.build is None or context.build.gpu is False or context.build.rocm:
        return NotApplicable("this TensorFlow opens no CUDA library")
    refused = outcome_if_unknown(context.facts.loader, "the loader")
    if refused is not None:
        return CouldNotCheck(refused.why)
    if not context.build.required:
        return CouldNotCheck("which CUDA libraries this build needs could not be determined from its files")
    return None


def require_late_opening(context: RuleContext) -> NotApplicable | CouldNotCheck | None:
    """Require a TensorFlow that opens CUDA when it lists GPUs.

    If CUDA is linked, the import fails before that.
    """
    if context.build is not None and context.build.linkage == "needed":
        return NotApplicable(
            "this TensorFlow links CUDA: what is missing fails the import, which TFD207 explains"
        )
    return None
