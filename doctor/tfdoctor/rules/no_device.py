"""The driver answers but shows no device.

What it means
-------------
libcuda.so.1 is there, and cuInit returns CUDA_ERROR_NO_DEVICE (100) or the driver counts no device.
CUDA_VISIBLE_DEVICES does not hide one: the result is the same without it. The card is missing, switched
off, bound to another kernel driver, has fallen off the bus, or is not supported by this driver.

How it is seen
--------------
A child process calls the driver. The PCI bus, the kernel modules and nvidia-smi show the reason: a card
bound to vfio-pci or nouveau, a kernel module that is not loaded, an open kernel module with a card older
than Turing, a driver branch that no longer supports the card, a card in MIG mode without instances.

What to do
----------
This depends on the reason, which the finding names. If no reason is found, the kernel's log may show it.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from tfdoctor import advice, versions
from tfdoctor.facts import Absent, SmiFacts, SmiFailure, value_of
from tfdoctor.findings import Cause, Evidence, Finding, Remedy, Severity
from tfdoctor.rules.base import GPU, NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import drivers, kernels, prerequisites

if TYPE_CHECKING:
    from tfdoctor.facts import PciGpu


def check(context: RuleContext) -> Result:
    state = drivers.driver_state(context)
    if state.answer is None or not state.answer.loaded:
        return NotApplicable("there is no driver to ask")
    if state.cause is not Cause.NO_DEVICE:
        return ()
    if drivers.list_node_errors(context):
        return NotApplicable("device nodes are missing or closed, which TFD113 explains")
    code = kernels.module_rule_code(context)
    if code:
        return NotApplicable(f"NVIDIA's kernel module does not run, for a reason that {code} explains")
    evidence = [
        Evidence(getattr(context.facts.driver.cuda, "source", ""), _format_answer(context)),
        *drivers.pci_evidence(context),
        *drivers.module_evidence(context),
        *drivers.smi_evidence(context),
    ]
    title, explanation, remedies = _explain_no_device(context)
    if context.facts.machine.container:
        remedies = [
            dataclasses.replace(remedy, text=f"On the host, not in here: {remedy.text}")
            for remedy in remedies
        ]
    return [_build_finding(title, explanation, evidence, remedies)]


def _build_finding(title: str, explanation: str, evidence: list[Evidence], remedies: list[Remedy]) -> Finding:
    return RULE.finding(
        Cause.NO_DEVICE, Severity.ERROR, explanation, title=title, evidence=evidence, remedies=remedies
    )


def _format_answer(context: RuleContext) -> str:
    answer = value_of(context.facts.driver.cuda)
    if answer is None or answer.init == 0:
        return "cuDeviceGetCount: 0"
    return f"cuInit: {answer.init_name} ({answer.init})"


ProblemText = tuple[str, str, list[Remedy]]


def _explain_no_device(context: RuleContext) -> ProblemText:
    """Return title, explanation and remedies of the first explanation that applies."""
    for explain in (
        _explain_wsl,
        _explain_card_absence,
        _explain_card_binding,
        _explain_mig,
        _explain_lost_card,
        _explain_silent_cards,
        _explain_missing_module,
        _explain_unsupported_card,
        kernels.explain_by_kernel_log,
    ):
        explanation = explain(context)
        if explanation is not None:
            return explanation
    return (
        "The driver shows no GPU",
        "The driver is loaded and knows of no device that CUDA could use. The kernel's log says why.",
        [
            drivers.kernel_log_remedy(context),
            drivers.reboot_remedy(context, "A restart helps where the card is stuck."),
        ],
    )


def _explain_wsl(context: RuleContext) -> ProblemText | None:
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


def _explain_card_absence(context: RuleContext) -> ProblemText | None:
    """Report that no NVIDIA card is on the PCI bus."""
    if not isinstance(context.facts.driver.pci, Absent) or context.facts.machine.jetson:
        return None
    modules = value_of(context.facts.driver.modules) or ()
    list_cards = Remedy("Check whether the machine has an NVIDIA card at all.", ("lspci -d 10de:",))
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
                    (f"{advice.sudo_prefix(context.target)}prime-select nvidia",),
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
            list_cards,
            drivers.reboot_remedy(context, "A card that fell off the bus comes back after a cold start."),
        ],
    )


def _explain_card_binding(context: RuleContext) -> ProblemText | None:
    """Report that another kernel driver is bound to the cards, if NVIDIA's driver is bound to none."""
    cards = value_of(context.facts.driver.pci) or ()
    if not cards or any(card.driver == "nvidia" for card in cards):
        return None
    for card in cards:
        if card.driver in ("vfio-pci", "pci-stub"):
            return (
                "The card is reserved for a virtual machine",
                (
                    f"{drivers.card_label(context, card)} is bound to {card.driver}, which hands it to a "
                    "virtual machine; the host's driver cannot use it."
                ),
                [_make_rebind_remedy(context, card)],
            )
        if card.driver in ("nouveau", "nova_core", "nova"):
            return (
                f"The card runs on {card.driver}, not on NVIDIA's driver",
                (
                    f"NVIDIA's libraries are installed, and {card.driver} has taken "
                    f"{drivers.card_label(context, card)}: it was loaded first. NVIDIA's packages switch it "
                    "off, and the next start has to happen with that in the initial RAM disk."
                ),
                [
                    Remedy(
                        "Switch it off for the next start.",
                        (
                            (
                                f"echo 'blacklist {card.driver}' | {advice.sudo_prefix(context.target)}tee "
                                f"/etc/modprobe.d/blacklist-{card.driver}.conf"
                            ),
                            kernels.rebuild_initramfs_command(context),
                            f"{advice.sudo_prefix(context.target)}reboot",
                        ),
                        changes_system=True,
                    )
                ],
            )
    return None


def _make_rebind_remedy(context: RuleContext, card: PciGpu) -> Remedy:
    root, address = advice.sudo_prefix(context.target), advice.quote(card.address)
    return Remedy(
        "If no virtual machine uses it, give it back until the next start. To keep it, take `vfio-pci.ids` out of "
        "the kernel's command line or /etc/modprobe.d.",
        (
            f"echo {address} | {root}tee /sys/bus/pci/drivers/{card.driver}/unbind",
            f"{root}modprobe nvidia",
            f"echo {address} | {root}tee /sys/bus/pci/drivers/nvidia/bind",
        ),
        changes_system=True,
    )


def _explain_mig(context: RuleContext) -> ProblemText | None:
    """Report that all cards are in MIG mode and have no instances."""
    smi = value_of(context.facts.driver.smi)
    parents = (
        [gpu for gpu in smi.gpus if gpu.mig and not gpu.mig_instances] if isinstance(smi, SmiFacts) else []
    )
    if not isinstance(smi, SmiFacts) or not parents or len(parents) != len(smi.gpus):
        return None
    parent = parents[0]
    index = parent.index or 0
    root = advice.sudo_prefix(context.target)
    return (
        "MIG is on but the card has no instance",
        (
            f"{parent.name or 'The card'} is in MIG mode (divided into instances) and none was made: CUDA "
            "shows instances only, so it shows nothing."
        ),
        [
            Remedy(
                "Make an instance: list the profiles, then make one of the largest (profile 0) and its "
                "compute instance.",
                (f"{root}nvidia-smi mig -i {index} -lgip", f"{root}nvidia-smi mig -i {index} -cgi 0 -C"),
                changes_system=True,
            ),
            Remedy(
                "Switch MIG off and use the whole card (no program may be using it).",
                (f"{root}nvidia-smi -i {index} -mig 0",),
                changes_system=True,
            ),
        ],
    )


def _explain_lost_card(context: RuleContext) -> ProblemText | None:
    """Report that nvidia-smi says that a card was lost."""
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
            drivers.kernel_log_remedy(context),
            kernels.power_off_remedy(context),
        ],
    )


def _explain_silent_cards(context: RuleContext) -> ProblemText | None:
    """Report that every card on the bus reads as all ones."""
    cards = value_of(context.facts.driver.pci) or ()
    lost = context.facts.kernel.lost_cards
    if not cards or any(card.address not in lost for card in cards):
        return None
    return (
        "The card does not answer on the bus",
        (
            f"{', '.join(drivers.card_label(context, card) for card in cards)}: everything that is read from it "
            'is all ones (lspci shows "rev ff"). It was switched off (a laptop\'s power saving), or has fallen '
            "off the bus."
        ),
        [
            drivers.kernel_log_remedy(context),
            Remedy(
                "Shut down, wait, and start again; on a laptop, look at the tool that switches its graphics."
            ),
        ],
    )


def _explain_missing_module(context: RuleContext) -> ProblemText | None:
    """Report that the user-space libraries are installed but the kernel module is not loaded."""
    if not isinstance(context.facts.driver.kernel_module, Absent) or context.facts.machine.jetson:
        return None
    root = advice.sudo_prefix(context.target)
    headers = {
        advice.APT: f"{root}apt-get install --reinstall linux-headers-$(uname -r)",
        advice.DNF: f"{root}dnf install kernel-devel-$(uname -r)",
        advice.PACMAN: f"{root}pacman -S linux-headers",
    }.get(advice.package_manager(context.target) or "")
    rebuild = (*((headers,) if headers else ()), f"{root}dkms autoinstall", f"{root}modprobe nvidia")
    return (
        "NVIDIA's kernel module is not loaded",
        ("The driver's libraries are installed and its kernel module is not running. It was not built for "
        f"this kernel{_format_kernel(context)} (after a kernel update), Secure Boot refuses it because it is not "
        "signed, or something keeps it from being loaded."),
        [
            Remedy(
                "Load it; where that fails, the message names the reason.",
                (f"{root}modprobe nvidia", advice.check_again(context.target)),
                changes_system=True,
            ),
            Remedy(
                "\"Key was rejected by service\" or \"Required key not available\" means Secure Boot: enrol "
                "the key that signs the module (the distribution's driver package asks for it), or switch "
                "Secure Boot off in the firmware.",
                ("mokutil --sb-state",),
            ),
            Remedy('"Module nvidia not found" means that it was not built: see, then build it.',
                   ("dkms status", *rebuild), changes_system=True),
        ],
    )  # fmt: skip


def _format_kernel(context: RuleContext) -> str:
    return f" ({context.facts.machine.kernel})" if context.facts.machine.kernel else ""


def _explain_unsupported_card(context: RuleContext) -> ProblemText | None:
    """Report that the kernel module runs but does not support this card."""
    module = value_of(context.facts.driver.kernel_module)
    if module is None:
        return None
    for card in value_of(context.facts.driver.pci) or ():
        gpu = drivers.find_gpu(context, card)
        if gpu is None:
            continue
        branch = context.compat.cards.find_ended(gpu.capability)
        if branch is not None and versions.is_at_least(module.version, branch.first_without):
            return (
                f"Driver {module.version} no longer drives the {gpu.name}",
                (
                    f"Branch {branch.last} is the last one for compute capability {gpu.capability}; this is "
                    f"{module.version}."
                ),
                [Remedy(f"Install the driver branch {branch.last} in its place, then restart.")],
            )
        if module.open_kernel and not versions.is_at_least(
            gpu.capability, context.compat.cards.open_module.drives_from
        ):
            return (
                f"The open kernel module does not drive the {gpu.name}",
                (
                    "NVIDIA's open kernel module is for Turing (compute capability 7.5) and newer; this "
                    f"card is {gpu.capability} and needs the proprietary one."
                ),
                [_install_flavour_remedy(context, module.version, opened=False)],
            )
        if not module.open_kernel and versions.is_at_least(
            gpu.capability, context.compat.cards.open_module.alone_from
        ):
            return (
                f"The {gpu.name} needs the open kernel module",
                (
                    "From Blackwell on (compute capability 10.0) only NVIDIA's open kernel module drives a "
                    "card; the proprietary one is loaded."
                ),
                [_install_flavour_remedy(context, module.version, opened=True)],
            )
    return None


def _install_flavour_remedy(context: RuleContext, version: str, *, opened: bool) -> Remedy:
    """Return the remedy that installs the other flavour of the same driver branch."""
    root, manager = advice.sudo_prefix(context.target), advice.package_manager(context.target)
    name = "the open" if opened else "the proprietary"
    text = f"Install {name} kernel module of the same branch, then restart."
    machine = context.facts.machine
    if manager == advice.APT and machine.distribution_id == "ubuntu":
        package = f"nvidia-driver-{version.split('.', maxsplit=1)[0]}{'-open' if opened else ''}"
        return Remedy(text, (f"{root}apt-get install {package}", f"{root}reboot"), changes_system=True)
    if manager == advice.APT:
        package = "nvidia-open-kernel-dkms" if opened else "nvidia-kernel-dkms"
        return Remedy(text, (f"{root}apt-get install {package}", f"{root}reboot"), changes_system=True)
    if manager == advice.PACMAN and opened:
        return Remedy(text, (f"{root}pacman -S nvidia-open", f"{root}reboot"), changes_system=True)
    return Remedy(text, changes_system=True)


RULE = Rule(
    "TFD102",
    "no-device",
    "The driver shows no GPU",
    (Cause.NO_DEVICE,),
    check,
    short_title="the driver shows none",
    needs=(prerequisites.require_driver,),
    area=GPU,
)
