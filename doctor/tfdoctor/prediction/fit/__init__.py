"""Decide whether a TensorFlow release fits a machine, and which release fits best.

The functions read nothing but compat/, and each reason names its source there. The planner, the remedies of the rules and
the compatibility matrix use them.
"""

from tfdoctor.prediction.fit.compatibility import (
    Fit,
    can_use_release,
    choose_preferred,
    find_best_fit,
    find_gpu_reasons,
    fit_environment,
    list_candidates,
)
from tfdoctor.prediction.fit.constraints import Assessment
from tfdoctor.prediction.fit.drivers import (
    find_driver_refusal,
    find_driver_version,
    find_newest_driver,
    list_known_drivers,
    list_refusal_limits,
)
from tfdoctor.prediction.fit.host import build_host
from tfdoctor.prediction.fit.models import Caveat, Host, HostGpu, Reason

__all__ = [
    "Assessment",
    "Caveat",
    "Fit",
    "Host",
    "HostGpu",
    "Reason",
    "build_host",
    "can_use_release",
    "choose_preferred",
    "find_best_fit",
    "find_driver_refusal",
    "find_driver_version",
    "find_gpu_reasons",
    "find_newest_driver",
    "fit_environment",
    "list_candidates",
    "list_known_drivers",
    "list_refusal_limits",
]
