"""TensorFlow ignores some of the cards.

What it means
-------------
TensorFlow ignores a GPU whose compute capability is below its minimum, and one with far fewer
multiprocessors than the best GPU: fewer than 8, or fewer than the best GPU has if that is less than 8.
The variable TF_MIN_GPU_MULTIPROCESSOR_COUNT sets another minimum. The other GPUs are registered and
numbered without it.

How it is seen
--------------
The driver reports each GPU's compute capability and number of multiprocessors.

What to do
----------
Nothing, if the small GPU only drives the display. Otherwise set the variable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.facts import value_of
from tfdoctor.core.findings import Cause, Evidence, Finding, Remedy, Severity
from tfdoctor.prediction.stages import select_registered_devices
from tfdoctor.remedies.pip import format_check_command
from tfdoctor.rules.base import GPU, NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import drivers, prerequisites, variable_origins

if TYPE_CHECKING:
    from tfdoctor.core.facts import CudaDevice
    from tfdoctor.prediction.build import Build

MIN_MULTIPROCESSORS_VARIABLE = "TF_MIN_GPU_MULTIPROCESSOR_COUNT"


def check(context: RuleContext) -> Result:
    build, driver_result = context.build, value_of(context.facts.driver.cuda)
    if build is None or build.has_gpu_code is False or build.is_rocm:
        return NotApplicable("this TensorFlow has no CUDA code")
    if driver_result is None or not driver_result.devices:
        return NotApplicable("the driver shows no card")
    variables = context.facts.environment.variables
    registered_devices = select_registered_devices(driver_result.devices, build, variables)
    ignored_devices = [device for device in driver_result.devices if device not in registered_devices]
    if not ignored_devices:
        return ()
    excluded_by_variable = not registered_devices and bool(
        select_registered_devices(driver_result.devices, build, {})
    )
    if excluded_by_variable:
        return [_build_all_ignored_finding(context, build, ignored_devices)]
    if not registered_devices:
        return NotApplicable("no card is registered at all, which TFD110 explains")
    return [_build_some_ignored_finding(context, build, ignored_devices, len(registered_devices))]


def _describe_ignored_gpu(device: CudaDevice, build: Build) -> str:
    """Return the GPU's label, without its number, and the reason why TensorFlow ignores it."""
    label = drivers.format_device(device).partition(", ")[2] or drivers.format_device(device)
    capability = device.compute_capability
    if capability is not None and not versions.is_at_least(capability, build.min_capability):
        return f"{label}: compute capability {capability}, below {build.min_capability}"
    return f"{label}: {device.multiprocessors} multiprocessors"


def _build_some_ignored_finding(
    context: RuleContext, build: Build, ignored_devices: list[CudaDevice], registered_count: int
) -> Finding:
    reasons = [_describe_ignored_gpu(device, build) for device in ignored_devices]
    # a GPU of unknown compute capability counts as new enough ("99")
    small_devices = [
        gpu
        for gpu in ignored_devices
        if versions.is_at_least(gpu.compute_capability or "99", build.min_capability)
    ]
    value = context.facts.environment.variables.get(MIN_MULTIPROCESSORS_VARIABLE)
    remedies = []
    if small_devices:
        minimum = min(device.multiprocessors or 0 for device in small_devices)
        command = f"export {MIN_MULTIPROCESSORS_VARIABLE}={minimum}"
        remedies.append(
            Remedy(
                "To make TensorFlow use the small card too:",
                (command, format_check_command(context.target)),
            )
        )
    value_text = f" {MIN_MULTIPROCESSORS_VARIABLE} is set to {value!r}." if value is not None else ""
    return RULE.make_finding(
        Cause.HIDDEN_BY_ENV if small_devices and value is not None else Cause.GPU_TOO_OLD,
        Severity.WARNING,
        f"The driver shows {len(ignored_devices) + registered_count} cards, but TensorFlow uses {registered_count}. It ignores "
        f"{'; '.join(reasons)}.{value_text}",
        title=f"TensorFlow leaves {len(ignored_devices)} of {len(ignored_devices) + registered_count} cards out",
        evidence=[Evidence("the driver", reason) for reason in reasons],
        remedies=remedies,
    )


def _build_all_ignored_finding(
    context: RuleContext, build: Build, ignored_devices: list[CudaDevice]
) -> Finding:
    value = context.facts.environment.variables.get(MIN_MULTIPROCESSORS_VARIABLE, "")
    return RULE.make_finding(
        Cause.HIDDEN_BY_ENV,
        Severity.ERROR,
        f"{MIN_MULTIPROCESSORS_VARIABLE} is {value!r}: TensorFlow takes only cards with at least that many multiprocessors, and "
        "no card here has them.",
        title=f"{MIN_MULTIPROCESSORS_VARIABLE} excludes every card",
        evidence=[
            Evidence(MIN_MULTIPROCESSORS_VARIABLE, repr(value)),
            *variable_origins.list_origin_evidence(context, MIN_MULTIPROCESSORS_VARIABLE),
            *(Evidence("the driver", _describe_ignored_gpu(device, build)) for device in ignored_devices),
        ],
        remedies=[
            variable_origins.make_unset_remedy(
                context, MIN_MULTIPROCESSORS_VARIABLE, "Unset the variable.", with_steps=False
            )
        ],
    )


RULE = Rule(
    "TFD114",
    "mixed-gpus",
    "TensorFlow ignores some cards",
    (Cause.GPU_TOO_OLD, Cause.HIDDEN_BY_ENV),
    check,
    short_title="TensorFlow ignores a card",
    needs=(prerequisites.require_tensorflow, prerequisites.require_driver_result),
    area=GPU,
)
