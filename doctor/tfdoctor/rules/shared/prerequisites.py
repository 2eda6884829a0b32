"""Prerequisites that several rules share.

Each is a function that returns None if the prerequisite is met, else the result of the rule. A rule lists its
prerequisites in `needs`. A prerequisite of a single rule is defined in the module of that rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.facts import Absent, Unknown
from tfdoctor.rules.base import CouldNotCheck, NotApplicable, require_known_fact

if TYPE_CHECKING:
    from tfdoctor.rules.base import RuleContext


def require_tensorflow(context: RuleContext) -> NotApplicable | CouldNotCheck | None:
    """Require an installed TensorFlow."""
    return require_known_fact(context.facts.tensorflow, "TensorFlow")


def require_python(context: RuleContext) -> NotApplicable | CouldNotCheck | None:
    """Require that the examined Python answered."""
    return require_known_fact(context.facts.python, "this Python")


def require_distributions(context: RuleContext) -> CouldNotCheck | None:
    """Require that the distributions of this Python are known."""
    if context.python is None or not context.python.distributions:
        return CouldNotCheck("which distributions are installed is not known")
    return None


def require_driver_result(context: RuleContext) -> NotApplicable | CouldNotCheck | None:
    """Require that libcuda was queried and its results are known."""
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
    unmet_result = require_tensorflow(context)
    if unmet_result is not None:
        return unmet_result
    if context.build is None or context.build.has_gpu_code is False or context.build.is_rocm:
        return NotApplicable("this TensorFlow has no CUDA code")
    return None


def require_cuda_libraries(context: RuleContext) -> NotApplicable | CouldNotCheck | None:
    """Require a TensorFlow whose CUDA libraries are known, and a loader whose results are known."""
    unmet_result = require_tensorflow(context)
    if unmet_result is not None:
        return unmet_result
    if context.build is None or context.build.has_gpu_code is False or context.build.is_rocm:
        return NotApplicable("this TensorFlow opens no CUDA library")
    unmet_result = require_known_fact(context.facts.loader, "the loader")
    if unmet_result is not None:
        return CouldNotCheck(unmet_result.reason)
    if not context.build.required_libraries:
        return CouldNotCheck("which CUDA libraries this build needs could not be determined from its files")
    return None


def require_lazy_loading(context: RuleContext) -> NotApplicable | CouldNotCheck | None:
    """Require a TensorFlow that opens the CUDA libraries only when it lists GPUs.

    A TensorFlow that is linked against them fails at import if one is missing.
    """
    if context.build is not None and context.build.linkage == "needed":
        return NotApplicable(
            "this TensorFlow links CUDA: what is missing fails the import, which TFD207 explains"
        )
    return None
