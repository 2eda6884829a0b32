"""NVIDIA's kernel module is missing for the running kernel.

What it means
-------------
A driver has two halves. The libraries serve every kernel; the kernel module is built for one. After an update of
the kernel the module has to be built or installed for the new one, by DKMS, akmods or a package of the
distribution. Where that failed, or the kernel's headers were missing, the libraries find no module and no card.

How it is seen
--------------
No NVIDIA module is loaded, and the list of the running kernel's modules (modules.dep) has none, while libcuda.so.1
is installed and a card is on the bus. DKMS's folder and the other kernels tell what was built for which.

What to do
----------
Install the headers of the kernel that runs, build the module, load it. Or start the kernel that has one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor import advice
from tfdoctor.facts import Known, Unknown
from tfdoctor.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.rules.base import (
    CouldNotCheck,
    NotApplicable,
    Result,
    Rule,
    RuleContext,
    evidence_from,
    require_value,
)
from tfdoctor.rules.shared import drivers, kernels

if TYPE_CHECKING:
    from tfdoctor.facts import ModuleFiles


def check(context: RuleContext) -> Result:
    cause = require_value(kernels.cause_of_missing_module(context))
    fact = context.facts.kernel.modules
    if isinstance(fact, Unknown):
        return CouldNotCheck(f"the module's files: {fact.why}")
    if not isinstance(fact, Known) or not kernels.has_usable_card(context):
        return NotApplicable("there is no card on the bus for a module to drive")
    if not kernels.is_module_unbuilt(context):
        return ()
    if kernels.is_switched_off(context):
        return NotApplicable("the card was switched off on purpose, which TFD119 explains")
    kernel, found = context.facts.machine.kernel, fact.value
    others = ", ".join(found.other_kernels)
    evidence = [evidence_from(fact, f"no nvidia.ko for the running kernel {kernel}")]
    if others:
        evidence.append(Evidence("/lib/modules", f"has one for: {others}"))
    evidence += [
        Evidence("/var/lib/dkms", f"{m.name} {m.version}, built for: {', '.join(m.kernels) or 'no kernel'}")
        for m in found.dkms
    ]
    if not found.headers:
        evidence.append(Evidence(f"/lib/modules/{kernel}/build", "the kernel's headers are not there"))
    evidence += drivers.module_evidence(context)
    return [
        RULE.finding(
            cause,
            Severity.ERROR,
            _explanation(kernel, found),
            title="NVIDIA's kernel module is built for another kernel, not for the running one"
            if others
            else "NVIDIA's kernel module is not installed",
            evidence=evidence,
            remedies=_remedies(context, found),
        )
    ]


def _explanation(kernel: str, found: ModuleFiles) -> str:
    said = f"The driver's libraries are installed, and the running kernel {kernel} has no NVIDIA module."
    if found.other_kernels:
        said += f" It is there for {', '.join(found.other_kernels)}: the kernel was updated."
    failed = next((m.failed for m in found.dkms if m.failed), "")
    if failed:
        return f"{said} DKMS tried to build it and failed; {failed} has the reason."
    if not found.headers:
        return f"{said} The kernel's headers, without which it cannot be built, are not installed."
    return said


def _remedies(context: RuleContext, found: ModuleFiles) -> list[Remedy]:
    failed = next((m.failed for m in found.dkms if m.failed), "")
    remedies = []
    if failed:
        remedies.append(Remedy("See why the build failed.", (f"tail -n 40 {advice.quote(failed)}",)))
    akmods = context.facts.machine.distribution_id == "fedora"
    if found.dkms or akmods:
        remedies.append(kernels.rebuild_module_remedy(context))
    else:
        install = advice.driver_install(context.target)
        needed = kernels.install_headers_command(context) if not found.headers else ""
        remedies.append(
            Remedy(
                f"Nothing here builds the module: install it with the driver. {install.text}",
                (*((needed,) if needed else ()), *install.commands),
                changes_system=True,
            )
        )
    if found.other_kernels:
        remedies.append(
            Remedy(
                f"Or restart, and choose kernel {found.other_kernels[-1]} in the start menu.",
                (f"{advice.sudo(context.target)}reboot",),
                changes_system=True,
            )
        )
    return remedies


RULE = Rule(
    "TFD117",
    "module-not-built",
    "NVIDIA's kernel module is missing for the running kernel",
    (Cause.NO_DEVICE, Cause.DRIVER_INIT_UNKNOWN, Cause.NO_DRIVER),
    check,
    row="no module for this kernel",
    needs=(kernels.require_waiting_driver,),
)
