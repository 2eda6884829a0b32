"""NVML, the driver's management library, is missing or fails.

What it means
-------------
From 2.21 on TensorFlow opens libnvidia-ml.so.1 before it registers a GPU. If that fails, it registers none
and prints nothing. The library is part of the driver. Containers get it only with the driver capability
`utility`.

How it is seen
--------------
tfdoctor follows the loader's rules for libnvidia-ml.so.1 as TensorFlow opens it, and a child process calls
nvmlInit.

What to do
----------
Install the driver package that contains it, or start the container with
NVIDIA_DRIVER_CAPABILITIES=compute,utility.
"""

from __future__ import annotations

from tfdoctor.core.facts import value_of
from tfdoctor.core.findings import Cause, Evidence, Finding, Remedy, Severity
from tfdoctor.prediction.driver import NVML_ERROR_UNKNOWN, has_lost_devices
from tfdoctor.remedies.engine import CAPABILITIES_VARIABLE, excludes_capability, make_capabilities_remedy
from tfdoctor.remedies.pip import format_check_command
from tfdoctor.remedies.system import APT, get_package_manager, make_driver_remedy
from tfdoctor.remedies.user_permissions import get_sudo_prefix
from tfdoctor.rules.base import CouldNotCheck, NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import drivers, prerequisites

NVML_SONAME = "libnvidia-ml.so.1"
REASON_BY_NVML_ERROR = {
    3: "this user or container is not allowed to",  # NVML_ERROR_NOT_SUPPORTED
    4: "this user is not allowed to open the device nodes",  # NVML_ERROR_NO_PERMISSION
    9: "the kernel module is not loaded",  # NVML_ERROR_DRIVER_NOT_LOADED
    12: "a part of the driver's library is missing",  # NVML_ERROR_LIBRARY_NOT_FOUND
    15: "a card has fallen off the bus",  # NVML_ERROR_GPU_IS_LOST
    17: "the operating system blocks the access to the card",  # NVML_ERROR_OPERATING_SYSTEM
    NVML_ERROR_UNKNOWN: "the reason is not known",
}
"""The reason for each error code of nvmlInit that this rule reports."""
NVML_ERROR_MISMATCH = 18
"""NVML_ERROR_LIB_RM_VERSION_MISMATCH: the kernel module has another version, which TFD104 reports."""


def check(context: RuleContext) -> Result:
    if context.build is None or NVML_SONAME not in context.build.driver_libraries:
        return NotApplicable("this TensorFlow does not open NVML")
    if context.loader is None:
        return CouldNotCheck("the loader could not be followed")
    state = drivers.determine_driver_state(context)
    if state.cause is not None:
        return NotApplicable("libcuda.so.1 fails before NVML is opened")
    resolution = context.loader.find_resolution(NVML_SONAME)
    if resolution is not None and not resolution.ok:
        return [_build_missing_finding(context, resolution.error)]
    nvml = value_of(context.facts.driver.nvml)
    if nvml is None:
        return CouldNotCheck(getattr(context.facts.driver.nvml, "why", "NVML was not asked"))
    if has_lost_devices(context.facts):
        return NotApplicable("the container was cut off from the GPUs, which TFD112 explains")
    if nvml.loaded and nvml.init not in (0, None, NVML_ERROR_MISMATCH):
        return [_build_failure_finding(context, nvml.init or 0, nvml.init_error)]
    return ()


def _build_missing_finding(context: RuleContext, error: str) -> Finding:
    version = context.build.version if context.build is not None else ""
    variables = context.facts.environment.variables
    capabilities = variables.get(CAPABILITIES_VARIABLE)
    evidence = [Evidence("the loader", error)]
    lacks_utility = capabilities is not None and excludes_capability(capabilities, "utility")
    if capabilities is not None:
        evidence.append(Evidence(CAPABILITIES_VARIABLE, repr(capabilities)))
    note = (
        f" {CAPABILITIES_VARIABLE} is {capabilities!r}: without `utility` a container is not given NVML."
        if lacks_utility
        else ""
    )
    return RULE.make_finding(
        Cause.NVML_MISSING,
        Severity.ERROR,
        f"TensorFlow {version} opens {NVML_SONAME} before it registers a GPU; the loader cannot open it, so no "
        f"GPU is registered, and TensorFlow does not say why. libcuda.so.1 itself works.{note}",
        title=f"{NVML_SONAME} is missing; TensorFlow {version} registers no GPU without it",
        evidence=evidence,
        remedies=_list_remedies(context, capabilities),
    )


def _list_remedies(context: RuleContext, capabilities: str | None) -> list[Remedy]:
    machine, manager = context.facts.machine, get_package_manager(context.target)
    sudo = get_sudo_prefix(context.target)
    if machine.container and capabilities is not None and not excludes_capability(capabilities, "utility"):
        return [
            Remedy(
                "A container gets the host's: check on the host whether its driver has it.", ("nvidia-smi",)
            )
        ]
    if machine.container:
        return [make_capabilities_remedy(context.target)]
    if machine.wsl:
        return [
            Remedy(
                "WSL's own is in /usr/lib/wsl/lib; tell the loader about it.",
                (f"echo /usr/lib/wsl/lib | {sudo}tee /etc/ld.so.conf.d/ld.wsl.conf", f"{sudo}ldconfig"),
                changes_system=True,
            )
        ]
    if manager == APT and machine.distribution_id == "debian":
        return [
            Remedy(
                "Install it.",
                (f"{sudo}apt-get install libnvidia-ml1", format_check_command(context.target)),
                changes_system=True,
            )
        ]
    install_remedy = make_driver_remedy(context.target)
    return [
        Remedy(
            f"It comes with the driver: install the complete driver. {install_remedy.text}",
            install_remedy.commands,
            changes_system=True,
        )
    ]


def _build_failure_finding(context: RuleContext, code: int, text: str) -> Finding:
    reason = REASON_BY_NVML_ERROR.get(code, "NVML gives no reason")
    remedies = [
        Remedy("Check whether nvidia-smi, which uses it, says more.", ("nvidia-smi",)),
        drivers.make_kernel_log_remedy(context),
    ]
    return RULE.make_finding(
        Cause.NVML_MISSING,
        Severity.ERROR,
        f"{NVML_SONAME} opens and nvmlInit fails with {code}{f' ({text})' if text else ''}: {reason}. libcuda.so.1 "
        "works. TensorFlow 2.21 and newer ask NVML about the cards first, and register none where it does "
        "not answer.",
        title=f"NVML is installed but fails ({code})",
        evidence=[Evidence("nvmlInit", f"{code}: {text or reason}"), *drivers.list_smi_evidence(context)],
        remedies=remedies,
    )


RULE = Rule(
    "TFD109",
    "nvml-missing",
    "NVML is missing or fails",
    (Cause.NVML_MISSING,),
    check,
    short_title="NVML is missing or fails",
    needs=(prerequisites.require_tensorflow,),
)
