"""Secure Boot keeps NVIDIA's kernel module out.

What it means
-------------
With Secure Boot the kernel loads only modules that are signed with a key that the firmware or the machine's
owner has enrolled. A module that DKMS or NVIDIA's installer built on this machine is not signed, or is
signed with a key that was never enrolled. The driver's libraries are installed, but no GPU is shown.

How it is seen
--------------
The firmware's variable SecureBoot is 1, the module's file for the running kernel exists and is not loaded,
and either the file has no signature (modinfo) or the kernel's log says that it refused a module. Only the
log shows that a module is signed with an unknown key.

What to do
----------
Have the module signed and enrol the key, which the next start asks for once. Or install the distribution's
own signed module, or switch Secure Boot off in the firmware.
"""

from __future__ import annotations

from tfdoctor.core.facts import Known, Unknown
from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.remedies.system import APT, DNF, get_package_manager
from tfdoctor.remedies.user_permissions import get_sudo_prefix
from tfdoctor.rules.base import (
    CouldNotCheck,
    NotApplicable,
    Result,
    Rule,
    RuleContext,
    get_required_value,
    make_fact_evidence,
)
from tfdoctor.rules.shared import kernels


def check(context: RuleContext) -> Result:
    cause = get_required_value(kernels.find_missing_module_cause(context))
    module_files = kernels.get_module_files(context)
    if module_files is None or not module_files.running or not kernels.has_usable_gpu(context):
        return NotApplicable("there is no module for the running kernel that could be refused")
    fact = context.facts.kernel.secure_boot
    if isinstance(fact, Unknown):
        return CouldNotCheck(f"Secure Boot: {fact.why}")
    if not isinstance(fact, Known) or not fact.value:
        return ()
    if kernels.is_gpu_switched_off(context):
        return NotApplicable("the card was switched off on purpose, which TFD119 explains")
    if not kernels.is_blocked_by_secure_boot(context):
        if module_files.signed is None and isinstance(context.facts.kernel.log, Unknown):
            return CouldNotCheck(
                "Secure Boot is on; neither modinfo nor the kernel's log tells whether it refuses"
            )
        return ()
    refusal_events = kernels.list_kernel_events(context, "unsigned")
    is_unsigned = module_files.signed is False
    return [
        RULE.make_finding(
            cause,
            Severity.ERROR,
            "Secure Boot is on, NVIDIA's kernel module is there and not loaded, and the kernel's log says that it "
            "refused a module."
            if refusal_events and not is_unsigned
            else "Secure Boot is on, and NVIDIA's kernel module is not signed, so the kernel refuses it.",
            title="The kernel refuses to load NVIDIA's module (Secure Boot)",
            evidence=[
                make_fact_evidence(fact, "Secure Boot is on"),
                Evidence(
                    module_files.running[0],
                    "is there and is not loaded" + (", not signed" if is_unsigned else ""),
                ),
                *kernels.make_kernel_event_evidence(context, refusal_events),
            ],
            remedies=_list_remedies(context),
        )
    ]


def _list_remedies(context: RuleContext) -> list[Remedy]:
    sudo, manager = get_sudo_prefix(context.target), get_package_manager(context.target)
    machine = context.facts.machine
    remedies = []
    if manager == APT and machine.distribution_id == "ubuntu":
        remedies.append(
            Remedy(
                "Take Ubuntu's ready-made module, which Canonical has signed: `ubuntu-drivers list` shows the "
                "branches; put yours in place of BRANCH.",
                (f"{sudo}apt-get install linux-modules-nvidia-BRANCH-generic", f"{sudo}reboot"),
                changes_system=True,
            )
        )
    key_path = {
        APT: "/var/lib/dkms/mok.pub"
        if machine.distribution_id == "debian"
        else "/var/lib/shim-signed/mok/MOK.der",
        DNF: "/etc/pki/akmods/certs/public_key.der"
        if machine.distribution_id == "fedora"
        else "/var/lib/dkms/mok.pub",
    }.get(manager or "", "/var/lib/dkms/mok.pub")
    remedies.append(
        Remedy(
            "Enrol the key with which DKMS (on Fedora: akmods) signs what it builds. It asks for a password, and "
            "the blue screen of the next start asks for it again; then build the module again.",
            (f"{sudo}mokutil --import {key_path}", f"{sudo}reboot"),
            changes_system=True,
        )
    )
    remedies.append(
        Remedy(
            "Or switch Secure Boot off in the firmware's settings; this shows how it stands.",
            ("mokutil --sb-state",),
        )
    )
    return remedies


RULE = Rule(
    "TFD118",
    "secure-boot",
    "Secure Boot keeps NVIDIA's kernel module out",
    (Cause.NO_DEVICE, Cause.DRIVER_INIT_UNKNOWN, Cause.NO_DRIVER),
    check,
    short_title="Secure Boot refuses the module",
    needs=(kernels.require_missing_module,),
)
