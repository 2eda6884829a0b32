"""CUDA_VISIBLE_DEVICES hides every card.

What it means
-------------
The driver shows a program only the GPUs that CUDA_VISIBLE_DEVICES names, and ignores all entries after the first
unknown one. An empty value, -1, or a name that matches no GPU hides all of them, and TensorFlow then reports that there
is no device. Schedulers (Slurm, Ray) set the variable for a job that was given no GPU. Kubernetes does not: NVIDIA's device
plugin sets NVIDIA_VISIBLE_DEVICES, for the container.
If TF_ENABLED_DEVICE_TYPES does not contain GPU, TensorFlow uses none, and an unknown flag in TF_XLA_FLAGS ends the
process. PYTHONOPTIMIZE=2 removes docstrings, without which no release before 2.21 can be imported;
PYTHONWARNINGS=error stops the import of old releases.

How it is seen
--------------
Two child processes query the driver: one with the variable as it is, and one without it.

What to do
----------
Unset the variable, or name GPUs that exist; under a scheduler, request a GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.facts import Absent, value_of
from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.prediction.driver import is_hidden_by_environment
from tfdoctor.prediction.imports import find_import_breaking_variable
from tfdoctor.prediction.stages import explain_disabled_device_types, explain_unknown_xla_flag
from tfdoctor.rules.base import CouldNotCheck, NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import drivers, prerequisites, variable_origins

if TYPE_CHECKING:
    from tfdoctor.core.facts import CudaDevice
    from tfdoctor.core.findings import Finding

VISIBLE_DEVICES_VARIABLE = "CUDA_VISIBLE_DEVICES"
DEVICE_TYPES_VARIABLE = "TF_ENABLED_DEVICE_TYPES"
TF_XLA_FLAGS_VARIABLE = "TF_XLA_FLAGS"
GPU_REQUEST_COMMANDS = {
    "slurm": ("srun --gres=gpu:1 python3 SCRIPT.py",),
    "lsf": ('bsub -gpu "num=1" python3 SCRIPT.py',),
    "pbs": ("qsub -l select=1:ngpus=1 JOB.sh",),
    "ray": (),
}
"""Commands that request a GPU from each scheduler that sets the variable."""
GPU_REQUEST_HINTS = {
    "ray": ": ask for one in the code, `@ray.remote(num_gpus=1)`",
}
"""Hints for the schedulers from which a GPU is not requested on the command line."""


def check(context: RuleContext) -> Result:
    variables, driver = context.facts.environment.variables, context.facts.driver
    device_types_problem = (
        explain_disabled_device_types(context.build, variables) if context.build is not None else ""
    )
    if (
        device_types_problem
        and context.prediction.cause is Cause.HIDDEN_BY_ENV
        and not is_hidden_by_environment(context.facts)
    ):
        return [_build_device_types_finding(context, device_types_problem)]
    xla_flags_problem = (
        explain_unknown_xla_flag(context.build, variables, context.compat)
        if context.build is not None
        else ""
    )
    if xla_flags_problem and context.prediction.cause is Cause.HIDDEN_BY_ENV:
        return [_build_xla_flags_finding(context, xla_flags_problem)]
    breaking_variable = (
        find_import_breaking_variable(
            context.python, context.build, context.facts.environment, context.compat
        )
        if context.build is not None
        else None
    )
    if breaking_variable is not None and context.prediction.cause is Cause.HIDDEN_BY_ENV:
        name, problem = breaking_variable
        return [_build_import_finding(context, name, problem)]
    if VISIBLE_DEVICES_VARIABLE not in variables:
        return NotApplicable(f"{VISIBLE_DEVICES_VARIABLE} is not set")
    unmet_result = prerequisites.require_driver_result(context)
    if unmet_result is not None and context.prediction.cause is Cause.HIDDEN_BY_ENV:
        value = variables[VISIBLE_DEVICES_VARIABLE]
        problem = f"{VISIBLE_DEVICES_VARIABLE} is {value!r}: {_explain_value(value, ())}."
        title = _build_title(context, value)
        return [_build_variable_finding(context, VISIBLE_DEVICES_VARIABLE, problem, "", title)]
    if unmet_result is not None:
        return unmet_result
    driver_result = value_of(driver.cuda)
    if driver_result is None or driver_result.crashed or not driver_result.loaded:
        return NotApplicable("there is no driver to hide cards of")
    if driver_result.count:
        return ()
    unhidden_result = value_of(driver.cuda_unhidden) if driver.cuda_unhidden is not None else None
    if unhidden_result is None:
        if isinstance(driver.cuda_unhidden, Absent):
            return NotApplicable(driver.cuda_unhidden.why or "there is no driver to hide cards of")
        return CouldNotCheck(f"the driver did not answer without {VISIBLE_DEVICES_VARIABLE}")
    if not is_hidden_by_environment(context.facts):
        return ()
    value = variables[VISIBLE_DEVICES_VARIABLE]
    gpus = [drivers.format_device(device) for device in unhidden_result.devices]
    count = unhidden_result.count or len(gpus)
    return [
        RULE.make_finding(
            Cause.HIDDEN_BY_ENV,
            Severity.ERROR,
            f"{VISIBLE_DEVICES_VARIABLE} is {value!r}: {_explain_value(value, unhidden_result.devices)}. "
            "Without it the driver shows "
            f"{count} card{'s' * (count != 1)}.{variable_origins.format_origin_sentence(context, VISIBLE_DEVICES_VARIABLE)}",
            title=_build_title(context, value),
            evidence=[
                Evidence(VISIBLE_DEVICES_VARIABLE, repr(value)),
                *variable_origins.list_origin_evidence(context, VISIBLE_DEVICES_VARIABLE),
                *(Evidence("the driver, without it", gpu) for gpu in gpus),
            ],
            remedies=_build_remedies(context),
        )
    ]


def _build_device_types_finding(context: RuleContext, problem: str) -> Finding:
    """Return the finding that TF_ENABLED_DEVICE_TYPES excludes GPUs."""
    consequence = "TensorFlow then takes no GPU, whatever the driver shows."
    return _build_variable_finding(
        context,
        DEVICE_TYPES_VARIABLE,
        problem,
        consequence,
        f"{DEVICE_TYPES_VARIABLE} keeps TensorFlow from every GPU",
    )


def _build_xla_flags_finding(context: RuleContext, problem: str) -> Finding:
    """Return the finding that TF_XLA_FLAGS has a flag that TensorFlow does not know."""
    # the problem quotes the unknown flag
    hint = " XLA's own flags (`--xla_…`) belong in XLA_FLAGS." if "'xla_" in problem else ""
    consequence = f"That happens when it lists its devices, the CPU included.{hint}"
    title = f"{TF_XLA_FLAGS_VARIABLE} has a flag that TensorFlow does not know: it ends the process"
    return _build_variable_finding(context, TF_XLA_FLAGS_VARIABLE, problem, consequence, title)


def _build_import_finding(context: RuleContext, name: str, problem: str) -> Finding:
    """Return the finding that an environment variable of Python, or keras.json, stops the import of this release."""
    if name == context.facts.environment.keras_file:
        return RULE.make_finding(
            Cause.HIDDEN_BY_ENV,
            Severity.ERROR,
            f"{problem} It was written for another Keras, and KERAS_BACKEND overrides it.",
            title=f"{name} stops import tensorflow",
            short_title="keras.json names an unknown backend",
            evidence=[Evidence(name, context.facts.environment.keras_backend)],
            remedies=variable_origins.make_keras_backend_remedies(context),
        )
    return _build_variable_finding(
        context,
        name,
        problem,
        "Other programs may need it: unset it for TensorFlow only.",
        f"{name} stops import tensorflow",
    )


def _build_variable_finding(
    context: RuleContext, name: str, problem: str, consequence: str, title: str
) -> Finding:
    """Return the finding about an environment variable that TensorFlow or Python reads.

    `problem` and `consequence` are sentences.
    """
    return RULE.make_finding(
        Cause.HIDDEN_BY_ENV,
        Severity.ERROR,
        f"{problem}{variable_origins.format_origin_sentence(context, name)} {consequence}",
        title=title,
        short_title=f"{name} must be unset",
        evidence=[
            Evidence(name, repr(context.facts.environment.variables[name])),
            *variable_origins.list_origin_evidence(context, name),
        ],
        remedies=[variable_origins.make_unset_remedy(context, name, "Unset the variable.")],
    )


def _build_title(context: RuleContext, value: str) -> str:
    """Return the title of the finding, with the file that sets the variable if that is known."""
    origin = context.facts.environment.find_origin(VISIBLE_DEVICES_VARIABLE)
    if origin is None or not origin.path:
        return RULE.title
    setter = variable_origins.format_origin(context, VISIBLE_DEVICES_VARIABLE)
    return f"{VISIBLE_DEVICES_VARIABLE}={value or repr(value)} is set by {setter}, and hides every GPU"


def _explain_value(value: str, devices: tuple[CudaDevice, ...]) -> str:
    """Return a clause that says why this value selects no GPU."""
    entries = [entry.strip() for entry in value.split(",")]
    first_entry = entries[0]
    if not value.strip():
        return "an empty value hides every card"
    if first_entry.startswith("-") and first_entry[1:].isdigit():
        return f"{first_entry} hides every card, and whatever follows it"
    if first_entry == "NoDevFiles":
        return "a scheduler sets this for a job that requested no GPU"
    if first_entry.startswith(("GPU-", "MIG-")):
        return f"no card here has an identifier that begins with {first_entry}"
    # 18 digits suffice to see that the number is too large; int() refuses very long ones
    if first_entry.isdecimal() and int(first_entry[:18]) >= len(devices) > 0:
        last = len(devices) - 1
        numbers = f"they are numbered from 0 to {last}" if last else "the only card has the number 0"
        return f"there is no card {first_entry}; {numbers}"
    if len(set(entries)) < len(entries):
        return "it names a card twice, which hides every card"
    return f"{first_entry!r} is neither a number nor an identifier of a card"


def _build_remedies(context: RuleContext) -> list[Remedy]:
    """Return the remedies: request a GPU from the scheduler that set the variable, or unset it."""
    scheduler = context.facts.environment.scheduler
    text = "Unset the variable, or name cards that are there."
    unset_remedy = variable_origins.make_unset_remedy(
        context, VISIBLE_DEVICES_VARIABLE, text, with_steps=scheduler is None
    )
    if scheduler not in GPU_REQUEST_COMMANDS:
        return [unset_remedy]
    # a file that sets the variable shows that the scheduler did not
    if variable_origins.list_origin_evidence(context, VISIBLE_DEVICES_VARIABLE):
        return [unset_remedy]
    hint = GPU_REQUEST_HINTS.get(scheduler, ": request a GPU")
    text = f"This job runs under {scheduler}, which sets the variable{hint}."
    return [Remedy(text, GPU_REQUEST_COMMANDS[scheduler])]


RULE = Rule(
    "TFD601",
    "hidden-by-env",
    "CUDA_VISIBLE_DEVICES hides every GPU",
    (Cause.HIDDEN_BY_ENV,),
    check,
    short_title="hides every GPU",
    fix_order=32,
)
