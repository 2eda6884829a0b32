"""NVIDIA's kernel module is missing for the running kernel.

What it means
-------------
A driver has two parts. Its libraries work with every kernel; its kernel module is built for one. After an
update of the kernel, the module must be built or installed for the new one by DKMS, akmods or a package of
the distribution. If that failed, or the kernel's headers were missing, the libraries find no module and no
GPU.

How it is seen
--------------
No NVIDIA module is loaded, and the running kernel's list of modules (modules.dep) has none, while
libcuda.so.1 is installed and a GPU is on the PCI bus. DKMS's folder and the folders of the other kernels
show what was built for which kernel.

What to do
----------
Install the headers of the running kernel, build the module and load it. Or start a kernel that has the
module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.facts import Known, Unknown
from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.remedies.pip import quote
from tfdoctor.remedies.system import make_driver_remedy
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
from tfdoctor.rules.shared import drivers, kernels

if TYPE_CHECKING:
    from tfdoctor.core.facts import ModuleFiles


def check(context: RuleContext) -> Result:
    cause = get_required_value(kernels.find_missing_module_cause(context))
    fact = context.facts.kernel.modules
    if isinstance(fact, Unknown):
        return CouldNotCheck(f"the module's files: {fact.why}")
    if not isinstance(fact, Known) or not kernels.has_usable_gpu(context):
        return NotApplicable("there is no card on the bus for a module to drive")
    if not kernels.is_module_unbuilt(context):
        return ()
    if kernels.is_gpu_switched_off(context):
        return NotApplicable("the card was switched off on purpose, which TFD119 explains")
    kernel, module_files = context.facts.machine.kernel, fact.value
    other_kernels = ", ".join(module_files.other_kernels)
    evidence = [make_fact_evidence(fact, f"no nvidia.ko for the running kernel {kernel}")]
    if other_kernels:
        evidence.append(Evidence("/lib/modules", f"has one for: {other_kernels}"))
    evidence += [
        Evidence(
            "/var/lib/dkms",
            f"{dkms_module.name} {dkms_module.version}, built for: {', '.join(dkms_module.kernels) or 'no kernel'}",
        )
        for dkms_module in module_files.dkms
    ]
    if not module_files.headers:
        evidence.append(Evidence(f"/lib/modules/{kernel}/build", "the kernel's headers are not there"))
    evidence += drivers.list_module_evidence(context)
    return [
        RULE.make_finding(
            cause,
            Severity.ERROR,
            _explain_missing_module(kernel, module_files),
            title="NVIDIA's kernel module was built for another kernel than the running one"
            if other_kernels
            else "NVIDIA's kernel module is not installed",
            evidence=evidence,
            remedies=_list_remedies(context, module_files),
        )
    ]


def _explain_missing_module(kernel: str, module_files: ModuleFiles) -> str:
    """Return why the running kernel has no module, as far as DKMS and the installed headers show it."""
    text = f"The driver's libraries are installed, and the running kernel {kernel} has no NVIDIA module."
    if module_files.other_kernels:
        text += f" It is there for {', '.join(module_files.other_kernels)}: the kernel was updated."
    build_log = next((dkms_module.failed for dkms_module in module_files.dkms if dkms_module.failed), "")
    if build_log:
        return f"{text} DKMS tried to build it and failed; {build_log} has the reason."
    if not module_files.headers:
        return f"{text} The kernel's headers, without which it cannot be built, are not installed."
    return text


def _list_remedies(context: RuleContext, module_files: ModuleFiles) -> list[Remedy]:
    build_log = next((dkms_module.failed for dkms_module in module_files.dkms if dkms_module.failed), "")
    remedies = []
    if build_log:
        remedies.append(Remedy("See why the build failed.", (f"tail -n 40 {quote(build_log)}",)))
    uses_akmods = context.facts.machine.distribution_id == "fedora"
    if module_files.dkms or uses_akmods:
        remedies.append(kernels.make_rebuild_module_remedy(context))
    else:
        install_remedy = make_driver_remedy(context.target)
        headers_command = kernels.make_headers_install_command(context) if not module_files.headers else ""
        remedies.append(
            Remedy(
                f"Nothing here builds the module: install it with the driver. {install_remedy.text}",
                (*((headers_command,) if headers_command else ()), *install_remedy.commands),
                changes_system=True,
            )
        )
    if module_files.other_kernels:
        remedies.append(
            Remedy(
                f"Or restart, and choose kernel {module_files.other_kernels[-1]} in the start menu.",
                (f"{get_sudo_prefix(context.target)}reboot",),
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
    short_title="no module for this kernel",
    needs=(kernels.require_missing_module,),
)
