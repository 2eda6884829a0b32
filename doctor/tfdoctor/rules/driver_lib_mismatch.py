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

from tfdoctor.core.facts import Known, SmiFailure, value_of
from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.prediction.driver import find_kernel_module_mismatch
from tfdoctor.remedies.pip import format_check_command
from tfdoctor.remedies.user_permissions import get_sudo_prefix
from tfdoctor.rules.base import NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import drivers, prerequisites

NVML_ERROR_MISMATCH = 18
"""NVML's error number for different versions of driver and library."""
UNLOAD_ORDER = ("nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nvidia")
"""The order in which rmmod can remove the modules: each module is used by those before it."""


def check(context: RuleContext) -> Result:
    state = drivers.determine_driver_state(context)
    if state.cause is not None and state.cause is not Cause.DRIVER_LIB_MISMATCH:
        return NotApplicable("the driver fails for another reason")
    mismatch_evidence = _list_mismatch_evidence(context)
    if state.cause is None and not mismatch_evidence:
        return ()
    has_failed = state.cause is Cause.DRIVER_LIB_MISMATCH
    is_fatal = has_failed or context.prediction.cause is Cause.DRIVER_LIB_MISMATCH
    mismatch = find_kernel_module_mismatch(context.facts)
    if mismatch is not None:
        module_version, library_version = mismatch
        description = f"The kernel module in memory is {module_version}, the libraries are {library_version}"
    else:
        description = "The kernel module in memory and the libraries have different versions"
    driver_result = state.driver_result
    evidence = list(mismatch_evidence)
    if has_failed and driver_result is not None:
        source = getattr(context.facts.driver.cuda, "source", "libcuda.so.1")
        evidence.insert(0, Evidence(source, f"cuInit: {driver_result.init_name} ({driver_result.init})"))
    evidence += drivers.list_module_evidence(context)
    if driver_result is not None and driver_result.path:
        evidence.append(Evidence(driver_result.path, "is the libcuda that was loaded"))
    ending = "." if has_failed else "; libcuda still answers, and NVML, which nvidia-smi uses, does not."
    return [
        RULE.make_finding(
            Cause.DRIVER_LIB_MISMATCH,
            Severity.ERROR if is_fatal else Severity.WARNING,
            f"{description}: an update changed the files, and the old module is still loaded{ending}",
            title="The driver was updated, and the old kernel module is still loaded",
            evidence=evidence,
            remedies=_build_remedies(context),
        )
    ]


def _list_mismatch_evidence(context: RuleContext) -> list[Evidence]:
    """Return evidence of the mismatch from NVML and nvidia-smi; an empty list if neither reports it."""
    driver = context.facts.driver
    nvml, smi = value_of(driver.nvml), value_of(driver.smi)
    evidence = []
    if nvml is not None and nvml.init == NVML_ERROR_MISMATCH:
        evidence.append(
            Evidence("nvmlInit", f"{nvml.init_error or 'Driver/library version mismatch'} ({nvml.init})")
        )
    if isinstance(smi, SmiFailure) and smi.kind == "nvml_mismatch":
        evidence += drivers.list_smi_evidence(context)
    return evidence


def _build_remedies(context: RuleContext) -> list[Remedy]:
    """Return the remedies: restart, or replace the loaded kernel module without a restart."""
    facts = context.facts
    if facts.machine.container:
        return [
            Remedy(
                "Restart the host if its driver was updated, then start this container again: it keeps the "
                "libraries that it was given when it was started.",
            ),
            Remedy(
                "If that does not help, the image has its own driver libraries, which do not belong "
                "there; this lists their packages (Debian, Ubuntu).",
                ("dpkg -l 'libnvidia-compute-*' 'libcuda1' 'nvidia-utils-*'",),
            ),
        ]
    sudo = get_sudo_prefix(context.target)
    loaded_modules = value_of(facts.driver.modules) if isinstance(facts.driver.modules, Known) else None
    modules = [name for name in UNLOAD_ORDER if loaded_modules is None or name in loaded_modules]
    return [
        drivers.make_reboot_remedy(context, "Restart the machine: this always helps."),
        Remedy(
            "Without a restart: end every program that uses the card (the desktop too), then change the "
            "module.",
            (
                f"{sudo}lsof /dev/nvidia*",
                f"{sudo}rmmod {' '.join(modules or ['nvidia'])}",
                f"{sudo}modprobe nvidia",
                format_check_command(context.target),
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
    needs=(prerequisites.require_driver_result,),
)
