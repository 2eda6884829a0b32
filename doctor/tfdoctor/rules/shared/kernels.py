"""What rules about the kernel around the driver share: why a driver that is installed does not run.

A driver's libraries without its kernel module give the same few answers (CUDA_ERROR_NO_DEVICE, UNKNOWN, 303),
whatever the reason. Where the reason is known, its own rule (TFD117, TFD118, TFD119) tells it, and the general
ones (TFD101, TFD102, TFD105) leave it to that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor import advice
from tfdoctor.facts import Absent, Known, ModuleFiles, value_of
from tfdoctor.findings import Cause, Evidence, Remedy
from tfdoctor.rules.base import NotApplicable
from tfdoctor.rules.shared import drivers, xids

if TYPE_CHECKING:
    from tfdoctor.facts import KernelEvent
    from tfdoctor.rules.base import RuleContext

CAUSES_OF_MISSING_MODULE = frozenset({Cause.NO_DEVICE, Cause.DRIVER_INIT_UNKNOWN, Cause.NO_DRIVER})
"""What a driver without its kernel module answers."""
RESERVED = frozenset({"vfio-pci", "pci-stub"})

ProblemText = tuple[str, str, list[Remedy]]
"""Title, explanation, remedies."""


def cause_of_missing_module(context: RuleContext) -> Cause | None:
    """Return the cause if libcuda opens but fails and no NVIDIA kernel module runs on this host.

    Else None.
    """
    facts = context.facts
    machine = facts.machine
    if machine.container or machine.wsl or machine.jetson or machine.system != "Linux":
        return None
    if not isinstance(facts.driver.kernel_module, Absent):
        return None
    state = drivers.driver_state(context)
    if state.answer is None or not state.answer.loaded or state.answer.init in (None, 0, 34, 35, 36):
        return None
    return state.cause if state.cause in CAUSES_OF_MISSING_MODULE else None


def require_waiting_driver(context: RuleContext) -> NotApplicable | None:
    """Require an installed driver that does not run because its kernel module is missing."""
    if cause_of_missing_module(context) is None:
        return NotApplicable("no driver is installed here that waits for its kernel module")
    return None


def has_usable_card(context: RuleContext) -> bool:
    """Return whether a card exists for the module to drive.

    A card that is reserved for a virtual machine does not count.
    """
    cards = value_of(context.facts.driver.pci) or ()
    return any(card.driver not in RESERVED for card in cards)


def get_module_files(context: RuleContext) -> ModuleFiles | None:
    """Return the module's files on the disk, if they were searched for."""
    return value_of(context.facts.kernel.modules)


def is_module_unbuilt(context: RuleContext) -> bool:
    """Return whether the module does not exist for the running kernel (TFD117)."""
    found = get_module_files(context)
    if cause_of_missing_module(context) is None or found is None or not has_usable_card(context):
        return False
    return not found.running


def is_blocked_by_secure_boot(context: RuleContext) -> bool:
    """Return whether the module exists and Secure Boot blocks it (TFD118)."""
    found = get_module_files(context)
    if (
        cause_of_missing_module(context) is None
        or found is None
        or not found.running
        or not has_usable_card(context)
    ):
        return False
    if value_of(context.facts.kernel.secure_boot) is not True:
        return False
    return found.signed is False or bool(list_kernel_events(context, "unsigned"))


def is_switched_off(context: RuleContext) -> bool:
    """Return whether the card or its module was switched off on purpose (TFD119)."""
    if cause_of_missing_module(context) is None:
        return False
    found = get_module_files(context)
    if value_of(context.facts.kernel.prime) == "off":
        return True
    return found is not None and bool(found.blocked) and has_usable_card(context)


def module_rule_code(context: RuleContext) -> str:
    """Return the code of the rule that explains why the module does not run; empty if none does."""
    if is_switched_off(context):
        return "TFD119"
    if is_module_unbuilt(context):
        return "TFD117"
    return "TFD118" if is_blocked_by_secure_boot(context) else ""


def rebuild_initramfs_command(context: RuleContext) -> str:
    """Return the command that rebuilds the initial RAM disk."""
    root = advice.sudo(context.target)
    manager = advice.package_manager(context.target)
    if manager == advice.APT:
        return f"{root}update-initramfs -u"
    return f"{root}mkinitcpio -P" if manager == advice.PACMAN else f"{root}dracut --force"


# ---------------------------------------------------------------- the kernel's log


def list_kernel_events(context: RuleContext, *kinds: str) -> list[KernelEvent]:
    """List the kernel log's events of these kinds; of all kinds if none is named."""
    return [e for e in value_of(context.facts.kernel.log) or () if not kinds or e.kind in kinds]


def evidence_of_kernel_events(context: RuleContext, found: list[KernelEvent]) -> list[Evidence]:
    """Convert the log lines to evidence."""
    fact = context.facts.kernel.log
    source = fact.source if isinstance(fact, Known) else "dmesg"
    return [
        Evidence(source, event.text + (f" ({event.count} times)" if event.count > 1 else ""))
        for event in found[:8]
    ]


def explain_by_kernel_log(context: RuleContext) -> ProblemText | None:
    """Explain why the driver shows no card, if the kernel log has a reason that nothing else shows."""
    for kind, say in (
        ("xid", _explain_lost_card),
        ("bus-lost", _explain_lost_card),
        ("bad-bar", _bad_bar),
        ("firmware-missing", _firmware),
        ("legacy", _legacy),
        ("not-supported", _explain_unsupported_card),
        ("needs-open", _needs_open),
        ("wrong-kernel", _wrong_kernel),
        ("init-failed", _init_failed),
    ):
        found = list_kernel_events(context, kind)
        if kind == "xid":
            found = [e for e in found if xids.find_xid(e.xid or 0).kind is xids.XidKind.LOST]
        if found:
            return say(context, found[-1])
    return None


def _explain_lost_card(context: RuleContext, event: KernelEvent) -> ProblemText:
    number = event.xid if event.xid is not None else xids.BUS_LOST
    if number != xids.BUS_LOST:
        said = xids.find_xid(number).meaning
        return (
            f"The card is unusable until it is reset (Xid {number})",
            f"The kernel's log says Xid {number}: {said}.",
            [drivers.reboot_remedy(context, "Restart the machine; if it recurs, the card is faulty.")],
        )
    return (
        "The card has fallen off the bus (Xid 79)",
        (
            "The kernel's log says that the card stopped answering while the machine ran: heat, power, a loose "
            "slot or riser, power saving of the bus, or a fault of the card itself. Programs cannot bring it "
            "back."
        ),
        [power_off_remedy(context)],
    )


def _bad_bar(context: RuleContext, event: KernelEvent) -> ProblemText:
    del event
    virtual = "In a virtual machine the same is a setting of the hypervisor (a larger 64-bit MMIO space)."
    return (
        "The firmware gives the card no address space",
        (
            "The kernel's log says that the card's memory region is invalid: the firmware has not given it "
            f"room among the addresses of the bus. {virtual}"
        ),
        [
            Remedy('In the firmware\'s settings, switch "Above 4G Decoding" on.'),
            Remedy(
                "See what the kernel says of it.", (f"{advice.sudo(context.target)}dmesg | grep -i 'BAR '",)
            ),
        ],
    )


def _firmware(context: RuleContext, event: KernelEvent) -> ProblemText:
    del event
    install = advice.driver_install(context.target)
    return (
        "The driver's firmware files are missing",
        (
            "The kernel's log says that NVIDIA firmware could not be loaded from /lib/firmware/nvidia: the "
            "driver was installed in part, or its files are not in the initial RAM disk."
        ),
        [Remedy(f"Install the driver again. {install.text}", install.commands, changes_system=True)],
    )


def _legacy(context: RuleContext, event: KernelEvent) -> ProblemText:
    del context
    branch = event.text.partition("through the NVIDIA ")[2].partition(".")[0].partition(" ")[0]
    return (
        "This driver no longer drives the card",
        f"The kernel's log says that the card is driven by branch {branch}, and not by the one that is loaded.",
        [Remedy(f"Install the driver branch {branch} in its place, then restart.", changes_system=True)],
    )


def _explain_unsupported_card(context: RuleContext, event: KernelEvent) -> ProblemText:
    del event
    return (
        "The driver that is loaded does not know the card",
        (
            "The kernel's log says that the card is not supported by this driver: it is newer than the driver, "
            "older than its branch still drives, or a virtual GPU that needs NVIDIA's vGPU driver."
        ),
        [
            Remedy("See which card it is, and choose a driver that lists it.", ("lspci -nn -d 10de:",)),
            advice.driver_install(context.target),
        ],
    )


def _needs_open(context: RuleContext, event: KernelEvent) -> ProblemText:
    del context, event
    return (
        "The card needs the open kernel module",
        (
            "The kernel's log says that this card is driven by NVIDIA's open kernel module only; the proprietary "
            "one is loaded."
        ),
        [Remedy("Install the open kernel module of the same branch, then restart.", changes_system=True)],
    )


def _wrong_kernel(context: RuleContext, event: KernelEvent) -> ProblemText:
    del event
    return (
        "NVIDIA's kernel module was built for another kernel",
        ("The kernel's log says that the module does not fit the kernel that runs."),
        [rebuild_module_remedy(context)],
    )


def _init_failed(context: RuleContext, event: KernelEvent) -> ProblemText:
    code = event.text.partition("RmInitAdapter failed!")[2].strip().partition(")")[0]
    named = f" {code})" if code.startswith("(") else ""
    return (
        "The kernel module cannot start the card",
        (
            f"The kernel's log says RmInitAdapter failed!{named}: the module is loaded, knows the card, and fails "
            "to bring it up. After a warm start or in a virtual machine the card is often in a bad state; otherwise "
            "module and libraries have different versions, or the card is faulty."
        ),
        [
            power_off_remedy(context),
            drivers.kernel_log_remedy(context),
        ],
    )


# ---------------------------------------------------------------- remedies


def power_off_remedy(context: RuleContext) -> Remedy:
    """Return the remedy for a card that a restart does not bring back."""
    return Remedy(
        "Shut the machine down, wait, and start it again; a restart is not enough. If it happens again, look at "
        "power, slot and cooling.",
        (f"{advice.sudo(context.target)}poweroff",),
        changes_system=True,
    )


def install_headers_command(context: RuleContext) -> str:
    """Return the command that installs the headers of the running kernel; empty if it is not known."""
    root = advice.sudo(context.target)
    return {
        advice.APT: f"{root}apt-get install linux-headers-$(uname -r)",
        advice.DNF: f"{root}dnf install kernel-devel-$(uname -r)",
        advice.ZYPPER: f"{root}zypper install kernel-default-devel",
        advice.PACMAN: f"{root}pacman -S linux-headers",
    }.get(advice.package_manager(context.target) or "", "")


def rebuild_module_remedy(context: RuleContext) -> Remedy:
    """Return the remedy with which this distribution builds the module for the running kernel."""
    root = advice.sudo(context.target)
    found = get_module_files(context)
    needed = install_headers_command(context) if found is None or not found.headers else ""
    build = f"{root}dkms autoinstall"
    if context.facts.machine.distribution_id == "fedora" and not (found is not None and found.dkms):
        build = f"{root}akmods --force"
    return Remedy(
        "Build the module for the kernel that runs, and load it.",
        (*((needed,) if needed else ()), build, f"{root}modprobe nvidia", advice.check_again(context.target)),
        changes_system=True,
    )
