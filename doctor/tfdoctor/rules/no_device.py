"""The driver answers but shows no device.

What it means
-------------
libcuda.so.1 is there, and cuInit returns CUDA_ERROR_NO_DEVICE (100) or the driver counts no device.
CUDA_VISIBLE_DEVICES does not hide one: the result is the same without it. The GPU is missing, switched
off, bound to another kernel driver, has fallen off the bus, or is not supported by this driver.

How it is seen
--------------
A child process calls the driver. The PCI bus, the kernel modules and nvidia-smi show the reason: a GPU
bound to vfio-pci or nouveau, a kernel module that is not loaded, an open kernel module with a GPU older
than Turing, a driver branch that no longer supports the GPU, a GPU in MIG mode without instances.

What to do
----------
This depends on the reason, which the finding names. If no reason is found, the kernel's log may show it.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.facts import Absent, SmiFacts, SmiFailure, value_of
from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.core.text import lower_first
from tfdoctor.remedies.pip import format_check_command, quote
from tfdoctor.remedies.system import APT, DNF, PACMAN, get_package_manager
from tfdoctor.remedies.user_permissions import get_sudo_prefix
from tfdoctor.rules.base import GPU, NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import drivers, kernels, prerequisites

if TYPE_CHECKING:
    from tfdoctor.core.facts import PciGpu


def check(context: RuleContext) -> Result:
    state = drivers.determine_driver_state(context)
    if state.driver_result is None or not state.driver_result.loaded:
        return NotApplicable("there is no driver to ask")
    if state.cause is not Cause.NO_DEVICE:
        return ()
    if drivers.list_node_problems(context):
        return NotApplicable("device nodes are missing or closed, which TFD113 explains")
    code = kernels.find_missing_module_rule(context)
    if code:
        return NotApplicable(f"NVIDIA's kernel module does not run, for a reason that {code} explains")
    evidence = [
        Evidence(getattr(context.facts.driver.cuda, "source", ""), _format_driver_result(context)),
        *drivers.list_pci_evidence(context),
        *drivers.list_module_evidence(context),
        *drivers.list_smi_evidence(context),
    ]
    title, explanation, remedies = _explain_no_device(context)
    if context.facts.machine.container:
        remedies = [
            dataclasses.replace(
                remedy, text=f"On the host, not in this container: {lower_first(remedy.text)}"
            )
            for remedy in remedies
        ]
    return [
        RULE.make_finding(
            Cause.NO_DEVICE, Severity.ERROR, explanation, title=title, evidence=evidence, remedies=remedies
        )
    ]


def _format_driver_result(context: RuleContext) -> str:
    driver_result = value_of(context.facts.driver.cuda)
    if driver_result is None or driver_result.init == 0:
        return "cuDeviceGetCount: 0"
    return f"cuInit: {driver_result.init_name} ({driver_result.init})"


def _explain_no_device(context: RuleContext) -> kernels.ProblemExplanation:
    """Return the text for the first reason that applies. Without a reason, refer to the kernel's log."""
    for explain in (
        _explain_wsl,
        _explain_absent_gpu,
        _explain_other_driver,
        _explain_mig,
        _explain_lost_gpu,
        _explain_silent_gpus,
        _explain_missing_module,
        _explain_unsupported_gpu,
        kernels.explain_from_kernel_log,
    ):
        explanation = explain(context)
        if explanation is not None:
            return explanation
    return (
        "The driver shows no GPU",
        "The driver is loaded and knows of no device that CUDA could use. The kernel's log says why.",
        [
            drivers.make_kernel_log_remedy(context),
            drivers.make_reboot_remedy(context, "A restart helps where the card is stuck."),
        ],
    )


def _explain_wsl(context: RuleContext) -> kernels.ProblemExplanation | None:
    """Explain that WSL's driver shows no GPU."""
    if not context.facts.machine.wsl:
        return None
    return (
        "WSL's driver shows no GPU",
        (
            "Under WSL the card is Windows' own. Its driver answers and shows none: it is disabled in "
            "Windows, or WSL has lost it, as happens after a driver update or sleep."
        ),
        [
            Remedy(
                "In Windows' PowerShell; then open the distribution again.",
                ("nvidia-smi", "wsl --shutdown"),
                changes_system=True,
            )
        ],
    )


def _explain_absent_gpu(context: RuleContext) -> kernels.ProblemExplanation | None:
    """Explain that no NVIDIA GPU is on the PCI bus."""
    if not isinstance(context.facts.driver.pci, Absent) or context.facts.machine.jetson:
        return None
    modules = value_of(context.facts.driver.modules) or ()
    list_remedy = Remedy("Check whether the machine has an NVIDIA card at all.", ("lspci -d 10de:",))
    if "bbswitch" in modules:
        return (
            "The NVIDIA card is switched off (bbswitch)",
            (
                "A driver is installed, no NVIDIA card is on the PCI bus, and bbswitch, which turns a "
                "laptop's card off, is loaded."
            ),
            [
                Remedy(
                    "Switch to the NVIDIA card (Ubuntu's tool), then restart.",
                    (f"{get_sudo_prefix(context.target)}prime-select nvidia",),
                    changes_system=True,
                )
            ],
        )
    return (
        "A driver is installed, but no NVIDIA card is on the PCI bus",
        (
            "The driver's library answers, but there is no card: a virtual machine or instance type without "
            "a GPU, a card that is switched off in the firmware, not seated, or fallen off the bus."
        ),
        [
            list_remedy,
            drivers.make_reboot_remedy(
                context, "A card that fell off the bus comes back after a cold start."
            ),
        ],
    )


def _explain_other_driver(context: RuleContext) -> kernels.ProblemExplanation | None:
    """Explain that another kernel driver is bound to the GPUs, and NVIDIA's driver to none."""
    pci_gpus = value_of(context.facts.driver.pci) or ()
    if not pci_gpus or any(pci_gpu.driver == "nvidia" for pci_gpu in pci_gpus):
        return None
    for pci_gpu in pci_gpus:
        if pci_gpu.driver in kernels.PASSTHROUGH_DRIVERS:
            return (
                "The card is reserved for a virtual machine",
                (
                    f"{drivers.format_pci_gpu(context, pci_gpu)} is bound to {pci_gpu.driver}, which hands it to a "
                    "virtual machine; the host's driver cannot use it."
                ),
                [_make_rebind_remedy(context, pci_gpu)],
            )
        if pci_gpu.driver in ("nouveau", "nova_core", "nova"):
            return (
                f"The card runs on {pci_gpu.driver}, not on NVIDIA's driver",
                (
                    f"NVIDIA's libraries are installed, and {pci_gpu.driver} has taken "
                    f"{drivers.format_pci_gpu(context, pci_gpu)}: it was loaded first. NVIDIA's packages switch it "
                    "off, and the next start has to happen with that in the initial RAM disk."
                ),
                [
                    Remedy(
                        "Switch it off for the next start.",
                        (
                            (
                                f"echo 'blacklist {pci_gpu.driver}' | {get_sudo_prefix(context.target)}tee "
                                f"/etc/modprobe.d/blacklist-{pci_gpu.driver}.conf"
                            ),
                            kernels.make_initramfs_rebuild_command(context),
                            f"{get_sudo_prefix(context.target)}reboot",
                        ),
                        changes_system=True,
                    )
                ],
            )
    return None


def _make_rebind_remedy(context: RuleContext, pci_gpu: PciGpu) -> Remedy:
    sudo, address = get_sudo_prefix(context.target), quote(pci_gpu.address)
    return Remedy(
        "If no virtual machine uses it, give it back until the next start. To keep it, take `vfio-pci.ids` out of "
        "the kernel's command line or /etc/modprobe.d.",
        (
            f"echo {address} | {sudo}tee /sys/bus/pci/drivers/{pci_gpu.driver}/unbind",
            f"{sudo}modprobe nvidia",
            f"echo {address} | {sudo}tee /sys/bus/pci/drivers/nvidia/bind",
        ),
        changes_system=True,
    )


def _explain_mig(context: RuleContext) -> kernels.ProblemExplanation | None:
    """Explain that all GPUs are in MIG mode and have no instances."""
    smi = value_of(context.facts.driver.smi)
    empty_gpus = (
        [gpu for gpu in smi.gpus if gpu.mig and not gpu.mig_instances] if isinstance(smi, SmiFacts) else []
    )
    if not isinstance(smi, SmiFacts) or not empty_gpus or len(empty_gpus) != len(smi.gpus):
        return None
    empty_gpu = empty_gpus[0]
    index = empty_gpu.index or 0
    sudo = get_sudo_prefix(context.target)
    return (
        "MIG is on but the card has no instance",
        (
            f"{empty_gpu.name or 'The card'} is in MIG mode (divided into instances) and none was made: CUDA "
            "shows instances only, so it shows nothing."
        ),
        [
            Remedy(
                "Make an instance: list the profiles, then make one of the largest (profile 0) and its "
                "compute instance.",
                (f"{sudo}nvidia-smi mig -i {index} -lgip", f"{sudo}nvidia-smi mig -i {index} -cgi 0 -C"),
                changes_system=True,
            ),
            Remedy(
                "Switch MIG off and use the whole card (no program may be using it).",
                (f"{sudo}nvidia-smi -i {index} -mig 0",),
                changes_system=True,
            ),
        ],
    )


def _explain_lost_gpu(context: RuleContext) -> kernels.ProblemExplanation | None:
    """Explain that a GPU was lost, according to nvidia-smi."""
    smi = value_of(context.facts.driver.smi)
    if not isinstance(smi, SmiFailure) or smi.kind not in ("gpu_lost", "device_handle_unknown_error"):
        return None
    return (
        "The card has fallen off the bus",
        (
            "The driver lost the card while the machine ran: heat, power, a loose slot or riser, or a fault "
            "of the card itself. Programs cannot bring it back."
        ),
        [
            drivers.make_kernel_log_remedy(context),
            kernels.make_power_off_remedy(context),
        ],
    )


def _explain_silent_gpus(context: RuleContext) -> kernels.ProblemExplanation | None:
    """Explain that no GPU responds: everything that is read from them on the bus is all ones."""
    pci_gpus = value_of(context.facts.driver.pci) or ()
    lost_addresses = context.facts.kernel.lost_cards
    if not pci_gpus or any(pci_gpu.address not in lost_addresses for pci_gpu in pci_gpus):
        return None
    return (
        "The card does not answer on the bus",
        (
            f"{', '.join(drivers.format_pci_gpu(context, pci_gpu) for pci_gpu in pci_gpus)}: everything that is read from it "
            'is all ones (lspci shows "rev ff"). It was switched off (a laptop\'s power saving), or has fallen '
            "off the bus."
        ),
        [
            drivers.make_kernel_log_remedy(context),
            Remedy(
                "Shut down, wait, and start again; on a laptop, look at the tool that switches its graphics."
            ),
        ],
    )


def _explain_missing_module(context: RuleContext) -> kernels.ProblemExplanation | None:
    """Explain that the user-space libraries are installed but the kernel module is not loaded."""
    if not isinstance(context.facts.driver.kernel_module, Absent) or context.facts.machine.jetson:
        return None
    sudo = get_sudo_prefix(context.target)
    headers_command = {
        APT: f"{sudo}apt-get install --reinstall linux-headers-$(uname -r)",
        DNF: f"{sudo}dnf install kernel-devel-$(uname -r)",
        PACMAN: f"{sudo}pacman -S linux-headers",
    }.get(get_package_manager(context.target) or "")
    rebuild_commands = (
        *((headers_command,) if headers_command else ()),
        f"{sudo}dkms autoinstall",
        f"{sudo}modprobe nvidia",
    )
    return (
        "NVIDIA's kernel module is not loaded",
        ("The driver's libraries are installed and its kernel module is not running. It was not built for "
        f"this kernel{_format_kernel(context)} (after a kernel update), Secure Boot refuses it because it is not "
        "signed, or something keeps it from being loaded."),
        [
            Remedy(
                "Load it; where that fails, the message names the reason.",
                (f"{sudo}modprobe nvidia", format_check_command(context.target)),
                changes_system=True,
            ),
            Remedy(
                "\"Key was rejected by service\" or \"Required key not available\" means Secure Boot: enrol "
                "the key that signs the module (the distribution's driver package asks for it), or switch "
                "Secure Boot off in the firmware.",
                ("mokutil --sb-state",),
            ),
            Remedy('"Module nvidia not found" means that it was not built: see, then build it.',
                   ("dkms status", *rebuild_commands), changes_system=True),
        ],
    )  # fmt: skip


def _format_kernel(context: RuleContext) -> str:
    return f" ({context.facts.machine.kernel})" if context.facts.machine.kernel else ""


def _explain_unsupported_gpu(context: RuleContext) -> kernels.ProblemExplanation | None:
    """Explain that the branch or flavour of the loaded kernel module does not support a GPU."""
    module = value_of(context.facts.driver.kernel_module)
    if module is None:
        return None
    for pci_gpu in value_of(context.facts.driver.pci) or ():
        gpu = drivers.find_gpu_entry(context, pci_gpu)
        if gpu is None:
            continue
        branch = context.compat.cards.find_unsupported(gpu.capability)
        if branch is not None and versions.is_at_least(module.version, branch.first_branch_without):
            return (
                f"Driver {module.version} no longer drives the {gpu.name}",
                (
                    f"Branch {branch.last_branch} is the last one for compute capability {gpu.capability}; this is "
                    f"{module.version}."
                ),
                [Remedy(f"Install the driver branch {branch.last_branch} in its place, then restart.")],
            )
        if module.open_kernel and not versions.is_at_least(
            gpu.capability, context.compat.cards.open_module.min_capability
        ):
            return (
                f"The open kernel module does not drive the {gpu.name}",
                (
                    "NVIDIA's open kernel module is for Turing (compute capability 7.5) and newer; this "
                    f"card is {gpu.capability} and needs the proprietary one."
                ),
                [_make_flavour_remedy(context, module.version, is_open=False)],
            )
        if not module.open_kernel and versions.is_at_least(
            gpu.capability, context.compat.cards.open_module.min_exclusive_capability
        ):
            return (
                f"The {gpu.name} needs the open kernel module",
                (
                    "From Blackwell on (compute capability 10.0) only NVIDIA's open kernel module drives a "
                    "card; the proprietary one is loaded."
                ),
                [_make_flavour_remedy(context, module.version, is_open=True)],
            )
    return None


def _make_flavour_remedy(context: RuleContext, version: str, *, is_open: bool) -> Remedy:
    """Return the remedy that installs the open or the proprietary kernel module of the same driver branch."""
    sudo, manager = get_sudo_prefix(context.target), get_package_manager(context.target)
    flavour = "the open" if is_open else "the proprietary"
    text = f"Install {flavour} kernel module of the same branch, then restart."
    machine = context.facts.machine
    if manager == APT and machine.distribution_id == "ubuntu":
        package = f"nvidia-driver-{version.split('.', maxsplit=1)[0]}{'-open' if is_open else ''}"
        return Remedy(text, (f"{sudo}apt-get install {package}", f"{sudo}reboot"), changes_system=True)
    if manager == APT:
        package = "nvidia-open-kernel-dkms" if is_open else "nvidia-kernel-dkms"
        return Remedy(text, (f"{sudo}apt-get install {package}", f"{sudo}reboot"), changes_system=True)
    if manager == PACMAN and is_open:
        return Remedy(text, (f"{sudo}pacman -S nvidia-open", f"{sudo}reboot"), changes_system=True)
    return Remedy(text, changes_system=True)


RULE = Rule(
    "TFD102",
    "no-device",
    "The driver shows no GPU",
    (Cause.NO_DEVICE,),
    check,
    short_title="the driver shows none",
    needs=(prerequisites.require_driver_result,),
    area=GPU,
)
