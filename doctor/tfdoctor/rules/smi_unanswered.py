"""nvidia-smi is installed but does not answer as expected.

What it means
-------------
nvidia-smi uses the driver through NVML; TensorFlow uses it through libcuda. If only nvidia-smi fails,
TensorFlow may still work, but part of the driver is damaged, blocked or slow. In a container that has run
for a while, "Failed to initialize NVML: Unknown Error" means that it lost access to the devices: systemd
on the host reloaded its units and removed the permission.

How it is seen
--------------
`nvidia-smi -q -x` runs with a time limit, and its message or exit status is compared with the known ones.

What to do
----------
If libcuda fails too, fix that first. A container that lost its devices must be started again.
"""

from __future__ import annotations

from tfdoctor.core.facts import SmiFailure, value_of
from tfdoctor.core.findings import Cause, Finding, Remedy, Severity
from tfdoctor.prediction.driver import has_lost_devices
from tfdoctor.rules.base import NotApplicable, Result, Rule, RuleContext, require_known_fact
from tfdoctor.rules.shared import drivers

DESCRIPTION_BY_FAILURE_KIND = {
    "timeout": "it does not answer in time: the driver is stuck, or many cards have to be woken up",
    "garbage": "it prints something that is no answer: it is another program with that name, or it is damaged",
    "driver_not_communicating": "it cannot talk to the kernel module: that is not loaded, or not built for "
    "this kernel",
    "nvml_driver_not_loaded": "NVML finds no kernel module",
    "nvml_unknown_error": "NVML fails and names no reason",
    "nvml_insufficient_permissions": "this user may not open the device nodes",
    "nvml_access_blocked_os": "the operating system blocks the access to the card (seen under WSL with old "
    "drivers)",
    "nvml_na": "NVML fails and names no reason",
    "no_devices": "it finds no device",
    "gpu_lost": "a card has fallen off the bus",
    "device_handle_unknown_error": "a card does not answer; mostly it has fallen off the bus",
    "device_handle_not_found": "a card is listed and cannot be found",
    "device_handle_error": "a card does not answer",
    "libnvidia_ml_missing": "libnvidia-ml.so.1, which it needs, cannot be loaded",
}
"""A clause for each failure kind that parse/smi_failure.py can return."""


def check(context: RuleContext) -> Result:
    state = drivers.determine_driver_state(context)
    if has_lost_devices(context.facts):
        is_harmless = state.is_working and context.prediction.cause is not Cause.CONTAINER_NVML_LOST
        return [_build_cut_off_finding(context, is_harmless=is_harmless)]
    fact = context.facts.driver.smi
    unmet_result = require_known_fact(fact, "nvidia-smi")
    if unmet_result is not None:
        return unmet_result
    failure = value_of(fact)
    if not isinstance(failure, SmiFailure):
        return ()
    if failure.kind in ("command_not_found", "executable_not_found_in_container"):
        return NotApplicable("there is no nvidia-smi")
    if failure.kind == "nvml_mismatch":
        return NotApplicable("its message is explained by TFD104")
    if state.is_working:
        return [_build_smi_finding(context, failure)]
    return [
        RULE.make_finding(
            Cause.INCONCLUSIVE,
            Severity.INFO,
            f"nvidia-smi fails as well: {_describe_smi_failure(failure)}. It asks the same driver.",
            title="nvidia-smi fails, too",
            evidence=drivers.list_smi_evidence(context),
        )
    ]


def _describe_smi_failure(failure: SmiFailure) -> str:
    """Return a clause about the failure; for an unknown kind, about the exit status."""
    description = DESCRIPTION_BY_FAILURE_KIND.get(failure.kind)
    if description is not None:
        return description
    return (
        f"it ends with status {failure.returncode}" if failure.returncode is not None else "it cannot be run"
    )


def _build_smi_finding(context: RuleContext, failure: SmiFailure) -> Finding:
    is_nvml_missing = failure.kind == "libnvidia_ml_missing"
    remedies = [Remedy("Run it by hand and read what it says.", ("nvidia-smi",))]
    if failure.kind == "garbage":
        remedies = [Remedy("See which program has that name.", ("type -a nvidia-smi",))]
    elif not is_nvml_missing:
        remedies.append(drivers.make_kernel_log_remedy(context))
    return RULE.make_finding(
        Cause.NVML_MISSING if is_nvml_missing else Cause.INCONCLUSIVE,
        Severity.WARNING,
        f"nvidia-smi fails: {_describe_smi_failure(failure)}. libcuda.so.1, which TensorFlow uses, still answers.",
        title="nvidia-smi does not answer as expected"
        if failure.kind != "timeout"
        else "nvidia-smi hangs, and the driver's library answers",
        evidence=drivers.list_smi_evidence(context),
        remedies=remedies,
    )


def _build_cut_off_finding(context: RuleContext, *, is_harmless: bool) -> Finding:
    return RULE.make_finding(
        Cause.CONTAINER_NVML_LOST,
        Severity.WARNING if is_harmless else Severity.ERROR,
        'NVML answers "Unknown Error". In a container that had a GPU when it was started this means that '
        "its host has since taken the permission to open the device nodes away: `systemctl daemon-reload` "
        "does that to containers whose devices systemd was not told of.",
        title="The container was cut off from the GPUs while it ran",
        short_title="the container was cut off",
        evidence=drivers.list_smi_evidence(context),
        remedies=[
            Remedy("Start the container again (on the host).", ("docker restart CONTAINER", "nvidia-smi")),
            Remedy(
                "To keep this from happening again, name the nodes when it is started, or use CDI (`--device "
                "nvidia.com/gpu=all`).",
                (
                    (
                        "docker run --gpus all --device /dev/nvidiactl --device /dev/nvidia-uvm --device "
                        "/dev/nvidia0 IMAGE"
                    ),
                ),
            ),
        ],
    )


RULE = Rule(
    "TFD112",
    "smi-unanswered",
    "nvidia-smi does not answer as expected",
    (Cause.INCONCLUSIVE, Cause.NVML_MISSING, Cause.CONTAINER_NVML_LOST),
    check,
    short_title="nvidia-smi does not work",
)
