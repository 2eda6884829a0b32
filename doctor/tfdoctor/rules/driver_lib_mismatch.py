"""The driver's kernel module and its libraries have different versions.

What it means
-------------
The kernel module and the libraries of NVIDIA's driver only work together if they have the same version. After an
update the new libraries are on the disk at once, but the old kernel module stays in memory until it is reloaded:
cuInit returns CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803), on GeForce cards often 804, and nvidia-smi says
"Driver/library version mismatch".

How it is seen
--------------
cuInit's error, /proc/driver/nvidia/version (the module in memory) compared with the version of the libraries,
NVML's error 18, and nvidia-smi's message. TFD106 covers a libcuda from a cuda-compat package.

What to do
----------
Restart, or unload the old module and load the new one.
"""

from __future__ import annotations

from tfdoctor import advice
from tfdoctor.facts import Known, SmiFailure, value_of
from tfdoctor.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.predict import find_kernel_mismatch
from tfdoctor.rules.base import NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import drivers, prerequisites

NVML_MISMATCH = 18
"""NVML's error number for different versions of driver and library."""
UNLOAD_ORDER = ("nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nvidia")
"""The order in which rmmod can remove the modules: each is used by those before it."""


def check(context: RuleContext) -> Result:
    state = drivers.driver_state(context)
    if state.cause is not None and state.cause is not Cause.DRIVER_LIB_MISMATCH:
        return NotApplicable("the driver fails for another reason")
    mismatch_evidence = _mismatch_evidence(context)
    if state.cause is None and not mismatch_evidence:
        return ()
    failed = state.cause is Cause.DRIVER_LIB_MISMATCH
    fatal = failed or context.prediction.cause is Cause.DRIVER_LIB_MISMATCH
    versions = find_kernel_mismatch(context.facts)
    description = (
        f"The kernel module in memory is {versions[0]}, the libraries are {versions[1]}"
        if versions is not None
        else "The kernel module in memory and the libraries have different versions"
    )
    answer = state.answer
    evidence = list(mismatch_evidence)
    if failed and answer is not None:
        source = getattr(context.facts.driver.cuda, "source", "libcuda.so.1")
        evidence.insert(0, Evidence(source, f"cuInit: {answer.init_name} ({answer.init})"))
    evidence += drivers.module_evidence(context)
    if answer is not None and answer.path:
        evidence.append(Evidence(answer.path, "is the libcuda that was loaded"))
    ending = "." if failed else "; libcuda still answers, and NVML, which nvidia-smi uses, does not."
    return [
        RULE.finding(
            Cause.DRIVER_LIB_MISMATCH,
            Severity.ERROR if fatal else Severity.WARNING,
            f"{description}: an update changed the files, and the old module is still loaded{ending}",
            title="The driver was updated, and the old kernel module is still loaded",
            evidence=evidence,
            remedies=_remedies(context),
        )
    ]


def _mismatch_evidence(context: RuleContext) -> list[Evidence]:
    """Return what NVML and nvidia-smi report about the mismatch."""
    driver = context.facts.driver
    nvml, smi = value_of(driver.nvml), value_of(driver.smi)
    evidence = []
    if nvml is not None and nvml.init == NVML_MISMATCH:
        evidence.append(
            Evidence("nvmlInit", f"{nvml.init_error or 'Driver/library version mismatch'} ({nvml.init})")
        )
    if isinstance(smi, SmiFailure) and smi.kind == "nvml_mismatch":
        evidence += drivers.smi_evidence(context)
    return evidence


def _remedies(context: RuleContext) -> list[Remedy]:
    facts = context.facts
    if facts.machine.container:
        return [
            Remedy(
                "Restart the host if its driver was updated, then start this container again: it keeps the "
                "libraries that it was given when it was started.",
            ),
            Remedy(
                "If that does not help, the image has driver libraries of its own, which do not belong "
                "there; this lists their packages (Debian, Ubuntu).",
                ("dpkg -l 'libnvidia-compute-*' 'libcuda1' 'nvidia-utils-*'",),
            ),
        ]
    root = advice.sudo_prefix(context.target)
    loaded = value_of(facts.driver.modules) if isinstance(facts.driver.modules, Known) else None
    modules = [name for name in UNLOAD_ORDER if loaded is None or name in loaded]
    return [
        drivers.reboot_remedy(context, "Restart the machine: this always helps."),
        Remedy(
            "Without a restart: end every program that uses the card (the desktop too), then change the "
            "module.",
            (
                f"{root}lsof /dev/nvidia*",
                f"{root}rmmod {' '.join(modules or ['nvidia'])}",
                f"{root}modprobe nvidia",
                advice.check_again(context.target),
            ),
            changes_system=True,
        ),
    ]


RULE = Rule(
    "TFD104",
    "driver-lib-mismatch",
    "The driver's kernel module and libraries have different versions",
    (Cause.DRIVER_LIB_MISMATCH,),
    check,
    short_title="parts of different versions",
    needs=(prerequisites.require_driver,),
)
